"""Votes that stay on disk, Zarr and Parquet, as cubes that give slices.

Metadata is read and judged here before a library acts on it: which values, packed how, how many.
Whatever a damaged file leads to later is a :class:`BallotError` of one sentence.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrayfiles import check_file, check_tree, check_unpacked, why
from .ballots import Threshold, check_shape, check_threshold
from .blocks import MISSING
from .errors import BallotError, InputError, missing_extra
from .names import Listed, Names, listed

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


class LazyCube(ABC):
    """A cube (queries, voters, labels) that gives consecutive queries."""

    shape: tuple[int, int, int]
    names = Names()

    def __init__(self, name: str, kind: str, shape: tuple[int, int, int]) -> None:
        self.shape = check_shape(shape)
        if shape[1] * shape[2] > _CELLS:
            raise BallotError(
                name, f"has {shape[1] * shape[2]} votes a query, and at most {_CELLS} can be read"
            )
        self._name, self._kind = name, kind

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        with _readable(self._name, self._kind):
            return self._slab(rows.start or 0, min(rows.stop, self.shape[0]))

    @abstractmethod
    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the queries from ``start`` to before ``stop``."""


@contextmanager
def _readable(name: str, kind: str) -> Iterator[None]:
    """Turn whatever a library makes of a damaged file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # zarr and pyarrow have their own error trees, and leave them
        raise BallotError(name, f"is not a readable {kind}: {why(error)}") from None


def open_zarr(file: Path) -> LazyCube:
    """Open a 3-D array, or the array ``votes`` of a group, with the names that it has."""
    array = open_array(file, "votes file", "votes")
    return _ZarrCube(file.name, array, _zarr_names(file.name, dict(array.attrs)))


def open_array(file: Path, what: str, inside: str) -> Any:
    """Open a Zarr array, or the one called ``inside`` of a group, once its metadata is harmless."""
    try:
        import zarr
    except ImportError:
        raise missing_extra("files", "reading Zarr") from None
    stored = check_tree(file, what)
    place, facts = _zarr_metadata(file, inside)
    shape, chunks, width = _check_v2(facts) if "zarray" in facts else _check_v3(facts)
    check_unpacked(f"a chunk of {file.name}", 0, math.prod(chunks) * width)
    check_unpacked(file.name, stored, math.prod(shape) * width, _SQUEEZED)
    with _readable(file.name, _ZARR):
        beside = place / ".zattrs"
        if beside.exists() and check_file(beside).stat().st_size > _MOST_NAMES:
            raise ValueError(f"its attributes have more than {_MOST_NAMES} bytes")
        # The array itself, not through its group, whose copy of the metadata nobody has judged.
        array = zarr.open_array(str(place), mode="r")
        if tuple(array.shape) != shape or array.dtype.kind not in "biuf":
            raise ValueError("it changed while it was read")
    return array


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
    def __init__(self, name: str, array: Any, names: Names) -> None:
        super().__init__(name, _ZARR, tuple(array.shape))
        self._array, self.names = array, names

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        return np.asarray(self._array[start:stop])


def _zarr_metadata(file: Path, inside: str) -> tuple[Path, dict[str, Any]]:
    """Return where the array lies and what its own metadata says; version 2 under ``zarray``."""
    for place in (file, file / inside):
        held = [name for name in ("zarr.json", ".zarray") if (place / name).exists()]
        if len(held) > 1:
            raise BallotError(f"{file.name} has metadata of two versions of Zarr: keep one")
        if not held:
            continue
        facts = _json(place / held[0], file.name)
        if held == [".zarray"]:
            return place, {"zarray": facts}
        if facts.get("node_type") == "array":
            return place, facts
    arrays = sorted(f.parent.name for f in (*file.glob("*/.zarray"), *file.glob("*/zarr.json")))
    if (file / UNFINISHED).exists():
        raise BallotError(
            file.name, "is not finished: collect the rest of its votes first (privote votes)"
        )
    raise BallotError(
        f"{file.name} has no array {inside!r}; it has: {', '.join(arrays[:8])!r:.200}"
    )


def _json(file: Path, name: str) -> dict[str, Any]:
    with _readable(name, _ZARR):
        if check_file(file).stat().st_size > _MOST_METADATA:
            raise ValueError(f"its metadata has more than {_MOST_METADATA} bytes")
        facts = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise ValueError("its metadata is no object")
        return facts


Sizes = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, shape of a chunk, bytes of a value


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


def open_parquet(file: Path, threshold: Threshold) -> LazyCube:
    """Open a table with one row a ballot, after a first pass over ``query`` and ``voter``."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    with _readable(file.name, _PARQUET):
        table = pq.ParquetFile(file, page_checksum_verification=True)
        labels = _label_columns(file.name, table.schema_arrow)
        stored, held = file.stat().st_size, table.metadata
        for group in range(table.num_row_groups):
            rows = held.row_group(group).num_rows
            check_unpacked(f"a row group of {file.name}", stored, rows * (len(labels) + 2) * 8)
        groups, queries, voters = _places(table)
        sizes = _public_sizes(table, queries, voters, held.num_rows)
        cells = sizes[0] * sizes[1] * len(labels)
        check_unpacked(file.name, stored, cells * 8, _SQUEEZED)
        return _ParquetCube(file.name, table, labels, groups, (*sizes, len(labels)), threshold)


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
    ) -> None:
        super().__init__(name, _PARQUET, shape)
        self._table, self._labels, self._groups = table, labels, groups
        self.names = Names(labels=tuple(labels), voters=_voter_names(name, table))
        self._threshold = None if threshold is None else check_threshold(threshold, shape[2])

    def _slab(self, start: int, stop: int) -> npt.NDArray[Any]:
        cube = np.full((stop - start, *self.shape[1:]), float(MISSING))
        seen = np.zeros((stop - start, self.shape[1]), np.int64)
        for group in (g for g, first, last in self._groups if last >= start and first < stop):
            part = self._table.read_row_group(group)
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
