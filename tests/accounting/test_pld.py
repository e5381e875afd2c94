from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import privote as pv
from privote.accounting import pld
from privote.accounting.pld import Cell
from privote.accounting.renyi import DEFAULT_ORDERS
from privote.accounting.renyi import epsilon as rdp_epsilon
from privote.errors import InputError

DELTA = 1e-5


def table(mech: pv.BinaryVoting, voters: int) -> np.ndarray:
    """Return (voters + 1, outcomes): the log-probabilities at each count."""
    return mech.log_probs(2 * np.arange(voters + 1) - voters, voters)


def product(cells: list[Cell]) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probabilities of every joint outcome: nothing is rounded to a grid."""
    log_p = log_q = np.zeros(1)
    for cell in cells:
        for _ in range(cell.times):
            log_p = np.add.outer(log_p, cell.log_p).ravel()
            log_q = np.add.outer(log_q, cell.log_q).ravel()
    return log_p, log_q


def hockey_stick(log_p: np.ndarray, log_q: np.ndarray, eps: float) -> float:
    return float(np.maximum(np.exp(log_p) - np.exp(eps + log_q), 0.0).sum())


def exact_epsilon(cells: list[Cell], delta: float) -> float:
    log_p, log_q = product(cells)
    if hockey_stick(log_p, log_q, 0.0) <= delta:
        return 0.0
    high = float((log_p - log_q).max())
    return float(brentq(lambda e: hockey_stick(log_p, log_q, e) - delta, 0.0, high, xtol=1e-12))


@st.composite
def elections(draw: st.DrawFn) -> tuple[list[Cell], list[Cell]]:
    """A voter's cells: up to 12 of two outcomes, or 7 of three, some of them equal."""
    voters = draw(st.integers(2, 50))
    gate = draw(st.sampled_from([None, pv.Gate(threshold=0.7 * voters, sigma=voters / 5)]))
    mech = pv.BinaryVoting(sigma=draw(st.floats(0.5, 12)), gate=gate)
    votes = draw(
        st.lists(
            st.tuples(st.booleans(), st.integers(0, voters - 1)),
            min_size=1,
            max_size=12 if gate is None else 7,
        )
    )
    yes, no = np.zeros(voters + 1, int), np.zeros(voters + 1, int)
    for vote, others in votes:
        (yes if vote else no)[others + vote] += 1
    return pld.flip_cells(table(mech, voters), yes, no)


@given(elections(), st.sampled_from([0.1, 1e-3, 1e-5]), st.sampled_from([0.05, 1e-3]))
def test_never_below_the_exact_epsilon(directions, delta, step):
    for cells in directions:
        assert pld.epsilon(cells, delta, step) >= exact_epsilon(cells, delta) - 1e-9


@given(elections(), st.sampled_from([0.1, 1e-3, 1e-5]))
def test_a_fine_grid_is_within_one_percent(directions, delta):
    for cells in directions:
        assert pld.epsilon(cells, delta, 2e-4) <= 1.01 * exact_epsilon(cells, delta) + 2e-3


@given(elections(), st.sampled_from([0.2, 0.01]))
def test_the_split_is_connect_the_dots_of_dp_accounting(directions, step):
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots

    cell = directions[0][0]
    atoms = pld.connect_dots(cell.log_p, cell.log_q, step)
    places = np.arange(atoms.places.min(), atoms.places.max() + 1)
    deltas = [hockey_stick(cell.log_p, cell.log_q, place * step) for place in places]
    theirs = create_pmf_pessimistic_connect_dots(step, places, deltas).to_dense_pmf()
    ours = np.bincount(atoms.places - places[0], weights=atoms.masses, minlength=len(places))
    assert theirs._probs == pytest.approx(ours, abs=1e-11)
    assert atoms.masses.sum() == pytest.approx(1.0, abs=1e-12)


def test_composes_as_dp_accounting_does():
    from dp_accounting.pld import pld_pmf

    log_probs = table(pv.BinaryVoting(sigma=7.0), 50)
    yes, no = np.zeros(51, int), np.zeros(51, int)
    yes[[25, 30, 45]], no[[2, 20]] = (40, 60, 90), (300, 30)
    for cells in pld.flip_cells(log_probs, yes, no):
        total = None
        for cell in cells:
            atoms = pld.connect_dots(cell.log_p, cell.log_q, 0.01)
            masses: dict[int, float] = {}
            for place, mass in zip(atoms.places.tolist(), atoms.masses, strict=True):
                masses[place] = masses.get(place, 0.0) + mass
            pmf = pld_pmf.create_pmf(masses, 0.01, 0.0, True).self_compose(cell.times)
            total = pmf if total is None else pld_pmf.compose_pmfs(total, pmf)
        assert total is not None
        theirs = total.get_epsilon_for_delta(DELTA)
        assert pld.epsilon(cells, DELTA, 0.01) == pytest.approx(theirs, rel=1e-5)


def test_moving_all_votes_inwards_is_not_the_worst_neighbour():
    log_probs = table(pv.BinaryVoting(sigma=12.0), 50)

    def both(moves: tuple[int, int]) -> float:
        here = [
            Cell(log_probs[c], log_probs[c + m], 1) for c, m in zip((40, 47), moves, strict=True)
        ]
        there = [Cell(cell.log_q, cell.log_p, 1) for cell in here]
        return max(hockey_stick(*product(cells), 0.3) for cells in (here, there))

    worst = {moves: both(moves) for moves in itertools.product((-1, 1), repeat=2)}
    assert worst[1, -1] > 1.2 * worst[-1, -1]


