"""What a budget buys before a vote is cast.

Only public numbers go in: the mechanism, the size of the electorate, the budget. So everything here
may be looked at, and published, before the votes exist.
"""

from __future__ import annotations

import math

from ..accounting.allowance import FACTOR, MOST
from ..accounting.renyi import Floats, check_orders
from ..errors import InputError, positive
from ..ledger import Budget
from ..mechanisms import Mechanism


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
