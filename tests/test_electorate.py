"""Electorate: the allowance is spent in order, lasts over batches, and exists once."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privote as pv
from privote.votes.contributions import bound_votes


def electorate(allowance: Any) -> pv.Electorate:
    size: dict[str, Any] = {"voters": 3, "labels": 4, "epsilon": 50.0, "delta": 1e-5}
    return pv.Electorate(mechanism=pv.BinaryVoting(sigma=3.0), **size, allowance=allowance)


def by_hand(
    votes: np.ndarray, baseline: np.ndarray, left: np.ndarray, unit: str
) -> tuple[np.ndarray, np.ndarray]:
    """The rule, one voter and one query at a time."""
    out, spent = np.zeros(votes.shape, bool), np.zeros(votes.shape[1], int)
    for j in range(votes.shape[1]):
        for q in range(votes.shape[0]):
            ballot = votes[q, j]
            if unit == "vote":
                filled = np.where(ballot == -1, baseline[q], ballot == 1)
                cost = int((filled != baseline[q]).sum())
            else:
                filled = baseline[q] if (ballot == -1).all() else ballot == 1
                cost = int((filled != baseline[q]).any())
            fits = cost <= left[j] - spent[j]
            spent[j] += cost if fits else 0
            left[j] = left[j] if fits else spent[j]  # and nothing more, for good
            out[q, j] = filled if fits else baseline[q]
    return out, spent


@given(
    votes=hnp.arrays(np.int8, (5, 3, 2), elements=st.integers(-1, 1)),
    baseline=hnp.arrays(np.bool_, (5, 2)),
    left=hnp.arrays(np.int64, (3,), elements=st.integers(0, 8)),
    unit=st.sampled_from(["vote", "ballot"]),
)
def test_effective_votes_equal_the_rule_by_hand(
    votes: np.ndarray, baseline: np.ndarray, left: np.ndarray, unit: str
) -> None:
    got, spent, _ = bound_votes(votes, baseline, left, unit)
    expected, cost = by_hand(votes, baseline, left.copy(), unit)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(spent, cost)
    assert (spent <= left).all()


def test_each_voter_may_have_its_own_allowance() -> None:
    voters = electorate(allowance=[0, 2, 6])
    voters.answer(np.ones((3, 3, 4), bool))
    assert voters.sealed.spent.tolist() == [0, 0, 4]
    each = voters.epsilon_by_voter
    assert each[0] == 0.0
    assert 0 < each[1] < each[2]
    assert voters.epsilon == each[2]


def test_repr_shows_no_sealed_number() -> None:
    voters = electorate(allowance=50)
    before = repr(voters)
    voters.answer(np.ones((3, 3, 4), bool))
    assert repr(voters) == before
