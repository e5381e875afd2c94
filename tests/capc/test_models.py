"""A site's model: from fitted classifiers, saved, as integers without overflow, trained again."""

from __future__ import annotations

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

from privote.capc.models import (
    LIMIT,
    Records,
    SiteModel,
    evaluate,
    quantise_model,
    quantise_rows,
    train_site,
)
from privote.capc.programs import BallotProgram
from privote.learning.students import LinearStudent

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 5)) * [1, 2, 3, 4, 5] + [0, 1, 2, 3, 4]
Y = (X @ RANDOM.normal(size=(5, 3)) + RANDOM.normal(size=(300, 3)) > 1).astype(int)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        OneVsRestClassifier(LogisticRegression()),
        MultiOutputClassifier(LogisticRegression()),
        LinearStudent(),
        make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression())),
    ],
    ids=["one-vs-rest", "multi-output", "student", "scaled"],
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


@pytest.mark.filterwarnings("ignore:Label")
def test_a_label_of_one_class_is_a_constant() -> None:
    constant = np.column_stack([Y[:, 0], np.zeros(len(Y), int), np.ones(len(Y), int)])
    model = SiteModel.of(OneVsRestClassifier(LogisticRegression()).fit(X, constant))
    votes = model.votes(X)
    assert not votes[:, 1].any()
    assert votes[:, 2].all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_refused() -> None:
    layers = MLPClassifier(hidden_layer_sizes=(7,), max_iter=5).fit(X, Y)
    for estimator in (
        LogisticRegression().fit(X, Y.sum(axis=1)),  # softmax
        LogisticRegression().fit(X, Y[:, 0] + 1),  # classes 1 and 2
        OneVsRestClassifier(LogisticRegression()),  # not fitted
        layers,
        make_pipeline(StandardScaler().fit(X), layers),
        object(),
    ):
        with refused():
            SiteModel.of(estimator)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("thresholds", bad) for bad in ([0.0, 0.5], [0.5, 1.0], [0.5, np.nan], [0.5, 0.5, 0.5])),
        *(("labels", bad) for bad in (("a",), ("a", "a"))),
        *(("weights", bad) for bad in (np.full((3, 2), np.nan), np.zeros(3))),
        *(("bias", bad) for bad in (np.array([np.inf, 0]), np.zeros(3))),
    ],
)
def test_models_refused(name: str, value: Any) -> None:
    good: dict[str, Any] = {"weights": np.zeros((3, 2)), "labels": ("a", "b"), "thresholds": 0.5}
    SiteModel(bias=0, **good)  # type: ignore[arg-type]
    with refused():
        SiteModel(**{"bias": 0, **good, name: value})


def some_model(
    seed: int, features: int, labels: int, scale: float = 1.0, shift: float = 0.0
) -> Any:
    values = np.random.default_rng(seed)
    return SiteModel(
        weights=values.normal(size=(features, labels)) * scale,
        bias=values.normal(size=labels) * scale + shift,
        labels=tuple(f"fête {i}" for i in range(labels)),
        thresholds=values.uniform(0.1, 0.9, labels),
    )


def test_saved_for_its_owner_and_loaded(tmp_path: Path) -> None:
    model, place = some_model(0, 5, 3), tmp_path / "model.npz"
    place.write_bytes(b"an older one")
    place.chmod(0o644)
    model.save(place)
    assert place.stat().st_mode & 0o077 == 0
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]
    again = SiteModel.load(place)
    assert again.labels == model.labels
    np.testing.assert_array_equal(again.scores(X), model.scores(X))
    np.testing.assert_array_equal(again.thresholds, model.thresholds)
    with refused(None):
        model.save(tmp_path / "nowhere" / "model.npz")


BOUND = 4.0


def worst_score(inputs: dict[str, Any], bits: int) -> int:
    """Return the largest |score| that any row within the bound can reach (Python integers)."""
    sizes = abs(inputs["weights"].astype(object)).sum(axis=0)
    return int(max((1 << bits) * sizes + abs(inputs["bias"].astype(object))))


def ballots(inputs: dict[str, Any], rows: Any) -> Any:
    """Return ballots by the program itself, in clear, chunk by chunk."""
    labels, found = len(inputs["bias"]), []
    for start in range(0, len(rows), 64):
        x = rows[start : start + 64]
        program = BallotProgram(rows=len(x), features=x.shape[1], labels=labels)
        peer = {**inputs, "mask": np.zeros((len(x), labels), np.int64)}
        found.append(program.compute(np, program.joined({"x": x}, peer))["share"])
    return np.concatenate(found)


@pytest.mark.parametrize(("bits", "most"), [(20, 0), (12, 40)])
def test_flips_against_floats(bits: int, most: int) -> None:
    """4,000 rows of 10 labels: with 20 bits a linear model loses none of 40,000 votes."""
    model = some_model(1, 64, 10)
    X = np.random.default_rng(2).normal(size=(4000, 64))
    rows = quantise_rows(X, features=64, bound=BOUND, bits=bits)
    wrong = ballots(quantise_model(model, bound=BOUND, bits=bits), rows) != model.votes(
        np.clip(X, -BOUND, BOUND)
    )
    assert wrong.sum() <= most


