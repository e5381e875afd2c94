"""Votes files: CSV, ``.npy``, ``.npz`` (plain or packed bits), Zarr, Parquet; checked on reading.

What need not be in memory is not: arrays are read block by block, but for compressed ``.npz`` files
and arrays in Fortran order. :mod:`privote.votes.tables` reads CSV files and data frames.

Parsing is left to numpy, zarr and pyarrow. Checked here is what they do not: no object is
unpickled, no codec runs code, and nothing is allocated on the word of a header alone. Whatever a
damaged file, or a connection that breaks off, leads to is one sentence.
"""

from __future__ import annotations

import json
import math
import os
import struct
import weakref
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
_FILE, _ZARR, _PARQUET = "votes file", "Zarr array", "Parquet file"
_SQUEEZED = 10_000  # times what is stored: slices bound the memory, this bounds the time
_CELLS = 1 << 27  # votes of one query: a gigabyte, as floats
_METADATA = 1 << 24  # bytes of a Zarr array's
# Codecs that turn bytes into bytes or numbers into numbers, and never into objects.
_CODECS = (
    *("bytes", "transpose", "sharding_indexed", "shuffle", "delta", "packbits", "crc32", "crc32c"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma"),
)
_HEADER = 1 << 14  # bytes that a header of numpy's may have, and some more
_EMPTY = 1 << 24  # rows of an array without cells: sizes that nothing in the file backs
_STEP = 1 << 20
Array = npt.NDArray[Any]


def read(
    path: str | os.PathLike[str],
    *,
    threshold: Threshold = None,
    resolution: int = 1,
    soft: bool | None = None,
    queries_from: Any = None,
    voters_from: Any = None,
) -> Ballots:
    """Read a votes file as checked ballots, with the names that it has.

    ``threshold``, ``resolution`` and ``soft`` are for probabilities, as in
    :meth:`Ballots.from_array`. Those in a CSV or Parquet file are told from votes by a threshold,
    or by ``soft``: the type of a
    column follows from what is in it. ``queries_from`` and ``voters_from`` are public lists, for a
    CSV file in which ballots may be missing.

    Zarr and Parquet are read block by block, also by a URL that zarr and pyarrow open. A Zarr array
    that lacks a chunk is refused.

    ``.csv``, ``.tsv``: a row a ballot (:mod:`privote.votes.tables`). ``.npy``: one 3-D array.
    ``.npz``: array ``votes``, 3-D, or packed bits with ``shape``; names, if there are any, in the
    arrays ``query_names``, ``voter_ids`` and ``label_names``.
    ``.zarr``: a 3-D array, or a group with the array ``votes``; names, if there are any, in its
    attributes ``voter_names`` and ``label_names``. ``.parquet``: one row a ballot, with columns
    ``query`` and ``voter`` (from 0) and one column a label; rows sorted by query and voter, none
    absent; names of voters, if they have any, in the schema's metadata ``voter_names``, a JSON
    list.
    """
    how: dict[str, Any] = {"threshold": threshold, "resolution": resolution, "soft": soft}
    lists = {"queries_from": queries_from, "voters_from": voters_from}
    readers: dict[str, Callable[[str], Ballots]] = {
        ".zarr": lambda place: _read_zarr(place, how),
        ".parquet": lambda place: _read_parquet(place, how),
        ".npy": lambda file: Ballots.from_array(open_npy(file), **how),
        ".npz": lambda file: _read_npz(Path(file), how),
        ".csv": lambda file: of_sheet(
            CSVFile(file, ballots=True),
            threshold=threshold,
            resolution=resolution if soft else 1,
            **lists,
        ),
    }
    readers[".tsv"] = readers[".csv"]
    place = _place(path)
    suffix = Path(name_of(place)).suffix
    if suffix not in (".zarr", ".parquet"):
        check_here(_FILE, place)
        check_file(place, _FILE)
    if suffix not in readers:
        rule = f"must end in one of {', '.join(readers)}, got {suffix or name_of(place)!r}"
        raise InputError(_FILE, rule + as_csv(suffix))
    if suffix not in (".csv", ".tsv"):
        refuse_lists(lists)
    return readers[suffix](place)


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


@contextmanager
def readable(name: str, kind: str) -> Iterator[None]:
    """Turn whatever a library makes of a damaged file into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except ImportError:
        raise missing_extra("files", f"reading a {kind}") from None
    except Exception as error:  # zarr and pyarrow have their own error trees, and leave them
        raise BallotError(name, f"is not a readable {kind}: {why(error)}") from None


def _read_npz(file: Path, how: Mapping[str, Any]) -> Ballots:
    arrays = ArrayFile(file)
    if "votes" not in arrays:
        raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(arrays.names)}")
    if "written" in arrays:  # by privote
        with readable(file.name, ".npz file"):
            check_written(file.name, json.loads(str(arrays["written"])), _FORMAT)
    votes = arrays.open("votes")
    if "shape" in arrays and votes.ndim == 1:
        if how["threshold"] is not None:
            rule = "applies to probabilities, and these votes are packed bits"
            raise InputError("threshold", rule)
        ballots = Ballots.from_packed(votes, arrays["shape"])
    else:
        ballots = Ballots.from_array(votes, **how)
    held = {"queries": "query_names", "voters": "voter_ids", "labels": "label_names"}
    names = {
        axis: listed(arrays[name], f"{file.name}: array {name!r}")
        for axis, name in held.items()
        if name in arrays
    }
    return ballots.named(Names(**names), file.name)


# -- slices: Zarr and Parquet ----------------------------------------------------------------------


class LazyCube(StoredArray):
    """A cube (queries, voters, labels) that a library reads, in runs of a block's queries."""

    kind: str
    names = Names()

    def __init__(self, name: str, shape: tuple[int, int, int], dtype: npt.DTypeLike) -> None:
        super().__init__(name, check_shape(shape), dtype)
        if (cells := shape[1] * shape[2]) > _CELLS:
            raise BallotError(name, f"has {cells} votes a query, and at most {_CELLS} can be read")
        self._checksums: dict[int, int] = {}

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        step = block_queries(*self.shape[1:])
        first = start // step * step
        runs = [self._run(at, step) for at in range(first, max(stop, first + 1), step)]
        whole = runs[0] if len(runs) == 1 else np.concatenate(runs)
        return whole[start - first : stop - first]

    def _run(self, start: int, step: int) -> Array:
        stop = min(start + step, self.shape[0])
        with readable(self.name, self.kind):
            slab = self._slab(start, stop)
        # Votes are read once to be checked, before anything is charged, and once to be counted. A
        # chunk that was lost between would be votes of no.
        checksum = zlib.crc32(slab.tobytes())
        if self._checksums.setdefault(start, checksum) != checksum:
            rule = f"is not what it was when it was checked, at queries {start} to {stop - 1}"
            raise BallotError(self.name, rule)
        return slab

    @abstractmethod
    def _slab(self, start: int, stop: int) -> Array:
        """Return the queries from ``start`` to before ``stop``."""


def _read_zarr(place: str, how: Mapping[str, Any]) -> Ballots:
    cube = ZarrCube(name_of(place), *_open_zarr(place, _FILE, "votes"))
    ballots = Ballots.from_array(cube, **how).named(cube.names)
    # After the first reading: a chunk that is lost later does not have the checksum of then.
    cube.check_chunks(stored_files(place, _FILE))
    return ballots


def open_array(place: str, what: str, inside: str) -> Any:
    """Open a Zarr array, or the one called ``inside`` of a group; refuse what may do harm."""
    return _open_zarr(place, what, inside)[0]


def _open_zarr(place: str, what: str, inside: str) -> tuple[Any, str]:
    """Return a Zarr array, and where it lies in its folder."""
    name, place = name_of(place), as_place(place, what)
    files = stored_files(place, what)
    if not files:
        raise InputError(what, f"{place!r:.200} does not exist, or holds no files")
    for file, size in files.items():
        if file.endswith(("zarr.json", ".zarray", ".zattrs")) and size > _METADATA:
            raise BallotError(name, f"has more than {_METADATA} bytes of metadata")
    in_group = {f"{inside}/zarr.json", f"{inside}/.zarray"} & files.keys()
    folder = f"{inside}/" if in_group else ""
    with readable(name, _ZARR):
        import zarr

        array = zarr.open_array(f"{place}/{folder}".rstrip("/"), mode="r")
        facts = json.loads(json.dumps(array.metadata.to_dict(), default=str))
        codecs = [facts.get("compressor"), *facts.get("codecs", ()), *(facts.get("filters") or ())]
        if array.dtype.kind not in "biuf":
            raise BallotError(f"a Zarr array of votes must hold plain numbers, got {array.dtype}")
        _check_codecs(filter(None, codecs))
        chunk = math.prod(array.shards or array.chunks) * array.dtype.itemsize
        check_unpacked(f"a chunk of {name}", 0, chunk)
        check_unpacked(name, sum(files.values()), array.nbytes, _SQUEEZED)
        return array, folder


def _check_codecs(codecs: Iterable[Any]) -> None:
    """Refuse codecs that are not known to be harmless, those inside shards too."""
    for codec in codecs:
        if (name := codec.get("name", codec.get("id"))) not in _CODECS:
            rule = f"may be packed by {', '.join(_CODECS)}, got {name!r:.60}"
            raise BallotError(f"a Zarr array of votes {rule}")
        inner = codec.get("configuration", {})
        _check_codecs([*inner.get("codecs", ()), *inner.get("index_codecs", ())])


class ZarrCube(LazyCube):
    """Votes in a Zarr array."""

    kind = _ZARR

    def __init__(self, name: str, array: Any, folder: str) -> None:
        super().__init__(name, tuple(array.shape), array.dtype)
        self._array, self._folder = array, folder
        with readable(name, _ZARR):  # attributes may hold anything
            self.names = Names(
                **{
                    f"{axis}s": listed(array.attrs[key], f"{name}: attribute {key!r}")
                    for axis in ("voter", "label")
                    if (key := f"{axis}_names") in array.attrs
                }
            )

    def check_chunks(self, files: Mapping[str, int]) -> None:
        """Refuse votes of which a chunk was lost: zarr would read it as votes of no."""
        sides = zip(self.shape, self._array.shards or self._array.chunks, strict=True)
        counts = [-(-side // chunk) for side, chunk in sides]
        # Fewer files than chunks are few: metadata may claim more than there is memory to list.
        if math.prod(counts) > len(files) or not all(
            self._folder + self._array.metadata.encode_chunk_key(place) in files
            for place in product(*map(range, counts))
        ):
            raise BallotError(
                self.name,
                "lacks a chunk: it was lost, or zarr left it out because it holds only the fill "
                "value. Write all votes, with zarr's option write_empty_chunks",
            )

    def _slab(self, start: int, stop: int) -> Array:
        return np.asarray(self._array[start:stop])


def _read_parquet(place: str, how: Mapping[str, Any]) -> Ballots:
    soft = bool(how["soft"]) and how["resolution"] > 1
    cube = ParquetCube(place, how["threshold"], soft=soft)
    return Ballots.from_array(cube, resolution=how["resolution"], soft=soft).named(cube.names)


class ParquetCube(LazyCube):
    """Votes in a Parquet file: a row for every ballot, sorted by query and voter.

    Sizes are then those of the file. If a ballot could be absent, who is there would tell them,
    and that is private.
    """

    kind = _PARQUET

    def __init__(self, place: str, threshold: Threshold, *, soft: bool) -> None:
        name, place = name_of(place), as_place(place, _FILE)
        self._file, size = _open_parquet(place, name)
        with readable(name, _PARQUET):
            labels, sizes = _label_columns(name, self._file.schema_arrow), self._file.metadata
            rows = [sizes.row_group(at).num_rows for at in range(sizes.num_row_groups)]
            for count in rows:
                check_unpacked(f"a row group of {name}", size, count * (len(labels) + 2) * 8)
            check_unpacked(name, size, sum(rows) * len(labels) * 8, _SQUEEZED)
            shape = *self._check_places(name), len(labels)
            names = (self._file.schema_arrow.metadata or {}).get(b"voter_names")
            voters = names and listed(json.loads(names), f"{name}: metadata 'voter_names'")
        self._threshold = None if threshold is None else check_threshold(threshold, len(labels))
        # The type of a column says nothing: one missing vote makes it hold floats.
        super().__init__(name, shape, np.float64 if soft else np.int8)
        self._ends, self._labels = np.cumsum(rows), labels
        self.names = Names(labels=tuple(labels), voters=voters)

    def _check_places(self, name: str) -> tuple[int, int]:
        """Return how many queries and voters there are; refuse rows that are not in their order."""
        sizes, columns, row = self._file.metadata, ["query", "voter"], 0
        last = self._file.read_row_group(max(0, sizes.num_row_groups - 1), columns=columns)[-1:]
        queries, voters = (int(side.to_numpy().sum()) + 1 for side in last.columns)
        good = voters > 0 and 0 < sizes.num_rows == queries * voters
        for part in self._file.iter_batches(columns=columns) if good else ():
            places = np.divmod(np.arange(row, row + len(part)), voters)
            held = (side.to_numpy(zero_copy_only=False) for side in part.columns)
            good = good and all(map(np.array_equal, held, places))
            row += len(part)
        if not good:
            rule = "must have a row for every ballot, sorted by query and voter, which count from 0"
            raise BallotError(name, f"{rule}: a missing ballot is a row of nulls")
        return queries, voters

    def _slab(self, start: int, stop: int) -> Array:
        first, last = start * self.shape[1], stop * self.shape[1]
        low, high = np.searchsorted(self._ends, [first, last - 1], side="right").tolist()
        part = self._file.read_row_groups(range(low, high + 1), columns=self._labels)
        part = part.slice(first - (self._ends[low - 1] if low else 0), last - first)
        values = np.stack([cells.to_numpy().astype(np.float64) for cells in part.columns], axis=1)
        missing = np.isnan(values)  # a null, too
        if self._threshold is not None:
            bad = ~missing & ~((values >= 0) & (values <= 1))
            if bad.any():
                sealed = f"it is {values[bad][0]}"
                raise BallotError("a probability must lie in [0, 1]", sealed=sealed)
            values = (values >= self._threshold).astype(np.float64)
        return np.where(missing, MISSING, values).reshape(-1, *self.shape[1:])


def _open_parquet(place: str, name: str) -> tuple[Any, int]:
    """Return a Parquet file, which pyarrow finds by its path or URL, and its size in bytes."""
    if not is_url(place):
        check_file(place, _FILE)
    with readable(name, _PARQUET):
        import pyarrow.fs as fs
        import pyarrow.parquet as pq
    with reached(place, _FILE):
        system, path = fs.FileSystem.from_uri(place)
        facts = system.get_file_info(path)
        if not facts.is_file:
            raise InputError(_FILE, f"{place!r:.200} does not exist, or is no file")
        stream = system.open_input_file(path)
    with readable(name, _PARQUET):
        return pq.ParquetFile(stream, page_checksum_verification=True), facts.size


def _label_columns(name: str, schema: Any) -> list[str]:
    """Return the columns that are labels; refuse those that hold no numbers."""
    import pyarrow.types as of

    labels = [column for column in schema.names if column not in ("query", "voter")]
    if len(set(schema.names)) < len(schema.names) or len(schema.names) - len(labels) < 2:
        columns = ", ".join(schema.names)
        raise BallotError(name, f"must have columns query and voter, and each once; has: {columns}")
    # A column in which every vote is missing has the type null.
    numeric = of.is_boolean, of.is_integer, of.is_floating, of.is_null
    for label in labels:
        kind = schema.field(label).type
        if not any(fits(kind) for fits in numeric):
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
    with readable(file.name, ".npy file"), file.open("rb") as stream:
        return _array(file.name, stream, stream, os.fstat(stream.fileno()).st_size, whole)


class ArrayFile:
    """The arrays of an ``.npz`` file by name, each read when it is asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = check_file(path)
        with readable(self._file.name, ".npz file"), zipfile.ZipFile(self._file) as archive:
            self.names = tuple(name.removesuffix(".npy") for name in archive.namelist())
            if len(set(self.names)) < len(self.names):
                raise ValueError("two of its arrays have one name")

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        array = self.open(name, whole=True)
        assert isinstance(array, np.ndarray)
        return array

    def open(self, name: str, *, whole: bool = False) -> Array | StoredArray:
        """Return an array, its checksum verified: read where it is sliced if it is not packed."""
        with (
            readable(self._file.name, ".npz file"),
            self._file.open("rb") as file,
            zipfile.ZipFile(file) as archive,
        ):
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"array {name!r} is packed in a way that numpy never does")
            whole = whole or entry.compress_type == zipfile.ZIP_DEFLATED
            if whole:
                check_unpacked(f"array {name!r}", entry.compress_size, entry.file_size)
            # The local header's name and extra field may be longer than the directory's.
            lengths = os.pread(file.fileno(), 4, entry.header_offset + 26)
            start = entry.header_offset + 30 + sum(struct.unpack("<HH", lengths))
            with archive.open(entry) as stream:
                array = _array(self._file.name, file, stream, entry.file_size, whole, start)
                while stream.read(_STEP):
                    pass  # the end of the stream is where the checksum is compared
            return array


def _array(
    name: str, file: IO[bytes], stream: IO[bytes], size: int, whole: bool, start: int = 0
) -> Array | StoredArray:
    """Return the array that is all of a stream of ``size`` bytes, ``start`` bytes into a file."""
    head = BytesIO(stream.read(_HEADER))
    npy: Any = np.lib.format
    try:
        old = npy.read_magic(head) == (1, 0)
        parse = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        shape, fortran, dtype = parse(head)
    except Exception:  # from the parser of Python literals: syntax, recursion, tokens
        raise ValueError("its header cannot be read") from None
    if dtype.kind not in "biufUS" or dtype.itemsize == 0:  # others have code or structure behind
        raise ValueError(f"its values must be plain numbers or texts, and are {dtype!s:.60}")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"its shape must be whole numbers from 0, and is {str(shape)[:60]}")
    cells = math.prod(shape)
    if head.tell() + cells * dtype.itemsize != size or (not cells and max(shape) > _EMPTY):
        raise ValueError(f"its shape {str(shape)[:60]} of {dtype} does not fit its {size} bytes")
    if not whole and not fortran:
        return _FileArray(name, file, shape, dtype, start + head.tell())
    data = bytearray(head.read() + stream.read())
    if len(data) != cells * dtype.itemsize:
        raise ValueError("it ends early")
    return np.ndarray(shape, dtype, data, order="F" if fortran else "C")


class _FileArray(StoredArray):
    """An array whose values lie in a file as they are, from ``start`` on.

    Read, not mapped: a process that maps a file dies when somebody else makes the file shorter.
    """

    def __init__(
        self, name: str, file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], start: int
    ) -> None:
        super().__init__(name, shape, dtype)
        # The same file, whatever its name leads to later.
        self._file, self._start = os.dup(file.fileno()), start
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        count, width = max(0, stop - start), math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            data = os.pread(self._file, count * width, self._start + start * width)
        except OSError as error:
            rule = f"cannot be read at rows {start} to {stop - 1}: {why(error)}"
            raise InputError(self.name, rule) from None
        if len(data) < count * width:
            raise InputError(f"{self.name} changed while it was read")
        return np.ndarray((count, *self.shape[1:]), self.dtype, data)


# -- folders by path or URL ------------------------------------------------------------------------


def stored_files(place: str, what: str) -> dict[str, int]:
    """Return the size of every file in a folder, by its path there; none without a folder."""
    with reached(place, what):
        if not is_url(place):
            return check_tree(place, what) if os.path.lexists(place) else {}
        system, path = file_system(place)
        system.invalidate_cache()
        files = system.find(path, detail=True)
    sizes = {name.removeprefix(path): facts.get("size") for name, facts in files.items()}
    return {name.lstrip("/"): int(size or 0) for name, size in sizes.items() if name}


@lru_cache(maxsize=256)
def file_system(place: str) -> tuple[Any, str]:
    """Return fsspec's file system of a path or URL, and the path there."""
    with readable(place, "folder"):
        import fsspec
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
        raise MissingExtraError(f"{what} {place!r:.200} needs a library: {why(error)}") from None
    except Exception as error:  # an OSError here, anything at all behind a URL
        text = "access is denied" if isinstance(error, PermissionError) else why(error)
        if isinstance(error, OSError) and error.strerror:
            text = error.strerror
        raise InputError(what, f"{place!r:.200} cannot be reached: {text}") from None
