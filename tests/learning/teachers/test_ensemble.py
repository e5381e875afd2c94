"""Ensembles: one record reaches one teacher, whatever the teacher, the rule and the machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.refusals import refused

from privote.learning import LinearTeachers, Teachers, cast, train
from privote.learning.teachers.training import partition

TEACHERS = 7


def data(records: int = 260, features: int = 12, labels: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, features)).astype(np.float32)
    scores = X @ rng.normal(size=(features, labels)) + rng.normal(size=(records, labels))
    return X, (scores > [0, 1, 3, 6]).astype(np.int8)


POOL = np.random.default_rng(1).normal(size=(150, 12)).astype(np.float32)

KINDS: dict[str, Callable[[], Any]] = {
    "linear": LinearTeachers,
    "pipeline": lambda: make_pipeline(
        StandardScaler(), OneVsRestClassifier(SGDClassifier(loss="log_loss", max_iter=5, tol=None))
    ),
    "forest": lambda: RandomForestClassifier(5),
    "neighbours": lambda: KNeighborsClassifier(3),
    "network": lambda: MLPClassifier((4,), max_iter=5),
}


def answers(teachers: Teachers) -> np.ndarray:
    return np.concatenate(list(teachers.predict_proba(POOL)))


def trained(kind: str, X: Any, Y: np.ndarray, part: np.ndarray, **how: Any) -> Teachers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations are enough here
        return train(KINDS[kind](), X, Y, part, TEACHERS, **how)


# -- soundness ---------------------------------------------------------------------------------


def another_record(X: Any, Y: np.ndarray, part: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    X, Y = X.copy(), Y.copy()
    row = np.flatnonzero(part == 2)[0]
    X[row], Y[row] = 50.0, 1 - Y[row]
    return X, Y, part


def fewer_records(X: Any, Y: np.ndarray, part: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    keep = np.ones(len(part), bool)
    keep[np.flatnonzero(part == 2)[::2]] = False
    return X[keep], Y[keep], part[keep]


def unknown_labels(X: Any, Y: np.ndarray, part: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    Y = Y.copy()
    Y[np.flatnonzero(part == 2)[:3], 0] = -1
    return X, Y, part


def no_records(X: Any, Y: np.ndarray, part: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    return X[part != 2], Y[part != 2], part[part != 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [another_record, fewer_records, unknown_labels, no_records])
def test_one_part_reaches_one_teacher(kind: str, change: Callable[..., Any]) -> None:
    X, Y = data()
    part = partition(len(X), TEACHERS, key=0)
    before = trained(kind, X, Y, part)
    after = trained(kind, *change(X, Y, part))
    others = np.arange(TEACHERS) != 2
    one, two = answers(before), answers(after)
    assert np.array_equal(one[:, others], two[:, others])  # to the last bit
    assert not np.array_equal(one[:, 2], two[:, 2])
    for rule in ("prevalence", 0.5):
        votes, changed = cast(before, POOL, rule), cast(after, POOL, rule)
        assert np.array_equal(votes[:, others], changed[:, others])


def test_a_part_that_is_sparse_or_dense_changes_no_other() -> None:
    X, Y = data(600, 300)
    X[np.random.default_rng(3).random(X.shape) > 0.02] = 0
    part = partition(len(X), TEACHERS, key=0)
    full = X.copy()
    full[part == 2] = 1.0  # beyond the density from which rows are made dense
    pool = sp.csr_array(X[:50])
    one = np.concatenate(list(train(None, sp.csr_array(X), Y, part, 7).predict_proba(pool)))
    two = np.concatenate(list(train(None, sp.csr_array(full), Y, part, 7).predict_proba(pool)))
    others = np.arange(TEACHERS) != 2
    assert np.array_equal(one[:, others], two[:, others])
    assert not np.array_equal(one[:, 2], two[:, 2])


@pytest.mark.parametrize("kind", ["linear", "forest"])
def test_tuned_thresholds_reach_one_teacher(kind: str) -> None:
    X, Y = data()
    part = partition(len(X), TEACHERS, key=0)
    before = trained(kind, X, Y, part, tune="F1")
    after = trained(kind, *fewer_records(X, Y, part), tune="F1")
    others = np.arange(TEACHERS) != 2
    assert before.thresholds is not None
    assert after.thresholds is not None
    assert np.array_equal(before.thresholds[others], after.thresholds[others])
    assert not np.array_equal(before.thresholds[2], after.thresholds[2])


# -- what is fitted ----------------------------------------------------------------------------


def test_each_teacher_is_the_model_of_its_part() -> None:
    X, Y = data()
    part = partition(len(X), TEACHERS, key=0)
    cube = answers(train(LinearTeachers(C=2.0), X, Y, part, TEACHERS))
    assert cube.dtype == np.float32
    for teacher in range(TEACHERS):
        mine = part == teacher
        alone = LinearTeachers(C=2.0).fit(X[mine], Y[mine]).predict_proba(POOL)
        np.testing.assert_allclose(cube[:, teacher], alone, atol=1e-5)


def test_what_teachers_saw() -> None:
    X, Y = data()
    Y[:30, 1] = -1
    part = np.minimum(partition(len(X), TEACHERS, key=0), TEACHERS - 2)  # the last part is empty
    teachers = train(None, X, Y, part, TEACHERS)
    assert (teachers.n_teachers, teachers.n_labels) == (TEACHERS, 4)
    assert teachers.sizes.tolist() == np.bincount(part, minlength=TEACHERS).tolist()
    for teacher in range(TEACHERS - 1):
        mine = Y[part == teacher]
        share = (mine == 1).sum(axis=0) / (mine >= 0).sum(axis=0)
        np.testing.assert_allclose(teachers.prevalence[teacher], share)
    assert (teachers.prevalence[-1] == 0).all()
    assert repr(teachers) == "StackedTeachers(7 teachers, 4 labels)"


@pytest.mark.parametrize("kind", ["linear", "forest"])
def test_a_teacher_without_records_says_no(kind: str) -> None:
    X, Y = data(60)
    part = np.arange(60) % 3 + 1
    teachers = trained(kind, X, Y, part)
    assert (answers(teachers)[:, [0, 4, 5, 6]] == 0).all()
    assert not cast(teachers, POOL)[:, [0, 4, 5, 6]].any()
    assert not cast(teachers, POOL, 0.5)[:, [0, 4, 5, 6]].any()


# -- on one processor or many ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_two_jobs_train_the_same_teachers_as_one(kind: str) -> None:
    X, Y = data()
    part = partition(len(X), TEACHERS, key=0)
    done: list[tuple[int, int]] = []
    one = trained(kind, X, Y, part, n_jobs=1)
    with joblib.parallel_config("threading" if kind == "network" else "loky"):
        two = trained(kind, X, Y, part, n_jobs=2, progress=lambda *at: done.append(at))
    assert np.array_equal(answers(one), answers(two))
    assert done[-1] == (TEACHERS, TEACHERS)
    assert [at for at, _ in done] == sorted({at for at, _ in done})


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"part": np.zeros(5, int)}, "part"),
        ({"part": np.zeros(260)}, "part"),
        ({"part": np.full(260, 7)}, "part"),
        ({"n_teachers": 0}, "n_teachers"),
        ({"n_teachers": 7.0}, "n_teachers"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": None}, "random_state"),
        ({"tune": "AUC"}, "tune"),
        ({"teacher": 3}, "teacher"),
        ({"teacher": LinearTeachers(C=-1)}, "C"),
        ({"teacher": LogisticRegression()}, "teacher"),
        ({"Y": np.zeros((260, 4)) + 0.5}, "Y"),
        ({"Y": np.zeros((5, 4))}, "Y"),
    ],
)
def test_train_refuses(changed: dict[str, Any], argument: str) -> None:
    X, Y = data()
    arguments: dict[str, Any] = {
        "teacher": None,
        "X": X,
        "Y": Y,
        "part": partition(len(X), TEACHERS, key=0),
        "n_teachers": TEACHERS,
    }
    with refused(argument):
        train(**(arguments | changed))


def test_asking_refuses() -> None:
    X, Y = data()
    teachers = train(None, X, Y, partition(len(X), TEACHERS, key=0), TEACHERS)
    with refused("X"):
        list(teachers.predict_proba(POOL[:, :3]))
    with refused("block"):
        list(teachers.predict_proba(POOL, block=0))
    with refused("X"):
        list(teachers.predict_proba(POOL.astype(np.float64) * 1e200))
