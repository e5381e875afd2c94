"""A network with one hidden layer for all labels at once, on one part of the data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]  # float32 or float64, as X is
Layer = tuple[Floats, Floats]  # weights (outputs, inputs), biases (outputs,)


def fit_perceptron(
    X: Any,
    Y: npt.NDArray[np.int8],
    *,
    hidden: int,
    C: float,
    tol: float,
    max_iter: int,
    seed: int,
) -> list[Layer]:
    """Fit a network: tanh units, then one logistic unit per label.

    The loss is the sum of log-losses plus the squared weights of both layers / (2 C); scipy's
    L-BFGS goes through all records at each step, so only the start is random.

    Parameters
    ----------
    X
        (records, features) float32 or float64, dense or CSR.
    Y
        (records, labels) of 1, 0 and -1 (unknown: left out).
    hidden
        How many hidden units.
    seed
        Of the weights to start from.
    C, tol, max_iter
        As in :func:`privote.learning.logistic.fit_logistic`; ``tol`` is per record.
    """
    # Imported here because it takes a second that other uses of the package should not pay.
    from scipy.optimize import minimize

    truth = (Y == 1).astype(X.dtype)
    known = (Y >= 0).astype(X.dtype)
    sizes = (X.shape[1], hidden, Y.shape[1])

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        (W, b), (V, c) = layers = _layers(flat.astype(X.dtype), sizes)
        units = np.tanh(np.asarray(X @ W.T) + b)
        margins = units @ V.T + c
        chance = 0.5 + 0.5 * np.tanh(0.5 * margins)
        losses = known * (np.logaddexp(0, margins) - truth * margins)
        wrong = known * (chance - truth)
        inner = (wrong @ V) * (1 - units**2)
        slopes = [
            np.asarray((X.T @ inner).T),
            inner.sum(axis=0),
            wrong.T @ units,
            wrong.sum(axis=0),
        ]
        total = float(losses.sum(dtype=np.float64))
        for place, (weights, _) in enumerate(layers):
            total += float(np.vdot(weights, weights)) / (2 * C)
            slopes[2 * place] = slopes[2 * place] + weights / C
        return total, np.concatenate([slope.ravel() for slope in slopes]).astype(np.float64)

    best = minimize(
        loss,
        _start(sizes, seed),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "gtol": tol * len(Y)},
    )
    return _layers(best.x.astype(X.dtype), sizes)


def _start(sizes: tuple[int, int, int], seed: int) -> npt.NDArray[np.float64]:
    """Return random weights (Glorot & Bengio 2010) and zero biases, flat."""
    random = np.random.default_rng(seed)
    parts = []
    for inputs, outputs in pairwise(sizes):
        reach = np.sqrt(6 / (inputs + outputs))
        parts += [random.uniform(-reach, reach, inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts)


def _layers(flat: Floats, sizes: tuple[int, int, int]) -> list[Layer]:
    """Return views of both layers' weights and biases."""
    layers, place = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = place + inputs * outputs, place + (inputs + 1) * outputs
        layers.append((flat[place:middle].reshape(outputs, inputs), flat[middle:end]))
        place = end
    return layers
