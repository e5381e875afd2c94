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


@pytest.mark.parametrize(
    ("counts", "voters", "sigma", "order", "expected"),
    [
        # The public analysis of PATE 2018, test of local sensitivity: towards less agreement ...
        (
            [10, 0, 0],
            10,
            0.5,
            1.5,
            [3.13503646e-17, 1.60178280e-08, 5.90681786e-03] + [5.99981308] * 7,
        ),
        # ... and towards more.
        (
            [1000, 500, 300, 200, 0],
            2000,
            250.0,
            10.0,
            [0.0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700,
        ),
    ],
)
def test_local_sensitivity_of_gnmax(
    counts: list[int], voters: int, sigma: float, order: float, expected: list[float]
) -> None:
    changes = sanitize2018.local_sensitivity(counts, voters, sigma, order)
    np.testing.assert_allclose(changes, expected, rtol=1e-7, atol=1e-22)


CROSSOVERS = {  # -log q0 by sigma, at orders 1.1, 2.5, 32, 250; given to two digits
    1.5: (2.8, 2.6, 427, None),
    15.0: (4.8, 4.0, 4.7, 275),
    1500.0: (9.6, 8.8, 6.0, 4),
    15000.0: (12, 11.2, 8.6, 6.4),
}


@pytest.mark.parametrize("sigma", CROSSOVERS)
def test_crossover_of_theorem_6(sigma: float) -> None:
    for order, expected in zip((1.1, 2.5, 32.0, 250.0), CROSSOVERS[sigma], strict=True):
        if expected is None:
            with pytest.raises(ValueError, match="never helps"):
                sanitize2018.crossover(sigma, order)
        else:
            assert expected <= sanitize2018.crossover(sigma, order) <= 1.06 * expected
