"""Integers for rows and models: few flips, no overflow, bad numbers refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.capc.models import LIMIT, SiteModel, _reach, quantise_model, quantise_rows
from privote.capc.programs import BallotProgram
from privote.errors import InputError

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
    with pytest.raises(InputError, match="all labels of the model"):
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
    with pytest.raises(InputError, match="row 1, column 0"):
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
