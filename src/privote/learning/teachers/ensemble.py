"""The teachers once they are trained: what each of them is, and what all of them answer.

Linear teachers are asked in one matrix product; any others one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from ...errors import InputError, whole
from ..linear import Layer, Solver, answer
from ..rows import (
    LabelClassifier,
    check_labels,
    check_rows,
    count_rows,
    label_probabilities,
    row_size,
    take_rows,
)

Answers = npt.NDArray[np.float32]
Floats = npt.NDArray[Any]

_BLOCK_CELLS = 1 << 23  # answers in a block: 32 MiB
_BLOCK_VALUES = 1 << 25  # features of a block's rows


class Teachers(ABC):
    """An ensemble that was trained: how many teachers, what they saw, what they answer.

    Attributes
    ----------
    n_teachers, n_labels
        How many of each.
    sizes
        (teachers,) records of each part. Sealed.
    prevalence
        (teachers, labels) the share of ones among each part's known labels; 0 where none is known.
        Sealed.
    thresholds
        (teachers, labels) tuned inside the parts, or None if nobody asked for that. Sealed.
    """

    def __init__(
        self,
        sizes: npt.NDArray[np.int64],
        prevalence: npt.NDArray[np.float64],
        thresholds: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.n_teachers, self.n_labels = prevalence.shape
        self.sizes = sizes
        self.prevalence = prevalence
        self.thresholds = thresholds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_teachers} teachers, {self.n_labels} labels)"

    def predict_proba(self, X: Any, block: int | None = None) -> Iterator[Answers]:
        """Yield probabilities (rows, teachers, labels) for consecutive rows of ``X``.

        Parameters
        ----------
        X
            Rows as the teachers were trained on.
        block
            Rows at a time; by default as many as make a few dozen megabytes, a multiple of eight.
        """
        rows = count_rows(X)
        if block is None:
            cells = _BLOCK_CELLS // (self.n_teachers * self.n_labels)
            block = max(8, min(cells, _BLOCK_VALUES // row_size(X)) // 8 * 8)
        block = whole("block", block)
        for start in range(0, rows, block):
            yield self._answers(take_rows(X, slice(start, min(start + block, rows))))

    @abstractmethod
    def _answers(self, X: Any) -> Answers:
        """Return probabilities (rows, teachers, labels) for a few rows."""


class StackedTeachers(Teachers):
    """Linear models: all are asked in one matrix product.

    What a column of the product comes to depends on that column and on sizes that are public. The
    weights take teachers x labels x features x 4 bytes, twice that while they are put together.
    """

    def __init__(self, layers: list[Layer], *seen: Any) -> None:
        super().__init__(*seen)
        labels, self.n_features = layers[0][0].shape
        self._weights = np.empty((self.n_features, len(layers) * labels), np.float32)
        self._lift = np.empty(len(layers) * labels, np.float32)
        for teacher, (weights, lift) in enumerate(layers):
            mine = slice(teacher * labels, (teacher + 1) * labels)
            self._weights[:, mine], self._lift[mine] = weights.T, lift

    def _answers(self, X: Any) -> Answers:
        rows = check_rows(X)
        if rows.shape[1] != self.n_features:
            raise InputError("X", f"must have {self.n_features} features, got {rows.shape[1]}")
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            narrow = rows.astype(np.float32, copy=False)
        if not np.isfinite(narrow.data if sp.issparse(narrow) else narrow).all():
            raise InputError("X", "must hold numbers that float32 can hold, got larger ones")
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.asarray(narrow @ self._weights)
        values += self._lift
        values = values.reshape(len(values), self.n_teachers, -1)
        values[np.isnan(values)] = 0  # a teacher whose numbers overflowed has no opinion
        return np.asarray(expit(values, out=values))


@dataclass(frozen=True)
class TrainedTeacher:
    """A teacher that was trained on its part.

    Attributes
    ----------
    layer
        Of a linear model; None for any other classifier.
    models
        Fitted classifiers, each with the labels it answers.
    learnable
        (labels,) which labels had both classes; the others are answered by ``constant``.
    thresholds
        (labels,) tuned inside the part; empty if nobody asked for that.
    """

    layer: Layer | None
    models: list[tuple[Any, npt.NDArray[np.intp]]]
    learnable: npt.NDArray[np.bool_]
    constant: npt.NDArray[np.float64]
    thresholds: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def answer(self, X: Any, who: str) -> Floats:
        """Return probabilities (rows, labels)."""
        if self.layer is not None:
            return answer(X, self.layer)
        answers = np.tile(self.constant, (count_rows(X), 1))
        for model, labels in self.models:
            given = label_probabilities(model, X, len(labels))
            if not np.isfinite(given).all():
                raise InputError(f"{who} must answer with finite numbers, got NaN or infinity")
            answers[:, labels] = np.clip(given, 0, 1)
        return np.where(self.learnable, answers, self.constant)


class SeparateTeachers(Teachers):
    """Any classifiers, asked one after the other."""

    def __init__(self, teachers: list[TrainedTeacher], *seen: Any) -> None:
        super().__init__(*seen)
        self.teachers = teachers

    def _answers(self, X: Any) -> Answers:
        answers = np.empty((count_rows(X), self.n_teachers, self.n_labels), np.float32)
        for number, teacher in enumerate(self.teachers):
            answers[:, number] = teacher.answer(X, f"teacher {number}")
        return answers


@dataclass(eq=False, repr=False, kw_only=True)
class LinearTeachers(LabelClassifier):
    """Logistic regressions, one per label.

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
    standardize
        Divide every feature by its standard deviation *within the part*. It changes what the
        penalty means, so it is off by default; turn it on where features have different units.

    Attributes
    ----------
    layers_
        [(weights (labels, features), biases (labels,))]: there is one.

    Notes
    -----
    ``y`` may hold -1 for unknown: such cells are left out. A label of which the part has only one
    class gets the constant ones / (known records + 1), that is, as if one more record without the
    label were there: 0 for a label never seen, never quite 1 for a label always seen.
    """

    C: float = 1.0
    tol: float = 1e-3
    max_iter: int = 100
    standardize: bool = False

    def fit(self, X: Any, y: npt.ArrayLike) -> LinearTeachers:
        """Fit to (records, features) and (records, labels) of 1, 0 and -1 (unknown)."""
        solver, rows = self.solver(), check_rows(X)
        Y = check_labels(y, rows.shape[0])
        self.layers_ = [solver.fit(rows, Y)]
        self.n_features_in_ = rows.shape[1]
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels)."""
        check_is_fitted(self, "layers_")
        rows = check_rows(X)
        if rows.shape[1] != self.n_features_in_:
            raise InputError("X", f"must have {self.n_features_in_} features, got {rows.shape[1]}")
        return answer(rows, self.layers_[0])

    def solver(self) -> Solver:
        """Return what fits it; parameters that make no sense are refused."""
        return Solver(**{each.name: getattr(self, each.name) for each in fields(Solver)})
