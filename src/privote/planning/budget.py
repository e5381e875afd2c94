"""What a budget buys before a vote is cast: queries, an allowance; and the noise a wish needs.

Only public numbers go in: the mechanism, the size of the electorate, the budget. So everything here
may be looked at, and published, before the votes exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..accounting.allowance import FACTOR, MOST
from ..accounting.filters import fitting, likely_orders
from ..accounting.renyi import Floats, epsilon_at, rounded_up
from ..errors import BudgetError, whole
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..votes.cube import MOST as MOST_QUERIES

_TOLERANCE = 1e-3  # relative, on sigma: the number of answers then is right to 0.2 percent
_START, _SIGMAS = 10.0, (1e-3, 1e8)


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
    return _fitting(mechanism.worst_case_rdp(voters, labels), epsilon, delta)


def allowance_for(
    mechanism: Mechanism, voters: int, labels: int, epsilon: float, delta: float
) -> int:
    """Return how many contributions each voter may cast in its life; parameters as `queries_for`.

    0 is a refusal: with such a budget not a query is answered, however quiet the voters are.
    """
    return _fitting(FACTOR * mechanism.contribution_rdp(voters, labels), epsilon, delta)


def _fitting(price: Floats, epsilon: float, delta: float) -> int:
    """Return how often a price (orders,) fits into a budget, as a release counts."""
    budget = Budget(epsilon=epsilon, delta=delta)
    return fitting(price, budget.epsilon, budget.delta, MOST)


def sigma_for(
    make: Callable[[float], Mechanism],
    voters: int,
    labels: int,
    epsilon: float,
    delta: float,
    wanted: int,
) -> float:
    """Return the smallest sigma, to a thousandth, with which ``wanted`` queries fit in any case.

    Parameters
    ----------
    make
        From a sigma to the mechanism, e.g. ``lambda s: BinaryVoting(sigma=s)``. More noise must not
        buy fewer queries, which holds for every mechanism here.
    voters, labels, epsilon, delta
        As in `queries_for`.
    wanted
        How many queries, whatever the votes.

    Returns
    -------
    A sigma that was seen to be enough; the bracket's lower end was seen not to be.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    check_electorate(voters, labels)
    whole("wanted", wanted, most=MOST_QUERIES)
    orders = likely_orders(budget.epsilon, budget.delta)

    def fits(sigma: float) -> bool:
        total = wanted * make(sigma).worst_case_rdp(voters, labels, orders)
        return epsilon_at(total, orders, budget.delta)[0] <= budget.epsilon

    sigma = least(fits, _START, _TOLERANCE, low=_SIGMAS[0], high=_SIGMAS[1])
    if not _SIGMAS[0] < sigma < _SIGMAS[1]:
        promise = f"epsilon {rounded_up(budget.epsilon)}, delta {rounded_up(budget.delta)}"
        raise BudgetError(f"no sigma from 0.001 to 1e8 answers just {wanted} queries at {promise}")
    return sigma


def least(
    fits: Callable[[float], bool],
    start: float,
    close: float,
    *,
    low: float = 0.0,
    high: float = math.inf,
) -> float:
    """Return the least number that fits, to within a factor ``1 + close``, by halving.

    Whatever lies above a number that fits does, too. Below ``low`` it is not looked for; beyond
    ``high`` it is infinite.
    """
    below = above = start
    while not fits(above):
        below, above = above, 2 * above
        if above > high:
            return math.inf
    while below == above or (below > low and fits(below)):
        below, above = below / 2, below
    while above > below * (1 + close):
        middle = math.sqrt(below * above)
        below, above = (below, middle) if fits(middle) else (middle, above)
    return above
