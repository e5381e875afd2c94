"""One teacher's training: a lesson is a part of the private data, a pupil who had it can answer.

A lesson goes to another process, or another machine, as it is, so it holds its own part and nothing
of the others.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from ..errors import InputError
from .linear import Labels, LinearTeachers, answer, fit_layers, one_class
from .perceptron import Layer
from .probabilities import label_probabilities, targets
from .rows import count_rows, take_rows
from .thresholds import best_thresholds

Floats = npt.NDArray[Any]

FOLDS = 3
_AT_ONCE = 4  # lessons a worker gets at once from a fast teacher


@dataclass(frozen=True)
class Lesson:
    """A part: its teacher's number, rows, labels (records, labels), seed, and what to tune by."""

    number: int
    X: Any
    Y: Labels
    seed: int
    tune: str | None = None


@dataclass(frozen=True)
class Pupil:
    """A teacher who had its lesson.

    Attributes
    ----------
    layers
        Of a linear model or network; empty for any other classifier.
    models
        Fitted classifiers, each with the labels it answers.
    learnable
        (labels,) which labels had both classes; the others are answered by ``constant``.
    thresholds
        (labels,) tuned inside the part; empty if nobody asked for that.
    """

    layers: list[Layer]
    models: list[tuple[Any, npt.NDArray[np.intp]]]
    learnable: npt.NDArray[np.bool_]
    constant: npt.NDArray[np.float64]
    thresholds: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def answer(self, X: Any, who: str) -> Floats:
        """Return probabilities (rows, labels)."""
        if self.layers:
            return answer(X, self.layers)
        answers = np.tile(self.constant, (count_rows(X), 1))
        for model, labels in self.models:
            given = label_probabilities(model, X, len(labels))
            if not np.isfinite(given).all():
                raise InputError(f"{who} must answer with finite numbers, got NaN or infinity")
            answers[:, labels] = np.clip(given, 0, 1)
        return np.where(self.learnable, answers, self.constant)


def teach(
    model: Any,
    lesson: Callable[[int], Lesson],
    count: int,
    n_jobs: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[Pupil]:
    """Return the pupils of all lessons, in order; ``lesson(number)`` gives each part when due."""
    # Imported here because it takes a second that other uses of the package should not pay.
    from joblib import Parallel, delayed, effective_n_jobs

    fast = isinstance(model, LinearTeachers)
    each = _AT_ONCE if fast else 1
    at_once = each * max(1, int(effective_n_jobs(n_jobs)))
    pupils: list[Pupil] = []
    # Fast teachers spend their time in products that let other threads run.
    with _one_thread(), Parallel(n_jobs=n_jobs, prefer="threads" if fast else None) as pool:
        for start in range(0, count, at_once):
            stop = min(start + at_once, count)
            groups = [
                [lesson(number) for number in range(first, min(first + each, stop))]
                for first in range(start, stop, each)
            ]
            for group in pool(delayed(_learn)(model, lessons) for lessons in groups):
                pupils += group
            if progress is not None:
                progress(stop, count)
    return pupils


def _learn(model: Any, lessons: list[Lesson]) -> list[Pupil]:
    """Return the pupils of a few lessons: the work that is sent away."""
    with _one_thread():
        return [_learn_one(model, lesson) for lesson in lessons]


def _learn_one(model: Any, lesson: Lesson) -> Pupil:
    pupil = _fitted(model, lesson)
    if lesson.tune is None:
        return pupil
    held_out = np.zeros(lesson.Y.shape)
    # By chance, seeded for this teacher alone: the order of records may be that of their values.
    fold = np.random.default_rng(lesson.seed).permutation(len(lesson.Y)) % FOLDS
    for turn in range(FOLDS):
        rest, mine = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
        if len(mine):
            study = Lesson(lesson.number, take_rows(lesson.X, rest), lesson.Y[rest], lesson.seed)
            judge = _fitted(model, study)
            held_out[mine] = judge.answer(take_rows(lesson.X, mine), f"teacher {lesson.number}")
    return replace(pupil, thresholds=best_thresholds(held_out, lesson.Y, lesson.tune))


def _fitted(model: Any, lesson: Lesson) -> Pupil:
    learnable, constant = one_class(lesson.Y)
    if isinstance(model, LinearTeachers):
        layers = fit_layers(model, lesson.X, lesson.Y, lesson.seed)
        return Pupil(layers, [], learnable, constant)
    if not learnable.any():
        return Pupil([], [], learnable, constant)
    with _own_chance(lesson.seed), warnings.catch_warnings():
        # One label is a column; that some classifiers would rather have a row is no concern.
        warnings.simplefilter("ignore", DataConversionWarning)
        warnings.filterwarnings("ignore", "Label .* is present in all training examples")
        return Pupil([], _models(model, lesson, learnable), learnable, constant)


def _models(
    model: Any, lesson: Lesson, learnable: npt.NDArray[np.bool_]
) -> list[tuple[Any, npt.NDArray[np.intp]]]:
    """Return fitted clones, each with the labels it answers."""
    Y = lesson.Y
    able, every = np.flatnonzero(learnable), np.arange(Y.shape[1])
    masks = getattr(model, "accepts_missing", False)
    if (Y < 0).any() and not masks:
        known = [np.flatnonzero(Y[:, label] >= 0) for label in able]
        return [
            (_fit(model, take_rows(lesson.X, rows), Y[rows][:, [label]], lesson), np.array([label]))
            for label, rows in zip(able, known, strict=True)
        ]
    if masks or len(able) == len(every):
        return [(_fit(model, lesson.X, Y, lesson), every)]
    try:
        # Many classifiers refuse, or misreport, a label with one class.
        return [(_fit(model, lesson.X, Y[:, able], lesson), able)]
    except InputError as refusal:
        try:
            # A network has an output for every label, and cannot do with fewer.
            return [(_fit(model, lesson.X, Y, lesson), every)]
        except InputError:
            raise refusal from None


def _fit(model: Any, X: Any, Y: Labels, lesson: Lesson) -> Any:
    """Return a clone with this teacher's seed, fitted, and tried on a record."""
    pupil = clone(model)
    seeds = {
        name: lesson.seed
        for name in pupil.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    }
    pupil.set_params(**seeds)
    try:
        pupil.fit(X, targets(pupil, Y))
        label_probabilities(pupil, take_rows(X, slice(0, 1)), Y.shape[1])
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise InputError(
            f"teacher must be a classifier for many labels; {type(model).__name__} cannot learn "
            f"{Y.shape[1]} labels from a part: {error}"
        ) from error
    return pupil


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold linear algebra to one thread: sums then have one order, and small ones no waiting."""
    with _pools().limit(limits=1, user_api="blas"):
        yield


@cache
def _pools() -> Any:
    """Return the thread pools of this process's libraries; looking for them takes a while."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _own_chance(seed: int) -> Iterator[None]:
    """Seed the generators that are global, and put them back.

    A classifier that draws from them would otherwise start where the teacher before it stopped,
    which depends on that teacher's part.
    """
    torch = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_before = None if torch is None else torch.random.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        if torch is not None:
            torch.random.set_rng_state(torch_before)
