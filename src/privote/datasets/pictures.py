"""A folder of pictures, with a table of labels or without."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown
from privote.votes.cells import is_gap, name_of
from privote.votes.tables import RawTable, columns_in_words, open_table

from .images import Images
from .records import MultiLabelData
from .tables import labels_of, names_in

SUFFIXES = (".jpg", ".jpeg", ".png")
# How people head a column that names pictures; without one of these it is the first column.
_HEADS = re.compile(
    r"(file|image|picture|photo|img)([ _-]?(name|path|file|id|index))?s?|path", re.I
)
_SEPARATORS = re.compile(r"[|;,]")


def pictures(
    folder: str | os.PathLike[str],
    table: Any = None,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    group_column: str | None = None,
    size: int | tuple[int, int] = 224,
    whole: bool = True,
) -> MultiLabelData:
    """Read a folder of JPEG and PNG files, with their labels if there is a table.

    Parameters
    ----------
    folder
        Where the pictures are, also in folders inside it.
    table
        A table with one picture a row: a column of file names, as they are from ``folder`` on (the
        ending may be left out), and one column a label, or one column that lists labels, separated
        by ``|``, ``;`` or a comma.
    labels
        Columns that are labels, by default every other one; or, where one cell lists labels, which
        of those. They must be named there, because which labels occur in cells is private.
    id_column
        The column of file names; by default one headed "file", "image" or the like, else the first.
    group_column
        The column that names the person a picture is of.
    size
        Of the pictures when they are read; see :class:`Images`.
    whole
        Refuse pictures in the folder that are not in the table.

    Returns
    -------
    MultiLabelData
        Ids are the file names, from ``folder`` on.
    """
    home = Path(folder)
    if not home.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder of pictures")
    files = sorted(
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )
    if not files:
        raise InputError(f"{str(folder)!r} contains no picture that ends in {', '.join(SUFFIXES)}")
    Y, names, groups = np.zeros((len(files), 0), np.int8), tuple[str, ...](), None
    if table is not None:
        rows = open_table(table)
        column = _file_column(rows, id_column)
        listed = _files(rows, column, files)
        left = sorted(set(files) - set(listed)) if whole else []
        if left:
            rule = f"{len(left)} pictures in {home.name} have no row in {rows.name}"
            raise InputError(rule, sealed=f"the first is {shown(left[0])}")
        files = listed
        used = [column, *([group_column] if group_column else [])]
        Y, names = _labels(rows, labels, used)
        if group_column is not None:
            groups = names_in(rows.only([group_column]), group_column, differ=False)
    return MultiLabelData(
        X=Images(paths=[str(home / file) for file in files], size=size),
        Y=Y,
        label_names=names,
        ids=np.array(files),
        groups=groups,
        name=home.name,
    )


def _file_column(rows: RawTable, asked: str | None) -> str:
    if not len(rows):
        raise InputError(f"{rows.name} has no rows")
    if asked is not None:
        return next(iter(rows.only([asked]).columns))
    headed = [name for name in rows.columns if _HEADS.fullmatch(name.strip())]
    return (headed or [*rows.columns])[0]


def _files(rows: RawTable, column: str, files: Sequence[str]) -> list[str]:
    """Return the picture of each row: its cell, or the one file that its cell is the start of."""
    names = dict.fromkeys(files)
    stems: dict[str, list[str]] = {}
    for file in files:
        stems.setdefault(file.rpartition(".")[0], []).append(file)
    rows_by_file: dict[str, int] = {}
    for row, cell in enumerate(rows.columns[column].tolist()):
        name = name_of(cell).replace("\\", "/").removeprefix("./")
        match = [name] if name in names else stems.get(name, [])
        if len(match) != 1 or rows_by_file.setdefault(match[0], row) != row:
            rule = "must name one picture in the folder, and another in every row"
            raise InputError(rows.at(row, column), rule, sealed=f"the cell is {shown(cell)}")
    return list(rows_by_file)


def _labels(
    rows: RawTable, labels: Sequence[str], taken: Sequence[str]
) -> tuple[npt.NDArray[np.int8], tuple[str, ...]]:
    """Return labels (pictures, labels) and their names; from columns, or from lists in one."""
    rest = [name for name in rows.columns if name not in taken]
    if not rest:
        columns, sealed = columns_in_words(rows.columns)
        raise InputError(rows.name, f"must have labels; it has {columns}", sealed=sealed)
    if len(rest) > 1 or not labels or labels[0] in rest:
        chosen = list(labels) or rest
        try:
            return labels_of(rows.only(chosen), chosen), tuple(chosen)
        except InputError as error:
            if labels or len(rest) > 1:
                raise
            rule = "must be given: which ones to read, where a cell of a table lists labels"
            raise InputError("labels", rule, sealed=error.sealed) from None
    Y = np.zeros((len(rows), len(labels)), np.int8)
    for row, cell in enumerate(rows.columns[rest[0]].tolist()):
        text = "" if is_gap(cell) else str(cell).strip().strip("[](){}")
        listed = {part.strip().strip("'\"") for part in _SEPARATORS.split(text)}
        Y[row] = [name in listed for name in labels]
    return Y, tuple(labels)
