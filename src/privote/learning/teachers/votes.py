"""From probabilities to votes: what a teacher says yes to.

The default rule, "prevalence", takes no threshold: a teacher says yes to the top share of the
public pool, label by label, the share being how often the label is present in its own part. A
teacher of few records ranks better than its probabilities are calibrated. Ties are decided by a
public hash of query, teacher and label. (The first ones of the pool would be the same for all
teachers, and many teachers without an opinion would look like agreement.)

By every rule a teacher's votes depend on its own part and on public data, never on other teachers.

Of the teachers once they are trained, linear ones are asked in one matrix product; any others one
after the other.
"""

from __future__ import annotations

import warnings
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
from ...votes.cube import Threshold, check_threshold
from ..linear import Layer, Solver, answer
from ..rows import (
    Floats,
    LabelClassifier,
    Labels,
    check_labels,
    check_rows,
    count_rows,
    label_probabilities,
    row_size,
    take_rows,
    worded,
)

Rule = str | Threshold
Votes = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

RULES = ("prevalence", "tuned")
METRICS = ("F1", "BAC")
_LAST = 2**64 - 1


def cast(
    teachers: Teachers,
    X_public: Any,
    threshold: Rule = "prevalence",
    *,
    block: int | None = None,
) -> Votes:
    """Ask the teachers about a public pool and return their votes.

    Parameters
    ----------
    teachers
        From :func:`privote.learning.train`.
    X_public
        (queries, ...) public rows. By "prevalence" a vote depends on the whole pool.
    threshold
        ``"prevalence"``; ``"tuned"``, which ``train(..., tune="F1")`` found; or numbers in [0, 1]:
        one, or one per label (labels,). A probability at or above the number is a yes.
    block
        Queries at a time; see :meth:`Teachers.predict_proba`.

    Returns
    -------
    bool array (queries, teachers, labels)
    """
    queries, cube = count_rows(X_public), (teachers.n_teachers, teachers.n_labels)
    if queries < 1:
        raise InputError("X_public", "must have at least one row, got none")
    row = 0
    if not (isinstance(threshold, str) and threshold == "prevalence"):
        bar, votes = _bar(teachers, threshold), np.empty((queries, *cube), np.bool_)
        for answers in teachers.predict_proba(X_public, block):
            votes[row : row + len(answers)] = answers >= bar
            row += len(answers)
        return votes
    scores = np.empty((cube[0] * cube[1], queries), np.float32)
    for answers in teachers.predict_proba(X_public, block):
        scores[:, row : row + len(answers)] = answers.reshape(len(answers), -1).T
        row += len(answers)
    return top_votes(scores, teachers.prevalence, cube)


def best_thresholds(scores: npt.NDArray[Any], Y: Labels, metric: str) -> Floats:
    """Return the threshold of each label (labels,) at which a figure is best on these records.

    Parameters
    ----------
    scores
        (records, labels) in [0, 1], of records that the model has not seen.
    Y
        (records, labels) of 1, 0 and -1 (unknown: left out).
    metric
        "F1" or "BAC".

    Returns
    -------
    float array (labels,)
        Half-way between the last yes and the first no; of equals the highest. 0.5 for a label with
        one class only.
    """
    if metric not in METRICS:
        raise InputError("metric", f"must be one of {', '.join(METRICS)}", metric)
    best = np.full(Y.shape[1], 0.5)
    for label in range(Y.shape[1]):
        answered = Y[:, label] >= 0
        truth, score = Y[answered, label] == 1, scores[answered, label].astype(np.float64)
        if not truth.any() or truth.all():
            continue
        order = np.argsort(-score, kind="stable")
        score, hits = score[order], np.cumsum(truth[order])
        yes = np.arange(1, len(score) + 1)
        ones, zeros = hits[-1], len(score) - hits[-1]
        figure = 2 * hits / (yes + ones) if metric == "F1" else hits / ones - (yes - hits) / zeros
        lower = np.append(score[1:], 0.0)
        # Between equal scores there is no room for a threshold; below the last there always is.
        figure[:-1][score[:-1] == lower[:-1]] = -np.inf
        best_index = int(np.argmax(figure))
        best[label] = (score[best_index] + lower[best_index]) / 2
    return best


