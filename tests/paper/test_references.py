"""Numbers from outside: what others computed, reproduced with its source beside it."""

from __future__ import annotations

import numpy as np
import pytest

import privote as pv
from privote.accounting import renyi
from privote.accounting.renyi import divergence

ORDERS = pv.DEFAULT_ORDERS


# -- dp-accounting's own test values ---------------------------------------------------------------


def test_flat_curve_converts_as_in_dp_accounting() -> None:
    orders = np.arange(2.0, 33.0)
    rounded_up = 1.32783806176 * renyi.UPWARDS
    assert pv.epsilon(np.full(31, 1.1), orders, 1e-5) == pytest.approx(rounded_up, rel=1e-10)
    assert renyi.best_order(np.full(31, 1.1), orders, 1e-5) == 32


def test_gaussian_of_known_epsilon() -> None:
    # dp-accounting: a Gaussian of sigma = 4.530877117 converts to (1, 1e-6) at its best order.
    orders = np.linspace(1.1, 100.0, 5000)
    assert pv.epsilon(orders / (2 * 4.530877117**2), orders, 1e-6) == pytest.approx(1.0, abs=1e-5)
    # Our orders are sparser there, and still within half a percent.
    assert 1.0 <= pv.epsilon(ORDERS / (2 * 4.530877117**2), ORDERS, 1e-6) <= 1.005


# -- Papernot et al. 2018, Scalable Private Learning with PATE -------------------------------------


def test_theorem_6_bounds_one_direction_only() -> None:
    # 50 voters, unanimous, sigma 7, order 5: the published bound is below the true cost.
    mechanism = pv.BinaryVoting(sigma=7.0)
    votes = np.ones((1, 50, 1), bool)
    claimed = mechanism.rdp(votes, [5.0], bound="pate2018")[0, 0]
    here, there = mechanism.log_probs(np.array([50, 48]), 50)
    forward, backward = (
        divergence(p, q, np.array([5.0]))[0] for p, q in ((here, there), (there, here))
    )
    assert claimed == pytest.approx(5.6e-6, rel=0.02)
    assert forward <= claimed < backward
    assert backward == pytest.approx(9.3e-6, rel=0.01)
    assert mechanism.rdp(votes, [5.0])[0, 0] == pytest.approx(backward)


# -- Private Multi-Winner Voting for Machine Learning ----------------------------------------------


def test_tau_claims_too_little() -> None:
    # k = 2, tau = 1, 50 voters, sigma 7, order 32: order * tau^2 / sigma^2 = 0.653.
    mechanism = pv.TauVoting(sigma=7.0, tau=1.0)
    assert 32 * 1.0 / 7.0**2 == pytest.approx(0.653, abs=5e-4)
    assert mechanism.worst_case_rdp(50, 2, [32.0])[0] == pytest.approx(1.154, abs=5e-4)


def test_gaussian_price_of_tau_at_the_papers_settings() -> None:
    # In units of order / sigma^2 at k = 20: l2 with tau 1.8, l1 with tau 3.4, and Binary.
    price = [
        mechanism.worst_case_rdp(50, 20, [2.0], bound="gaussian")[0] / 2
        for mechanism in (
            pv.TauVoting(sigma=1.0, tau=1.8),
            pv.TauVoting(sigma=1.0, tau=3.4, norm=1),
            pv.BinaryVoting(sigma=1.0),
        )
    ]
    assert price == pytest.approx([6.48, 6.0, 20.0], rel=1e-9)


# -- queries on real votes, epsilon 20, delta 1e-5 (50 teachers of tmc2007-500) --------------------


def fit(costs: np.ndarray) -> int:
    """Return how many of the first queries fit the budget."""
    total = np.cumsum(costs, axis=0)
    low, high = 0, len(total)
    while low < high:
        middle = (low + high + 1) // 2
        fits = pv.epsilon(total[middle - 1], ORDERS, 1e-5) <= 20
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


