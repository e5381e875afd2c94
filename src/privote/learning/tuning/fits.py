"""How many queries of given votes fit a budget, guarantee by guarantee. For the owner's eyes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...accounting.allowance import largest_allowance, largest_count
from ...accounting.renyi import Floats, best_order, check_delta, check_orders
from ...accounting.renyi import epsilon as to_epsilon
from ...errors import InputError, positive
from ...mechanisms import BinaryVoting, Mechanism, TauVoting

#: What the budget may promise: whatever the votes; until the first voter runs out of allowance; by
#: the exact cost of these votes, added up query by query or kept for each voter.
GUARANTEES = ("worst_case", "allowance", "exact_per_query", "exact_by_voter")

Cube = npt.NDArray[Any]
Budget = tuple[float, float]  # epsilon, delta
_STEP = 64  # queries priced at a time: nothing is priced far beyond what fits
_PROBE = 32  # queries that show at which order a budget is settled
_WINDOW = 4  # orders on either side of it


def default_guarantees(mechanism: Mechanism) -> tuple[str, ...]:
    """Return all for Binary; the others without bills by voter, which take them minutes."""
    return GUARANTEES if isinstance(mechanism, BinaryVoting) else GUARANTEES[:-1]


def check_guarantees(guarantees: Sequence[str]) -> tuple[str, ...]:
    """Return the names if all are known."""
    for name in guarantees:
        if name not in GUARANTEES:
            raise InputError(f"guarantees must be among {', '.join(GUARANTEES)}, got {name!r}")
    return tuple(guarantees)


def queries_that_fit(
    mechanism: Mechanism,
    votes: Cube,
    epsilon: float,
    delta: float,
    guarantees: Sequence[str] | None = None,
) -> dict[str, int]:
    """Return how many of the first queries fit the budget, by guarantee.

    Parameters
    ----------
    mechanism
        E.g. ``BinaryVoting(sigma=7.0)``; sigma is PATE's sigma_GNMax.
    votes
        (queries, voters, labels), bool, or int8 with -1 where a vote is missing.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    guarantees
        Some of `GUARANTEES`; by default what `default_guarantees` says.

    Notes
    -----
    Binary is priced at all orders; the others at those around which the budget is settled, which
    can only understate how many fit.
    """
    budget = positive("epsilon", epsilon), check_delta(delta)
    names = default_guarantees(mechanism) if guarantees is None else check_guarantees(guarantees)
    orders = _telling_orders(mechanism, votes, budget)
    return {name: _COUNTS[name](mechanism, votes, orders, budget) for name in names}


def _worst_case(mechanism: Mechanism, votes: Cube, orders: Floats, budget: Budget) -> int:
    queries, voters, labels = votes.shape
    curve = mechanism.worst_case_rdp(voters, labels, orders)
    return min(largest_count(curve, orders, *budget), queries)


def _allowance(mechanism: Mechanism, votes: Cube, orders: Floats, budget: Budget) -> int:
    """Return how many queries all voters can afford: before the first who cannot."""
    queries, voters, labels = votes.shape
    curve = mechanism.surprise_rdp(voters, labels, orders)
    allowance = largest_allowance(curve, orders, *budget)
    if not allowance:
        return 0  # a budget that buys no surprise is refused
    yes = votes == 1
    count = yes.sum(axis=2) if mechanism.surprise_unit == "vote" else yes.any(axis=2)
    short = (np.cumsum(count, axis=0) > allowance).any(axis=1)
    return int(short.argmax()) if short.any() else queries


def _per_query(mechanism: Mechanism, votes: Cube, orders: Floats, budget: Budget) -> int:
    def price(start: int, stop: int) -> Floats:
        return mechanism.total_rdp(votes[start:stop], orders)

    return _longest(price, len(votes), orders, budget)


def _by_voter(mechanism: Mechanism, votes: Cube, orders: Floats, budget: Budget) -> int:
    def price(start: int, stop: int) -> Floats:
        return mechanism.rdp_by_voter(votes[start:stop], orders)

    return _longest(price, len(votes), orders, budget)


_COUNTS = dict(zip(GUARANTEES, (_worst_case, _allowance, _per_query, _by_voter), strict=True))


def _longest(
    price: Callable[[int, int], Floats], queries: int, orders: Floats, budget: Budget
) -> int:
    """Return the longest run of first queries whose costs, added up, all fit."""
    total: Floats | float = 0.0
    start, step = 0, _STEP
    while start < queries and step:
        stop = min(start + step, queries)
        more = np.asarray(total + price(start, stop))
        if _all_fit(more, orders, budget):
            total, start = more, stop
        else:
            step //= 2
    return start


def _all_fit(curves: Floats, orders: Floats, budget: Budget) -> bool:
    epsilon, delta = budget
    flat = curves.reshape(-1, len(orders))
    # The pointwise maximum is above every curve: if it fits, all do, at the price of one.
    if float(np.max(to_epsilon(flat.max(axis=0), orders, delta))) <= epsilon:
        return True
    return len(flat) > 1 and bool(np.max(to_epsilon(flat, orders, delta)) <= epsilon)


def _telling_orders(mechanism: Mechanism, votes: Cube, budget: Budget) -> Floats:
    """Return all orders for Binary, else those at which worst and exact costs meet the budget."""
    orders = check_orders(None)
    if isinstance(mechanism, BinaryVoting):
        return orders
    _, voters, labels = votes.shape
    worst = mechanism.worst_case_rdp(voters, labels, orders, bound="gaussian")
    # Tau's costs are Binary's on other ballots, and Binary's are quickly known.
    twin: Mechanism = mechanism
    if isinstance(mechanism, TauVoting):
        twin = BinaryVoting(sigma=mechanism.sigma, gate=mechanism.gate)
    some = orders[::4]
    exact = twin.total_rdp(votes[:_PROBE], some)
    places = [_settled(worst, orders, orders, budget), _settled(exact, some, orders, budget)]
    return orders[max(0, min(places) - _WINDOW) : max(places) + _WINDOW + 1]


def _settled(curve: Floats, at: Floats, orders: Floats, budget: Budget) -> int:
    """Return the place of the order at which a multiple of this curve meets the budget."""
    times = max(1, largest_count(curve, at, *budget))
    return int(np.searchsorted(orders, best_order(times * curve, at, budget[1])))
