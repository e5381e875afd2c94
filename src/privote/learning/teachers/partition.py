"""Parts of the private data, one for each teacher: by a keyed hash of names, never by values.

The guarantee is about changing one voter's ballot. It becomes one about changing one record only if
a record reaches one voter, so a record's part may depend on its own name and on nothing else:
sorting, balancing or stratifying by values would let one record move others.

Which change of records that covers depends on who knows the key. To whoever knows it, a person who
gives way to one of another name leaves one part and enters another: two voters change, which costs
more than is stated. To whoever does not, the two parts are equally likely to be any: pair every
partition in which the one is in part j with that in which the other is. Each pair differs in one
voter, and the divergence of the mixtures is at most that of the worst pair (quasi-convexity).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from ...datasets.records import keyed_parts
from ...entropy import Entropy
from ...errors import InputError, shown, whole
from ...ledger import Ledger

Parts = npt.NDArray[np.int64]

_PURPOSE = "teachers"
_KEY_BYTES = 32


def partition_key(ledger: Any, dataset: str, seed: int | None) -> bytes:
    """Return the key of a data set's partition, which nobody is told.

    Parameters
    ----------
    ledger
        A ledger or its place: the key follows from the ledger's own, so that later fits find every
        record in the same part. None: a key that is drawn and forgotten.
    dataset
        Its name in the ledger.
    seed
        An integer makes a simulation's key, which is known.
    """
    if seed is not None or ledger is None:
        return Entropy(seed).bytes(_KEY_BYTES)
    if isinstance(ledger, Ledger):
        return ledger.secret("partition", dataset)
    with closing(Ledger.open(ledger)) as book:
        return book.secret("partition", dataset)


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
        1 to 64 bytes, from :func:`partition_key`; or an integer, a key that everybody knows, for
        trials.

    Returns
    -------
    int64 array (records,)
        Parts have random sizes, and with few records some have none: their teachers vote no.

    Notes
    -----
    One voter's ballot changes if, under a *secret* key, a record (with ``groups``: a person, with
    all records) is replaced by one whose name no other has, or is there or not. Without names the
    same holds for a row, wherever it is put in, as long as the others keep their order.

    Under a *known* key: if a name's records hold something else, or are there or not. A name that
    gives way to another touches two voters. Without names only the content of a row may change:
    taking a row away renumbers, and so moves, all that follow.
    """
    names = part_names(n_records, ids, groups)
    return keyed_parts(names, whole("n_teachers", n_teachers), key=_key(key), purpose=_PURPOSE)


def part_names(
    n_records: int, ids: Iterable[Any] | None = None, groups: Iterable[Any] | None = None
) -> Sequence[Any]:
    """Return by which name each record finds its part: group, id or row number; checked."""
    records = whole("n_records", n_records)
    names = None if ids is None else _names("ids", ids, records)
    people = None if groups is None else _names("groups", groups, records)
    if names is not None and people is not None:
        _check_consistent(names, people)
    chosen = people if people is not None else names
    return range(records) if chosen is None else chosen


def _names(argument: str, names: Iterable[Any], records: int) -> list[Any]:
    if isinstance(names, str | bytes):
        raise InputError(argument, f"must be a list of names, got one {type(names).__name__}")
    listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
    if len(listed) != records:
        raise InputError(argument, f"must name every record ({records}), got {len(listed)} of them")
    for kind in set(map(type, listed)):
        if kind is bool or not issubclass(kind, int | np.integer | str | bytes):
            place = next(place for place, name in enumerate(listed) if type(name) is kind)
            raise InputError(
                f"{argument}[{place}] must be a whole number, a text or bytes, got {kind.__name__}",
                sealed=f"it is {shown(listed[place])}",
            )
    return listed


def _check_consistent(ids: list[Any], groups: list[Any]) -> None:
    """Refuse a record that belongs to two groups: it would reach two teachers."""
    seen: dict[Any, Any] = {}
    for name, group in zip(ids, groups, strict=True):
        if seen.setdefault(name, group) != group:
            raise InputError(
                "groups",
                "must give all records of one id the same group, and an id has two",
                sealed=f"the id {name!r:.60} has {seen[name]!r:.60} and {group!r:.60}",
            )


def _key(key: bytes | int) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < 2**64:
        raise InputError("key", "must be bytes or an integer from 0 to 2^64 - 1", key)
    return b"known key %d" % int(key)
