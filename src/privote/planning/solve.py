"""How much noise, or how much clipping, a wanted number of answers needs: by bisection.

Public numbers only, as in :mod:`privote.planning.budget`. Each step is another mechanism, and slow
ones are not priced at every Rényi order: :class:`FewOrders`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ..accounting.allowance import FACTOR, largest_count
from ..accounting.filters import pinned_order
from ..accounting.renyi import Floats, best_order, check_delta, check_orders, rounded_up
from ..accounting.renyi import epsilon as to_epsilon
from ..errors import BudgetError, InputError, positive, whole
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..votes.cube import MOST
from .budget import check_surprises

_TOLERANCE = 1e-3  # relative, on sigma and tau: the number of answers then is right to 0.2 percent
_START, _SIGMAS = 10.0, (1e-3, 1e8)
_PATIENCE = 4  # so many guesses, then a halving: a guess may creep along one end
_LEAST_TAU = 0.5  # with less, a label that every voter names alone stays below half the voters
_FIRST_STEP = 4  # from the expected best order to those it is compared with

Price = Callable[[Floats], Floats]  # from orders to the costs at them
Priced = tuple[float, float]  # a sigma or tau, and the epsilon of the wanted queries with it


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
    fits, exceeds = _bracket(price, budget, _START, _SIGMAS, rising=False)
    if fits is None or exceeds is None:
        last = fits or exceeds
        assert last is not None
        raise BudgetError(
            f"no sigma from {_SIGMAS[0]:g} to {_SIGMAS[1]:g} is just enough: at {last[0]:.3g} the "
            f"wanted queries cost epsilon {rounded_up(last[1], 3)}, and the budget is "
            f"{rounded_up(budget)}"
        )
    return _bisected(price, budget, fits, exceeds)[0]


def tau_for(
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
    """Return the largest tau, to a thousandth, with which ``wanted`` queries fit.

    A smaller tau is cheaper and clips more ballots, so the largest that fits is the one to use. If
    whole ballots fit, that is the norm of a ballot that says yes to everything: no tau beyond it
    changes anything. Which of several pairs (sigma, tau) for the same number of queries gives
    the better labels depends on the votes: `tune_tau` finds out on public ones.

    Parameters
    ----------
    make
        From a tau to the mechanism, e.g. ``lambda t: TauVoting(sigma=9.0, tau=t)``.
    voters, labels, epsilon, delta, wanted, guarantee, surprises_per_query
        As in `sigma_for`; an allowance counts whole ballots here.

    Returns
    -------
    A tau that was seen to fit; unless it is the whole norm, the bracket's upper end was seen not
    to. A refusal if it would have to be below 1/2, where a label that every voter names alone does
    not reach half of the voters.
    """
    budget = positive("epsilon", epsilon)
    where = (voters, labels, budget, check_delta(delta))
    price = _price(make, where, wanted, guarantee, surprises_per_query)
    shown = make(1.0).parameters()
    if not {"tau", "norm"} <= shown.keys():
        raise InputError("make", "must return a mechanism with a tau", shown["mechanism"])
    longest = float(labels ** (1 / shown["norm"]))
    fits, exceeds = _bracket(price, budget, 1.0, (_LEAST_TAU, longest), rising=True)
    if fits is None:
        assert exceeds is not None
        raise BudgetError(
            f"no tau from {_LEAST_TAU:g} is small enough: there the {wanted} queries cost epsilon "
            f"{rounded_up(exceeds[1], 3)}, and the budget is {rounded_up(budget)}; with a smaller "
            "tau no label could "
            "win half of the voters, so use a larger sigma or fewer queries"
        )
    return fits[0] if exceeds is None else _bisected(price, budget, fits, exceeds)[0]


def _price(
    make: Callable[[float], Mechanism],
    where: tuple[int, int, float, float],
    wanted: int,
    guarantee: str,
    surprises_per_query: float | None,
) -> Callable[[float], float]:
    """Return the epsilon of the wanted queries as a function of sigma, or of tau."""
    whole("wanted", wanted, most=MOST)
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


def _bracket(
    price: Callable[[float], float],
    budget: float,
    start: float,
    ends: tuple[float, float],
    *,
    rising: bool,
) -> tuple[Priced | None, Priced | None]:
    """Return a value that fits and one that exceeds the budget, by steps scaled to what was seen.

    None in place of what is not there between the ends; the other is then the last one seen.
    """
    here = (start, price(start))
    while True:
        fits = here[1] <= budget
        # Epsilon grows about as tau does, and as 1/sigma; a fifth further, to land on the other
        # side.
        ratio = min(max(budget / max(here[1], 1e-300), 1e-2), 1e2)
        step = 1.2 * max(ratio, 1.0) if fits else min(ratio, 1.0) / 1.2
        value = min(max(here[0] * (step if rising else 1 / step), ends[0]), ends[1])
        if value == here[0]:
            return (here, None) if fits else (None, here)
        there = (value, price(value))
        if (there[1] <= budget) != fits:
            return (here, there) if fits else (there, here)
        here = there


def _bisected(
    price: Callable[[float], float], budget: float, fits: Priced, exceeds: Priced
) -> Priced:
    """Narrow a bracket, whichever end of it fits, and return that end."""
    tries = 0
    while abs(math.log(exceeds[0] / fits[0])) > _TOLERANCE:
        tries += 1
        share = 0.5 if tries % _PATIENCE == 0 else _share(fits, exceeds, budget)
        middle = _between(fits, exceeds, share)
        seen = (middle, price(middle))
        fits, exceeds = (seen, exceeds) if seen[1] <= budget else (fits, seen)
    return fits


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
