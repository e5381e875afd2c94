"""The gate: how often it opens, and what opening and voting cost together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.accounting.renyi import two_sided

ORDERS = np.array([1.5, 3.0, 32.0])


def test_a_gate_far_below_is_none_and_one_far_above_says_nothing() -> None:
    votes = np.random.default_rng(0).random((6, 9, 3)) < 0.5
    plain = pv.BinaryVoting(sigma=2.0)
    wide_open = pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=-200, sigma=3))
    np.testing.assert_allclose(wide_open.rdp(votes, ORDERS), plain.rdp(votes, ORDERS), rtol=1e-9)
    closed = pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=200, sigma=3))
    assert (closed.release(votes) == pv.ABSTAIN).all()
    assert closed.rdp(votes, ORDERS).max() < 1e-12


@given(seed=st.integers(0, 999), threshold=st.floats(0, 12), sigma=st.floats(0.3, 10))
def test_jointly_it_costs_no_more_than_one_after_the_other(
    seed: int, threshold: float, sigma: float
) -> None:
    margins, voters = np.arange(-10, 11), 10
    gate = pv.Gate(threshold=threshold, sigma=sigma)
    both = pv.BinaryVoting(sigma=2.0, gate=gate).log_probs(margins, voters)
    vote = pv.BinaryVoting(sigma=2.0).log_probs(margins, voters)
    check = gate.log_probs((voters + np.abs(margins)) / 2)
    rows = slice(None, -2), slice(2, None)
    joint, plain, gates = (two_sided(p[rows[0]], p[rows[1]], ORDERS) for p in (both, vote, check))
    assert (joint <= (plain + gates) * (1 + 1e-9) + 1e-15).all()


@pytest.mark.parametrize(
    "mechanism",
    [
        pv.PluralityVoting(sigma=1.0, gate=pv.Gate(threshold=3, sigma=0.5)),
        pv.PowersetVoting(sigma=1.0, gate=pv.Gate(threshold=3, sigma=0.5)),
    ],
    ids=str,
)
def test_classes_are_held_back_as_a_whole(mechanism: pv.Mechanism) -> None:
    votes = np.zeros((400, 6, 3), bool)
    votes[:, :3, 0] = votes[:, 3:, 1] = True
    released = mechanism.release(votes, seed=4)
    held = (released == pv.ABSTAIN).any(axis=1)
    assert (released[held] == pv.ABSTAIN).all()
    assert 100 < held.sum() < 300  # three agree, the threshold is three: every second one
