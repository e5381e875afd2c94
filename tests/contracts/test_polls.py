"""Tries to break the promise of every mechanism of a poll, by enumeration of small polls.

For each mechanism, at the noise that planning gives it: all polls of up to four voters and three
options, every ballot replaced by every other. The hockey-stick divergence at the stated epsilon is
what delta must cover.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from scipy.stats import chi2

from privote.accounting.counts import RoundedGaussian
from privote.accounting.gaussian import GaussianLink
from privote.entropy import Entropy
from privote.polls.mechanisms import (
    NoisyBits,
    NoisyCounts,
    Peeling,
    PollMechanism,
    PollSize,
    Quota,
    Seats,
)
from privote.polls.planning import plan_poll

DELTA = 1e-3
SIZES = [(2, 2, 2), (3, 3, 1), (3, 3, 3), (4, 3, 2)]


def ballots(options: int, most: int) -> list[tuple[int, ...]]:
    return [b for b in product((0, 1), repeat=options) if sum(b) <= most]


def tally(cast: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, int]:
    """Return the counts and the number of voters."""
    return np.array(cast).sum(axis=0), len(cast)


def polls(voters: int, options: int, most: int):
    """Yield all polls that differ in one ballot only, up to the order of their voters."""
    every = ballots(options, most)
    for rest in combinations_with_replacement(every, voters - 1):
        yield [tuple(sorted((*rest, last))) for last in every]


def outcome_probabilities(mechanism: PollMechanism, counts: np.ndarray, voters: int) -> np.ndarray:
    """Return the probabilities of everything a mechanism could tell, in a fixed order."""
    if isinstance(mechanism, NoisyBits):
        link = GaussianLink(sigma=mechanism.sigma, quota=mechanism.quota)
        p = np.exp(link.log_probs(2 * counts - voters, voters))
        return np.array(
            [np.prod([row[bit] for row, bit in zip(p, bits, strict=True)])
             for bits in product((0, 1), repeat=len(counts))]
        )  # fmt: skip
    assert isinstance(mechanism, Peeling)
    lose = len(counts) - mechanism.seats < mechanism.seats
    weight = np.exp(mechanism.rate * counts * (-1 if lose else 1))
    rounds = min(mechanism.seats, len(counts) - mechanism.seats)
    found = []
    for order in permutations(range(len(counts)), rounds):
        left, p = weight.copy(), 1.0
        for option in order:
            p *= left[option] / left.sum()
            left[option] = 0.0
        found.append(p)
    return np.array(found)


def worst_delta(mechanism: PollMechanism, size: PollSize, epsilon: float) -> float:
    known: dict[tuple[tuple[int, ...], ...], np.ndarray] = {}
    worst = 0.0
    for family in polls(size.voters, size.options, size.most):
        for poll in family:
            if poll not in known:
                known[poll] = outcome_probabilities(mechanism, *tally(poll))
        p = np.array([known[poll] for poll in family])
        excess = np.maximum(p[:, None] - math.exp(epsilon) * p[None], 0.0).sum(axis=-1)
        worst = max(worst, float(excess.max()))
    return worst


@pytest.mark.parametrize(("voters", "options", "most"), [*SIZES, (3, 4, 2)])  # two rounds
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("binary", Quota(share=0.5)),
        ("binary", Quota(share=0.2)),
        ("top-m", Seats(number=1)),
        ("top-m", Seats(number=2)),
    ],
)
def test_bits_and_rounds_keep_their_promise(
    voters: int, options: int, most: int, epsilon: float, name: str, outcome
) -> None:
    if isinstance(outcome, Seats) and outcome.number >= options:
        pytest.skip("nothing to decide")
    size = PollSize(voters=voters, options=options, most=most)
    plan = plan_poll(size, outcome, epsilon=epsilon, delta=DELTA, mechanism=name)
    assert plan.epsilon <= epsilon
    assert worst_delta(plan.mechanism, size, plan.epsilon) <= DELTA


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(
    ("name", "outcome"), [("binary", Quota(share=0.4)), ("top-m", Seats(number=1))]
)
def test_several_questions_keep_one_promise(name: str, outcome, most: int) -> None:
    """A ballot answers two questions, on two options and on three, and is replaced as a whole."""
    size = PollSize(voters=2, options=5, most=most, questions=(2, 3))
    plan = plan_poll(size, outcome, epsilon=1.0, delta=DELTA, mechanism=name)
    every = [(*one, *two) for one in ballots(2, most) for two in ballots(3, most)]
    worst = dict.fromkeys((1.0, 0.9), 0.0)
    for rest in every[:: len(every) // 4]:
        p = []
        for last in every:
            counts = tally((rest, last))[0]
            parts = [outcome_probabilities(plan.mechanism, counts[at], 2) for at in size.places]
            p.append(np.outer(*parts).ravel())
        for share in worst:
            excess = np.array(p)[:, None] - math.exp(share * plan.epsilon) * np.array(p)[None]
            worst[share] = max(worst[share], float(np.maximum(excess, 0.0).sum(axis=-1).max()))
    assert worst[1.0] <= DELTA
    assert name == "top-m" or worst[0.9] > DELTA, "the audit would not see a promise too good"


def counts_delta(noise: RoundedGaussian, moves: tuple[int, ...], epsilon: float) -> float:
    """Return the hockey-stick divergence of noisy counts that move by this much."""
    x = np.arange(-noise.reach, noise.reach + 1)
    log_p = noise.log_pmf(x)
    # Counts that do not move tell nothing; the others' log-ratios add up.
    ratio, log_mass = np.zeros(1), np.zeros(1)
    for move in moves:
        if move:
            ratio = (ratio[:, None] + (log_p - noise.log_pmf(x - move))[None]).ravel()
            log_mass = (log_mass[:, None] + log_p[None]).ravel()
    return float((np.exp(log_mass) * np.maximum(-np.expm1(epsilon - ratio), 0.0)).sum())


def test_noisy_counts_of_several_questions_keep_one_promise() -> None:
    size = PollSize(voters=3, options=5, most=1, questions=(2, 3))
    plan = plan_poll(size, Seats(number=1), epsilon=4.0, delta=DELTA, mechanism="counts")
    assert isinstance(plan.mechanism, NoisyCounts)
    every = [(*one, *two) for one in ballots(2, 1) for two in ballots(3, 1)]
    moves = {tuple(sorted(np.subtract(one, two).tolist())) for one in every for two in every}
    noise = plan.mechanism.noise
    assert max(counts_delta(noise, move, plan.epsilon) for move in moves) <= DELTA
    assert max(counts_delta(noise, move, 0.9 * plan.epsilon) for move in moves) > DELTA


@pytest.mark.parametrize(("voters", "options", "most"), SIZES)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("each", [1, 2])
def test_counts_keep_their_promise(
    voters: int, options: int, most: int, epsilon: float, each: int
) -> None:
    size = PollSize(voters=voters, options=options, most=most, each=each)
    plan = plan_poll(size, Seats(number=1), epsilon=epsilon, delta=DELTA, mechanism="counts")
    assert isinstance(plan.mechanism, NoisyCounts)
    every = [b for b in product(range(each + 1), repeat=options) if sum(b) <= most]
    moves = {
        tuple(sorted(y - x for x, y in zip(one, two, strict=True)))
        for one in every
        for two in every
    }
    noise = plan.mechanism.noise
    assert max(counts_delta(noise, move, plan.epsilon) for move in moves) <= DELTA
    less = max(counts_delta(noise, move, 0.9 * plan.epsilon) for move in moves)
    assert less > DELTA, "the audit would not see a promise that is a tenth too good"


@pytest.mark.parametrize(
    "mechanism",
    [
        NoisyBits(sigma=2.0, quota=0.4),
        Peeling(rate=0.4, seats=1),
        Peeling(rate=0.4, seats=2),
    ],
    ids=str,
)
def test_what_is_drawn_is_what_is_priced(mechanism: PollMechanism) -> None:
    counted = tally(((1, 1, 0), (1, 0, 0), (0, 0, 1), (1, 1, 1)))
    outcome = Seats(number=getattr(mechanism, "seats", 1))
    entropy, draws = Entropy(5), 4_000
    seen = np.array(
        [mechanism.draw(*counted, outcome, entropy).winners @ [4, 2, 1] for _ in range(draws)]
    )
    p = outcome_probabilities(mechanism, *counted)
    if isinstance(mechanism, Peeling):
        rounds = min(mechanism.seats, 3 - mechanism.seats)
        by_set = np.zeros(8)
        for chance, order in zip(p, permutations(range(3), rounds), strict=True):
            won = set(order) if mechanism.seats == rounds else set(range(3)) - set(order)
            by_set[sum([4, 2, 1][option] for option in won)] += chance
        p = by_set
    expected, observed = p * draws, np.bincount(seen, minlength=8)
    assert observed[p == 0].sum() == 0
    kept = p > 0
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert statistic < chi2.isf(1e-6, kept.sum() - 1)
