from __future__ import annotations

import itertools
import math

import gaussian
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

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


def test_agrees_with_dp_accounting():
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    for ratio in (0.1, 1.0, 4.0):
        theirs = GaussianPrivacyLoss(1 / ratio).get_delta_for_epsilon(
            gaussian.analytic_gaussian(ratio, DELTA)
        )
        assert theirs == pytest.approx(DELTA, rel=1e-6)


def test_the_shift_behind_each_mechanism():
    assert shift(pv.BinaryVoting(sigma=7.0), 50, 22) == pytest.approx(math.sqrt(2 * 22) / 7)
    gated = pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=30.0, sigma=5.0))
    assert shift(gated, 50, 1) == pytest.approx(math.sqrt(2 / 49 + 1 / 25))
    assert shift(pv.PluralityVoting(sigma=4.0), 50, 22) == pytest.approx(math.sqrt(2) / 4)
    # k = 20: the costliest change of a ballot clipped at 1.8 is 6.48 of a vote's two counts.
    assert shift(pv.TauVoting(sigma=1.0, tau=1.8), 50, 20) == pytest.approx(math.sqrt(2 * 6.48))


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


def test_votes_never_cost_more_than_the_gaussian_mechanism_behind_them():
    mech = pv.BinaryVoting(sigma=9.0)
    moves = pld.Moves(*(mech.log_probs(np.array([m]), 50) for m in (2, 0)))
    for way in (moves, moves.reversed()):
        loss = pld.epsilons(way, [[60]], DELTA)[0]
        assert loss < gaussian.analytic_gaussian(math.sqrt(2 * 60) / 9.0, DELTA)


@given(st.floats(0.05, 3.0), st.floats(0.5, 30.0))
def test_the_largest_count_is_the_largest(length, budget):
    count = gaussian.largest_count(length, budget, DELTA)
    if count:
        assert gaussian.analytic_gaussian(length * math.sqrt(count), DELTA) <= budget
    assert gaussian.analytic_gaussian(length * math.sqrt(count + 1), DELTA) > budget


def test_never_fewer_queries_than_by_the_gaussian_curve():
    for sigma in (2.0, 7.0, 20.0):
        mechanism = pv.PluralityVoting(sigma=sigma)
        curve = mechanism.worst_case_rdp(50, 5, bound="gaussian")
        exact = gaussian.largest_count(shift(mechanism, 50, 5), 8.0, DELTA)
        assert pv.epsilon(exact * curve, None, DELTA) >= 8.0 * 0.999
        assert exact >= 1


def test_bad_arguments():
    with refused("rdp"):
        gaussian.shift_of([1.0, 2.0], [2.0])
    with refused("ratio"):
        gaussian.analytic_gaussian(-1.0, DELTA)
    with refused("delta"):
        gaussian.analytic_gaussian(1.0, 1.0)
    with refused("shift"):
        gaussian.largest_count(0.0, 1.0, DELTA)
