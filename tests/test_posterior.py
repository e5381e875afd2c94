"""Deciding after the noise: chances, rules, and what is said about quality."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csc_matrix
from scipy.special import ndtr
from tests.refusals import refused

import privote as pv
from privote import posterior as module
from privote.entropy import Entropy
from privote.errors import InputError
from privote.posterior import Posterior, Regression, Ridge, Rows, posterior

Ints = npt.NDArray[np.int64]


def tallies(
    sigma: float,
    *,
    queries: int = 2000,
    voters: int = 50,
    shares: tuple[float, ...] = (0.02, 0.1, 0.3),
    seed: int = 0,
) -> tuple[Ints, Ints]:
    """Return true and released tallies: 40 of 50 say yes where a label is wanted, else 2."""
    rng = np.random.default_rng(seed)
    wanted = rng.random((queries, len(shares))) < np.array(shares)
    true = rng.binomial(voters, np.where(wanted, 0.8, 0.04)).astype(np.int64)
    return true, true + Entropy(seed).rounded_gaussian(sigma, true.size).reshape(true.shape)


def score(truth: npt.NDArray[np.bool_], labels: npt.NDArray[np.bool_]) -> tuple[float, float]:
    hits = (truth & labels).sum()
    return hits / max(1, labels.sum()), hits / max(1, truth.sum())


@pytest.mark.parametrize("sigma", [0.3, 3.0, 6.0])
def test_chances_are_calibrated(sigma: float) -> None:
    true, released = tallies(sigma, queries=20_000)
    said = posterior(released, sigma=sigma, voters=50)
    chance = said.probabilities
    assert chance.shape == true.shape
    wanted = true > 25
    for low in np.arange(0, 1, 0.2):
        here = (chance >= low) & (chance <= low + 0.2)
        if here.sum() > 300:
            assert wanted[here].mean() == pytest.approx(chance[here].mean(), abs=0.06)
    assert chance.sum() == pytest.approx(wanted.sum(), rel=0.06)


@pytest.mark.parametrize("by", ["likely", "f1", "balanced", 0.3])
def test_expected_quality_is_what_comes_out(by: str | float) -> None:
    true, released = tallies(8.0, queries=4000)
    said = posterior(released, sigma=8.0, voters=50)
    labels = said.labels(by)
    quality = said.quality(by)
    assert quality is not None
    precision, recall = score(true > 25, labels)
    assert quality["precision"] == pytest.approx(precision, abs=0.05)
    assert quality["recall"] == pytest.approx(recall, abs=0.05)
    assert quality["f1"] == pytest.approx(
        2 * (labels & (true > 25)).sum() / (labels.sum() + (true > 25).sum()), abs=0.05
    )
    by_label = quality["by_label"]
    assert by_label["ones"].tolist() == labels.sum(axis=0).tolist()
    right = (labels == (true > 25)).mean(axis=0)
    always = np.maximum((true > 25).mean(axis=0), (true <= 25).mean(axis=0))
    np.testing.assert_allclose(by_label["gain"], right - always, atol=0.03)


def test_each_rule_is_best_at_what_it_is_for() -> None:
    _, released = tallies(10.0)
    said = posterior(released, sigma=10.0, voters=50)
    expected = said.probabilities

    def f1(ones: npt.NDArray[np.bool_]) -> float:
        return float(2 * (ones * expected).sum() / (ones.sum() + expected.sum()))

    def right(ones: npt.NDArray[np.bool_]) -> float:
        return float(np.where(ones, expected, 1 - expected).sum())

    def balanced(ones: npt.NDArray[np.bool_]) -> float:
        yes = (ones * expected).sum(axis=0) / expected.sum(axis=0)
        no = (~ones * (1 - expected)).sum(axis=0) / (1 - expected).sum(axis=0)
        return float((yes + no).mean() / 2)

    rules: list[str | float] = ["likely", "f1", "balanced", 0.1, 0.25, 0.4, 0.7]
    for aim, best in ((right, "likely"), (f1, "f1"), (balanced, "balanced")):
        scores = {by: aim(said.labels(by)) for by in rules}
        assert max(scores.values()) <= scores[best] * (1 + 1e-9)
    assert f1(said.labels("f1")) > f1(said.labels("likely"))


@pytest.mark.parametrize("sigma", [2.0, 20.0, 40.0, 80.0])
@pytest.mark.parametrize("yes", [0.0, 0.05])
def test_nothing_comes_out_of_nothing(sigma: float, yes: float) -> None:
    for seed in range(4):
        true = np.random.default_rng(seed).binomial(60, yes, (600, 10))
        released = true + Entropy(seed).rounded_gaussian(sigma, 6000).reshape(600, 10)
        said = posterior(released, sigma=sigma, voters=60)
        assert not said.labels().any()
        for by in ("likely", "f1", "balanced"):
            assert said.quality(by) is None
        assert sigma > 2 or not said.labels("f1").any()


def test_what_cannot_be_told_is_not() -> None:
    _, clear = tallies(6.0)
    assert posterior(clear, sigma=6.0, voters=50).quality() is not None
    assert posterior(clear, sigma=6.0, voters=50).quality(learnt=False) is None
    _, noisy = tallies(200.0)
    assert posterior(noisy, sigma=200.0, voters=50).quality() is None
    # Luck alone moves what is said of a handful of ones.
    _, few = tallies(9.0, queries=120, shares=(0.02, 0.03))
    assert posterior(few, sigma=9.0, voters=50).quality() is None


@pytest.mark.parametrize("rows", [None, np.eye(3)])
def test_a_handful_of_cells_is_decided_by_plain_majority(rows: object) -> None:
    released = np.array([[10, 40], [26, 25], [-3, 70]])
    said = posterior(released, sigma=5.0, voters=50, rows=rows)
    assert not said.fitted
    assert said.labels().tolist() == [[False, True], [True, False], [False, True]]
    np.testing.assert_allclose(said.probabilities, ndtr((released - 25) / 5.0))
    assert said.quality() is None


def test_bad_input_is_refused() -> None:
    for bad in (np.zeros((2, 3)), np.zeros(3, int), np.zeros((0, 3), int)):
        with pytest.raises(InputError):
            posterior(bad, sigma=1.0, voters=5)
    for wrong in ({"sigma": 0.0}, {"voters": 0}, {"resolution": 0}):
        with pytest.raises(InputError):
            posterior(np.zeros((2, 2), int), **{"sigma": 1.0, "voters": 5, **wrong})
    said = posterior(np.zeros((300, 2), int), sigma=1.0, voters=5)
    for by in ("best", 1.5, -0.1, math.nan):
        with pytest.raises(InputError):
            said.labels(by)
    assert isinstance(said, Posterior)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_label_is_one_exactly_where_its_probability_is_above_one_half(
    share: float, seed: int
) -> None:
    votes = np.random.default_rng(seed).random((300, 40, 4)) < share
    release = pv.label(votes, epsilon=2.0, delta=1e-5, seed=seed)
    assert release.probabilities is not None
    assert (release.labels == (release.probabilities > 0.5)).all()


# -- with the queries' rows ------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]


def described(
    sigma: float, *, queries: int = 1500, features: int = 30, wanted: float = 0.1, seed: int = 0
) -> tuple[Ints, Ints, Floats]:
    """Return true and released tallies of eight labels that follow from rows, and the rows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(queries, features)) * np.geomspace(3, 1, features)
    level = rows @ rng.normal(size=(features, 8)) + rng.normal(size=(queries, 8))
    ones = level > np.quantile(level, 1 - wanted, axis=0)
    true = rng.binomial(50, np.where(ones, 0.8, 0.04)).astype(np.int64)
    released = true + Entropy(seed).rounded_gaussian(sigma, true.size).reshape(true.shape)
    return true, released, rows


