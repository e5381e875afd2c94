"""Worst case: each query is charged the most that any votes could cost; nobody is limited."""

from __future__ import annotations

import numpy as np

from ..accounting.filters import fitting
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..entropy import Entropy
from ..errors import BudgetError
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..mechanisms.base import Labels
from ..votes.cube import BallotSource


def queries_that_fit(
    mechanism: Mechanism, ballots: BallotSource, cost: Budget, needed: int | None
) -> tuple[int, Floats]:
    """Return how many queries a run of this cost answers, and what each costs: (orders,).

    By public numbers. ``needed`` is how many must fit; one, if it is None.

    Raises
    ------
    BudgetError
        If fewer fit.
    """
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels, DEFAULT_ORDERS)
    fit = fitting(each, cost.epsilon, cost.delta, ballots.queries)
    if fit < (needed or 1):
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} at delta {rounded_up(cost.delta)} allows {fit} "
            f"queries in the worst case with {mechanism}"
            + (f", but queries={needed}" if needed else "")
        )
    return fit, each


def draw(ballots: BallotSource, mechanism: Mechanism, entropy: Entropy) -> Labels:
    """Draw every query, block by block."""
    outcome: Labels = np.empty((ballots.queries, ballots.labels), mechanism.outcomes)
    start = 0
    for block in ballots.blocks():
        outcome[start : start + block.queries] = mechanism.draw(mechanism.tally(block), entropy)
        start += block.queries
    return outcome
