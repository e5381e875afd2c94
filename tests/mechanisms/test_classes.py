"""Powerset and Plurality: the classes nobody listed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chisquare

import privote as pv

ORDERS = np.array([1.5, 2.0, 32.0])


def test_nobody_votes() -> None:
    silent = np.full((3, 4, 3), -1, np.int8)
    entry = pv.PowersetVoting(sigma=1.0).outcome_probabilities(silent)[0]
    assert entry == {"unvoted": pytest.approx(1.0)}
    np.testing.assert_allclose(
        pv.PluralityVoting(sigma=1.0).outcome_probabilities(silent), np.full((3, 3), 1 / 3)
    )
    for mech in (pv.PowersetVoting(sigma=1.0), pv.PluralityVoting(sigma=1.0)):
        assert (mech.rdp(silent, ORDERS) > 0).all()
        bills = mech.rdp_by_voter(silent, ORDERS)
        np.testing.assert_allclose(bills.max(axis=(0, 1)), mech.rdp(silent, ORDERS).sum(axis=0))


def test_one_label_is_no_choice_for_plurality() -> None:
    votes = np.ones((1, 3, 1), bool)
    assert (pv.PluralityVoting(sigma=1.0).rdp(votes, ORDERS) == 0).all()
    assert pv.PluralityVoting(sigma=1.0).release(votes).tolist() == [[1]]
    # The gate still tells how many spoke.
    gated = pv.PluralityVoting(sigma=1.0, gate=pv.Gate(threshold=2, sigma=1.0))
    assert (gated.rdp(votes, ORDERS) > 0).all()


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_unvoted_sets_are_drawn_alike(most: int) -> None:
    labels = 3
    mech = pv.PowersetVoting(sigma=50.0, max_positives=most)
    votes = np.zeros((1, 2, labels), bool)
    votes[0, 0, 0] = True  # {0} and {} have a vote
    drawn = mech.release(np.tile(votes, (20_000, 1, 1)), seed=2)
    codes = drawn @ [4, 2, 1]
    sets = [s for s in itertools.product((0, 1), repeat=labels) if sum(s) <= most]
    assert mech.classes(labels) == len(sets)
    free = [4 * a + 2 * b + c for a, b, c in sets if (a, b, c) not in ((0, 0, 0), (1, 0, 0))]
    counts = np.bincount(codes, minlength=8)
    assert counts.sum() == counts[[0, 4, *free]].sum(), "a set that cannot win was released"
    assert chisquare(counts[free]).pvalue > 1e-4


def test_refusals_name_the_rule_and_seal_the_place() -> None:
    votes = np.zeros((9, 8, 3), bool)
    votes[8, 7] = True
    for mechanism in (
        pv.PluralityVoting(sigma=1.0),
        pv.PowersetVoting(sigma=1.0, max_positives=2),
    ):
        with pytest.raises(pv.BallotError, match="a ballot has more") as told:
            mechanism.rdp(votes)
        assert "voter 7 has 3 positives on query 8" in str(told.value.sealed)
        for text in (str(told.value), repr(told.value)):
            assert "7" not in text
            assert "8" not in text


def test_of_two_labels_plurality_is_one_yes_or_no() -> None:
    mech = pv.PluralityVoting(sigma=2.0)
    for yes in range(8):
        ballots = np.eye(2, dtype=bool)[np.repeat([0, 1], [yes, 7 - yes])][None]
        wins = mech.outcome_probabilities(ballots)[0]
        # Both counts with their own noise: Pr = Phi((2c - n) / (sqrt(2) sigma)).
        assert wins[0] == pytest.approx(ndtr((2 * yes - 7) / (2**0.5 * 2.0)), rel=1e-9)
        assert wins.sum() == pytest.approx(1, abs=1e-12)


def test_many_labels_are_no_harder_than_few() -> None:
    votes = np.zeros((1, 20, 3000), bool)
    votes[0, :15, 7] = True
    mech = pv.PowersetVoting(sigma=0.3)
    assert mech.rdp(votes, ORDERS).shape == (1, 3)
    entry = mech.outcome_probabilities(votes)[0]
    assert set(entry) == {(), (7,), "unvoted"}
    # sqrt(2 ln 2^3000) sigma = 19.3: the best of all unvoted sets beats fifteen votes.
    assert entry["unvoted"] > 0.99
