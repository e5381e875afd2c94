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
from privote.accounting.exact import shift_costs
from privote.errors import InputError

GATE = pv.Gate(threshold=3.0, sigma=1.0)


def count_costs(mech: pv.BinaryVoting, voters: int, order: float) -> np.ndarray:
    """Return (voters + 1,): a cell's worst two-sided cost at each count."""
    margins = 2 * np.arange(voters + 1) - voters
    costs = shift_costs(
        lambda m: mech.log_probs(m, voters), margins, (2, -2), voters, np.array([order])
    )
    return costs.max(axis=(1, 2))[:, 0]


def margin_costs(mech: pv.BinaryVoting, voters: int, order: float) -> np.ndarray:
    """Return (2 voters + 1,): the same by margin, where votes can be missing."""
    costs = shift_costs(
        lambda m: mech.log_probs(m, voters),
        np.arange(-voters, voters + 1),
        (-2, -1, 1, 2),
        voters,
        np.array([order]),
    )
    return costs.max(axis=(1, 2))[:, 0]


def neighbours(tally: tuple[int, ...], levels: int, reach: int):
    """Every tally one ballot away: each cell moves on its own, by at most ``reach``."""
    around = [
        [c + step for step in range(-reach, reach + 1) if 0 <= c + step < levels] for c in tally
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


@given(st.lists(st.floats(0, 10), min_size=2, max_size=12), st.integers(0, 14), st.integers(1, 2))
def test_local_sensitivity_by_definition(costs, distance, reach):
    places = range(len(costs))
    change = [max(abs(costs[j] - costs[i]) for j in places if abs(i - j) <= reach) for i in places]
    expected = [max(change[j] for j in places if abs(i - j) <= distance * reach) for i in places]
    found = sanitize.local_sensitivity(costs, distance, reach)
    assert found == pytest.approx(expected, abs=1e-12)


def smooth_by_definition(costs: np.ndarray, histogram: np.ndarray, beta: float, reach: int):
    """Return S by looking at every distance."""
    return max(
        math.exp(-beta * d) * float(histogram @ sanitize.local_sensitivity(costs, d, reach))
        for d in range(len(costs))
    )


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=2, max_size=60),
    st.floats(-4, 1),
    st.integers(1, 30),
    st.integers(1, 2),
)
def test_smooth_sensitivity_is_the_maximum_over_all_distances(rows, log_beta, power, reach):
    costs = np.array([cost for cost, _ in rows]) ** power  # powers make few large and many small
    histogram, beta = np.array([cells for _, cells in rows]), 10.0**log_beta
    found = sanitize.smooth_sensitivity(costs, histogram, beta, reach)
    assert found == pytest.approx(smooth_by_definition(costs, histogram, beta, reach), rel=1e-12)


