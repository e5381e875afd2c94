"""Who goes where: a keyed hash of a record's name, and of nothing else.

A record's place must not depend on other records or on anybody's values. Otherwise adding or
changing one record could move others, and one record would reach more than one voter. So a place is
a function of the key, the purpose and the record's own id (or its group: all records of one patient
carry the same group and stay together).

The hash is BLAKE2b with a key and a purpose: the same on every machine, in every run and for every
order of the ids. An id is a whole number, a text or bytes; ``5`` and ``numpy.int64(5)`` are one
id, ``5`` and ``"5"`` are two. Texts are hashed as they are, without Unicode normalisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from hashlib import blake2b
from itertools import accumulate
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError

Parts = npt.NDArray[np.int64]

_BITS = 64
_SUM = 1e-9  # how far from 1 shares may add up: they are written as decimals


def keyed_parts(
    ids: Iterable[Any], parts: int | Sequence[float], *, key: bytes, purpose: str = "parts"
) -> Parts:
    """Return the part of each id, from 0: a keyed hash of the id and of nothing else.

    Parameters
    ----------
    ids
        (records,) whole numbers, texts or bytes; equal ids go to the same part.
    parts
        How many parts of equal chance, or the chance of each part: positive, adding up to 1.
    key
        1 to 64 bytes. Whoever knows it and an id knows the part: for private records it is a
        secret, and the same one must be used for as long as the parts are to stay.
    purpose
        At most 16 bytes that set hashes for different ends apart. Two cuts under one key and one
        purpose are the *same* cut: the half of a half would be everything or nothing.

    Returns
    -------
    int64 array (records,)
        Chances are exact to 2^-64. Sizes are random: 1,000 ids in 10 parts are not 100 each.
    """
    bounds = _bounds(parts)
    if not isinstance(key, bytes) or not 1 <= len(key) <= blake2b.MAX_KEY_SIZE:
        shown = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InputError("key", f"must be 1 to {blake2b.MAX_KEY_SIZE} bytes, got {shown}")
    person = purpose.encode()
    if len(person) > blake2b.PERSON_SIZE:
        raise InputError("purpose", f"must be at most {blake2b.PERSON_SIZE} bytes", purpose)
    keyed = blake2b(key=key, person=person, digest_size=_BITS // 8)

    def digest(name: bytes) -> bytes:
        state = keyed.copy()  # the key's block is hashed once, not once for each id
        state.update(name)
        return state.digest()

    hashes = np.frombuffer(b"".join(map(digest, _encoded(ids))), dtype=">u8")
    return np.searchsorted(bounds, hashes.astype(np.uint64), side="right").astype(np.int64)


def _bounds(parts: int | Sequence[float]) -> npt.NDArray[np.uint64]:
    """Return the hashes (parts - 1,) at which the second, third, ... part begins."""
    if isinstance(parts, Integral) and not isinstance(parts, bool):
        count = int(parts)
        if count < 1:
            raise InputError("parts", f"must be at least 1, got {count}")
        starts = [-(-(part << _BITS) // count) for part in range(1, count)]
        return np.array(starts, dtype=np.uint64)
    shares = list(parts) if isinstance(parts, Sequence | np.ndarray) else None
    if not shares or not all(_is_share(share) for share in shares):
        raise InputError(
            "parts", "must be a whole number or a list of shares between 0 and 1", parts
        )
    exact = [Fraction(float(share)) for share in shares]
    total = sum(exact, Fraction(0))
    if abs(total - 1) > _SUM:
        raise InputError(f"shares in parts must add up to 1, got {shares} = {float(total)}")
    starts = [int(reached / total * 2**_BITS) for reached in accumulate(exact[:-1])]
    return np.array(starts, dtype=np.uint64)


def _is_share(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) <= 1


def _encoded(ids: Iterable[Any]) -> list[bytes]:
    """Return each id as bytes that say its kind, so that 5, "5" and b"5" differ."""
    if isinstance(ids, str | bytes):
        raise InputError("ids", f"must be a list of ids, got one {type(ids).__name__}")
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise InputError("ids", f"must have the shape (records,), got {ids.shape}")
    if isinstance(ids, np.ndarray) and ids.dtype.kind not in "iuUSO":
        raise InputError("ids", f"must be whole numbers, texts or bytes, got {ids.dtype}")
    # tolist gives Python's own numbers and texts, which are ten times as fast to encode.
    names = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    kinds = set(map(type, names))
    if kinds == {str}:
        return [b"s" + name.encode("utf-8", "surrogatepass") for name in names]
    if kinds == {int}:
        return [b"i%d" % name for name in names]
    return [_encode(place, name) for place, name in enumerate(names)]


def _encode(place: int, name: Any) -> bytes:
    if isinstance(name, Integral) and not isinstance(name, bool):
        return b"i%d" % int(name)
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    if isinstance(name, bytes):
        return b"b" + name
    raise InputError(f"ids[{place}] must be a whole number, a text or bytes, got {name!r}")
