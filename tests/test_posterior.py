"""Deciding after the noise: chances, rules, and what is said about quality."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtr

import privote as pv
from privote.entropy import Entropy
from privote.errors import InputError
from privote.posterior import Posterior, posterior

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
    chance = said.probabilities(released)
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
    labels = said.labels(released, by)
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
    expected = said.counts * said.chances

    def f1(ones: npt.NDArray[np.bool_]) -> float:
        hits = (ones * expected).sum()
        return float(2 * hits / ((ones * said.counts).sum() + expected.sum()))

    def right(ones: npt.NDArray[np.bool_]) -> float:
        return float(np.where(ones, expected, said.counts - expected).sum())

    def balanced(ones: npt.NDArray[np.bool_]) -> float:
        total = expected.sum(axis=1)
        yes = (ones * expected).sum(axis=1) / total
        no = (~ones * (said.counts - expected)).sum(axis=1) / (said.counts.sum(axis=1) - total)
        return float((yes + no).mean() / 2)

    rules: list[str | float] = ["likely", "f1", "balanced", 0.1, 0.25, 0.4, 0.7]
    for aim, best in ((right, "likely"), (f1, "f1"), (balanced, "balanced")):
        scores = {by: aim(said.decided(by)) for by in rules}
        assert max(scores.values()) <= scores[best] * (1 + 1e-9)
    assert f1(said.decided("f1")) > f1(said.decided("likely"))


@pytest.mark.parametrize("sigma", [2.0, 20.0, 40.0, 80.0])
@pytest.mark.parametrize("yes", [0.0, 0.05])
def test_nothing_comes_out_of_nothing(sigma: float, yes: float) -> None:
    for seed in range(4):
        true = np.random.default_rng(seed).binomial(60, yes, (600, 10))
        released = true + Entropy(seed).rounded_gaussian(sigma, 6000).reshape(600, 10)
        said = posterior(released, sigma=sigma, voters=60)
        assert not said.labels(released).any()
        for by in ("likely", "f1", "balanced"):
            assert said.quality(by) is None
        assert sigma > 2 or not said.labels(released, "f1").any()


def test_what_cannot_be_told_is_not() -> None:
    _, clear = tallies(6.0)
    assert posterior(clear, sigma=6.0, voters=50).quality() is not None
    assert posterior(clear, sigma=6.0, voters=50).quality(learnt=False) is None
    _, noisy = tallies(200.0)
    assert posterior(noisy, sigma=200.0, voters=50).quality() is None
    # Luck alone moves what is said of a handful of ones.
    _, few = tallies(9.0, queries=120, shares=(0.02, 0.03))
    assert posterior(few, sigma=9.0, voters=50).quality() is None


def test_a_handful_of_cells_is_decided_by_plain_majority() -> None:
    released = np.array([[10, 40], [26, 25], [-3, 70]])
    said = posterior(released, sigma=5.0, voters=50)
    assert not said.fitted
    assert said.labels(released).tolist() == [[False, True], [True, False], [False, True]]
    np.testing.assert_allclose(said.probabilities(released), ndtr((released - 25) / 5.0))
    assert said.quality() is None


def test_steps_of_a_vote_change_nothing() -> None:
    true, released = tallies(8.0)
    votes = posterior(released, sigma=8.0, voters=50)
    noise = Entropy(0).rounded_gaussian(800.0, true.size).reshape(true.shape)
    percents = posterior(100 * true + noise, sigma=8.0, voters=50, steps=100)
    np.testing.assert_allclose(
        percents.probabilities(100 * true + noise), votes.probabilities(released), atol=0.1
    )


def test_tallies_that_come_later_are_decided_alike() -> None:
    _, released = tallies(8.0)
    said = posterior(released, sigma=8.0, voters=50)
    outside = np.array([[10**6, -(10**6), 25]])
    assert said.labels(outside)[0, :2].tolist() == [True, False]


def test_bad_input_is_refused() -> None:
    for bad in (np.zeros((2, 3)), np.zeros(3, int), np.zeros((0, 3), int)):
        with pytest.raises(InputError):
            posterior(bad, sigma=1.0, voters=5)
    for wrong in ({"sigma": 0.0}, {"voters": 0}, {"steps": 0}):
        with pytest.raises(InputError):
            posterior(np.zeros((2, 2), int), **{"sigma": 1.0, "voters": 5, **wrong})
    said = posterior(np.zeros((300, 2), int), sigma=1.0, voters=5)
    for by in ("best", 1.5, -0.1, math.nan):
        with pytest.raises(InputError):
            said.decided(by)
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
