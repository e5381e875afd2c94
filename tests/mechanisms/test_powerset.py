"""Powerset: sets as classes, and what that makes of symmetry."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv

ORDERS = np.array([1.5, 3.0, 32.0])
seeds = st.integers(0, 9999)


def cube(seed: int, queries: int = 2, voters: int = 6, labels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).random((queries, voters, labels)) < 0.4


@pytest.mark.parametrize("gate", [None, pv.Gate(threshold=5, sigma=1.5)])
def test_of_one_label_it_is_binary(gate: pv.Gate | None) -> None:
    # Two sets, {} and {0}, whose counts are the no- and the yes-votes: the same election.
    votes = cube(1, queries=5, voters=7, labels=1)
    sets, labels = pv.PowersetVoting(sigma=1.5, gate=gate), pv.BinaryVoting(sigma=1.5, gate=gate)
    np.testing.assert_allclose(sets.rdp(votes, ORDERS), labels.rdp(votes, ORDERS), rtol=1e-8)
    np.testing.assert_allclose(
        sets.rdp_by_voter(votes, ORDERS), labels.rdp_by_voter(votes, ORDERS), rtol=1e-8
    )
    table = labels.outcome_probabilities(votes)[:, 0]
    for entry, row in zip(sets.outcome_probabilities(votes), table, strict=True):
        assert entry[(0,)] == pytest.approx(row[1], rel=1e-9)
        assert entry[()] == pytest.approx(row[0], rel=1e-9)


@given(seed=seeds)
def test_swapping_yes_and_no_of_a_label_changes_nothing(seed: int) -> None:
    # It only renames the sets, and which set is empty does not matter.
    votes = cube(seed)
    mask = np.random.default_rng(seed + 1).random(3) < 0.5
    mech = pv.PowersetVoting(sigma=1.5)
    np.testing.assert_allclose(
        mech.rdp(votes ^ mask, ORDERS), mech.rdp(votes, ORDERS), rtol=1e-12
    )  # fmt: skip
    np.testing.assert_allclose(
        mech.rdp_by_voter(votes ^ mask, ORDERS), mech.rdp_by_voter(votes, ORDERS), rtol=1e-9
    )


@given(seed=seeds, sigma=st.floats(0.3, 20))
def test_probabilities_add_up_and_the_leader_leads(seed: int, sigma: float) -> None:
    votes = cube(seed, queries=1)
    entry = pv.PowersetVoting(sigma=sigma).outcome_probabilities(votes)[0]
    assert sum(entry.values()) == pytest.approx(1, abs=1e-10)
    counts: dict[tuple[int, ...], int] = {}
    for ballot in votes[0]:
        key = tuple(np.flatnonzero(ballot).tolist())
        counts[key] = counts.get(key, 0) + 1
    assert set(counts) == set(entry) - {"unvoted"}
    order = sorted(counts, key=lambda key: counts[key])
    wins = [entry[key] for key in order]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(wins))


def test_a_bound_that_excludes_nothing_costs_the_same() -> None:
    votes = cube(3)
    free, bound = pv.PowersetVoting(sigma=2.0), pv.PowersetVoting(sigma=2.0, max_positives=3)
    np.testing.assert_allclose(free.rdp(votes, ORDERS), bound.rdp(votes, ORDERS), rtol=1e-12)
    assert (
        free.classes(3)
        == bound.classes(3)
        == pv.PowersetVoting(sigma=2, max_positives=9).classes(3)
    )


def test_the_worst_case_asks_for_no_sizes_and_falls_with_noise() -> None:
    small, large = (pv.PowersetVoting(sigma=s).worst_case_rdp(5, 3, ORDERS) for s in (4.0, 2.0))
    assert (small < large).all()
    np.testing.assert_array_equal(
        small, pv.PowersetVoting(sigma=4.0).worst_case_rdp(5000, 900, ORDERS)
    )
    assert (large <= ORDERS / 4).all()  # order / sigma^2: two counts move by one


def test_many_labels_are_no_harder_than_few() -> None:
    votes = np.zeros((1, 20, 3000), bool)
    votes[0, :15, 7] = True
    mech = pv.PowersetVoting(sigma=0.3)
    assert mech.rdp(votes, ORDERS).shape == (1, 3)
    entry = mech.outcome_probabilities(votes)[0]
    assert set(entry) == {(), (7,), "unvoted"}
    # sqrt(2 ln 2^3000) sigma = 19.3: the best of all unvoted sets beats fifteen votes.
    assert entry["unvoted"] > 0.99
