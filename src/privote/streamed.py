"""Votes that stay where they are, Zarr and Parquet, as cubes that give slices.

They lie on a disk or behind a URL. Metadata is read and judged here before a library acts on it:
which values, packed how, how many. Whatever a damaged file, or a connection that breaks off, leads
to later is a :class:`BallotError` of one sentence. A cube goes to another process by its name, and
is opened there if it is the same there.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrayfiles import check_unpacked, why
from .ballots import Threshold, check_shape, check_threshold
from .blocks import MISSING
from .errors import BallotError, InputError, MissingExtraError, missing_extra
from .names import Listed, Names, listed
from .storage import (
    Folder,
    as_place,
    found_elsewhere,
    is_url,
    name_of,
    open_binary,
    size_of,
    stamp,
)

_ZARR, _PARQUET = "Zarr array", "Parquet file"
_MOST_METADATA, _MOST_NAMES = 1 << 20, 1 << 24
UNFINISHED = ".privote/manifest.json"  # what is there of a Zarr array before its metadata
_SQUEEZED = 10_000  # in slices, so memory is bounded anyway: this bounds the time
_CELLS = 1 << 27  # votes of one query: a gigabyte, as floats
_TYPES = {"bool": 1, "float16": 2, "float32": 4, "float64": 8} | {
    f"{sign}int{8 * width}": width for sign in ("", "u") for width in (1, 2, 4, 8)
}
# Codecs that turn bytes into bytes or numbers into numbers, and never into objects.
_V2_CODECS = ("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "shuffle", "delta", "packbits")
_V3_CODECS = ("bytes", "transpose", "blosc", "zstd", "gzip", "crc32c")

Sizes = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, shape of a chunk, bytes of a value


class LazyCube(ABC):
    """A cube (queries, voters, labels) that gives consecutive queries.

    Attributes
    ----------
    checksums
        Of every run of queries that was read, here or by a worker: whoever reads it again finds
        the same.
    """

    shape: tuple[int, int, int]
    names = Names()

    def __init__(self, name: str, kind: str, shape: tuple[int, int, int], place: str) -> None:
        self.shape = check_shape(shape)
        if shape[1] * shape[2] > _CELLS:
            raise BallotError(
                name, f"has {shape[1] * shape[2]} votes a query, and at most {_CELLS} can be read"
            )
        self._name, self._kind, self._place = name, kind, place
        self._stamp = stamp(place)
        self.checksums: dict[tuple[int, int], int] = {}
        self._near: tuple[int, npt.NDArray[Any]] | None = None

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop = rows.start or 0, min(rows.stop, self.shape[0])
        with _readable(self._name, self._kind, self._place):
            slab = self._slab(start, stop)
        # Votes are read once to be checked, before anything is charged, and once to be counted. A
        # chunk that was lost between would be votes of no, here or where a worker reads it.
        found = zlib.crc32(slab.tobytes())
        if self.checksums.setdefault((start, stop), found) != found:
            rule = f"is not what it was when it was checked, at queries {start} to {stop - 1}"
            raise BallotError(self._name, rule)
        return slab

    def part(self, start: int, stop: int, step: int) -> npt.NDArray[Any]:
        """Return some queries, read in runs of ``step``: as they were checked, they are known."""
        first, found = start // step * step, []
        if start == first and stop == min(first + step, self.shape[0]):
            return self[start:stop]
        for at in range(first, max(stop, first + 1), step):
            near = self._near
            if near is None or near[0] != at:
                self._near = near = at, self[at : at + step]
            found.append(near[1][max(start - at, 0) : stop - at])
        return np.concatenate(found)

    @abstractmethod
    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the queries from ``start`` to before ``stop``."""

    @abstractmethod
    def _open(self) -> Any:
        """Return what the library reads slices from."""

    def __getstate__(self) -> dict[str, Any]:
        if not found_elsewhere(self._place):
            raise TypeError("no other process finds it")
        return {**vars(self), "_opened": None, "_near": None, "names": Names()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        check_same(self._place, self._name, self._stamp)
        with _readable(self._name, self._kind, self._place):
            self._opened = self._open()


def check_same(place: str, name: str, was: tuple[int, str]) -> None:
    """Refuse a file that is not the one it was where labels are drawn.

    A library would take what is absent from a Zarr array for votes of no.
    """
    try:
        now = stamp(place)
    except InputError as error:
        raise BallotError(f"{name} must be where every worker finds it: {error}") from None
    if now != was:
        raise BallotError(f"{name} is not the file here that it is where labels are drawn")


@contextmanager
def _readable(name: str, kind: str, place: str = "") -> Iterator[None]:
    """Turn whatever a library makes of a damaged file into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except Exception as error:  # zarr and pyarrow have their own error trees, and leave them
        raise BallotError(name, f"is not a readable {kind}: {why(error, place)}") from None


def open_zarr(place: str) -> LazyCube:
    """Open a 3-D array, or the array ``votes`` of a group, with the names that it has."""
    array, metadata, sizes = _open_zarr(place, "votes file", "votes")
    name = name_of(place)
    return _ZarrCube(name, array, _zarr_names(name, dict(array.attrs)), metadata, sizes)


def open_array(place: str, what: str, inside: str) -> Any:
    """Open a Zarr array, or the one called ``inside`` of a group, once its metadata is harmless."""
    return _open_zarr(place, what, inside)[0]


def _open_zarr(place: str, what: str, inside: str) -> tuple[Any, str, Sizes]:
    """Return a Zarr array, the place of its metadata, and the sizes there."""
    if is_url(place) and "?" in place:
        raise InputError(what, "that is a Zarr array must be a URL without a query string")
    name, folder = name_of(place), Folder(as_place(place), what)
    stored = folder.held()
    at, kept, facts = _zarr_metadata(folder, inside)
    shape, chunks, width = sizes = _check(facts)
    check_unpacked(f"a chunk of {name}", 0, math.prod(chunks) * width)
    check_unpacked(name, stored, math.prod(shape) * width, _SQUEEZED)
    with _readable(name, _ZARR, at.place):
        if len(at.read(".zattrs", _MOST_NAMES + 1) if at.exists(".zattrs") else b"") > _MOST_NAMES:
            raise ValueError(f"its attributes have more than {_MOST_NAMES} bytes")
        # The array itself, not through its group, whose copy of the metadata nobody has judged.
        return _opened_zarr(at.place, sizes), f"{at.place}/{kept}", sizes


def _opened_zarr(place: str, sizes: Sizes) -> Any:
    """Return a Zarr array whose metadata was judged: what was opened must be that, not since."""
    array = _zarr(place).open_array(place, mode="r")
    now: Any = (tuple(array.shape), tuple(array.chunks), array.dtype.itemsize)
    if hasattr(array, "metadata"):  # from version 3 on
        facts = json.loads(json.dumps(array.metadata.to_dict(), default=str))
        now = _check(facts if facts["zarr_format"] == 3 else {"zarray": facts})
    if now != sizes or array.dtype.kind not in "biuf":
        raise ValueError("it changed while it was read")
    return array


def _zarr(place: str) -> Any:
    try:
        import zarr
    except ImportError:
        raise missing_extra("files", "reading Zarr") from None
    if is_url(place) and zarr.__version__.startswith("2."):
        # That version takes an object that it may not or cannot read for one that is not there.
        raise MissingExtraError("reading Zarr behind a URL needs zarr 3: pip install 'zarr>=3'")
    return zarr


def _zarr_names(name: str, said: Mapping[str, Any]) -> Names:
    """Return the names that an array's attributes have: ``voter_names`` and ``label_names``."""
    with _readable(name, _ZARR):
        found = {
            f"{axis}s": listed(said[f"{axis}_names"], f"{name}: attribute '{axis}_names'")
            for axis in ("voter", "label")
            if f"{axis}_names" in said
        }
    return Names(**found)


class _ZarrCube(LazyCube):
    def __init__(self, name: str, array: Any, names: Names, metadata: str, sizes: Sizes) -> None:
        super().__init__(name, _ZARR, tuple(array.shape), metadata)
        self._opened, self.names, self._sizes = array, names, sizes

    def _open(self) -> Any:
        return _opened_zarr(self._place.rpartition("/")[0], self._sizes)

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        return np.asarray(self._opened[start:stop])


def _zarr_metadata(folder: Folder, inside: str) -> tuple[Folder, str, dict[str, Any]]:
    """Return where the array lies, and the file and content of its own metadata.

    That of version 2 comes under ``zarray``.
    """
    name = name_of(folder.place)
    for at in (folder, folder / inside):
        held = [kept for kept in ("zarr.json", ".zarray") if at.exists(kept)]
        if len(held) > 1:
            raise BallotError(f"{name} has metadata of two versions of Zarr: keep one")
        if not held:
            continue
        facts = _json(at, held[0], name)
        if held == [".zarray"]:
            return at, held[0], {"zarray": facts}
        if facts.get("node_type") == "array":
            return at, held[0], facts
    if folder.exists(UNFINISHED):
        raise BallotError(
            name, "is not finished: collect the rest of its votes first (privote votes)"
        )
    raise BallotError(
        f"{name} has no array {inside!r}; it has: {', '.join(folder.folders()[:8])!r:.200}"
    )


def _json(folder: Folder, kept: str, name: str) -> dict[str, Any]:
    with _readable(name, _ZARR, folder.place):
        data = folder.read(kept, _MOST_METADATA + 1)
        if len(data) > _MOST_METADATA:
            raise ValueError(f"its metadata has more than {_MOST_METADATA} bytes")
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


def open_parquet(place: str, threshold: Threshold) -> LazyCube:
    """Open a table with one row a ballot, after a first pass over ``query`` and ``voter``."""
    name, stored = name_of(place), size_of(place, "votes file")
    place = as_place(place)
    table = _parquet(place, name)
    with _readable(name, _PARQUET, place):
        labels = _label_columns(name, table.schema_arrow)
        held = table.metadata
        for group in range(table.num_row_groups):
            rows = held.row_group(group).num_rows
            check_unpacked(f"a row group of {name}", stored, rows * (len(labels) + 2) * 8)
        groups, queries, voters = _places(table)
        sizes = _public_sizes(table, queries, voters, held.num_rows)
        cells = sizes[0] * sizes[1] * len(labels)
        check_unpacked(name, stored, cells * 8, _SQUEEZED)
        shape = (*sizes, len(labels))
        return _ParquetCube(name, table, labels, groups, shape, threshold, place)


def _parquet(place: str, name: str) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    with _readable(name, _PARQUET, place):
        source = open_binary(place, "votes file") if is_url(place) else place
        return pq.ParquetFile(source, page_checksum_verification=True)


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


Groups = list[tuple[int, int, int]]  # a row group, its first and its last query


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
        place: str,
    ) -> None:
        super().__init__(name, _PARQUET, shape, place)
        self._opened, self._labels, self._groups = table, labels, groups
        self.names = Names(labels=tuple(labels), voters=_voter_names(name, table))
        self._threshold = None if threshold is None else check_threshold(threshold, shape[2])

    def _open(self) -> Any:
        return _parquet(self._place, self._name)

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
