"""Teachers: one record reaches one of them, whatever they are, whatever its part lacks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.refusals import refused

import privote as pv
from privote.learning import LinearTeachers, Teachers, cast, train
from privote.learning.linear import answer
from privote.learning.teachers import partition, partition_key

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

TEACHERS = 7
POOL = np.random.default_rng(1).normal(size=(150, 12)).astype(np.float32)
KEY = b"a secret of the hospital"


def data(
    records: int = 260, features: int = 12, bars: tuple[float, ...] = (0, 1, 3, 6)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, labels and parts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(records, features)).astype(np.float32)
    scores = X @ rng.normal(size=(features, len(bars))) + 0.3 * rng.normal(
        size=(records, len(bars))
    )
    return X, (scores > bars).astype(np.int8), partition(records, TEACHERS, key=0)


def thirds() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, labels that are easy to learn, and three parts of 30 records."""
    X, Y, _ = data(90, 5, (0, 0, 0))
    return X, Y, np.arange(90) % 3


def answers(teachers: Teachers, X: Any = POOL) -> np.ndarray:
    return np.concatenate(list(teachers.predict_proba(X)))


KINDS: dict[str, Any] = {
    "linear": LinearTeachers(),
    "a list of arrays": ExtraTreesClassifier(5),
    "a list, of neighbours": KNeighborsClassifier(3),
    "an array": OneVsRestClassifier(LogisticRegression()),
    "an array, of a network": MLPClassifier((6,), solver="lbfgs", max_iter=100),
    "an array, of a pipeline": make_pipeline(
        StandardScaler(), OneVsRestClassifier(SGDClassifier(loss="log_loss", max_iter=5, tol=None))
    ),
    "decisions": OneVsRestClassifier(LinearSVC()),
    "predictions": MultiOutputClassifier(LinearSVC()),
}


# -- soundness ---------------------------------------------------------------------------------


def changed(how: str) -> tuple[np.ndarray, ...]:
    """Return the data with other records in part 2."""
    X, Y, part = data()
    mine = np.flatnonzero(part == 2)
    if how == "another record":
        X[mine[0]], Y[mine[0]] = 50.0, 1 - Y[mine[0]]
    elif how == "unknown labels":
        Y[mine[:3], 0] = -1
    gone = {"fewer records": mine[::2], "no records": mine}.get(how, mine[:0])
    return tuple(np.delete(each, gone, axis=0) for each in (X, Y, part))


@pytest.mark.parametrize(
    "kind",
    [
        *("linear", "a list of arrays", "a list, of neighbours"),
        *("an array, of a network", "an array, of a pipeline"),
    ],
)
@pytest.mark.parametrize("how", ["another record", "fewer records", "unknown labels", "no records"])
def test_one_part_reaches_one_teacher(kind: str, how: str) -> None:
    before = train(KINDS[kind], *data(), TEACHERS)
    after = train(KINDS[kind], *changed(how), TEACHERS)
    others = np.arange(TEACHERS) != 2
    one, two = answers(before), answers(after)
    assert np.array_equal(one[:, others], two[:, others])  # to the last bit
    assert not np.array_equal(one[:, 2], two[:, 2])
    for rule in ("prevalence", 0.5):
        one, two = cast(before, POOL, rule), cast(after, POOL, rule)
        assert np.array_equal(one[:, others], two[:, others])


def test_a_part_that_is_sparse_or_dense_changes_no_other() -> None:
    X, Y, part = data(600, 300)
    X[np.random.default_rng(3).random(X.shape) > 0.02] = 0
    full = X.copy()
    full[part == 2] = 1.0  # beyond the density from which rows are made dense
    pool = sp.csr_array(X[:50])
    one, two = (answers(train(None, sp.csr_array(rows), Y, part, 7), pool) for rows in (X, full))
    others = np.arange(TEACHERS) != 2
    assert np.array_equal(one[:, others], two[:, others])
    assert not np.array_equal(one[:, 2], two[:, 2])


class Dice(BaseEstimator):
    """A classifier that draws from the generators that are global, one draw per record."""

    def fit(self, X: Any, Y: np.ndarray) -> Dice:
        self.chance_ = np.random.random(len(Y) + Y.shape[1])[-Y.shape[1] :]  # noqa: NPY002
        self.chance_ = (self.chance_ + [random.random() for _ in Y][-1]) / 2
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.chance_, (len(X), 1))


def test_chance_that_is_global_is_each_teachers_own() -> None:
    X, Y, part = thirds()
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


