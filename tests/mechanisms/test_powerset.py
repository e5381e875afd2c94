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


def test_many_labels_are_no_harder_than_few() -> None:
    votes = np.zeros((1, 20, 3000), bool)
    votes[0, :15, 7] = True
    mech = pv.PowersetVoting(sigma=0.3)
    assert mech.rdp(votes, ORDERS).shape == (1, 3)
    entry = mech.outcome_probabilities(votes)[0]
    assert set(entry) == {(), (7,), "unvoted"}
    # sqrt(2 ln 2^3000) sigma = 19.3: the best of all unvoted sets beats fifteen votes.
    assert entry["unvoted"] > 0.99
