from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq

import privote as pv
from privote.accounting import pld
from privote.accounting.pld import Moves
from privote.guarantees.data_dependent import by_voter

DELTA = 1e-5
GATE = pv.Gate(threshold=3.0, sigma=1.0)


def flips(mech: pv.BinaryVoting, votes: list[tuple[bool, int]], voters: int) -> Moves:
    """Return a voter's moves, one for each cell: what it said, and how many others said yes."""
    said = np.array([vote for vote, _ in votes])
    yes = np.array([others + vote for vote, others in votes])
    margins = 2 * yes - voters
    there = margins + np.where(said, -2, 2)
    return Moves(mech.log_probs(margins, voters), mech.log_probs(there, voters))


def product(moves: Moves, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probabilities of every joint outcome: nothing is rounded to a grid."""
    log_p = log_q = np.zeros(1)
    for p, q, count in zip(*moves, times, strict=True):
        for _ in range(count):
            log_p = np.add.outer(log_p, p).ravel()
            log_q = np.add.outer(log_q, q).ravel()
    return log_p, log_q


def hockey_stick(log_p: np.ndarray, log_q: np.ndarray, eps: float) -> float:
    return float(np.maximum(np.exp(log_p) - np.exp(eps + log_q), 0.0).sum())


def exact_epsilon(log_p: np.ndarray, log_q: np.ndarray, delta: float) -> float:
    if hockey_stick(log_p, log_q, 0.0) <= delta:
        return 0.0
    high = float((log_p - log_q).max())
    return float(brentq(lambda e: hockey_stick(log_p, log_q, e) - delta, 0.0, high, xtol=1e-12))


@st.composite
def elections(draw: st.DrawFn) -> tuple[Moves, np.ndarray]:
    """A voter's moves: up to 12 of two outcomes, or 7 of three, some of them equal."""
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
    return flips(mech, votes, voters), np.ones((1, len(votes)), int)


@given(elections(), st.sampled_from([0.1, 1e-3, 1e-5]))
def test_never_below_the_exact_epsilon_and_little_above_on_a_fine_grid(election, delta):
    moves, times = election
    for way in (moves, moves.reversed()):
        exact = exact_epsilon(*product(way, times[0]), delta)
        for step in (0.05, 1e-3):
            assert pld.epsilons(way, times, delta, step)[0] >= exact - 1e-9
        assert pld.epsilons(way, times, delta, 2e-4)[0] <= 1.01 * exact + 2e-3


@given(elections(), st.sampled_from([0.2, 0.01]))
def test_the_split_is_connect_the_dots_of_dp_accounting(election, step):
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots

    first = Moves(*(v[:1] for v in election[0]))
    atoms = pld.connect_dots(first, step)
    places = np.arange(atoms.places.min(), atoms.places.max() + 1)
    deltas = [hockey_stick(first.log_p[0], first.log_q[0], place * step) for place in places]
    theirs = create_pmf_pessimistic_connect_dots(step, places, deltas).to_dense_pmf()
    where = atoms.places[0] - places[0]
    ours = np.bincount(where, weights=atoms.masses[0], minlength=len(places))
    assert theirs._probs == pytest.approx(ours, abs=1e-11)
    assert atoms.masses.sum() == pytest.approx(1.0, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(-30, 5), st.floats(0, 0.2))
def test_epsilon_of_a_distribution_as_in_dp_accounting(weights, first, lost):
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    masses = np.array(weights) / max(sum(weights), 1e-9) * (1 - lost)
    theirs = DensePLDPmf(0.1, first, masses, lost, True).get_epsilon_for_delta(0.1)
    ours = pld._smallest_epsilon(masses, first, 0.1, lost, 0.1)
    assert ours == pytest.approx(theirs, abs=1e-9)


# -- all neighbours of a voter: the whole batch, enumerated ----------------------------------------


def batches() -> list[tuple[pv.BinaryVoting, np.ndarray]]:
    """Small batches of every kind: gated, with a bar, complete or not."""
    rng = np.random.default_rng(8)
    whole = rng.random((3, 5, 2)) < 0.3
    some = rng.integers(-1, 2, (2, 4, 2)).astype(np.int8)
    return [
        *((pv.BinaryVoting(sigma=s, gate=g), whole) for s in (0.8, 3.0) for g in (None, GATE)),
        (pv.BinaryVoting(sigma=1.5, quota=0.3), whole),
        (pv.BinaryVoting(sigma=1.5, false_alarm=0.05), some),
        *((pv.BinaryVoting(sigma=s, gate=g), some) for s in (0.8, 3.0) for g in (None, GATE)),
    ]


def worst_neighbour(mech: pv.BinaryVoting, votes: np.ndarray, voter: int, delta: float) -> float:
    """Return the exact epsilon over every other ballot this voter could have cast, both ways."""
    choices = (0, 1) if votes.dtype == bool else (-1, 0, 1)
    queries, _, labels = votes.shape

    def joint(cube: np.ndarray) -> np.ndarray:
        margins = mech.tally(next(iter(pv.Ballots.of(cube).blocks()))).margins.reshape(-1)
        log_p = np.zeros(1)
        for row in mech.log_probs(margins, votes.shape[1]):
            log_p = np.add.outer(log_p, row).ravel()
        return log_p

    here, worst = joint(votes), 0.0
    for ballot in itertools.product(choices, repeat=queries * labels):
        other = votes.copy()
        other[:, voter] = np.array(ballot).reshape(queries, labels)
        there = joint(other)
        for p, q in ((here, there), (there, here)):
            worst = max(worst, exact_epsilon(p, q, delta))
    return worst


@pytest.mark.parametrize("place", range(len(batches())))
def test_no_ballot_of_any_voter_costs_more_than_its_bill(place):
    mech, votes = batches()[place]
    delta = 1e-3
    true = np.array([worst_neighbour(mech, votes, j, delta) for j in range(votes.shape[1])])
    bills = {name: pv.bills(mech, votes, delta, accountant=name) for name in ("pld", "smaller")}
    assert (true <= bills["pld"] + 1e-9).all()
    assert (true <= bills["smaller"] + 1e-9).all()
    # Complete votes have one worst ballot, so their bill is no more than the truth and the grid.
    if votes.dtype == bool:
        assert bills["pld"] == pytest.approx(true, rel=2e-3, abs=1e-3)
    assert (bills["smaller"] <= pv.bills(mech, votes, delta) + 1e-12).all()


def test_the_enumeration_would_notice_a_forgotten_move():
    """With a gate the nearer move can tell more: the farther one alone is not enough."""
    mech = pv.BinaryVoting(sigma=50.0, gate=pv.Gate(threshold=1.8, sigma=0.3))
    votes = np.array([[[0], [0], [1]]], np.int8)  # 2 against 1: a flip leaves as many agreeing
    here, far = (mech.log_probs(np.array([margin]), 3) for margin in (-1, 1))
    flip_only = pld.epsilons(Moves(here, far), np.array([[1]]), 1e-3)[0]
    true = worst_neighbour(mech, votes, 0, 1e-3)
    assert flip_only < 0.1 * true
    assert true <= pv.bills(mech, votes, 1e-3, accountant="pld")[0]


# -- the maximum over voters -----------------------------------------------------------------------


# 514 queries are what the curve allows at epsilon 20, and 564 what the losses allow.
@pytest.mark.parametrize(
    ("queries", "curve", "loss"), [(514, 19.993, 18.673), (564, 21.34, 19.947), (570, 21.5, 20.099)]
)
def test_real_votes(tmc_votes, queries, curve, loss):
    found = by_voter(pv.BinaryVoting(sigma=7.0), tmc_votes[:queries], 1e-5)
    assert (found.accountant, found.epsilon) == ("pld", found.pld)
    assert (found.rdp, found.pld) == pytest.approx((curve, loss), abs=5e-3)


@given(st.integers(0, 10**6), st.sampled_from([0.1, 1e-5]), st.sampled_from([2e-3, 0.3]))
@example(seed=57, delta=0.1, step=0.3)  # by the second direction
def test_the_largest_voter_counts(seed, delta, step):
    """In either direction, also where a coarse look puts another voter first."""
    rng = np.random.default_rng(seed)
    moves = Moves(*np.log(rng.dirichlet(np.ones(3), size=(2, 4))))
    times, by_curve = rng.integers(0, 3, (6, 4)), rng.uniform(0, 20, (6, 2))
    fine = [pld.epsilons(way, times, delta, step) for way in (moves, moves.reversed())]
    expected = np.minimum(by_curve, np.stack(fine, axis=1)).max()
    largest = pld.epsilon_by_voter_max(moves, times, by_curve, delta, step)
    # Who is composed together shares a grid's ends, so the last digits differ.
    assert largest == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_impossible_outcomes():
    half, sure = np.log([[0.5, 0.5]]), np.array([[0.0, -np.inf]])

    def of(log_p: np.ndarray, log_q: np.ndarray, *times: int) -> list[float]:
        return pld.epsilons(Moves(log_p, log_q), np.array(times)[:, None], 0.1).tolist()

    assert of(half, sure, 1) == [math.inf]
    assert of(sure, half, 1) == [pytest.approx(math.log(1.8), rel=1e-3)]
    assert of(sure, sure[:, ::-1], 1) == [math.inf]
    assert of(half, half, 0, 10**6) == [0.0, 0.0]
    assert of(half, sure, 0) == [0.0]


def test_a_wide_range_of_losses_takes_a_coarser_grid():
    moves = Moves(np.log([[0.9, 0.1]]), np.log([[0.1, 0.9]]))
    mean = 10**6 * 0.8 * math.log(9)
    assert pld.epsilons(moves, np.array([[10**6]]), 1e-5, 1e-3)[0] == pytest.approx(mean, rel=0.01)
