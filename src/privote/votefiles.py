"""Votes files: ``.npy``, ``.npz`` (plain or packed bits), Zarr and Parquet, checked on reading.

What need not be in memory is not: ``.npy`` and uncompressed ``.npz`` are memory-mapped, Zarr and
Parquet are read block by block.
"""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .ballots import Ballots, Threshold, as_votes, check_shape, check_threshold
from .blocks import MISSING, Votes
from .errors import BallotError, InputError, missing_extra


def read(path: str | os.PathLike[str], *, threshold: Threshold = None) -> Ballots:
    """Read a votes file as checked ballots.

    ``.npy``: one 3-D array. ``.npz``: array ``votes``, 3-D, or packed bits with ``shape``.
    ``.zarr``: a 3-D array, or a group with the array ``votes``. ``.parquet``: one row a ballot,
    with columns ``query`` and ``voter`` (from 0) and one column a label; rows sorted by query.
    """
    file = _path(path)
    if not file.exists():
        raise InputError(f"votes file {str(path)!r} does not exist")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".zarr": _read_zarr, ".parquet": _read_parquet}
    if file.suffix not in readers:
        raise InputError(
            f"votes file must end in one of {', '.join(readers)}, got {file.suffix or file.name!r}"
        )
    return readers[file.suffix](file, threshold)


def write_packed(path: str | os.PathLike[str], votes: npt.ArrayLike) -> None:
    """Write complete votes as packed bits: an eighth of the size, and memory-mapped on reading."""
    ballots = Ballots.from_array(votes)
    if ballots.missing:
        raise BallotError("packed bits cannot hold missing votes: save them as an int8 array")
    bits, shape = np.packbits(ballots.to_array()), np.array(ballots.shape)
    try:
        np.savez(_path(path), votes=bits, shape=shape)
    except OSError as error:
        raise InputError(f"path {str(path)!r} cannot be written: {error}") from None


def _path(path: Any) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise InputError(f"path must name a file, got {path!r:.60}") from None


def _read_npy(file: Path, threshold: Threshold) -> Ballots:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BallotError(f"{file.name} is not a readable .npy file: {error}") from None
    return Ballots.from_array(array, threshold=threshold)


def _read_npz(file: Path, threshold: Threshold) -> Ballots:
    try:
        with np.load(file, allow_pickle=False) as data:
            names = list(data.files)
            shape = data["shape"] if "shape" in names else None
            if "votes" not in names:
                raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(names)}")
            votes = _map_member(file, "votes.npy")
            votes = data["votes"] if votes is None else votes
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        if isinstance(error, BallotError):
            raise
        raise BallotError(f"{file.name} is not a readable .npz file: {error}") from None
    if shape is not None and votes.ndim == 1:
        if threshold is not None:
            raise InputError("threshold applies to probabilities, and these votes are packed bits")
        return Ballots.from_packed(votes, shape)
    return Ballots.from_array(votes, threshold=threshold)


def _map_member(file: Path, member: str) -> npt.NDArray[Any] | None:
    """Memory-map an array that lies uncompressed inside an ``.npz``; None if it does not."""
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(member)
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        with open(file, "rb") as stream:
            # The local header's name and extra field may be longer than the central directory's.
            stream.seek(entry.header_offset + 26)
            name, extra = struct.unpack("<HH", stream.read(4))
            stream.seek(entry.header_offset + 30 + name + extra)
            npy: Any = np.lib.format
            header = (
                npy.read_array_header_1_0
                if npy.read_magic(stream) == (1, 0)
                else npy.read_array_header_2_0
            )
            shape, fortran, dtype = header(stream)
            if dtype.hasobject or fortran:
                return None
            return np.memmap(file, dtype=dtype, mode="r", offset=stream.tell(), shape=shape)


def _read_zarr(file: Path, threshold: Threshold) -> Ballots:
    try:
        import zarr
    except ImportError:
        raise missing_extra("files", "reading Zarr") from None
    try:
        node = zarr.open(str(file), mode="r")
    except Exception as error:  # zarr has its own error tree
        raise BallotError(f"{file.name} is not a readable Zarr array: {error}") from None
    if isinstance(node, zarr.Group):
        if "votes" not in node:
            raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(node)}")
        node = node["votes"]
    return _from_lazy(node, threshold)


