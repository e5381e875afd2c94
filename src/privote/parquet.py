"""Votes in Parquet files, one row a ballot, as cubes that give slices.

Sizes are public: the file says them, or lacks no ballot. Who is absent is not, and is never counted
for them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrayfiles import check_file, check_unpacked
from .ballots import Threshold, check_threshold
from .blocks import MISSING
from .errors import BallotError, InputError, missing_extra
from .names import Listed, Names, listed
from .storage import as_place, is_url, name_of, reached
from .streamed import SQUEEZED, LazyCube, readable

_FILE, _KIND = "votes file", "Parquet file"
Groups = list[tuple[int, int, int]]  # a row group, its first and its last query


def open_parquet(place: str, threshold: Threshold) -> LazyCube:
    """Open a table with one row a ballot, after a first pass over ``query`` and ``voter``."""
    name, place = name_of(place), as_place(place, _FILE)
    table, stored = _parquet(place, name)
    with readable(name, _KIND):
        labels = _label_columns(name, table.schema_arrow)
        held = table.metadata
        for group in range(table.num_row_groups):
            rows = held.row_group(group).num_rows
            check_unpacked(f"a row group of {name}", stored, rows * (len(labels) + 2) * 8)
        groups, queries, voters = _places(table)
        sizes = _public_sizes(table, queries, voters, held.num_rows)
        cells = sizes[0] * sizes[1] * len(labels)
        check_unpacked(name, stored, cells * 8, SQUEEZED)
        shape = (*sizes, len(labels))
        return _ParquetCube(name, table, labels, groups, shape, threshold)


def _parquet(place: str, name: str) -> tuple[Any, int]:
    """Return a Parquet file, which pyarrow finds by its path or URL, and its size in bytes."""
    try:
        import pyarrow.fs as fs
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    source: Any = place
    if is_url(place):
        with reached(place, _FILE):
            system, path = fs.FileSystem.from_uri(place)
            facts = system.get_file_info(path)
            if not facts.is_file:
                raise InputError(_FILE, f"{place!r:.200} does not exist, or is no file")
            source, size = system.open_input_file(path), facts.size
    else:
        size = check_file(place, _FILE).stat().st_size
    with readable(name, _KIND):
        return pq.ParquetFile(source, page_checksum_verification=True), size


def _label_columns(name: str, schema: Any) -> list[str]:
    """Return the columns that are labels; every column must hold plain numbers."""
    import pyarrow.types as of

    names = list(schema.names)
    if len(set(names)) < len(names):
        raise BallotError(name, "has two columns of one name")
    for column in ("query", "voter"):
        if column not in names:
            raise BallotError(name, f"has no column {column!r}; it has: {', '.join(names)}")
        if not of.is_integer(schema.field(column).type):
            raise BallotError("columns query and voter must be integers without nulls")
    labels = [name for name in names if name not in ("query", "voter")]
    for label in labels:
        kind = schema.field(label).type
        if not (of.is_boolean(kind) or of.is_integer(kind) or of.is_floating(kind)):
            raise BallotError(f"column {label!r} must hold 0, 1 or probabilities, got {kind!s:.60}")
    return labels


def _places(table: Any) -> tuple[Groups, int, int]:
    """Return which queries each row group has, and how many queries and voters the rows name."""
    groups: Groups = []
    last, voters = -1, 0
    for group in range(table.num_row_groups):
        part = table.read_row_group(group, columns=["query", "voter"])
        query, voter = (_whole(part.column(name)) for name in ("query", "voter"))
        if len(query) == 0:
            continue
        # Compared, not subtracted: a difference of unsigned numbers is never below 0.
        if query[0] < max(last, 0) or (query[1:] < query[:-1]).any() or voter.min() < 0:
            raise BallotError("query and voter must count from 0, rows sorted by query")
        groups.append((group, int(query[0]), int(query[-1])))
        last, voters = int(query[-1]), max(voters, int(voter.max()) + 1)
    return groups, last + 1, voters


def _whole(column: Any) -> npt.NDArray[np.int64]:
    values = column.to_numpy()
    if values.dtype.kind not in "iu":
        raise BallotError("columns query and voter must be integers without nulls")
    if values.size and int(values.max()) >= 1 << 62:  # before the cast, which would wrap around
        raise BallotError(f"query and voter must be below 2**62, got {values.max()}")
    return np.asarray(values.astype(np.int64))


def _public_sizes(table: Any, queries: int, voters: int, rows: int) -> tuple[int, int]:
    """Return the public sizes: from the file's metadata, or read off a file that lacks no ballot.

    Who is absent is private, so sizes must not be guessed from who is there.
    """
    said = table.schema_arrow.metadata or {}
    if b"queries" in said and b"voters" in said:
        texts = [said[name] for name in (b"queries", b"voters")]
        if not all(text.isdigit() and len(text) < 16 for text in texts):
            raise BallotError(
                f"the metadata's queries and voters must be whole numbers, got {texts!r:.60}"
            )
        sizes = int(texts[0]), int(texts[1])
        if sizes[0] < queries or sizes[1] < voters:
            raise BallotError(
                f"the metadata says {sizes[0]} queries and {sizes[1]} voters, "
                f"the rows have {queries} and {voters}"
            )
        return sizes
    if rows < queries * voters:  # more is a ballot cast twice, which reading finds
        raise BallotError(
            f"{queries * voters - rows} of {queries * voters} ballots are absent: then the file's "
            "schema metadata must say 'queries' and 'voters', which are public"
        )
    return queries, voters


def _voter_names(name: str, table: Any) -> Listed:
    """Return the names of voters that a file's schema metadata has, as a JSON list; or None."""
    said = (table.schema_arrow.metadata or {}).get(b"voter_names")
    return None if said is None else listed(json.loads(said), f"{name}: metadata 'voter_names'")


class _ParquetCube(LazyCube):
    """Slices of a Parquet file as dense cubes; a ballot that is not there is missing."""

    def __init__(
        self,
        name: str,
        table: Any,
        labels: list[str],
        groups: Groups,
        shape: tuple[int, int, int],
        threshold: Threshold,
    ) -> None:
        super().__init__(name, _KIND, shape)
        self._opened, self._labels, self._groups = table, labels, groups
        self.names = Names(labels=tuple(labels), voters=_voter_names(name, table))
        self._threshold = None if threshold is None else check_threshold(threshold, shape[2])

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        cube = np.full((stop - start, *self.shape[1:]), float(MISSING))
        seen = np.zeros((stop - start, self.shape[1]), np.int64)
        for group in (g for g, first, last in self._groups if last >= start and first < stop):
            part = self._opened.read_row_group(group)
            query, voter = (_whole(part.column(name)) for name in ("query", "voter"))
            here = (query >= start) & (query < stop)
            values = np.stack(
                [part.column(name).to_numpy().astype(np.float64) for name in self._labels], axis=1
            )[here]
            lost = np.isnan(values)  # a null vote is a missing vote
            if self._threshold is not None:
                bad = ~lost & ~((values >= 0) & (values <= 1))
                if bad.any():
                    said = f"it is {values[bad][0]}"
                    raise BallotError("a probability must lie in [0, 1]", sealed=said)
                values = (values >= self._threshold).astype(np.float64)
            cube[query[here] - start, voter[here]] = np.where(lost, MISSING, values)
            np.add.at(seen, (query[here] - start, voter[here]), 1)
        if (seen > 1).any():
            query_at, voter_at = np.argwhere(seen > 1)[0]
            raise BallotError(f"voter {voter_at} has two ballots on query {start + query_at}")
        return cube
