"""What a training leaves in its folder: student, labels, statement, and a page about them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from privote.accounting.renyi import rounded_up
from privote.drafts import complete, sync_files, write_statement
from privote.learning import save_student
from privote.learning.jobs import Outcome
from privote.mechanisms import ABSTAIN
from privote.sheets import write_header

from .bill import bill
from .blocks import Facts, Section, TableBlock
from .page import write_page
from .tables import OWNER_ONLY, Column, plain

OWNERS = "for-the-owner.json"


def write_run(folder: Path, outcome: Outcome) -> list[str]:
    """Write everything, durably; returns the names of the files."""
    save_student(
        folder / "student.student",
        outcome.model,
        label_names=outcome.label_names,
        feature_names=outcome.feature_names,
        privacy=outcome.promise.facts(),
        thresholds=outcome.thresholds,
        encoder=outcome.encoder,
    )
    written = ["student.student", "statement.txt", "statement.json", "report.html"]
    if outcome.release is not None and outcome.public_rows is not None:
        with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
            write_header(stream, ["row", *outcome.label_names])
            rows = np.column_stack([outcome.public_rows, outcome.release.labels]).tolist()
            csv.writer(stream, lineterminator="\n").writerows(rows)
        written.insert(1, "labels.csv")
    write_statement(outcome.promise, folder / "statement.txt")
    write_report(folder / "report.html", outcome)
    if outcome.sealed:
        sealed = {"note": f"{OWNER_ONLY}: covered by no epsilon", "test": outcome.sealed}
        with complete(folder / OWNERS, force=True, owner_only=True) as part:
            part.write_text(json.dumps(plain(sealed), indent=2) + "\n", encoding="utf-8")
        written.append(OWNERS)
    sync_files(folder / name for name in written)
    return written


def shown(outcome: Outcome) -> dict[str, Any]:
    """Return what was promised, for a table; None where there is nothing to say."""
    facts, release = outcome.promise.facts(), outcome.release
    if release is None:
        names = ("records", "steps", "sample_rate", "noise_multiplier", "delta", "protects")
        return {
            "method": outcome.method,
            "epsilon": float(facts["epsilon"]),
            **{name.replace("_", " "): facts[name] for name in names if name in facts},
            "SIMULATED": "a seed was given" if facts["simulated"] else None,
        }
    many = release.answered if release.answered != outcome.rows else None
    own = {"public rows labelled": outcome.rows, "answers in all": many}
    return {**own, **bill(release), "protects": release.protects}


def write_report(path: Path, outcome: Outcome) -> Path:
    """Write one self-contained page; everything on it may be published."""
    release = outcome.release
    by_votes = release is not None
    sections = [_released(outcome) if by_votes else _trained(outcome), _statement(outcome)]
    if outcome.figures:
        sections.insert(1, _judged(outcome))
    notices = ["SIMULATED: a seed was given, so this protects nobody."]
    facts = outcome.promise.facts()
    intro = f"A model of {facts.get('records', 0):,} private records, by {facts['guarantee']}."
    if release is not None:
        intro = (
            f"{outcome.rows:,} public rows were labelled by private votes, under "
            f"the guarantee {release.guarantee!r}; a student learnt from them."
        )
    return write_page(
        path,
        title="A student of private votes" if by_votes else "A model of private records",
        intro=intro,
        sections=sections,
        notices=notices if facts["simulated"] else (),
    )


def _released(outcome: Outcome) -> Section:
    release = outcome.release
    assert release is not None
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
    cost = "sealed" if release.epsilon is None else f"{rounded_up(release.epsilon, 4)}"
    return Section(
        heading="What was released",
        blocks=[
            Facts(
                values={
                    "voters": release.voters,
                    "rows labelled": outcome.rows,
                    "answers": release.answered,
                    "epsilon": cost,
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


def _trained(outcome: Outcome) -> Section:
    facts = {name: value for name, value in shown(outcome).items() if value is not None}
    for name in ("epsilon", "delta"):
        facts[name] = f"{rounded_up(facts[name], 4)}"
    return Section(heading="How it was trained", blocks=[Facts(values=facts)])


def _judged(outcome: Outcome) -> Section:
    return Section(
        heading="How good the student is",
        blocks=[
            "On the test rows, which are public, and whose labels the student never saw. ACC is "
            "accuracy, BAC balanced accuracy, AUC the area under the ROC curve, MAP mean average "
            "precision, each a mean over labels.",
            TableBlock(caption="Figures of merit.", rows=outcome.figures),
        ],
    )


def _statement(outcome: Outcome) -> Section:
    by_votes = int(outcome.release is not None)  # that statement begins with its own heading
    return Section(
        heading="Privacy statement",
        blocks=[line for line in outcome.promise.statement().splitlines()[by_votes:] if line],
    )
