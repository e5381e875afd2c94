"""Public rows, read a run at a time by whoever needs it: constant memory, however many there are.

A part of the rows is a small thing that says where they lie, so that it can be sent to a worker,
who reads them there. Rows that lie in memory are sent themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrayfiles import ArrayFile, check_file, check_tree, open_npy, stream_npy, why
from ...datasets.records import RawTable
from ...datasets.tables import columns_of
from ...errors import InputError, missing_extra
from ...sheets import columns_in_words, is_frame, is_gap
from ...storage import as_place, is_url, name_of, open_binary, reached
from ...streamed import open_array
from ..rows import Floats, count_rows, row_size
from . import csvrows

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".parquet", ".zarr")
_STEP = 1 << 20
_TEXT = 8  # bytes that a byte of a CSV file takes in memory, about
Given = Any  # what a voter is given: an array, or a :class:`Table`


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows of a table: ``raw`` as they stand in it, and which columns are numbers throughout.

    A column of a CSV file is one of numbers if every cell in the whole file is, or a gap: what a
    voter is given must not depend on where the rows were cut.
    """

    raw: RawTable
    numeric: frozenset[str]

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice) -> Table:
        return Table(self.raw[rows], self.numeric)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name: floats, or texts and whatever else."""
        return {
            name: _floats(cells) if name in self.numeric else cells
            for name, cells in self.raw.columns.items()
        }

    def matrix(self) -> Floats:
        """Return the columns, which must all be numbers, as (rows, features)."""
        for name in self.raw.columns:
            if name not in self.numeric:
                raise InputError(
                    f"{self.raw.name}: column {name!r:.60} must hold numbers, as all that a model "
                    "looks at; name the others with `columns`"
                )
        return np.asarray(np.stack([*self.columns().values()], axis=1), np.float64)


def _floats(cells: npt.NDArray[Any]) -> Floats:
    if cells.dtype != object:  # whole numbers too: where one is missing they come as these
        return cells.astype(np.float64)
    return np.array([np.nan if is_gap(cell) else float(cell) for cell in cells.tolist()], float)


@dataclass(frozen=True, eq=False)
class _Held:
    """A run of consecutive rows that lie in memory."""

    rows: Any

    def load(self) -> Given:
        return self.rows


@dataclass(frozen=True)
class _Stored:
    """Rows from ``start`` to before ``stop`` of a file; of a CSV file also between which bytes."""

    place: str
    start: int
    stop: int
    columns: tuple[str, ...] | None
    stamp: Any = None
    digest: str = ""
    numeric: frozenset[str] = frozenset()
    layout: csvrows.Layout | None = None
    mark: csvrows.Mark | None = None
    behind: int = 0

    def load(self) -> Given:
        found = _PARTS[Path(self.place).suffix](self)
        if _stamp(self.place) != self.stamp:  # after reading: what was read is what was there
            raise InputError(f"{name_of(self.place)} changed since collecting began")
        if isinstance(found, RawTable):
            chosen = found if self.columns is None else found.only(self.columns)
            return Table(chosen, self.numeric)
        return found


Part = _Held | _Stored


@dataclass(kw_only=True)
class Rows:
    """Public rows: how many, about how many bytes each, and parts of them.

    ``name`` is what messages call them, and ``digest`` changes with any byte of them.
    """

    name: str
    count: int
    row_bytes: float
    digest: str
    held: Any = None
    stored: _Stored | None = None
    _marks: list[csvrows.Mark] = field(default_factory=list)
    _every: int = 0

    def prepare(self, chunk: int) -> None:
        """Get ready for parts of ``chunk`` rows: of a CSV file, learn where each begins."""
        if self.stored is not None and self.stored.layout is not None:
            self._marks, self._every = list(csvrows.marks(self.stored.layout, chunk)), chunk

    def part(self, start: int, stop: int) -> Part:
        """Return the rows from ``start``, the first of a chunk, to before ``stop``."""
        if self.stored is None:
            return _Held(self.held[start:stop])
        found = replace(self.stored, start=start, stop=stop)
        if not self._marks:
            return found
        place = start // self._every
        return replace(found, mark=self._marks[place], behind=self._marks[place + 1][0])


def open_rows(rows: Any, columns: Sequence[str] | None = None) -> Rows:
    """Open public rows: a path or URL, an array, a data frame or a mapping of columns.

    ``columns`` are those of a table that voters may look at, in order; all of them unless told.
    """
    chosen = None if columns is None else tuple(columns)
    if isinstance(rows, str | os.PathLike):
        return _open_file(as_place(rows, "rows"), chosen)
    if is_frame(rows) or isinstance(rows, dict):
        raw = columns_of(rows, "rows")
        raw = raw if chosen is None else raw.only(chosen)
        native = {
            name: _native(cells) if cells.dtype == object else cells
            for name, cells in raw.columns.items()
        }
        raw = replace(raw, columns=native)
        numeric = {name for name, cells in native.items() if cells.dtype.kind in "biuf"}
        held = Table(raw, frozenset(numeric))
        return Rows(
            name="rows",
            count=len(raw),
            row_bytes=8 * max(1, len(raw.columns)),
            digest=_hash(list(raw.columns.items())),
            held=held,
        )
    if chosen is not None:
        raise InputError("columns", "goes with a table, and these rows are an array")
    count = count_rows(rows)
    size = row_size(rows) * getattr(getattr(rows, "dtype", None), "itemsize", 64)
    return Rows(name="rows", count=count, row_bytes=size, digest=_hash(rows), held=rows)


def _native(cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return cells of a frame as numbers where all of them are."""
    numbers = all(isinstance(cell, int | float | np.number) for cell in cells.tolist())
    return np.array(cells.tolist(), np.float64) if numbers and len(cells) else cells


