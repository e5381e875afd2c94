"""The allowance learnt: scores, their probabilities, and the noise that is left to buy."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.accounting.allowance import (
    ENOUGH,
    Learning,
    learning_epsilon,
    mu_at_order,
    mu_of_budget,
    settled,
)
from privote.accounting.renyi import epsilon
from privote.errors import InputError

BUDGETS = [(8.0, 1e-5), (4.0, 1e-5), (2.0, 1e-5), (1.0, 1e-5), (0.2, 1e-7), (30.0, 1e-6)]


def plain_scores(
    learning: Learning, contributions: npt.NDArray[np.int64], scale: Fraction
) -> npt.NDArray[np.int64]:
    """Return the scores by their definition, voter by voter, in fractions."""
    ratio, bonus, _ = learning.window
    first, last = learning.grid[0], learning.grid[-1]
    clipped = [min(max(count * scale, first), last) for count in contributions.tolist()]
    scores = [
        min(sum(y <= v for y in clipped), sum(y > v / ratio for y in clipped) + bonus)
        for v in learning.grid
    ]
    return np.array(scores, np.int64)


# -- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("voters", "epsilon0"), [(3, 5.0), (3, 9.0), (4, 3.6)])
@pytest.mark.parametrize(("queries", "labels"), [(3, 1), (4, 2)])
def test_replacing_a_voter_moves_every_score_by_at_most_one(
    voters: int, epsilon0: float, queries: int, labels: int
) -> None:
    learning = Learning(voters=voters, queries=queries, labels=labels, epsilon0=epsilon0)
    assert learning.learns
    counts = range(queries * labels + 1)
    table = {}
    for each in product(counts, repeat=voters):
        if list(each) == sorted(each):
            contributions = np.array(each)
            table[each] = learning.scores(contributions), learning.log_probs(contributions)
            assert (table[each][0] == plain_scores(learning, contributions, Fraction(1))).all()
    for each, (score, chance) in table.items():
        assert np.exp(chance).sum() == pytest.approx(1, abs=1e-12)
        for place, other in product(range(voters), counts):
            neighbour = tuple(sorted((*each[:place], *each[place + 1 :], other)))
            there, chances = table[neighbour]
            assert np.abs(there - score).max() <= 1
            loss = chance - chances
            assert loss.max() - loss.min() <= epsilon0 + 1e-12


@given(
    st.lists(st.integers(0, 500), min_size=30, max_size=30),
    st.integers(1, 60),
    st.fractions(Fraction(1, 50), 30, max_denominator=100),
)
def test_scores_are_the_definitions(counts: list[int], queries: int, scale: Fraction) -> None:
    learning = Learning(voters=30, queries=queries, labels=7, epsilon0=0.6)
    contributions = np.array(counts)
    assert (
        learning.scores(contributions, scale) == plain_scores(learning, contributions, scale)
    ).all()


def test_the_grid_ends_where_nobody_is_cut() -> None:
    for queries, labels in ((1, 1), (3, 1), (7, 22), (10**7, 1000)):
        learning = Learning(voters=100, queries=queries, labels=labels, epsilon0=1.0)
        cells = queries * labels
        assert learning.grid[-1] == -(-cells // 2)
        assert learning.limit(learning.grid[-1]) == cells
        assert learning.grid[0] >= max(1, cells / 1000)
        assert len(learning.grid) < 100
        assert list(learning.grid) == sorted(set(learning.grid))
        # There the noise covers every cell, and no more.
        assert learning.sigma(learning.grid[-1], 0.5) == pytest.approx(2 * math.sqrt(cells))


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InputError):
        Learning(voters=0, queries=1, labels=1, epsilon0=1.0)
    with pytest.raises(InputError):
        Learning(voters=5, queries=1, labels=1, epsilon0=-1.0)
    learning = Learning(voters=5, queries=4, labels=1, epsilon0=4.0)
    for counts in ([1, 2], [1, 2, 3, 4, -1]):
        with pytest.raises(InputError):
            learning.scores(np.array(counts))


# -- what is left ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "delta"), BUDGETS)
@pytest.mark.parametrize("voters", [1, 3, 10, 30, 100, 3000])
def test_a_pinned_order_adds_up_to_the_budget(budget: float, delta: float, voters: int) -> None:
    order, rho = settled(budget, delta)
    epsilon0 = learning_epsilon(rho, voters)
    learnt = order * epsilon0**2 / 8
    assert learnt <= order * rho / 3
    assert epsilon0 == 0 or voters * epsilon0 >= ENOUGH
    if voters * epsilon0 > ENOUGH * (1 + 1e-9):  # no more than a tenth, and no more than helps
        assert learnt <= order * rho / 10 * (1 + 1e-12)
        assert voters * epsilon0 <= 60 * (1 + 1e-12)
    assert Learning(voters=voters, queries=9, labels=9, epsilon0=epsilon0).learns == (epsilon0 > 0)
    mu = mu_at_order(order * rho - learnt, order)
    total = learnt + order * mu**2 / 2
    assert float(epsilon([total], [order], delta)) == pytest.approx(budget, rel=1e-9)


def exact_delta(budget: float, epsilon0: float, mu: float, points: int = 400) -> float:
    """Return the formula's maximum, with 60 digits and a golden search around the best point."""
    with mpmath.workdps(60):
        e, e0, m = (mpmath.mpf(x) for x in (budget, epsilon0, mu))

        def gauss(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.ncdf(m / 2 - x / m) - mpmath.exp(x) * mpmath.ncdf(-m / 2 - x / m)

        def total(t: mpmath.mpf) -> mpmath.mpf:
            p = (mpmath.exp(e0 - t) - 1) / (mpmath.exp(e0 - t) - mpmath.exp(-t))
            return p * gauss(e - t) + (1 - p) * gauss(e - t + e0)

        best = max(range(points + 1), key=lambda i: total(e0 * i / points))
        low, high = (e0 * mpmath.mpf(max(0, min(points, best + i))) / points for i in (-1, 1))
        for _ in range(80):
            one, two = low + (high - low) / 3, high - (high - low) / 3
            low, high = (one, high) if total(one) < total(two) else (low, two)
        return float(total((low + high) / 2))


@pytest.mark.parametrize("part", [0.1, 0.0])  # of the budget, for learning
@pytest.mark.parametrize(("budget", "delta"), BUDGETS)
def test_a_whole_budget_is_met_from_below(budget: float, delta: float, part: float) -> None:
    rho = settled(budget, delta)[1]
    epsilon0 = math.sqrt(8 * part * rho)
    mu = mu_of_budget(budget, delta, epsilon0)
    true = exact_delta(budget, epsilon0 or 1e-12, mu)
    assert true <= delta
    assert true >= 0.995 * delta  # and little is given away
    pinned = mu_at_order((1 - part) * rho, 1.0)
    assert 1.02 < mu / pinned < 1.12  # 7 to 10 percent less noise than at the pinned order


def brute_delta(budget: float, chances: np.ndarray, others: np.ndarray, mu: float) -> float:
    """Integrate (p - e^eps q)+ over branches and tallies on an even grid."""
    step = 1e-3
    x = np.arange(-14, 14 + mu, step)
    near, far = np.exp(-((x - mu) ** 2) / 2), np.exp(-(x**2) / 2)
    gap = chances[:, None] * near - math.exp(budget) * others[:, None] * far
    return float(np.maximum(gap, 0).sum() * step / math.sqrt(2 * math.pi))


@pytest.mark.parametrize(("budget", "delta"), BUDGETS[:4])
def test_no_choice_of_this_range_and_noise_exceeds_the_formula(budget: float, delta: float) -> None:
    epsilon0 = math.sqrt(0.8 * settled(budget, delta)[1])
    mu = mu_of_budget(budget, delta, epsilon0)
    worst = 0.0
    for t in np.linspace(0.01, 0.99, 41) * epsilon0:  # two branches
        p = (math.exp(epsilon0) - math.exp(t)) / math.expm1(epsilon0)
        chances = np.array([p, 1 - p])
        others = chances * np.exp([-t, epsilon0 - t])
        assert others.sum() == pytest.approx(1)
        worst = max(worst, brute_delta(budget, chances, others, mu))
    assert 0.98 * delta < worst <= delta
    rng = np.random.default_rng(0)
    for _ in range(60):  # any number of branches
        size = int(rng.integers(2, 9))
        weights = rng.dirichlet(np.full(size, 0.5))
        moved = weights * np.exp(rng.choice([-0.5, 0.0, 0.5], size) * epsilon0)
        assert brute_delta(budget, weights, moved / moved.sum(), mu) <= delta
