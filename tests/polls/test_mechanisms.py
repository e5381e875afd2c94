"""Mechanisms of a poll: outcomes by counts, chances in closed form, prices by public numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from privote.accounting.renyi import DEFAULT_ORDERS
from privote.errors import UnavailableError
from privote.mechanisms import BinaryVoting
from privote.polls.mechanisms import Greedy, NoisyBits, NoisyCounts, Peeling, PollSize, Quota, Seats

COUNTS = np.array([60, 55, 50, 40, 40, 30, 10, 0])
ONCE = np.ones(8, np.int64)


def noise(sigma: float, *shape: int) -> np.ndarray:
    return np.rint(sigma * np.random.default_rng(3).standard_normal(shape))


def test_outcomes_by_counts() -> None:
    counts = np.array([5, 9, 7, 7])
    assert Quota(share=0.5).winners(counts, 14).tolist() == [False, True, False, False]
    assert Seats(number=2).winners(counts, 14).tolist() == [False, True, True, False]
    order = np.array([0, 1, 3, 2])  # the tie goes the other way
    assert Seats(number=2).winners(counts, 14, order).tolist() == [False, True, False, True]
    costs = tuple(Fraction(cost) for cost in ("1", "5", "6", "4.5"))
    # 5 for the first; 6 is too dear, so on to 4.5; then 1 is too dear, too.
    spent = Greedy(costs=costs, money=Fraction(10)).winners(counts, 14)
    assert spent.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    "outcome",
    [Seats(number=2), Greedy(costs=tuple(map(Fraction, (5, 4, 3, 2))), money=Fraction(9))],
)
def test_a_sure_winner_wins_in_every_order_that_may_be_true(outcome: Seats | Greedy) -> None:
    sure = 0
    for order in permutations(range(4)):
        won = outcome.winners(4 - np.argsort(order), 10)
        for place, option in enumerate(order):
            for more in range(4 - place):  # some that may be ahead are not
                if outcome.surely(option, [*order[:place], *order[place + 1 :][:more]]):
                    sure += 1
                    assert won[option]
    assert sure > 24


@pytest.mark.parametrize(
    ("share", "voters", "bar"), [(0.29, 200, 58), (0.07, 100, 7), (0.57, 100, 57)]
)
def test_a_quota_is_the_decimal_that_was_typed(share: float, voters: int, bar: int) -> None:
    assert share * voters != bar  # as floats
    for kind in (np.int64, np.float64):
        won = Quota(share=share).winners(np.array([bar - 1, bar, bar + 1], kind), voters)
        assert won.tolist() == [False, False, True]


@pytest.mark.parametrize("seats", [1, 3, 6])
def test_chances_of_seats(seats: int) -> None:
    rng = np.random.default_rng(0)
    gumbel = rng.gumbel(size=(100_000, 8)) / 0.1
    noisy = COUNTS + (gumbel if seats <= 4 else -gumbel)
    right = noisy[:, :seats].min(axis=1) > noisy[:, seats:].max(axis=1)
    outcome = Seats(number=seats)
    found = Peeling(rate=0.1, seats=seats).chance(COUNTS, ONCE, 100, outcome)
    assert found == pytest.approx(right.mean(), abs=0.007)
    noisy = COUNTS + noise(9.0, 4000, 8)
    right = noisy[:, :seats].min(axis=1) > noisy[:, seats:].max(axis=1)
    found = NoisyCounts(sigma=9.0).chance(COUNTS, ONCE, 100, outcome)
    assert found == pytest.approx(right.mean(), abs=0.03)


def test_chances_of_a_quota() -> None:
    outcome = Quota(share=0.45)
    noisy = COUNTS + noise(4.0, 4000, 8)
    right = (outcome.winners(noisy, 100) == outcome.winners(COUNTS, 100)).all(axis=1).mean()
    found = NoisyCounts(sigma=4.0).chance(COUNTS, ONCE, 100, outcome)
    assert found == pytest.approx(right, abs=0.03)
    bits = NoisyBits(sigma=4 * np.sqrt(2), quota=0.45).chance(COUNTS, ONCE, 100, outcome)
    assert bits == pytest.approx(found, abs=0.08)  # the same noise, but for whole numbers


def test_levels_may_be_counted_together() -> None:
    counts, times = np.array([60, 40, 0]), np.array([2, 3, 4])
    one_by_one = np.repeat(counts, times)
    once = np.ones(9, np.int64)
    for mechanism in (NoisyCounts(sigma=9.0), Peeling(rate=0.1, seats=4)):
        together = mechanism.chance(counts, times, 100, Seats(number=4))
        assert together == pytest.approx(
            mechanism.chance(one_by_one, once, 100, Seats(number=4)), rel=1e-9
        )


def test_prices_follow_the_rule_and_not_the_ballots() -> None:
    few = PollSize(voters=100, options=20, most=3)
    many = PollSize(voters=100, options=20, most=20)
    orders = DEFAULT_ORDERS
    counts, bits = NoisyCounts(sigma=10.0), NoisyBits(sigma=10.0, quota=0.5)
    assert np.allclose(counts.rdp(few, orders), orders * 6 / 200)
    assert np.allclose(counts.rdp(many, orders), orders * 20 / 200)
    exact = BinaryVoting(sigma=10.0, quota=0.5).worst_case_rdp(100, 6)
    assert np.array_equal(bits.rdp(few, orders), exact)
    points = PollSize(voters=100, options=30, most=7, each=3)
    assert np.allclose(counts.rdp(points, orders), orders * 38 / 200)
    with pytest.raises(UnavailableError):
        counts.chance(COUNTS, ONCE, 100, Greedy(costs=(Fraction(1),) * 8, money=Fraction(1)))
    rounds = Peeling(rate=0.05, seats=18)  # two losers are drawn instead
    assert np.allclose(rounds.rdp(many, orders), Peeling(rate=0.05, seats=2).rdp(many, orders))
