"""Votes files: CSV, ``.npy``, ``.npz`` (plain or packed bits), Zarr, Parquet; checked on reading.

What need not be in memory is not: arrays are read block by block, but for compressed ``.npz`` files
and arrays in Fortran order. :mod:`privote.votes.tables` reads CSV files and data frames.

Nothing in a file is believed that can be checked: its kind, its header, its sizes, its checksums.
No object is unpickled, nothing is allocated on the word of a header alone, and metadata is read and
judged here before a library acts on it: which values, packed how, how many. Whatever a damaged
file, or a connection that breaks off, leads to is an :class:`InputError` of one sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
import weakref
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .._version import check_written, written
from ..errors import BallotError, InputError, MissingExtraError, missing_extra
from ..files import (
    as_place,
    check_file,
    check_here,
    check_tree,
    check_unpacked,
    complete,
    is_url,
    name_of,
    why,
)
from .cube import (
    MISSING,
    Ballots,
    StoredArray,
    Threshold,
    block_queries,
    check_shape,
    check_threshold,
)
from .names import Names, listed
from .tables import CSVFile, as_csv, of_sheet

_FORMAT = 1  # of packed bits
_ZARR = "Zarr array"
_MOST_METADATA, MOST_ATTRIBUTES = 1 << 20, 1 << 24
OURS, EMPTY = "privote", "privote_empty"  # attributes: what `privote votes` says, and a user may
_UNFINISHED = "is not finished: collect the rest of its votes first (privote votes)"
SQUEEZED = 10_000  # in slices, so memory is bounded anyway: this bounds the time
_CELLS = 1 << 27  # votes of one query: a gigabyte, as floats
_TYPES = {"bool": 1, "float16": 2, "float32": 4, "float64": 8} | {
    f"{sign}int{8 * width}": width for sign in ("", "u") for width in (1, 2, 4, 8)
}
# Codecs that turn bytes into bytes or numbers into numbers, and never into objects.
_V2_CODECS = (
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma"),
    *("shuffle", "delta", "packbits", "crc32"),
)
_V3_CODECS = ("bytes", "transpose", "blosc", "zstd", "gzip", "crc32c")

Sizes = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, shape of a chunk, bytes of a value
_FILE, _KIND = "votes file", "Parquet file"
_PLACES = (
    "must have a row for every ballot, sorted by query and voter, which count from 0: a missing "
    "ballot is a row of nulls"
)
Array = npt.NDArray[Any]

_KINDS = "biufUS"  # plain values; everything else has code or structure behind it
_HEADER = 1 << 16
_EMPTY = 1 << 24  # rows of an array without cells: sizes that nothing in the file backs
_STEP = 1 << 20


def read(
    path: str | os.PathLike[str],
    *,
    threshold: Threshold = None,
    steps: int = 1,
    soft: bool | None = None,
    queries_from: Any = None,
    voters_from: Any = None,
) -> Ballots:
    """Read a votes file as checked ballots, with the names that it has.

    ``threshold``, ``steps`` and ``soft`` are for probabilities (:meth:`Ballots.from_array`). Those
    in a CSV or Parquet file are told from votes by a threshold, or by ``soft``: the type of a
    column follows from what is in it. ``queries_from`` and ``voters_from`` are public lists, for a
    CSV file in which ballots may be missing.

    Zarr and Parquet are read block by block, also by a URL that zarr and pyarrow open.

    A Zarr array that lacks a chunk is refused, unless its attribute ``privote_empty`` is "no": then
    a chunk that is absent holds votes of no.

    ``.csv``, ``.tsv``: a row a ballot (:mod:`privote.votes.tables`). ``.npy``: one 3-D array.
    ``.npz``: array ``votes``, 3-D, or packed bits with ``shape``; names, if there are any, in the
    arrays ``query_names``, ``voter_ids`` and ``label_names``.
    ``.zarr``: a 3-D array, or a group with the array ``votes``; names, if there are any, in its
    attributes ``voter_names`` and ``label_names``. ``.parquet``: one row a ballot, with columns
    ``query`` and ``voter`` (from 0) and one column a label; rows sorted by query and voter, none
    absent; names of voters, if they have any, in the schema's metadata ``voter_names``, a JSON
    list.
    """
    how: dict[str, Any] = {"threshold": threshold, "steps": steps, "soft": soft}
    lists = {"queries_from": queries_from, "voters_from": voters_from}
    readers: dict[str, Callable[[str], Ballots]] = {
        ".zarr": lambda place: _read_zarr(place, how),
        ".parquet": lambda place: _read_parquet(place, how),
        ".npy": lambda file: Ballots.from_array(open_npy(file), **how),
        ".npz": lambda file: _read_npz(Path(file), how),
        ".csv": lambda file: of_sheet(
            CSVFile(file), threshold=threshold, steps=steps if soft else 1, **lists
        ),
    }
    readers[".tsv"] = readers[".csv"]
    place = _place(path)
    suffix = Path(name_of(place)).suffix
    if suffix not in (".zarr", ".parquet"):
        check_here(_FILE, place)
        check_file(place, _FILE)
    if suffix not in readers:
        raise InputError(
            f"votes file must end in one of {', '.join(readers)}, "
            f"got {suffix or name_of(place)!r}{as_csv(suffix)}"
        )
    if suffix not in (".csv", ".tsv"):
        refuse_lists(lists)
    try:
        return readers[suffix](place)
    except (BallotError, MemoryError):
        raise
    except InputError as error:
        if error.argument in ("threshold", _FILE, *lists):
            raise
        raise BallotError(str(error)) from None


def refuse_lists(lists: Mapping[str, Any]) -> None:
    """Refuse public lists of queries or voters, where an array says how many there are."""
    for argument, names in lists.items():
        if names is not None:
            raise InputError(argument, "applies to tables: an array has all queries and voters")


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


def _read_npz(file: Path, how: Mapping[str, Any]) -> Ballots:
    arrays = ArrayFile(file)
    if "votes" not in arrays:
        raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(arrays.names)}")
    if "written" in arrays:  # by privote
        check_written(file.name, json.loads(str(arrays["written"])), _FORMAT)
    votes = arrays.open("votes")
    if "shape" in arrays and votes.ndim == 1:
        if how["threshold"] is not None:
            raise InputError(
                "threshold", "applies to probabilities, and these votes are packed bits"
            )
        ballots = Ballots.from_packed(votes, arrays["shape"])
    else:
        ballots = Ballots.from_array(votes, **how)
    named = {"queries": "query_names", "voters": "voter_ids", "labels": "label_names"}
    found = {
        axis: listed(arrays[name], f"{file.name}: array {name!r}")
        for axis, name in named.items()
        if name in arrays
    }
    return ballots.named(Names(**found), file.name)


def _read_zarr(place: str, how: Mapping[str, Any]) -> Ballots:
    opened, name = _open_zarr(place, _FILE, "votes"), name_of(place)
    with readable(name, _ZARR):  # attributes may hold anything
        cube = ZarrCube(name, *opened)
    ballots = Ballots.from_array(cube, **how).named(cube.names)
    cube.check_chunks()
    return ballots


def _read_parquet(place: str, how: Mapping[str, Any]) -> Ballots:
    soft = bool(how["soft"]) and how["steps"] > 1
    cube = ParquetCube(place, how["threshold"], soft=soft)
    return Ballots.from_array(cube, steps=how["steps"], soft=soft).named(cube.names)


# -- slices: Zarr ----------------------------------------------------------------------------------


class LazyCube(StoredArray):
    """A cube (queries, voters, labels) that a library reads, in runs of a block's queries."""

    names = Names()

    def __init__(
        self, name: str, kind: str, shape: tuple[int, int, int], dtype: npt.DTypeLike
    ) -> None:
        super().__init__(name, check_shape(shape), dtype)
        if shape[1] * shape[2] > _CELLS:
            raise BallotError(
                name, f"has {shape[1] * shape[2]} votes a query, and at most {_CELLS} can be read"
            )
        self._kind = kind
        self._checksums: dict[int, int] = {}

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        step = block_queries(*self.shape[1:])
        first = start // step * step
        runs = [self._run(at, step) for at in range(first, max(stop, first + 1), step)]
        whole = runs[0] if len(runs) == 1 else np.concatenate(runs)
        return whole[start - first : stop - first]

    def _run(self, start: int, step: int) -> npt.NDArray[Any]:
        stop = min(start + step, self.shape[0])
        with readable(self.name, self._kind):
            slab = self._slab(start, stop)
        # Votes are read once to be checked, before anything is charged, and once to be counted. A
        # chunk that was lost between would be votes of no.
        found = zlib.crc32(slab.tobytes())
        if self._checksums.setdefault(start, found) != found:
            rule = f"is not what it was when it was checked, at queries {start} to {stop - 1}"
            raise BallotError(self.name, rule)
        return slab

    @abstractmethod
    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the queries from ``start`` to before ``stop``."""


@contextmanager
def readable(name: str, kind: str) -> Iterator[None]:
    """Turn whatever a library makes of a damaged file into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except Exception as error:  # zarr and pyarrow have their own error trees, and leave them
        raise BallotError(name, f"is not a readable {kind}: {why(error)}") from None


