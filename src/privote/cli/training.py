"""The work of ``privote train``: read, fit, judge and write."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from privote import metrics
from privote.datasets import MultiLabelData, tables
from privote.datasets import open as open_data
from privote.drafts import Draft, complete, sync_files
from privote.errors import InputError
from privote.learning import PATEClassifier, save_student
from privote.release import Release
from privote.report import OWNER_ONLY

from .files import DRAFT, check_folder, made_folder, write_statement
from .output import plain
from .progress import stages

OWNERS = "for-the-owner.json"
FIGURES = ("ACC", "BAC", "AUC", "MAP")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for."""

    data: str
    public: Path | None
    test: Path | None
    test_is_public: bool
    labels: tuple[str, ...]
    id_column: str | None
    group_column: str | None
    student: str
    output: Path
    ledger: Any
    dataset: str
    consumer: str | None
    electorate: str | None
    columns: tuple[str, ...] | None
    seed: int | None
    force: bool
    resume: bool
    settings: Mapping[str, Any]

    def asked(self) -> dict[str, Any]:
        """Return what whoever resumes must ask for again."""
        named = ("epsilon", "delta", "guarantee", "voters", "queries", "random_state")
        return {
            **{name: self.settings[name] for name in named},
            "mechanism": str(self.settings["mechanism"]),
            **{"labels": self.labels, "student": self.student, "seed": self.seed},
            **{"dataset": self.dataset, "consumer": self.consumer, "electorate": self.electorate},
        }


@dataclass(kw_only=True)
class Outcome:
    """What came of it: all of it may be published but ``sealed``.

    Figures on test rows that are private are covered by no epsilon: they are for the owner's eyes.
    """

    job: Job
    release: Release
    rows: int  # public rows that were labelled; neighbours answer on each several times
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    sealed: list[dict[str, Any]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return everything that may be published as plain values, for JSON."""
        return {
            "release": self.release.facts(),
            "label_names": list(self.label_names),
            "test": self.figures,
            "output": str(self.job.output),
            "written": self.written,
        }


def run_training(job: Job) -> Outcome:
    """Do everything but showing it."""
    check_folder(job.output, force=job.force or job.resume)
    private, public, test = _read(job)
    if not private.label_names:
        raise InputError("--labels must name the columns of the private table that are labels")
    pate = PATEClassifier(student=_student(job.student), **job.settings)
    with (
        made_folder(job.output),  # before anything is charged
        Draft(job.output / DRAFT, job.asked(), resume=job.resume, force=job.force) as draft,
    ):
        with stages() as progress:
            pate.fit(
                _rows(private),
                private.Y,
                _rows(public),
                ids=private.ids,
                groups=private.groups,
                ledger=job.ledger,
                dataset=job.dataset,
                consumer=job.consumer,
                electorate=job.electorate,
                seed=job.seed,
                progress=progress,
                draft=draft,
                resume=job.resume,
            )
        outcome = Outcome(
            job=job,
            release=pate.release_,
            rows=len(np.unique(pate.public_rows_)),
            label_names=private.label_names,
            feature_names=private.feature_names,
        )
        if test is not None and len(test):
            found = metrics.multilabel(test.Y, pate.predict_proba(_rows(test)))
            figures = [{"model": "student", **{name: found[name] for name in FIGURES}}]
            if job.test_is_public or job.data == "scenes":  # which everybody has
                outcome.figures = figures
            else:
                outcome.sealed = figures
        _write(outcome, pate)
        sync_files(job.output / name for name in outcome.written)
        draft.finish()
    return outcome


def _read(job: Job) -> tuple[MultiLabelData, MultiLabelData, MultiLabelData | None]:
    """Return private, public and test rows."""
    if Path(job.data).suffix not in tables.SUFFIXES:
        if Path(job.data).is_file() and not job.data.endswith((".arff", ".arff.gz")):
            known = ", ".join(tables.SUFFIXES)
            raise InputError(f"DATA must be a table ({known}) or a data set by name: {job.data!r}")
        if job.public is not None or job.test is not None:
            raise InputError("--public and --test go with a table: a data set by name is split")
        sides = open_data(job.data).split()
        return _embedded(sides.private, sides.public, sides.test)
    if job.public is None:
        raise InputError("--public must be given with a table: the rows to label")
    names = {"id_column": job.id_column, "group_column": job.group_column}
    private = tables.table(job.data, labels=job.labels, features=job.columns, **names)
    others = [_like(private, job, path) for path in (job.public, job.test) if path is not None]
    return private, others[0], others[1] if len(others) > 1 else None


def _embedded(*sides: MultiLabelData) -> tuple[MultiLabelData, MultiLabelData, MultiLabelData]:
    """Return the sides with features; pixels of scenes become similarities to public ones."""
    private, public, test = sides
    if private.name != "scenes":
        return private, public, test
    from privote.datasets.landmarks import Landmarks

    landmarks = Landmarks().fit(public.X)
    first, second, third = (replace(side, X=landmarks.transform(side.X)) for side in sides)
    return first, second, third


def _like(private: MultiLabelData, job: Job, path: Path) -> MultiLabelData:
    """Read a table with the features of the private one; its other columns do not matter."""
    if path.suffix == ".npz" or private.feature_names is None:
        return tables.table(path, labels=private.label_names)
    labels = job.labels if path == job.test else ()
    return tables.table(path, labels=labels, features=private.feature_names)


def _student(kind: str) -> Any:
    if kind == "logistic":
        return None
    from privote.learning.students.mixmatch import MixMatchClassifier

    return MixMatchClassifier()


def _rows(data: MultiLabelData) -> Any:
    if data.X is None:
        raise InputError(f"{data.name} has labels only, and no features to learn from")
    return data.X


def _write(outcome: Outcome, pate: PATEClassifier) -> None:
    from .train_page import write_report

    folder = outcome.job.output
    save_student(
        folder / "student.student",
        pate.student_,
        label_names=outcome.label_names,
        feature_names=outcome.feature_names,
        privacy=pate.privacy_,
    )
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        tables.write_header(stream, ["row", *outcome.label_names])
        writer = csv.writer(stream, lineterminator="\n")
        rows = np.column_stack([pate.public_rows_, outcome.release.labels])
        writer.writerows(rows.tolist())
    write_statement(outcome.release, folder / "statement.txt")
    write_report(folder / "report.html", outcome)
    outcome.written = [
        "student.student",
        "labels.csv",
        "statement.txt",
        "statement.json",
        "report.html",
    ]
    if outcome.sealed:
        with complete(folder / OWNERS, force=True, owner_only=True) as part:
            sealed = {"note": f"{OWNER_ONLY}: covered by no epsilon", "test": outcome.sealed}
            part.write_text(json.dumps(plain(sealed), indent=2) + "\n", encoding="utf-8")
        outcome.written.append(OWNERS)