@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-310, 1e-300, 1e-100, 1e-12, 1e-3, 1.0, 1e6, 1e15, 1e100]),
    shift=st.sampled_from([0.0, 1.0, -1e9, 1e9]),
    bits=st.integers(1, 30),
)
def test_no_row_overflows(seed: int, scale: float, shift: float, bits: int) -> None:
    model = some_model(seed, 5, 3, scale, shift)
    inputs = quantise_model(model, bound=BOUND, bits=bits)
    assert 0 < worst_score(inputs, bits) < LIMIT
    corner = np.where(np.random.default_rng(seed).integers(0, 2, (8, 5)), 2**bits, -(2**bits))
    exact = corner.astype(object) @ inputs["weights"].astype(object) + inputs["bias"]
    assert abs(exact).max() < LIMIT
    np.testing.assert_array_equal(ballots(inputs, corner), (exact >= 0).astype(int))


@pytest.mark.parametrize(
    ("weight", "bias", "vote"),
    [(0.0, 0.0, 1), (0.0, -1e-12, 0), (0.0, 1e-12, 1), (1e-9, -1e6, 0), (1e-9, 1e6, 1)],
)
def test_a_bias_beyond_all_weights_keeps_its_sign(weight: float, bias: float, vote: int) -> None:
    model = SiteModel(weights=np.full((3, 1), weight), bias=bias, labels="a", thresholds=0.5)  # type: ignore[arg-type]
    inputs = quantise_model(model, bound=1.0, bits=8)
    for row in ([0, 5, -9], [256] * 3, [-256] * 3):
        assert ballots(inputs, np.array([row])) == vote


def test_rows_are_finite_and_clipped_to_the_bound() -> None:
    rows = quantise_rows([[-9.0, 0.25, 9.0]], features=3, bound=0.5, bits=4)
    np.testing.assert_array_equal(rows, [[-16, 8, 16]])
    assert rows.dtype == np.int64
    good = {"X": [[0.0, 1.0]], "features": 2, "bound": 1.0, "bits": 8}
    for key, value in (
        *(("X", [[0.0, bad]]) for bad in (np.nan, np.inf, -np.inf)),
        *(("bound", 0.0), ("bound", np.nan), ("bits", 0), ("bits", 31), ("features", 3)),
    ):
        with refused():
            quantise_rows(**{**good, key: value})
    with refused(None):
        quantise_model(some_model(0, 2, 1, 1e250), bound=1.0, bits=20)


# -- training --------------------------------------------------------------------------------------

LABELS = ("a", "b", "c")


def made_up(count, seed, flip=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6))
    truth = np.random.default_rng(7).normal(size=(6, 3))
    Y = (X @ truth - 0.8 > 0) ^ (rng.random((count, 3)) < flip)
    return X, Y.astype(np.int8)


TEST = made_up(400, 99)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_labels_of_the_coalition_improve_a_small_site(kind):
    X, Y = made_up(24, 2)
    Y[:4, 0] = -1
    Y[:, 1] = -1  # a label without records is learned from the coalition alone
    records = Records(X=kind(X), Y=Y)
    assert (records.Y != -1).any(axis=0).tolist() == [True, False, True]
    X_new, Y_new = made_up(300, 3, flip=0.05)
    Y_new[::9] = -1
    before = train_site(records, LABELS)
    after = train_site(records, LABELS, Records(X=kind(X_new), Y=Y_new))
    assert not before.votes(TEST[0])[:, 1].any()
    assert ((after.votes(TEST[0]) == TEST[1]).mean(axis=0) > 0.85).all()
    for figure in ("BAC", "AUC"):
        assert evaluate(after, *TEST)[figure] > evaluate(before, *TEST)[figure] + 0.03
    taught = train_site(records, LABELS, Records(X=kind(X_new), Y=np.full((300, 3), -1, np.int8)))
    assert evaluate(taught, *TEST)["AUC"] == pytest.approx(evaluate(before, *TEST)["AUC"], abs=0.01)


def test_as_many_yeses_as_the_records_have_that_are_known():
    X, Y = made_up(300, 2)
    Y[:200, 0] = -1  # counted, they would be taken for noes
    Y[:, 1] = -1
    released = made_up(300, 3)[1]
    released[:, 1] = np.random.default_rng(4).random(300) < 0.2  # nothing that rows could tell
    new = Records(X=made_up(300, 3)[0], Y=released)
    model = train_site(Records(X=X, Y=Y), LABELS, new)
    shares = model.votes(TEST[0]).mean(axis=0)
    wanted = [TEST[1][:, 0].mean(), 0.2, TEST[1][:, 2].mean()]
    np.testing.assert_allclose(shares, wanted, atol=0.1)


def test_what_does_not_fit_is_refused():
    X, Y = made_up(10, 0)
    with refused("Y"):
        Records(X=X, Y=Y[:5])
    with refused("Y"):
        Records(X=X, Y=Y * 2)
    with refused("released"):
        train_site(Records(X=X, Y=Y), LABELS, Records(X=X, Y=Y[:, :2]))
