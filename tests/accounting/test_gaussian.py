"""The Gaussian link: Phi as PATE has it, and where its bar stands."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from privote.accounting.gaussian import GaussianLink


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
