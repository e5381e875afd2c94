"""How much a budget buys."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.accounting.allowance import FACTOR, largest_count

ORDERS = pv.DEFAULT_ORDERS


@given(
    sigma=st.floats(1.0, 200.0), budget=st.floats(0.05, 50.0), delta=st.sampled_from([1e-3, 1e-9])
)
def test_the_largest_count_fits_and_one_more_does_not(
    sigma: float, budget: float, delta: float
) -> None:
    curve = ORDERS / sigma**2
    count = largest_count(curve, ORDERS, budget, delta)
    assert count == 0 or pv.epsilon(count * curve, ORDERS, delta) <= budget
    assert pv.epsilon((count + 1) * curve, ORDERS, delta) > budget


def test_what_costs_nothing_is_still_finite() -> None:
    assert 10**6 < largest_count(np.zeros(len(ORDERS)), ORDERS, 1.0, 1e-5) < 10**15


@given(sigma=st.floats(2.0, 60.0), budget=st.floats(0.5, 20.0), parts=st.integers(2, 9))
def test_cheaper_surprises_and_larger_budgets_buy_more(
    sigma: float, budget: float, parts: int
) -> None:
    curve = ORDERS / sigma**2
    allowance = largest_count(FACTOR * curve, ORDERS, budget, 1e-5)
    # A surprise of a part of the price: that many times as many, and the odd ones left over.
    cheaper = largest_count(FACTOR * curve / parts, ORDERS, budget, 1e-5)
    assert parts * allowance <= cheaper < parts * (allowance + 1)
    assert largest_count(FACTOR * curve, ORDERS, 2 * budget, 1e-5) >= allowance
    assert largest_count(FACTOR * curve, ORDERS, budget, 1e-9) <= allowance
    # Half as much as a plain count, up to the odd one: both ballots of the changed voter count.
    assert largest_count(curve, ORDERS, budget, 1e-5) // 2 == allowance
