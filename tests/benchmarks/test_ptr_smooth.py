from __future__ import annotations

import itertools
import math

import numpy as np
import ptr_smooth
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting import ptr, sanitize
from privote.accounting.renyi import DEFAULT_ORDERS, divergence
from privote.errors import InputError

SmoothProposal = ptr_smooth.SmoothProposal

DELTA = 1e-5
GATE = pv.Gate(threshold=3.0, sigma=1.0)


def count_costs(mech: pv.BinaryVoting, voters: int, orders: np.ndarray) -> np.ndarray:
    """Return (orders, voters + 1): a cell's worst two-sided cost at each count."""
    return mech.level_costs(2 * np.arange(voters + 1) - voters, voters, False, orders).T


class Run:
    """All elections of some cells under one proposal: the run says "failed", or all labels."""

    def __init__(self, mech: pv.BinaryVoting, voters: int, cells: int, order: float) -> None:
        self.order, levels = order, voters + 1
        self.costs = count_costs(mech, voters, np.array([order]))[0]
        by_count = mech.log_probs(2 * np.arange(levels) - voters, voters)
        self.tallies = list(itertools.product(range(levels), repeat=cells))
        labels = np.zeros((len(self.tallies), 1))
        for column in np.array(self.tallies).T:
            labels = (labels[:, :, None] + by_count[column][:, None, :]).reshape(len(labels), -1)
        self.labels = labels
        place = {tally: i for i, tally in enumerate(self.tallies)}
        moves = list(itertools.product((-1, 0, 1), repeat=cells))
        pairs = [
            (i, place[other])
            for i, tally in enumerate(self.tallies)
            for other in (tuple(c + m for c, m in zip(tally, move, strict=True)) for move in moves)
            if other in place
        ]
        self.here, self.there = np.array(pairs).T

    def totals(self) -> np.ndarray:
        return np.array([self.costs[list(tally)].sum() for tally in self.tallies])

    def runs(self, proposal: SmoothProposal) -> np.ndarray:
        """Return (tallies, 1 + outcomes): log-probabilities of "failed" and of all answers."""
        size = len(self.costs)
        chances = np.array(
            [
                ptr_smooth.pass_log_probs(self.costs, np.bincount(t, minlength=size), proposal)
                for t in self.tallies
            ]
        )
        return np.concatenate([chances[:, :1], chances[:, 1:] + self.labels], axis=1)

    def delta_at(self, runs: np.ndarray, eps: float) -> float:
        """Return the largest hockey-stick divergence over all pairs, both directions."""
        more = np.exp(runs[self.here]) - math.exp(eps) * np.exp(runs[self.there])
        return float(np.maximum(more, 0.0).sum(axis=1).max())

    def renyi(self, runs: np.ndarray, threshold: float) -> float:
        """Return the largest divergence of the pairs of which either costs at most F."""
        cheap = self.totals() <= threshold
        either = cheap[self.here] | cheap[self.there]
        here, there = runs[self.here[either]], runs[self.there[either]]
        return float(divergence(here, there, np.array([self.order])).max(initial=0.0))


@pytest.fixture(scope="module")
def small() -> list[Run]:
    return [
        Run(pv.BinaryVoting(sigma=sigma, gate=gate), voters, cells, order)
        for sigma in (0.7, 1.5)
        for gate in (None, GATE)
        for voters, cells in ((6, 2), (4, 3))
        for order in (1.5, 4.0)
    ]


def proposals(run: Run, delta: float) -> list[SmoothProposal]:
    """Return proposals whose bound lies among the elections' costs, so that some pass."""
    totals = run.totals()
    return [
        SmoothProposal(
            order=run.order,
            threshold=float(np.quantile(totals, share)) + extra,
            beta=beta * sanitize.largest_beta(run.order),
            sigma_s=sigma_s,
            delta=delta,
        )
        for share, extra in ((0.3, 0.0), (0.8, 1.0))
        for beta in (0.3, 0.8)
        for sigma_s in (0.3, 1.5)
    ]


@pytest.mark.parametrize("delta", [0.2, 1e-3])
def test_the_whole_run_is_private_on_every_pair_of_small_elections(small, delta, capsys):
    largest = closest = 0.0
    for run in small:
        for proposal in proposals(run, delta):
            runs, threshold = run.runs(proposal), proposal.threshold
            largest = max(largest, run.delta_at(runs, proposal.epsilon) / delta)
            # The two claims behind it: (order, F + price)-close, or hardly ever passed.
            claimed = threshold + proposal.price
            closest = max(closest, run.renyi(runs, threshold) / claimed)
            passed = -np.expm1(runs[run.totals() > threshold, 0])
            assert passed.max(initial=0.0) <= delta * (1 + 1e-9)
    print(
        f"delta {delta:g}: true delta at most {largest:.3f} of the stated one, cost {closest:.3f}"
    )
    assert largest <= 1
    assert 0.2 < closest <= 1


