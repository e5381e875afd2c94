"""The demo: a private model of a table, and private labels from real votes, beside the truth.

Everything is embedded and public, so what a release says about itself can be compared with what is
so. Of private data no such comparison may leave.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from privote import metrics
from privote.datasets import Split, load_patients, load_scenes, load_teacher_votes
from privote.datasets.tables import write_table
from privote.errors import PrivoteWarning, whole
from privote.files import written
from privote.guarantees import SIMULATED
from privote.labelling import label
from privote.learning import PrivateClassifier, cast, train
from privote.learning.jobs import FIGURES
from privote.learning.students import LinearStudent
from privote.learning.tables import TableEncoder
from privote.release import Release

from .page import Command, Section, TableBlock, write_page
from .tables import FIGURES_MEAN, Column, plain

EPSILONS, DELTA = (8.0, 2.0), 1e-5
VOTES = {"reports": "tmc2007-250", "pictures": "voc2012"}
_SCENES, _TEACHERS = 6_000, 40
MODELS = [Column(key="model"), Column(key="epsilon", digits=2), *(Column(key=f) for f in FIGURES)]
LABELS = [
    *(Column(key=name, digits=2) for name in ("votes on", "rows", "epsilon", "ones")),
    *(
        Column(key=f"{kind} {figure}", heading=f"{kind}\n{figure}", digits=2)
        for kind in ("expected", "actual")
        for figure in ("precision", "recall")
    ),
]
MODELS_MEAN = (
    "Made-up patients, with words, dates, notes and missing values. The guarantee protects a "
    "person with all their records. The method is chosen from public numbers. The model without "
    f"privacy is linear too, and trained without noise. {FIGURES_MEAN}"
)
LABELS_MEAN = (
    "Teachers are models, each trained on its own part of the data: 250 vote on reports, 50 on "
    "pictures and 40 on scenes. Noisy tallies of their votes are released, and a label is 1 where "
    "most teachers probably want it. With rows, the scenes' public pixels help to decide. "
    "Expected: the quality that the release estimates for its own labels, against the teachers' "
    "noise-free majority (a dash: it cannot be estimated). Actual: the same comparison with the "
    "real majority, which only the owner of the votes can make."
)
_NEXT = """\
# the private model, from CSV files, with a page and a statement to sign
privote train {folder}/private.csv --labels {labels} \\
  --id-column id --group-column person --public {folder}/public.csv --test {folder}/test.csv \\
  --test-is-public --epsilon 8 --delta 1e-5 --output {folder}/run --force

# its predictions for other rows
privote predict {folder}/run/student.student {folder}/test.csv \\
  --output {folder}/predictions.csv --force

