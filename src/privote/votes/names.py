"""What data sets, queries, voters and labels are called.

Names of queries and labels are public and travel to the release. Names of voters are known to
whoever keeps allowances, and never leave. Data sets and voters are compared by
:func:`folded`: a space, a capital or an invisible character makes no other person of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from unicodedata import category, normalize

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, shown
from .cells import is_inexact, name_of, typed

Names = Sequence[str] | None
_DIGITS = re.compile("[0-9]+")
# Invisible, by Unicode's Default_Ignorable_Code_Point, though it counts them among letters and
# marks or has not assigned them: fillers, joiners, variation marks, tags.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
# A type may have made these of one another: 007, 7 and 7.0.
_NUMERAL = re.compile(r"0*(\d+)(\.0+)?", re.ASCII)
_BLANK = "\u2800"  # a Braille cell without dots, which Unicode counts among symbols


def folded(name: str) -> str:
    """Return what a name is compared by: without invisible characters, odd spaces and case.

    NFKC, format and control characters removed, white space folded to one space, trimmed, and
    case-folded; a whole number without leading zeros. Empty for a name of which nothing is visible.
    """
    text = name.replace(_BLANK, " ")
    if not (text.isascii() and text.isprintable()):
        for _ in range(2):  # what is removed may have kept two characters from joining
            text = _UNSEEN.sub("", normalize("NFKC", text))
            seen = (c for c in text if c.isspace() or category(c) not in ("Cf", "Cc"))
            text = normalize("NFKC", "".join(seen).casefold())
    text = " ".join(text.casefold().split())
    numeral = _NUMERAL.fullmatch(text)
    return numeral[1] if numeral else text


def identity(name: Any) -> str:
    """Return what a record or a person is compared by: its name, folded; "" if it has none.

    A number with a fraction is no name, nor is a moment: whether 1.50 is still a text depends on
    its whole column.
    """
    try:
        return "" if is_inexact(name) else folded(typed(name_of(name)))
    except (InputError, TypeError):
        return ""


def identities(names: Any, argument: str, count: int | None = None) -> npt.NDArray[np.str_]:
    """Return what each record, or the person it belongs to, is compared by; refuse nobody."""
    if isinstance(names, str | bytes) or not np.iterable(names):
        raise InputError(argument, f"must be a list of names, got one {type(names).__name__}")
    listed = list(names)
    if count not in (None, len(listed)):
        raise InputError(argument, f"must name every record ({count}), got {len(listed)} names")
    keys = [identity(name) for name in listed]
    if "" in keys:
        row = keys.index("")
        rule = f"must be texts, or integers below 2^53, and row {row} is not"
        raise InputError(argument, rule, sealed=f"it is {shown(listed[row])}")
    return np.array(keys, np.str_)


def check_names(names: Names, size: int, axis: str, where: str = "votes") -> tuple[str, ...] | None:
    """Return names, one of its own for everything on an axis; None for an axis without names."""
    if names is None:
        return None
    if len(names) != size:
        raise BallotError(f"{where} must have one name a {axis}, {size} of them, got {len(names)}")
    different = {folded(name) for name in names} if axis == "voter" else set(names)
    if len(different) < size or not all(different):
        raise BallotError(f"{where} must have a name of its own for every {axis}")
    return tuple(names)


def listed(values: Any, what: str) -> tuple[str, ...]:
    """Return an array of texts or whole numbers as names."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        got = f"{array.dtype} of shape {array.shape}"
        raise BallotError(f"{what} must be one axis of texts or integers, got {got}")
    return tuple(str(name).strip() for name in array.tolist())


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in their natural order, numbers in them by size: q2 before q10.

    The order of rows in a file must not decide which query comes first: it may be the order in
    which ballots came in.
    """
    return sorted(names, key=lambda name: (_DIGITS.sub(_by_size, name.casefold()), name))


def _by_size(number: re.Match[str]) -> str:
    """Return digits so that the order of texts is that of numbers, before any other letter."""
    digits = number[0].lstrip("0")
    return f"\0{len(digits):09}{digits}"


def voter_names(names: Any, voters: int) -> list[str]:
    """Return the names of voters as texts; refuse names that do not tell them apart.

    Names are texts or integers, and are compared as texts, folded: 7 and "7" name one voter, and so
    do "Anna" and "anna ".
    """
    if isinstance(names, Set | Mapping) or not hasattr(names, "__len__"):
        sealed = f"they are {shown(names)}"
        raise InputError("voter_ids", "must be a sequence of names", sealed=sealed)
    texts = [
        str(name) if isinstance(name, str | int | np.integer) and type(name) is not bool else ""
        for name in names
    ]
    if not texts or len(texts) != voters:
        raise InputError("voter_ids", f"must be {voters} different names, got {len(texts)}")
    places = dict[str, int]()
    for place, key in enumerate(map(folded, texts)):
        first = places.setdefault(key, place)
        if not key:
            rule = f"must be non-empty texts or integers; the name of voter {place} is none"
            raise InputError("voter_ids", rule)
        if first != place:
            rule = f"must differ, and voters {first} and {place} have one name, but for case,"
            rule += " spaces and invisible characters"
            raise InputError("voter_ids", rule, sealed=f"it is {shown(texts[place])}")
    return texts
