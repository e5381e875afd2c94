from __future__ import annotations

import numpy as np
import pytest
import sanitize2018

from privote.accounting import sanitize
from privote.accounting.pate2018 import local_sensitivity
from privote.errors import InputError


def histogram(votes: np.ndarray, queries: int) -> np.ndarray:
    return np.bincount(votes[:queries].sum(axis=1).ravel(), minlength=votes.shape[1] + 1)


# Queries that fit epsilon 20 by the paper's accounting; what PATE 2018's script then says.
@pytest.mark.parametrize(
    ("sigma", "queries", "order", "after", "deviation"),
    [
        (4.0, 143, 2.5, 25.87, 4.64),
        (7.0, 204, 2.5, 25.31, 3.69),
        (9.0, 225, 2.5, 25.47, 3.86),
        (12.0, 160, 3.0, 25.32, 4.32),
        (20.0, 89, 2.5, 22.14, 1.72),
    ],
)
def test_epsilon_20_goes_to_about_26(tmc_votes, sigma, queries, order, after, deviation):
    found = sanitize2018.sanitized(histogram(tmc_votes, queries), sigma, 1e-5)
    assert 19.9 < found.before <= 20
    # One query more would not have fitted.
    assert sanitize2018.sanitized(histogram(tmc_votes, queries + 1), sigma, 1e-5).before > 20
    assert found.order == order
    assert found.after == pytest.approx(after, abs=5e-3)
    assert found.deviation == pytest.approx(deviation, abs=5e-3)


def test_its_price_is_not_a_bound(tmc_votes):
    found = sanitize2018.sanitized(histogram(tmc_votes, 160), 12.0, 1e-5)
    assert found.price == pytest.approx(5.37, abs=5e-3)
    assert found.true_price == pytest.approx(6.58, abs=5e-3)
    assert found.true_price == sanitize.release_cost(found.order, found.beta, found.sigma_s)


def test_sensitivity_is_the_discounted_sum_of_local_ones():
    cells = np.zeros(11, int)
    cells[[0, 3, 9]] = (4, 2, 1)
    found = sanitize2018.sanitized(cells, 2.0, 1e-5)
    changes = sum(
        times * local_sensitivity([count, 10 - count], 10, 2.0, found.order)
        for count, times in ((0, 4), (3, 2), (9, 1))
    )
    discounts = np.exp(-found.beta * np.arange(10))
    assert found.sensitivity == pytest.approx(float((changes * discounts).max()))
    best = (found.order * np.exp(2 * found.beta) / found.sensitivity) ** (1 / 3)
    assert found.sigma_s == pytest.approx(best)
    assert found.after - found.before == pytest.approx(found.price)


def test_bad_arguments():
    for wrong in ([1.5, 2.0], [[1, 2]], [3], [0, 0, 0]):
        with pytest.raises(InputError, match="histogram"):
            sanitize2018.sanitized(wrong, 2.0, 1e-5)
    with pytest.raises(InputError, match="sigma"):
        sanitize2018.sanitized([1, 2], 0.0, 1e-5)
