"""Rényi filters: which order counts, what fits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.accounting.filters import RenyiFilter, check_charge, pinned_order

ORDERS = pv.DEFAULT_ORDERS


@pytest.mark.parametrize(("budget", "order"), [(1, 18), (2, 10), (4, 6), (8, 4), (20, 2.4)])
def test_pinned_order(budget: float, order: float) -> None:
    assert pinned_order(budget, 1e-5) == order


@given(
    costs=st.lists(st.floats(1e-4, 0.2), min_size=1, max_size=6),
    budget=st.floats(0.5, 20.0),
)
def test_a_shared_budget_counts_at_its_order_only(costs: list[float], budget: float) -> None:
    kept = RenyiFilter(budget, 1e-5, 4.0, ORDERS)
    total = np.zeros(len(ORDERS))
    for cost in costs:
        kept.add(cost * ORDERS)
        total += cost * ORDERS
    at = ORDERS == 4.0
    assert kept.epsilon() == pytest.approx(pv.epsilon(total[at], ORDERS[at], 1e-5))


def test_an_exclusive_budget_takes_multiples_of_its_first_charge() -> None:
    curve = pv.BinaryVoting(sigma=5.0).worst_case_rdp(20, 3, ORDERS)
    other = pv.BinaryVoting(sigma=6.0).worst_case_rdp(20, 3, ORDERS)
    kept = RenyiFilter(8.0, 1e-5, None, ORDERS)
    whole = kept.fitting(curve, 1000)
    kept.add(3 * curve)
    assert whole == 3 + kept.fitting(curve, 1000)
    assert kept.epsilon() == pytest.approx(pv.epsilon(3 * curve, ORDERS, 1e-5))
    for use in (lambda: kept.fitting(other, 1), lambda: kept.add(other)):
        with refused(None, pv.BudgetError):
            use()
    kept.add(2.5 * curve * (1 + 1e-12 * np.sin(ORDERS)))  # as rounding leaves it
    assert kept.epsilon() >= pv.epsilon(5.5 * curve, ORDERS, 1e-5)


@pytest.mark.parametrize(
    "curve",
    [
        -0.1 * ORDERS,
        np.where(ORDERS == 4, np.nan, ORDERS),
        np.where(ORDERS == 4, np.inf, ORDERS),
        ORDERS[::-1],
        ORDERS[:-1],
        np.full(len(ORDERS), None),
    ],
)
def test_what_is_no_curve_is_no_charge(curve: np.ndarray) -> None:
    with refused(None):
        check_charge(curve, ORDERS)


def test_orders_must_hold_the_pinned_one() -> None:
    few = np.array([2.0, 8.0])
    with refused("orders"):
        RenyiFilter(8.0, 1e-5, 4.0, few).fitting(few, 3)


@given(
    cost=st.floats(1e-14, 5.0) | st.just(0.0),
    bend=st.floats(0.0, 2.0),
    budget=st.floats(1e-3, 50.0),
    delta=st.floats(1e-12, 0.1),
    pinned=st.sampled_from([None, 4.0, 1.05, 10_000.0]),
    before=st.integers(0, 3),
)
def test_what_fits_is_what_a_search_finds(
    cost: float,
    bend: float,
    budget: float,
    delta: float,
    pinned: float | None,
    before: int,
) -> None:
    each = cost * ORDERS**bend
    kept = RenyiFilter(budget, delta, pinned, ORDERS)
    for _ in range(before):
        kept.add(each)
    low, high = 0, 10**9
    while low < high:
        middle = (low + high + 1) // 2
        fits = kept.epsilon(middle, each) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    assert kept.fitting(each, 10**9) == low
    assert kept.fitting(each, 1) == min(low, 1)
