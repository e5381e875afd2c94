"""A contest judges every model on the same rows, under the same promise."""

import numpy as np
import pytest
from experiments.comparison import Comparison

import privote as pv

RNG = np.random.default_rng(5)
X = RNG.normal(size=(900, 5))
Y = (X[:, :2] + 0.3 * RNG.normal(size=(900, 2)) > 0.3).astype(np.int8)


@pytest.fixture(scope="module")
def contest():
    return Comparison(
        X_private=X[:600],
        Y_private=Y[:600],
        X_public=X[600:700],
        X_test=X[700:],
        Y_test=Y[700:],
        epsilon=8.0,
        delta=1e-5,
        n_teachers=20,
        seed=0,
    )


def test_rows_of_all_models(contest):
    rows = [
        contest.pate("PATE"),
        contest.without_privacy(),
        contest.one_teacher(),
        contest.dpsgd(),
    ]
    promised = [row["epsilon"] for row in rows]
    assert promised[1] is promised[2] is None
    assert all(value <= 8.0 for value in (promised[0], *promised[3:]))
    assert all(row["AUC"] > 0.6 for row in rows)


def test_a_refused_budget_is_a_row_without_figures(contest):
    row = contest.pate("too much", mechanism=pv.BinaryVoting(sigma=0.1), guarantee="worst-case")
    assert row == {"model": "too much", "epsilon": None, "answered": 0}