@pytest.mark.parametrize(
    ("sigma", "published", "exact", "by_voter", "worst", "first_out"),
    [(7.0, 220, 462, 514, 18, 123), (12.0, 171, 526, 543, 55, 366), (20.0, 98, 384, 386, 153, 988)],
)
def test_queries_answered_on_real_votes(
    tmc_votes: np.ndarray,
    sigma: float,
    published: int,
    exact: int,
    by_voter: int,
    worst: int,
    first_out: int,
) -> None:
    mechanism = pv.BinaryVoting(sigma=sigma)
    votes = tmc_votes[:1000]
    assert fit(mechanism.rdp(votes, ORDERS)) == exact
    assert fit(mechanism.rdp(votes, ORDERS, bound="pate2018")) == published
    for queries, fits in ((by_voter, True), (by_voter + 1, False)):
        bill = mechanism.rdp_by_voter(votes[:queries], ORDERS).max(axis=(0, 1))
        assert (pv.epsilon(bill, ORDERS, 1e-5) <= 20) == fits
    release = pv.label(votes, mechanism=mechanism, epsilon=20.0, delta=1e-5, guarantee="worst-case")
    assert release.answered == worst
    allowed = pv.label(
        votes, mechanism=mechanism, epsilon=20.0, delta=1e-5, guarantee="allowance"
    ).allowance
    said = np.cumsum(votes.sum(axis=2), axis=0).max(axis=1)
    assert (said <= allowed).sum() == first_out


@pytest.mark.parametrize(
    ("sigma", "queries"), [(4.0, 143), (7.0, 204), (9.0, 225), (12.0, 160), (20.0, 89)]
)
def test_queries_by_the_papers_accounting(
    tmc_votes: np.ndarray, sigma: float, queries: int
) -> None:
    # Theorem 6, the orders of the published code, the conversion of 2017.
    orders = np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)])
    costs = pv.BinaryVoting(sigma=sigma).rdp(tmc_votes[: queries + 1], orders, bound="pate2018")
    assert pv.epsilon_2017(costs[:-1].sum(axis=0), orders, 1e-5) <= 20
    assert pv.epsilon_2017(costs.sum(axis=0), orders, 1e-5) > 20


@pytest.mark.parametrize(("sigma", "queries"), [(9.0, 670), (12.0, 602), (20.0, 429)])
def test_queries_by_the_privacy_loss_of_each_voter(
    tmc_votes: np.ndarray, sigma: float, queries: int
) -> None:
    mechanism = pv.BinaryVoting(sigma=sigma)
    for more, fits in ((0, True), (1, False)):
        release = pv.label(
            tmc_votes,
            mechanism=mechanism,
            epsilon=20.0,
            delta=1e-5,
            guarantee="data-dependent",
            queries=queries + more,
        )
        assert release.sealed.accountant == "pld"
        assert (release.sealed.epsilon_by_voter <= 20) == fits


@pytest.mark.parametrize(("labels", "sigma"), [(5, 7.0), (11, 4.0), (20, 2.0)])
def test_powerset_answers_more_than_the_published_bound_lets_it(
    tmc_votes: np.ndarray, labels: int, sigma: float
) -> None:
    mechanism = pv.PowersetVoting(sigma=sigma)
    queries = {5: 700, 11: 300, 20: 100}[labels]
    votes = tmc_votes[:queries, :, :labels]
    published = fit(mechanism.rdp(votes, ORDERS, bound="pate2018"))
    assert fit(mechanism.rdp(votes, ORDERS)) >= min(1.3 * published, queries)
    assert 1.3 * published <= queries


def test_optimal_link_at_equal_flip_rate(tmc_votes: np.ndarray) -> None:
    # Order 2.5, flip rate of sigma = 12: at least 490 queries before the first voter is out.
    margins = (2 * tmc_votes.sum(axis=1) - 50).reshape(-1)

    def flips(mechanism: pv.BinaryVoting) -> float:
        log_p = mechanism.log_probs(np.arange(-50, 51), 50).min(axis=1)
        return float(np.exp(log_p)[margins + 50].mean())

    wanted = flips(pv.BinaryVoting(sigma=12.0))
    low, high = 1e-4, 1.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        mechanism = pv.BinaryVoting(link=pv.OptimalLink(cost=middle, order=2.5))
        low, high = (low, middle) if flips(mechanism) < wanted else (middle, high)
    mechanism = pv.BinaryVoting(link=pv.OptimalLink(cost=high, order=2.5))
    allowed = pv.label(
        tmc_votes[:1], mechanism=mechanism, epsilon=20.0, delta=1e-5, guarantee="allowance"
    ).allowance
    said = np.cumsum(tmc_votes.sum(axis=2), axis=0).max(axis=1)
    assert (said <= allowed).sum() >= 490