def open_array(place: str, what: str, inside: str) -> Any:
    """Open a Zarr array, or the one called ``inside`` of a group, once its metadata is harmless."""
    return _open_zarr(place, what, inside)[0]


def _open_zarr(place: str, what: str, inside: str) -> tuple[Any, Folder, Sizes]:
    """Return a Zarr array, the folder in which it lies, and the sizes in its metadata."""
    name, folder = name_of(place), Folder(as_place(place, what), what)
    files = folder.files()
    if not files:
        raise InputError(what, f"{place!r:.200} does not exist, or holds no files")
    at, facts = _zarr_metadata(folder, files, inside)
    shape, chunks, width = sizes = _check(facts)
    check_unpacked(f"a chunk of {name}", 0, math.prod(chunks) * width)
    check_unpacked(name, sum(files.values()), math.prod(shape) * width, SQUEEZED)
    try:
        import zarr
    except ImportError:
        raise missing_extra("files", "reading Zarr") from None
    with readable(name, _ZARR):
        # The array itself, not through its group, whose copy of the metadata nobody has judged.
        array = zarr.open_array(at.place, mode="r")
        facts = json.loads(json.dumps(array.metadata.to_dict(), default=str))
        now = _check(facts if facts["zarr_format"] == 3 else {"zarray": facts})
        # What was opened must be what was judged, and nothing that was written since.
        if now != sizes or array.dtype.kind not in "biuf":
            raise ValueError("it changed while it was read")
        return array, at, sizes


