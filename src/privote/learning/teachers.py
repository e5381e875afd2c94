"""Teachers: one classifier for each part of the private data, trained and asked.

Whatever is fitted is fitted inside one part, preprocessing included: give a scikit-learn pipeline
as the teacher and its scaler sees that part only. A teacher's seed depends on its number, never on
the other parts. So a record reaches one teacher, and the other teachers' answers are the same to
the last bit whatever that record holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit

from ..errors import InputError
from .lessons import Lesson, Pupil, teach
from .linear import Labels, LinearTeachers, check_labels, check_rows
from .perceptron import Layer
from .rows import count_rows, row_size, take_rows
from .thresholds import METRICS

Answers = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]

_BLOCK_CELLS = 1 << 23  # answers in a block: 32 MiB
_LARGEST = 1e15  # of a weight
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
        elif isinstance(block, bool) or not isinstance(block, int | np.integer) or block < 1:
            raise InputError(f"block must be a whole number of at least 1, got {block!r}")
        for start in range(0, rows, block):
            yield self._answers(take_rows(X, slice(start, min(start + block, rows))))

    @abstractmethod
    def _answers(self, X: Any) -> Answers:
        """Return probabilities (rows, teachers, labels) for a few rows."""


class StackedTeachers(Teachers):
    """Linear models or networks of one shape: all are asked in one matrix product.

    What a column of the product comes to depends on that column and on sizes that are public. The
    weights take teachers x labels x features x 4 bytes, twice that while they are put together.
    """

    def __init__(self, layers: list[list[Layer]], *seen: Any) -> None:
        super().__init__(*seen)
        outputs, self.n_features = layers[0][0][0].shape
        self._first = np.empty((self.n_features, len(layers) * outputs), np.float32)
        self._lift = np.empty(len(layers) * outputs, np.float32)
        for teacher, (weights, lift) in enumerate(stack[0] for stack in layers):
            mine = slice(teacher * outputs, (teacher + 1) * outputs)
            self._first[:, mine], self._lift[mine] = weights.T, lift
        self._last: tuple[Answers, Answers] | None = None
        if len(layers[0]) == 2:
            turned = np.stack([teacher[1][0].T for teacher in layers]).astype(np.float32)
            self._last = turned, np.stack([teacher[1][1] for teacher in layers]).astype(np.float32)

    def _answers(self, X: Any) -> Answers:
        rows = check_rows(X)
        if rows.shape[1] != self.n_features:
            raise InputError(f"X must have {self.n_features} features, got {rows.shape[1]}")
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            narrow = rows.astype(np.float32, copy=False)
        if not np.isfinite(narrow.data if sp.issparse(narrow) else narrow).all():
            raise InputError("X must hold numbers that float32 can hold, got larger ones")
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.asarray(narrow @ self._first)
        values += self._lift
        values = values.reshape(len(values), self.n_teachers, -1)
        if self._last is not None:
            weights, lift = self._last
            units = np.ascontiguousarray(np.tanh(values, out=values).swapaxes(0, 1))
            values = np.ascontiguousarray(np.matmul(units, weights).swapaxes(0, 1)) + lift
        values[np.isnan(values)] = 0  # a teacher whose numbers overflowed has no opinion
        return np.asarray(expit(values, out=values))


class SeparateTeachers(Teachers):
    """Any classifiers, asked one after the other."""

    def __init__(self, pupils: list[Pupil], *seen: Any) -> None:
        super().__init__(*seen)
        self.pupils = pupils

    def _answers(self, X: Any) -> Answers:
        answers = np.empty((count_rows(X), self.n_teachers, self.n_labels), np.float32)
        for teacher, pupil in enumerate(self.pupils):
            answers[:, teacher] = pupil.answer(X, f"teacher {teacher}")
        return answers


def train(
    teacher: Any,
    X: Any,
    Y: npt.ArrayLike,
    part: npt.ArrayLike,
    n_teachers: int,
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    random_state: int = 0,
    tune: str | None = None,
) -> Teachers:
    """Train one teacher on each part of the private data.

    Parameters
    ----------
    teacher
        None for :class:`LinearTeachers` as it comes; or one with other parameters; or any
        scikit-learn classifier or pipeline for many labels, or skorch network. Each teacher is a
        clone with seeds of its own.
    X
        (records, ...) rows: an array, a sparse matrix, a data frame, a list, or anything with a
        length and ``take(rows)``.
    Y
        (records, labels) of 1, 0 and -1 (unknown). A classifier that leaves unknown labels out by
        itself says so by a true attribute ``accepts_missing``; any other is fitted label by label
        on the known ones where a part has unknown labels.
    part
        (records,) from :func:`privote.learning.partition.partition`.
    n_teachers
        How many parts; some may have no records.
    n_jobs
        As joblib counts them, inside ``joblib.parallel_config`` too; the teachers are the same for
        any number.
    progress
        Called as ``progress(done, n_teachers)``.
    random_state
        Whence the teachers' seeds.
    tune
        "F1" or "BAC": also find, inside each part, the threshold of each label at which that figure
        is best on records held out, for ``cast(..., threshold="tuned")``. It takes four times as
        long: each part is cut in three, and each third is judged by a teacher of the other two.

    Notes
    -----
    A teacher with an empty part, or whose part has one class only of a label, still votes: a
    constant, see :class:`LinearTeachers`.
    """
    model = LinearTeachers() if teacher is None else teacher
    rows = check_rows(X) if isinstance(model, LinearTeachers) else X
    labels = check_labels(Y, count_rows(rows))
    parts = _check_parts(part, len(labels), n_teachers)
    if tune is not None and tune not in METRICS:
        raise InputError(f"tune must be None or one of {', '.join(METRICS)}, got {tune!r}")
    if isinstance(model, LinearTeachers):
        model.check_parameters()
    elif not hasattr(model, "fit"):
        raise InputError(f"teacher must be a classifier with fit, got {model!r}")
    seeds = _seeds(random_state, n_teachers)

    def lesson(number: int) -> Lesson:
        mine = parts[number]
        return Lesson(number, take_rows(rows, mine), labels[mine], seeds[number], tune)

    pupils = teach(model, lesson, n_teachers, n_jobs, progress)
    sizes = np.array([len(mine) for mine in parts], np.int64)
    prevalence = np.stack([_prevalence(labels[mine]) for mine in parts])
    thresholds = None if tune is None else np.stack([pupil.thresholds for pupil in pupils])
    if isinstance(model, LinearTeachers):
        return StackedTeachers([pupil.layers for pupil in pupils], sizes, prevalence, thresholds)
    return SeparateTeachers(pupils, sizes, prevalence, thresholds)


def _finite(weights: npt.NDArray[Any]) -> Answers:
    """Return weights as float32, cut to what products of them can hold."""
    return np.clip(np.nan_to_num(weights), -_LARGEST, _LARGEST).astype(np.float32)


def _prevalence(Y: Labels) -> npt.NDArray[np.float64]:
    return np.asarray((Y == 1).sum(axis=0) / np.maximum((Y >= 0).sum(axis=0), 1))


def _check_parts(part: npt.ArrayLike, records: int, n_teachers: int) -> list[npt.NDArray[np.intp]]:
    """Return the records of each part, in the order they are in."""
    if isinstance(n_teachers, bool) or not isinstance(n_teachers, int | np.integer):
        raise InputError(f"n_teachers must be a whole number, got {n_teachers!r}")
    if n_teachers < 1:
        raise InputError(f"n_teachers must be at least 1, got {n_teachers}")
    array = np.asarray(part)
    if array.shape != (records,) or array.dtype.kind not in "iu":
        raise InputError(
            f"part must be {records} whole numbers, one per record, "
            f"got {array.dtype} of shape {array.shape}"
        )
    if not (0 <= array.min() and array.max() < n_teachers):
        raise InputError(
            f"part must lie in 0..{n_teachers - 1}, got {array.min()} to {array.max()}"
        )
    order = np.argsort(array, kind="stable")
    bounds = np.searchsorted(array[order], np.arange(n_teachers + 1))
    return [order[a:b] for a, b in pairwise(bounds)]


def _seeds(random_state: int, n_teachers: int) -> list[int]:
    """Return one seed for each teacher, which depends on nothing but its number."""
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise InputError(f"random_state must be a whole number, got {random_state!r}")
    if random_state < 0:
        raise InputError(f"random_state must be 0 or more, got {random_state}")
    words = (np.random.SeedSequence((int(random_state), t)) for t in range(n_teachers))
    return [int(word.generate_state(1)[0] >> 1) for word in words]
