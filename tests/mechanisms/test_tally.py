"""Tallies: noise on the whole line, clipped ballots, votes that are probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from tests.refusals import refused

import privote as pv
from privote.mechanisms import mechanism_of
from privote.mechanisms.tally import PERCENT
from privote.planning.chances import noise_free

ORDERS = np.array([1.1, 2.0, 8.0, 64.0])


def test_prices_are_the_gaussians_lines() -> None:
    mech = pv.TallyVoting(sigma=5.0)
    np.testing.assert_allclose(mech.worst_case_rdp(9, 4, ORDERS), ORDERS * 4 / 50)
    np.testing.assert_allclose(mech.contribution_rdp(9, 4, ORDERS), ORDERS / 50)
    clipped = pv.TallyVoting(sigma=5.0, tau=1.5)
    assert (clipped.worst_case_rdp(9, 40, ORDERS) <= ORDERS * 2 * 1.5**2 / 50).all()
    assert (clipped.worst_case_rdp(9, 40, ORDERS) >= 0.99 * ORDERS * 2 * 1.5**2 / 50).all()
    # A norm that no ballot reaches clips nothing.
    loose = pv.TallyVoting(sigma=5.0, tau=9.0)
    np.testing.assert_allclose(loose.worst_case_rdp(9, 4, ORDERS), ORDERS * 4 / 50)
    # Beyond the sizes that are tried one by one: the same bound.
    many = clipped.worst_case_rdp(9, 500, ORDERS)
    np.testing.assert_allclose(many, ORDERS * 2 * 1.5**2 / 50)


@given(tau=st.floats(0.2, 4), labels=st.integers(1, 12), grid=st.integers(20, 2000))
def test_no_clipped_ballot_exceeds_the_norm(tau: float, labels: int, grid: int) -> None:
    mech = pv.TallyVoting(sigma=1.0, tau=tau, grid=grid)
    weights = mech.weights(labels) / grid
    sizes = np.arange(labels + 1)
    assert (weights <= 1).all()
    assert (sizes * weights**2 <= tau**2).all()
    assert mech.squared_shift(labels) <= 2 * tau**2 * grid**2


def test_probabilities_count_as_percents() -> None:
    votes = np.array([[[0.004, 0.5], [0.996, 0.25], [math.nan, 1.0]]])
    mech = pv.TallyVoting(sigma=1e-4, grid=PERCENT)
    assert mech.release(votes, seed=0).tolist() == [[100, 175]]
    blocks = list(mech.ballots(votes).blocks())
    assert noise_free(mech, blocks[0]).tolist() == [[False, True]]
    for bad in (1.01, -0.2, math.inf):
        with pytest.raises(pv.BallotError):
            mech.release(np.full((1, 2, 1), bad), seed=0)


def test_a_probability_is_billed_for_how_far_it_can_go() -> None:
    mech = pv.TallyVoting(sigma=2.0, grid=PERCENT)
    votes = np.array([[[0.0], [0.5], [0.8]]])
    bill = mech.rdp_by_voter(votes, ORDERS)[:, 0]
    line = ORDERS / 8
    np.testing.assert_allclose(bill, np.array([1.0, 0.25, 0.64])[:, None] * line, rtol=1e-3)
    assert (bill <= mech.worst_case_rdp(3, 1, ORDERS) * (1 + 1e-12)).all()
    assert (mech.rdp(votes, ORDERS) <= mech.worst_case_rdp(3, 1, ORDERS) * (1 + 1e-12)).all()


def test_listed_tallies_leave_no_more_than_the_stated_tail() -> None:
    mech = pv.TallyVoting(sigma=2.0)
    votes = np.zeros((1, 6, 2), bool)
    votes[0, :4, 1] = True
    listed = mech.support(6)
    chances = mech.outcome_probabilities(votes)
    assert chances.shape == (1, 2, len(listed))
    np.testing.assert_allclose(chances.sum(axis=-1), 1, rtol=0, atol=1e-14)
    assert (chances[..., [0, -1]] < 1e-12).all()
    exact = ndtr((listed + 0.5) / 2) - ndtr((listed - 0.5) / 2)
    np.testing.assert_allclose(chances[0, 0, 1:-1], exact[1:-1], rtol=1e-6, atol=1e-14)


def test_settings_that_do_not_go() -> None:
    with pytest.raises(pv.UnavailableError):
        pv.TallyVoting(sigma=1.0, gate=pv.Gate(threshold=1, sigma=1))
    for bad in ({"sigma": 0.0}, {"sigma": 1.0, "tau": -1.0}, {"sigma": 1.0, "grid": 101}):
        with pytest.raises(pv.InputError):
            pv.TallyVoting(**bad)
    with refused("grid"):
        pv.TallyVoting(sigma=1.0, tau=0.1, grid=10).worst_case_rdp(3, 5)


def test_parameters_make_the_same_mechanism_again() -> None:
    gated = pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=3, sigma=1.0))
    for mech in (gated, pv.TallyVoting(sigma=1.0, tau=1.8, grid=64)):
        assert mechanism_of(mech.parameters()) == mech
