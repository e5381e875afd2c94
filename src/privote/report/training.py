"""What a training leaves in its folder: student, labels, statement, and a page about them."""

from __future__ import annotations

import csv
import json
import shlex
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from privote._version import written
from privote.accounting.renyi import rounded_up
from privote.files import complete, sync_files, write_statement
from privote.learning import save_student
from privote.learning.jobs import Judgement, Outcome
from privote.learning.methods import doubts_of, expected
from privote.mechanisms import ABSTAIN
from privote.votes.tables import write_header

from .bill import bill, forecast_section, new_to
from .blocks import Command, Facts, Section, TableBlock, drawn
from .page import write_page
from .plots import by_parameter
from .statement import TrainingStatement
from .tables import FIGURES_MEAN, OWNER_ONLY, Column, plain

MODEL, OWNERS, OWNERS_PAGE = "student.student", "for-the-owner.json", "for-the-owner.html"
_OPTIONS = {"n_teachers": "teachers", "n_jobs": "jobs"}
UNCOVERED = "computed on private rows, covered by no epsilon"


def write_run(folder: Path, outcome: Outcome) -> list[str]:
    """Write everything, durably; returns the names of the files."""
    save_student(
        folder / MODEL,
        outcome.model,
        label_names=outcome.label_names,
        feature_names=outcome.feature_names,
        privacy={**outcome.promise.facts(), "method": outcome.fitted.method_},
        thresholds=outcome.fitted.thresholds_,
        encoder=outcome.fitted.encoder_,
    )
    written = [MODEL, "statement.txt", "statement.json", "report.html"]
    if outcome.release is not None and outcome.public_rows is not None:
        with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
            write_header(stream, ["row", *outcome.label_names])
            rows = np.column_stack([outcome.public_rows, outcome.release.labels]).tolist()
            csv.writer(stream, lineterminator="\n").writerows(rows)
        written.insert(1, "labels.csv")
    digest = sha256((folder / MODEL).read_bytes()).hexdigest()
    said = TrainingStatement(outcome=outcome, digest=digest)
    write_statement(said, folder / "statement.txt")
    write_report(folder / "report.html", said)
    if outcome.judgement is not None and not outcome.judgement.public:
        written += _write_sealed(folder, outcome.judgement)
    sync_files(folder / name for name in written)
    return written


def _write_sealed(folder: Path, found: Judgement) -> list[str]:
    """Write figures on private test rows: values, and a page; for the owner alone."""
    sealed = {
        **written(1),
        "note": f"{OWNER_ONLY}: {UNCOVERED}",
        "test": [found.figures],
        "labels": found.by_label,
        "reliability": [list(point) for point in found.reliability.items()],
    }
    with complete(folder / OWNERS, force=True, owner_only=True) as part:
        part.write_text(json.dumps(plain(sealed), indent=2) + "\n", encoding="utf-8")
    with complete(folder / OWNERS_PAGE, force=True, owner_only=True) as part:
        write_page(
            part,
            title="How good the student is",
            intro=f"{OWNER_ONLY.capitalize()}: {UNCOVERED}.",
            sections=[_judged(found)],
            sealed=True,
        )
    return [OWNERS, OWNERS_PAGE]


def shown(outcome: Outcome) -> dict[str, Any]:
    """Return what was promised, for a table; None where there is nothing to say."""
    facts, release = outcome.promise.facts(), outcome.release
    assumed = None
    if not outcome.persons:
        assumed = "one record a person: whoever has several is protected less (--group-column)"
    if release is None:
        names = ("records", "steps", "sample_rate", "noise_multiplier", "delta", "protects")
        return {
            "method": outcome.fitted.method_,
            "epsilon": float(facts["epsilon"]),
            **{_shown_as(name, outcome): facts[name] for name in names if name in facts},
            "assumed": assumed,
            "NEW": new_to(facts["dataset"]) if facts["new"] else None,
            "SIMULATED": "a seed was given" if facts["simulated"] else None,
        }
    many = release.answered if release.answered != outcome.rows else None
    own = {"method": outcome.fitted.method_, "public rows labelled": outcome.rows}
    own["answers in all"] = many
    return {**own, **bill(release), "protects": release.protects, "assumed": assumed}


def _shown_as(name: str, outcome: Outcome) -> str:
    return "persons" if name == "records" and outcome.persons else name.replace("_", " ")


