from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.accounting import sanitize
from privote.errors import InputError
from privote.mechanisms.cells import MarginGrid

GATE = pv.Gate(threshold=3.0, sigma=1.0)


def level_costs(
    mech: pv.BinaryVoting, voters: int, order: float, *, missing: bool = False
) -> np.ndarray:
    """Return (levels,): a cell's worst two-sided cost at each count, or margin with missing."""
    return MarginGrid(mech, voters, missing).costs(slice(None), np.array([order]))[:, 0]


def neighbours(tally: tuple[int, ...], levels: int, max_shift: int):
    """Every tally one ballot away: each cell moves on its own, by at most ``max_shift``."""
    around = [
        [c + step for step in range(-max_shift, max_shift + 1) if 0 <= c + step < levels]
        for c in tally
    ]
    return itertools.product(*around)


def gaussian_divergence(m: float, s: float, other_m: float, other_s: float, order: float) -> float:
    """Return D(N(m, s^2) || N(other)) by numerical integration, knowing nothing of a formula."""
    with mpmath.workdps(30):

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            log_p = -(((x - m) / s) ** 2) / 2 - mpmath.log(s)
            log_q = -(((x - other_m) / other_s) ** 2) / 2 - mpmath.log(other_s)
            return mpmath.exp(order * log_p + (1 - order) * log_q) / mpmath.sqrt(2 * mpmath.pi)

        # The integrand is a bell too: its centre and width by completing the square.
        weight = order / s**2 + (1 - order) / other_s**2
        centre = (order * m / s**2 + (1 - order) * other_m / other_s**2) / weight
        width = 1 / math.sqrt(weight)
        edges = [centre + width * k for k in range(-12, 13, 3)]
        return float(mpmath.log(mpmath.quad(integrand, edges)) / (order - 1))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.integers(0, 40))
def test_windowed_max(values, radius):
    expected = [max(values[max(0, i - radius) : i + radius + 1]) for i in range(len(values))]
    assert sanitize.windowed_max(np.array(values), radius).tolist() == expected


def smooth_by_definition(costs: np.ndarray, histogram: np.ndarray, beta: float, max_shift: int):
    """Return S by looking at every distance."""
    places = range(len(costs))
    change = [
        max(abs(costs[j] - costs[i]) for j in places if abs(i - j) <= max_shift) for i in places
    ]
    return max(
        math.exp(-beta * d)
        * sum(
            cells * max(change[max(0, i - d * max_shift) : i + d * max_shift + 1])
            for i, cells in enumerate(histogram.tolist())
        )
        for d in places
    )


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=2, max_size=60),
    st.floats(-4, 1),
    st.integers(1, 30),
    st.integers(1, 2),
)
def test_smooth_sensitivity_is_the_maximum_over_all_distances(rows, log_beta, power, max_shift):
    costs = np.array([cost for cost, _ in rows]) ** power  # powers make few large and many small
    histogram, beta = np.array([cells for _, cells in rows]), 10.0**log_beta
    found = sanitize.smooth_sensitivity(costs, histogram, beta, max_shift)
    assert found == pytest.approx(
        smooth_by_definition(costs, histogram, beta, max_shift), rel=1e-12
    )


@pytest.mark.parametrize(
    ("mech", "voters", "cells", "max_shift"),
    [
        (pv.BinaryVoting(sigma=1.0), 6, 2, 1),
        (pv.BinaryVoting(sigma=0.6), 5, 3, 1),
        (pv.BinaryVoting(sigma=1.5, quota=0.3), 6, 2, 1),
        (pv.BinaryVoting(sigma=1.0, gate=GATE), 5, 2, 1),
        (pv.BinaryVoting(sigma=1.0), 3, 2, 2),
        (pv.BinaryVoting(sigma=1.0, gate=GATE), 3, 2, 2),
    ],
)
@pytest.mark.parametrize(("order", "share", "gamma"), [(2.0, 0.6, 0.05), (8.0, 0.9, 0.2)])
def test_every_pair_of_neighbours_is_within_the_price(
    mech, voters, cells, max_shift, order, share, gamma
):
    """Enumerate all small elections; compare the two published Gaussians of each pair."""
    costs = level_costs(mech, voters, order, missing=max_shift == 2)
    levels, beta, sigma_s = len(costs), share * sanitize.largest_beta(order), 1.5
    price, z = sanitize.release_cost(order, beta, sigma_s, gamma), sanitize.z_value(gamma)
    known = {}
    for tally in itertools.product(range(levels), repeat=cells):
        histogram = np.bincount(tally, minlength=levels)
        known[tally] = (
            float(histogram @ costs),
            sanitize.smooth_sensitivity(costs, histogram, beta, max_shift),
        )
    worst = 0.0
    for tally, (f, scale) in known.items():
        for other in neighbours(tally, levels, max_shift):
            other_f, other_scale = known[other]
            assert abs(f - other_f) <= min(scale, other_scale) * (1 + 1e-12)
            assert scale <= math.exp(beta) * other_scale * (1 + 1e-12)
            s, other_s = scale * sigma_s, other_scale * sigma_s
            mean, other_mean = f + z * s, other_f + z * other_s
            width = order * other_s**2 + (1 - order) * s**2
            worst = max(
                worst,
                order * (mean - other_mean) ** 2 / (2 * width)
                + math.log(other_s**order * s ** (1 - order) / math.sqrt(width)) / (order - 1),
            )
    assert 0.02 * price < worst <= price