def test_texts_and_preprocessing_stay_inside_a_part() -> None:
    texts = ["engine fire", "engine stall", "bird strike", "bird fire"] * 6
    Y = np.array([["engine" in text, "fire" in text] for text in texts], np.int8)
    model = make_pipeline(CountVectorizer(), OneVsRestClassifier(BernoulliNB()))
    spoken = [*texts[:12], *(text + " turbulence" for text in texts[12:])]
    teachers = train(model, spoken, Y, np.arange(24) // 12, 2)
    assert np.array_equal(answers(teachers, texts)[:, 0] > 0.5, Y == 1)
    words = teachers.teachers[0].models[0][0].named_steps["countvectorizer"].vocabulary_
    assert "turbulence" not in words


@pytest.mark.parametrize("kind", ["linear", "an array, of a network"])
def test_two_jobs_train_the_same_teachers_as_one(kind: str) -> None:
    done: list[tuple[int, int]] = []
    one = train(KINDS[kind], *data(), TEACHERS, n_jobs=1)
    with joblib.parallel_config("loky" if kind == "linear" else "threading"):
        two = train(KINDS[kind], *data(), TEACHERS, n_jobs=2, progress=lambda *at: done.append(at))
    assert np.array_equal(answers(one), answers(two))
    assert done[-1] == (TEACHERS, TEACHERS)
    assert [at for at, _ in done] == sorted({at for at, _ in done})


# -- what is fitted ----------------------------------------------------------------------------


def test_each_teacher_is_the_model_of_its_part_and_knows_what_it_saw() -> None:
    X, Y, part = data()
    Y[:30, 1] = -1
    part = np.minimum(part, TEACHERS - 2)  # the last part is empty
    teachers = train(LinearTeachers(C=2.0), X, Y, part, TEACHERS)
    assert teachers.sizes.tolist() == np.bincount(part, minlength=TEACHERS).tolist()
    cube = answers(teachers)
    assert cube.dtype == np.float32
    for teacher in range(TEACHERS - 1):
        rows, mine = X[part == teacher], Y[part == teacher]
        alone = answer(POOL, LinearTeachers(C=2.0).fit(rows, mine))
        np.testing.assert_allclose(cube[:, teacher], alone, atol=1e-5)
        share = (mine == 1).sum(axis=0) / (mine >= 0).sum(axis=0)
        np.testing.assert_allclose(teachers.prevalence[teacher], share)
    assert (teachers.prevalence[-1] == 0).all()


@pytest.mark.parametrize("kind", ["linear", "a list of arrays"])
def test_a_teacher_without_records_says_no(kind: str) -> None:
    X, Y, _ = data(60)
    teachers = train(KINDS[kind], X, Y, np.arange(60) % 3 + 1, TEACHERS)
    assert (answers(teachers)[:, [0, 4, 5, 6]] == 0).all()
    assert not cast(teachers, POOL)[:, [0, 4, 5, 6]].any()
    assert not cast(teachers, POOL, 0.5)[:, [0, 4, 5, 6]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_is_understood(kind: str) -> None:
    X, Y, part = thirds()
    cube = answers(train(KINDS[kind], X, Y, part, 3), X)
    assert cube.shape == (90, 3, 3)
    assert 0 <= cube.min() < cube.max() <= 1
    # Better than the 0.5 of a coin for every teacher and label, each near the truth.
    right = (cube >= 0.5) == (Y[:, None, :] == 1)
    assert right.mean(axis=0).min() > 0.65


@pytest.mark.parametrize("kind", KINDS)
def test_labels_with_one_class_are_constant(kind: str) -> None:
    X, Y, part = thirds()
    Y[part == 0, 0] = 0
    Y[part == 1, 1] = 1
    Y[part == 2, :2] = [0, 1]  # one label left to learn
    cube = answers(train(KINDS[kind], X, Y, part, 3), X)
    assert (cube[:, [0, 2], 0] == 0).all()
    np.testing.assert_allclose(cube[:, [1, 2], 1], 30 / 31)
    for teacher, label in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 2)]:
        right = (cube[:, teacher, label] >= 0.5) == (Y[:, label] == 1)
        assert right[part == teacher].mean() > 0.65


@pytest.mark.parametrize("kind", ["a list of arrays", "an array", "decisions", "predictions"])
def test_unknown_labels_are_left_out(kind: str) -> None:
    X, Y, part = thirds()
    Y[::5, 0] = -1
    Y[part == 1, 2] = -1
    cube = answers(train(KINDS[kind], X, Y, part, 3), X)
    assert (cube[:, 1, 2] == 0).all()  # it knows nothing of this label
    known = np.flatnonzero(Y[:, 0] >= 0)
    alone = train(KINDS[kind], X[known], Y[known][:, :1], part[known], 3)
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
    X, Y, part = thirds()
    Y[::5] = -1
    cube = answers(train(Masked(), X, Y, part, 3), X)
    mine = Y[part == 1]
    share = (mine == 1).sum(axis=0) / (mine >= 0).sum(axis=0)
    np.testing.assert_allclose(cube[0, 1], share, rtol=1e-6)