def write_report(path: Path, said: TrainingStatement) -> Path:
    """Write one self-contained page; everything on it may be published."""
    outcome, release = said.outcome, said.outcome.release
    sections = [
        _released(outcome) if release is not None else _trained(outcome),
        _expected(outcome),
        _statement(said),
        Section(heading="How to make it again", blocks=[Command(text=command(outcome))]),
    ]
    labels = None if release is None else forecast_section(release)
    if labels is not None:
        sections.insert(1, labels)
    if outcome.judgement is not None and outcome.judgement.public:
        sections.insert(1, _judged(outcome.judgement))
    facts, numbers = outcome.promise.facts(), outcome.fitted.numbers_
    one = "persons" if outcome.persons else "records"
    intro = f"A model of {numbers.records:,} private {one}, by {facts['guarantee']}."
    if release is not None:
        intro = (
            f"{outcome.rows:,} public rows were labelled by private votes, under "
            f"the guarantee {release.guarantee!r}; a student learnt from them."
        )
    notices = list(doubts_of(numbers))
    if facts["simulated"]:
        notices.insert(0, "SIMULATED: a seed was given, so this protects nobody.")
    return write_page(
        path,
        title="A model of private records" if release is None else "A student of private votes",
        intro=intro,
        sections=sections,
        notices=notices,
    )


def command(outcome: Outcome) -> str:
    """Return the command that trains like this; without the ledger, whose place is private."""
    job = outcome.job
    given: dict[str, Any] = {
        "labels": ",".join(job.labels) or None,
        "columns": None if job.columns is None else ",".join(job.columns),
        "id-column": job.id_column,
        "group-column": job.group_column,
        "public": None if job.public is None else job.public.name,
        "epsilon": job.epsilon,
        "delta": job.delta,
        "method": job.method,
        "yes": job.yes,
        "seed": job.seed,
    }
    given |= {
        _OPTIONS.get(name, name.replace("_", "-")): value
        for name, value in job.settings.items()
        if isinstance(value, (str, int, float))
    }
    words = [f"--{name} {shlex.quote(str(it))}" for name, it in given.items() if it is not None]
    data = shlex.quote(Path(job.data).name)
    return " ".join(["privote train", data, *words, "--output", "NEW_FOLDER"])


def _expected(outcome: Outcome) -> Section:
    """Return what public numbers and released ones say about the model."""
    fitted = outcome.fitted
    shares = fitted.shares_
    bars = np.broadcast_to(np.asarray(fitted.thresholds_, float), (len(outcome.label_names),))
    rows = [
        {
            "label": name,
            "share": None if shares is None else float(shares[place]),
            "threshold": float(bars[place]),
        }
        for place, name in enumerate(outcome.label_names)
    ]
    return Section(
        heading="What to expect of the model",
        blocks=[
            *expected(fitted.numbers_, fitted.method_),
            *fitted.reasons_,
            "How common a label is, as far as what was released tells (noise included), and the "
            "probability from which on the student says yes: to that share of the public rows.",
            TableBlock(
                caption="Labels.",
                rows=rows,
                columns=[
                    Column(key="label"),
                    Column(key="share", digits=3),
                    Column(key="threshold", digits=3),
                ],
            ),
        ],
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


def _judged(found: Judgement) -> Section:
    mark = {} if found.public else {"may it leave?": OWNER_ONLY}
    where = "On the test rows, which are public" if found.public else f"On test rows: {UNCOVERED}"
    return Section(
        heading="How good the student is",
        blocks=[
            f"{where}; the student never saw their labels. {FIGURES_MEAN}",
            TableBlock(caption="Figures of merit.", rows=[{**found.figures, **mark}]),
            TableBlock(
                caption="The same for each label, and how many test rows have it.",
                rows=[{**row, **mark} for row in found.by_label],
            ),
            drawn(
                "How often a label was there, against the probability that the student gave it. "
                "On the straight line it could be taken at its word; what decides are the "
                "thresholds, for which the order is enough.",
                lambda: by_parameter(
                    {"student": found.reliability, "at its word": {0.0: 0.0, 1.0: 1.0}},
                    title="Reliability",
                    parameter="predicted probability",
                    quantity="share that was true",
                    sealed=not found.public,
                ),
                sealed=not found.public,
            ),
        ],
    )


def _statement(said: TrainingStatement) -> Section:
    blocks = [f"{name}: {text}" for name, text in said.parts()]
    lines = said.outcome.promise.statement().removeprefix("PRIVACY STATEMENT").splitlines()
    return Section(
        heading="Privacy statement",
        blocks=[*blocks, "In technical words:", *(line for line in lines if line)],
    )
