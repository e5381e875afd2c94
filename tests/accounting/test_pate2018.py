"""The published bound, as published: capped, monotone, and right in its one direction."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privote.accounting.pate2018 import theorem6

ORDERS = np.array([1.5, 2.0, 8.0, 32.0])


def test_certainty_is_free_and_doubt_costs_the_cap() -> None:
    cap = ORDERS / 7.0**2
    assert (theorem6(np.array(-np.inf), 7.0, ORDERS) == 0).all()
    np.testing.assert_allclose(theorem6(np.array(np.log(0.5)), 7.0, ORDERS), cap)
    np.testing.assert_allclose(theorem6(np.array(0.0), 7.0, ORDERS), cap)


@given(
    log_q=st.floats(-400, 0), sigma=st.floats(0.5, 100), order=st.floats(1.05, 100)
)  # fmt: skip
def test_it_is_capped_and_grows_with_the_order(log_q: float, sigma: float, order: float) -> None:
    orders = np.array([order, 1.3 * order])
    cost = theorem6(np.array(log_q), sigma, orders)
    assert (cost >= 0).all()
    assert (cost <= orders / sigma**2 * (1 + 1e-12)).all()
    assert cost[1] >= cost[0] * (1 - 1e-9)
