"""Planning a poll: the choice and its noise follow from public numbers, and the plan keeps them."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from privote.accounting.renyi import DEFAULT_ORDERS, epsilon
from privote.errors import InputError, UnavailableError
from privote.ledger import Budget
from privote.mechanisms.outcomes import Greedy, PollSize, Quota, Seats
from privote.mechanisms.polls import NoisyCounts
from privote.planning.polls import calibrated, decided_gap, even_race, plan_poll

SIZE = PollSize(voters=500, options=12, most=12)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
GREEDY = Greedy(costs=(Fraction(1),) * 12, money=Fraction(3))


def noise(sigma: float, *shape: int) -> np.ndarray:
    return np.rint(sigma * np.random.default_rng(3).standard_normal(shape))


@pytest.mark.parametrize("outcome", [Quota(share=0.5), Seats(number=2), GREEDY], ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_the_price_fits_and_is_not_wasted(outcome, shared: bool) -> None:
    plan = plan_poll(SIZE, outcome, **BUDGET, shared=shared)
    less = plan.mechanism.scaled(0.99)
    assert plan.epsilon == plan.mechanism.epsilon(SIZE, 1e-6) <= 1.0
    assert plan.epsilon <= epsilon(plan.curve, DEFAULT_ORDERS, 1e-6)
    if not shared:
        assert less.epsilon(SIZE, 1e-6) > 1.0
        return
    settled = Budget(**BUDGET).settled("shared", DEFAULT_ORDERS, None)
    assert settled.filter(DEFAULT_ORDERS).fitting(plan.curve, 1) == 1
    assert settled.filter(DEFAULT_ORDERS).fitting(less.rdp(SIZE, DEFAULT_ORDERS), 1) == 0


def test_prices_are_not_above_those_of_discrete_gaussian_noise() -> None:
    """What planning gave when polls had a noise of their own: 500 voters, delta 1e-6.

    Kept from the code that priced discrete Gaussian counts by Rényi orders alone. Rounded noise has
    a variance of 1/12 more at the same sigma, which moves a gap by one vote at most.
    """
    with Path(__file__).with_name("poll_prices.csv").open() as file:
        before = list(csv.DictReader(file))
    for row in before:
        kind, number = row["rule"].split()
        plan = plan_poll(
            PollSize(voters=500, **{name: int(row[name]) for name in ("options", "most", "each")}),
            Quota(share=float(number)) if kind == "quota" else Seats(number=int(number)),
            epsilon=float(row["epsilon"]),
            delta=1e-6,
            shares=row["release"] == "shares",
            mechanism="tau" if row["release"] == "tau" else "auto",
            tau=2.0 if row["release"] == "tau" else None,
            shared=row["where"] == "ledger",
        )
        facts = plan.mechanism.facts()
        assert plan.gap <= float(row["gap"]) + 1, row
        assert (plan.interval or 0) <= int(row["interval"] or 0), row
        if facts["mechanism"] == row["mechanism"]:
            width = facts["sigma"] if "sigma" in facts else 1 / facts["rate"]
            most = 0.95 if facts["noise"] == "rounded Gaussian" and row["where"] == "alone" else 1
            assert width <= most * float(row["noise"]) * (1 + 1e-7), row
        else:
            race = even_race(plan.mechanism, plan.size, plan.outcome)
            assert race < float(row["race"]), row


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
    assert chosen(sparse, Seats(number=100), typical=6) == "tau"
    # Two typical ballots that are left whole differ on more options than there are.
    assert chosen(SIZE, GREEDY, typical=3) == "counts"


def test_what_cannot_be_is_refused_with_its_reason() -> None:
    with refused("mechanism", UnavailableError):
        plan_poll(SIZE, Seats(number=1), **BUDGET, shares=True, mechanism="top-m")
    with refused("mechanism", UnavailableError):
        plan_poll(SIZE, Seats(number=1), **BUDGET, mechanism="binary")
    with refused("typical"):
        plan_poll(SIZE, Seats(number=1), **BUDGET, mechanism="tau")
    with refused("typical", UnavailableError):
        plan_poll(SIZE, Seats(number=1), **BUDGET, mechanism="tau", typical=5)
    with refused("tau"):
        plan_poll(SIZE, Seats(number=1), **BUDGET, tau=2.0)
    for bad in ({"typical": 0.5}, {"confidence": 1.0}, {"mechanism": "best"}):
        with pytest.raises(InputError, match=next(iter(bad))):
            plan_poll(SIZE, Seats(number=1), **BUDGET, **bad)


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
        added = noise(mechanism.sigma, 3000, 6)
        right = np.array(
            [
                (outcome.winners(row, 500) == outcome.winners(true, 500)).all()
                for row in true + added
            ]
        )
        assert right.mean() > 0.94
        assert right.mean() < 0.98  # and not much more than needed


def test_intervals_cover_all_options_at_once() -> None:
    plan = plan_poll(SIZE, Quota(share=0.5), **BUDGET, shares=True)
    assert isinstance(plan.mechanism, NoisyCounts)
    assert plan.interval is not None
    added = noise(plan.mechanism.sigma, 3000, 12)
    covered = (np.abs(added) <= plan.interval).all(axis=1).mean()
    assert 0.94 < covered < 0.97


def test_more_budget_decides_closer_races() -> None:
    for outcome in (Quota(share=0.5), Seats(number=2), GREEDY):
        plans = [plan_poll(SIZE, outcome, epsilon=e, delta=1e-6) for e in (0.1, 0.5, 2.0)]
        assert plans[0].gap > plans[1].gap > plans[2].gap
        races = [even_race(plan.mechanism, SIZE, outcome) for plan in plans]
        assert races[0] > races[1] > races[2]
