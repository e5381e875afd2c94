"""The published bound, as published: capped, monotone, and right in its one direction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.accounting.pate2018 import theorem6
from privote.accounting.renyi import divergence

ORDERS = np.array([1.5, 2.0, 8.0, 32.0])


def test_certainty_is_free_and_doubt_costs_the_cap() -> None:
    cap = ORDERS / 7.0**2
    assert (theorem6(np.array(-np.inf), 7.0, ORDERS) == 0).all()
    np.testing.assert_allclose(theorem6(np.array(np.log(0.5)), 7.0, ORDERS), cap)
    np.testing.assert_allclose(theorem6(np.array(0.0), 7.0, ORDERS), cap)


@pytest.mark.parametrize("sigma", [2.0, 7.0, 20.0])
def test_it_bounds_the_direction_it_was_proved_for(sigma: float) -> None:
    mech = pv.BinaryVoting(sigma=sigma)
    margins = np.arange(-60, 61, 2)
    log_p = mech.log_probs(margins, 60)
    claimed = theorem6(log_p.min(axis=1), sigma, ORDERS)
    for step in (-1, 1):
        inside = slice(1, -1)
        there = np.roll(log_p, step, axis=0)
        forward = divergence(log_p, there, ORDERS)[inside]
        assert (forward <= claimed[inside] * (1 + 1e-9)).all()


@given(
    log_q=st.floats(-400, 0), sigma=st.floats(0.5, 100), order=st.floats(1.05, 100)
)  # fmt: skip
def test_it_is_capped_and_grows_with_the_order(log_q: float, sigma: float, order: float) -> None:
    orders = np.array([order, 1.3 * order])
    cost = theorem6(np.array(log_q), sigma, orders)
    assert (cost >= 0).all()
    assert (cost <= orders / sigma**2 * (1 + 1e-12)).all()
    assert cost[1] >= cost[0] * (1 - 1e-9)
