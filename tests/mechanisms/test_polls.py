"""Mechanisms of a poll: outcomes by counts, chances in closed form, prices by public numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privote.accounting.renyi import DEFAULT_ORDERS
from privote.entropy import Entropy
from privote.errors import InputError, UnavailableError
from privote.mechanisms import BinaryVoting, TallyVoting
from privote.mechanisms.outcomes import Greedy, PollSize, PollTally, Quota, Seats
from privote.mechanisms.polls import NoisyBits, NoisyCounts, Peeling
from privote.votes.cube import Ballots

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
    ("share", "voters", "bar"), [(0.29, 200, 58), (0.07, 100, 7), (0.57, 100, 57)]
)
def test_a_quota_is_the_decimal_that_was_typed(share: float, voters: int, bar: int) -> None:
    assert share * voters != bar  # as floats
    for kind in (np.int64, np.float64):
        won = Quota(share=share).winners(np.array([bar - 1, bar, bar + 1], kind), voters)
        assert won.tolist() == [False, False, True]


def test_outcomes_refuse_what_they_cannot_decide() -> None:
    size = PollSize(voters=10, options=4, most=4)
    for outcome in (Seats(number=4), Seats(number=0), Greedy(costs=(), money=Fraction(1))):
        with pytest.raises(InputError):
            outcome.check(size)
    with pytest.raises(UnavailableError):
        Quota(share=0.5).check(PollSize(voters=10, options=4, most=7, each=3))
    for share in (0, 1, -1, float("nan")):
        with pytest.raises(InputError):
            Quota(share=share)


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
    clipped = NoisyCounts(sigma=10.0, tau=1.0)
    assert (clipped.rdp(many, orders) <= orders * 2 / 200 * (1 + 1e-9)).all()
    points = PollSize(voters=100, options=30, most=7, each=3)
    assert np.allclose(counts.rdp(points, orders), orders * 38 / 200)
    for mechanism in (bits, clipped):
        with pytest.raises(UnavailableError):
            mechanism.rdp(points, orders)
    rounds = Peeling(rate=0.05, seats=18)  # two losers are drawn instead
    assert np.allclose(rounds.rdp(many, orders), Peeling(rate=0.05, seats=2).rdp(many, orders))


def test_counts_are_a_tally_on_one_query() -> None:
    size = PollSize(voters=7, options=5, most=2)
    for tau in (None, 1.2):
        counts, voting = NoisyCounts(sigma=3.0, tau=tau), TallyVoting(sigma=3.0, tau=tau)
        assert counts.noise == voting.noise
        labels = size.changes if tau is None else size.options
        assert np.array_equal(
            counts.rdp(size, DEFAULT_ORDERS), voting.worst_case_rdp(7, labels, DEFAULT_ORDERS)
        )
    votes = np.random.default_rng(0).random((1, 7, 5)) < 0.4
    sizes = votes[0].sum(axis=1)
    tally = PollTally(7, {int(s): votes[0][sizes == s].sum(axis=0) for s in set(sizes)}, 5)
    entropy = Entropy(4)
    released = NoisyCounts(sigma=3.0).draw(tally, Seats(number=1), entropy).counts
    again = Entropy(4)
    for place in range(4, 0, -1):  # ties go by lot
        again.below(place + 1)
    assert released is not None
    voting = TallyVoting(sigma=3.0)
    block = next(iter(Ballots.of(votes).blocks()))
    assert released.tolist() == voting.draw(voting.tally(block), again)[0].tolist()


def test_clipped_tallies_weigh_by_size() -> None:
    tally = PollTally(3, {1: np.array([2, 0, 0, 0]), 4: np.array([1, 1, 1, 1])}, 4)
    assert tally.counts.tolist() == [3, 1, 1, 1]
    weights = np.array([0.0, 1.0, 0.7, 0.6, 0.5])
    assert tally.weighted(weights).tolist() == [2.5, 0.5, 0.5, 0.5]
    assert "[3" not in repr(tally)  # true counts are sealed
    assert "counts" not in repr(tally)


def test_draws_are_whole_counts_around_the_true_ones() -> None:
    tally = PollTally(100, {1: np.array([60, 30, 10])}, 3)
    drawn = [
        NoisyCounts(sigma=2.0).draw(tally, Seats(number=1), Entropy(seed)) for seed in range(300)
    ]
    counts = np.array([each.counts for each in drawn])
    assert counts.dtype == np.int64
    assert np.abs(counts.mean(axis=0) - [60, 30, 10]).max() < 0.6
    clipped = NoisyCounts(sigma=2.0, tau=1.0).draw(tally, Seats(number=1), Entropy(1))
    assert clipped.counts is None
    assert clipped.winners.tolist() == [True, False, False]