def f1(truth: npt.NDArray[np.bool_], labels: npt.NDArray[np.bool_]) -> float:
    return float(2 * (truth & labels).sum() / max(1, truth.sum() + labels.sum()))


@pytest.mark.parametrize("sigma", [15.0, 40.0])
def test_rows_help_and_quality_is_what_comes_out(sigma: float) -> None:
    true, released, rows = described(sigma)
    alone = posterior(released, sigma=sigma, voters=50)
    both = posterior(released, sigma=sigma, voters=50, rows=rows)
    assert f1(true > 25, both.labels("f1")) > f1(true > 25, alone.labels("f1")) + 0.05
    assert np.array_equal(both.labels(), both.probabilities > 0.5)
    assert ((both.shares - true / 50) ** 2).mean() < ((alone.shares - true / 50) ** 2).mean()
    quality = both.quality("f1")
    if sigma > 0.6 * 50 * math.sqrt(1500) / 25:
        assert quality is None
    else:
        assert quality is not None
        assert quality["precision"] < score(true > 25, both.labels("f1"))[0] + 0.05
        assert both.quality("f1", learnt=False) is None


@pytest.mark.parametrize("sigma", [5.0, 25.0])
def test_rows_that_say_nothing_do_no_harm(sigma: float) -> None:
    true, released, rows = described(sigma)
    noise = np.random.default_rng(9).normal(size=rows.shape)
    alone = f1(true > 25, posterior(released, sigma=sigma, voters=50).labels("f1"))
    for nothing in (noise, np.ones((len(rows), 1)), np.zeros((len(rows), 3))):
        said = posterior(released, sigma=sigma, voters=50, rows=nothing)
        assert f1(true > 25, said.labels("f1")) > 0.93 * alone - 0.01


