"""Before a poll: which mechanism, how close a race it decides, how wide intervals will be.

Only public numbers go in: voters, options, the poll's rule on approvals, the budget, and what the
organiser says beforehand about a typical ballot. So a plan may be published before the poll is
held, and what is chosen here is chosen without looking at a ballot.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting.filters import pinned_order
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon, rounded_up
from ..entropy import WIDEST_ROUNDED
from ..errors import InputError, UnavailableError, finite
from ..ledger import Budget
from ..planning.budget import least
from .mechanisms import (
    Greedy,
    NoisyBits,
    NoisyCounts,
    Peeling,
    PollMechanism,
    PollOutcome,
    PollSize,
    Quota,
    Seats,
    epsilon_of,
    outcome_of,
)

_CLOSE = 1e-4  # how far above the least noise that fits the search may stop, relative
_WORTH = 0.01  # how much less noise a poll on its own must take to be searched
_ROOM = 1e-9  # relative: a curve worked out at all orders may differ by so much from one at one
_TRADE = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the epsilon asked for: what more, or less, would buy
_RUNGS = 24  # of the ladder on either side of the last seat


@dataclass(frozen=True, kw_only=True)
class PollPlan:
    """What a poll will be released with, and what that is good for. All of it is public.

    Attributes
    ----------
    mechanism, size, outcome, shares
        What is drawn, of which poll, who wins by it, and whether counts are published.
    curve
        What a ledger is charged: (orders,) at ``DEFAULT_ORDERS``.
    epsilon, delta, asked
        What the poll costs on its own, for one replaced ballot; and the epsilon that it may cost,
        which a budget that other polls share counts more strictly.
    confidence
        Of the figures below.
    gap
        In votes: with a quota, options this far from the bar are all on their side of it; with
        seats, winners this far ahead of all losers are the ones released; spending money, options
        this far apart are all in their order. With shares the same holds the other way round: what
        is released this far apart, or from the bar, is so in truth.
    interval, apart
        Where counts are drawn: half the width of the intervals of all options at once, in votes,
        and the largest distance of two noises. None otherwise.
    reason
        Why this one, in one sentence.
    """

    mechanism: PollMechanism
    size: PollSize
    outcome: PollOutcome
    shares: bool
    curve: Floats
    epsilon: float
    delta: float
    asked: float
    confidence: float
    gap: float
    interval: int | None
    apart: int | None
    reason: str

    @property
    def chance(self) -> str | None:
        """What to say where no ballots could be far enough apart: then noise picks the winners."""
        outcome, furthest = self.outcome, float(self.size.voters * self.size.each)
        if isinstance(outcome, Quota):
            furthest *= max(outcome.share, 1 - outcome.share)
        if self.gap <= furthest:
            return None
        return (
            f"The winners are random: epsilon {rounded_up(self.asked)} needs so much noise that "
            f"options would have to be {self._distance()}, which is impossible "
            f"with {self.size.voters:,} voters. A larger epsilon helps, and so does a limit on "
            "approvals per ballot."
        )

    @property
    def judges(self) -> bool:
        """Whether what is drawn tells which winners are uncertain."""
        return self.apart is not None or self.chance is not None

    @property
    def decides(self) -> str:
        """How close a race this much noise decides, in words."""
        share, part = self.gap / self.size.voters, ""
        if self.size.each == 1:
            part = f" ({100 * share:.2g} % of the voters)"
            if share > 1:
                part = " (more than there are voters, so the winners are random)"
        return (
            f"options that are {self._distance()} or more{part}, all at once with "
            f"{100 * self.confidence:g} % probability"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a statement says besides the guarantee."""
        marks = "winners that may have lost without the noise are marked uncertain"
        if not self.judges:
            marks = (
                "nothing says whether a race was close, tied or without any approval; noisy "
                "shares would"
            )
        close = f"noise can change the outcome of a close race. This poll decides {self.decides}"
        notes = [f"{close}; {marks}"]
        if self.shares:
            notes.append(
                "the intervals hold for all options at once with probability "
                f"{self.confidence:g}; they cover the noise only, and so do the calls"
            )
        return (*notes, "settings that were chosen by looking at these ballots are not covered")

    def _distance(self) -> str:
        where = "from the bar" if isinstance(self.outcome, Quota) else "apart"
        return f"{self.gap:,.0f} {self.size.unit} {where}"


