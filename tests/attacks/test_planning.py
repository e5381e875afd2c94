"""Plans that promise what the door does not give: random mechanisms, budgets and votes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtr
from tests.attacks.conftest import Outcome, full, scaled

from privote.mechanisms.outcomes import Greedy, PollSize, Quota, Seats
from privote.mechanisms.polls import NoisyBits, NoisyCounts, Peeling
from privote.planning.polls import plan_poll


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
    found = []
    for n, k, share, epsilon in itertools.product(
        voters, options, (0.1, 0.3, 0.5, 2 / 3), (0.3, 1.0, 4.0, 16.0)
    ):
        size, rule, bar = PollSize(voters=n, options=k, most=k), Quota(share=share), share * n
        for name, shares in kinds if full() else kinds[1:]:
            given: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "shares": shares}
            plan = plan_poll(size, rule, **given, mechanism=name)
            far = [c for c in range(n + 1) if abs(c - bar) >= plan.gap - 1e-9]
            if far:
                right = min(_own_side(plan.mechanism, c, bar) for c in far)
                found.append(right**k < plan.confidence)
    outcome.of("a quota poll decides less often than it says", found)


def test_a_poll_orders_two_options_as_often_as_it_says(outcome: Outcome) -> None:
    size = PollSize(voters=1000, options=2, most=2)
    greedy = Greedy(costs=(Fraction(1), Fraction(1)), money=Fraction(1))
    found = []
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
        found.append(right < plan.confidence)
    outcome.of("a poll orders options less often than it says", found)