def test_the_enumeration_would_notice(small):
    """A test that is charged nothing, or that forgets the margin z_delta, breaks the claims."""
    uncharged = bold = 0.0
    for run in small:
        for proposal in proposals(run, 1e-3):
            runs, threshold = run.runs(proposal), proposal.threshold
            uncharged = max(uncharged, run.renyi(runs, threshold) / threshold)
            without = run.runs(SmoothProposal(**{**vars(proposal), "delta": 0.4}))
            passed = -np.expm1(without[run.totals() > threshold, 0])
            bold = max(bold, passed.max(initial=0.0))
    assert uncharged > 1.05
    assert bold > 1e-3


def test_a_cost_above_the_bound_passes_with_delta_at_most():
    costs, histogram = np.array([0.0, 0.5, 1.0, 0.5]), np.array([3, 2, 2, 0])
    proposal = SmoothProposal(order=2.0, threshold=3.0, beta=0.1, sigma_s=1.0, delta=0.01)
    assert ptr_smooth.pass_log_probs(costs, histogram, proposal)[1] == pytest.approx(math.log(0.01))
    above = SmoothProposal(**{**vars(proposal), "threshold": 2.9})
    assert ptr_smooth.pass_log_probs(costs, histogram, above)[1] < math.log(0.01)
    fail, passed = ptr_smooth.pass_log_probs(costs, histogram, proposal)
    assert math.exp(fail) + math.exp(passed) == pytest.approx(1.0)
    # Where nothing can change nothing is drawn.
    flat = np.full(4, 0.1)
    assert ptr_smooth.pass_log_probs(flat, histogram, proposal) == (-math.inf, 0.0)
    assert ptr_smooth.pass_log_probs(10 * flat, histogram, proposal) == (0.0, -math.inf)


@pytest.mark.parametrize(("sigma", "queries"), [(7.0, 76), (12.0, 134)])
def test_real_votes_by_public_numbers(tmc_votes, sigma, queries):
    costs = count_costs(pv.BinaryVoting(sigma=sigma), 50, DEFAULT_ORDERS)
    asked, proposal = ptr_smooth.largest_queries(costs, DEFAULT_ORDERS, 22, 20.0, DELTA)
    assert asked == queries
    assert 19.9 < proposal.epsilon <= 20
    row = costs[list(DEFAULT_ORDERS).index(proposal.order)]
    histogram = np.bincount(tmc_votes[:asked].sum(axis=1).ravel(), minlength=51)
    assert ptr_smooth.pass_log_probs(row, histogram, proposal)[1] > math.log(0.99)
    # The distance test asks for more than twice as many at the same share of divided cells.
    assert ptr.largest_queries(costs, DEFAULT_ORDERS, 22, 20.0, DELTA) > 1.9 * asked


def test_the_distance_test_beats_it_even_tuned_on_these_votes(tmc_votes, capsys):
    orders = np.array([1.8, 2.0, 2.2, 2.5, 3.0])
    costs = count_costs(pv.BinaryVoting(sigma=7.0), 50, orders)
    counts = tmc_votes.sum(axis=1)

    def some_pass(queries: int) -> bool:
        histogram = np.bincount(counts[:queries].ravel(), minlength=51)
        for order, row in zip(orders, costs, strict=True):
            for share, sigma_s in itertools.product(
                (0.3, 0.4, 0.5, 0.6, 0.7, 0.8), (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
            ):
                beta = share * sanitize.largest_beta(order)
                price = sanitize.release_cost(order, beta, sigma_s, DELTA)
                proposal = SmoothProposal(
                    order=order,
                    threshold=ptr.affordable(order, 20.0, DELTA) - price,
                    beta=beta,
                    sigma_s=sigma_s,
                    delta=DELTA,
                )
                if ptr_smooth.pass_log_probs(row, histogram, proposal)[1] >= math.log(0.5):
                    return True
        return False

    low, high = 1, 300
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if some_pass(middle) else (low, middle)
    print(f"sigma 7: smooth-sensitivity test {low} queries, tuned on these votes")
    assert low == 119


def test_bad_arguments():
    costs = np.array([[0.1, 0.2]])
    with pytest.raises(InputError, match="orders, levels"):
        ptr_smooth.largest_queries(costs, [2.0, 3.0], 1, 1.0, DELTA)
    with pytest.raises(InputError, match="no test fits"):
        ptr_smooth.largest_queries(costs, [2.0], 1, 1e-3, DELTA)
    with refused("beta"):
        _ = SmoothProposal(order=5.0, threshold=1.0, beta=1.0, sigma_s=1.0, delta=DELTA).price