def plan_poll(
    size: PollSize,
    outcome: PollOutcome,
    *,
    epsilon: float,
    delta: float,
    shares: bool = False,
    mechanism: str = "auto",
    confidence: float = 0.95,
) -> PollPlan:
    """Choose the mechanism of a poll and its noise, from public numbers.

    Parameters
    ----------
    size, outcome
        The poll, and who wins.
    epsilon, delta
        What the poll may cost, for one replaced ballot.
    shares
        Whether counts are to be published, too: then it is noise on counts.
    mechanism
        ``"auto"``: the one that decides the closest race. ``"binary"``: one bit an option, for a
        quota. ``"counts"``: noise on every count. ``"top-m"``: winners one after the other, for
        seats.
    confidence
        Of the gap and of intervals.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    outcome.check(size)
    if not 0 < finite("confidence", confidence) < 1:
        raise InputError("confidence", "must lie strictly between 0 and 1", confidence)
    able = [
        calibrated(candidate, size, budget) for candidate in _candidates(outcome, shares, mechanism)
    ]
    races = [even_race(candidate, size, outcome) for candidate in able]
    chosen = able[races.index(min(races))]
    gap, interval, apart = decided_gap(chosen, size, outcome, confidence), None, None
    if isinstance(chosen, NoisyCounts):
        interval = chosen.noise.within(size.options, confidence)
        apart = chosen.noise.apart(size.options, confidence)
        if shares:  # readers hold released counts against the gap
            gap = max(gap, float(interval if isinstance(outcome, Quota) else apart))
    reason = "it decides the closest race"
    if shares:
        reason = "shares were requested, and the winners follow from the same noisy counts"
    elif mechanism != "auto":
        reason = "requested by name"
    elif len(able) == 1:
        reason = "no other mechanism releases this outcome"
    return PollPlan(
        mechanism=chosen,
        size=size,
        outcome=outcome,
        shares=shares,
        curve=chosen.rdp(size, DEFAULT_ORDERS),
        epsilon=epsilon_of(chosen, size, budget.delta),
        delta=budget.delta,
        asked=budget.epsilon,
        confidence=confidence,
        gap=gap,
        interval=interval,
        apart=apart,
        reason=reason,
    )


def _candidates(outcome: PollOutcome, shares: bool, mechanism: str) -> list[PollMechanism]:
    """Return the mechanisms that can release this outcome, with any noise."""
    able: list[PollMechanism] = []
    if isinstance(outcome, Quota) and not shares:
        able.append(NoisyBits(sigma=1.0, quota=outcome.share))
    if isinstance(outcome, Seats) and not shares:
        able.append(Peeling(rate=1.0, seats=outcome.number))
    able.append(NoisyCounts(sigma=1.0))  # last: others tell less
    named = [candidate for candidate in able if mechanism in ("auto", candidate.name)]
    if not named:
        names = ", ".join(("auto", *(candidate.name for candidate in able)))
        raise UnavailableError("mechanism", f"must be one of {names} for this outcome", mechanism)
    return named


def calibrated(mechanism: PollMechanism, size: PollSize, budget: Budget) -> PollMechanism:
    """Return the mechanism with the least noise whose price fits the budget.

    By its Rényi cost, or by :func:`.epsilon_of`, where that is better.
    """
    pinned = np.array([pinned_order(budget.epsilon, budget.delta)])

    limit = budget.epsilon * (1 - _ROOM)

    def shares(noise: float) -> bool:
        curve = mechanism.scaled(noise).rdp(size, pinned)
        return float(np.max(epsilon(curve, pinned, budget.delta))) <= limit

    def alone(noise: float) -> bool:
        return epsilon_of(mechanism.scaled(noise), size, budget.delta) <= limit

    # Below _CLOSE is no noise to speak of.
    noise = least(shares, 1.0, _CLOSE, low=_CLOSE)
    if alone(noise * (1 - _WORTH)):
        noise = least(alone, noise, _CLOSE, low=_CLOSE)
    bits = 16 - math.frexp(noise)[1]  # up, to a short number
    chosen = mechanism.scaled(math.ldexp(math.ceil(math.ldexp(noise, bits)), -bits))
    if isinstance(chosen, NoisyCounts) and chosen.noise.sigma > WIDEST_ROUNDED:
        raise InputError("epsilon", "must be larger: too much noise", budget.epsilon)
    return chosen


def even_race(mechanism: PollMechanism, size: PollSize, outcome: PollOutcome) -> float:
    """Return the steps of an even ladder of counts that are decided rightly half of the time.

    By this mechanisms are compared. Options are made up: one at each step. The race of
    :func:`decided_gap`, with all losers side by side, is no poll that is held, and makes too much
    of rare large noise where there are many options.
    """
    if not isinstance(outcome, Seats):
        return decided_gap(mechanism, size, outcome, 0.5)
    ladders = []
    for options in size.questions:
        won, lost = outcome.number, options - outcome.number
        above, below = min(won, _RUNGS), min(lost, _RUNGS)
        rungs = np.arange(above, -below, -1, dtype=np.float64)
        times = np.ones(len(rungs), np.int64)
        times[0] += won - above  # further up, or down, nobody is in danger
        times[-1] += lost - below
        ladders.append((rungs, times))

    def right(step: float) -> bool:
        chances = (
            mechanism.chance(step * heights, n, size.voters, outcome) for heights, n in ladders
        )
        return math.prod(chances) >= 0.5

    return least(right, 1.0, 0.01, low=1e-6)


def decided_gap(
    mechanism: PollMechanism, size: PollSize, outcome: PollOutcome, confidence: float
) -> float:
    """Return the closest race that is decided rightly this often, in votes; see `PollPlan.gap`.

    For all options at once, however many are that close: a race with few rivals is decided more
    often.
    """
    if isinstance(outcome, Greedy):
        assert isinstance(mechanism, NoisyCounts)
        # One more than noise moves two counts towards each other: a tie is decided by a coin.
        return float(mechanism.noise.apart(size.options, confidence) + 1)

    def chance(counts: list[float], times: list[int]) -> float:
        return mechanism.chance(np.array(counts), np.array(times), size.voters, outcome)

    def right(gap: int) -> bool:
        if isinstance(outcome, Quota):
            bar = float(outcome.bar(size.voters))
            # Each side on its own: a count that noise moves onto the bar has lost.
            sides = (chance([count], [size.options]) for count in (bar + gap, bar - gap))
            return min(sides) >= confidence
        assert isinstance(outcome, Seats)
        won = outcome.number
        races = (chance([float(gap), 0.0], [won, k - won]) for k in size.questions)
        return math.prod(races) >= confidence

    upper = 1
    while not right(upper):
        upper *= 2
        if upper > 1 << 50:
            return math.inf
    return float(bisect_left(range(upper), True, lo=max(1, upper // 2), key=right))


def poll_plans(
    voters: int,
    options: int,
    *,
    epsilon: float,
    delta: float,
    most: int | None = None,
    each: int = 1,
    seats: int | None = None,
    quota: float | None = None,
    **how: Any,
) -> tuple[list[float], dict[str, list[PollPlan]]]:
    """Plan one poll at several epsilons around the one asked for, without shares and with them.

    Returns the epsilons, and a plan for each under "winners" and under "with shares". Further
    parameters are those of `plan_poll`.
    """
    most = each * options if most is None else most
    size = PollSize(voters=voters, options=options, most=most, each=each)
    outcome = outcome_of(seats, quota)
    Budget(epsilon=epsilon, delta=delta).warn(size.voters)
    asked = [epsilon * times for times in _TRADE]

    plan = partial(plan_poll, size, outcome, delta=delta, **how)
    kinds = {"winners": False, "with shares": True}
    return asked, {
        name: [plan(epsilon=value, shares=shares) for value in asked]
        for name, shares in kinds.items()
    }