def _hash(value: Any) -> str:
    from joblib import hash as joblib_hash

    return str(joblib_hash(value))


# -- files -------------------------------------------------------------------------------------


def _open_file(place: str, columns: tuple[str, ...] | None) -> Rows:
    suffix = Path(place).suffix
    if suffix not in SUFFIXES:
        raise InputError("rows", f"must end in one of {', '.join(SUFFIXES)}", place)
    if is_url(place) and suffix in (".npz", ".zarr"):
        raise InputError("rows", "behind a URL must be .npy, .csv, .tsv or .parquet", place)
    if not is_url(place):
        check = check_tree if suffix == ".zarr" else check_file
        check(place, "rows")
    stamp = _stamp(place)  # before anything is read
    stored = _Stored(place, 0, 0, columns, stamp, _digest(place))
    size: float
    if suffix in (".npy", ".npz", ".zarr"):
        if columns is not None:
            raise InputError("columns", f"goes with a table, and {name_of(place)} is an array")
        array = _array(place, stored.digest)
        count, size = int(array.shape[0]), row_size(array) * array.dtype.itemsize
    elif suffix == ".parquet":
        table = _parquet(place, stored.digest)
        count = table.metadata.num_rows
        size = _unpacked(table) / max(1, count)
        empty = table.schema_arrow.empty_table()
        _check_columns(place, columns, empty.column_names)
        kinds = {name: empty[name].to_numpy().dtype.kind for name in empty.column_names}
        stored = replace(stored, numeric=frozenset(n for n, k in kinds.items() if k in "biuf"))
    else:
        layout = csvrows.survey(place)
        _check_columns(place, columns, layout.header)
        stored = replace(stored, layout=layout, numeric=layout.numeric)
        count, size = layout.count, _TEXT * layout.bytes / max(1, layout.count)
    name = name_of(place)
    if not count:
        raise InputError("rows", f"must hold at least one, and {name} holds none")
    return Rows(name=name, count=count, row_bytes=size, digest=stored.digest, stored=stored)


