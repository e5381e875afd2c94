"""A site's model: from fitted classifiers, saved, refused; and as integers without overflow."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.refusals import refused

from privote.capc.models import LIMIT, SiteModel, _reach, quantise_model, quantise_rows
from privote.capc.programs import BallotProgram
from privote.errors import InputError
from privote.learning.students.classifiers import LinearStudent
from privote.learning.teachers.votes import LinearTeachers

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
    with refused("estimator"):
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
    with refused("labels"):
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


BOUND = 4.0


def worst_score(inputs: dict[str, Any], bits: int) -> int:
    """Return the largest |score| that any row within the bound can reach (Python integers)."""
    unit = 1 << bits
    if "weights" in inputs:
        return max(_reach(inputs["weights"], inputs["bias"], [unit] * len(inputs["weights"])))
    first = _reach(inputs["weights1"], inputs["bias1"], [unit] * len(inputs["weights1"]))
    return max(*first, *_reach(inputs["weights2"], inputs["bias2"], first))


def random_model(seed: int, *, features: int, labels: int, hidden: int | None = None) -> SiteModel:
    values = np.random.default_rng(seed)
    sizes = [(features, labels)] if hidden is None else [(features, hidden), (hidden, labels)]
    return SiteModel(
        layers=tuple((values.normal(size=size), values.normal(size=size[1])) for size in sizes),
        labels=tuple(f"label {i}" for i in range(labels)),
        thresholds=values.uniform(0.1, 0.9, labels),
    )


def ballots(inputs: dict[str, Any], rows: Any) -> Any:
    """Return ballots by the program itself, in clear, chunk by chunk."""
    hidden = inputs["weights1"].shape[1] if "weights1" in inputs else None
    labels = inputs["bias" if hidden is None else "bias2"].shape[0]
    found = []
    for start in range(0, len(rows), 64):
        x = rows[start : start + 64]
        program = BallotProgram(rows=len(x), features=x.shape[1], labels=labels, hidden=hidden)
        peer = {**inputs, "mask": np.zeros((len(x), labels), np.int64)}
        found.append(program.compute(np, program.joined({"x": x}, peer))["share"])
    return np.concatenate(found)


@pytest.mark.parametrize(("hidden", "bits", "most"), [(None, 20, 0), (None, 12, 40), (64, 14, 4)])
def test_flips_against_floats(hidden: int | None, bits: int, most: int) -> None:
    """4,000 rows of 10 labels: with 20 bits a linear model loses none of 40,000 votes."""
    model = random_model(1, features=64, labels=10, hidden=hidden)
    X = np.random.default_rng(2).normal(size=(4000, 64))
    rows = quantise_rows(X, features=64, bound=BOUND, bits=bits)
    inputs = quantise_model(model, bound=BOUND, bits=bits)
    wrong = ballots(inputs, rows) != model.votes(np.clip(X, -BOUND, BOUND))
    assert wrong.sum() <= most


def test_labels_of_others_are_answered_with_no() -> None:
    model = random_model(5, features=6, labels=2)
    names = ("x", "label 1", "y", "label 0")
    inputs = quantise_model(model, bound=BOUND, bits=12, labels=names)
    X = np.random.default_rng(6).normal(size=(50, 6))
    found = ballots(inputs, quantise_rows(X, features=6, bound=BOUND, bits=12))
    assert not found[:, [0, 2]].any()
    np.testing.assert_array_equal(found[:, [3, 1]], model.votes(np.clip(X, -BOUND, BOUND)))
    with refused("labels"):
        quantise_model(model, bound=BOUND, bits=12, labels=("label 0",))


@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e15]),
    shift=st.sampled_from([0.0, 1.0, -1e9, 1e9]),
    bits=st.integers(1, 30),
    hidden=st.none() | st.integers(1, 5),
)
def test_no_row_overflows(
    seed: int, scale: float, shift: float, bits: int, hidden: int | None
) -> None:
    model = random_model(seed, features=5, labels=3, hidden=hidden)
    model = SiteModel(
        layers=tuple((w * scale, b * scale + shift) for w, b in model.layers),
        labels=model.labels,
        thresholds=model.thresholds,
    )
    inputs = quantise_model(model, bound=BOUND, bits=bits)
    assert worst_score(inputs, bits) < LIMIT
    corner = np.where(np.random.default_rng(seed).integers(0, 2, (8, 5)), 2**bits, -(2**bits))
    exact = corner.astype(object)
    for place in ("1", "2") if hidden else ("",):
        exact = exact @ inputs[f"weights{place}"].astype(object) + inputs[f"bias{place}"]
        assert abs(exact).max() < LIMIT
        score, exact = exact, np.maximum(exact, 0)
    np.testing.assert_array_equal(ballots(inputs, corner), (score >= 0).astype(int))


@pytest.mark.parametrize(("bias", "vote"), [(0.0, 1), (-1e-12, 0), (1e-12, 1), (-1e6, 0), (1e6, 1)])
def test_a_constant_keeps_its_sign(bias: float, vote: int) -> None:
    model = SiteModel(
        layers=((np.zeros((3, 1)), np.array([bias])),), labels=("a",), thresholds=np.array([0.5])
    )
    inputs = quantise_model(model, bound=1.0, bits=8)
    assert ballots(inputs, np.array([[0, 5, -9]])) == vote


def test_a_bias_beyond_all_weights_decides() -> None:
    model = SiteModel(
        layers=((np.full((3, 2), 1e-9), np.array([-1e6, 1e6])),), labels="ab", thresholds=0.5
    )
    inputs = quantise_model(model, bound=1.0, bits=20)
    assert worst_score(inputs, 20) < LIMIT
    np.testing.assert_array_equal(ballots(inputs, np.full((1, 3), 2**20)), [[0, 1]])
    np.testing.assert_array_equal(ballots(inputs, np.full((1, 3), -(2**20))), [[0, 1]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_must_be_finite(bad: float) -> None:
    with refused("X"):
        quantise_rows([[0.0, 1.0], [bad, 0.0]], features=2, bound=1.0, bits=8)


def test_rows_are_clipped_to_the_bound() -> None:
    rows = quantise_rows([[-9.0, 0.25, 9.0]], features=3, bound=0.5, bits=4)
    np.testing.assert_array_equal(rows, [[-16, 8, 16]])
    assert rows.dtype == np.int64


@pytest.mark.parametrize(
    "change", [{"bound": 0.0}, {"bound": np.nan}, {"bits": 0}, {"bits": 31}, {"features": 3}]
)
def test_bad_settings(change: dict[str, Any]) -> None:
    settings = {"features": 2, "bound": 1.0, "bits": 8, **change}
    with pytest.raises(InputError):
        quantise_rows([[0.0, 1.0]], **settings)


@pytest.mark.parametrize("size", [1e-310, 1e-300, 1e-100, 1e100])
@pytest.mark.parametrize("hidden", [None, 3])
def test_extreme_weights_neither_overflow_nor_escape_the_check(
    size: float, hidden: int | None
) -> None:
    rng = np.random.default_rng(0)
    shapes = [(4, 2)] if hidden is None else [(4, hidden), (hidden, 2)]
    layers = tuple((rng.normal(size=shape) * size, rng.normal(size=shape[1])) for shape in shapes)
    model = SiteModel(layers=layers, labels=("a", "b"), thresholds=np.full(2, 0.5))
    inputs = quantise_model(model, bound=2.0, bits=20)
    assert 0 < worst_score(inputs, 20) < LIMIT
    assert all(np.abs(array.astype(object)).max() < 2**63 for array in inputs.values())


def test_weights_beyond_floating_point_are_refused() -> None:
    layers = ((np.full((2, 1), 1e250), np.zeros(1)),)
    model = SiteModel(layers=layers, labels=("a",), thresholds=np.full(1, 0.5))
    with pytest.raises(InputError, match="weights times bound"):
        quantise_model(model, bound=1.0, bits=20)
