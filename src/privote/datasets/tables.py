"""Rows of a table as data: CSV, Parquet and ``.npz`` files, data frames; features and labels."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, PrivoteWarning, shown
from privote.files import check_file
from privote.votes.arrays import ArrayFile
from privote.votes.cells import VOTE_WORDS, YesNo, cell_of, is_gap, number
from privote.votes.names import identity
from privote.votes.tables import (
    TABLES,
    RawTable,
    columns_in_words,
    is_path,
    open_table,
    write_header,
)

from .records import MultiLabelData

SUFFIXES = (*TABLES, ".npz")
Column = npt.NDArray[Any]
# How people head a column that names records or persons.
_NAMING = re.compile(
    r"(.*_)?(id|uuid|guid|mrn|ssn|email|phone)|(nhs|hospital)(_(number|no|nr))?|((first|last|full|family|given)_?)?name|surname"
    r"|(patient|person|subject|participant|client|customer|user|member)(_(name|number|no|nr|code))?"
)


def table(path: Any, *, labels: Sequence[str] = (), **roles: Any) -> MultiLabelData:
    """Read a table with one record a row, whose features are numbers.

    Parameters
    ----------
    path
        A table as :func:`raw_table` takes it; or ``.npz`` with the arrays ``X``, ``Y`` and, if
        there are any, ``label_names``, ``ids`` and ``groups``.
    labels
        Columns that are labels. For ``.npz`` the names of the columns of ``Y``, unless the file has
        them. Without labels the rows are features only.
    roles
        The other columns, as in :func:`raw_table`.
    """
    if is_path(path) and Path(path).suffix == ".npz":
        return _arrays(check_file(path), labels)
    return as_numbers(raw_table(path, labels=labels, **roles))


def as_numbers(data: MultiLabelData) -> MultiLabelData:
    """Return a raw table whose features are numbers as they stand with these; refuse another."""
    raw: RawTable = data.X
    rule = "must be a finite number, like every feature; name the `features`, or the column that "
    rule += "names records or persons with `id_column` or `group_column`"
    return replace(
        data, X=raw.values(raw.columns, _numbers, rule, odd=-math.inf).astype(np.float32)
    )


def raw_table(
    source: Any,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    group_column: str | None = None,
    features: Sequence[str] | None = None,
) -> MultiLabelData:
    """Read a table whose columns are as people have them: words, dates, texts, gaps.

    ``X`` is a :class:`RawTable`, which :class:`privote.learning.tables.TableEncoder` turns into
    numbers.

    Parameters
    ----------
    source
        A file, a data frame, a mapping of columns or a list of records.
    labels
        Columns that are labels: 1, 0, yes, no, true, false, or -1 or empty where unknown.
    id_column, group_column
        Columns that name the record, and the person it belongs to.
    features
        Columns that are features; by default every other column. A list of records needs them:
        which keys occur in private records is private.
    """
    others = [*labels, *(name for name in (id_column, group_column) if name)]
    heads = None if features is None else [*features, *others]
    everything = open_table(source, "file" if is_path(source) else "table", columns=heads)
    chosen = features_of(everything, others) if features is None else list(features)
    everything.only(others)  # names that were given: a message may quote them
    everything.only(chosen)
    rows = len(everything)
    if not rows or not chosen:
        columns, sealed = columns_in_words(everything.columns)
        rule = f"must have rows and columns of features, got {rows} rows of {columns}"
        raise InputError(f"{everything.name} {rule}", sealed=sealed)
    return MultiLabelData(
        X=everything.only(chosen),
        Y=labels_of(everything, labels),
        label_names=tuple(labels),
        ids=np.arange(rows) if id_column is None else names_in(everything, id_column, differ=True),
        groups=None if group_column is None else names_in(everything, group_column, differ=False),
        feature_names=tuple(chosen),
        name=Path(source).stem if is_path(source) else everything.name,
    )


def features_of(rows: RawTable, others: Sequence[str | None]) -> list[str]:
    """Return all columns but ``others``; warn of heads that seem to name records or persons."""
    names = [name for name in rows.header if name not in others]
    naming = [name for name in names if _NAMING.fullmatch(_plain(name))]
    if naming:
        seem = "looks like names of records or persons, but is used as a feature"
        if len(naming) > 1:
            seem = "look like names of records or persons, but are used as features"
        warnings.warn(
            f"{rows.name}: {columns_in_words(naming)[0]} {seem}. Name the column of the record "
            "(`id_column`) or the person (`group_column`), so that a person's records are "
            "protected together; or name the `features`",
            PrivoteWarning,
            stacklevel=3,
        )
    return names


def write_table(path: str | Path, data: MultiLabelData) -> None:
    """Write a raw table as CSV, with its ids and groups first and its labels last.

    Read it with ``raw_table(path, labels=..., id_column="id", group_column="person")``.
    """
    raw: RawTable = data.X
    named = {"id": data.ids} | ({} if data.groups is None else {"person": data.groups})
    columns = [*named.values(), *raw.columns.values()]
    with Path(path).open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, [*named, *raw.columns, *data.label_names])
        writer = csv.writer(stream, lineterminator="\n")
        for row in range(len(data)):
            cells = ["" if is_gap(c[row]) else cell_of(str(c[row])) for c in columns]
            writer.writerow([*cells, *("" if y < 0 else int(y) for y in data.Y[row])])


def _arrays(file: Path, labels: Sequence[str]) -> MultiLabelData:
    data = ArrayFile(file)
    arrays = {name: data[name] for name in data.names}
    if "X" not in arrays:
        raise InputError(f"{file.name} must have the array 'X'; it has {', '.join(data.names)}")
    # (rows, features), or (images, channels, height, width)
    axes = {"X": (2, 4), "Y": (2,), "label_names": (1,), "ids": (1,), "groups": (1,)}
    for name, array in arrays.items():
        if array.ndim not in axes.get(name, (array.ndim,)):
            raise InputError(f"{file.name}: array {name!r} must not have the shape {array.shape}")
    rows = len(arrays["X"])
    Y = arrays.get("Y", np.zeros((rows, 0), np.int8))
    names = [str(name) for name in arrays.get("label_names", labels)]
    return MultiLabelData(
        X=arrays["X"],
        Y=Y,
        label_names=tuple(names or [f"label_{index}" for index in range(Y.shape[1])]),
        ids=arrays.get("ids", np.arange(rows)),
        groups=arrays.get("groups"),
        name=file.stem,
    )


def _numbers(column: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return a column as numbers, minus infinity for what is none."""

    def value(cell: Any) -> float:
        try:
            found = number(cell)
        except (TypeError, ValueError, OverflowError):
            found = None
        return -math.inf if found is None else found

    return np.array([value(cell) for cell in column])


def labels_of(raw: RawTable, names: Sequence[str]) -> npt.NDArray[np.int8]:
    """Return columns that are labels: (records, labels) of 1, 0 and -1 for unknown."""
    return raw.values(names, YesNo().read, f"must be a label: {VOTE_WORDS} (unknown)")


def names_in(raw: RawTable, column: str, *, differ: bool) -> Column:
    """Return what records, or persons, are compared by; a gap would be nobody, or everybody."""
    cells = raw.columns[column].tolist()
    names, seen = [identity(cell) for cell in cells], dict[str, int]()
    for row, name in enumerate(names):
        if not name:
            whose = "the record" if differ else "the person this record belongs to"
            rule = f"must name {whose}, by a text or an integer below 2^53"
            raise InputError(raw.at(row, column), rule, sealed=f"the cell is {shown(cells[row])}")
        first = seen.setdefault(name, row)
        if differ and first != row:
            where = f"{raw.at(first, column)} and {raw.unit} {raw.places[row]}"
            raise InputError(f"{where}: ids must differ, and these two are the same")
    return np.array(names)


def _plain(head: str) -> str:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", head)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
