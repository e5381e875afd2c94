"""What a budget buys before a vote is cast, and how much noise a wanted number of answers needs.

Only public numbers go in: the mechanism, the size of the electorate, the budget. So everything here
may be looked at, and published, before the votes exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .accounting.allowance import FACTOR, largest_allowance, largest_count
from .accounting.renyi import Floats, best_order, check_delta, check_orders
from .accounting.renyi import epsilon as to_epsilon
from .errors import BudgetError, InputError, positive
from .mechanisms import Mechanism, PluralityVoting, PowersetVoting
from .mechanisms.base import check_electorate
from .mechanisms.cells import CellMechanism

_TOLERANCE = 1e-3  # relative, on sigma: the number of answers then is right to 0.2 percent
_START, _SMALLEST, _LARGEST = 10.0, 1e-3, 1e8
_WINDOW = 8  # so many orders on either side of the expected best one are looked at
_EDGE = 0.02  # a guess keeps this share of the bracket's width away from either end


def queries_for(
    mechanism: Mechanism, voters: int, labels: int, epsilon: float, delta: float
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
    """
    orders = check_orders(None)
    curve = mechanism.worst_case_rdp(voters, labels, orders)
    return largest_count(curve, orders, positive("epsilon", epsilon), check_delta(delta))


def allowance_for(
    mechanism: Mechanism, voters: int, labels: int, epsilon: float, delta: float
) -> int:
    """Return how many surprises each voter may cast in its life; parameters as `queries_for`."""
    orders = check_orders(None)
    curve = mechanism.surprise_rdp(voters, labels, orders)
    return largest_allowance(curve, orders, positive("epsilon", epsilon), check_delta(delta))


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
            f"surprises_per_query must be at most {most} for {mechanism.name}, which counts "
            f"{unit}; got {value:g}"
        )
    return value


def unanimous_miss(mechanism: Mechanism, voters: int, labels: int) -> float:
    """Return how often one label that every voter wants, and nothing else, is not released as 1.

    The plainest measure of how much the noise hurts: a mechanism that misses this often will serve
    a divided electorate worse.
    """
    check_electorate(voters, labels)
    votes = np.zeros((1, voters, labels), np.bool_)
    votes[:, :, 0] = True
    if isinstance(mechanism, PowersetVoting):
        hit = mechanism.outcome_probabilities(votes)[0][(0,)]
    elif isinstance(mechanism, PluralityVoting):
        hit = mechanism.outcome_probabilities(votes)[0, 0]
    elif isinstance(mechanism, CellMechanism):
        hit = mechanism.outcome_probabilities(votes)[0, 0, 1]
    else:
        raise InputError(f"mechanism must be a privote mechanism, got {mechanism!r}")
    return float(1 - hit)


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
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < 1:
        raise InputError(f"wanted must be an integer of at least 1, got {wanted!r}")
    if guarantee not in ("worst-case", "allowance"):
        raise InputError(f"guarantee must be worst-case or allowance, got {guarantee!r}")
    delta, budget = check_delta(delta), positive("epsilon", epsilon)
    orders = _orders_around(budget, delta)
    if (guarantee == "allowance") != (surprises_per_query is not None):
        raise InputError(
            f"surprises_per_query goes with guarantee 'allowance' and only with it, got "
            f"{surprises_per_query!r} with {guarantee!r}"
        )

    def price(sigma: float) -> float:
        mechanism = make(sigma)
        if surprises_per_query is None:
            needed, curve = wanted, mechanism.worst_case_rdp(voters, labels, orders)
        else:
            each = check_surprises(mechanism, labels, surprises_per_query)
            needed = math.ceil(wanted * each)
            curve = FACTOR * mechanism.surprise_rdp(voters, labels, orders)
        return float(np.max(to_epsilon(needed * curve, orders, delta)))

    low, high = _bracket(price, budget)
    while high[0] / low[0] > 1 + _TOLERANCE:
        middle = _between(low, high, budget)
        seen = (middle, price(middle))
        low, high = (low, seen) if seen[1] <= budget else (seen, high)
    return high[0]


def _orders_around(budget: float, delta: float) -> Floats:
    """Return the orders among which this budget is settled, whatever the mechanism.

    Costs here are close to rho * order, and for these the budget alone says which order is best.
    Leaving out orders can only overstate epsilon, so the sigma found is enough in any case.
    """
    orders = check_orders(None)
    low, high = math.log(1e-15), math.log(1e6)  # of rho
    for _ in range(40):
        middle = (low + high) / 2
        fits = float(np.max(to_epsilon(math.exp(middle) * orders, orders, delta))) <= budget
        low, high = (middle, high) if fits else (low, middle)
    place = int(np.searchsorted(orders, best_order(math.exp(low) * orders, orders, delta)))
    return orders[max(0, place - _WINDOW) : place + _WINDOW + 1]


Priced = tuple[float, float]  # a sigma, and the epsilon of the wanted queries with it


def _bracket(price: Callable[[float], float], budget: float) -> tuple[Priced, Priced]:
    """Return a sigma that is not enough and one that is, by steps scaled to what was seen."""
    here = (_START, price(_START))
    enough = here[1] <= budget
    while True:
        # Epsilon falls about as sigma grows; a fifth further, to land on the other side.
        ratio = min(max(here[1] / budget, 1e-2), 1e2)
        sigma = here[0] * (min(ratio, 1.0) / 1.2 if enough else max(ratio, 1.0) * 1.2)
        if not _SMALLEST < sigma < _LARGEST:
            raise BudgetError(
                f"no sigma from {_SMALLEST:g} to {_LARGEST:g} is just enough: at {here[0]:.3g} the "
                f"wanted queries cost epsilon {here[1]:.3g}, and the budget is {budget:g}"
            )
        there = (sigma, price(sigma))
        if (there[1] <= budget) != enough:
            return (there, here) if enough else (here, there)
        here = there


def _between(low: Priced, high: Priced, budget: float) -> float:
    """Return a sigma inside the bracket: by interpolation on logarithms, else the middle."""
    left, right = math.log(low[0]), math.log(high[0])
    share = 0.5
    if math.isfinite(low[1]) and high[1] > 0:
        share = math.log(low[1] / budget) / math.log(low[1] / high[1])
    return math.exp(left + (right - left) * min(max(share, _EDGE), 1 - _EDGE))
