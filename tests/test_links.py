"""Links: Phi as PATE has it, and the optimal one: as decisive as its cost allows, no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privote.accounting.renyi import two_sided
from privote.errors import InputError
from privote.links import GaussianLink, OptimalLink


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


def test_optimal_link_takes_whole_votes_only() -> None:
    with pytest.raises(InputError, match="whole votes only"):
        OptimalLink(cost=0.1, order=2.0).log_probs(np.array([0.5]), 3)
