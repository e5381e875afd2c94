"""Rows of a table as data: ``.csv``, ``.parquet`` and ``.npz`` files of features and labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.arrayfiles import ArrayFile, check_file, check_room, why
from privote.errors import InputError, missing_extra
from privote.sheets import name_in

from .records import MISSING, MultiLabelData

SUFFIXES = (".csv", ".parquet", ".npz")
Column = npt.NDArray[Any]


def table(
    path: str | Path,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    group_column: str | None = None,
    features: Sequence[str] | None = None,
) -> MultiLabelData:
    """Read a table with one record a row.

    Parameters
    ----------
    path
        ``.csv`` with a header, ``.parquet``, or ``.npz`` with the arrays ``X``, ``Y`` and, if there
        are any, ``label_names``, ``ids`` and ``groups``.
    labels
        Columns that are labels: 1, 0, or -1 or empty where unknown. For ``.npz`` the names of the
        columns of ``Y``, unless the file has them. Without labels the rows are features only.
    id_column, group_column
        Columns that name the record, and the person it belongs to.
    features
        Columns that are features, all numbers; by default every other column.
    """
    file = check_file(path, "table")
    if file.suffix == ".npz":
        return _arrays(file, labels)
    readers = {".csv": _csv, ".parquet": _parquet}
    if file.suffix not in readers:
        raise InputError(f"a table must end in {', '.join(SUFFIXES)}, got {file.name!r}")
    columns = readers[file.suffix](file)
    taken = [*labels, *(name for name in (id_column, group_column) if name)]
    chosen = [name for name in columns if name not in taken] if features is None else list(features)
    for name in (*taken, *chosen):
        if name not in columns:
            raise InputError(f"{file.name} has no column {name!r}; it has {_few(columns)}")
    rows = len(next(iter(columns.values()))) if columns else 0
    if not rows or not chosen:
        raise InputError(f"{file.name} must have rows and columns of features, got {_few(columns)}")
    return MultiLabelData(
        X=np.stack([_numbers(file, name, columns[name]) for name in chosen], axis=1),
        Y=_labels(file, labels, columns, rows),
        label_names=tuple(labels),
        ids=np.arange(rows) if id_column is None else np.asarray(columns[id_column]),
        groups=None if group_column is None else np.asarray(columns[group_column]),
        feature_names=tuple(chosen),
        name=file.stem,
    )


def _arrays(file: Path, labels: Sequence[str]) -> MultiLabelData:
    data = ArrayFile(file)
    held = {name: data[name] for name in data.names}
    if "X" not in held:
        raise InputError(f"{file.name} must have the array 'X', it has {_few(held)}")
    images = held["X"].ndim == 4  # (images, channels, height, width)
    wanted = {"X": 4 if images else 2, "Y": 2, "label_names": 1, "ids": 1, "groups": 1}
    for name, axes in wanted.items():
        if name in held and held[name].ndim != axes:
            raise InputError(
                f"{file.name}: array {name!r} must have {axes} axes, got shape {held[name].shape}"
            )
    rows = len(held["X"])
    Y = held.get("Y", np.zeros((rows, 0), np.int8))
    names = [str(name) for name in held.get("label_names", labels)]
    if not names and Y.ndim == 2:
        names = [f"label_{place}" for place in range(Y.shape[1])]
    return MultiLabelData(
        X=held["X"],
        Y=Y,
        label_names=tuple(names),
        ids=held.get("ids", np.arange(rows)),
        groups=held.get("groups"),
        name=file.stem,
    )


def _csv(file: Path) -> dict[str, Column]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = [name_in(cell) for cell in next(reader, [])]
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file.name} cannot be read: {error}") from None
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise InputError(
                f"{file.name}, line {number}: {len(row)} values under a header of {len(header)}"
            )
    if len(set(header)) != len(header):
        raise InputError(f"{file.name} has two columns of one name")
    cells = np.array(rows, dtype=object).reshape(len(rows), len(header))
    return {name: cells[:, place] for place, name in enumerate(header)}


def _parquet(file: Path) -> dict[str, Column]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    try:
        held = pq.ParquetFile(file, page_checksum_verification=True)
        sizes = held.metadata
        check_room(file.name, file.stat().st_size, sizes.num_rows * sizes.num_columns * 8)
        found = held.read()
        return {name: found[name].to_numpy() for name in found.column_names}
    except InputError:
        raise
    except Exception as error:  # whatever Arrow calls it
        raise InputError(f"{file.name} cannot be read: {why(error)}") from None


def _numbers(file: Path, name: str, column: Column) -> npt.NDArray[np.float32]:
    out = np.empty(len(column), np.float64)
    for row, value in enumerate(column.tolist()):
        try:
            out[row] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{file.name}, column {name!r}, row {row}: a feature must be a number, got "
                f"{value!r}; name the features with --columns (features=), or the column that "
                "names records or persons with --id-column or --group-column"
            ) from None
    wide = ~(np.abs(out) <= np.finfo(np.float32).max)  # before the cast, and NaN too
    if wide.any():
        row = int(np.flatnonzero(wide)[0])
        raise InputError(f"{file.name}, column {name!r}, row {row}: must be a finite number")
    return out.astype(np.float32)


def _labels(
    file: Path, names: Sequence[str], columns: dict[str, Column], rows: int
) -> npt.NDArray[np.int8]:
    Y = np.full((rows, len(names)), MISSING, np.int8)
    for place, name in enumerate(names):
        for row, value in enumerate(columns[name].tolist()):
            if value is None or str(value).strip() in ("", "nan"):
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = np.nan
            if number not in (0.0, 1.0, -1.0):
                raise InputError(
                    f"{file.name}, column {name!r}, row {row}: a label must be 1, 0, -1 or empty, "
                    f"got {value!r}"
                )
            Y[row, place] = int(number)
    return Y


def _few(columns: Any) -> str:
    names = list(columns)
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if names[8:] else "")
