"""The solver: scikit-learn's solutions, whatever the shape, scale and kind of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from privote.learning.linear import fit_logistic


def problem(
    records: int, features: int, labels: int, seed: int = 0, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels that are linear with noise, none with one class only."""
    rng = np.random.default_rng(seed)
    X = scale * rng.normal(size=(records, features)) + rng.normal(size=features)
    scores = X @ rng.normal(size=(features, labels)) / scale
    scores += rng.normal(size=scores.shape)
    Y = (scores > np.quantile(scores, rng.uniform(0.2, 0.9, labels), axis=0)[0]).astype(np.int8)
    Y[0], Y[1] = 0, 1
    return X, Y


def peer(X: Any, y: np.ndarray, C: float) -> LogisticRegression:
    return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y)


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
@pytest.mark.parametrize(
    ("records", "features"),
    [(60, 5), (300, 4), (20, 90), (2, 3), (40, 1)],
    ids=["usual", "many records: no Gram matrix", "many features", "two records", "one feature"],
)
def test_equals_scikit_learn(records: int, features: int, C: float) -> None:
    X, Y = problem(records, features, labels=3)
    weights, intercepts = fit_logistic(X, Y, C=C, tol=1e-9, max_iter=2000)
    for label in range(3):
        model = peer(X, Y[:, label], C)
        np.testing.assert_allclose(weights[label], model.coef_[0], atol=2e-5, rtol=1e-4)
        np.testing.assert_allclose(intercepts[label], model.intercept_[0], atol=2e-5, rtol=1e-4)


@given(
    seed=st.integers(0, 10**6),
    records=st.integers(2, 60),
    features=st.integers(1, 30),
    logC=st.floats(-3, 2),
    spread=st.floats(0, 3),
    what=st.sets(st.sampled_from(["constant", "soft", "unknown"])),
)
def test_no_data_has_a_better_loss_elsewhere(
    seed: int, records: int, features: int, logC: float, spread: float, what: set[str]
) -> None:
    X, Y = problem(records, features, labels=2, seed=seed)
    if "soft" in what:
        Y = np.abs(Y - np.random.default_rng(seed).random(Y.shape) ** 8)
    if "unknown" in what:
        Y[2:][np.random.default_rng(seed + 1).random(Y[2:].shape) < 0.3] = -1
    X *= 10 ** np.random.default_rng(seed).uniform(-spread / 2, spread / 2, features)
    if "constant" in what:
        X[:, 0] = 3.0  # one direction less: gradient and last step are parallel with two features
    C = 10**logC
    weights, intercepts = fit_logistic(X, Y, C=C, tol=1e-8, max_iter=3000)
    for label in range(2):
        margins = X @ weights[label] + intercepts[label]
        wrong = np.where(Y[:, label] < 0, 0, expit(margins) - Y[:, label])
        slope = X.T @ wrong + weights[label] / C
        # The loss is convex: a gradient of zero is the minimum.
        length = np.sqrt((X**2).sum(axis=1).mean())
        assert np.linalg.norm(slope) <= 1e-5 * records * length
        assert abs(wrong.sum()) <= 1e-5 * records


@pytest.mark.parametrize(
    ("records", "density"),
    [(60, 0.2), (60, 0.02), (900, 0.02)],
    ids=["made dense", "a Gram matrix", "no Gram matrix"],
)
def test_sparse_equals_dense(records: int, density: float) -> None:
    X, Y = problem(records, 200, labels=3)
    X[np.random.default_rng(1).random(X.shape) > density] = 0
    dense = fit_logistic(X, Y, C=1.0, tol=1e-9, max_iter=2000)
    sparse = fit_logistic(sp.csr_array(X), Y, C=1.0, tol=1e-9, max_iter=2000)
    np.testing.assert_allclose(sparse[0], dense[0], atol=1e-5)
    np.testing.assert_allclose(sparse[1], dense[1], atol=1e-5)


def test_values_that_are_far_too_large_do_not_break_it() -> None:
    X, Y = problem(50, 5, labels=2, scale=1e6)
    weights, intercepts = fit_logistic(X, Y, C=1e3, tol=1e-3, max_iter=50)
    assert np.isfinite(weights).all()
    assert np.isfinite(intercepts).all()
    truth = Y == 1
    assert ((X @ weights.T + intercepts > 0) == truth).mean() > 0.8


def test_where_rows_lie_in_memory_does_not_change_a_bit() -> None:
    X, Y = problem(67, 31, labels=3)
    room = np.empty(X.size * 8 + 64, np.uint8)
    results = set()
    for offset in range(0, 64, 8):
        moved = room[offset : offset + X.nbytes].view(np.float64).reshape(X.shape)
        moved[:] = X
        results.add(fit_logistic(moved, Y, C=1.0, tol=1e-4, max_iter=100)[0].tobytes())
    assert len(results) == 1