def test_smooth_sensitivity_where_many_distances_come_close():
    """Sums that grow as e^(beta d) make every distance a candidate; so do plateaus."""
    places = np.arange(200.0)
    for costs in (np.exp(-0.05 * places), np.floor(places / 20) % 2, np.exp(0.3 * (places // 30))):
        for beta in (0.049, 0.05, 0.051, 1e-3):
            histogram = np.arange(200) % 3
            found = sanitize.smooth_sensitivity(costs, histogram, beta)
            assert found == pytest.approx(smooth_by_definition(costs, histogram, beta, 1))


@pytest.mark.parametrize("order", [1.5, 2.5, 20.0])
def test_few_windows_are_looked_at_for_many_voters(order, monkeypatch):
    """A hundred thousand voters: the work is counted, not timed."""
    voters = 100_000
    costs = count_costs(pv.BinaryVoting(sigma=300.0), voters, order)
    histogram = np.bincount(
        np.random.default_rng(0).binomial(voters, np.linspace(0, 1, 3000)), minlength=voters + 1
    )
    looked = []
    original = sanitize.windowed_max
    monkeypatch.setattr(sanitize, "windowed_max", lambda *a: looked.append(a) or original(*a))
    beta = sanitize.default_beta(order)
    found = sanitize.smooth_sensitivity(costs, histogram, beta)
    assert len(looked) < 100
    # No distance of a sample, near the start or far, exceeds it.
    for d in (0, 1, 2, 3, 10, 30, 100, 300, 1000, 10_000):
        there = math.exp(-beta * d) * float(histogram @ sanitize.local_sensitivity(costs, d))
        assert there <= found * (1 + 1e-12)


def test_a_cost_that_underflows_has_no_sensitivity():
    costs, histogram = np.zeros(3000), np.zeros(3000, int)
    costs[1500], histogram[0] = 1.0, 5
    assert sanitize.smooth_sensitivity(costs, histogram, 5.0) == 0.0
    assert sanitize.smooth_sensitivity(costs, histogram, 0.4) == pytest.approx(
        5 * math.exp(-0.4 * 1499), rel=1e-9
    )


@pytest.mark.parametrize(
    ("mech", "voters", "cells", "reach"),
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
    mech, voters, cells, reach, order, share, gamma
):
    """Enumerate all small elections; compare the two published Gaussians of each pair."""
    make = count_costs if reach == 1 else margin_costs
    costs = make(mech, voters, order)
    levels, beta, sigma_s = len(costs), share * sanitize.largest_beta(order), 1.5
    price, z = sanitize.release_cost(order, beta, sigma_s, gamma), sanitize.z_value(gamma)
    known = {}
    for tally in itertools.product(range(levels), repeat=cells):
        histogram = np.bincount(tally, minlength=levels)
        known[tally] = (
            float(histogram @ costs),
            sanitize.smooth_sensitivity(costs, histogram, beta, reach),
        )
    worst = 0.0
    for tally, (f, scale) in known.items():
        for other in neighbours(tally, levels, reach):
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


@given(
    st.floats(1.1, 20), st.floats(0.01, 0.97), st.floats(0.2, 5), st.sampled_from([0.5, 0.05, 1e-5])
)
def test_no_ratio_of_scales_costs_more(order, share, sigma_s, gamma):
    """The maximum over |t| <= beta is at t = -beta, and is what integration finds there."""
    beta, z = share * sanitize.largest_beta(order), sanitize.z_value(gamma)
    price = sanitize.release_cost(order, beta, sigma_s, gamma)
    for t in np.linspace(-beta, beta, 41):
        assert sanitize._gaussian_cost(order, t, sigma_s, z) <= price * (1 + 1e-9) + 1e-12
    smaller = math.exp(-beta)
    apart = smaller * (1 + z * sigma_s * math.expm1(beta))
    found = gaussian_divergence(apart, sigma_s, 0.0, smaller * sigma_s, order)
    assert found == pytest.approx(price, rel=1e-6, abs=1e-9)


def test_the_correction_for_z_gamma_is_a_smaller_noise_in_the_mean_term():
    order, beta, sigma_s, gamma = 3.0, 0.1, 2.0, 0.05
    z = sanitize.z_value(gamma)
    effective = sigma_s / (1 + z * sigma_s * math.expm1(beta))
    expected = sanitize.release_cost(order, beta, effective)
    assert sanitize.release_cost(order, beta, sigma_s, gamma) == pytest.approx(expected)


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


def test_real_votes(tmc_votes, capsys):
    """462 queries at sigma=7: the sealed epsilon is about 20; what may be published is more."""
    mech, delta = pv.BinaryVoting(sigma=7.0), 1e-5
    orders = np.array([1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 4.0])
    tables = np.stack([count_costs(mech, 50, order) for order in orders])
    order = sanitize.public_order(tables, orders, 462 * 22, delta)
    costs = tables[list(orders).index(order)]
    histogram = np.bincount(tmc_votes[:462].sum(axis=1).ravel(), minlength=51)
    beta = sanitize.default_beta(order)
    f, scale = float(histogram @ costs), sanitize.smooth_sensitivity(costs, histogram, beta)
    price = sanitize.release_cost(order, beta, sanitize.SIGMA_S, sanitize.GAMMA)
    upper = sanitize.sanitized_upper(f, scale, sanitize.SIGMA_S, 0.0, sanitize.GAMMA)
    sealed = sanitize.statement_epsilon(f, 0.0, order, delta)
    stated = sanitize.statement_epsilon(upper, price, order, delta)
    print(f"order {order:g}: f {f:.3f}, S {scale:.3f}, price {price:.3f}")
    print(f"sealed epsilon {sealed:.2f}; published, at the median draw {stated:.2f}")
    assert (order, f) == (2.0, pytest.approx(10.483, abs=1e-3))
    assert scale == pytest.approx(1.544, abs=1e-3)
    assert price == pytest.approx(2.418, abs=1e-3)
    assert stated == pytest.approx(26.84, abs=1e-2)


def test_bad_arguments():
    with refused("beta"):
        sanitize.release_cost(5, 0.112, 1.0)
    with pytest.raises(InputError, match="below 1/2"):
        sanitize.published_cost_2018(5, 0.1, 1.0)
    with refused("gamma"):
        sanitize.z_value(0.6)
    with refused("order"):
        sanitize.release_cost(1.0, 0.1, 1.0)
    with refused("histogram"):
        sanitize.smooth_sensitivity([1.0, 2.0], [1, 2, 3], 0.1)
    with refused("costs"):
        sanitize.smooth_sensitivity([1.0, math.inf], [1, 2], 0.1)


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
