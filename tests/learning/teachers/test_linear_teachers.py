"""The default teachers as one classifier: what it takes, what it answers, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refused

from privote.learning import LinearTeachers


def data(records: int = 80, features: int = 6, labels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, features))
    return X, (X @ rng.normal(size=(features, labels)) > 0.5).astype(np.int8)


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


def test_what_is_refused() -> None:
    X, Y = data()
    for given in ({"C": 0.0}, {"tol": -1.0}, {"max_iter": 0}):
        with refused(next(iter(given))):
            LinearTeachers(**given).fit(X, Y)
    for labels in (Y[1:], Y + 1, Y.astype(str)):
        with refused("y"):
            LinearTeachers().fit(X, labels)
    with refused("X"):
        LinearTeachers().fit(np.where(X == X[0, 0], np.nan, X), Y)
    with refused("X"):
        LinearTeachers().fit(X, Y).predict_proba(X[:, :5])
