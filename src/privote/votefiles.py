"""Votes files: CSV, ``.npy``, ``.npz`` (plain or packed bits), Zarr, Parquet; checked on reading.

What need not be in memory is not: arrays are read block by block, but for compressed ``.npz`` files
and arrays in Fortran order. :mod:`privote.votesheets` reads CSV files and data frames.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._version import check_written, written
from .arrayfiles import ArrayFile, check_file, open_npy
from .ballots import (
    Ballots,
    Cells,
    Threshold,
    as_votes,
    block_queries,
    check_shape,
    check_threshold,
)
from .blocks import Votes
from .errors import BallotError, InputError
from .names import Listed, Names, listed
from .storage import as_place, check_here, name_of
from .votesheets import of_sheet

if TYPE_CHECKING:
    from .streamed import LazyCube, ZarrCube

_FILE = "votes file"
_FORMAT = 1  # of packed bits


def read(
    path: str | os.PathLike[str], *, threshold: Threshold = None, empty_chunks: str | None = None
) -> Ballots:
    """Read a votes file as checked ballots, with the names that it has.

    Zarr and Parquet are read block by block, also by a URL that zarr and pyarrow open.

    ``empty_chunks="no"`` says of a Zarr array that a chunk which is absent holds votes of no. Else
    one that lacks a chunk is refused, unless its attribute ``privote_empty`` is "no".

    ``.csv``, ``.tsv``: a row a ballot (:mod:`privote.votesheets`). ``.npy``: one 3-D array.
    ``.npz``: array ``votes``, 3-D, or packed bits with ``shape``; names, if there are any, in the
    arrays ``query_names``, ``voter_ids`` and ``label_names``.
    ``.zarr``: a 3-D array, or a group with the array ``votes``; names, if there are any, in its
    attributes ``voter_names`` and ``label_names``. ``.parquet``: one row a ballot, with columns
    ``query`` and ``voter`` (from 0) and one column a label; rows sorted by query; names of voters,
    if they have any, in the schema's metadata ``voter_names``, a JSON list.
    """
    from .parquet import open_parquet
    from .sheets import as_csv, open_csv
    from .streamed import open_zarr

    files: dict[str, Callable[[Path, Threshold], Ballots]] = {
        ".csv": lambda file, threshold: of_sheet(open_csv(file), threshold),
        ".tsv": lambda file, threshold: of_sheet(open_csv(file), threshold),
        ".npy": _read_npy,
        ".npz": _read_npz,
    }
    places: dict[str, Callable[[str, Threshold], Ballots]] = {
        ".zarr": lambda place, threshold: _from_zarr(open_zarr(place, empty_chunks), threshold),
        ".parquet": lambda place, threshold: _from_lazy(open_parquet(place, threshold), None),
    }
    place = _place(path)
    suffix = Path(name_of(place)).suffix
    if empty_chunks not in (None, "no") or (empty_chunks and suffix != ".zarr"):
        raise InputError("empty_chunks", 'must be "no", for a Zarr array, or omitted', empty_chunks)
    if suffix not in places:
        check_here(_FILE, place)
    if suffix not in places and suffix not in files:
        if not Path(place).exists():
            raise InputError(_FILE, f"{place!r} does not exist")
        raise InputError(
            f"votes file must end in one of {', '.join((*files, *places))}, "
            f"got {suffix or name_of(place)!r}{as_csv(suffix)}"
        )
    try:
        if suffix in places:
            return places[suffix](place, threshold)
        return files[suffix](check_file(place, _FILE), threshold)
    except (BallotError, MemoryError):
        raise
    except InputError as error:
        if error.argument in ("threshold", _FILE):
            raise
        raise BallotError(str(error)) from None


def read_probabilities(path: str | os.PathLike[str]) -> tuple[Cells, Listed]:
    """Read a votes file that holds probabilities: (queries, voters, labels), and query names."""
    from .sheets import SUFFIXES, open_csv
    from .votesheets import cube_of

    check_here(_FILE, _place(path))
    file = check_file(_place(path), _FILE)
    if file.suffix in SUFFIXES:
        cube, names = cube_of(open_csv(file), soft=True)
        return cube, names.queries
    if file.suffix not in (".npy", ".npz"):
        known = ", ".join((*SUFFIXES, ".npy", ".npz"))
        raise InputError(f"probabilities must be in a file that ends in {known}, got {file.name!r}")
    array = open_npy(file) if file.suffix == ".npy" else _votes_of(file, ArrayFile(file))
    check_shape(array.shape)
    return array, None


def write_packed(path: str | os.PathLike[str], votes: npt.ArrayLike) -> None:
    """Write complete votes as packed bits: an eighth of the size, read block by block."""
    ballots = Ballots.from_array(votes)
    if ballots.missing:
        raise BallotError("packed bits cannot hold missing votes: save them as an int8 array")
    bits, shape = np.packbits(ballots.to_array()), np.array(ballots.shape)
    try:
        np.savez(_place(path), votes=bits, shape=shape, written=json.dumps(written(_FORMAT)))
    except OSError as error:
        raise InputError(f"path {str(path)!r} cannot be written: {error}") from None


def _place(path: Any) -> str:
    """Return a path as it was given, or a URL."""
    try:
        url = isinstance(path, str) and "://" in path
        return as_place(path, _FILE) if url else str(Path(path))
    except TypeError:
        raise InputError("path", "must name a file", path) from None


def _read_npy(file: Path, threshold: Threshold) -> Ballots:
    return Ballots.from_array(open_npy(file), threshold=threshold)


def _read_npz(file: Path, threshold: Threshold) -> Ballots:
    arrays = ArrayFile(file)
    votes = _votes_of(file, arrays)
    if "shape" in arrays and votes.ndim == 1:
        if threshold is not None:
            raise InputError(
                "threshold", "applies to probabilities, and these votes are packed bits"
            )
        ballots = Ballots.from_packed(votes, arrays["shape"])
    else:
        ballots = Ballots.from_array(votes, threshold=threshold)
    named = {"queries": "query_names", "voters": "voter_ids", "labels": "label_names"}
    found = {
        axis: listed(arrays[name], f"{file.name}: array {name!r}")
        for axis, name in named.items()
        if name in arrays
    }
    return ballots.named(Names(**found), file.name)


def _votes_of(file: Path, arrays: ArrayFile) -> Cells:
    if "votes" not in arrays:
        raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(arrays.names)}")
    if "written" in arrays:  # by privote
        check_written(file.name, json.loads(str(arrays["written"])), _FORMAT)
    return arrays.open("votes")


def _from_zarr(array: ZarrCube, threshold: Threshold) -> Ballots:
    ballots = _from_lazy(array, threshold)
    array.check_chunks()
    return ballots


def _from_lazy(array: LazyCube, threshold: Threshold) -> Ballots:
    """Check an array that only gives slices, slab by slab, and keep reading it that way."""
    shape = check_shape(tuple(array.shape))
    bar = None if threshold is None else check_threshold(threshold, shape[2])
    missing, step = threshold is None, block_queries(*shape[1:])
    # A first pass that keeps nothing: what is wrong is found before anything is charged.
    for start in range(0, shape[0], step):
        try:
            missing = Ballots.from_array(array[start : start + step], threshold=bar).missing
        except BallotError as error:
            said = f"in the block that starts at query {start}: {error}"
            raise BallotError(said, sealed=error.sealed) from None

    def votes(start: int, stop: int) -> Votes:
        slab = array.part(start, stop, step)
        return as_votes(slab, missing) if bar is None else np.asarray(slab >= bar)

    return Ballots(shape, votes, missing=missing).named(array.names)
