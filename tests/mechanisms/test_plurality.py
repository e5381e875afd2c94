"""Plurality: one winner a query, by the noisiest count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

import privote as pv

ORDERS = np.array([1.5, 3.0, 32.0])


def ballots(counts: tuple[int, ...], silent: int = 0) -> np.ndarray:
    """Return one query where label i has ``counts[i]`` votes."""
    who = np.repeat(np.arange(len(counts)), counts)
    return np.concatenate(
        [np.eye(len(counts), dtype=bool)[who], np.zeros((silent, len(counts)), bool)]
    )[None]


def test_of_two_labels_it_is_one_yes_or_no() -> None:
    mech = pv.PluralityVoting(sigma=2.0)
    for yes in range(8):
        wins = mech.outcome_probabilities(ballots((yes, 7 - yes)))[0]
        # Both counts with their own noise: Pr = Phi((2c - n) / (sqrt(2) sigma)).
        assert wins[0] == pytest.approx(ndtr((2 * yes - 7) / (2**0.5 * 2.0)), rel=1e-9)
        assert wins.sum() == pytest.approx(1, abs=1e-12)


def test_the_silent_are_neighbours_of_those_who_speak() -> None:
    mech = pv.PluralityVoting(sigma=1.0)
    bills = mech.rdp_by_voter(ballots((3, 3), silent=1), ORDERS)
    assert (bills > 0).all()
    # Who speaks moves two counts by changing sides, who is silent one by speaking up.
    assert (bills[:6].max(axis=(0, 1)) > bills[6].max(axis=0)).all()


def test_a_clear_win_costs_little_and_a_tie_most() -> None:
    mech = pv.PluralityVoting(sigma=2.0)
    costs = [mech.rdp(ballots((20 - other, other)), ORDERS)[0] for other in (0, 3, 6, 10)]
    assert (np.diff(costs, axis=0)[:, :2] > 0).all()
    # At a high order the likeliest outcome's rarest rival counts: there consensus is dear.
    assert (np.diff(costs, axis=0)[:, 2] < 0).all()
    worst = mech.worst_case_rdp(20, 2, ORDERS)
    assert (costs <= worst).all()
    assert (costs[0][:2] < worst[:2] / 1000).all()
