"""Costs of cells: every shift, both directions, and sums over clipped ballots."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import log_ndtr

from privote.accounting.exact import clipped_sum, shift_costs
from privote.accounting.renyi import divergence

ORDERS = np.array([1.5, 3.0])


def log_probs(margins: np.ndarray) -> np.ndarray:
    return np.stack([log_ndtr(-np.asarray(margins) / 3.0), log_ndtr(np.asarray(margins) / 3.0)], -1)


def test_shifts_are_priced_in_both_directions_and_only_inside() -> None:
    margins = np.arange(-4, 5, 2)
    costs = shift_costs(log_probs, margins, (2, -2), 4, ORDERS)
    assert costs.shape == (5, 2, 2, 2)
    here, there = log_probs(np.array([0])), log_probs(np.array([2]))
    np.testing.assert_allclose(costs[2, 0, 0], divergence(here, there, ORDERS)[0])
    np.testing.assert_allclose(costs[2, 0, 1], divergence(there, here, ORDERS)[0])
    assert (costs[4, 0] == 0).all()  # nobody is left to say yes
    assert (costs[0, 1] == 0).all()


def test_clamped_shifts_go_to_the_end() -> None:
    margins = np.array([3.2])
    clamped = shift_costs(log_probs, margins, (2.0,), 4, ORDERS, clamp=True)
    exact = shift_costs(log_probs, margins, (0.8,), 4, ORDERS)
    np.testing.assert_allclose(clamped, exact, rtol=1e-12)


def test_clipped_sum_is_the_worst_choice_of_labels() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([1, 3, 4])
    down, up = rng.random((2, 5, 4, 3, 2))
    found = clipped_sum(down, up, sizes)
    for query, order in itertools.product(range(5), range(2)):
        best = [0.0, 0.0]
        for place, side in enumerate((down, up)):
            for column, size in enumerate(sizes):
                for lost in itertools.combinations(range(4), size):
                    best[place] = max(best[place], side[query, list(lost), column, order].sum())
        assert found[query, order] == np.float64(sum(best)) or np.isclose(
            found[query, order], sum(best)
        )
