"""Powerset and Plurality: the classes nobody listed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

import privote as pv


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
