"""Pieces of votes on their way to a votes file: a run of queries of some voters, as bits.

A piece is a chunk of a Zarr array (version 2, packed bits), so that the pieces of a ``.zarr`` are
the votes file itself; those of a ``.parquet`` lie beside it until the table is written from them.
Every piece has one place and one size, and the same bytes whoever makes it and however often. Its
mark is written after it. The array's metadata comes last: until then nobody can read the votes, so
that a piece that is not there is never taken for a no.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError, missing_extra
from ...storage import Folder, is_url, open_binary
from ...streamed import UNFINISHED

SUFFIXES = (".zarr", ".parquet")
_OURS, _MANIFEST = UNFINISHED.split("/")
_DONE, _RUN, _METADATA = "done", "run", ".zarray"
_ROWS = 1 << 16  # of a Parquet row group, or as many as a chunk has
Bits = npt.NDArray[np.bool_]
Piece = tuple[int, int]  # the place of its chunk of queries, and of its group of voters


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How votes (queries, voters, labels) are cut: ``chunk`` queries of ``group`` voters."""

    queries: int
    voters: int
    labels: int
    chunk: int
    group: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many chunks of queries, and groups of voters."""
        return -(-self.queries // self.chunk), -(-self.voters // self.group)

    @property
    def total(self) -> int:
        """How many pieces there are."""
        return self.counts[0] * self.counts[1]

    @property
    def size(self) -> int:
        """Bytes of a piece: each is as large as the first, also at the edge."""
        return 1 + -(-self.chunk * self.group * self.labels // 8)

    def pieces(self) -> Iterator[Piece]:
        """Yield all pieces, those of one group together: its models are then loaded once."""
        chunks, groups = self.counts
        return ((chunk, group) for group in range(groups) for chunk in range(chunks))

    def queries_of(self, chunk: int) -> tuple[int, int]:
        """Return the first query of a chunk, and the first after it."""
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.queries)

    def voters_of(self, group: int) -> tuple[int, int]:
        """Return the first voter of a group, and the first after it."""
        return group * self.group, min((group + 1) * self.group, self.voters)

    def pack(self, votes: Bits) -> bytes:
        """Return a piece as Zarr's codec ``packbits`` has it: how many bits are padding, bits."""
        whole = np.zeros((self.chunk, self.group, self.labels), np.bool_)
        whole[: votes.shape[0], : votes.shape[1]] = votes
        return bytes([-whole.size % 8]) + np.packbits(whole).tobytes()

    def unpack(self, data: bytes) -> Bits:
        """Return what :meth:`pack` packed, padding included: (chunk, group, labels)."""
        bits = np.unpackbits(np.frombuffer(data, np.uint8)[1:])
        cells = bits[: self.chunk * self.group * self.labels].view(np.bool_)
        return cells.reshape(self.chunk, self.group, self.labels)

    def metadata(self) -> dict[str, Any]:
        """Return what Zarr has to know of the array."""
        return {
            "zarr_format": 2,
            "shape": [self.queries, self.voters, self.labels],
            "chunks": [self.chunk, self.group, self.labels],
            "dtype": "|b1",
            "fill_value": False,
            "order": "C",
            "filters": [{"id": "packbits"}],
            "compressor": None,
        }


