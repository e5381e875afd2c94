"""Questions to people: their public numbers, and who wins by counts.

What is decided from counts that were released costs nothing more, so an outcome is the same for
true counts, which are sealed, and for noisy ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.counts import squared_shift
from ..errors import InputError, UnavailableError, positive, whole
from ..mechanisms.base import Bools
from ..votes.cube import MOST

Whole = npt.NDArray[np.int64]
_HALF = 0.5  # the quota where no rule is given


@dataclass(frozen=True, kw_only=True)
class PollSize:
    """The public numbers of a poll.

    Attributes
    ----------
    voters, options
        How many; the number of voters is public.
    most
        How many approvals a ballot may have on a question, or points in all, by the poll's rule;
        without a rule as many as there are options (times ``each``). Never what the largest has.
    each
        How many points a ballot may give an option; 1 for approvals.
    questions
        How many of the options each question has; default: there is one.
    """

    voters: int
    options: int
    most: int
    each: int = 1
    questions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", self.questions or (self.options,))
        for name in ("voters", "options", "each"):
            object.__setattr__(self, name, whole(name, getattr(self, name), most=MOST))
        object.__setattr__(self, "most", min(whole("most", self.most), self.each * self.options))

    @property
    def squared_shift(self) -> int:
        """How far one replaced ballot moves the counts: the squared length, over all questions."""
        return sum(squared_shift(options, self.most, self.each) for options in self.questions)

    @property
    def places(self) -> list[npt.NDArray[np.intp]]:
        """Where each question's options stand among all of them."""
        return np.split(np.arange(self.options), np.cumsum(self.questions)[:-1])

    @property
    def changes(self) -> int:
        """On how many options two ballots can differ, over all questions."""
        return sum(min(2 * self.most, options) for options in self.questions)

    @property
    def unit(self) -> str:
        """What a ballot gives an option."""
        return "votes" if self.each == 1 else "points"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Every option wins that more than this share of the voters approve."""

    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", positive("quota", self.share))
        if not self.share < 1:
            raise InputError("quota", "must lie strictly between 0 and 1", self.share)

    def check(self, size: PollSize) -> None:
        """Refuse points: a share of the voters is about approvals."""
        if size.each > 1:
            rule = "needs approvals, and this poll has points: give `each=1`"
            raise UnavailableError("quota", rule)

    def bar(self, voters: int) -> Fraction:
        """Return the count to exceed, exactly: the share is the decimal that was typed."""
        return Fraction(repr(self.share)) * voters

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options lie above the bar: (options,)."""
        bar = self.bar(voters)
        whole = np.issubdtype(counts.dtype, np.integer)
        return np.asarray(counts > (math.floor(bar) if whole else float(bar)))

    def describe(self) -> str:
        """Return the rule in words."""
        return f"every option that more than {self.share:.6g} of the voters approve"


@dataclass(frozen=True, kw_only=True)
class Seats:
    """So many options win: those with the largest counts."""

    number: int

    def surely(self, option: int, ahead: list[int]) -> bool:
        """Return whether a seat is left for an option after all of those ahead."""
        return len(ahead) < self.number

    def check(self, size: PollSize) -> None:
        """Refuse a number of seats that leaves nothing to decide."""
        whole("seats", self.number, most=max(min(size.questions) - 1, 1))

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options are among the largest: (options,); see :func:`ranking`."""
        won = np.zeros(len(counts), bool)
        won[ranking(counts, order)[: self.number]] = True
        return won

    def describe(self) -> str:
        """Return the rule in words."""
        return f"the {self.number} most approved" if self.number > 1 else "the most approved"


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Options win from the largest count down, each whose cost what is left of the money covers."""

    costs: tuple[Fraction, ...]
    money: Fraction

    def surely(self, option: int, ahead: list[int]) -> bool:
        """Return whether the money covers an option after all of those ahead."""
        return self.costs[option] + sum(self.costs[other] for other in ahead) <= self.money

    def check(self, size: PollSize) -> None:
        """Refuse costs that are not one for each option."""
        if len(self.costs) != size.options:
            raise InputError("costs", f"must be {size.options}, one per option", len(self.costs))

    def winners(self, counts: npt.NDArray[Any], voters: int, order: Whole | None = None) -> Bools:
        """Return which options are paid for: (options,); see :func:`ranking`."""
        won, left = np.zeros(len(counts), bool), self.money
        for option in ranking(counts, order).tolist():
            if self.costs[option] <= left:
                won[option] = True
                left -= self.costs[option]
        return won

    def describe(self) -> str:
        """Return the rule in words."""
        return f"in order of approvals, up to {float(self.money):,.12g} of money (greedy)"


PollOutcome = Quota | Seats | Greedy


def outcome_of(
    seats: int | None,
    quota: float | None,
    costs: tuple[Fraction, ...] | None = None,
    money: Fraction | None = None,
) -> PollOutcome:
    """Return who wins: by seats, by a quota, by the options' costs, else by a quota of one half."""
    if seats is not None and quota is not None:
        raise InputError("seats", "cannot be combined with `quota`: both decide who wins", seats)
    if seats is not None:
        return Seats(number=seats)
    if quota is None and costs is not None and money is not None:
        return Greedy(costs=costs, money=money)
    return Quota(share=_HALF if quota is None else quota)


def ranking(counts: npt.NDArray[Any], order: Whole | None = None) -> npt.NDArray[np.intp]:
    """Return the options from the largest count down.

    Ties go by ``order`` (options,), a permutation; without one by place.
    """
    ties = np.arange(len(counts)) if order is None else order
    return np.asarray(np.lexsort((ties, -np.asarray(counts))))
