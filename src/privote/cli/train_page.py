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
    by_votes = outcome.release is not None
    sections = [_released(outcome) if by_votes else _trained(outcome), _statement(outcome)]
    if outcome.figures:
        sections.insert(1, _judged(outcome))
    notices = ["SIMULATED: a seed was given, so this protects nobody."]
    facts = outcome.promise.facts()
    intro = f"A model of {facts.get('records', 0):,} private records, by {facts['guarantee']}."
    if by_votes:
        intro = (
            f"{outcome.rows:,} public rows were labelled by private votes, under "
            f"the guarantee {outcome.release.guarantee!r}; a student learnt from them."
        )
    return write_page(
        path,
        title="A student of private votes" if by_votes else "A model of private records",
        intro=intro,
        sections=sections,
        notices=notices if facts["simulated"] else (),
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


def _trained(outcome: Any) -> Section:
    facts = outcome.shown()
    for name in ("epsilon", "delta"):
        facts[name] = f"{rounded_up(facts[name], 4)}"
    return Section(heading="How it was trained", blocks=[Facts(values=facts)])


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
    by_votes = int(outcome.release is not None)  # that statement begins with its own heading
    return Section(
        heading="Privacy statement",
        blocks=[line for line in outcome.promise.statement().splitlines()[by_votes:] if line],
    )
