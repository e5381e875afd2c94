"""The default student: logistic regressions whose penalty is chosen on released labels.

Released labels are noisy, so how far a student may trust them matters more than what it is. The
penalty of each label is chosen by the likelihood of labels held out. They are released ones, so
this costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import InputError, positive, whole
from ..mechanisms import ABSTAIN
from .linear import LinearTeachers, answer, check_labels, check_rows, fit_layers

Floats = npt.NDArray[np.float64]
_SMALLEST = 1e-9  # of a probability, so that its logarithm is finite


class LinearStudent(MultiOutputMixin, ClassifierMixin, BaseEstimator):
    """One logistic regression a label, each with the penalty that predicts held-out labels best.

    Parameters
    ----------
    Cs
        Inverse strengths to choose from.
    folds
        Rows are held out in so many turns.

    Attributes
    ----------
    coef_, intercept_
        (labels, features), (labels,)
    C_
        (labels,) what was chosen.

    Notes
    -----
    ``y`` may hold -1 (ABSTAIN): such cells are left out. A label of which one class only was
    released gets a constant.
    """

    def __init__(
        self, *, Cs: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0), folds: int = 3
    ) -> None:
        self.Cs = Cs
        self.folds = folds

    def fit(self, X: Any, y: Any) -> LinearStudent:
        """Fit to (rows, features) and (rows, labels) of 1, 0 and -1."""
        folds = whole("folds", self.folds, 2)
        strengths = [positive("Cs", C) for C in self.Cs]
        if not strengths:
            raise InputError("Cs must hold at least one number, got none")
        validate_data(self, X, accept_sparse="csr", skip_check_array=True)
        rows = check_rows(X)
        Y = check_labels(np.asarray(y)[:, None] if np.ndim(y) == 1 else y, rows.shape[0])
        # Rows in the order they were asked are in random order: every folds-th is held out.
        turn = np.arange(len(Y)) % folds
        losses = np.zeros((len(strengths), Y.shape[1]))
        if len(strengths) > 1:
            for place, C in enumerate(strengths):
                for held in range(min(folds, len(Y))):
                    losses[place] += _loss(C, rows, Y, turn == held)
        chosen = losses.argmin(axis=0)
        self.coef_ = np.zeros((Y.shape[1], rows.shape[1]))
        self.intercept_ = np.zeros(Y.shape[1])
        for place in np.unique(chosen):
            mine = np.flatnonzero(chosen == place)
            weights, bias = fit_layers(LinearTeachers(C=strengths[place]), rows, Y[:, mine])[0]
            # A label never seen has a bias of minus infinity; a student is not that sure.
            sure = np.log((1 + len(Y)) / 1.0)
            self.coef_[mine], self.intercept_[mine] = weights, np.clip(bias, -sure, sure)
        self.C_ = np.array(strengths)[chosen]
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        check_is_fitted(self, "coef_")
        validate_data(self, X, accept_sparse="csr", skip_check_array=True, reset=False)
        rows = check_rows(X)
        return np.asarray(expit(np.asarray(rows @ self.coef_.T) + self.intercept_), np.float64)

    def predict(self, X: Any) -> npt.NDArray[np.int8]:
        """Return 1 where a label's probability is at least one half: (rows, labels)."""
        return np.asarray(self.predict_proba(X) >= 0.5).astype(np.int8)

    def __sklearn_tags__(self) -> Any:
        """Say what this takes: sparse rows, many labels."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


def _loss(C: float, X: Any, Y: npt.NDArray[np.int8], held: npt.NDArray[np.bool_]) -> Floats:
    """Return minus the log-likelihood of each label's held-out cells: (labels,)."""
    layers = fit_layers(LinearTeachers(C=C), X[np.flatnonzero(~held)], Y[~held])
    chance = answer(X[np.flatnonzero(held)], layers).astype(np.float64)
    chance = np.clip(chance, _SMALLEST, 1 - _SMALLEST)
    truth = Y[held]
    cells = np.where(truth == 1, np.log(chance), np.log1p(-chance))
    return np.asarray(-np.where(truth == ABSTAIN, 0.0, cells).sum(axis=0))
