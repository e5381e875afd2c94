"""The textbook must be right by itself: it is what everything else is measured with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm
from tests.refusals import refused

import privote as pv
from privote.audit.reference import Textbook, win_log_probs


def test_two_classes_win_as_one_difference_of_noises() -> None:
    for a, b, sigma in ((3, 1, 2.0), (5, 5, 0.3), (12, 0, 1.0)):
        wins = win_log_probs((b, a), sigma)
        expected = norm.logcdf((a - b) / (math.sqrt(2) * sigma))
        assert wins[a] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_wins_follow_simulated_noise() -> None:
    counts, sigma = np.array([4, 3, 3, 0]), 1.5
    noisy = counts + sigma * np.random.default_rng(0).standard_normal((400_000, 4))
    share = np.bincount(noisy.argmax(axis=1), minlength=4) / len(noisy)
    wins = win_log_probs((0, 3, 3, 4), sigma)
    np.testing.assert_allclose(share, [math.exp(wins[c]) for c in counts], atol=3e-3)


def test_every_ballot_and_every_outcome_is_listed() -> None:
    gate = pv.Gate(threshold=1, sigma=1.0)
    book = Textbook(pv.BinaryVoting(sigma=1.0, gate=gate), 3, 2, missing=True)
    assert len(book.ballots) == len(book.outcomes) == 9
    book = Textbook(pv.PluralityVoting(sigma=1.0, gate=gate), 3, 3)
    assert len(book.ballots) == 4  # one label, or none
    assert len(book.outcomes) == 4  # one label, or ABSTAIN
    book = Textbook(pv.PowersetVoting(sigma=1.0, max_positives=1), 3, 3)
    assert len(book.ballots) == len(book.outcomes) == 4
    with refused("labels"):
        Textbook(pv.BinaryVoting(sigma=1.0), 3, 6, missing=True)


def test_the_joint_distribution_is_counted_vote_by_vote() -> None:
    """Binary with two noises drawn on two counts, by simulation from the definition."""
    mech = pv.BinaryVoting(sigma=1.3, gate=pv.Gate(threshold=2.5, sigma=0.8))
    ballots = np.array([[1, 0], [1, 1], [0, 0], [1, 0]])
    book = Textbook(mech, 4, 2)
    cast = np.array([[np.flatnonzero((book.ballots == b).all(axis=1))[0] for b in ballots]])
    expected = np.exp(book.log_probs(book.census(cast))[0])
    rng = np.random.default_rng(1)
    draws, yes = 300_000, ballots.sum(axis=0)
    noise = 1.3 * rng.standard_normal((2, draws, 2))
    label = (yes + noise[0] > 4 - yes + noise[1]).astype(int)
    answered = np.maximum(yes, 4 - yes) + 0.8 * rng.standard_normal((draws, 2)) > 2.5
    label[~answered] = -1
    share = [(label == outcome).all(axis=1).mean() for outcome in book.outcomes]
    np.testing.assert_allclose(share, expected, atol=3e-3)
