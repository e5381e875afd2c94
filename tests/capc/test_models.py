"""A site's model: taken from fitted classifiers, saved, and refused where it does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privote.capc.models import SiteModel
from privote.errors import InputError
from privote.learning.students.classifiers import LinearStudent
from privote.learning.teachers.ensemble import LinearTeachers

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 5)) * [1, 2, 3, 4, 5] + [0, 1, 2, 3, 4]
Y = (X @ RANDOM.normal(size=(5, 3)) + RANDOM.normal(size=(300, 3)) > 1).astype(int)


def network(**change: Any) -> MLPClassifier:
    settings = {"hidden_layer_sizes": (7,), "max_iter": 30, "random_state": 0, **change}
    return MLPClassifier(**settings)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        OneVsRestClassifier(LogisticRegression()),
        MultiOutputClassifier(LogisticRegression()),
        LinearStudent(),
        LinearTeachers(),
        network(),
        make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())),
        make_pipeline(StandardScaler(), network()),
    ],
    ids=["one-vs-rest", "multi-output", "student", "teachers", "network", "scaled", "scaled net"],
)
def test_same_probabilities_as_the_estimator(estimator: Any) -> None:
    estimator.fit(X, Y)
    model = SiteModel.of(estimator, labels=["a", "b", "c"], thresholds=[0.3, 0.5, 0.7])
    chance = estimator.predict_proba(X)
    if isinstance(chance, list):
        chance = np.column_stack([one[:, 1] for one in chance])
    np.testing.assert_allclose(model.predict_proba(X), chance, atol=1e-9)
    np.testing.assert_array_equal(model.votes(X), chance >= [0.3, 0.5, 0.7])
    np.testing.assert_allclose(model.predict_proba(sp.csr_matrix(X)), chance, atol=1e-9)
    assert (model.features, model.labels) == (5, ("a", "b", "c"))


def test_a_pair_and_one_label() -> None:
    one = LogisticRegression().fit(X, Y[:, 0])
    model = SiteModel.of((one.coef_, one.intercept_))
    np.testing.assert_allclose(model.predict_proba(X)[:, 0], one.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(SiteModel.of(one).layers[0][0], model.layers[0][0])


@pytest.mark.filterwarnings("ignore:Label")
def test_a_label_of_one_class_is_a_constant() -> None:
    constant = np.column_stack([Y[:, 0], np.zeros(len(Y), int), np.ones(len(Y), int)])
    model = SiteModel.of(OneVsRestClassifier(LogisticRegression()).fit(X, constant))
    votes = model.votes(X)
    assert not votes[:, 1].any()
    assert votes[:, 2].all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression().fit(X, Y.sum(axis=1)),
        LogisticRegression().fit(X, Y[:, 0] + 1),
        OneVsRestClassifier(LogisticRegression()),
        object(),
    ],
    ids=["softmax", "classes 1 and 2", "not fitted", "no model"],
)
def test_estimators_refused(estimator: Any) -> None:
    with pytest.raises(InputError):
        SiteModel.of(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "change", [{"activation": "tanh"}, {"hidden_layer_sizes": (4, 4)}], ids=["tanh", "two layers"]
)
def test_networks_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="one hidden layer"):
        SiteModel.of(network(**change).fit(X, Y))


@pytest.mark.parametrize(
    "change",
    [
        {"thresholds": [0.0, 0.5]},
        {"thresholds": [0.5, 1.0]},
        {"thresholds": [0.5, np.nan]},
        {"thresholds": [0.5, 0.5, 0.5]},
        {"labels": ("a",)},
        {"labels": ("a", "a")},
        {"layers": ()},
        {"layers": ((np.full((3, 2), np.nan), np.zeros(2)),)},
        {"layers": ((np.zeros((3, 2)), np.array([np.inf, 0])),)},
        {"layers": ((np.zeros((3, 4)), np.zeros(4)), (np.zeros((5, 2)), np.zeros(2)))},
        {"layers": ((np.zeros(3), np.zeros(2)),)},
    ],
)
def test_models_refused(change: dict[str, Any]) -> None:
    good = {"layers": ((np.zeros((3, 2)), np.zeros(2)),), "labels": ("a", "b"), "thresholds": 0.5}
    SiteModel(**good)
    with pytest.raises(InputError):
        SiteModel(**{**good, **change})


@pytest.mark.parametrize("hidden", [None, 4])
def test_saved_and_loaded(tmp_path: Path, hidden: int | None) -> None:
    sizes = [(5, 3)] if hidden is None else [(5, hidden), (hidden, 3)]
    model = SiteModel(
        layers=tuple((RANDOM.normal(size=size), RANDOM.normal(size=size[1])) for size in sizes),
        labels=("fête", "b", "c"),
        thresholds=np.array([0.2, 0.5, 0.9]),
    )
    model.save(tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_mode & 0o077 == 0
    again = SiteModel.load(tmp_path / "model.npz")
    assert (again.labels, again.hidden) == (model.labels, hidden)
    np.testing.assert_array_equal(again.scores(X), model.scores(X))
    np.testing.assert_array_equal(again.thresholds, model.thresholds)


def test_files_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(b"no model")
    with pytest.raises(InputError, match="model saved as"):
        SiteModel.load(path)
    path.write_bytes(pickle.dumps({"weights0": 1}))
    with pytest.raises(InputError, match="model saved as"):
        SiteModel.load(path)
    np.savez(path, weights0=np.zeros((2, 1)), bias0=np.zeros(1), labels=["a"])
    with pytest.raises(InputError, match="must hold"):
        SiteModel.load(path)
    objects = np.array([object()], dtype=object)
    np.savez(path, weights0=objects, bias0=np.zeros(1), labels=["a"], thresholds=[0.5])
    with pytest.raises(InputError, match="model saved as"):
        SiteModel.load(path)


def test_a_model_for_some_of_its_labels():
    rng = np.random.default_rng(0)
    model = SiteModel(
        layers=((rng.normal(size=(4, 3)), rng.normal(size=3)),),
        labels=("a", "b", "c"),
        thresholds=np.array([0.2, 0.5, 0.8]),
    )
    X = rng.normal(size=(20, 4))
    part = model.only(("c", "a"))
    assert part.labels == ("c", "a")
    assert np.array_equal(part.votes(X), model.votes(X)[:, [2, 0]])
    with pytest.raises(InputError, match="'z'"):
        model.only(("a", "z"))


def test_a_place_that_is_not_there_is_named(tmp_path):
    model = SiteModel.of((np.ones((1, 2)), 0.0))
    with pytest.raises(InputError, match="no folder"):
        model.save(tmp_path / "nowhere" / "model.npz")
    with pytest.raises(InputError, match="does not exist"):
        SiteModel.load(tmp_path / "model.npz")


def test_a_model_in_the_place_of_a_readable_file_is_its_owners_only(tmp_path):
    place = tmp_path / "model.npz"
    place.write_bytes(b"an older one")
    place.chmod(0o644)
    SiteModel.of((np.ones((1, 2)), 0.0)).save(place)
    assert place.stat().st_mode & 0o077 == 0
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]
