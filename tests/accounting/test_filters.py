"""Rényi filters: which order counts, what fits, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.accounting.filters import (
    RenyiFilter,
    check_charge,
    fitting,
    largest_part,
    pinned_order,
)

ORDERS = pv.DEFAULT_ORDERS


@pytest.mark.parametrize(("budget", "order"), [(1, 18), (2, 10), (4, 6), (8, 4), (20, 2.4)])
def test_pinned_order(budget: float, order: float) -> None:
    assert pinned_order(budget, 1e-5) == order


@given(
    spent=st.floats(0, 5.0), budget=st.floats(0.5, 20.0), order=st.sampled_from([1.05, 4.0, 1e4])
)
def test_a_budget_counts_at_its_order_only(spent: float, budget: float, order: float) -> None:
    kept = RenyiFilter(budget, 1e-5, order)
    assert kept.epsilon(spent) == pv.epsilon(np.array([spent]), np.array([order]), 1e-5)
    room = kept.room(spent)
    assert room == 0 or kept.admits(spent, room)
    assert not kept.admits(spent, max(kept.capacity - spent, 0.0) * (1 + 1e-6) + 1e-6)


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


costs = st.floats(1e-14, 5.0) | st.just(0.0)
budgets = {"budget": st.floats(1e-3, 50.0), "delta": st.floats(1e-12, 0.1)}


def searched(fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, by bisection alone."""
    low, high = 0, 10**9
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@given(cost=costs, bend=st.floats(0.0, 2.0), **budgets)
def test_what_fits_at_the_best_order_is_what_a_search_finds(
    cost: float, bend: float, budget: float, delta: float
) -> None:
    each = cost * ORDERS**bend
    found = searched(lambda times: float(pv.epsilon(times * each, ORDERS, delta)) <= budget)
    assert fitting(each, budget, delta, 10**9) == found
    assert fitting(each, budget, delta, 1) == min(found, 1)


@given(
    cost=costs,
    order=st.sampled_from([4.0, 1.05, 10_000.0]),
    spent=st.floats(0.0, 3.0),
    **budgets,
)
def test_what_a_filter_admits_is_what_a_search_finds(
    cost: float, order: float, spent: float, budget: float, delta: float
) -> None:
    kept = RenyiFilter(budget, delta, order)
    found = searched(lambda times: times == 0 or kept.admits(spent, times * cost))
    assert kept.fitting(spent, cost, 10**9) == found
    assert kept.fitting(spent, cost, 1) == min(found, 1)


def test_the_largest_part_is_rounded_down_to_what_fits() -> None:
    assert largest_part(lambda epsilon: epsilon**2, 1.0, 8.0) == pytest.approx(1.0, rel=0.01)
    assert largest_part(lambda epsilon: epsilon**2, 1.0, 8.0) <= 1.0
    assert largest_part(lambda epsilon: 5.0 + epsilon, 1.0, 8.0) == 0.0
