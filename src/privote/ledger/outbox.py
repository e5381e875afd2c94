"""The outbox: one file that holds what a run drew, from the draw until it is delivered.

It lies beside the ledger's key and is allocated, as a part of the reservation, at a size that
public numbers fix: were there no space left only once something is drawn, what was drawn could
decide whether it leaves. It is for its owner only, and goes when its run is delivered.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, StorageError
from ..files import sync_folder

_PIECE = 1 << 20
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)
_END = b"\n"


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What was drawn, and what is said of it.

    Attributes
    ----------
    arrays
        By name, in the order that the digest has.
    facts, statement
        Plain values that a delivery needs besides, and the statement's own text.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    statement: str = ""

    @property
    def drawn(self) -> str:
        """The digest of what was drawn."""
        return digest_of(*self.arrays.values())

    @property
    def statement_digest(self) -> str:
        """The digest of the statement's own text."""
        return digest_of_text(self.statement)

    @property
    def facts_digest(self) -> str:
        """The digest of the plain values, in whatever order."""
        return digest_of_text(json.dumps(self.facts, sort_keys=True))


def digest_of(*numbers: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of drawn numbers in one form, whatever machine or layout holds them.

    Of each array the type, the cells row by row, the shape and its length: int8 for labels,
    little-endian float64 for fractions, int64 for every other kind of integer, such as tallies.
    """
    digest = sha256()
    for array in numbers:
        kind = np.dtype({"f": "<f8"}.get(array.dtype.kind, "i1" if array.dtype == "i1" else "<i8"))
        if not np.can_cast(array.dtype, kind, "safe"):
            raise InputError("numbers", "must be below 2**63, or floats", array.dtype)
        digest.update(kind.str.encode())
        digest.update(np.ascontiguousarray(array, kind).tobytes())
        digest.update(np.array([*array.shape, array.ndim], "<i8").tobytes())
    return digest.hexdigest()


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text without the spaces around it, as a file of it may end."""
    return sha256(text.strip().encode()).hexdigest()


class Outbox:
    """The file of one holder of one run, beside the ledger's key."""

    def __init__(self, file: Path, run: int, holder: str) -> None:
        self.path, self.run = file.with_name(f"{file.name}.{run}-{holder}.outbox"), run

    def allocate(self, size: int) -> None:
        """Take a new file of this size on the disk, for its owner only."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                try:
                    os.posix_fallocate(file, 0, size)
                except (AttributeError, OSError) as error:  # not on this system, or here
                    if getattr(error, "errno", None) not in (None, *_UNSUPPORTED):
                        raise
                    for start in range(0, size, _PIECE):
                        os.pwrite(file, bytes(min(_PIECE, size - start)), start)
                os.fsync(file)
            finally:
                os.close(file)
            sync_folder(self.path.parent)
        except OSError as error:
            self.remove()
            raise StorageError(
                f"{size:,} bytes cannot be allocated in {str(self.path.parent)!r}: "
                f"{error.strerror or error}. Nothing was charged"
            ) from None

    def write(self, outcome: Outcome, size: int) -> None:
        """Write an outcome into the space that was allocated, durably."""
        arrays = [np.ascontiguousarray(array) for array in outcome.arrays.values()]
        head = {
            "arrays": [
                [name, array.dtype.str, list(array.shape)]
                for name, array in zip(outcome.arrays, arrays, strict=True)
            ],
            "facts": outcome.facts,
            "statement": outcome.statement,
        }
        text = json.dumps(head).encode() + _END
        room = size - sum(array.nbytes for array in arrays)
        if len(text) > room:
            raise ValueError(f"facts need {len(text)} bytes, and the reservation has {room}")
        with open(self.path, "r+b") as file:
            file.write(text.ljust(room))
            for array in arrays:
                file.write(array.data.cast("B"))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Outcome | None:
        """Return the outcome; None where there is none, or not all of it."""
        try:
            content = self.path.read_bytes()
            head = json.loads(content.partition(_END)[0])
            specs = [(name, np.dtype(kind), tuple(shape)) for name, kind, shape in head["arrays"]]
            sizes = [kind.itemsize * int(np.prod(shape)) for _, kind, shape in specs]
            start, arrays = len(content) - sum(sizes), {}
            for (name, kind, shape), size in zip(specs, sizes, strict=True):
                cells = np.frombuffer(content[start : start + size], kind)
                arrays[name] = cells.reshape(shape)
                start += size
            return Outcome(arrays=arrays, facts=head["facts"], statement=head["statement"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file, if it is there; one that cannot be is swept by whoever comes next."""
        with suppress(OSError):
            self.path.unlink()