# the pictures' labels, by their names, with a page about them
privote label {folder}/pictures.npz --epsilon 8 --delta 1e-5 \\
  --output {folder}/labels.csv --report {folder}/labels.html --force"""
# Shows what is done now while the block runs.
Telling = Callable[[str], AbstractContextManager[Any]]
Rows = list[dict[str, Any]]


def run_demo(
    folder: Path, *, records: int, queries: int, seed: int | None, telling: Telling
) -> dict[str, Any]:
    """Train, label, and write data, page and summary into a folder; returns the summary."""
    whole("records", records, 200)
    whole("queries", queries, 50, 1000)
    place = shlex.quote(str(folder))
    command = f"privote demo --output {place} --records {records} --queries {queries}"
    command += "" if seed is None else f" --seed {seed}"
    with telling(f"1/3  training models on {records:,} patient visits"):
        sides = load_patients(records).split()  # no patient is on two of them
        models, reasons = _train(sides, seed)
        for name in ("private", "public", "test"):
            write_table(folder / f"{name}.csv", getattr(sides, name))
    with telling(
        f"2/3  labelling {queries:,} reports, pictures and scenes each, from votes of models"
    ):
        labels = _label(folder, queries, seed)
    with telling("3/3  writing the report"):
        write_page(
            folder / "report.html",
            title="privote: a demonstration",
            intro="A model of a table, and labels from votes of models, under differential "
            "privacy. All data here are public, so both are compared with the truth.",
            sections=[
                _section("A model of a table", models, MODELS, MODELS_MEAN, *reasons),
                _section("Labels from votes of models", labels, LABELS, LABELS_MEAN),
                Section(heading="How to repeat this run", blocks=[Command(text=command)]),
            ],
            notices=[] if seed is None else [SIMULATED],
        )
    summary: dict[str, Any] = plain(
        {
            **written(2),
            "command": command,
            "simulated": seed is not None,
            "models": models,
            "labels": labels,
            "report": str(folder / "report.html"),
            "next": _NEXT.format(folder=place, labels=",".join(sides.private.label_names)),
        }
    )
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _train(sides: Split, seed: int | None) -> tuple[Rows, tuple[str, ...]]:
    """Return a row a model, and why the private ones are what they are."""
    private, public, test = sides.private, sides.public, sides.test
    rows: Rows = []

    def judge(name: str, epsilon: float | None, chances: Any, labels: Any) -> None:
        figures = metrics.multilabel(test.Y, chances, labels)
        row = {"model": name, "epsilon": epsilon}
        rows.append(row | {figure: figures[figure] for figure in FIGURES})

    for epsilon in EPSILONS:
        model = PrivateClassifier(epsilon=epsilon, delta=DELTA)
        model.fit(private.X, private.Y, public.X, groups=private.groups, seed=seed)
        cost, name = model.guarantee_.epsilon, f"private ({model.method_})"
        judge(name, cost, model.predict_proba(test.X), model.predict(test.X))
    encoder = TableEncoder().fit(public.X)
    student = LinearStudent().fit(encoder.numbers(private.X), private.Y)
    chances, before = (student.predict_proba(encoder.numbers(s.X)) for s in (test, public))
    # As often yes as in the records, which is how private models decide, too.
    shares = np.nanmean(np.where(private.Y < 0, np.nan, private.Y), axis=0)
    bars = [np.quantile(before[:, place], 1 - share) for place, share in enumerate(shares)]
    judge("not private", None, chances, (chances >= bars).astype(np.int8))
    judge("always no", None, np.zeros(test.Y.shape), np.zeros(test.Y.shape, np.int8))
    return rows, model.reasons_


def _label(folder: Path, queries: int, seed: int | None) -> Rows:
    """Return a row a release of labels, and write the votes on pictures."""
    rows: Rows = []
    real = {name: load_teacher_votes(embedded) for name, embedded in VOTES.items()}
    scenes = load_scenes(private=_SCENES, public=1000)
    teachers = train(
        None, scenes.X_private, scenes.Y_private, np.arange(_SCENES) % _TEACHERS, _TEACHERS
    )
    asked: list[tuple[str, Any, Any]] = [(name, each.votes, None) for name, each in real.items()]
    votes = cast(teachers, scenes.X_public)
    asked += [("scenes", votes, rows_of) for rows_of in (None, scenes.X_public[:queries])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivoteWarning)  # where nothing is expected, a dash says so
        for name, cube, near in asked:
            for epsilon in EPSILONS:
                release = label(
                    cube[:queries], epsilon=epsilon, delta=DELTA, rows=near, anyway=True, seed=seed
                )
                shown = {"votes on": name, "rows": "no" if near is None else "yes"}
                rows.append({**shown, **_judged(release, cube)})
    pictures = real["pictures"]
    np.savez_compressed(
        folder / "pictures.npz",
        votes=pictures.votes[:queries],
        query_names=np.array((pictures.query_names or ())[:queries]),
        label_names=np.array(pictures.label_names),
    )
    return rows


def _judged(release: Release, votes: Any) -> dict[str, Any]:
    """Return what a release says about its labels, and what they are like."""
    majority = 2 * votes[: release.answered].sum(axis=1) > release.guarantee.voters
    figures = metrics.multilabel(majority, release.probabilities, release.labels)
    quality, names = release.quality or {}, {"precision": "OP", "recall": "OR"}
    if not release.labels.any():
        figures["OP"] = None  # of no ones nothing is right or wrong
    return {
        "epsilon": release.epsilon,
        "ones": release.labels.sum(),
        **{f"expected {name}": quality.get(name) for name in names},
        **{f"actual {name}": figures[figure] for name, figure in names.items()},
    }


def _section(heading: str, rows: Rows, columns: list[Column], *texts: str) -> Section:
    caption = f"Compared with the truth; delta {DELTA:g}."
    return Section(
        heading=heading, blocks=[TableBlock(caption=caption, rows=rows, columns=columns), *texts]
    )
