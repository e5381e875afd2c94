"""The work of ``privote train``: read, fit, judge and write."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote import metrics
from privote.datasets import MultiLabelData, tables
from privote.datasets import open as open_data
from privote.drafts import Draft, complete, sync_files
from privote.errors import InputError
from privote.learning import PATEClassifier, save_student
from privote.learning.networks.architectures import IMAGE_NETWORKS
from privote.release import Release
from privote.report import OWNER_ONLY

from .files import DRAFT, Promise, check_folder, made_folder, write_statement
from .output import plain
from .progress import stages

OWNERS = "for-the-owner.json"
FIGURES = ("ACC", "BAC", "AUC", "MAP")
SCENE_SIDE = 16  # pixels


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
    method: str
    network: str  # of dpsgd, or the kind of teacher
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

    @property
    def on_images(self) -> bool:
        """Whether something here looks at pixels."""
        return not {self.network, self.student}.isdisjoint(IMAGE_NETWORKS)

    def asked(self) -> dict[str, Any]:
        """Return what whoever resumes must ask for again."""
        named = ("epsilon", "delta", "guarantee", "voters", "queries", "random_state")
        return {
            **{name: self.settings[name] for name in named},
            "mechanism": str(self.settings["mechanism"]),
            **{"labels": self.labels, "student": self.student, "seed": self.seed},
            **{"data": Path(self.data).name, "public": self.public and self.public.name},
            **{"teacher": self.network},
            **{"dataset": self.dataset, "consumer": self.consumer, "electorate": self.electorate},
        }


@dataclass(kw_only=True)
class Outcome:
    """What came of it: all of it may be published but ``sealed``.

    Figures on test rows that are private are covered by no epsilon: they are for the owner's eyes.
    """

    job: Job
    promise: Promise
    rows: int = 0  # public rows that were labelled; neighbours answer on each several times
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    sealed: list[dict[str, Any]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    @property
    def release(self) -> Release | None:
        """What votes released; None for a training without votes."""
        return self.promise if isinstance(self.promise, Release) else None

    def facts(self) -> dict[str, Any]:
        """Return everything that may be published as plain values, for JSON."""
        return {
            "method": self.job.method,
            "release" if self.release is not None else "privacy": self.promise.facts(),
            "label_names": list(self.label_names),
            "test": self.figures,
            "output": str(self.job.output),
            "written": self.written,
        }

    def shown(self) -> dict[str, Any]:
        """Return the promise of a training without votes, for a table."""
        facts = self.promise.facts()
        names = ("records", "steps", "sample_rate", "noise_multiplier", "delta", "protects")
        return {
            "method": self.job.method,
            "epsilon": float(facts["epsilon"]),
            **{name.replace("_", " "): facts[name] for name in names},
            **({"SIMULATED": "a seed was given"} if facts["simulated"] else {}),
        }


def run_training(job: Job) -> Outcome:
    """Do everything but showing it."""
    check_folder(job.output, force=job.force or job.resume)
    private, public, test = _read(job)
    teacher = None if job.network == "linear" else _image_network(job.network)
    pate = PATEClassifier(teacher, _student(job.student), **job.settings)
    with (
        made_folder(job.output),  # before anything is charged
        Draft(job.output / DRAFT, job.asked(), resume=job.resume, force=job.force) as draft,
    ):
        with stages() as progress:
            pate.fit(
                _rows(private),
                private.Y,
                None if public is None else _rows(public),
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
            promise=pate.release_,
            rows=len(np.unique(pate.public_rows_)),
            label_names=private.label_names,
            feature_names=private.feature_names,
        )
        _judge(outcome, pate, test)
        _write(outcome, pate.student_, pate.public_rows_)
        draft.finish()
    return outcome


def run_direct(job: Job) -> Outcome:
    """Train on the private records themselves, with noise; nothing is labelled."""
    check_folder(job.output, force=job.force)
    private, public, test = _read(job)
    model = _direct(job)
    with made_folder(job.output):  # before anything is charged
        with stages() as progress:
            model.set_params(progress=partial(progress, "training"))
            model.fit(
                _rows(private),
                private.Y,
                None if public is None else _rows(public),
                groups=private.groups,
                ledger=job.ledger,
                dataset=job.dataset,
                consumer=job.consumer,
            )
            model.set_params(progress=None)
        outcome = Outcome(
            job=job,
            promise=model.privacy_,
            label_names=private.label_names,
            feature_names=private.feature_names,
        )
        _judge(outcome, model, test)
        _write(outcome, model)
    return outcome


def _direct(job: Job) -> Any:
    from privote.learning.direct import method

    return method(job.method)(seed=job.seed, **job.settings)


def _judge(outcome: Outcome, model: Any, test: MultiLabelData | None) -> None:
    """Add figures on test rows: published where those are public, else for the owner's eyes."""
    if test is None or not len(test):
        return
    found = metrics.multilabel(test.Y, model.predict_proba(_rows(test)))
    figures = [{"model": "student", **{name: found[name] for name in FIGURES}}]
    if outcome.job.test_is_public or outcome.job.data == "scenes":  # which everybody has
        outcome.figures = figures
    else:
        outcome.sealed = figures


