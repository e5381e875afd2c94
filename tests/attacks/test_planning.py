"""Plans that promise what the door does not give: random mechanisms, budgets and votes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtr
from tests.attacks.conftest import Outcome, full, scaled

import privote as pv
from privote import planning
from privote.mechanisms.outcomes import Greedy, PollSize, Quota, Seats
from privote.mechanisms.polls import NoisyBits, NoisyCounts, Peeling
from privote.planning.polls import plan_poll


def _mechanism(rng: np.random.Generator) -> pv.Mechanism:
    sigma = float(rng.uniform(0.5, 8.0))
    kinds: list[Any] = [
        lambda: pv.BinaryVoting(sigma=sigma),
        lambda: pv.BinaryVoting(sigma=sigma, quota=float(rng.uniform(0.2, 0.8))),
        lambda: pv.BinaryVoting(sigma=sigma, gate=pv.Gate(threshold=5, sigma=2 * sigma)),
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.5 / sigma, order=4.0)),
        lambda: pv.TauVoting(sigma=sigma, tau=1.2),
        lambda: pv.PowersetVoting(sigma=sigma),
        lambda: pv.PluralityVoting(sigma=sigma),
    ]
    return kinds[rng.integers(len(kinds))]()  # type: ignore[no-any-return]


def _answers(votes: Any, guarantee: str, **run: Any) -> int:
    """Return how many queries a release answers with every voter counted; 0 for a refusal."""
    try:
        release = pv.label(votes, guarantee=guarantee, seed=0, **run)
    except pv.BudgetError:
        return 0
    if guarantee == "worst-case":
        return release.answered
    for queries in range(1, len(votes) + 1):
        every = {"guarantee": guarantee, "seed": 0}
        if pv.label(votes[:queries], **every, **run).sealed.refused.any():
            return queries - 1
    return len(votes)


def test_a_plan_is_what_a_release_does(outcome: Outcome) -> None:
    tried = through = 0
    for seed in range(scaled(12, 300)):
        rng = np.random.default_rng(seed)
        mechanism = _mechanism(rng)
        votes = np.eye(2, dtype=bool)[rng.integers(2, size=(8, 6))]
        votes &= rng.random((8, 6, 1)) < rng.random()
        run: dict[str, Any] = {"mechanism": mechanism, "delta": 1e-5}
        run["epsilon"] = float(np.exp(rng.uniform(np.log(0.01), np.log(20.0))))
        planned = planning.queries_that_fit(mechanism, votes, run["epsilon"], 1e-5)
        for guarantee in ("allowance", "worst-case"):
            tried += 1
            through += planned[guarantee] != _answers(votes, guarantee, **run)
    outcome("a plan counts other queries than a release answers", tried, through)


def _noise(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers and their probabilities under the rounded Gaussian."""
    x = np.arange(-int(14 * sigma) - 2, int(14 * sigma) + 3)
    return x, np.diff(ndtr((np.append(x, x[-1] + 1) - 0.5) / sigma))


def _own_side(mechanism: Any, count: int, bar: float) -> float:
    """Return how often one option with this count comes out on its side of the bar."""
    if isinstance(mechanism, NoisyBits):
        return float(ndtr(np.sqrt(2) * abs(count - bar) / mechanism.sigma))
    x, p = _noise(mechanism.sigma)
    return float(p[(count + x > bar) == (count > bar)].sum())


def test_a_quota_poll_decides_what_it_says(outcome: Outcome) -> None:
    """Options as far from the bar as the plan says, on either side, by the noise's own sums."""
    voters, options = ((20, 101, 1000), (2, 5, 40)) if full() else ((20, 101), (2, 5))
    kinds = (("auto", False), ("binary", False), ("counts", False), ("counts", True))
    tried = through = 0
    for n, k, share, epsilon in itertools.product(
        voters, options, (0.1, 0.3, 0.5, 2 / 3), (0.3, 1.0, 4.0, 16.0)
    ):
        size, rule, bar = PollSize(voters=n, options=k, most=k), Quota(share=share), share * n
        for name, shares in kinds if full() else kinds[1:]:
            given: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "shares": shares}
            plan = plan_poll(size, rule, **given, mechanism=name)
            far = [c for c in range(n + 1) if abs(c - bar) >= plan.gap - 1e-9]
            tried += len(far) > 0
            right = min((_own_side(plan.mechanism, c, bar) for c in far), default=1.0)
            through += right**k < plan.confidence
    outcome("a quota poll decides less often than it says", tried, through)


def test_a_poll_orders_two_options_as_often_as_it_says(outcome: Outcome) -> None:
    size = PollSize(voters=1000, options=2, most=2)
    greedy = Greedy(costs=(Fraction(1), Fraction(1)), money=Fraction(1))
    tried = through = 0
    for rule, shares, epsilon in itertools.product(
        (Seats(number=1), greedy), (False, True), np.geomspace(0.3, 30.0, scaled(12, 60))
    ):
        plan = plan_poll(size, rule, epsilon=float(epsilon), delta=1e-6, shares=shares)
        if isinstance(plan.mechanism, Peeling):
            right = 1 / (1 + np.exp(-plan.mechanism.rate * plan.gap))
        else:
            assert isinstance(plan.mechanism, NoisyCounts)
            x, p = _noise(plan.mechanism.sigma)
            apart = np.subtract.outer(x, x)  # a tie is decided by a coin
            both = np.multiply.outer(p, p)
            right = both[apart < plan.gap].sum() + both[apart == plan.gap].sum() / 2
        tried, through = tried + 1, through + (right < plan.confidence)
    outcome("a poll orders options less often than it says", tried, through)