class Fixed(Masked):
    """A network in miniature: three outputs, whatever it is given."""

    accepts_missing = False

    def fit(self, X: Any, Y: np.ndarray) -> Fixed:
        if Y.shape[1] != 3:
            raise RuntimeError("three outputs")
        super().fit(X, Y)
        return self


def test_a_network_gets_labels_with_one_class_too() -> None:
    X, Y, part = thirds()
    Y[part == 0, 0] = 0
    cube = answers(train(Fixed(), X, Y, part, 3), X)
    np.testing.assert_allclose(cube[0, 0], [0, *Y[part == 0, 1:].mean(axis=0)], rtol=1e-6)


# -- parts by names ----------------------------------------------------------------------------


@given(
    names=st.lists(st.integers(0, 10**6), min_size=2, max_size=40, unique=True),
    gone=st.integers(0, 39),
    teachers=st.integers(1, 12),
)
def test_taking_a_record_away_moves_no_other(names: list[int], gone: int, teachers: int) -> None:
    before = partition(len(names), teachers, ids=names, key=KEY)
    place = gone % len(names)
    rest = names[:place] + names[place + 1 :]
    after = partition(len(rest), teachers, ids=rest, key=KEY)
    assert np.array_equal(np.delete(before, place), after)


def test_all_records_of_a_group_reach_one_teacher_and_without_names_a_record_is_its_row() -> None:
    patients, rows = np.random.default_rng(0).integers(0, 60, 500), np.arange(500)
    parts = partition(500, 10, ids=rows, groups=patients, key=KEY)
    assert {len(set(parts[patients == p])) for p in set(patients)} == {1}
    assert len(set(parts)) > 5
    assert np.array_equal(partition(500, 9, key=KEY), partition(500, 9, ids=rows, key=KEY))


def test_a_key_is_a_secret_unless_there_is_a_seed(tmp_path: Path) -> None:
    book = pv.Ledger.in_memory()
    keys = [partition_key(None, "ward 7", None) for _ in range(2)]
    keys += [partition_key(None, "ward 7", seed) for seed in (0, 1)]
    keys += [partition_key(book, name, None) for name in ("ward 7", "ward 8")]
    keys += [partition_key(tmp_path / name, "ward 7", None) for name in ("a.db", "b.db")]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert partition_key(None, "ward 7", 0) == partition_key(book, "ward 8", 0)
    assert partition_key(tmp_path / "a.db", "ward 7", None) == keys[6]
    # Nothing that the ledger shows holds it.
    assert keys[6].hex() not in (tmp_path / "a.db").read_bytes().hex()


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("n_records", {"n_records": 0}),
        *(("n_teachers", {"n_teachers": bad}) for bad in (0, 2.0, True)),
        *(("ids", {"ids": bad}) for bad in (["a", "b"], "abc", ["a", None, "b"])),
        *(("key", {"key": bad}) for bad in (b"", -1, "secret", True)),
        ("groups", {"groups": [1.0, 2.0, float("nan")]}),
        ("groups", {"ids": ["a", "b", "a"], "groups": [1, 2, 3]}),
    ],
)
def test_partition_refuses(argument: str | None, wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"n_records": 3, "n_teachers": 2, "key": KEY}
    with refused(argument):
        partition(**(arguments | wrong))


BLANK = np.full((260, 12), np.nan)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        *(("part", {"part": bad}) for bad in (np.zeros(5, int), np.zeros(260), np.full(260, 7))),
        *(("n_teachers", {"n_teachers": bad}) for bad in (0, 7.0)),
        *(("random_state", {"random_state": bad}) for bad in (-1, None)),
        *(("Y", {"Y": bad}) for bad in (np.zeros((260, 4)) + 0.5, np.zeros((5, 4)))),
        *(("teacher", {"teacher": bad}) for bad in (3, LogisticRegression())),
        ("X", {"X": BLANK}),
        ("teacher", {"X": BLANK, "teacher": KINDS["an array"]}),
    ],
)
def test_train_refuses(argument: str, wrong: dict[str, Any]) -> None:
    arguments = dict(zip(("X", "Y", "part"), data(), strict=True))
    with refused(argument):
        train(**{"teacher": None, "n_teachers": TEACHERS, **arguments, **wrong})


def test_asking_refuses() -> None:
    X, Y, part = data()
    teachers = train(None, X, Y, part, TEACHERS)
    with refused("X"):
        list(teachers.predict_proba(POOL[:, :3]))
    for name in ("C", "tol", "max_iter"):
        with refused(name):
            LinearTeachers(**{name: -1})
    with refused("block"):
        list(teachers.predict_proba(POOL, block=0))
    with refused("X"):
        list(teachers.predict_proba(POOL.astype(np.float64) * 1e200))
