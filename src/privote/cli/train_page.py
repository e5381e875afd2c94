"""The report of ``privote train``: what was released, and how good the student is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privote.accounting.renyi import rounded_up
from privote.mechanisms import ABSTAIN
from privote.report import Column, Facts, Section, TableBlock, write_page


def write_report(path: Path, outcome: Any) -> Path:
    """Write one self-contained page; everything on it may be published."""
    sections = [_released(outcome), _statement(outcome)]
    if outcome.figures:
        sections.insert(1, _judged(outcome))
    notices = ["SIMULATED: a seed was given, so these labels protect nobody."]
    return write_page(
        path,
        title="A student of private votes",
        intro=f"{outcome.rows:,} public rows were labelled by private votes, under "
        f"the guarantee {outcome.release.guarantee!r}; a student learnt from them.",
        sections=sections,
        notices=notices if outcome.release.simulated else (),
    )


def _released(outcome: Any) -> Section:
    release = outcome.release
    labels = release.labels
    rows = [
        {
            "label": name,
            "released 1": int((labels[:, place] == 1).sum()),
            "released 0": int((labels[:, place] == 0).sum()),
            "held back": int((labels[:, place] == ABSTAIN).sum()),
            "share of 1": float(np.mean(labels[labels[:, place] != ABSTAIN, place] == 1))
            if (labels[:, place] != ABSTAIN).any()
            else None,
        }
        for place, name in enumerate(outcome.label_names)
    ]
    shown = "sealed" if release.epsilon is None else f"{rounded_up(release.epsilon, 4)}"
    return Section(
        heading="What was released",
        blocks=[
            Facts(
                values={
                    "voters": release.voters,
                    "rows labelled": outcome.rows,
                    "answers": release.answered,
                    "epsilon": shown,
                    "delta": f"{rounded_up(release.delta)}",
                }
            ),
            TableBlock(
                caption="Released labels. Shares include the mechanism's noise.",
                rows=rows,
                columns=[
                    Column(key="label"),
                    Column(key="released 1"),
                    Column(key="released 0"),
                    Column(key="held back"),
                    Column(key="share of 1", digits=3),
                ],
            ),
        ],
    )


def _judged(outcome: Any) -> Section:
    return Section(
        heading="How good the student is",
        blocks=[
            "On the test rows, which are public, and whose labels the student never saw. ACC is "
            "accuracy, BAC balanced accuracy, AUC the area under the ROC curve, MAP mean average "
            "precision, each a mean over labels.",
            TableBlock(caption="Figures of merit.", rows=outcome.figures),
        ],
    )


def _statement(outcome: Any) -> Section:
    return Section(
        heading="Privacy statement",
        blocks=[line for line in outcome.release.statement().splitlines()[1:] if line],
    )
