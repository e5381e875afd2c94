"""Parts of the private data, one for each teacher: by a keyed hash of names, never by values.

The guarantee is about changing one voter's ballot. It becomes one about changing one record only if
a record reaches one voter, so a record's part may depend on its own name and on nothing else:
sorting, balancing or stratifying by values would let one record move others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets.hashing import keyed_parts
from ..errors import InputError

Parts = npt.NDArray[np.int64]

_PURPOSE = "teachers"


def partition(
    n_records: int,
    n_teachers: int,
    *,
    ids: Iterable[Any] | None = None,
    groups: Iterable[Any] | None = None,
    key: bytes | int,
) -> Parts:
    """Return the part of each record, from 0 to ``n_teachers - 1``.

    Parameters
    ----------
    n_records
        How many records there are.
    n_teachers
        How many parts.
    ids
        (records,) the records' names: whole numbers, texts or bytes. Records of the same name land
        in the same part. Without names a record is its row number.
    groups
        (records,) names of what must stay together, such as the patient; they take the place of
        ``ids``, and the promise is for a whole group.
    key
        1 to 64 bytes, a secret where the records are; or an integer (a random state) to make them
        from, which is reproducible and hides nothing.

    Returns
    -------
    int64 array (records,)
        Parts have random sizes, and with few records some have none: their teachers vote no.

    Notes
    -----
    What a neighbouring data set is follows from the names. With ``ids``: the content of one record
    is another, or a record is there or not; one voter's ballot changes. A record that gives way to
    one of *another* name may leave one part and enter another: that counts as two changes. With
    ``groups`` the same holds for all records of one group. With row numbers only the content of a
    row may change: taking a row away renumbers, and so moves, all that follow.
    """
    records = _whole("n_records", n_records)
    teachers = _whole("n_teachers", n_teachers)
    names = None if ids is None else _names("ids", ids, records)
    whole = None if groups is None else _names("groups", groups, records)
    if names is not None and whole is not None:
        _check_consistent(names, whole)
    chosen = whole if whole is not None else names
    return keyed_parts(
        range(records) if chosen is None else chosen,
        teachers,
        key=_key(key),
        purpose=_PURPOSE,
    )


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _names(argument: str, names: Iterable[Any], records: int) -> list[Any]:
    if isinstance(names, str | bytes):
        raise InputError(f"{argument} must be a list of names, got one {type(names).__name__}")
    listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
    if len(listed) != records:
        raise InputError(
            f"{argument} must name every record ({records}), got {len(listed)} of them"
        )
    for kind in set(map(type, listed)):
        if kind is bool or not issubclass(kind, int | np.integer | str | bytes):
            place = next(place for place, name in enumerate(listed) if type(name) is kind)
            raise InputError(
                f"{argument}[{place}] must be a whole number, a text or bytes, "
                f"got {listed[place]!r}"
            )
    return listed


def _check_consistent(ids: list[Any], groups: list[Any]) -> None:
    """Refuse a record that belongs to two groups: it would reach two teachers."""
    seen: dict[Any, Any] = {}
    for name, group in zip(ids, groups, strict=True):
        if seen.setdefault(name, group) != group:
            raise InputError(
                f"groups must give all records of one id the same group, got {seen[name]!r} and "
                f"{group!r} for the id {name!r}"
            )


def _key(key: bytes | int) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < 2**64:
        raise InputError(f"key must be bytes or an integer from 0 to 2^64 - 1, got {key!r}")
    return b"random state %d" % int(key)