def _bar(teachers: Teachers, threshold: Rule) -> npt.NDArray[np.float32]:
    """Return thresholds that broadcast over (rows, teachers, labels)."""
    if not isinstance(threshold, str):
        return check_threshold(threshold, teachers.n_labels).astype(np.float32)
    if threshold != "tuned":
        raise InputError("threshold", f"must be one of {', '.join(RULES)}, or numbers", threshold)
    if teachers.thresholds is None:
        raise InputError("threshold 'tuned' needs teachers trained with tune='F1' or 'BAC'")
    return teachers.thresholds.astype(np.float32)


def top_votes(scores: npt.NDArray[Any], share: npt.ArrayLike, cube: tuple[int, int]) -> Votes:
    """Return votes (queries, teachers, labels): yes to the top share of each voice's queries.

    Parameters
    ----------
    scores
        (voices, queries); a voice is a teacher's opinion on a label.
    share
        (labels,) or (teachers, labels) in [0, 1]. Times the queries, it is rounded to the nearest
        whole number, a half upwards.
    cube
        How many teachers and labels.
    """
    queries = scores.shape[1]
    counts = np.floor(np.broadcast_to(share, cube).ravel() * queries + 0.5)
    votes = np.empty((queries, len(scores)), np.bool_)
    for voice, row in enumerate(scores):
        votes[:, voice] = _top(np.asarray(row), int(counts[voice]), voice)
    return votes.reshape(queries, *cube)


def _top(scores: npt.NDArray[Any], wanted: int, voice: int) -> Votes:
    """Return yes to the ``wanted`` highest scores of one voice: (queries,)."""
    if wanted < 1 or wanted >= len(scores):
        return np.full(len(scores), wanted >= 1)
    rank = len(scores) - wanted
    value = np.partition(scores, rank)[rank]
    votes, equal = np.asarray(scores > value), np.flatnonzero(scores == value)
    room = wanted - int(votes.sum())
    votes[equal[np.argsort(_hash(equal, voice))[:room]]] = True
    return votes


def _hash(queries: npt.NDArray[Any], voice: int) -> Hashes:
    """Return a public hash (SplitMix64's) of each query; of one voice's, no two are equal."""
    with np.errstate(over="ignore"):
        bits = queries.astype(np.uint64) + np.uint64((voice << 40) & _LAST)
        bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))


# -- teachers that were trained --------------------------------------------------------------------

Answers = npt.NDArray[np.float32]

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
            raise InputError("X", "must contain numbers within the range of float32")
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
            rule = f"must be rows that {who} can answer about"
            with worded("X", rule), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what follows from a private part
                chances = label_probabilities(model, X, len(labels))
            if not np.isfinite(chances).all():
                raise InputError(f"{who} must return finite numbers, got NaN or infinity")
            answers[:, labels] = np.clip(chances, 0, 1)
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

    Attributes
    ----------
    layers_
        [(weights (labels, features), biases (labels,))]: there is one.

    Notes
    -----
    Where features have different units, give :func:`privote.learning.train` a pipeline that begins
    with a ``StandardScaler``: it is fitted inside each part.

    ``y`` may hold -1 for unknown: such cells are left out. A label of which the part has only one
    class gets the constant ones / (known records + 1), that is, as if one more record without the
    label were there: 0 for a label never seen, never quite 1 for a label always seen.
    """

    C: float = 1.0
    tol: float = 1e-3
    max_iter: int = 100

    def fit(self, X: Any, y: npt.ArrayLike) -> LinearTeachers:
        """Fit to (records, features) and (records, labels) of 1, 0 and -1 (unknown)."""
        solver, rows = self.solver(), self._rows(X, reset=True)
        Y = check_labels(y, rows.shape[0])
        self.layers_ = [solver.fit(rows, Y)]
        self.classes_ = np.arange(Y.shape[1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels)."""
        check_is_fitted(self, "layers_")
        return answer(self._rows(X), self.layers_[0])

    def solver(self) -> Solver:
        """Return what fits it; parameters that make no sense are refused."""
        return Solver(**{part.name: getattr(self, part.name) for part in fields(Solver)})
