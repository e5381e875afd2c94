"""Votes files: CSV, ``.npy``, ``.npz`` (plain or packed bits), Zarr, Parquet.

Zarr, Parquet and packed bits stay in their files and are read block by block; what is smaller is
read as a whole. :mod:`privote.votes.tables` reads CSV files and data frames.

Parsing is left to numpy, zarr and pyarrow. Checked here is what they do not check: no object is
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import IO, Any, Unpack

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, MissingExtraError, missing_extra
from ..files import (
    as_place,
    check_file,
    check_here,
    check_tree,
    check_unpacked,
    check_written,
    is_url,
    name_of,
    why,
    written,
)
from .cube import Ballots, Reading, StoredArray, block_queries, check_shape
from .names import listed
from .tables import as_csv, of_table, open_table

_FORMAT = 1  # of packed bits
_NAMES = {"queries": "query_names", "voters": "voter_ids", "labels": "label_names"}  # in .npz
_FILE, _ZARR, _PARQUET = "votes file", "Zarr array", "Parquet file"
_SUFFIXES = (".zarr", ".parquet", ".npy", ".npz", ".csv", ".tsv")
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
_ORDER = (
    "must have a row for every ballot, sorted by query and voter, which count from 0: a missing "
    "ballot is a row of nulls"
)
Array = npt.NDArray[Any]


def read(path: str | os.PathLike[str], **reading: Unpack[Reading]) -> Ballots:
    """Read a votes file as ballots, with the names that it has.

    Probabilities in a CSV or Parquet file are told from votes by a ``threshold``, or by ``soft``:
    the type of a column follows from what is in it.

    Zarr, Parquet and packed bits are read block by block and checked by :meth:`Ballots.check`; all
    others are checked here. Zarr and Parquet may also be behind a URL that zarr and pyarrow open. A
    Zarr array that lacks a chunk is refused.

    ``.csv``, ``.tsv``: a row a ballot (:mod:`privote.votes.tables`). ``.npy``: one 3-D array.
    ``.npz``: array ``votes``, 3-D, or packed bits with ``shape``; names, if there are any, in the
    arrays ``query_names``, ``voter_ids`` and ``label_names``.
    ``.zarr``: a 3-D array, or a group with the array ``votes``; names, if there are any, in its
    attributes ``voter_names`` and ``label_names``. ``.parquet``: one row a ballot, with columns
    ``query`` and ``voter`` (from 0) and one column a label; rows sorted by query and voter, none
    absent; names of voters, if they have any, in the schema's metadata ``voter_names``, a JSON
    list.
    """
    place = as_place(path, _FILE)
    suffix = Path(name_of(place)).suffix
    if suffix not in (".zarr", ".parquet"):
        check_here(_FILE, place if "://" in str(path) else path)
        check_file(place, _FILE)
    if suffix not in _SUFFIXES:
        rule = f"must end in one of {', '.join(_SUFFIXES)}, got {suffix or name_of(place)!r}"
        raise InputError(_FILE, rule + as_csv(suffix))
    if suffix in (".csv", ".tsv"):
        return of_table(open_table(place, _FILE, ballots=True), **reading)
    if suffix == ".npy":
        return Ballots.from_array(read_npy(place), **reading)
    if suffix == ".npz":
        return _read_npz(Path(place), reading)
    if suffix == ".zarr":
        cube: LazyCube = ZarrCube(place)
    else:  # the type of a column says nothing: one gap makes it hold floats
        cube, reading["soft"] = ParquetCube(place), bool(reading.get("soft"))
    return Ballots.from_array(cube, **reading).named(**cube.names)


def write_packed(path: str | os.PathLike[str], votes: npt.ArrayLike) -> None:
    """Write complete votes as packed bits: an eighth of the size, read block by block."""
    ballots = Ballots.from_array(votes)
    if ballots.missing:
        raise BallotError("packed bits cannot hold missing votes: save them as an int8 array")
    bits, shape = np.packbits(ballots.to_array()), np.array(ballots.shape)
    try:
        np.savez(as_place(path), votes=bits, shape=shape, written=json.dumps(written(_FORMAT)))
    except OSError as error:
        raise InputError(f"path {str(path)!r} cannot be written: {error}") from None


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


def _read_npz(file: Path, reading: Reading) -> Ballots:
    arrays = ArrayFile(file)
    if "votes" not in arrays:
        raise BallotError(f"{file.name} has no array 'votes'; it has: {', '.join(arrays.names)}")
    if "written" in arrays:  # by privote
        with readable(file.name, ".npz file"):
            check_written(file.name, json.loads(str(arrays["written"])), _FORMAT)
    if "shape" not in arrays:
        ballots = Ballots.from_array(arrays["votes"], **reading)
    elif reading.get("threshold") is None:
        ballots = Ballots.from_packed(arrays.open("votes"), arrays["shape"])
    else:
        raise InputError("threshold", "applies to probabilities, not to packed bits")
    names = {
        axis: listed(arrays[name], f"{file.name}: array {name!r}")
        for axis, name in _NAMES.items()
        if name in arrays
    }
    return ballots.named(**names, where=file.name)


# -- slices: Zarr and Parquet ----------------------------------------------------------------------


class LazyCube(StoredArray):
    """A cube (queries, voters, labels) that a library reads, in runs of a block's queries.

    Votes are read once to be checked and once to be counted; a checksum for each run says that they
    are the same. A Zarr chunk that was lost between would be votes of no.
    """

    kind: str
    names: Mapping[str, Any]

    def __init__(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        super().__init__(name, check_shape(shape), dtype)
        if (cells := shape[1] * shape[2]) > _CELLS:
            raise BallotError(name, f"has {cells} votes a query, and at most {_CELLS} can be read")
        self._checksums: dict[int, int] = {}

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])  # of a block, or of its first queries
        end = min(start + block_queries(*self.shape[1:]), self.shape[0])
        with readable(self.name, self.kind):
            slab = self._slab(start, end)
        checksum = zlib.crc32(np.ascontiguousarray(slab).data)
        if self._checksums.setdefault(start, checksum) != checksum:
            rule = f"is not what it was when it was checked, at queries {start} to {end - 1}"
            raise BallotError(self.name, rule)
        return slab[: stop - start]

    @abstractmethod
    def _slab(self, start: int, stop: int) -> Array:
        """Return the queries from ``start`` to before ``stop``."""


def open_array(place: str, what: str, inside: str) -> Any:
    """Open a Zarr array, or the one called ``inside`` of a group; refuse what may do harm."""
    name, place = name_of(place), as_place(place, what)
    files = stored_files(place, what)
    if not files:
        raise InputError(what, f"{place!r:.200} does not exist, or holds no files")
    for file, size in files.items():
        if file.endswith(("zarr.json", ".zarray", ".zattrs")) and size > _METADATA:
            raise BallotError(name, f"has more than {_METADATA} bytes of metadata")
    in_group = {f"{inside}/zarr.json", f"{inside}/.zarray"} & files.keys()
    with readable(name, _ZARR):
        import zarr

        array = zarr.open_array(place, path=inside if in_group else "", mode="r")
        facts = json.loads(json.dumps(array.metadata.to_dict(), default=str))
        codecs = [facts.get("compressor"), *facts.get("codecs", ()), *(facts.get("filters") or ())]
        if array.dtype.kind not in "biuf":
            raise BallotError(f"a Zarr array of votes must hold plain numbers, got {array.dtype}")
        _check_codecs(filter(None, codecs))
        chunk = math.prod(array.shards or array.chunks) * array.dtype.itemsize
        check_unpacked(f"a chunk of {name}", 0, chunk)
        check_unpacked(name, sum(files.values()), array.nbytes, _SQUEEZED)
        return array


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

    def __init__(self, place: str) -> None:
        array, name = open_array(place, _FILE, "votes"), name_of(place)
        super().__init__(name, tuple(array.shape), array.dtype)
        self._array, self._place = array, place
        with readable(name, _ZARR):  # attributes may hold anything
            self.names = {
                f"{axis}s": listed(array.attrs[key], f"{name}: attribute {key!r}")
                for axis in ("voter", "label")
                if (key := f"{axis}_names") in array.attrs
            }

    def check(self) -> None:
        """Refuse votes of which a chunk was lost: zarr would read it as votes of no.

        After the first reading: a chunk that is lost later does not have the checksum of then.
        """
        files, array = stored_files(self._place, _FILE), self._array
        counts = [-(-s // c) for s, c in zip(self.shape, array.shards or array.chunks, strict=True)]
        key, folder = array.metadata.encode_chunk_key, f"{array.path}/" if array.path else ""
        # Fewer files than chunks are few: metadata may claim more than there is memory to list.
        if math.prod(counts) > len(files) or not all(
            folder + key(place) in files for place in product(*map(range, counts))
        ):
            rule = "lacks a chunk: it was lost, or zarr left it out because all of it is the fill "
            rule += "value. Write all votes, with zarr's option write_empty_chunks"
            raise BallotError(self.name, rule)

    def _slab(self, start: int, stop: int) -> Array:
        return np.asarray(self._array[start:stop])


class ParquetCube(LazyCube):
    """Votes in a Parquet file: a row for every ballot, sorted by query and voter.

    Sizes are then those of the file. If a ballot could be absent, who is there would tell them,
    and that is private.
    """

    kind = _PARQUET

    def __init__(self, place: str) -> None:
        name = name_of(place)
        with readable(name, _PARQUET):
            import pyarrow.fs as fs
            import pyarrow.parquet as pq
        if not is_url(place):
            check_file(place, _FILE)
        with reached(place, _FILE):
            system, path = fs.FileSystem.from_uri(place)
            stream = system.open_input_file(path)
        with readable(name, _PARQUET):
            file, size = pq.ParquetFile(stream, page_checksum_verification=True), stream.size()
            labels, facts = _label_columns(name, file.schema_arrow), file.metadata
            rows = [facts.row_group(at).num_rows for at in range(facts.num_row_groups)]
            check_unpacked(
                f"a row group of {name}", size, max(rows, default=0) * facts.num_columns * 8
            )
            check_unpacked(name, size, sum(rows) * len(labels) * 8, _SQUEEZED)
            last = file.read_row_group(max(0, len(rows) - 1), columns=["query", "voter"])[-1:]
            queries, voters = (int(side.to_numpy().sum()) + 1 for side in last.columns)
            names = (file.schema_arrow.metadata or {}).get(b"voter_names")
            listing = names and listed(json.loads(names), f"{name}: metadata 'voter_names'")
        if not 0 < sum(rows) == queries * voters:
            raise BallotError(name, _ORDER)
        super().__init__(name, (queries, voters, len(labels)), np.float64)
        self._file, self._ends, self._labels = file, np.cumsum(rows), labels
        self.names = {"labels": tuple(labels), "voters": listing}

    def _slab(self, start: int, stop: int) -> Array:
        first, last = start * self.shape[1], stop * self.shape[1]
        low, high = np.searchsorted(self._ends, [first, last - 1], side="right").tolist()
        part = self._file.read_row_groups(range(low, high + 1))
        part = part.slice(first - (self._ends[low - 1] if low else 0), last - first)
        places = part["query"].to_numpy(), part["voter"].to_numpy()
        order = np.divmod(np.arange(first, last), self.shape[1])
        if not all(map(np.array_equal, places, order)):
            raise BallotError(self.name, _ORDER)
        values: list[Array] = [part[label].to_numpy().astype(np.float64) for label in self._labels]
        return np.stack(values, axis=1).reshape(-1, *self.shape[1:])


def _label_columns(name: str, schema: Any) -> list[str]:
    """Return the columns that are labels; refuse columns that hold no numbers."""
    import pyarrow.types as of

    kinds = dict(zip(schema.names, schema.types, strict=True))
    places = [axis in kinds and of.is_integer(kinds.pop(axis)) for axis in ("query", "voter")]
    if len(kinds) + 2 < len(schema.names) or not all(places):
        rule = "must have columns query and voter, of integers, and each once; has"
        raise BallotError(name, f"{rule}: {', '.join(schema.names)}")
    # A column in which every vote is missing has the type null.
    numeric = of.is_boolean, of.is_integer, of.is_floating, of.is_null
    for label, kind in kinds.items():
        if not any(fits(kind) for fits in numeric):
            raise BallotError(f"column {label!r} must hold 0, 1 or probabilities, got {kind!s:.60}")
    return list(kinds)


# -- arrays in .npy and .npz files -----------------------------------------------------------------


def read_npy(path: str | os.PathLike[str]) -> Array:
    """Return the array of an ``.npy`` file."""
    file = check_file(path)
    with readable(file.name, ".npy file"), file.open("rb") as stream:
        return _read_array(stream, os.fstat(stream.fileno()).st_size)


def open_npy(path: str | os.PathLike[str]) -> Array | StoredArray:
    """Return the array of an ``.npy`` file, read where it is sliced unless in Fortran order."""
    file = check_file(path)
    with readable(file.name, ".npy file"), file.open("rb") as stream:
        array = FileArray(file.name, stream, 0, os.fstat(stream.fileno()).st_size)
    return read_npy(path) if array.fortran else array


class ArrayFile:
    """The arrays of an ``.npz`` file by name, each read when it is asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = check_file(path)
        with self._archive() as archive:
            self.names = tuple(name.removesuffix(".npy") for name in archive.namelist())
            if len(set(self.names)) < len(self.names):
                raise ValueError("two of its arrays have one name")

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with readable(self._file.name, ".npz file"), zipfile.ZipFile(self._file) as archive:
            yield archive

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        with self._archive() as archive:
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"array {name!r} is packed in a way that numpy never does")
            check_unpacked(f"array {name!r}", entry.compress_size, entry.file_size)
            with archive.open(entry) as stream:
                return _read_array(stream, entry.file_size)

    def open(self, name: str) -> Array | StoredArray:
        """Return an array that is read where it is sliced; one that is compressed is read here."""
        with self._archive() as archive, self._file.open("rb") as file:
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type == zipfile.ZIP_STORED:
                # The local header's name and extra field may be longer than the directory's.
                lengths = os.pread(file.fileno(), 4, entry.header_offset + 26)
                start = entry.header_offset + 30 + sum(struct.unpack("<HH", lengths))
                return FileArray(self._file.name, file, start, entry.file_size, entry.CRC)
        return self[name]


