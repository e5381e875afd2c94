"""Votes that stay where they are as cubes that give slices; here Zarr arrays.

They lie on a disk or behind a URL. Metadata is read and judged here before a library acts on it:
which values, packed how, how many. Whatever a damaged file, or a connection that breaks off, leads
to later is a :class:`BallotError` of one sentence.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrayfiles import check_unpacked, why
from .ballots import check_shape
from .errors import BallotError, InputError, MissingExtraError, missing_extra
from .names import Names, listed
from .storage import Folder, as_place, name_of

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
        self._checksums: dict[tuple[int, int], int] = {}

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        start, stop = rows.start or 0, min(rows.stop, self.shape[0])
        with readable(self._name, self._kind):
            slab = self._slab(start, stop)
        # Votes are read once to be checked, before anything is charged, and once to be counted. A
        # chunk that was lost between would be votes of no.
        found = zlib.crc32(slab.tobytes())
        if self._checksums.setdefault((start, stop), found) != found:
            rule = f"is not what it was when it was checked, at queries {start} to {stop - 1}"
            raise BallotError(self._name, rule)
        return slab

    def part(self, start: int, stop: int, step: int) -> npt.NDArray[Any]:
        """Return some queries, read in runs of ``step``: as they were checked, they are known."""
        first = start // step * step
        runs = [self[at : at + step] for at in range(first, max(stop, first + 1), step)]
        whole = runs[0] if len(runs) == 1 else np.concatenate(runs)
        return whole[start - first : stop - first]

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


def open_zarr(place: str, empty_chunks: str | None = None) -> ZarrCube:
    """Open a 3-D array, or the array ``votes`` of a group, with the names that it has.

    ``empty_chunks`` is "no" if a chunk that is absent holds votes of no.
    """
    opened, name = _open_zarr(place, "votes file", "votes"), name_of(place)
    with readable(name, _ZARR):  # attributes may hold anything
        return ZarrCube(name, *opened, empty_chunks)


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


def _zarr_names(name: str, said: Mapping[str, Any]) -> Names:
    """Return the names that an array's attributes have: ``voter_names`` and ``label_names``."""
    with readable(name, _ZARR):
        found = {
            f"{axis}s": listed(said[f"{axis}_names"], f"{name}: attribute '{axis}_names'")
            for axis in ("voter", "label")
            if f"{axis}_names" in said
        }
    return Names(**found)


class ZarrCube(LazyCube):
    """Votes in a Zarr array."""

    def __init__(
        self, name: str, array: Any, folder: Folder, sizes: Sizes, empty_chunks: str | None
    ) -> None:
        super().__init__(name, _ZARR, tuple(array.shape))
        self._opened, self._folder, self._sizes = array, folder, sizes
        self._empty = empty_chunks
        self.names = _zarr_names(name, dict(array.attrs))

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
        if "no" not in (self._empty, attributes.get(EMPTY)):
            raise BallotError(
                self._name,
                f"has no chunk {lost!r}: it was lost, or zarr left it out because it "
                "holds only the fill value. Write the votes with zarr's option write_empty_chunks; "
                "or, if every chunk that is absent holds votes of no, give `empty_chunks=no`, or "
                f'set the attribute {EMPTY} of the array to "no"',
            )
        if self._opened.fill_value != 0:
            rule = "must have the fill value 0 if chunks that are absent are to be votes of no"
            raise BallotError(self._name, rule)

    def _check_digests(self, ours: Any, names: Iterable[str], count: int) -> None:
        digests = ours.get("digests") if isinstance(ours, dict) else None
        if not isinstance(digests, list) or len(digests) != count:
            raise BallotError(self._name, _UNFINISHED)
        files = self._folder.files()
        for name, digest in zip(names, digests, strict=True):
            if name not in files or chunk_digest(self._folder.read(name)) != digest:
                raise BallotError(
                    self._name,
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
            if OURS in facts and facts[OURS] != _attributes_digest(at, f"{prefix}.zattrs" in files):
                rule = "has lost its attributes (.zattrs), or they were changed: put that file back"
                raise BallotError(name, f"{rule}, or collect its votes again")
            return at, {"zarray": facts}
        if facts.get("node_type") == "array":
            return at, facts
    if ".zattrs" in files and OURS in _json(folder, ".zattrs", name, MOST_ATTRIBUTES):
        raise BallotError(name, _UNFINISHED)
    folders = sorted({file.partition("/")[0] for file in files if "/" in file})
    raise BallotError(f"{name} has no array {inside!r}; it has: {', '.join(folders[:8])!r:.200}")


def _attributes_digest(folder: Folder, there: bool) -> str | None:
    return chunk_digest(folder.read(".zattrs", MOST_ATTRIBUTES)) if there else None


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
