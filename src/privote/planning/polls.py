"""Before a poll: which mechanism, how close a race it decides, how wide intervals will be.

Only public numbers go in: voters, options, the poll's rule on approvals, the budget, and what the
organiser says beforehand about a typical ballot. So a plan may be published before the poll is
held, and what is chosen here is chosen without looking at a ballot.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting.filters import pinned_order
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon, rounded_up
from ..entropy import WIDEST_ROUNDED
from ..errors import InputError, UnavailableError, finite
from ..ledger import Budget
from ..mechanisms.outcomes import Greedy, PollOutcome, PollSize, Quota, Seats
from ..mechanisms.polls import NoisyBits, NoisyCounts, Peeling, PollMechanism
from .budget import least

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
    mechanism, size, outcome
        What is drawn, of which poll, and who wins by it.
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
    interval
        Half the width of the intervals of all options at once, in votes; None without shares.
    reason
        Why this one, in one sentence.
    """

    mechanism: PollMechanism
    size: PollSize
    outcome: PollOutcome
    curve: Floats
    epsilon: float
    delta: float
    asked: float
    confidence: float
    gap: float
    interval: int | None
    reason: str

    @property
    def apart(self) -> str:
        """From what the gap is measured, in words."""
        return "from the bar" if isinstance(self.outcome, Quota) else "apart"

    @property
    def chance(self) -> str | None:
        """What to say where no ballots could be far enough apart: then noise picks the winners."""
        outcome, furthest = self.outcome, float(self.size.voters * self.size.each)
        if isinstance(outcome, Quota):
            furthest *= max(outcome.share, 1 - outcome.share)
        unit = "votes" if self.size.each == 1 else "points"
        if self.gap <= furthest:
            return None
        return (
            f"The winners are random: epsilon {rounded_up(self.asked)} needs so much noise that "
            f"options would have to be {self.gap:,.0f} {unit} {self.apart}, which is impossible "
            f"with {self.size.voters:,} voters. A larger epsilon helps, and so does a limit on "
            "approvals per ballot."
        )


def plan_poll(
    size: PollSize,
    outcome: PollOutcome,
    *,
    epsilon: float,
    delta: float,
    shares: bool = False,
    mechanism: str = "auto",
    confidence: float = 0.95,
    shared: bool = False,
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
    shared
        Whether the price must fit a budget that other polls may charge, too, as in a ledger.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    outcome.check(size)
    if not 0 < finite("confidence", confidence) < 1:
        raise InputError("confidence", "must lie strictly between 0 and 1", confidence)
    made = _candidates(outcome, shares, mechanism)
    settled = {name: calibrated(each, size, budget, shared=shared) for name, each in made}
    considered = {name: even_race(each, size, outcome) for name, each in settled.items()}
    best = min(considered, key=considered.__getitem__)
    chosen = settled[best]
    gap, interval = decided_gap(chosen, size, outcome, confidence), None
    if shares and isinstance(chosen, NoisyCounts):  # readers hold released counts against the gap
        interval = chosen.noise.within(size.options, confidence)
        apart = chosen.noise.apart(size.options, confidence)
        gap = max(gap, float(interval if isinstance(outcome, Quota) else apart))
    return PollPlan(
        mechanism=chosen,
        size=size,
        outcome=outcome,
        curve=chosen.rdp(size, DEFAULT_ORDERS),
        epsilon=chosen.epsilon(size, budget.delta),
        delta=budget.delta,
        asked=budget.epsilon,
        confidence=confidence,
        gap=gap,
        interval=interval,
        reason=_reason(best, considered, mechanism, shares),
    )


def _candidates(
    outcome: PollOutcome, shares: bool, mechanism: str
) -> list[tuple[str, PollMechanism]]:
    """Return the mechanisms that can release this outcome, by name, with any noise."""
    able: list[tuple[str, PollMechanism]] = []
    if isinstance(outcome, Quota) and not shares:
        able.append(("binary", NoisyBits(sigma=1.0, quota=outcome.share)))
    if isinstance(outcome, Seats) and not shares:
        able.append(("top-m", Peeling(rate=1.0, seats=outcome.number)))
    able.append(("counts", NoisyCounts(sigma=1.0)))  # last: others tell less
    named = [each for each in able if mechanism in ("auto", each[0])]
    if not named:
        names = ", ".join(("auto", *(name for name, _ in able)))
        raise UnavailableError("mechanism", f"must be one of {names} for this outcome", mechanism)
    return named


def calibrated(
    mechanism: PollMechanism, size: PollSize, budget: Budget, *, shared: bool = False
) -> PollMechanism:
    """Return the mechanism with the least noise whose price fits the budget.

    First at the one order at which a shared budget is counted: a poll that takes the whole budget
    of a ledger fits it. Unless it is ``shared``, by :meth:`.PollMechanism.epsilon`, where that is
    better.
    """
    pinned = np.array([pinned_order(budget.epsilon, budget.delta)])

    def shares(scaled: PollMechanism) -> float:
        return float(np.max(epsilon(scaled.rdp(size, pinned), pinned, budget.delta)))

    def alone(scaled: PollMechanism) -> float:
        return scaled.epsilon(size, budget.delta)

    def fits(price: Callable[[PollMechanism], float], noise: float) -> bool:
        return price(mechanism.scaled(noise)) <= budget.epsilon * (1 - _ROOM)

    # Below _CLOSE is no noise to speak of.
    noise = least(partial(fits, shares), 1.0, _CLOSE, low=_CLOSE)
    if not shared and fits(alone, noise * (1 - _WORTH)):
        noise = least(partial(fits, alone), noise, _CLOSE, low=_CLOSE)
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
        chances = (mechanism.chance(step * at, n, size.voters, outcome) for at, n in ladders)
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

    most = 1
    while not right(most):
        most *= 2
        if most > 1 << 50:
            return math.inf
    return float(bisect_left(range(most), True, lo=max(1, most // 2), key=right))


def _reason(name: str, considered: Mapping[str, float], asked: str, shares: bool) -> str:
    if shares:
        return "shares were requested, and the winners follow from the same noisy counts"
    if asked != "auto":
        return "requested by name"
    if len(considered) == 1:
        return "no other mechanism releases this outcome"
    others = ", ".join(
        f"with {other} the gap would have to be {gap / considered[name]:.2g} times as large"
        for other, gap in considered.items()
        if other != name
    )
    return f"it decides the closest race; {others}"


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
    if seats is not None and quota is not None:
        raise InputError("seats", "cannot be combined with `quota`: both decide who wins", seats)
    size = PollSize(
        voters=voters,
        options=options,
        most=each * options if most is None else most,
        each=each,
    )
    outcome: PollOutcome = Quota(share=0.5 if quota is None else quota)
    if seats is not None:
        outcome = Seats(number=seats)
    Budget(epsilon=epsilon, delta=delta).warn(size.voters)
    asked = [epsilon * times for times in _TRADE]
    return asked, {
        name: [
            plan_poll(size, outcome, epsilon=value, delta=delta, shares=shares, **how)
            for value in asked
        ]
        for name, shares in (("winners", False), ("with shares", True))
    }