def _check_columns(place: str, wanted: Sequence[str] | None, held: Sequence[str]) -> None:
    for name in wanted or ():
        if name not in held:
            raise InputError(
                "columns",
                f"must be in {name_of(place)}, which has {columns_in_words(held)[0]}",
                name,
            )


def _stamp(place: str) -> Any:
    """Return what changes when somebody writes to a file of this machine."""
    if is_url(place) or os.path.isdir(place):
        return None
    facts = os.stat(place)
    return facts.st_size, facts.st_mtime_ns


def _digest(place: str) -> str:
    """Return the SHA-256 of a file, or of all files of a folder with their names."""
    found = hashlib.sha256()
    files = [place]
    if not is_url(place) and os.path.isdir(place):
        files = sorted(str(file) for file in Path(place).rglob("*") if file.is_file())
    for file in files:
        if len(files) > 1:
            found.update(os.path.relpath(file, place).encode() + b"\0")
        with reached(file, "rows"), open_binary(file) as stream:
            while block := stream.read(_STEP):
                found.update(block)
    return found.hexdigest()


@lru_cache(maxsize=1)
def _array(place: str, digest: str) -> Any:
    """Return an array that is read where it is sliced, as far as its file allows."""
    suffix = Path(place).suffix
    if suffix == ".npz":
        arrays = ArrayFile(place)
        if "X" not in arrays:
            raise InputError(
                f"{name_of(place)} must have the array 'X', it has {', '.join(arrays.names)}"
            )
        array: Any = arrays.open("X")
    elif suffix == ".zarr":
        array = open_array(place, "rows", "X")
    elif is_url(place):
        array = stream_npy(partial(open_binary, place, "rows"), name_of(place), place)
    else:
        array = open_npy(place)
    if not array.shape:
        raise InputError(f"{name_of(place)} must have rows, and is one number")
    return array


def _array_part(part: _Stored) -> Any:
    # A copy, which a model may write to.
    return np.array(_array(part.place, part.digest)[part.start : part.stop])


@lru_cache(maxsize=1)
def _parquet(place: str, digest: str) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    try:
        source = open_binary(place) if is_url(place) else place
        return pq.ParquetFile(source, page_checksum_verification=True)
    except InputError:
        raise
    except Exception as error:  # whatever Arrow calls it
        raise InputError(f"{name_of(place)} cannot be read: {why(error, place)}") from None


def _unpacked(table: Any) -> int:
    held = table.metadata
    return sum(held.row_group(group).total_byte_size for group in range(held.num_row_groups))


@lru_cache(maxsize=1)
def _row_group(place: str, digest: str, group: int, columns: tuple[str, ...] | None) -> Any:
    """Return a row group; the next part most often begins in the one where this part ends."""
    wanted = None if columns is None else list(columns)
    try:
        return _parquet(place, digest).read_row_group(group, columns=wanted)
    except Exception as error:
        raise InputError(f"{name_of(place)} cannot be read: {why(error, place)}") from None


def _parquet_part(part: _Stored) -> RawTable:
    import pyarrow as pa

    held, first, found = _parquet(part.place, part.digest).metadata, 0, []
    for group in range(held.num_row_groups):
        behind = first + held.row_group(group).num_rows
        if first < part.stop and behind > part.start:
            low, high = max(part.start, first) - first, min(part.stop, behind) - first
            table = _row_group(part.place, part.digest, group, part.columns)
            found.append(table.slice(low, high - low))
        first = behind
    whole = pa.concat_tables(found)
    columns = {name: whole[name].to_numpy() for name in whole.column_names}
    return RawTable(name_of(part.place), columns, np.arange(part.start, part.stop), "row")


def _csv_part(part: _Stored) -> RawTable:
    assert part.layout is not None
    assert part.mark is not None
    return csvrows.read(part.layout, part.mark, part.behind, part.stop - part.start)


_PARTS = {
    ".npy": _array_part,
    ".npz": _array_part,
    ".zarr": _array_part,
    ".parquet": _parquet_part,
    ".csv": _csv_part,
    ".tsv": _csv_part,
}
