"""Links: Phi as PATE has it, and the optimal one: as decisive as its cost allows, no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ive
from scipy.stats import norm, poisson
from tests.refusals import refused

from privote.accounting.renyi import two_sided
from privote.links import GaussianLink, OptimalLink, SkellamLink, skellam_table


def test_gaussian_link_is_two_noises_on_two_counts() -> None:
    margins = np.arange(-10, 11)
    log_p = GaussianLink(sigma=3.0).log_probs(margins, 10)
    np.testing.assert_allclose(np.exp(log_p[:, 1]), norm.cdf(margins / (np.sqrt(2) * 3.0)))
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0)


def test_bar_by_quota_and_by_false_alarm() -> None:
    counts = np.arange(0, 41)
    log_p = GaussianLink(sigma=2.0, quota=0.3).log_probs(2 * counts - 40, 40)
    np.testing.assert_allclose(np.exp(log_p[:, 1]), norm.cdf(np.sqrt(2) * (counts - 12) / 2.0))
    alarm = GaussianLink(sigma=2.0, false_alarm=0.05)
    assert np.exp(alarm.log_probs(np.array(-40), 40)[1]) == pytest.approx(0.05)


@given(cost=st.floats(1e-3, 2.0), order=st.floats(1.2, 20.0), voters=st.integers(1, 40))
def test_optimal_link_costs_what_it_says(cost: float, order: float, voters: int) -> None:
    link = OptimalLink(cost=cost, order=order)
    margins = np.arange(-voters, voters + 1)
    log_p = link.log_probs(margins, voters)
    np.testing.assert_allclose(log_p[:, 1], log_p[::-1, 0], rtol=1e-12)  # symmetric
    assert (np.diff(log_p[:, 1]) >= 0).all()  # a yes more never makes a 1 less likely
    whole = two_sided(log_p[:-2], log_p[2:], np.array([order]))
    assert (whole <= cost * (1 + 1e-6) + 1e-12).all()
    half = two_sided(log_p[:-1], log_p[1:], np.array([order]))
    assert (half <= cost * (1 + 1e-6) + 1e-12).all()
    # Where the probabilities have not yet reached the floor, each step uses all of the cost.
    inner = log_p[:-2].min(axis=1) > -30
    inner &= log_p[2:].min(axis=1) > -30
    np.testing.assert_allclose(whole[inner, 0], cost, rtol=1e-4)


@pytest.mark.parametrize("mean", [0.01, 0.7, 5.0, 64.0, 4000.0])
def test_skellam_is_a_difference_of_poissons(mean: float) -> None:
    """Against the pmf of two Poissons, convolved; and deep in the tail against Bessel functions."""
    table = np.exp(skellam_table(mean, 500))
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    counts = np.arange(int(mean + 12 * mean**0.5 + 40))
    each = poisson.pmf(counts, mean)
    pmf = np.convolve(each, each[::-1])
    values = np.arange(-counts[-1], counts[-1] + 1)
    for at in (-30, -3, -1, 0, 1, 2, 45):
        wanted = pmf[values >= -at].sum()
        assert table[500 + at, 1] == pytest.approx(wanted, rel=1e-9, abs=1e-13)
    if mean >= 0.7:
        k = np.arange(1, 60)
        found = np.diff(table[500 - k[-1] : 501, 1])[::-1]  # Pr[S = k - 1]
        np.testing.assert_allclose(found, ive(k - 1, 2 * mean), rtol=1e-6)


def test_shares_of_noise_carry_the_stated_sigma_without_one_of_them() -> None:
    """Variance 2 sigma^2 on the margin: PATE's two counts with N(0, sigma^2) each."""
    link = SkellamLink(sigma=7.0, steps=10, known=1)
    for voters in (2, 3, 50):
        assert 2 * link.unknown(voters) / link.steps**2 == pytest.approx(2 * 7.0**2)
        margins = np.arange(-60, 61)
        gauss = GaussianLink(sigma=7.0).log_probs(margins, voters)
        np.testing.assert_allclose(
            np.exp(link.log_probs(margins, voters)), np.exp(gauss), atol=0.003
        )
    with refused("known"):
        SkellamLink(sigma=7.0, known=3).log_probs(margins, 3)
    with refused(None):
        link.log_probs(margins / 2, 3)


def test_an_optimal_link_goes_on_beyond_the_voters() -> None:
    link = OptimalLink(cost=0.2, order=3.0)
    near, far = link.log_probs(np.arange(-9, 10), 9), link.log_probs(np.arange(-90, 91), 9)
    np.testing.assert_array_equal(near, far[81:100])
    assert (np.diff(far[:, 1]) >= 0).all()
    for shift in (1, 2):
        assert two_sided(far[shift:], far[:-shift], np.array([3.0])).max() <= 0.2 * (1 + 1e-9)
