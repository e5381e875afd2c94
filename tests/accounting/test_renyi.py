"""Conversion and orders. The divergence meets mpmath in the contracts, epsilon in the attacks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.renyi import best_order, check_orders

CURVE = pv.DEFAULT_ORDERS / 50


def test_default_orders_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        pv.DEFAULT_ORDERS[0] = 9.0


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