@pytest.mark.parametrize("sigma", [2.0, 20.0])
def test_nothing_comes_out_of_nothing_with_rows(sigma: float) -> None:
    for seed in range(4):
        rows = np.random.default_rng(seed).normal(size=(300, 400 if seed % 2 else 20))
        released = Entropy(seed).rounded_gaussian(sigma, 3000).reshape(300, 10)
        said = posterior(released, sigma=sigma, voters=60, rows=rows)
        assert not said.labels().any()
        assert said.quality() is None


def test_a_prediction_leaves_its_cell_out() -> None:
    _, released, rows = described(20.0, queries=60, features=5)
    gaps = released - released.mean(axis=0)
    ridge = Ridge.of(gaps, Rows(rows, 60))
    errors, variance = ridge.errors(slice(0, 60))
    vectors = ridge.rows.block(slice(0, 60))
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-10)
    for label in range(8):
        penalty = 1 / np.maximum(ridge.shrunk[:, label], 1e-12) - 1
        for query in (0, 7, 59):
            rest = np.arange(60) != query
            design = np.column_stack([np.ones(59), vectors[rest]])
            left = design.T @ design + np.diag([0, *penalty])
            weights = np.array([1, *vectors[query]]) @ np.linalg.solve(left, design.T)
            due = gaps[query, label] - weights @ gaps[rest, label]
            assert errors[query, label] == pytest.approx(due)
            assert variance[query, label] == pytest.approx(weights @ weights, rel=0.02)


def test_how_rows_are_held_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, released, rows = described(20.0, queries=600)
    rows[rows < 0.5] = 0

    def chances(held: object) -> Floats:
        return posterior(released, sigma=20.0, voters=50, rows=held).probabilities

    due = chances(rows)
    np.testing.assert_allclose(chances(csc_matrix(rows)), due, atol=1e-8)
    np.testing.assert_allclose(chances(1e6 + rows), due, atol=1e-4)
    wide = np.zeros((600, 700))  # fewer queries than features
    wide[:, 70:100] = 8 * rows
    np.testing.assert_allclose(chances(wide), due, atol=1e-8)
    monkeypatch.setattr(module, "_BLOCK", 256 * 50)
    np.testing.assert_allclose(chances(rows), due, atol=1e-8)
    wider = csc_matrix((600, 6000))
    wider[:, np.arange(0, 6000, 200)] = rows
    np.testing.assert_allclose(chances(wider), due, atol=0.2)


@pytest.mark.parametrize("with_rows", [False, True])
def test_units_of_a_vote_change_nothing(with_rows: bool) -> None:
    _, released, rows = described(20.0)
    how = {"sigma": 20.0, "voters": 50, "rows": rows if with_rows else None}
    votes = posterior(released, **how)
    percents = posterior(100 * released, resolution=100, **how)
    np.testing.assert_allclose(percents.probabilities, votes.probabilities, atol=0.03)


def test_one_query_has_rows_too() -> None:
    one = posterior(np.full((1, 300), 40), sigma=5.0, voters=50, rows=[[1.0, 2.0]])
    assert isinstance(one.model, Regression)
    assert np.isfinite(one.probabilities).all()


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros(300),
        np.zeros((299, 4)),
        np.zeros((300, 0)),
        np.zeros((300, 2, 2)),
        np.full((300, 2), np.nan),
        np.full((300, 2), np.inf),
        np.full((300, 2), 1e200),
        np.zeros((300, 2), complex),
        np.full((300, 2), "a"),
        np.full((300, 2), None),
    ],
)
def test_bad_rows_are_refused(rows: object) -> None:
    with refused("rows"):
        posterior(np.zeros((300, 2), int), sigma=1.0, voters=5, rows=rows)
