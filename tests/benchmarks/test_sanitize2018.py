from __future__ import annotations

import numpy as np
import pytest
import sanitize2018


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
