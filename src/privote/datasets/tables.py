"""Rows of a table as data: CSV, Parquet and ``.npz`` files, data frames; features and labels."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, PrivoteWarning, missing_extra, shown
from privote.files import check_file, check_unpacked, why
from privote.votes.arrays import ArrayFile
from privote.votes.cells import ODD, VOTE_WORDS, YesNo, cell_of, is_gap, name_of
from privote.votes.tables import (
    CSVFile,
    RawTable,
    as_csv,
    columns_in_words,
    open_table,
    write_header,
)

from .records import MultiLabelData

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")
Column = npt.NDArray[Any]
# How people head a column that names records or persons.
_NAMING = re.compile(
    r"(.*_)?(id|uuid|guid|mrn|ssn|email|phone)|((first|last|full|family|given)_?)?name|surname"
    r"|(patient|person|subject|participant|client|customer|user|member)(_(name|number|no|nr|code))?"
)
_MANY = 20  # rows from which on it says something that no value comes twice


def table(
    path: Any,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    group_column: str | None = None,
    features: Sequence[str] | None = None,
) -> MultiLabelData:
    """Read a table with one record a row, whose features are numbers.

    Parameters
    ----------
    path
        ``.csv`` or ``.tsv`` with a header, ``.parquet``, a data frame; or ``.npz`` with the arrays
        ``X``, ``Y`` and, if there are any, ``label_names``, ``ids`` and ``groups``.
    labels
        Columns that are labels: 1, 0, yes, no, true, false, or -1 or empty where unknown. For
        ``.npz`` the names of the columns of ``Y``, unless the file has them. Without labels the
        rows are features only.
    id_column, group_column
        Columns that name the record, and the person it belongs to.
    features
        Columns that are features, all numbers; by default every other column.
    """
    if _is_path(path) and Path(path).suffix == ".npz":
        return _arrays(check_file(path), labels)
    data = raw_table(
        path, labels=labels, id_column=id_column, group_column=group_column, features=features
    )
    return as_numbers(data)


def as_numbers(data: MultiLabelData) -> MultiLabelData:
    """Return a raw table whose features are numbers as they stand with these; refuse another."""
    raw: RawTable = data.X
    numbers = np.stack([_numbers(raw, name) for name in raw.columns], axis=1)
    return replace(data, X=numbers)


def raw_table(
    source: Any,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    group_column: str | None = None,
    features: Sequence[str] | None = None,
) -> MultiLabelData:
    """Read a table whose columns are as people have them: words, dates, texts, gaps.

    As :func:`table`, from a file, a data frame, a mapping of columns or a list of records; ``X`` is
    a :class:`RawTable`, which :class:`privote.learning.tables.TableEncoder` turns into numbers. A
    feature that looks as if it named records or persons is a warning.
    """
    everything = columns_of(source)
    taken = [*labels, *(name for name in (id_column, group_column) if name)]
    rest = [name for name in everything.columns if name not in taken]
    chosen = rest if features is None else list(features)
    everything.only(taken)  # names that were given: a message may quote them
    everything.only(chosen)
    rows = len(everything)
    if not rows or not chosen:
        said, sealed = columns_in_words(everything.columns)
        raise InputError(
            f"{everything.name} must have rows and columns of features, got {rows} rows of {said}",
            sealed=sealed,
        )
    if features is None:
        _warn_of_names(everything, chosen)
    return MultiLabelData(
        X=everything.only(chosen),
        Y=labels_of(everything, labels),
        label_names=tuple(labels),
        ids=np.arange(rows) if id_column is None else names_in(everything, id_column, differ=True),
        groups=None if group_column is None else names_in(everything, group_column, differ=False),
        feature_names=tuple(chosen),
        name=Path(source).stem if _is_path(source) else everything.name,
    )


def columns_of(source: Any, name: str = "table") -> RawTable:
    """Return all columns of a file, a data frame, a mapping of columns or a list of records."""
    if isinstance(source, RawTable):
        return source
    if _is_path(source):
        file = check_file(source)
        if file.suffix == ".parquet":
            return _parquet(file)
        if file.suffix not in SUFFIXES[:2]:
            known = ", ".join(SUFFIXES)
            what_to_do = as_csv(file.name)
            raise InputError(f"a table must end in {known}, got {file.name!r}{what_to_do}")
        return CSVFile(file).table()
    return open_table(source, name).table()


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
    held = {name: data[name] for name in data.names}
    if "X" not in held:
        raise InputError(f"{file.name} must have the array 'X'; it has {', '.join(data.names)}")
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


def _is_path(source: Any) -> bool:
    return isinstance(source, str) or hasattr(source, "__fspath__")


def _parquet(file: Path) -> RawTable:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    try:
        held = pq.ParquetFile(file, page_checksum_verification=True)
        sizes = held.metadata
        check_unpacked(file.name, file.stat().st_size, sizes.num_rows * sizes.num_columns * 8)
        found = held.read()
        columns = {name: found[name].to_numpy() for name in found.column_names}
    except InputError:
        raise
    except Exception as error:  # whatever Arrow calls it
        raise InputError(f"{file.name} cannot be read: {why(error)}") from None
    return RawTable(file.name, columns, np.arange(sizes.num_rows), "row")


def _numbers(raw: RawTable, name: str) -> npt.NDArray[np.float32]:
    column = raw.columns[name]
    try:
        out = column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        for row, value in enumerate(column.tolist()):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    raw.at(row, name),
                    "must be a number, like every feature; name the `features`, or the column "
                    "that names records or persons with `id_column` or `group_column`",
                    sealed=_cell(value),
                ) from None
        raise
    wide = ~(np.abs(out) <= np.finfo(np.float32).max)  # before the cast, and NaN too
    if wide.any():
        row = int(np.flatnonzero(wide)[0])
        raise InputError(raw.at(row, name), "must be a finite number", sealed=_cell(column[row]))
    return out.astype(np.float32)


def labels_of(raw: RawTable, names: Sequence[str]) -> npt.NDArray[np.int8]:
    """Return columns that are labels: (records, labels) of 1, 0 and -1 for unknown."""
    Y = np.empty((len(raw), len(names)), np.int8)
    says = YesNo()
    for place, name in enumerate(names):
        cells = raw.columns[name].tolist()
        Y[:, place] = says.read(cells)
        odd = np.flatnonzero(Y[:, place] == ODD)
        if len(odd):
            row = int(odd[0])
            raise InputError(
                raw.at(row, name),
                f"must be a label: {VOTE_WORDS} (unknown)",
                sealed=_cell(cells[row]),
            )
    return Y


def _cell(value: Any) -> str:
    return f"the cell is {shown(value)}"


def names_in(raw: RawTable, column: str, *, differ: bool) -> Column:
    """Return names of records, or of persons; one that is empty would be nobody, or everybody."""
    names = [name_of(cell) for cell in raw.columns[column].tolist()]
    seen: dict[str, int] = {}
    for row, name in enumerate(names):
        if not name:
            whose = "the record" if differ else "the person this record belongs to"
            raise InputError(raw.at(row, column), f"must name {whose}, and is empty")
        first = seen.setdefault(name, row)
        if differ and first != row:
            raise InputError(
                f"{raw.at(first, column)} and {raw.unit} {raw.places[row]}: ids must differ, and "
                "these two are the same"
            )
    return np.array(names)


def _warn_of_names(raw: RawTable, features: Sequence[str]) -> None:
    """Warn of features that look as if they named records or persons, by head or by cells."""
    found = [name for name in features if _NAMING.fullmatch(_plain(name)) or _all_differ(raw, name)]
    if found:
        seem = "looks like names of records or persons, but is used as a feature"
        if len(found) > 1:
            seem = "look like names of records or persons, but are used as features"
        warnings.warn(
            f"{raw.name}: {columns_in_words(found)[0]} {seem}. Name the column of the record "
            "(`id_column`) or the person (`group_column`), so that all records of a person reach "
            "one voter; or name the `features`",
            PrivoteWarning,
            stacklevel=3,
        )


def warn_of_private(
    rows: RawTable,
    private: MultiLabelData,
    id_column: str | None,
    group_column: str | None,
    *,
    public: bool,
) -> None:
    """Warn of public or test rows of those whose rows are private, where a column names them."""
    why = "test figures on persons the model was trained on look better than they are"
    if public:
        why = "public rows are not protected"
    for who, column, known in (
        ("persons", group_column, private.groups),
        ("records", id_column, private.ids),
    ):
        if column is None or column not in rows.columns or known is None:
            continue
        if not {name_of(cell) for cell in rows.columns[column].tolist()}.isdisjoint(known.tolist()):
            text = f"{rows.name}: some {who} are also among the private ones: {why}"
            warnings.warn(text, PrivoteWarning, stacklevel=2)
            return


def _plain(head: str) -> str:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", head)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def _all_differ(raw: RawTable, name: str) -> bool:
    """Return whether no cell comes twice, and all are codes of one word, or count the rows."""
    cells = raw.columns[name].tolist()
    if len(cells) < _MANY or len(set(map(str, cells))) < len(cells):
        return False
    texts = [str(cell).strip() for cell in cells]
    if all(text.isdigit() for text in texts):
        whole = [int(text) for text in texts if len(text) < 19]
        return len(whole) == len(texts) and max(whole) - min(whole) == len(whole) - 1
    return all(
        text and len(text.split()) == 1 and any(map(str.isdigit, text)) and text[0].isalpha()
        for text in texts
    )
