"""The default teachers as one classifier: what it takes, what it answers, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tests.refusals import refused

from privote.learning import LinearTeachers


def data(records: int = 80, features: int = 6, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, features))
    return X, (X @ rng.normal(size=(features, labels)) > 0.5).astype(np.int8)


def test_it_answers_as_logistic_regression_does() -> None:
    X, Y = data()
    chance = LinearTeachers(tol=1e-8, max_iter=1000).fit(X, Y).predict_proba(X)
    for label in range(3):
        peer = LogisticRegression(tol=1e-10, max_iter=1000).fit(X, Y[:, label])
        np.testing.assert_allclose(chance[:, label], peer.predict_proba(X)[:, 1], atol=1e-5)


def test_standardizing_is_dividing_by_the_deviation() -> None:
    X, Y = data()
    X *= 10.0 ** np.arange(6)
    X[:, 2] = 7.0
    spread = X.std(axis=0)
    spread[2] = 1.0
    ours = LinearTeachers(tol=1e-8, max_iter=1000, standardize=True).fit(X, Y).predict_proba(X)
    same = LinearTeachers(tol=1e-8, max_iter=1000).fit(X / spread, Y).predict_proba(X / spread)
    np.testing.assert_allclose(ours, same, atol=1e-6)
    rows = sp.csr_array(X)
    sparse = LinearTeachers(tol=1e-8, max_iter=1000, standardize=True).fit(rows, Y)
    np.testing.assert_allclose(sparse.predict_proba(rows), same, atol=1e-5)


def test_a_label_with_one_class_is_constant() -> None:
    X, Y = data()
    Y[:, 0], Y[:, 1] = 0, 1
    Y[:40, 1] = -1
    chance = LinearTeachers().fit(X, Y).predict_proba(X)
    assert (chance[:, 0] == 0).all()
    np.testing.assert_allclose(chance[:, 1], 40 / 41)
    assert np.ptp(chance[:, 2]) > 0.5


@pytest.mark.parametrize("value", [0, 1, -1])
def test_one_record_is_enough_to_answer(value: int) -> None:
    X, _ = data()
    model = LinearTeachers().fit(X[:1], np.full((1, 3), value))
    assert (model.predict_proba(X) == {0: 0.0, 1: 0.5, -1: 0.0}[value]).all()


def test_small_whole_numbers_are_computed_in_float32() -> None:
    X, Y = data()
    words = (X > 0).astype(np.int8)
    assert LinearTeachers().fit(words, Y).layers_[0][0].dtype == np.float32
    assert LinearTeachers().fit(X, Y).layers_[0][0].dtype == np.float64


def test_predict_is_a_half_and_more() -> None:
    X, Y = data()
    model = LinearTeachers(C=5).fit(X, Y)
    assert np.array_equal(model.predict(X), model.predict_proba(X) >= 0.5)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("parameters", "argument"),
    [
        ({"C": 0.0}, "C"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_parameters_that_are_refused(parameters: dict[str, Any], argument: str) -> None:
    with refused(argument):
        LinearTeachers(**parameters).fit(*data())


def test_data_that_is_refused() -> None:
    X, Y = data()
    with refused("X"):
        LinearTeachers().fit(np.where(X == X[0, 0], np.nan, X), Y)
    with refused("y"):
        LinearTeachers().fit(X, Y[1:])
    with refused("y"):
        LinearTeachers().fit(X, np.where(np.arange(240).reshape(80, 3) == 16, 2, Y))
    with refused("y"):
        LinearTeachers().fit(X, Y.astype(str))
    with refused("X"):
        LinearTeachers().fit(X, Y).predict_proba(X[:, :5])


def test_one_axis_of_labels_is_one_label() -> None:
    X, Y = data()
    alone = LinearTeachers().fit(X, Y[:, 0]).predict_proba(X)
    np.testing.assert_array_equal(alone, LinearTeachers().fit(X, Y[:, :1]).predict_proba(X))