def _from_lazy(array: Any, threshold: Threshold) -> Ballots:
    """Check an array that only gives slices, slab by slab, and keep reading it that way."""
    shape = check_shape(tuple(array.shape))
    # A first pass that keeps nothing: what is wrong is found before anything is charged.
    step = max(1, (1 << 23) // max(1, array.shape[1] * array.shape[2]))
    missing = threshold is None
    for start in range(0, array.shape[0], step):
        try:
            part = Ballots.from_array(np.asarray(array[start : start + step]), threshold=threshold)
        except BallotError as error:
            raise BallotError(f"in the block that starts at query {start}: {error}") from None
        missing = part.missing
    bar = None if threshold is None else check_threshold(threshold, array.shape[2])

    def rows(start: int, stop: int) -> Votes:
        slab = np.asarray(array[start:stop])
        if bar is not None:
            return np.asarray(slab >= bar)
        return as_votes(slab, missing)

    return Ballots(shape, rows, missing=missing)


def _read_parquet(file: Path, threshold: Threshold) -> Ballots:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    try:
        table = pq.ParquetFile(file)
    except Exception as error:  # pyarrow has its own error tree
        raise BallotError(f"{file.name} is not a readable Parquet file: {error}") from None
    names = table.schema_arrow.names
    for column in ("query", "voter"):
        if column not in names:
            raise BallotError(f"{file.name} has no column {column!r}; it has: {', '.join(names)}")
    labels = [name for name in names if name not in ("query", "voter")]
    groups, voters, rows = [], 0, 0
    last = -1
    for group in range(table.num_row_groups):
        part = table.read_row_group(group, columns=["query", "voter"])
        query, voter = (part.column(c).to_numpy() for c in ("query", "voter"))
        if query.dtype.kind not in "iu" or voter.dtype.kind not in "iu":
            raise BallotError("columns query and voter must be integers without nulls")
        if len(query) == 0:
            continue
        if query[0] < max(last, 0) or (np.diff(query) < 0).any() or voter.min() < 0:
            raise BallotError("query and voter must count from 0, rows sorted by query")
        groups.append((group, int(query[0]), int(query[-1])))
        last, voters = int(query[-1]), max(voters, int(voter.max()) + 1)
        rows += len(query)
    queries, voters = _parquet_sizes(table, last + 1, voters, rows)
    check_shape((queries, voters, len(labels)))
    cube = _ParquetCube(table, labels, groups, (queries, voters, len(labels)), threshold)
    return _from_lazy(cube, None)


def _parquet_sizes(table: Any, queries: int, voters: int, rows: int) -> tuple[int, int]:
    """Return the public sizes: from the file's metadata, or read off a file that lacks no ballot.

    Who is absent is private, so sizes must not be guessed from who is there.
    """
    said = table.schema_arrow.metadata or {}
    if b"queries" in said and b"voters" in said:
        sizes = int(said[b"queries"]), int(said[b"voters"])
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


class _ParquetCube:
    """Slices of a Parquet file as dense int8 cubes; a ballot that is not there is missing."""

    def __init__(
        self,
        table: Any,
        labels: list[str],
        groups: list[tuple[int, int, int]],
        shape: tuple[int, int, int],
        threshold: Threshold,
    ) -> None:
        self.shape = shape
        self._table, self._labels, self._groups = table, labels, groups
        self._threshold = None if threshold is None else check_threshold(threshold, shape[2])

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop = rows.start or 0, min(rows.stop, self.shape[0])
        cube = np.full((stop - start, *self.shape[1:]), float(MISSING))
        seen = np.zeros((stop - start, self.shape[1]), np.int64)
        for group in (g for g, first, last in self._groups if last >= start and first < stop):
            part = self._table.read_row_group(group)
            query, voter = (part.column(c).to_numpy() for c in ("query", "voter"))
            here = (query >= start) & (query < stop)
            values = np.stack(
                [part.column(name).to_numpy().astype(np.float64) for name in self._labels], axis=1
            )[here]
            lost = np.isnan(values)  # a null vote is a missing vote
            if self._threshold is not None:
                bad = ~lost & ~((values >= 0) & (values <= 1))
                if bad.any():
                    raise BallotError(f"a probability must lie in [0, 1], got {values[bad][0]}")
                values = (values >= self._threshold).astype(np.float64)
            cube[query[here] - start, voter[here]] = np.where(lost, MISSING, values)
            np.add.at(seen, (query[here] - start, voter[here]), 1)
        if (seen > 1).any():
            query_at, voter_at = np.argwhere(seen > 1)[0]
            raise BallotError(f"voter {voter_at} has two ballots on query {start + query_at}")
        return cube
