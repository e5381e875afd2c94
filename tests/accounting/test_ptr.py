from __future__ import annotations

import contextlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.accounting import ptr
from privote.accounting.renyi import DEFAULT_ORDERS, coin, divergence
from privote.accounting.sanitize import windowed_max
from privote.errors import BudgetError
from privote.mechanisms.cells import Ladder

DELTA = 1e-5


def count_costs(mech: pv.BinaryVoting, voters: int, orders: np.ndarray) -> np.ndarray:
    """Return (orders, voters + 1): a cell's worst two-sided cost at each count."""
    return Ladder(mech, voters, missing=False).costs(slice(None), orders).T


class Elections:
    """All elections with these cells: a tally is a count per cell, its neighbours move by one.

    Every such move is some voter's: votes on different cells can be matched at will, so a voter who
    can make it exists in some election with this tally; and Binary sees only the tally.
    """

    def __init__(self, mech: pv.BinaryVoting, voters: int, cells: int, order: float) -> None:
        self.order = order
        self.costs = count_costs(mech, voters, np.array([order]))[0]
        by_count = mech.log_probs(2 * np.arange(voters + 1) - voters, voters)
        self.tallies = list(itertools.product(range(voters + 1), repeat=cells))
        self.place = {tally: i for i, tally in enumerate(self.tallies)}
        log_probs = np.zeros((len(self.tallies), 1))
        for cell in range(cells):
            column = by_count[[tally[cell] for tally in self.tallies]]
            log_probs = (log_probs[:, :, None] + column[:, None, :]).reshape(len(column), -1)
        self.labels = log_probs
        self.histograms = [np.bincount(t, minlength=voters + 1) for t in self.tallies]
        moves = list(itertools.product((-1, 0, 1), repeat=cells))
        pairs = [
            (i, self.place[other])
            for i, tally in enumerate(self.tallies)
            for other in (tuple(c + m for c, m in zip(tally, move, strict=True)) for move in moves)
            if other in self.place
        ]
        self.here, self.there = np.array(pairs).T

    def distances(self, threshold: float) -> np.ndarray:
        return np.array([ptr.distance(self.costs, h, threshold) for h in self.histograms])

    def runs(self, distances: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Return (tallies, 1 + outcomes): log-probabilities of "failed" and of all answers."""
        fail, passed = chances[distances + 1].T
        return np.concatenate([fail[:, None], passed[:, None] + self.labels], axis=1)

    def delta_at(self, runs: np.ndarray, eps: float) -> float:
        """Return the largest hockey-stick divergence over all pairs, both directions."""
        p, q = np.exp(runs[self.here]), np.exp(runs[self.there])
        return float(np.maximum(p - math.exp(eps) * q, 0.0).sum(axis=1).max())


def elections() -> list[tuple[pv.BinaryVoting, int, int, float]]:
    return [
        (pv.BinaryVoting(sigma=sigma, gate=gate), voters, cells, order)
        for sigma in (0.7, 1.5)
        for gate in (None, pv.Gate(threshold=3.0, sigma=1.0))
        for voters, cells in ((6, 1), (6, 2), (12, 2), (4, 3))
        for order in (1.5, 2.5, 6.0)
    ]


@pytest.fixture(scope="module")
def small() -> list[Elections]:
    return [Elections(*election) for election in elections()]


def thresholds(election: Elections) -> list[float]:
    """Return bounds F between which elections' costs lie, so that all distances occur."""
    totals = np.unique([float(h @ election.costs) for h in election.histograms])
    if totals.max() == 0:
        return []
    # Not a total itself: there a cost, rounded up, is just too much.
    return [float(np.quantile(totals, share)) * (1 + 1e-6) for share in (0.1, 0.4, 0.8)]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=2, max_size=40),
    st.floats(1e-3, 50),
    st.integers(1, 2),
)
def test_distance_is_the_last_that_fits(rows, threshold, reach):
    costs = np.array([cost for cost, _ in rows])
    histogram = np.array([cells for _, cells in rows])
    sums = [
        sum(Fraction(c) * int(h) for c, h in zip(within.tolist(), histogram, strict=True))
        for within in (windowed_max(costs, d * reach) for d in range(len(costs) + 1))
    ]
    found = ptr.distance(costs, histogram, threshold, reach)
    furthest = -(-(len(costs) - 1) // reach)
    assert -1 <= found <= furthest
    # What it says fits does fit, in exact arithmetic; what it refuses would, but for rounding up.
    assert found == -1 or sums[found] <= Fraction(threshold)
    if found < furthest:
        assert sums[found + 1] > Fraction(threshold) * (1 - Fraction(1, 10**9))


@given(st.integers(0, 10**9))
def test_rounding_never_moves_the_distance_by_more_than_one(seed):
    """Thresholds that are a neighbour's own cost, where floating-point sums would disagree."""
    rng = np.random.default_rng(seed)
    levels, cells = int(rng.integers(3, 8)), int(rng.integers(2, 40))
    costs = rng.random(levels) * 10.0 ** rng.integers(-12, 3)
    tally = rng.integers(0, levels, cells)
    other = np.clip(tally + rng.integers(-1, 2, cells), 0, levels - 1)
    here, there = (np.bincount(t, minlength=levels) for t in (tally, other))
    for distance in range(levels):
        threshold = float(here @ windowed_max(costs, distance))
        one, two = (ptr.distance(costs, h, threshold) for h in (here, there))
        assert abs(one - two) <= 1


@pytest.mark.parametrize("delta", [0.2, 0.01, 1e-4])
def test_the_whole_run_is_private_on_every_pair_of_small_elections(small, delta):
    """The run says "failed", or it says the labels: its exact delta at the stated epsilon."""
    largest = 0.0
    for election in small:
        order, depth = election.order, len(election.costs) - 1
        for threshold in thresholds(election):
            distances = election.distances(threshold)
            for reserve in (0.05, 0.5, 2.0):
                chances = ptr.pass_log_probs(depth, threshold, reserve, order, delta)
                joint = election.runs(distances, chances)
                eps = ptr.statement_epsilon(threshold, reserve, order, delta)
                largest = max(largest, election.delta_at(joint, eps) / delta)
                # The claim behind it: unless both distances are -1, (order, F + r)-close.
                either = np.maximum(distances[election.here], distances[election.there]) >= 0
                cost = divergence(
                    joint[election.here[either]],
                    joint[election.there[either]],
                    np.array([order]),
                )
                assert cost.max(initial=0.0) <= (threshold + reserve) * (1 + 1e-9)
    assert 0.3 < largest <= 1


@given(
    st.floats(1.05, 30),
    st.floats(1e-3, 20),
    st.floats(1e-3, 5),
    st.sampled_from([0.1, 1e-5, 1e-12]),
)
def test_pass_probabilities_are_the_largest_allowed(order, threshold, reserve, delta):
    chances = ptr.pass_log_probs(6, threshold, reserve, order, delta)
    assert chances[0] == pytest.approx([math.log1p(-delta), math.log(delta)])
    logits = chances[:, 1] - chances[:, 0]
    assert (np.diff(logits) >= 0).all()
    assert (np.diff(logits)[logits[1:] < 600] > 0).all()
    total = threshold + reserve

    def cost(p: np.ndarray, q: np.ndarray) -> float:
        def joint(p: np.ndarray, q: np.ndarray) -> float:
            terms = order * p + (1 - order) * q + [0.0, (order - 1) * threshold]
            return float(np.logaddexp(*terms)) / (order - 1)

        return max(joint(p, q), joint(q, p))

    for before, after in itertools.pairwise(chances):
        assert cost(before, after) <= total * (1 + 1e-9)
        assert cost(before, before) <= threshold * (1 + 1e-9) + 1e-12
        logit = after[1] - after[0]
        if logit < 600:
            further = coin(logit + 1e-3 * max(1.0, abs(logit)))
            assert cost(before, np.array(further)) > total


def chance(votes: np.ndarray, costs: np.ndarray, plan: ptr.Proposal) -> float:
    """Return with what probability these votes pass."""
    voters = votes.shape[1]
    histogram = np.bincount(votes.sum(axis=1).ravel(), minlength=voters + 1)
    row = costs[list(DEFAULT_ORDERS).index(plan.order)]
    d = ptr.distance(row, histogram, plan.threshold)
    pi = ptr.pass_probabilities(voters, plan.threshold, plan.reserve, plan.order, plan.delta)
    return float(pi[d + 1])


# Queries at epsilon=20 that worst-case composition allows; that the public default (a fifth of
# the cells divided) allows; and the most that still pass with 99 %, found by looking at the votes.
@pytest.mark.parametrize(
    ("sigma", "worst_case", "by_default", "most"),
    [(7.0, 18, 192, 309), (9.0, 31, 253, 378), (12.0, 55, 265, 327)],
)
def test_real_votes(tmc_votes, sigma, worst_case, by_default, most):
    mech = pv.BinaryVoting(sigma=sigma)
    costs = count_costs(mech, 50, DEFAULT_ORDERS)
    queries = ptr.largest_queries(costs, DEFAULT_ORDERS, 22, 20.0, DELTA)
    plan = ptr.propose(costs, DEFAULT_ORDERS, queries * 22, 20.0, DELTA)
    passed = chance(tmc_votes[:queries], costs, plan)
    assert queries == by_default
    assert queries > 4 * worst_case
    assert plan.epsilon <= 20
    assert passed > 0.99
    for queries, passes in ((most, True), (most + 1, False)):
        plan = ptr.propose(costs, DEFAULT_ORDERS, queries * 22, 20.0, DELTA)
        assert (chance(tmc_votes[:queries], costs, plan) > 0.99) == passes


def test_propose_refuses_what_cannot_fit():
    orders = np.array([2.0, 4.0])
    costs = count_costs(pv.BinaryVoting(sigma=0.5), 4, orders)
    with refused(None, BudgetError):
        ptr.propose(costs, orders, 10**6, 5.0, DELTA)
    assert ptr.largest_queries(costs, orders, 1000, 1e-3, DELTA) == 0
    with pytest.raises(BudgetError):
        ptr.propose(costs, np.array([1.001, 1.002]), 1, 5.0, DELTA)


@given(st.floats(2.0, 20.0), st.integers(3, 40), st.floats(1.0, 20.0), st.floats(0.05, 0.6))
def test_the_two_plans_agree(sigma, voters, budget, unsure):
    orders = np.array([1.5, 2.0, 3.0, 5.0, 9.0, 17.0])
    costs = count_costs(pv.BinaryVoting(sigma=sigma), voters, orders)
    queries = ptr.largest_queries(costs, orders, 3, budget, DELTA, unsure=unsure)
    if queries:
        plan = ptr.propose(costs, orders, 3 * queries, budget, DELTA)
        assert plan.unsure >= unsure * (1 - 1e-9)
        assert plan.epsilon <= budget
    with contextlib.suppress(BudgetError):
        assert ptr.propose(costs, orders, 3 * queries + 3, budget, DELTA).unsure < unsure
