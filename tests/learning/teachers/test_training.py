"""Any classifier can be a teacher, whatever it gives and whatever its part lacks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from tests.refusals import refused

from privote.errors import InputError
from privote.learning import Teachers, cast, train


def data(records: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, 5))
    Y = (X @ rng.normal(size=(5, 3)) + 0.3 * rng.normal(size=(records, 3)) > 0).astype(np.int8)
    return X, Y, np.arange(records) % 3


def answers(teachers: Teachers, X: Any) -> np.ndarray:
    return np.concatenate(list(teachers.predict_proba(X)))


GIVERS = {
    "a list of arrays": ExtraTreesClassifier(5),
    "a list, of neighbours": KNeighborsClassifier(3),
    "a list, of one model a label": MultiOutputClassifier(LogisticRegression()),
    "an array": OneVsRestClassifier(LogisticRegression()),
    "an array, of a chain": ClassifierChain(LogisticRegression()),
    "an array, of a network": MLPClassifier((6,), solver="lbfgs", max_iter=100),
    "decisions": OneVsRestClassifier(LinearSVC()),
    "decisions, of one model": RidgeClassifier(),
    "predictions": MultiOutputClassifier(LinearSVC()),
    "predictions, of a tree": DecisionTreeClassifier(max_depth=3),
}


@pytest.mark.parametrize("giver", GIVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kind_of_answer_is_understood(giver: str) -> None:
    X, Y, part = data()
    cube = answers(train(GIVERS[giver], X, Y, part, 3), X)
    assert cube.shape == (90, 3, 3)
    assert 0 <= cube.min() < cube.max() <= 1
    # Better than the 0.5 of a coin for every teacher and label, each near the truth.
    right = (cube >= 0.5) == (Y[:, None, :] == 1)
    assert right.mean(axis=0).min() > 0.65


@pytest.mark.parametrize("giver", GIVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_labels_with_one_class_are_constant(giver: str) -> None:
    X, Y, part = data()
    Y[part == 0, 0] = 0
    Y[part == 1, 1] = 1
    Y[part == 2, :2] = [0, 1]  # one label left to learn
    cube = answers(train(GIVERS[giver], X, Y, part, 3), X)
    assert (cube[:, [0, 2], 0] == 0).all()
    np.testing.assert_allclose(cube[:, [1, 2], 1], 30 / 31)
    for teacher, label in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 2)]:
        right = (cube[:, teacher, label] >= 0.5) == (Y[:, label] == 1)
        assert right[part == teacher].mean() > 0.65


@pytest.mark.parametrize("giver", ["a list of arrays", "an array", "decisions", "predictions"])
def test_unknown_labels_are_left_out(giver: str) -> None:
    X, Y, part = data()
    Y[::5, 0] = -1
    Y[part == 1, 2] = -1
    cube = answers(train(GIVERS[giver], X, Y, part, 3), X)
    assert (cube[:, 1, 2] == 0).all()  # it knows nothing of this label
    known = np.flatnonzero(Y[:, 0] >= 0)
    alone = train(GIVERS[giver], X[known], Y[known][:, :1], part[known], 3)
    assert np.array_equal(cube[:, :, :1], answers(alone, X))


class Masked(BaseEstimator):
    """A classifier that leaves unknown labels out by itself."""

    accepts_missing = True

    def fit(self, X: Any, Y: np.ndarray) -> Masked:
        self.share_ = np.ma.masked_less(Y, 0).mean(axis=0).filled(0.0)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.share_, (len(X), 1))


def test_a_classifier_may_see_unknown_labels_if_it_says_so() -> None:
    X, Y, part = data()
    Y[::5] = -1
    cube = answers(train(Masked(), X, Y, part, 3), X)
    mine = Y[part == 1]
    share = (mine == 1).sum(axis=0) / (mine >= 0).sum(axis=0)
    np.testing.assert_allclose(cube[0, 1], share, rtol=1e-6)


class Dice(BaseEstimator):
    """A classifier that draws from the generators that are global, one draw per record."""

    def fit(self, X: Any, Y: np.ndarray) -> Dice:
        self.chance_ = np.random.random(len(Y) + Y.shape[1])[-Y.shape[1] :]  # noqa: NPY002
        self.chance_ = (self.chance_ + [random.random() for _ in Y][-1]) / 2
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.chance_, (len(X), 1))


def test_chance_that_is_global_is_each_teachers_own() -> None:
    X, Y, part = data()
    before = np.random.get_state()[1].tobytes(), random.getstate()  # noqa: NPY002
    one = answers(train(Dice(), X, Y, part, 3), X)
    assert (np.random.get_state()[1].tobytes(), random.getstate()) == before  # noqa: NPY002
    np.random.random(), random.random()  # noqa: NPY002
    assert np.array_equal(one, answers(train(Dice(), X, Y, part, 3), X))
    keep = (part != 0) | (np.arange(90) < 40)  # fewer draws by teacher 0
    two = answers(train(Dice(), X[keep], Y[keep], part[keep], 3), X)
    assert np.array_equal(one[:, 1:], two[:, 1:])
    assert not np.array_equal(one[:, 0], two[:, 0])
    assert len(np.unique(one)) == 9


def test_seeds_differ_by_teacher_and_by_random_state() -> None:
    X, Y, _ = data()
    twice = np.concatenate([X, X]), np.concatenate([Y, Y]), np.repeat([0, 1], 90)
    tree = ExtraTreesClassifier(2, max_depth=2, random_state=7)
    cube = answers(train(tree, *twice, 2), X)
    assert not np.array_equal(cube[:, 0], cube[:, 1])
    assert np.array_equal(cube, answers(train(tree, *twice, 2), X))
    assert not np.array_equal(cube, answers(train(tree, *twice, 2, random_state=1), X))


def test_texts_and_preprocessing_stay_inside_a_part() -> None:
    texts = ["engine fire", "engine stall", "bird strike", "bird fire"] * 6
    Y = np.array([["engine" in text, "fire" in text] for text in texts], np.int8)
    model = make_pipeline(CountVectorizer(), OneVsRestClassifier(BernoulliNB()))
    part = np.arange(24) // 12
    teachers = train(model, texts, Y, part, 2)
    assert np.array_equal(answers(teachers, texts)[:, 0] > 0.5, Y == 1)
    spoken = [*texts[:12], *(text + " turbulence" for text in texts[12:])]
    other = train(model, spoken, Y, part, 2)
    words = other.teachers[0].models[0][0].named_steps["countvectorizer"].vocabulary_
    assert "turbulence" not in words


def test_a_classifier_that_does_not_answer_is_named() -> None:
    class Nothing(Masked):
        def predict_proba(self, X: Any) -> np.ndarray:
            return np.full((len(X), 3), np.nan)

    X, Y, part = data()
    with pytest.raises(InputError, match="teacher 0 must return finite numbers"):
        cast(train(Nothing(), X, Y, part, 3), X)


class Fixed(Masked):
    """A network in miniature: three outputs, whatever it is given."""

    accepts_missing = False

    def fit(self, X: Any, Y: np.ndarray) -> Fixed:
        if Y.shape[1] != 3:
            raise RuntimeError("three outputs")
        super().fit(X, Y)
        return self


def test_a_network_gets_labels_with_one_class_too() -> None:
    X, Y, part = data()
    Y[part == 0, 0] = 0
    cube = answers(train(Fixed(), X, Y, part, 3), X)
    np.testing.assert_allclose(cube[0, 0], [0, *Y[part == 0, 1:].mean(axis=0)], rtol=1e-6)


def test_what_cannot_be_fitted_is_named() -> None:
    X, Y, part = data()
    X[part == 1] = np.nan
    with refused("teacher"):
        train(OneVsRestClassifier(LogisticRegression()), X, Y, part, 3)