def _read(job: Job) -> tuple[MultiLabelData, MultiLabelData | None, MultiLabelData | None]:
    """Return private, public and test rows; only votes need public ones."""
    if Path(job.data).suffix not in tables.SUFFIXES:
        if Path(job.data).is_file() and not job.data.endswith((".arff", ".arff.gz")):
            known = ", ".join(tables.SUFFIXES)
            raise InputError(f"DATA must be a table ({known}) or a data set by name: {job.data!r}")
        if job.public is not None or job.test is not None:
            raise InputError("--public and --test go with a table: a data set by name is split")
        sides = open_data(job.data).split()
        return _embedded(job, sides.private, sides.public, sides.test)
    names = {"id_column": job.id_column, "group_column": job.group_column}
    private = tables.table(job.data, labels=job.labels, features=job.columns, **names)
    public, test = (
        None if path is None else _like(private, job, path) for path in (job.public, job.test)
    )
    if public is None and job.method in ("teachers", "neighbours", "moments"):
        raise InputError("--public must be given with a table: the rows to label, or to learn from")
    if not private.label_names:
        raise InputError("--labels must name the columns of the private table that are labels")
    return private, public, test


def _embedded(
    job: Job, *sides: MultiLabelData
) -> tuple[MultiLabelData, MultiLabelData, MultiLabelData]:
    """Return the sides with features; pixels of scenes become similarities to public ones.

    What looks at images gets the pixels.
    """
    private, public, test = sides
    if private.name != "scenes":
        return private, public, test
    if job.on_images:
        first, second, third = (
            replace(side, X=side.X.reshape(-1, 1, SCENE_SIDE, SCENE_SIDE)) for side in sides
        )
        return first, second, third
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
    if kind in IMAGE_NETWORKS:
        return _image_network(kind)
    from privote.learning.students.mixmatch import MixMatchClassifier

    return MixMatchClassifier()


def _image_network(name: str) -> Any:
    from privote.learning.networks.image import ImageNetwork

    return ImageNetwork(name)


def _rows(data: MultiLabelData) -> Any:
    if data.X is None:
        raise InputError(f"{data.name} has labels only, and no features to learn from")
    return data.X


def _write(outcome: Outcome, model: Any, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Write everything, durably; ``rows`` say which public rows were labelled."""
    from .train_page import write_report

    folder = outcome.job.output
    save_student(
        folder / "student.student",
        model,
        label_names=outcome.label_names,
        feature_names=outcome.feature_names,
        privacy=outcome.promise.facts(),
    )
    outcome.written = ["student.student", "statement.txt", "statement.json", "report.html"]
    if outcome.release is not None and rows is not None:
        with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
            tables.write_header(stream, ["row", *outcome.label_names])
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows(np.column_stack([rows, outcome.release.labels]).tolist())
        outcome.written.insert(1, "labels.csv")
    write_statement(outcome.promise, folder / "statement.txt")
    write_report(folder / "report.html", outcome)
    if outcome.sealed:
        with complete(folder / OWNERS, force=True, owner_only=True) as part:
            sealed = {"note": f"{OWNER_ONLY}: covered by no epsilon", "test": outcome.sealed}
            part.write_text(json.dumps(plain(sealed), indent=2) + "\n", encoding="utf-8")
        outcome.written.append(OWNERS)
    sync_files(folder / name for name in outcome.written)