def _read_array(stream: IO[bytes], size: int) -> Array:
    """Return the array that is all of a stream of ``size`` bytes."""
    shape, fortran, dtype, first = _header(stream, size)
    data = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
    data[: len(first)] = np.frombuffer(first, np.uint8)
    rest: Any = stream
    # At the end of a zip's stream its checksum is compared.
    if rest.readinto(data[len(first) :]) < len(data) - len(first) or stream.read(1):
        raise ValueError("its length is not what it was")
    array: Array = np.ndarray(shape, dtype, data, order="F" if fortran else "C")
    return array


def _header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], bytes]:
    """Return shape, order and type of an array that fills ``size`` bytes, and its first bytes."""
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
    cells, first = math.prod(shape), head.tell()
    fits = first + cells * dtype.itemsize == size and min(shape, default=0) >= 0
    if not fits or (not cells and max(shape) > _EMPTY):
        raise ValueError(f"its shape {str(shape)[:60]} of {dtype} does not fit its {size} bytes")
    return shape, fortran, dtype, head.read()


class FileArray(StoredArray):
    """An array, with its header ``size`` bytes of a file from ``start`` on, as they are.

    Read, not mapped: a process that maps a file dies when somebody else makes the file shorter.
    """

    def __init__(
        self, name: str, file: IO[bytes], start: int, size: int, checksum: int | None = None
    ) -> None:
        file.seek(start)
        shape, self.fortran, dtype, _ = _header(file, size)
        super().__init__(name, shape, dtype)
        self._start, self._end, self._checksum = start, start + size, checksum
        self._file = os.dup(file.fileno())  # the same file, whatever its name leads to later
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        first = self._end - self.shape[0] * width
        data = self._read(first + start * width, first + max(start, stop) * width)
        return np.ndarray((max(0, stop - start), *self.shape[1:]), self.dtype, data)

    def check(self) -> None:
        """Refuse an array that does not have the checksum which its archive gives."""
        checksum = 0
        for start in range(self._start, self._end, _STEP):
            checksum = zlib.crc32(self._read(start, min(start + _STEP, self._end)), checksum)
        if checksum != self._checksum:
            raise BallotError(self.name, "is not a readable .npz file: its checksum is wrong")

    def _read(self, start: int, stop: int) -> bytes:
        try:
            data = os.pread(self._file, stop - start, start)
        except OSError as error:
            raise InputError(self.name, f"cannot be read: {why(error)}") from None
        if len(data) < stop - start:
            raise InputError(f"{self.name} changed while it was read")
        return data


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
        text = error.strerror if isinstance(error, OSError) and error.strerror else why(error)
        raise InputError(what, f"{place!r:.200} cannot be reached: {text}") from None
