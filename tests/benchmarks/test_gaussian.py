from __future__ import annotations

import itertools
import math

import gaussian
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.accounting import pld
from privote.accounting.renyi import DEFAULT_ORDERS

DELTA = 1e-5
GATE = pv.Gate(threshold=3.0, sigma=1.5)
MECHANISMS = [
    pv.BinaryVoting(sigma=1.5),
    pv.BinaryVoting(sigma=1.5, gate=GATE),
    pv.BinaryVoting(sigma=1.5, quota=0.3),
    pv.TauVoting(sigma=1.5, tau=1.2),
    pv.TauVoting(sigma=1.5, tau=1.2, gate=GATE),
]


def shift(mechanism: pv.Mechanism, voters: int, labels: int) -> float:
    curve = mechanism.worst_case_rdp(voters, labels, DEFAULT_ORDERS, bound="gaussian")
    return gaussian.shift_of(curve, DEFAULT_ORDERS)


@given(st.floats(1e-3, 50), st.sampled_from([0.1, 1e-5, 1e-12]))
def test_analytic_gaussian_solves_balle_and_wang(ratio, delta):
    eps = gaussian.analytic_gaussian(ratio, delta)
    with mpmath.workdps(60):

        def spent(e: float) -> mpmath.mpf:
            m, e = mpmath.mpf(ratio), mpmath.mpf(e)
            return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)

        assert spent(eps) <= delta * (1 + 1e-9)
        if eps > 1e-6:
            assert spent(eps * (1 - 1e-6)) > delta


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("queries", [1, 3])
def test_no_pair_of_small_elections_costs_more(mechanism, queries):
    """All ballots of one voter, all tallies of the others, the same pair on every query."""
    voters, labels = 4, 2
    ballots = [np.array(b, bool) for b in itertools.product((0, 1), repeat=labels)]
    eps = gaussian.analytic_gaussian(shift(mechanism, voters, labels) * math.sqrt(queries), 1e-3)
    here, there = [], []
    for others in itertools.combinations_with_replacement(ballots, voters - 1):
        cubes = np.array([[*others, mine] for mine in ballots])  # (ballots, voters, labels)
        probs = np.log(np.maximum(mechanism.outcome_probabilities(cubes), 1e-300))
        for one, two in itertools.permutations(range(len(ballots)), 2):
            here.append(probs[one])
            there.append(probs[two])
    moves = pld.Moves(np.concatenate(here), np.concatenate(there))
    times = queries * np.repeat(np.eye(len(here), dtype=int), labels, axis=1)  # one pair a row
    worst = pld.epsilons(moves, times, 1e-3, 2e-3).max()
    assert 0.3 * eps < worst <= eps