def test_the_golden_case_and_the_published_formula():
    # PATE 2018, Theorem 23, as coded in tensorflow/privacy research/pate_2018: 6.79.
    assert sanitize.published_cost_2018(5, 0.099, 1.0) == pytest.approx(6.794, abs=1e-3)
    assert sanitize.release_cost(5, 0.099, 1.0) == pytest.approx(20.299, abs=1e-3)
    # The two Gaussians themselves: scales 1 and e^-beta, means apart by the smaller.
    small = math.exp(-0.099)
    assert gaussian_divergence(0.0, 1.0, small, small, 5.0) == pytest.approx(20.299, abs=1e-3)
    # Elsewhere the published formula is loose: twice the price where beta is small.
    assert sanitize.published_cost_2018(5, 1e-4, 1.0) == pytest.approx(
        2 * sanitize.release_cost(5, 1e-4, 1.0), rel=0.01
    )


def test_the_number_covers_the_truth_with_probability_one_minus_gamma():
    z = sanitize.z_value(0.05)
    assert z == pytest.approx(1.6449, abs=1e-4)
    assert sanitize.sanitized_upper(10.0, 2.0, 1.5, -z, 0.05) == pytest.approx(10.0, abs=2e-3)
    assert sanitize.sanitized_upper(10.0, 2.0, 1.5, 0.0, 0.05) == pytest.approx(
        10 + 3 * z, abs=1e-3
    )
    # The least number is one part: a cost that underflowed to 0 looks like one that did not.
    assert sanitize.sanitized_upper(10.0, 2.0, 1.5, -50.0, 0.05) == 0.001
    assert sanitize.sanitized_upper(0.0, 0.0, 1.5, 0.0, 0.05) == 0.001
    assert sanitize.sanitized_upper(1e-320, 0.0, 1.5, 0.0, 0.05) == 0.001
    for z_drawn in np.linspace(-3, 3, 50):
        upper = sanitize.sanitized_upper(10.0, 2.0, 1.5, z_drawn, 0.05)
        assert upper * 1000 == pytest.approx(round(upper * 1000), abs=1e-9)
        assert 0 <= upper - (10 + 3 * (z_drawn + z)) < 1e-3 + 1e-12


def test_real_votes(tmc_votes):
    """462 queries at sigma=7: the sealed epsilon is about 20; what may be published is more."""
    mech, delta = pv.BinaryVoting(sigma=7.0), 1e-5
    orders = np.array([1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 4.0])
    tables = np.stack([level_costs(mech, 50, order) for order in orders])
    order = sanitize.public_order(tables, orders, 462 * 22, delta)
    costs = tables[list(orders).index(order)]
    histogram = np.bincount(tmc_votes[:462].sum(axis=1).ravel(), minlength=51)
    beta = sanitize.default_beta(order)
    f, scale = float(histogram @ costs), sanitize.smooth_sensitivity(costs, histogram, beta)
    price = sanitize.release_cost(order, beta, sanitize.SIGMA_S, sanitize.GAMMA)
    upper = sanitize.sanitized_upper(f, scale, sanitize.SIGMA_S, 0.0, sanitize.GAMMA)
    stated = sanitize.statement_epsilon(upper, price, order, delta)
    assert (order, f) == (2.0, pytest.approx(10.483, abs=1e-3))
    assert scale == pytest.approx(1.544, abs=1e-3)
    assert price == pytest.approx(2.418, abs=1e-3)
    assert stated == pytest.approx(26.84, abs=1e-2)


def test_bad_arguments():
    for argument, call in {
        "beta": lambda: sanitize.release_cost(5, 0.112, 1.0),
        None: lambda: sanitize.published_cost_2018(5, 0.1, 1.0),
        "gamma": lambda: sanitize.z_value(0.6),
        "order": lambda: sanitize.release_cost(1.0, 0.1, 1.0),
        "costs": lambda: sanitize.smooth_sensitivity([1.0, math.inf], [1, 2], 0.1),
    }.items():
        with refused(argument):
            call()


@given(
    order=st.floats(-2, 3).map(lambda x: 1 + 10.0**x),
    near=st.floats(0.01, 0.99) | st.floats(-14, -2).map(lambda x: 1 - 10.0**x),
    sigma_s=st.floats(-2, 3).map(lambda x: 10.0**x),
    gamma=st.sampled_from([0.5, 0.05, 1e-9]),
)
@example(order=312.79, near=1 - 1e-13, sigma_s=0.2, gamma=0.05)
def test_a_price_is_never_below_mpmath(
    order: float, near: float, sigma_s: float, gamma: float
) -> None:
    # Towards the largest beta the cost is the inverse of a difference that has few digits left.
    beta = near * sanitize.largest_beta(order)
    try:
        found = sanitize.release_cost(order, beta, sigma_s, gamma)
    except InputError:  # refused, because no digit is left
        assert near > 1 - 1e-9
        return
    with mpmath.workdps(60):
        a, b, s, z = map(mpmath.mpf, (order, beta, sigma_s, sanitize.z_value(gamma)))
        spread = 1 - a + a * mpmath.exp(-2 * b)
        shift = (1 + z * s * mpmath.expm1(b)) / s
        cost = a * mpmath.exp(-2 * b) * shift**2 / (2 * spread)
        cost += (-a * b - mpmath.log(spread) / 2) / (a - 1)
        assert found >= cost * (1 - mpmath.mpf(10) ** -12)
