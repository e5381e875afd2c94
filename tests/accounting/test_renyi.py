"""Conversion and orders. The divergence itself meets mpmath in the contracts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import best_order, check_orders, divergence, two_sided

CURVE = pv.DEFAULT_ORDERS / 50


def test_default_orders_are_dense_where_it_matters_and_cannot_be_changed() -> None:
    orders = pv.DEFAULT_ORDERS
    assert (np.diff(orders) > 0).all()
    assert ((orders > 1.04) & (orders < 3)).sum() >= 30
    assert orders.max() >= 1000
    with pytest.raises(ValueError, match="read-only"):
        orders[0] = 9.0


@given(
    p=st.floats(1e-12, 1 - 1e-12),
    q=st.floats(1e-12, 1 - 1e-12),
    order=st.floats(1.01, 500.0),
)
def test_divergence_is_a_divergence(p: float, q: float, order: float) -> None:
    log_p, log_q = (np.array([math.log(x), math.log1p(-x)]) for x in (p, q))
    orders = np.array([order, order * 1.5])
    forward = divergence(log_p, log_q, orders)
    assert (forward >= 0).all()
    assert forward[0] <= forward[1] * (1 + 1e-9) + 1e-15
    assert (divergence(log_p, log_p, orders) == 0).all()
    # Never above the largest log-ratio.
    assert forward.max() <= np.abs(log_p - log_q).max() * (1 + 1e-9)
    # Independent cells add up.
    pair_p, pair_q = ((a[:, None] + a).reshape(-1) for a in (log_p, log_q))
    np.testing.assert_allclose(
        divergence(pair_p, pair_q, orders), 2 * forward, rtol=1e-6, atol=1e-13
    )
    both = two_sided(log_p, log_q, orders)
    np.testing.assert_allclose(both, np.maximum(forward, divergence(log_q, log_p, orders)))


def test_orders_without_a_finite_cost_are_left_out() -> None:
    curve = CURVE.copy()
    curve[pv.DEFAULT_ORDERS > 5] = np.inf
    value = pv.epsilon(curve, None, 1e-5)
    assert math.isfinite(value)
    assert best_order(curve, None, 1e-5) <= 5
    assert pv.epsilon(np.full_like(CURVE, np.inf), None, 1e-5) == math.inf


def test_refusals() -> None:
    for curve in (np.full_like(CURVE, np.nan), 1.0):
        with refused("rdp"):
            pv.epsilon(curve, None, 1e-5)
    for delta in (0, 1, -0.1, np.nan, "x"):
        with refused("delta"):
            pv.epsilon(CURVE, None, delta)  # type: ignore[arg-type]
    with refused("rdp"):  # the minimum over several would be the cheapest voter's
        best_order(np.stack([CURVE, 9 * CURVE]), None, 1e-5)
    assert check_orders(None) is pv.DEFAULT_ORDERS
    assert check_orders(2.0).tolist() == [2.0]  # type: ignore[arg-type]


@given(
    sigma=st.floats(0.5, 100.0), times=st.integers(1, 50), more=st.floats(0.0, 2.0)
)  # fmt: skip
def test_epsilon_never_falls_as_costs_are_added(sigma: float, times: int, more: float) -> None:
    curve = pv.DEFAULT_ORDERS / sigma**2
    once, many = (pv.epsilon(k * curve, None, 1e-5) for k in (1, times))
    assert once <= many
    assert many <= pv.epsilon(times * curve + more, None, 1e-5)
    # A pointwise larger curve is a larger epsilon, so a maximum over voters may be converted.
    tilted = np.where(pv.DEFAULT_ORDERS > 3, curve, 1.5 * curve)
    assert pv.epsilon(np.maximum(curve, tilted), None, 1e-5) >= once
