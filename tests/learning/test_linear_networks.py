"""One hidden layer: the gradient is the loss's, and it learns what a linear model cannot."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit

from privote.learning import linear as perceptron
from privote.learning.linear import answer, fit_perceptron


def parity(records: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, (records, 2))
    odd = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    return X, np.stack([odd, X[:, 0] > 0], axis=1).astype(np.int8)


def test_it_learns_parity() -> None:
    X, Y = parity()
    layers = fit_perceptron(X, Y, hidden=8, C=100.0, tol=1e-5, max_iter=500, seed=0)
    assert [layer[0].shape for layer in layers] == [(8, 2), (2, 8)]
    assert ((answer(X, layers) > 0.5) == (Y == 1)).mean() > 0.97


def test_its_gradient_is_that_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = parity(12)
    Y[3:6, 0] = -1
    seen = {}

    def look(loss, start, **how):
        seen["loss"], seen["start"] = loss, start
        return minimize(loss, start, **how)

    monkeypatch.setattr("scipy.optimize.minimize", look)
    fit_perceptron(X, Y, hidden=3, C=0.5, tol=1e-3, max_iter=2, seed=1)
    value, slope = seen["loss"](seen["start"])
    (W, b), (V, c) = perceptron._layers(seen["start"], (2, 3, 2))
    chance = expit(np.tanh(X @ W.T + b) @ V.T + c)
    losses = -np.where(Y == 1, np.log(chance), np.log(1 - chance))
    assert value == pytest.approx(losses[Y >= 0].sum() + (W**2).sum() + (V**2).sum())
    for place in range(0, len(slope), 4):
        nudge = np.zeros_like(slope)
        nudge[place] = 1e-5
        up, down = seen["loss"](seen["start"] + nudge)[0], seen["loss"](seen["start"] - nudge)[0]
        assert slope[place] == pytest.approx((up - down) / 2e-5, abs=1e-6)


def test_the_seed_decides_the_start_and_nothing_else_is_random() -> None:
    X, Y = parity(40)

    def fit(seed: int) -> np.ndarray:
        layers = fit_perceptron(X, Y, hidden=4, C=1.0, tol=1e-3, max_iter=20, seed=seed)
        return layers[0][0]

    assert np.array_equal(fit(3), fit(3))
    assert not np.allclose(fit(3), fit(4))


def test_sparse_equals_dense() -> None:
    X, Y = parity(40)
    X[X < 0] = 0
    how = {"hidden": 4, "C": 1.0, "tol": 1e-3, "max_iter": 15, "seed": 0}
    dense = answer(X, fit_perceptron(X, Y, **how))
    sparse = answer(X, fit_perceptron(sp.csr_array(X), Y, **how))
    np.testing.assert_allclose(sparse, dense, atol=1e-6)
