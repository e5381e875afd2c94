"""Numbers from outside: what others computed, reproduced with its source beside it.

What the paper and PATE 2018 state beside the true costs is in docs/departures.md, which is run.
"""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.accounting import renyi

ORDERS = pv.DEFAULT_ORDERS


# -- dp-accounting's own test values ---------------------------------------------------------------


def test_flat_curve_converts_as_in_dp_accounting() -> None:
    orders = np.arange(2.0, 33.0)
    rounded_up = 1.32783806176 * renyi.UPWARDS
    assert pv.epsilon(np.full(31, 1.1), orders, 1e-5) == pytest.approx(rounded_up, rel=1e-10)
    assert renyi.best_order(np.full(31, 1.1), orders, 1e-5) == 32


def test_gaussian_of_known_epsilon() -> None:
    # dp-accounting: a Gaussian of sigma = 4.530877117 converts to (1, 1e-6) at its best order.
    orders = np.linspace(1.1, 100.0, 5000)
    assert pv.epsilon(orders / (2 * 4.530877117**2), orders, 1e-6) == pytest.approx(1.0, abs=1e-5)
    # Our orders are sparser there, and still within half a percent.
    assert 1.0 <= pv.epsilon(ORDERS / (2 * 4.530877117**2), ORDERS, 1e-6) <= 1.005


# -- queries on real votes, epsilon 20, delta 1e-5 (50 teachers of tmc2007-500) --------------------


@pytest.mark.parametrize(
    ("sigma", "queries"), [(4.0, 143), (7.0, 204), (9.0, 225), (12.0, 160), (20.0, 89)]
)
def test_queries_by_the_papers_accounting(
    tmc_votes: np.ndarray, sigma: float, queries: int
) -> None:
    # Theorem 6, the orders of the published code, the conversion of 2017.
    orders = np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)])
    costs = pv.BinaryVoting(sigma=sigma).rdp(tmc_votes[: queries + 1], orders, bound="pate2018")
    assert pv.epsilon_2017(costs[:-1].sum(axis=0), orders, 1e-5) <= 20
    assert pv.epsilon_2017(costs.sum(axis=0), orders, 1e-5) > 20