class ZarrCube(LazyCube):
    """Votes in a Zarr array."""

    def __init__(self, name: str, array: Any, folder: Folder, sizes: Sizes) -> None:
        super().__init__(name, _ZARR, tuple(array.shape), array.dtype)
        self._opened, self._folder, self._sizes = array, folder, sizes
        said = dict(array.attrs)
        named = {
            f"{axis}s": listed(said[f"{axis}_names"], f"{name}: attribute '{axis}_names'")
            for axis in ("voter", "label")
            if f"{axis}_names" in said
        }
        self.names = Names(**named)

    def check_chunks(self) -> None:
        """Refuse votes of which a chunk was lost: zarr would read it as votes of no.

        After the first reading: a chunk that is lost later does not have the checksum of then.
        """
        attributes, (shape, chunks, _) = dict(self._opened.attrs), self._sizes
        counts = [-(-side // chunk) for side, chunk in zip(shape, chunks, strict=True)]
        # One after the other: metadata may claim more chunks than there is memory for their names.
        names = map(self._opened.metadata.encode_chunk_key, product(*map(range, counts)))
        if OURS in attributes:
            self._check_digests(attributes[OURS], names, math.prod(counts))
            return
        files = self._folder.files()
        lost = next((name for name in names if name not in files), None)
        if lost is None:
            return
        if attributes.get(EMPTY) != "no":
            raise BallotError(
                self.name,
                f"has no chunk {lost!r}: it was lost, or zarr left it out because it "
                "holds only the fill value. Write the votes with zarr's option write_empty_chunks; "
                "or, if every chunk that is absent holds votes of no, set the attribute "
                f'{EMPTY} of the array to "no"',
            )
        if self._opened.fill_value != 0:
            rule = "must have the fill value 0 if chunks that are absent are to be votes of no"
            raise BallotError(self.name, rule)

    def _check_digests(self, ours: Any, names: Iterable[str], count: int) -> None:
        digests = ours.get("digests") if isinstance(ours, dict) else None
        if not isinstance(digests, list) or len(digests) != count:
            raise BallotError(self.name, _UNFINISHED)
        files = self._folder.files()
        for name, digest in zip(names, digests, strict=True):
            if name not in files or chunk_digest(self._folder.read(name)) != digest:
                raise BallotError(
                    self.name,
                    f"has lost the chunk {name!r}, or it was changed: collect its votes again, "
                    "with privote votes and `resume=True`",
                )

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        return np.asarray(self._opened[start:stop])


def chunk_digest(data: bytes) -> str:
    """Return the digest of a chunk as it is stored: 128 bits tell any loss, and keep lists short.

    Stored bytes are an eighth of the votes, and need not be unpacked. BLAKE2 is faster than SHA-256
    where the processor has no instructions for the latter.
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _zarr_metadata(
    folder: Folder, files: Mapping[str, int], inside: str
) -> tuple[Folder, dict[str, Any]]:
    """Return where the array lies, and its own metadata.

    That of version 2 comes under ``zarray``.
    """
    name = name_of(folder.place)
    for at, prefix in ((folder, ""), (folder / inside, f"{inside}/")):
        held = [kept for kept in ("zarr.json", ".zarray") if prefix + kept in files]
        if len(held) > 1:
            raise BallotError(f"{name} has metadata of two versions of Zarr: keep one")
        if not held:
            continue
        if files.get(f"{prefix}.zattrs", 0) > MOST_ATTRIBUTES:
            raise BallotError(name, f"has more than {MOST_ATTRIBUTES} bytes of attributes")
        facts = _json(at, held[0], name)
        if held == [".zarray"]:
            said = f"{prefix}.zattrs" in files and at.read(".zattrs", MOST_ATTRIBUTES)
            if OURS in facts and facts[OURS] != (chunk_digest(said) if said else None):
                rule = "has lost its attributes (.zattrs), or they were changed: put that file back"
                raise BallotError(name, f"{rule}, or collect its votes again")
            return at, {"zarray": facts}
        if facts.get("node_type") == "array":
            return at, facts
    if ".zattrs" in files and OURS in _json(folder, ".zattrs", name, MOST_ATTRIBUTES):
        raise BallotError(name, _UNFINISHED)
    folders = sorted({file.partition("/")[0] for file in files if "/" in file})
    raise BallotError(f"{name} has no array {inside!r}; it has: {', '.join(folders[:8])!r:.200}")


def _json(folder: Folder, kept: str, name: str, most: int = _MOST_METADATA) -> dict[str, Any]:
    with readable(name, _ZARR):
        data = folder.read(kept, most + 1)
        if len(data) > most:
            raise ValueError(f"its metadata has more than {most} bytes")
        facts = json.loads(data.decode("utf-8"))
        if not isinstance(facts, dict):
            raise ValueError("its metadata is no object")
        return facts


def _check(facts: Mapping[str, Any]) -> Sizes:
    """Return the sizes of an array whose metadata is harmless."""
    return _check_v2(facts) if "zarray" in facts else _check_v3(facts)


def _check_v2(facts: Mapping[str, Any]) -> Sizes:
    facts = facts["zarray"]
    dtype = facts.get("dtype")
    if not isinstance(dtype, str) or not re.fullmatch("[<>|](b1|f[248]|[iu][1248])", dtype):
        raise BallotError(f"a Zarr array of votes must hold plain numbers, got dtype {dtype!r:.60}")
    filters = facts.get("filters")
    codecs = [*(filters if isinstance(filters, list) else []), facts.get("compressor")]
    for codec in codecs:
        if codec is not None:
            _check_codec(codec.get("id") if isinstance(codec, dict) else codec, _V2_CODECS)
    return _sides(facts.get("shape")), _sides(facts.get("chunks")), int(dtype[2])


def _check_v3(facts: Mapping[str, Any]) -> Sizes:
    dtype = facts.get("data_type")
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise BallotError(
            f"a Zarr array of votes must hold plain numbers, got data_type {dtype!r:.60}"
        )
    if facts.get("storage_transformers"):
        raise BallotError("a Zarr array of votes takes no storage_transformers")
    _check_chain(facts.get("codecs"))
    grid = facts.get("chunk_grid")
    settings = grid.get("configuration") if isinstance(grid, dict) else None
    chunks = settings.get("chunk_shape") if isinstance(settings, dict) else None
    return _sides(facts.get("shape")), _sides(chunks), _TYPES[dtype]


def _check_chain(codecs: Any, depth: int = 0) -> None:
    """Refuse codecs that are not known to be harmless, those inside shards too."""
    if not isinstance(codecs, list) or depth > 2:
        raise BallotError(f"a Zarr array's codecs must be a list, got {codecs!r:.60}")
    for codec in codecs:
        name = codec.get("name") if isinstance(codec, dict) else codec
        if name == "sharding_indexed" and isinstance(codec, dict):
            inner = codec.get("configuration")
            inner = inner if isinstance(inner, dict) else {}
            _sides(inner.get("chunk_shape"))
            _check_chain(inner.get("codecs"), depth + 1)
            _check_chain(inner.get("index_codecs", []), depth + 1)
        else:
            _check_codec(name, _V3_CODECS)


def _check_codec(name: Any, known: Sequence[str]) -> None:
    if name not in known:
        raise BallotError(
            f"a Zarr array of votes may be packed by {', '.join(known)}, got {name!r:.60}"
        )


def _sides(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**62 for n in shape):
        raise BallotError(f"a Zarr array's shape must be whole numbers, got {shape!r:.60}")
    return tuple(shape)


# -- slices: Parquet -------------------------------------------------------------------------------


class ParquetCube(LazyCube):
    """Votes in a Parquet file: a row for every ballot, sorted by query and voter.

    Sizes are then those of the file. If a ballot could be absent, who is there would tell them,
    and that is private.
    """

    def __init__(self, place: str, threshold: Threshold, *, soft: bool) -> None:
        name, place = name_of(place), as_place(place, _FILE)
        self._opened, stored = _parquet(place, name)
        with readable(name, _KIND):
            labels = _label_columns(name, self._opened.schema_arrow)
            held = self._opened.metadata
            rows = [held.row_group(group).num_rows for group in range(held.num_row_groups)]
            for count in rows:
                check_unpacked(f"a row group of {name}", stored, count * (len(labels) + 2) * 8)
            queries, voters = self._check_places(name)
            shape = queries, voters, len(labels)
            check_unpacked(name, stored, math.prod(shape) * 8, SQUEEZED)
            said = (self._opened.schema_arrow.metadata or {}).get(b"voter_names")
            text = f"{name}: metadata 'voter_names'"
            names = None if said is None else listed(json.loads(said), text)
        self._threshold = None if threshold is None else check_threshold(threshold, len(labels))
        # The type of a column says nothing: one missing vote makes it hold floats.
        super().__init__(name, _KIND, shape, np.float64 if soft else np.int8)
        self._ends = np.cumsum(rows)
        self.names = Names(labels=tuple(labels), voters=names)

    def _check_places(self, name: str) -> tuple[int, int]:
        """Return how many queries and voters there are; refuse rows that are not in their order."""
        voters = row = 0
        for part in self._opened.iter_batches(columns=["query", "voter"]):
            query, voter = (part.column(at).to_numpy(zero_copy_only=False) for at in range(2))
            if not voters and (query != 0).any():  # where the first query ends
                voters = row + int(np.argmax(query != 0))
            place = np.arange(row, row + len(query))
            due = np.divmod(place, voters) if voters else (np.zeros_like(place), place)
            if not (np.array_equal(query, due[0]) and np.array_equal(voter, due[1])):
                raise BallotError(name, _PLACES)
            row += len(query)
        voters = voters or row
        if not voters or row % voters:
            raise BallotError(name, _PLACES)
        return row // voters, voters

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        first, last = start * self.shape[1], stop * self.shape[1]
        low, high = np.searchsorted(self._ends, [first, last - 1], side="right").tolist()
        groups, labels = list(range(low, high + 1)), list(self.names.labels or ())
        part = self._opened.read_row_groups(groups, columns=labels)
        skip = first - (self._ends[low - 1] if low else 0)
        columns = part.slice(skip, last - first).columns
        values = np.stack([c.to_numpy().astype(np.float64) for c in columns], axis=1)
        lost = np.isnan(values)  # a null, too
        if self._threshold is not None:
            bad = ~lost & ~((values >= 0) & (values <= 1))
            if bad.any():
                said = f"it is {values[bad][0]}"
                raise BallotError("a probability must lie in [0, 1]", sealed=said)
            values = (values >= self._threshold).astype(np.float64)
        return np.where(lost, MISSING, values).reshape(-1, *self.shape[1:])


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
    """Return the columns that are labels; refuse those that hold no numbers."""
    import pyarrow.types as of

    names = list(schema.names)
    if len(set(names)) < len(names):
        raise BallotError(name, "has two columns of one name")
    labels = [name for name in names if name not in ("query", "voter")]
    if len(names) - len(labels) < 2:
        raise BallotError(name, f"must have columns query and voter; it has: {', '.join(names)}")
    types = {label: schema.field(label).type for label in labels}
    for label, kind in types.items():
        if not (of.is_boolean(kind) or of.is_integer(kind) or of.is_floating(kind)):
            raise BallotError(f"column {label!r} must hold 0, 1 or probabilities, got {kind!s:.60}")
    return labels


# -- arrays in .npy and .npz files -----------------------------------------------------------------


def read_npy(path: str | os.PathLike[str]) -> Array:
    """Return the array of an ``.npy`` file, in memory."""
    array = open_npy(path, whole=True)
    assert isinstance(array, np.ndarray)
    return array


def open_npy(path: str | os.PathLike[str], *, whole: bool = False) -> Array | StoredArray:
    """Return the array of an ``.npy`` file: read where it is sliced, or as a whole, in memory.

    In memory too, where it is in Fortran order: its rows do not lie together.
    """
    file = check_file(path)
    try:
        held = _Held(file)
        with held.stream() as stream:
            shape, order, dtype, start = _header(stream, os.fstat(stream.fileno()).st_size)
            if whole or order == "F":
                return _filled(stream, shape, order, dtype)
        return _FileArray(file.name, held, shape, dtype, start)
    except Exception as error:  # whatever a damaged header leads to
        raise InputError(f"{file.name} is not a readable .npy file: {why(error)}") from None


class _FileArray(StoredArray):
    """An array whose values lie in a file as they are, from ``start`` on.

    Read, not mapped: a process that maps a file dies when somebody else makes the file shorter.
    """

    def __init__(
        self, name: str, held: _Held, shape: tuple[int, ...], dtype: np.dtype[Any], start: int
    ) -> None:
        super().__init__(name, shape, dtype)
        self._held, self._start = held, start

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        count, width = max(0, stop - start), math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            data = self._held.read(self._start + start * width, count * width)
        except OSError as error:
            rule = f"cannot be read at rows {start} to {stop - 1}: {why(error)}"
            raise InputError(self.name, rule) from None
        if len(data) < count * width:
            raise InputError(f"{self.name} changed while it was read")
        return np.ndarray((count, *self.shape[1:]), self.dtype, data)


class _Held:
    """A file that stays open, the same one whatever its name leads to by then."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._file)

    def stream(self) -> IO[bytes]:
        """Return the file as a stream of its own."""
        return os.fdopen(os.dup(self._file), "rb")

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from a place on."""
        parts: list[bytes] = []  # the system gives at most two gigabytes at once
        while size and (part := os.pread(self._file, size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class ArrayFile:
    """The arrays of an ``.npz`` file by name, each read when it is asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = check_file(path)
        try:
            with zipfile.ZipFile(self._file) as archive:
                names = [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
            if len(set(names)) < len(names):
                raise ValueError("two of its arrays have one name")
        except Exception as error:
            raise self._unreadable(error) from None
        self.names = tuple(names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        array = self.open(name, whole=True)
        assert isinstance(array, np.ndarray)
        return array

    def open(self, name: str, *, whole: bool = False) -> Array | StoredArray:
        """Return an array, its checksum verified: read where it is sliced if it is not packed."""
        try:
            held = _Held(self._file)
            with held.stream() as source, zipfile.ZipFile(source) as archive:
                entry = archive.getinfo(f"{name}.npy")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"array {name!r} is packed in a way that numpy never does")
                whole = whole or entry.compress_type == zipfile.ZIP_DEFLATED
                if whole:
                    check_unpacked(f"array {name!r}", entry.compress_size, entry.file_size)
                with archive.open(entry) as stream:
                    shape, order, dtype, start = _header(stream, entry.file_size)
                    if whole or order == "F":
                        return _filled(stream, shape, order, dtype)
                    while stream.read(_STEP):
                        pass  # the end of the stream is where the checksum is compared
                # The local header's name and extra field may be longer than the directory's.
                lengths = struct.unpack("<HH", held.read(entry.header_offset + 26, 4))
                start += entry.header_offset + 30 + sum(lengths)
            return _FileArray(self._file.name, held, shape, dtype, start)
        except Exception as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self._file.name} is not a readable .npz file: {why(error)}")


def _header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], str, np.dtype[Any], int]:
    """Return shape, order, type and where the cells begin, if ``size`` bytes are just that."""
    magic = stream.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError("it does not begin as one")
    count = stream.read(2 if magic[6] == 1 else 4)
    length = int.from_bytes(count, "little")
    if length > _HEADER:
        raise ValueError(f"its header claims {length} bytes, and {_HEADER} are plenty")
    npy: Any = np.lib.format
    parse = npy.read_array_header_1_0 if magic[6] == 1 else npy.read_array_header_2_0
    try:
        shape, fortran, dtype = parse(BytesIO(count + stream.read(length)))
    except Exception:  # from the parser of Python literals: syntax, recursion, tokens
        raise ValueError("its header cannot be read") from None
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"its values must be plain numbers or texts, and are {dtype!s:.60}")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"its shape must be whole numbers from 0, and is {str(shape)[:60]}")
    start = 8 + len(count) + length
    cells = math.prod(shape)
    if start + cells * dtype.itemsize != size or (not cells and max(shape) > _EMPTY):
        raise ValueError(
            f"its shape {str(shape)[:60]} of {dtype} does not fit its {size - start} bytes"
        )
    return shape, "F" if fortran else "C", dtype, start


