"""Files a verb writes and reads: places checked before the work, complete or absent after it."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError
from privote.files import check_file, check_new, complete, digests_of
from privote.release import Release
from privote.votes.arrays import ArrayFile, read_npy
from privote.votes.cells import cell_of, name_of
from privote.votes.tables import open_table, write_header

from .output import NO_ROOM

Array = npt.NDArray[Any]
Write = Callable[[Path, Any], object]

_ROWS = 1 << 12  # of labels that are written at a time
LABEL_FILES = (".csv", ".npz")
CHANCES = (".csv", ".npy")
_ARRAY_FILES = (".npy", ".npz", ".csv")


@contextmanager
def claimed_folder(output: Path, *, force: bool) -> Iterator[None]:
    """Claim a folder for work that may fail; a folder that was made for it is then gone again.

    One that holds anything is taken with ``force`` only: the same rule as for a file.
    """
    there = output.is_dir()
    if there and not force and any(output.iterdir()):
        rule = f"{str(output)!r} holds files; finish its run with `resume=True`, or give"
        raise InputError("output", f"{rule} `force=True`")
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        why = error.strerror or error
        raise InputError("output", f"{str(output)!r} cannot be a folder: {why}") from None
    try:
        yield
    except BaseException:
        if not there:
            with suppress(OSError):  # somebody else may use it meanwhile
                output.rmdir()
        raise


@contextmanager
def claimed(output: Path, *, force: bool, **how: Any) -> Iterator[Path]:
    """Yield a file to write that becomes ``output`` when the block ends well; for free work."""
    owner_only = how.pop("owner_only", False)
    check_new("output", output, how.pop("suffixes", LABEL_FILES), force=force, **how)
    with complete(output, force=force, owner_only=owner_only) as part:
        yield part


class Outputs:
    """The files of a run: their places are checked before it, and they are written whole after it.

    Parameters
    ----------
    force
        Whether files that exist are replaced; a run that is resumed may find its own.
    keep
        Files in use, which are never replaced.
    """

    def __init__(self, *, force: bool, resume: bool = False, keep: Iterable[Path | None] = ()):
        self._force, self._claims = force, force or resume
        self._keep = [path for path in keep if path is not None]
        self._rows: list[tuple[Path, Write, bool]] = []

    def add(
        self,
        argument: str,
        path: Path | None,
        suffixes: tuple[str, ...],
        write: Write,
        *,
        sealed: bool = False,
    ) -> None:
        """Add a file, if it is wanted; refuse a place that cannot be written to."""
        if path is not None:
            check_new(argument, path, suffixes, force=self._claims, keep=self._keep)
            self._keep.append(path)
            self._rows.append((path, write, sealed))

    def write(self, result: Any) -> dict[str, str]:
        """Write every file; return the digests of those that may leave."""
        for path, write, sealed in self._rows:
            with complete(path, force=self._force, owner_only=sealed) as part:
                write(part, result)
        return digests_of(path for path, _, sealed in self._rows if not sealed)


def text_of(render: Callable[[Any], str]) -> Write:
    """Return what writes a result as a text."""
    return lambda part, result: part.write_text(render(result), encoding="utf-8")


def write_labels(path: Path, release: Release) -> None:
    """Write a release: ``.npz`` with its facts, ``.csv`` with the labels alone."""
    if path.suffix == ".npz":
        release.save(path)
    else:
        _write_cells(path, release, release.labels)


def write_probabilities(path: Path, release: Release) -> None:
    """Write how likely most voters want each label: (queries, labels); a ``.csv`` has names."""
    chances = release.probabilities
    if chances is None:  # a test that failed has none either
        chances = np.zeros(release.labels.shape)
    if path.suffix == ".csv":
        # A label is 1 exactly where its printed probability is above one half.
        printed = np.where(chances > 0.5, np.ceil(chances * 1e6), np.floor(chances * 1e6)) / 1e6
        _write_cells(path, release, printed)
    else:
        np.save(path, chances)


def _write_cells(path: Path, release: Release, cells: Array) -> None:
    """Write (queries, labels) under the header query,label_0,..., or their names; -1 is ABSTAIN."""
    heads = release.label_names or [f"label_{place}" for place in range(cells.shape[1])]
    queries = (
        range(len(cells)) if release.query_names is None else map(cell_of, release.query_names)
    )
    starts = range(0, len(cells), _ROWS)  # as lists, all cells would take 20 times as much memory
    rows = (row for start in starts for row in cells[start : start + _ROWS].tolist())
    pairs = zip(queries, rows, strict=True)
    write_csv(path, ["query", *heads], ([query, *row] for query, row in pairs))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        write_header(stream, header)
        csv.writer(stream, lineterminator="\n").writerows(rows)


def read_rows(path: Path, queries: Sequence[str] | None) -> Any:
    """Return the public rows of the queries as numbers (queries, features).

    An array (``.npy``, or X of an ``.npz``) is taken as it is. A table, or a folder of pictures, is
    encoded by what it holds itself: it is public. A column ``query`` puts a table in order.
    """
    from privote.datasets import pictures
    from privote.learning.pictures import PictureEncoder
    from privote.learning.tables import TableEncoder
    from privote.learning.texts import TextNetwork

    if path.is_dir():
        return PictureEncoder().numbers(pictures(path).X)
    if path.suffix in (".npy", ".npz"):
        return read_array(path, "X" if path.suffix == ".npz" else "rows")
    table = open_table(path, "rows", public=True)
    order = _order(table.columns.get("query", ()), queries)
    features = table.only([name for name in table.header if name != "query"])
    return TableEncoder(TextNetwork()).fit(features).numbers(features)[order]


def read_names(path: Path, argument: str = "voter_ids") -> list[str]:
    """Read names from a text file, one a line; blanks around a name do not count."""
    try:
        text = check_file(path, argument).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise InputError(argument, f"{str(path)!r} cannot be read: {error}") from None
    return [name.strip() for name in text.rstrip().splitlines()]


def read_array(path: Path, argument: str, *, queries: Sequence[str] | None = None) -> Array:
    """Read one array: ``.npy``, ``.npz`` (called as the argument is), or a table as ``.csv``.

    A table has a header. Its column ``query``, as written by ``privote label``, says which of
    ``queries`` a row is about.
    """
    if path.suffix not in _ARRAY_FILES:
        raise InputError(argument, f"must end in one of {', '.join(_ARRAY_FILES)}", path.name)
    check_file(path, argument)
    try:
        if path.suffix == ".csv":
            return _read_table(path, queries)
        if path.suffix == ".npy":
            return read_npy(path)
        arrays = ArrayFile(path)
        if argument not in arrays:
            raise ValueError(f"needs an array {argument!r}; it has: {', '.join(arrays.names)}")
        return arrays[argument]
    except (OSError, ValueError) as error:
        raise InputError(argument, f"{str(path)!r} cannot be read: {error}") from None


def _read_table(path: Path, queries: Sequence[str] | None) -> Array:
    from privote.datasets.tables import table

    rows = open_table(path)
    array: Array = table(rows, features=[name for name in rows.header if name != "query"]).X
    return np.asarray(array[_order(rows.columns.get("query", ()), queries)])


def _order(cells: Iterable[Any], queries: Sequence[str] | None) -> Any:
    """Return which rows are about the queries, one after the other; all, where none has a name."""
    named = [name_of(cell) for cell in cells]
    if queries is None or named in ([], [str(row) for row in range(len(named))]):
        return slice(None)
    place = {name: row for row, name in enumerate(named)}
    if len(place) < len(named) or not place.keys() >= set(queries):
        raise ValueError("its column 'query' must name every query of the votes exactly once")
    return [place[name] for name in queries]
