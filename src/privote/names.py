"""What queries, voters and labels are called.

Names of queries and labels are public and travel to the release. Names of voters are known to
whoever keeps allowances, and never leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .errors import BallotError

Listed = tuple[str, ...] | None
_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Names:
    """Names along the axes of votes, in order; None for an axis that has none."""

    queries: Listed = None
    voters: Listed = field(default=None, repr=False)
    labels: Listed = None

    def checked(self, shape: tuple[int, int, int], where: str = "votes") -> Names:
        """Return the names if there is one, of its own, for everything on each axis."""
        for axis, names, size in zip(("query", "voter", "label"), self._axes(), shape, strict=True):
            if names is None:
                continue
            if len(names) != size:
                raise BallotError(
                    f"{where} must have one name a {axis}, {size} of them, got {len(names)}"
                )
            if len(set(names)) < size or not all(names):
                raise BallotError(f"{where} must have a name of its own for every {axis}")
        return self

    def head(self, queries: int) -> Names:
        """Return the names of the first ``queries`` queries."""
        return self if self.queries is None else replace(self, queries=self.queries[:queries])

    def _axes(self) -> tuple[Listed, Listed, Listed]:
        return self.queries, self.voters, self.labels


def listed(values: Any, what: str) -> tuple[str, ...]:
    """Return an array of texts or whole numbers as names."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise BallotError(
            f"{what} must be one axis of texts or integers, got {array.dtype} of shape "
            f"{array.shape}"
        )
    return tuple(str(name).strip() for name in array.tolist())


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in their natural order, numbers in them by size: q2 before q10.

    The order of rows in a file must not decide which query comes first: it may be the order in
    which ballots came in.
    """
    return sorted(names, key=_natural)


def _natural(name: str) -> tuple[Any, ...]:
    if name.isascii() and name.isdigit():  # most names are numbers
        return (("", len(name.lstrip("0")), name.lstrip("0")), (name,))
    parts = _DIGITS.split(name.casefold())
    texts, digits = parts[::2], [part.lstrip("0") for part in parts[1::2]]
    return (
        *((text, len(d), d) for text, d in zip(texts, [*digits, ""], strict=True)),
        (name,),
    )