@dataclass(frozen=True)
class Output:
    """A votes file that is being made: ``place`` is its path or URL.

    ``key`` tells what is collected. A worker may outlive a run that was killed; it must not write
    into the place of another one, so it looks whether the key is still its own.
    """

    place: str
    key: str = ""

    @property
    def is_table(self) -> bool:
        """Whether it will be a Parquet file."""
        return self.place.endswith(".parquet")

    @property
    def folder(self) -> Folder:
        """Where its pieces lie; behind a link, which could not be removed with what is in it."""
        if self.is_table:
            return Folder(f"{self.place}.pieces")
        return Folder(self.place if is_url(self.place) else os.path.realpath(self.place))

    @property
    def _own(self) -> Folder:
        return self.folder / _OURS

    @property
    def _beside(self) -> tuple[Folder, str]:
        folder, _, name = self.place.rpartition("/")
        return Folder(folder), name

    def taken(self) -> bool:
        """Return whether something lies there already."""
        return self.folder.exists() or (self.is_table and self._table_exists())

    def finished(self) -> bool:
        """Return whether the votes can be read."""
        return self._table_exists() if self.is_table else self.folder.exists(_METADATA)

    def _table_exists(self) -> bool:
        folder, name = self._beside
        return folder.exists(name)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Say what is to be collected, before anything else."""
        self._own.write(_MANIFEST, _json(manifest))

    def claim(self, manifest: Mapping[str, Any]) -> Output:
        """Return it with its key: whoever collects something else there stops writing."""
        key = hashlib.sha256(_json(manifest)).hexdigest()
        self._own.write(_RUN, key.encode())
        return replace(self, key=key)

    def is_mine(self) -> bool:
        """Return whether what is collected there is still what this run collects."""
        return self._own.exists(_RUN) and self._own.read(_RUN).decode() == self.key

    def manifest(self) -> dict[str, Any] | None:
        """Return what is being collected there, or was; None if it was not begun here."""
        with suppress(ValueError):
            if self.is_table and self._table_exists():
                return _manifest_in(self.place)
            if self._own.exists(_MANIFEST):
                found = json.loads(self._own.read(_MANIFEST))
                return found if isinstance(found, dict) else None
        return None

    def clear(self) -> None:
        """Remove what was collected before; never a folder that something else has made."""
        if self.taken() and self.manifest() is None:
            raise InputError(
                "output", f"{self.place!r} was not made by collecting votes, and is not replaced"
            )
        if self.is_table:
            folder, name = self._beside
            folder.remove(name)
        else:  # unreadable first: half of it must not be taken for votes
            self.folder.remove(_METADATA)
        self.folder.remove()
        if (self._own / _DONE).sizes():  # or they would be taken for what is collected next
            raise InputError("output", f"{self.place!r} has pieces that cannot be removed")

    def keep(self, grid: Grid, piece: Piece, votes: Bits) -> None:
        """Write a piece, and then that it is done."""
        if not self.is_mine():
            raise InputError("output", f"{self.place!r} was taken over by another run")
        self.folder.write(_name(piece), grid.pack(votes))
        (self._own / _DONE).mark(_name(piece))

    def done(self, grid: Grid) -> set[Piece]:
        """Return the pieces that are there as a whole."""
        marked, sizes = (self._own / _DONE).sizes(), self.folder.sizes()
        return {
            piece
            for piece in grid.pieces()
            if (name := _name(piece)) in marked and sizes.get(name) == grid.size
        }

    def finish(self, grid: Grid, manifest: Mapping[str, Any]) -> None:
        """Make the pieces, which are all there, a votes file."""
        for folder in (self.folder, self._own / _DONE):
            folder.sweep()
        if self.is_table:
            self._write_table(grid, manifest)
            self.folder.remove()
            return
        names = {"voter_names": manifest["voters"], "label_names": manifest["labels"]}
        held = {name: value for name, value in names.items() if isinstance(value, list)}
        self.folder.write(".zattrs", _json(held))
        self.folder.write(_METADATA, _json(grid.metadata()))
        self._own.remove(_RUN)
        (self._own / _DONE).remove()

    def _write_table(self, grid: Grid, manifest: Mapping[str, Any]) -> None:
        """Write the pieces as one table with a row a ballot, sorted by query."""
        pa, pq = _arrow()
        labels = manifest["labels"]
        if not isinstance(labels, list):
            labels = [f"label_{place}" for place in range(grid.labels)]
        sizes = {"queries": str(grid.queries), "voters": str(grid.voters)}
        said = sizes | {"voter_names": json.dumps(manifest["voters"])}
        said["privote"] = _json(manifest).decode()
        places = [("query", pa.int64()), ("voter", pa.int32())]
        fields = [pa.field(*each, nullable=False) for each in places]
        fields += [pa.field(name, pa.bool_(), nullable=False) for name in labels]
        schema = pa.schema(fields, metadata=said)
        folder, name = self._beside
        here = None if is_url(self.place) else folder.place  # a move within one disk is at once
        with tempfile.TemporaryDirectory(prefix=".privote-", dir=here) as scratch:
            file = Path(scratch, name)
            # Queries come in runs and voters in turn: dictionaries of both would only grow.
            how = {"use_dictionary": ["voter"], "compression": "zstd", "write_page_checksum": True}
            with pq.ParquetWriter(file, schema, **how) as writer:
                held, rows = [], 0
                for chunk in range(grid.counts[0]):
                    held.append(self._table(grid, chunk, schema))
                    rows += held[-1].num_rows
                    if rows >= _ROWS or chunk == grid.counts[0] - 1:
                        writer.write_table(pa.concat_tables(held), row_group_size=rows)
                        held, rows = [], 0
            folder.take(file, name)

    def _table(self, grid: Grid, chunk: int, schema: Any) -> Any:
        pa, _ = _arrow()
        start, stop = grid.queries_of(chunk)
        groups = [
            grid.unpack(self.folder.read(_name((chunk, group)))) for group in range(grid.counts[1])
        ]
        votes = np.concatenate(groups, axis=1)[: stop - start, : grid.voters]
        query = np.repeat(np.arange(start, stop), grid.voters)
        voter = np.tile(np.arange(grid.voters, dtype=np.int32), stop - start)
        flat = votes.reshape(-1, grid.labels)
        said = [pa.array(np.ascontiguousarray(flat[:, label])) for label in range(grid.labels)]
        return pa.table([pa.array(query), pa.array(voter), *said], schema=schema)


def _name(piece: Piece) -> str:
    return f"{piece[0]}.{piece[1]}.0"  # as Zarr calls a chunk; every piece has all labels


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, sort_keys=True).encode()


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "writing Parquet") from None
    return pa, pq


def _manifest_in(place: str) -> dict[str, Any] | None:
    _, pq = _arrow()
    try:
        with open_binary(place) as stream:
            said = pq.read_schema(stream).metadata or {}
        found = json.loads(said.get(b"privote", b"null"))
    except Exception:  # whatever Arrow calls it: then it is no file of ours
        return None
    return found if isinstance(found, dict) else None