def _filled(stream: IO[bytes], shape: tuple[int, ...], order: Any, dtype: np.dtype[Any]) -> Array:
    data = bytearray(stream.read())  # to the end, where the checksum is compared
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError("it ends early")
    return np.ndarray(shape, dtype, data, order=order)


# -- folders by path or URL ------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A folder by its path or URL, reached through fsspec; nothing is made before it is written to.

    ``what`` it is to whoever named it, for messages.
    """

    place: str
    what: str = "folder"

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.place}/{name}", self.what)

    def files(self) -> dict[str, int]:
        """Return the size of every file in the folder, by its path there; none without a folder."""
        with reached(self.place, self.what):
            if not is_url(self.place):
                return check_tree(self.place, self.what) if os.path.lexists(self.place) else {}
            system, path = _system(self.place)
            system.invalidate_cache()
            found = system.find(path, detail=True)
        sizes = {name.removeprefix(path): facts.get("size") for name, facts in found.items()}
        return {name.lstrip("/"): int(size or 0) for name, size in sizes.items() if name}

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return what is in a file: all of it, or so many bytes at most."""
        with reached(self.place, self.what):
            system, path = _system(self.place)
            return bytes(system.cat_file(f"{path}/{name}", None if most is None else 0, most))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, durably: it is there as a whole, or as it was before."""
        with reached(self.place, self.what):
            system, path = _system(self.place)
            system.makedirs(path, exist_ok=True)
            if is_url(self.place):  # an object is whole or absent by itself
                system.pipe_file(f"{path}/{name}", data)
                return
            with complete(Path(path, name), force=True, shared=True) as part:
                part.write_bytes(data)

    def remove(self, name: str = "") -> None:
        """Remove a file, or the folder with all that is in it; nothing if it is not there."""
        with reached(self.place, self.what), suppress(FileNotFoundError):
            system, path = _system(self.place)
            system.rm(f"{path}/{name}" if name else path, recursive=not name)


@lru_cache(maxsize=256)
def _system(place: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise missing_extra("files", "Zarr") from None
    if not is_url(place):
        return fsspec.filesystem("file"), place
    system, path = fsspec.core.url_to_fs(place)
    return system, str(path)


@contextmanager
def reached(place: str, what: str) -> Iterator[None]:
    """Turn whatever keeps somebody from a place into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError, MemoryError):
        raise
    except ImportError as error:  # the library of a protocol is absent
        lacks = getattr(error.__cause__ or error, "name", None)
        text = f"pip install {lacks.partition('.')[0]}" if lacks else why(error)
        raise MissingExtraError(f"{what} {place!r:.200} needs a library: {text}") from None
    except Exception as error:  # an OSError here, anything at all behind a URL
        text = "access is denied" if isinstance(error, PermissionError) else why(error)
        rule = f"{place!r:.200} cannot be reached: {getattr(error, 'strerror', None) or text}"
        raise InputError(what, rule) from None
