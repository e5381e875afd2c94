"""Worst case: each query is charged the most that any votes could cost; nobody is limited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..accounting.filters import fitting
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..entropy import Entropy
from ..errors import BudgetError, plural
from ..ledger import Request
from ..mechanisms import Mechanism
from ..votes.cube import BallotSource
from . import Drawn


def asked(
    request: Request, mechanism: Mechanism, ballots: BallotSource, needed: int | None
) -> Request:
    """Return what a run asks of a ledger: as many queries as fit, by public numbers.

    ``needed`` is how many must fit; one, if it is None.

    Raises
    ------
    BudgetError
        If fewer fit.
    """
    cost, labels = request.cost, ballots.labels
    each = mechanism.worst_case_rdp(ballots.voters, labels, DEFAULT_ORDERS)
    fit = fitting(each, cost.epsilon, cost.delta, ballots.queries)
    if fit < (needed or 1):
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} at delta {rounded_up(cost.delta)} allows "
            f"{plural(fit, 'query')} in the worst case with {mechanism}"
            + (f", but queries={needed}" if needed else "")
        )

    def price(epsilon: float) -> Floats:
        if epsilon == cost.epsilon:
            return fit * each
        return fitting(each, epsilon, cost.delta, ballots.queries) * each

    return replace(request, price=price, layout={"outcome": (mechanism.outcomes, (fit, labels))})


def draw(ballots: BallotSource, mechanism: Mechanism, entropy: Entropy) -> Drawn:
    """Draw every query, block by block."""
    outcome: npt.NDArray[np.int8] = np.empty((ballots.queries, ballots.labels), mechanism.outcomes)
    start = 0
    for block in ballots.blocks():
        outcome[start : start + block.queries] = mechanism.draw(mechanism.tally(block), entropy)
        start += block.queries
    return Drawn(outcome=outcome, mechanism=mechanism)
