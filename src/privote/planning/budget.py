"""What a budget buys before a vote is cast: queries, an allowance; and the noise a wish needs.

Only public numbers go in: the mechanism, the size of the electorate, the budget. So everything here
may be looked at, and published, before the votes exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ..accounting.allowance import FACTOR, MOST, largest_count
from ..accounting.filters import pinned_order
from ..accounting.renyi import Floats, best_order, check_delta, check_orders, rounded_up
from ..accounting.renyi import epsilon as to_epsilon
from ..errors import BudgetError, InputError, positive, whole
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..votes.cube import MOST as MOST_QUERIES

_TOLERANCE = 1e-3  # relative, on sigma: the number of answers then is right to 0.2 percent
_START, _SIGMAS = 10.0, (1e-3, 1e8)
_PATIENCE = 4  # so many guesses, then a halving: a guess may creep along one end
_FIRST_STEP = 4  # from the expected best order to those it is compared with

Price = Callable[[Floats], Floats]  # from orders to the costs at them
Priced = tuple[float, float]  # a sigma, and the epsilon of the wanted queries with it


def room(mechanism: Mechanism, each: Floats, budget: Budget, most: int = MOST) -> int:
    """Return how many costs ``each`` (orders,), up to ``most``, a fresh budget admits.

    The one count of what fits: it asks the filter that the guardian asks. Unless the budget has a
    rule, it is exclusive, as without a ledger; a ledger that lasts is shared unless told.
    """
    orders = check_orders(None)
    settled = budget.settled("exclusive", orders, mechanism.own_order)
    return settled.filter(orders).fitting(each, most)


def queries_for(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    epsilon: float,
    delta: float,
    *,
    rule: str | None = None,
) -> int:
    """Return how many queries fit under plain worst-case composition.

    Parameters
    ----------
    mechanism
        E.g. ``BinaryVoting(sigma=7.0)``; sigma is PATE's sigma_GNMax.
    voters, labels
        The size of the electorate and of a ballot.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    rule
        As in :class:`privote.Budget`: ``"exclusive"`` by default, one mechanism has the budget for
        itself; ``"shared"``: others may charge it too, as in a ledger that lasts.
    """
    budget = Budget(epsilon=epsilon, delta=delta, rule=rule)
    return room(mechanism, mechanism.worst_case_rdp(voters, labels), budget)


def allowance_for(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    epsilon: float,
    delta: float,
    *,
    rule: str | None = None,
) -> int:
    """Return how many surprises each voter may cast in its life; parameters as `queries_for`.

    0 is a refusal: with such a budget not a query is answered, however quiet the voters are.
    """
    budget = Budget(epsilon=epsilon, delta=delta, rule=rule)
    return room(mechanism, FACTOR * mechanism.surprise_rdp(voters, labels), budget)


def queries_until_out(
    mechanism: Mechanism, labels: int, allowance: int, surprises_per_query: float
) -> int:
    """Return after how many queries a voter with this many surprises a query runs out.

    Take the surprises of the busiest voter to forecast the first who runs out, the mean to forecast
    a typical one. It is a forecast and no promise: epsilon holds whether it is right or not.
    """
    return math.floor(allowance / check_surprises(mechanism, labels, surprises_per_query))


def check_surprises(mechanism: Mechanism, labels: int, surprises_per_query: float) -> float:
    """Return ``surprises_per_query`` if a ballot can hold that many."""
    value = positive("surprises_per_query", surprises_per_query)
    most = labels if mechanism.surprise_unit == "vote" else 1
    if value > most:
        unit = "single votes" if mechanism.surprise_unit == "vote" else "whole ballots"
        raise InputError(
            "surprises_per_query",
            f"must be at most {most} for {mechanism.name}, which counts {unit}; got {value:g}",
        )
    return value


def unanimous_miss(mechanism: Mechanism, voters: int, labels: int) -> float:
    """Return how often one label that every voter wants, and nothing else, is not released as 1.

    The plainest sign of how much the noise hurts: a mechanism that misses this often will serve a
    divided electorate worse.
    """
    if not isinstance(mechanism, Mechanism):
        raise InputError("mechanism", "must be a privote mechanism", mechanism)
    return 1 - mechanism.unanimous(voters, labels)


# -- how much noise a wanted number of queries needs, by bisection ---------------------------------


def sigma_for(
    make: Callable[[float], Mechanism],
    voters: int,
    labels: int,
    epsilon: float,
    delta: float,
    wanted: int,
    *,
    guarantee: str = "worst-case",
    surprises_per_query: float | None = None,
) -> float:
    """Return the smallest sigma, to a thousandth, with which ``wanted`` queries fit.

    Parameters
    ----------
    make
        From a sigma to the mechanism, e.g. ``lambda s: BinaryVoting(sigma=s)``. More noise must not
        buy fewer queries, which holds for every mechanism here.
    voters, labels, epsilon, delta
        As in `queries_for`.
    wanted
        How many queries.
    guarantee
        ``"worst-case"``: ``wanted`` queries fit whatever the votes. ``"allowance"``: the allowance
        lasts ``wanted`` queries for a voter with ``surprises_per_query``.

    Returns
    -------
    A sigma that was seen to be enough; the bracket's lower end was seen not to be.
    """
    budget = positive("epsilon", epsilon)
    where = (voters, labels, budget, check_delta(delta))
    price = _price(make, where, wanted, guarantee, surprises_per_query)
    return _bisected(price, budget, *_bracket(price, budget))


def _price(
    make: Callable[[float], Mechanism],
    where: tuple[int, int, float, float],
    wanted: int,
    guarantee: str,
    surprises_per_query: float | None,
) -> Callable[[float], float]:
    """Return the epsilon of the wanted queries as a function of sigma."""
    whole("wanted", wanted, most=MOST_QUERIES)
    if guarantee not in ("worst-case", "allowance"):
        raise InputError("guarantee", "must be worst-case or allowance", guarantee)
    if (guarantee == "allowance") != (surprises_per_query is not None):
        raise InputError(
            "surprises_per_query",
            f"goes with guarantee 'allowance' and only with it, got {surprises_per_query!r} "
            f"with {guarantee!r}",
        )
    voters, labels, budget, delta = where
    check_electorate(voters, labels)
    few = FewOrders(budget, delta)

    def price(value: float) -> float:
        mechanism = make(value)
        if surprises_per_query is None:
            return few.epsilon(partial(mechanism.worst_case_rdp, voters, labels), wanted)
        each = check_surprises(mechanism, labels, surprises_per_query)
        surprise = partial(mechanism.surprise_rdp, voters, labels)
        return few.epsilon(surprise, FACTOR * math.ceil(wanted * each))

    return price


def _bracket(price: Callable[[float], float], budget: float) -> tuple[Priced, Priced]:
    """Return a sigma that fits and one that does not, by steps scaled to what was seen."""
    here = (_START, price(_START))
    while True:
        fits = here[1] <= budget
        # Epsilon grows about as 1/sigma; a fifth further, to land on the other side.
        ratio = min(max(budget / max(here[1], 1e-300), 1e-2), 1e2)
        step = 1.2 * max(ratio, 1.0) if fits else min(ratio, 1.0) / 1.2
        value = min(max(here[0] * (1 / step), _SIGMAS[0]), _SIGMAS[1])
        if value == here[0]:
            raise BudgetError(
                f"no sigma from {_SIGMAS[0]:g} to {_SIGMAS[1]:g} is just enough: at {value:.3g} "
                f"the wanted queries cost epsilon {rounded_up(here[1], 3)}, and the budget is "
                f"{rounded_up(budget)}"
            )
        there = (value, price(value))
        if (there[1] <= budget) != fits:
            return (here, there) if fits else (there, here)
        here = there


def _bisected(
    price: Callable[[float], float], budget: float, fits: Priced, exceeds: Priced
) -> float:
    """Narrow a bracket, and return the end that fits."""
    tries = 0
    while abs(math.log(exceeds[0] / fits[0])) > _TOLERANCE:
        tries += 1
        share = 0.5 if tries % _PATIENCE == 0 else _share(fits, exceeds, budget)
        middle = _between(fits, exceeds, share)
        seen = (middle, price(middle))
        fits, exceeds = (seen, exceeds) if seen[1] <= budget else (fits, seen)
    return fits[0]


def _share(fits: Priced, exceeds: Priced, budget: float) -> float:
    """Return how far from the end that fits epsilon meets the budget, if it is a power law."""
    if not (math.isfinite(exceeds[1]) and fits[1] > 0):
        return 0.5
    return math.log(budget / fits[1]) / math.log(exceeds[1] / fits[1])


def _between(fits: Priced, exceeds: Priced, share: float) -> float:
    """Return a value so far along the bracket, on logarithms.

    It keeps almost the tolerance away from either end: if it falls on the other side, that is it.
    """
    way = math.log(exceeds[0] / fits[0])
    edge = min(0.9 * _TOLERANCE / abs(way), 0.5)
    return fits[0] * math.exp(way * min(max(share, edge), 1 - edge))


class FewOrders:
    """Finds the order that settles a budget from a few of them, and starts there the next time.

    Epsilon has one valley over the orders. So an order that is better than both of its neighbours
    is the best of all, and the others need not be priced. Were it not, epsilon would be overstated,
    and never understated.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self._budget, self._delta = epsilon, delta
        self._orders = check_orders(None)
        likely = pinned_order(epsilon, delta, self._orders)
        self._place, self._step = int(np.searchsorted(self._orders, likely)), _FIRST_STEP

    def largest(self, price: Price) -> int:
        """Return how many times ``price(orders)`` fits the budget."""

        def count(curve: Floats, few: Floats) -> int:
            return largest_count(curve, few, self._budget, self._delta)

        return count(*self._settled(price, count))

    def epsilon(self, price: Price, times: int) -> float:
        """Return the epsilon of so many times ``price(orders)``."""
        curve, few = self._settled(price, lambda *_: times)
        return float(np.max(to_epsilon(times * curve, few, self._delta)))

    def _settled(
        self, price: Price, times: Callable[[Floats, Floats], int]
    ) -> tuple[Floats, Floats]:
        """Return costs and orders among which is the best for so many times the price."""
        known: dict[int, float] = {}
        step, last = self._step, len(self._orders) - 1
        while True:
            near = {max(self._place - step, 0), self._place, min(self._place + step, last)}
            fresh = sorted(near - known.keys())
            if fresh:
                known |= dict(zip(fresh, price(self._orders[fresh]).tolist(), strict=True))
            places = sorted(known)
            few, curve = self._orders[places], np.array([known[i] for i in places])
            best = best_order(max(times(curve, few), 1) * curve, few, self._delta)
            place = places[int(np.searchsorted(few, best))]
            if place == self._place and step == 1:
                self._step = 1
                return curve, few
            step = step // 2 if place == self._place else 2 * step
            self._place = place
