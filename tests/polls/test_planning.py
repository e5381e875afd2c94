"""Planning a poll: the choice and its noise follow from public numbers, and the plan keeps them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.refusals import refused

from privote.accounting.renyi import DEFAULT_ORDERS, epsilon
from privote.errors import UnavailableError
from privote.ledger import Budget
from privote.polls.mechanisms import Greedy, NoisyCounts, PollSize, Quota, Seats, epsilon_of
from privote.polls.planning import calibrated, decided_gap, plan_poll

SIZE = PollSize(voters=500, options=12, most=12)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
GREEDY = Greedy(costs=(Fraction(1),) * 12, money=Fraction(3))


@pytest.mark.parametrize("outcome", [Quota(share=0.5), Seats(number=2), GREEDY], ids=str)
def test_the_price_fits_and_is_not_wasted(outcome) -> None:
    plan = plan_poll(SIZE, outcome, **BUDGET)
    less = plan.mechanism.scaled(0.99)
    assert plan.epsilon == epsilon_of(plan.mechanism, SIZE, 1e-6) <= 1.0
    assert plan.epsilon <= epsilon(plan.curve, DEFAULT_ORDERS, 1e-6)
    assert epsilon_of(less, SIZE, 1e-6) > 1.0


def test_the_choice_follows_public_numbers() -> None:
    def chosen(size: PollSize, outcome, **more) -> str:
        return plan_poll(size, outcome, **BUDGET, **more).mechanism.facts()["mechanism"]

    assert chosen(SIZE, Quota(share=0.5)) == "binary"
    assert chosen(SIZE, Quota(share=0.5), shares=True) == "counts"
    assert chosen(SIZE, Seats(number=1)) == "top-m"
    assert chosen(SIZE, GREEDY) == "counts"
    few = PollSize(voters=520, options=33, most=4)
    assert chosen(few, Seats(number=5)) == "top-m"
    assert chosen(few, Seats(number=16)) == "counts"
    sparse = PollSize(voters=18_000, options=400, most=400)
    assert chosen(sparse, Seats(number=100)) == "top-m"


def test_what_cannot_be_is_refused_with_its_reason() -> None:
    for given in ({"shares": True, "mechanism": "top-m"}, {"mechanism": "binary"}):
        with refused("mechanism", UnavailableError):
            plan_poll(SIZE, Seats(number=1), **BUDGET, **given)
    for bad in ({"confidence": 1.0}, {"mechanism": "best"}):
        with refused(next(iter(bad))):
            plan_poll(SIZE, Seats(number=1), **BUDGET, **bad)
    points = PollSize(voters=100, options=30, most=7, each=3)
    for size, outcome, argument in (
        (points, Quota(share=0.5), "quota"),
        (SIZE, Seats(number=12), "seats"),
        (points, GREEDY, "costs"),
    ):
        with refused(argument):
            plan_poll(size, outcome, **BUDGET)
    assert decided_gap(NoisyCounts(sigma=9.0), SIZE, GREEDY, 0.9) > 9


def test_a_decided_gap_is_decided() -> None:
    sizes = PollSize(voters=500, options=6, most=2)
    for outcome, counts in (
        (Seats(number=2), [1, 1, 0, 0, 0, 0]),
        (Quota(share=0.5), [1, 1, 1, -1, -1, -1]),
    ):
        mechanism = calibrated(NoisyCounts(sigma=1.0), sizes, Budget(**BUDGET))
        assert isinstance(mechanism, NoisyCounts)
        gap = decided_gap(mechanism, sizes, outcome, 0.95)
        true = 250 + gap * np.array(counts)
        noise = np.rint(mechanism.sigma * np.random.default_rng(3).standard_normal((3000, 6)))
        won = np.array([outcome.winners(row, 500) for row in true + noise])
        right = (won == outcome.winners(true, 500)).all(axis=1)
        assert right.mean() > 0.94
        assert right.mean() < 0.98  # and not much more than needed
