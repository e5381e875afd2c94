"""``privote predict``: a saved student on new rows."""

from __future__ import annotations

import json as jsonlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from privote._version import written
from privote.errors import InputError

from . import options

_FEW = 8  # labels whose thresholds fit on a line


def predict(
    student: Path,
    rows: Path,
    *,
    output: Path,
    threshold: str | None = None,
    columns: str | None = None,
    id_column: Annotated[str | None, typer.Option("--id-column", "--ids")] = None,
    weights: Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    trust: list[str] | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Predict with a saved student: for each label its probability and a 1 or a 0.

    Example:

        privote predict run/student.student new.csv --output predictions.csv

    Loading a student runs no code from its file. Predictions cost no privacy: all that they
    follow from was paid for when the student was made, and its file says under which guarantee.

    Parameters
    ----------
    student
        A .student file of `privote train`.
    rows
        Rows to judge: .csv or .parquet with the columns that the student learnt from, as they were
        then (words, dates, gaps); or .npz (array X); or a folder of pictures.
    output
        Where the predictions go: .csv or .npz.
    threshold : P[,P...]
        A label is 1 at or above this probability; one, or one per label. By default the student's
        own, with which labels are as common as the released ones.
    columns : A,B,...
        Columns of the table that are features, in order; by default those the student learnt from.
    id_column : A[,B...]
        The column, or columns, that name a row and come along into the output; by default 'id',
        where there is one.
    weights
        For a student of pictures: the weights of its network, if it is not efficientnet-lite0.
    device
        For a student of pictures: cpu, cuda or mps.
    cache : DIR
        For a student of pictures: a folder that keeps their features.
    trust
        A type in the file to allow, as package.module.Class; repeat for more.
    """
    import numpy as np

    from privote.datasets import RawTable, pictures
    from privote.datasets.tables import columns_of, table
    from privote.learning.pictures import PictureEncoder
    from privote.learning.students.saving import load_student
    from privote.votes.cube import check_threshold

    from .files import claimed
    from .output import print_result, stages

    saved = load_student(student, trusted=trust or (), weights=weights)
    bar = saved.thresholds
    if threshold is not None:
        bar = check_threshold(options.parse_threshold(threshold), len(saved.label_names))
    arrays = rows.suffix == ".npz"
    looks = isinstance(saved.encoder, PictureEncoder)
    held = None if arrays or looks else columns_of(rows)
    given: object
    if isinstance(saved.encoder, PictureEncoder):
        if columns is not None or id_column is not None:
            raise InputError("columns", "cannot be given: this student looks at pictures")
        with stages() as progress:
            encoder = replace(saved.encoder, device=device, cache=cache, progress=progress)
            some = table(rows) if arrays else pictures(rows)
            given = encoder.numbers(some.X)
        saved = replace(saved, encoder=None)
        if not arrays:
            held = RawTable(rows.name, {"file": some.ids}, np.arange(len(some)))
            id_column = "file"
    elif saved.encoder is not None:  # it knows its columns by name, and what was in them
        if columns is not None:
            raise InputError("columns", "cannot be given: this student knows its columns")
        given = columns_of(rows) if held is None else held
    else:
        wanted = saved.feature_names if columns is None else options.names(columns)
        given = table(rows if held is None else held, features=None if arrays else wanted).X
    named = _names(held, id_column, saved.label_names)
    try:
        chance = saved.predict_proba(given)
    except InputError:
        raise
    except ValueError as error:  # scikit-learn's own words for rows of another width
        raise InputError(f"{rows.name} does not fit this student: {error}") from None
    answers = (chance >= bar).astype(np.int8)
    with claimed(output, force=force, keep=(student, rows)) as draft:
        if output.suffix == ".npz":
            names = np.array(saved.label_names)
            found = {"probabilities": chance, "labels": answers, "label_names": names}
            found["written"] = np.array(jsonlib.dumps(written(1)))
            if named:  # (rows,), or (rows, columns) where several were asked for
                ids = np.array([*named.values()])
                found |= {"ids": ids[0] if len(named) == 1 else ids.T}
                found |= {"id_columns": np.array([*named])}
            np.savez_compressed(draft, **found)
        else:
            _write_csv(draft, saved.label_names, chance, answers, named)
    bars = np.broadcast_to(np.asarray(bar, np.float64), len(saved.label_names)).tolist()
    facts: dict[str, Any] = {
        "rows": len(chance),
        "labels": len(saved.label_names),
        "rows named by": ", ".join(named) or "their place in the file, from 0",
        "student's epsilon, by its file": saved.privacy.get("epsilon"),
        "student's delta, by its file": saved.privacy.get("delta"),
        **_made(saved.privacy.get("guarantee")),
        "thresholds": dict(zip(saved.label_names, bars, strict=True)),
        "written to": str(output),
    }
    if not json:
        facts["thresholds"] = _in_words(facts["thresholds"], own=threshold is None)
    print_result(facts, json=json, title="Predicted")


def _made(by: Any) -> dict[str, Any]:
    """Return what a student's file says of how it was made, and under which guarantee.

    Votes have several guarantees. Training with noise has one, and its file names the method.
    """
    from privote.release import GUARANTEES, UNCONDITIONAL

    votes = by in GUARANTEES
    return {
        "student's guarantee, by its file": by if votes or by is None else UNCONDITIONAL,
        "student's method, by its file": "private votes" if votes else by,
    }


def _names(held: Any, ids: str | None, labels: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the columns that name rows, by what they are called, with the names in them."""
    from privote.votes.tables import name_of

    wanted = options.names(ids) or ()
    if held is None:
        if wanted:
            raise InputError("ids", "goes with a table: arrays have no columns", ids)
        return {}
    if ids is None:
        wanted = tuple(name for name in held.columns if name.lower() == "id")[:1]
        if set(wanted) & set(labels):
            return {}
    taken = {"row", *labels, *(_chance(name) for name in labels)}
    for name in wanted:
        if name in taken:
            raise InputError("ids", "must be other columns than row and the labels", name)
    if len(set(wanted)) < len(wanted):
        raise InputError("ids", "must name each column once", ids)
    columns = held.only(wanted).columns
    return {name: [name_of(cell) for cell in columns[name].tolist()] for name in wanted}


def _chance(label: str) -> str:
    """Return the column of a label's probability."""
    return f"{label} probability"


def _in_words(thresholds: dict[str, float], *, own: bool) -> str:
    """Return from which probability on each label is a 1, on a line."""
    few = [f"{name} {bar:.3g}" for name, bar in [*thresholds.items()][:_FEW]]
    more = f" and {len(thresholds) - _FEW} more" if len(thresholds) > _FEW else ""
    whose = "the student's own" if own else "as told"
    return f"{', '.join(few)}{more}: {whose}"


def _write_csv(
    path: Path,
    names: tuple[str, ...],
    chance: object,
    answers: object,
    named: dict[str, list[str]],
) -> None:
    import csv

    import numpy as np

    from privote.votes.tables import cell_of, write_header

    with path.open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, ["row", *named, *names, *map(_chance, names)])
        writer = csv.writer(stream, lineterminator="\n")
        pairs = zip(np.asarray(answers), np.asarray(chance), strict=True)
        for row, (said, how) in enumerate(pairs):
            who = [cell_of(column[row]) for column in named.values()]
            writer.writerow([row, *who, *said.tolist(), *(f"{p:.6g}" for p in how)])