def bills(votes: np.ndarray, mech: pv.BinaryVoting) -> list[tuple[list[Cell], list[Cell]]]:
    voters, counts = votes.shape[1], votes.sum(axis=1)
    log_probs = table(mech, voters)
    return [
        pld.flip_cells(
            log_probs,
            np.bincount(counts[votes[:, j]], minlength=voters + 1),
            np.bincount(counts[~votes[:, j]], minlength=voters + 1),
        )
        for j in range(voters)
    ]


def test_real_votes_564_queries_fit_where_the_curve_allows_514(tmc_votes):
    mech = pv.BinaryVoting(sigma=7.0)

    def both(queries: int, step: float) -> tuple[float, float]:
        votes = tmc_votes[:queries]
        by_curve = rdp_epsilon(mech.rdp_by_voter(votes, DEFAULT_ORDERS), DEFAULT_ORDERS, DELTA)
        assert isinstance(by_curve, np.ndarray)
        return float(by_curve.max()), pld.epsilon_by_voter_max(
            bills(votes, mech), by_curve, DELTA, step
        )

    curve, loss = both(514, 0.01)
    assert curve == pytest.approx(19.993, abs=1e-3)
    assert loss == pytest.approx(18.690, abs=1e-2)
    curve, loss = both(564, 0.004)
    assert curve == pytest.approx(21.34, abs=1e-2)
    assert 19.9 < loss <= 20
    assert both(570, 0.01)[1] > 20


def test_the_largest_voter_counts_and_others_are_skipped(monkeypatch):
    votes = np.random.default_rng(3).random((40, 7, 2)) < 0.3
    mech = pv.BinaryVoting(sigma=3.0)
    by_curve = np.asarray(
        rdp_epsilon(mech.rdp_by_voter(votes, DEFAULT_ORDERS), DEFAULT_ORDERS, DELTA)
    )
    of_voter = bills(votes, mech)
    all_of_them = max(pld.epsilon(cells, DELTA) for pair in of_voter for cells in pair)
    assert pld.epsilon_by_voter_max(of_voter, by_curve, DELTA) == all_of_them
    assert pld.epsilon_by_voter_max(of_voter, by_curve.max(axis=1), DELTA) == all_of_them

    composed = []
    original = pld._Composer.epsilon

    def counted(self, cells):
        composed.append(cells)
        return original(self, cells)

    monkeypatch.setattr(pld._Composer, "epsilon", counted)
    bounds = np.zeros(7)
    bounds[4] = by_curve[4].max()
    value = pld.epsilon_by_voter_max(iter(of_voter), bounds, DELTA)
    assert value == max(original(pld._Composer(DELTA, 2e-3), cells) for cells in of_voter[4])
    assert len(composed) == 2


def test_a_smaller_curve_epsilon_wins_for_its_voter():
    cell = Cell(np.log([0.9, 0.1]), np.log([0.1, 0.9]), 5)
    assert pld.epsilon_by_voter_max([[[cell], [cell]]], [0.25], DELTA) == 0.25
    assert pld.smaller(2.0, 1.5) == (1.5, "pld")
    assert pld.smaller(1.5, math.inf) == (1.5, "rdp")


def test_impossible_outcomes():
    half = np.log([0.5, 0.5])
    sure = np.array([0.0, -np.inf])
    assert pld.epsilon([Cell(half, sure, 1)], 0.1) == math.inf
    assert pld.epsilon([Cell(sure, half, 1)], 0.1) == pytest.approx(math.log(1.8), rel=1e-3)
    assert pld.epsilon([Cell(sure, np.array([-np.inf, 0.0]), 1)], 0.1) == math.inf
    assert pld.epsilon([], 0.1) == 0.0
    assert pld.epsilon([Cell(half, half, 10**6)], 0.1) == 0.0


def test_bad_arguments():
    half = np.log([0.5, 0.5])
    with pytest.raises(InputError, match="negative number of times"):
        pld.epsilon([Cell(half, half, -1)], 0.1)
    with pytest.raises(InputError, match="choose a larger one"):
        pld.epsilon([Cell(np.log([0.9, 0.1]), np.log([0.1, 0.9]), 10**4)], 0.1, 1e-6)
    with pytest.raises(InputError, match="rdp_epsilons"):
        pld.epsilon_by_voter_max([[[], []]], [1.0, 2.0], 0.1)
    with pytest.raises(InputError, match="can have cast"):
        pld.flip_cells(np.stack([half, half]), [1, 0], [0, 0])


@given(st.floats(1e-3, 50), st.sampled_from([0.1, 1e-5, 1e-12]))
def test_analytic_gaussian_solves_balle_and_wang(ratio, delta):
    eps = pld.analytic_gaussian(ratio, delta)
    with mpmath.workdps(60):

        def spent(e: float) -> mpmath.mpf:
            m, e = mpmath.mpf(ratio), mpmath.mpf(e)
            return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)

        assert spent(eps) <= delta * (1 + 1e-9)
        if eps > 1e-6:
            assert spent(eps * (1 - 1e-6)) > delta


def test_votes_never_cost_more_than_the_gaussian_mechanism_behind_them():
    log_probs = table(pv.BinaryVoting(sigma=9.0), 50)
    yes = np.zeros(51, int)
    yes[26] = 60
    loss = max(pld.epsilon(cells, DELTA) for cells in pld.flip_cells(log_probs, yes, 0 * yes))
    assert loss < pld.analytic_gaussian(math.sqrt(2 * 60) / 9.0, DELTA)
