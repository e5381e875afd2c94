"""Classifiers trained on released labels, which costs no privacy.

Released labels are noisy, so how far a student may trust them matters more than what it is. The
default student chooses the penalty of each label by the likelihood of labels held out.

A released label may be ABSTAIN (-1): the gate held it back. A student that leaves such cells out by
itself says so by a true attribute ``accepts_missing``; every other classifier is fitted label by
label, each on the rows where that label was answered. A student whose ``fit`` takes
``X_unlabelled`` also gets the public rows without labels.

Released may also be a probability that a label is present. A student that learns from probabilities
says so by a true attribute ``accepts_soft``; every other classifier is fitted label by label, on
each row twice, with and without the label, weighted by the two probabilities. Where its ``fit``
takes no ``sample_weight``, probabilities are rounded.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ..errors import InputError, positive, whole
from ..mechanisms import ABSTAIN
from .linear import Solver, answer
from .rows import (
    Floats,
    LabelClassifier,
    Targets,
    check_targets,
    is_skorch,
    rounded,
    targets,
)

_SMALLEST = 1e-9  # of a probability, so that its logarithm is finite


@dataclass(eq=False, repr=False, kw_only=True)
class LinearStudent(LabelClassifier):
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
    ``y`` may hold probabilities, and -1 (ABSTAIN): such cells are left out. A label of which one
    class only was released gets a constant.
    """

    accepts_soft = True

    Cs: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    folds: int = 3

    def fit(self, X: Any, y: Any) -> LinearStudent:
        """Fit to (rows, features) and (rows, labels) of 1, 0, probabilities and -1."""
        folds = whole("folds", self.folds, 2)
        strengths = [positive("Cs", C) for C in self.Cs]
        if not strengths:
            raise InputError("Cs", "must hold at least one number, got none")
        rows = self._rows(X, reset=True)
        Y = check_targets(y, rows.shape[0])
        # Rows in the order they were asked are in random order: every folds-th is held out.
        turn = np.arange(len(Y)) % folds
        losses = np.zeros((len(strengths), Y.shape[1]))
        if len(strengths) > 1:
            for index, C in enumerate(strengths):
                for fold in range(min(folds, len(Y))):
                    losses[index] += _loss(C, rows, Y, turn == fold)
        chosen = losses.argmin(axis=0)
        self.coef_ = np.zeros((Y.shape[1], rows.shape[1]))
        self.intercept_ = np.zeros(Y.shape[1])
        for index in np.unique(chosen):
            mine = np.flatnonzero(chosen == index)
            weights, bias = Solver(C=strengths[index]).fit(rows, Y[:, mine])
            # A label never seen has a bias of minus infinity; a student is not that sure.
            sure = np.log(1 + len(Y))
            self.coef_[mine] = weights
            self.intercept_[mine] = np.nan_to_num(bias, neginf=-sure, posinf=sure)
        self.C_ = np.array(strengths)[chosen]
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        check_is_fitted(self, "coef_")
        rows = self._rows(X)
        return np.asarray(expit(np.asarray(rows @ self.coef_.T) + self.intercept_), np.float64)


def _loss(C: float, X: Any, Y: Targets, held: npt.NDArray[np.bool_]) -> Floats:
    """Return minus the log-likelihood of each label's held-out cells: (labels,)."""
    layer = Solver(C=C).fit(X[np.flatnonzero(~held)], Y[~held])
    chance = answer(X[np.flatnonzero(held)], layer).astype(np.float64)
    chance = np.clip(chance, _SMALLEST, 1 - _SMALLEST)
    truth = Y[held]
    cells = truth * np.log(chance) + (1 - truth) * np.log1p(-chance)
    return np.asarray(-np.where(truth == ABSTAIN, 0.0, cells).sum(axis=0))


@dataclass(eq=False, repr=False)
class PartialLabels(LabelClassifier):
    """One clone of a classifier a label, fitted on the rows where the label was answered.

    Parameters
    ----------
    estimator
        A binary classifier with ``predict_proba``; by default a logistic regression. Where its
        ``fit`` takes no ``sample_weight``, probabilities are rounded.

    Attributes
    ----------
    estimators_
        One fitted classifier a label; a number where only one class was answered: the share of
        ones among the answers and one more of either kind, so that no probability is 0 or 1.
    """

    accepts_soft = True

    estimator: Any = None

    def fit(self, X: Any, y: npt.ArrayLike) -> PartialLabels:
        """Fit to (rows, labels) of 1, 0, probabilities and -1: such cells are left out."""
        X = self._rows(X, reset=True, images=True)
        Y = check_targets(y, X.shape[0])
        model = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        if isinstance(model, MultiOutputClassifier):
            model = model.estimator
        if not has_fit_parameter(model, "sample_weight"):
            Y = rounded(Y)
        self.estimators_ = [_fit_one(clone(model), X, column) for column in Y.T]
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        check_is_fitted(self)
        X = self._rows(X, images=True)
        return np.stack([_ask(model, X) for model in self.estimators_], axis=1)


def train_student(
    student: Any,
    X: Any,
    y: npt.ArrayLike,
    X_unlabelled: Any = None,
    random_state: Any = None,
) -> Any:
    """Fit a clone of ``student`` on released labels; with the unlabelled rows if it takes them.

    Parameters
    ----------
    student
        ``None`` for :class:`LinearStudent`, or any scikit-learn classifier or skorch network that
        takes (rows, labels).
    X, y
        Rows and released labels, or probabilities of them; -1 where nothing was answered.
    X_unlabelled
        Further public rows, for students whose ``fit`` has a parameter of that name.
    random_state
        Given to the clone if it has such a parameter and its own is None.
    """
    Y = check_targets(y, X.shape[0])
    model: Any = LinearStudent() if student is None else clone(student)
    if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
        model.set_params(random_state=random_state)
    skorch = is_skorch(model)
    if Y.dtype != np.int8 and not skorch and not getattr(model, "accepts_soft", False):
        if has_fit_parameter(model, "sample_weight"):
            return PartialLabels(model).fit(X, Y)
        Y = rounded(Y)
    if "X_unlabelled" in inspect.signature(model.fit).parameters:
        return model.fit(X, Y, X_unlabelled=X_unlabelled)
    if getattr(model, "accepts_missing", False):
        return model.fit(X, Y)
    # A label of which one class only was released stops most classifiers: label by label then.
    alone = not skorch and any(len(np.unique(column)) < 2 for column in Y.T)
    if (Y == ABSTAIN).any() or alone:
        return PartialLabels(model).fit(X, Y)
    return model.fit(X, targets(model, Y))


def _fit_one(model: Any, X: Any, column: Targets) -> Any:
    answered = np.flatnonzero(column != ABSTAIN)
    truth = column[answered]
    if not (truth > 0).any() or not (truth < 1).any():
        return float((truth.sum() + 1) / (len(answered) + 2))
    if truth.dtype == np.int8:
        return model.fit(X[answered], truth)
    # Every row twice: as a 1 and as a 0, each with its probability for a weight.
    parts = np.concatenate([truth, 1 - truth])
    classes, weighted = np.repeat(np.array([1, 0], np.int8), len(answered)), np.flatnonzero(parts)
    return model.fit(
        X[np.tile(answered, 2)[weighted]], classes[weighted], sample_weight=parts[weighted]
    )


def _ask(model: Any, X: Any) -> Floats:
    if isinstance(model, float):
        return np.full(X.shape[0], model)
    return np.asarray(model.predict_proba(X)[:, list(model.classes_).index(1)], np.float64)
