"""The published data-dependent bound of GNMax, kept to compare with.

Papernot et al. 2018, "Scalable Private Learning with PATE", Theorem 6 with Proposition 10. It
bounds one direction of the divergence only; privote's own bills never rest on it.
"""

from __future__ import annotations

import numpy as np

from .renyi import Floats


def _log1mexp(x: Floats) -> Floats:
    """Return log(1 - e^x) for x < 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > -0.693, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def theorem6(log_q: Floats, sigma: float, orders: Floats) -> Floats:
    """Return the bound on the cost when the likeliest outcome fails with probability at most q.

    Parameters
    ----------
    log_q
        (...,) log of the probability that the outcome is not the likeliest.
    sigma
        GNMax noise; the data-independent cost is order / sigma^2, the cap of the bound.
    orders
        (orders,)

    Returns
    -------
    (..., orders)
    """
    log_q = np.minimum(np.asarray(log_q, np.float64), 0.0)[..., None]
    variance = sigma * sigma
    # Proposition 10: the choice of the two auxiliary orders for Gaussian noise.
    mu2 = np.sqrt(variance * -log_q)
    mu1 = mu2 + 1
    cost1, cost2 = mu1 / variance, mu2 / variance
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        limit = (mu2 - 1) * cost2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1)))
        usable = (mu2 > 1) & (mu1 > orders) & (log_q <= limit) & (-log_q > cost2)
        log_1q = _log1mexp(log_q)
        log_a = log_1q - _log1mexp((log_q + cost2) * (1 - 1 / mu2))
        log_b = cost1 - log_q / (mu1 - 1)
        bound = np.logaddexp(log_1q + (orders - 1) * log_a, log_q + (orders - 1) * log_b) / (
            orders - 1
        )
    cap = np.broadcast_to(orders / variance, bound.shape)
    bound = np.where(np.isneginf(log_q), 0.0, bound)
    usable = usable | np.isneginf(log_q)
    return np.where(usable, np.minimum(np.maximum(bound, 0.0), cap), cap)
