"""How neighbours are asked: noise, shares and passes, from public numbers only.

Asked with a share for every label (:func:`privote.learning.balanced_shares`), a label gets ``AIM``
times the bar of votes on an average query, whatever its prevalence. So a record casts about
``passes * queries * labels * AIM * bar / voters`` votes, and its allowance has to pay for them. The
bar grows with sigma, the allowance with its square: for any number of passes there is a least sigma
with which they last. More passes teach more and need more noise, so wider circles, which blur.

The constants were chosen on one split of aviation reports and of three smaller data sets (see
docs/training.md); they are public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...accounting.allowance import FACTOR
from ...errors import InputError, whole
from ...guardian import AUTO
from ...mechanisms import BinaryVoting, Mechanism
from ...planning import FewOrders
from ..rows import Floats, Labels, check_groups
from ..voters import VoterNames
from .ballots import NeighbourBallots
from .student import bar_of

FALSE_ALARM = 0.05
AIM = 0.45  # votes on an average query, as a part of the bar
_COMMON = 0.1  # the prevalence of a label that the first batch expects
_CIRCLE = 20  # public rows in the circle of such a label: more passes widen it up to here
_PASSES = 8  # at the most
_LEAST_ROWS = 4  # of a circle
_WIDEST = 0.1  # share of the first batch: beyond, fewer queries are asked instead
_LEAST_ALLOWANCE = 10
_FIRST = (20, 1000)  # queries of the first batch: a tenth of all, within these
_START, _SIGMAS = 100.0, (0.1, 1e8)
_STEPS, _CLOSE = 8, 0.02
_BUSIEST = 2.0  # times the mean: some records are near many more queries than others
_ENOUGH = 0.9  # of the rows: a forecast is no closer than that
_SHARE = 0.01  # of one share for all labels, where none is given


@dataclass(frozen=True, kw_only=True)
class NeighbourPlan:
    """How a pool is asked.

    Attributes
    ----------
    mechanism
        Binary voting with a sigma and a bar, or another with a noisy bar.
    share
        Of the first batch, one for all labels.
    queries, first, passes
        How many public rows are asked, how many of them in the first batch, and how often each.
    """

    mechanism: Mechanism
    share: float
    queries: int
    first: int
    passes: int

    @property
    def answers(self) -> int:
        """How many answers there will be: every row in every pass, the first batch in one."""
        return self.passes * self.queries

    def rounded(self, shares: Floats, rows: int) -> Floats:
        """Return shares a factor of two apart, so that there are few different circles."""
        least = min(1.0, _LEAST_ROWS / rows)
        steps = np.round(np.log2(np.maximum(shares, least) / self.share))
        return np.asarray(np.clip(self.share * 2.0**steps, least, 1.0))


def can_balance(mechanism: Mechanism | None, guarantee: str, voters: int) -> bool:
    """Return whether a pool can be asked with a share for every label, and more than once."""
    if guarantee not in (
        AUTO,
        "allowance",
    ):  # elsewhere answers cost the same
        return False
    if mechanism is None:
        return True
    bar = mechanism.noisy_bar(voters)
    return bar is not None and bar[0] < voters / 2  # the votes of a few can reach it


def plan_neighbours(
    voters: int,
    labels: int,
    rows: int,
    epsilon: float,
    delta: float,
    *,
    mechanism: Mechanism | None = None,
    queries: int | None = None,
) -> NeighbourPlan:
    """Return how to ask a pool of so many rows; see the module for the rule.

    Parameters
    ----------
    voters, labels
        The size of the electorate: records, or persons.
    rows
        Public rows.
    epsilon, delta
        The budget.
    mechanism
        By default Binary voting with the least sigma with which the passes last.
    queries
        How many rows to ask; by default all, or as many as the allowance is expected to last for.
    """
    wanted = rows if queries is None else whole("queries", queries)
    if wanted > rows:
        raise InputError("queries", f"must lie in 1..{rows}, the public rows, got {queries}")
    size = _Electorate(voters, labels, epsilon, delta)
    if mechanism is None:
        sigma, passes = size.default(wanted, rows)
        mechanism = _voting(sigma)
    else:
        passes = max(1, min(_PASSES, int(size.lasting(mechanism) / wanted)))
    lasting = int(size.lasting(mechanism) / passes)
    if queries is None and lasting < _ENOUGH * wanted:
        wanted = max(1, lasting)
    least, most = _FIRST
    return NeighbourPlan(
        mechanism=mechanism,
        share=max(min(size.share(mechanism), _WIDEST), min(1.0, _LEAST_ROWS / rows)),
        queries=wanted,
        first=min(max(wanted // 10, least), most, wanted),
        passes=passes,
    )


@dataclass(frozen=True)
class _Electorate:
    """Public sizes, and what they make of a mechanism."""

    voters: int
    labels: int
    epsilon: float
    delta: float

    @cached_property
    def _few(self) -> FewOrders:
        return FewOrders(self.epsilon, self.delta)

    def default(self, queries: int, rows: int) -> tuple[float, int]:
        """Return a sigma, and how often every query is asked with it."""
        single = self.least(queries)
        once = self.share(_voting(single))
        passes = max(1, min(_PASSES, round(_CIRCLE / rows / once)))
        if passes > 1:
            return self.least(passes * queries, passes * single), passes
        if once <= _WIDEST:
            return single, 1
        # Too many queries for so few voters: the noise of as many as circles can serve.
        return max(float(f"{_WIDEST / once * single:.3g}"), self.least(1)), 1

    def least(self, answers: int, sigma: float = _START) -> float:
        """Return about the least sigma with which so many answers last.

        The search starts from ``sigma``.
        """
        for _ in range(_STEPS):
            mechanism = _voting(sigma)
            needed = _BUSIEST * answers * self._cast(mechanism)
            there = self._allowance(mechanism)
            # What is needed grows with sigma and what is there with its square, or nearly so.
            change = max(needed / max(there, 0.25), math.sqrt(_LEAST_ALLOWANCE / max(there, 0.25)))
            sigma = min(max(sigma * change, _SIGMAS[0]), _SIGMAS[1])
            if abs(change - 1) < _CLOSE:
                break
        return float(f"{sigma:.3g}")

    def share(self, mechanism: Mechanism) -> float:
        """Return with which share a label of common prevalence gets the votes aimed at."""
        return self._votes(mechanism) / (_COMMON * self.voters)

    def lasting(self, mechanism: Mechanism) -> float:
        """Return how many answers the allowance is expected to last for."""
        return self._allowance(mechanism) / (_BUSIEST * self._cast(mechanism))

    def _allowance(self, mechanism: Mechanism) -> int:
        # A plan and no promise: the guardian works its allowance out at all orders.
        def price(orders: Floats) -> Floats:
            return FACTOR * mechanism.surprise_rdp(self.voters, self.labels, orders)

        return self._few.largest(price)

    def _votes(self, mechanism: Mechanism) -> float:
        return AIM * max(bar_of(mechanism, self.voters, "a plan for neighbours")[0], 1e-9)

    def _cast(self, mechanism: Mechanism) -> float:
        """Return what a record casts on one query, on average."""
        return self.labels * self._votes(mechanism) / self.voters


def _voting(sigma: float) -> Mechanism:
    return BinaryVoting(sigma=sigma, false_alarm=FALSE_ALARM)


def neighbour_voters(
    settings: Any, X: Any, Y: Labels, X_public: Any, who: VoterNames
) -> tuple[NeighbourBallots, Mechanism, NeighbourPlan | None]:
    """Return the ballots, the mechanism, and how to ask in passes; None with one share.

    ``settings`` are those of :class:`privote.learning.PATEClassifier`.
    """
    groups, (records, _) = who.groups, check_groups(who.ids, X.shape[0], "ids")
    if groups is None and records is not None and len(records) < X.shape[0]:
        groups = who.ids  # rows of one name are one record, so one voter
    names, _ = check_groups(groups, X.shape[0])
    voters = X.shape[0] if names is None else len(names)  # how many records persons have is private
    named = isinstance(settings.mechanism, Mechanism)
    share, mechanism, plan = settings.share, settings.mechanism if named else None, None
    if share is None and can_balance(mechanism, settings.guarantee, voters):
        if settings.rounds != 1 or settings.choose != "random":
            raise InputError(
                "rounds and choose go with `voters='teachers'`, or with neighbours of one share: "
                f"give share a number; got `rounds={settings.rounds!r}`, choose={settings.choose!r}"
            )
        plan = plan_neighbours(
            voters,
            Y.shape[1],
            X_public.shape[0],
            settings.epsilon,
            settings.delta,
            mechanism=mechanism,
            queries=settings.queries,
        )
        share, mechanism = plan.share, plan.mechanism
    share = _SHARE if share is None else share
    near = NeighbourBallots(
        X,
        Y,
        X_public,
        share=share,
        metric=settings.metric,
        radius="query",
        embedding=settings.embedding,
        groups=groups,
    )
    # Noise that suits the neighbours to be expected with one share.
    return near, mechanism or _voting(max(1.0, share * voters / 5)), plan
