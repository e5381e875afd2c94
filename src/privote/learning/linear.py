"""The default teachers: linear models, or networks with one hidden layer, trained fast.

One fit serves all labels of a part at once (:mod:`privote.learning.logistic`), and the answers of
all teachers are one matrix product (:class:`privote.learning.teachers.StackedTeachers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError, positive
from .logistic import fit_logistic
from .perceptron import Layer, fit_perceptron

Labels = npt.NDArray[np.int8]
Floats = npt.NDArray[Any]


class LinearTeachers(MultiOutputMixin, ClassifierMixin, BaseEstimator):
    """Logistic regressions, one per label; with ``hidden``, one network for all labels.

    Given to :func:`privote.learning.train` as ``teacher``, it makes every teacher of an ensemble;
    fitted on its own, it is one multi-label classifier.

    Parameters
    ----------
    C
        Inverse strength of the penalty |w|^2 / (2 C), as in scikit-learn's LogisticRegression.
    tol
        Stop where the gradient, per record and per unit of the records' length, is below it. 1e-4
        is about what scikit-learn's default comes to; for votes less is enough.
    max_iter
        Stop after so many iterations anyway.
    hidden
        None for a linear model, or how many tanh units its one hidden layer has.
    standardize
        Divide every feature by its standard deviation *within the part*. It changes what the
        penalty means, so it is off by default; turn it on where features have different units.
    random_state
        Seed of a network's first weights; a linear model has nothing random.

    Attributes
    ----------
    layers_
        [(weights (outputs, inputs), biases (outputs,))], one layer, or two with ``hidden``.

    Notes
    -----
    ``y`` may hold -1 for unknown: such cells are left out. A label of which the part has only one
    class gets the constant ones / (known records + 1), that is, as if one more record without the
    label were there: 0 for a label never seen, never quite 1 for a label always seen.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        hidden: int | None = None,
        standardize: bool = False,
        random_state: int | None = 0,
    ) -> None:
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.hidden = hidden
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: npt.ArrayLike) -> LinearTeachers:
        """Fit to (records, features) and (records, labels) of 1, 0 and -1 (unknown)."""
        self.check_parameters()
        rows = check_rows(X)
        Y = check_labels(y, rows.shape[0])
        self.layers_ = fit_layers(self, rows, Y)
        self.n_features_in_ = rows.shape[1]
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels)."""
        check_is_fitted(self, "layers_")
        rows = check_rows(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"X must have {self.n_features_in_} features, got {rows.shape[1]}")
        return answer(rows, self.layers_)

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return the labels (rows, labels) that are more likely than not."""
        return np.asarray(self.predict_proba(X) >= 0.5).astype(np.int64)

    def check_parameters(self) -> None:
        """Refuse parameters that make no sense."""
        positive("C", self.C)
        positive("tol", self.tol)
        for name in ("max_iter", "hidden"):
            value = getattr(self, name)
            if name == "hidden" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")


def fit_layers(teacher: LinearTeachers, X: Any, Y: Labels, seed: int | None = None) -> list[Layer]:
    """Return the layers fitted to checked rows and labels; a part may be empty.

    Labels with one class get weights of zero and a constant bias.
    """
    learnable, constant = one_class(Y)
    scale = _deviations(X) if teacher.standardize and learnable.any() else None
    layers = _fit_learnable(
        teacher,
        X if scale is None else _divided(X, scale),
        Y[:, learnable],
        int(teacher.random_state or 0) if seed is None else seed,
    )
    if scale is not None:
        layers[0] = (layers[0][0] / scale, layers[0][1])
    inputs = layers[-1][0].shape[1]
    weights = np.zeros((Y.shape[1], inputs), X.dtype)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is what is meant
        bias = np.log(constant / (1 - constant)).astype(X.dtype)
    weights[learnable], bias[learnable] = layers[-1]
    return [*layers[:-1], (weights, bias)]


def _fit_learnable(teacher: LinearTeachers, X: Any, Y: Labels, seed: int) -> list[Layer]:
    """Return the layers for labels that all have both classes; there may be none of them."""
    C, tol, max_iter = float(teacher.C), float(teacher.tol), int(teacher.max_iter)
    features, labels = X.shape[1], Y.shape[1]
    if teacher.hidden is None:
        if not labels:
            return [(np.zeros((0, features), X.dtype), np.zeros(0, X.dtype))]
        return [fit_logistic(X, Y, C=C, tol=tol, max_iter=max_iter)]
    hidden = int(teacher.hidden)
    if not labels:
        first = np.zeros((hidden, features), X.dtype), np.zeros(hidden, X.dtype)
        return [first, (np.zeros((0, hidden), X.dtype), np.zeros(0, X.dtype))]
    return fit_perceptron(X, Y, hidden=hidden, C=C, tol=tol, max_iter=max_iter, seed=seed)


def answer(X: Any, layers: list[Layer]) -> Floats:
    """Return probabilities (rows, labels)."""
    values = X
    for weights, bias in layers[:-1]:
        values = np.tanh(np.asarray(values @ weights.T) + bias)
    weights, bias = layers[-1]
    return np.asarray(expit(np.asarray(values @ weights.T) + bias))


def one_class(Y: Labels) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return which labels have both classes, and the constant for those that do not.

    The constant counts one more record than there is, without the label: a teacher who knows
    nothing of a label says no.
    """
    ones, zeros = (Y == 1).sum(axis=0), (Y == 0).sum(axis=0)
    return (ones > 0) & (zeros > 0), ones / (ones + zeros + 1)


def check_rows(X: Any) -> Any:
    """Return rows as a float32 or float64 matrix, dense or CSR, all finite."""
    from sklearn.utils import check_array

    narrow = getattr(X, "dtype", None) in (np.bool_, np.int8, np.uint8, np.float16, np.float32)
    try:
        return check_array(
            X, accept_sparse="csr", dtype=np.float32 if narrow else np.float64, order="C"
        )
    except ValueError as error:
        raise InputError(f"X must be a finite matrix (records, features): {error}") from None


def check_labels(Y: Any, records: int) -> Labels:
    """Return labels (records, labels) of 1, 0 and -1 (unknown)."""
    array = np.asarray(Y.toarray() if sp.issparse(Y) else Y)
    if array.ndim != 2 or array.shape[0] != records or array.shape[1] < 1:
        raise InputError(f"Y must have the shape ({records}, labels), got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise InputError(f"Y must hold 1, 0 and -1 (unknown), got an array of {array.dtype}")
    good = (array == 0) | (array == 1) | (array == -1)
    if not good.all():
        row, label = (int(i) for i in np.argwhere(~good)[0])
        raise InputError(
            f"Y must hold 1, 0 and -1 (unknown), got {array[row, label]} at record {row}, "
            f"label {label}"
        )
    return array.astype(np.int8)


def _deviations(X: Any) -> Floats:
    """Return the features' standard deviations; 1 where a feature does not vary."""
    if sp.issparse(X):
        mean = np.asarray(X.mean(axis=0), np.float64).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0), np.float64).ravel()
        spread = np.sqrt(np.maximum(square - mean**2, 0))
        spread[spread <= 1e-6 * np.sqrt(square)] = 0  # rounding of a constant
    else:
        spread = X.std(axis=0, dtype=np.float64)
        spread[spread <= 1e-6 * np.abs(X).max(axis=0)] = 0
    return np.where(spread > 0, spread, 1).astype(X.dtype)


def _divided(X: Any, scale: Floats) -> Any:
    if sp.issparse(X):
        return X.multiply(1 / scale).tocsr().astype(X.dtype)
    return X / scale
