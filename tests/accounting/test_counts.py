"""How far a ballot moves counts, what noise on them costs, and how far it reaches."""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import pytest

from privote.accounting.counts import (
    RoundedGaussian,
    bounded_range_rdp,
    squared_shift,
)
from privote.accounting.renyi import DEFAULT_ORDERS, divergence


@pytest.mark.parametrize("options", [1, 2, 3, 4])
@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 7])
def test_the_shift_is_that_of_the_worst_two_ballots(options: int, each: int, most: int) -> None:
    ballots = [b for b in product(range(each + 1), repeat=options) if sum(b) <= most]
    worst = max(
        sum((x - y) ** 2 for x, y in zip(one, two, strict=True))
        for one in ballots
        for two in ballots
    )
    assert squared_shift(options, most, each) == worst


@pytest.mark.parametrize("width", [0.05, 0.5, 2.0, 8.0])
def test_a_range_bounds_exponential_mechanisms(width: float) -> None:
    rng = np.random.default_rng(0)
    bound = bounded_range_rdp(width, DEFAULT_ORDERS)
    assert (np.diff(bound) >= -1e-12).all()
    assert (bound <= DEFAULT_ORDERS * width**2 / 8 + 1e-15).all()
    assert (bound <= width).all()
    reached = np.zeros(len(DEFAULT_ORDERS))
    for _ in range(300):  # utilities move by up to half the range, up for some and down for others
        scores = rng.normal(scale=rng.choice([0.1, 1, 5]), size=rng.integers(2, 6))
        moved = scores + rng.choice([-0.5, 0.5], size=len(scores)) * width
        one, two = (s - np.logaddexp.reduce(s) for s in (scores, moved))
        reached = np.maximum(reached, divergence(one, two, DEFAULT_ORDERS))
    assert (reached <= bound * (1 + 1e-9)).all()
    assert reached.max() > 0.5 * bound.max()


@pytest.mark.parametrize("sigma", [0.4, 2.5, 60.0, 3e4])
def test_reach_of_the_noise(sigma: float) -> None:
    noise = RoundedGaussian(sigma)
    x = np.arange(-5, 6)
    assert np.allclose(noise.at_most(x) + noise.above(x), 1.0)
    assert np.allclose(noise.above(x), noise.at_most(-x - 1))
    for tail in (noise.above, noise.at_most):  # between integers there is nothing
        assert np.array_equal(tail(x + 0.5), tail(x))
    for options in (1, 12, 200):
        half = noise.within(options, 0.95)
        assert (1 - 2 * noise.above(half)) ** options >= 0.95
        assert half == 0 or (1 - 2 * noise.above(half - 1)) ** options < 0.95


@pytest.mark.parametrize(("sigma", "options"), [(0.6, 2), (3.0, 5), (400.0, 12)])
def test_no_two_are_further_apart(sigma: float, options: int) -> None:
    noise = RoundedGaussian(sigma)
    x = np.arange(-noise.reach, noise.reach + 1)
    pmf = np.diff(noise.at_most(x), prepend=0.0)
    draws = np.random.default_rng(1).choice(x, p=pmf / pmf.sum(), size=(40_000, options))
    spread = np.ptp(draws, axis=1)
    apart = noise.apart(options, 0.95)
    assert (spread <= apart).mean() > 0.945
    assert (spread <= 0.9 * apart - 1).mean() < 0.95


@pytest.mark.parametrize("sigma", [0.15, 0.7, 3.0, 11.3])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("order", [1.05, 2.0, 6.0, 40.0])
def test_the_rounded_gaussian_costs_what_its_sum_says(
    sigma: float, shift: int, order: float
) -> None:
    noise = RoundedGaussian(sigma)
    with mpmath.workdps(50):
        width = mpmath.sqrt(2) * mpmath.mpf(sigma)

        def pmf(x: int) -> mpmath.mpf:
            size = abs(x)
            near, far = (mpmath.mpf(size) + half for half in (-0.5, 0.5))
            return (mpmath.erfc(near / width) - mpmath.erfc(far / width)) / 2

        end = int(order * shift + 12 * sigma + 3 * shift + 8)
        terms = (
            mpmath.power(pmf(x - shift), order) * mpmath.power(pmf(x), 1 - order)
            for x in range(-end, end + 1)
        )
        true = float(mpmath.log(mpmath.fsum(terms)) / (order - 1))
    cost = float(noise.rdp(shift, np.array([order]))[0])
    line = float(noise.gaussian_rdp(shift**2, np.array([order]))[0])
    assert cost == pytest.approx(true, rel=1e-8)
    assert true <= line
