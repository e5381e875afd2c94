from __future__ import annotations

import math

import numpy as np
import ptr_smooth
import pytest

import privote as pv
from privote.accounting import ptr
from privote.accounting.renyi import DEFAULT_ORDERS

DELTA = 1e-5


def count_costs(mech: pv.BinaryVoting, voters: int, orders: np.ndarray) -> np.ndarray:
    """Return (orders, voters + 1): a cell's worst two-sided cost at each count."""
    return mech.level_costs(2 * np.arange(voters + 1) - voters, voters, False, orders).T


@pytest.mark.parametrize(("sigma", "queries"), [(7.0, 76), (12.0, 134)])
def test_real_votes_by_public_numbers(tmc_votes, sigma, queries):
    costs = count_costs(pv.BinaryVoting(sigma=sigma), 50, DEFAULT_ORDERS)
    asked, proposal = ptr_smooth.largest_queries(costs, DEFAULT_ORDERS, 22, 20.0, DELTA)
    assert asked == queries
    assert 19.9 < proposal.epsilon <= 20
    row = costs[list(DEFAULT_ORDERS).index(proposal.order)]
    histogram = np.bincount(tmc_votes[:asked].sum(axis=1).ravel(), minlength=51)
    assert ptr_smooth.pass_log_probs(row, histogram, proposal)[1] > math.log(0.99)
    # The distance test asks for more than twice as many at the same share of divided cells.
    assert ptr.largest_queries(costs, DEFAULT_ORDERS, 22, 20.0, DELTA) > 1.9 * asked
