"""Powerset and Plurality: the classes nobody listed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.refusals import refused

import privote as pv
from privote.mechanisms.classes import Contest

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


def test_every_class_has_a_vote() -> None:
    votes = np.array([list(itertools.product((0, 1), repeat=2))], bool)
    entry = pv.PowersetVoting(sigma=1.0).outcome_probabilities(votes)[0]
    assert entry["unvoted"] == 0
    assert [entry[key] for key in ((), (0,), (1,), (0, 1))] == pytest.approx([0.25] * 4)
    drawn = pv.PowersetVoting(sigma=1.0).release(np.tile(votes, (4000, 1, 1)), seed=1)
    counts = np.bincount(drawn @ [2, 1], minlength=4)
    assert chisquare(counts).pvalue > 1e-4


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


@pytest.mark.parametrize("profile", [(3, 2), (1,), (5, 5, 5), ()])
@pytest.mark.parametrize("classes", [4, 64, 2**40])
def test_a_contest_adds_up(profile: tuple[int, ...], classes: int) -> None:
    contest = Contest(1.3, profile, classes)
    levels, log_mult = contest.levels()
    assert np.exp(contest.win_log_probs() + log_mult).sum() == pytest.approx(1, abs=1e-12)
    assert (np.diff(levels) < 0).all()


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
    for bad in (0, -1, 1.5, True):
        with refused("max_positives"):
            pv.PowersetVoting(sigma=1.0, max_positives=bad)  # type: ignore[arg-type]
