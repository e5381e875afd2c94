"""The published data-dependent bound of GNMax, kept to compare with.

Papernot et al. 2018, "Scalable Private Learning with PATE", Theorem 6 with Proposition 10. It
bounds one direction of the divergence only; privote's own bills never rest on it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import erfc, erfcinv

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


def _open_price(minus_log_q: float, sigma: float, order: float) -> float:
    """Return Theorem 6's bound for one query, without its cap and conditions."""
    mu2 = sigma * math.sqrt(minus_log_q)
    cost1, cost2 = (mu2 + 1) / sigma**2, mu2 / sigma**2
    log_1q = math.log1p(-math.exp(-minus_log_q))
    log_a = log_1q - math.log1p(-math.exp((cost2 - minus_log_q) * (1 - 1 / mu2)))
    log_b = cost1 + minus_log_q / mu2
    return float(
        np.logaddexp(log_1q + (order - 1) * log_a, (order - 1) * log_b - minus_log_q) / (order - 1)
    )


def crossover(sigma: float, order: float) -> float:
    """Return -log q0: with less certainty than this Theorem 6 has no effect.

    Raises ``ValueError`` where it never has any.
    """
    grid = np.geomspace(1e-2, 5e3, 4000)
    cap = order / sigma**2
    helps = theorem6(-grid, sigma, np.array([order]))[:, 0] < cap
    if not helps.any():
        raise ValueError(f"Theorem 6 never helps at sigma={sigma:g}, order={order:g}")
    first = int(np.argmax(helps))
    low, high = float(grid[max(first - 1, 0)]), float(grid[first])
    for _ in range(60):
        middle = (low + high) / 2
        price = theorem6(np.array(-middle), sigma, np.array([order]))[0]
        low, high = (low, middle) if price < cap else (middle, high)
    return high


def local_sensitivity(counts: npt.ArrayLike, voters: int, sigma: float, order: float) -> Floats:
    """Return PATE 2018's bound on how much Theorem 6's cost can change, by distance: (voters,).

    Appendix B.4, Algorithms 3 to 5: with q the chance of another outcome than the likeliest, one
    vote moves q at most to B_U(q) or B_L(q); between B_L(q0) and q0 the sensitivity is at its
    plateau, and d votes are spent on walking there.
    """
    tally = np.sort(np.asarray(counts, np.float64))[::-1]
    others, cap = len(tally) - 1, order / sigma**2
    # Where the bound is known to hold; then where it meets the cap.
    certain = max((1 + 1 / sigma) ** 2, ((order - 0.99) / sigma) ** 2, 1 / sigma**2)
    edge = certain
    if _open_price(certain, sigma, order) > cap:
        far = 2 * certain
        while _open_price(far, sigma, order) > cap:
            far *= 1.5
        # Imported here: it takes a tenth of a second, and nothing else needs it.
        from scipy.optimize import brentq

        edge = float(brentq(lambda x: _open_price(x, sigma, order) - cap, certain, far))

    def price(q: float) -> float:
        # q0 itself, however rounded on the way back from B_L(q0), costs the cap.
        at_cap = q >= math.exp(-edge) * (1 - 1e-9)
        return cap if at_cap else _open_price(-math.log(q), sigma, order)

    def moved(q: float, votes: int) -> float:
        return float(min(1.0, others / 2 * erfc(erfcinv(2 * q / others) - votes / sigma)))

    def failing(at: Floats) -> float:
        return float(erfc((at[0] - at[1:]) / (2 * sigma)).sum() / 2)

    top = math.exp(-edge)
    plateau_from = moved(top, -1)

    def change(q: float) -> float:
        q = plateau_from if plateau_from <= q <= top else q
        here = price(q)
        return max(price(moved(q, 1)) - here, here - price(moved(q, -1)))

    result = np.full(voters, change(plateau_from))
    q = failing(tally)
    if plateau_from <= q <= top:
        return result
    outwards = q > top  # towards more agreement; else towards less
    result[0] = change(q)
    for distance in range(1, voters):
        if (q <= top or tally[1] <= 0) if outwards else q >= plateau_from:
            break
        step = 1 if outwards else -1
        tally[0], tally[1] = tally[0] + step, tally[1] - step
        tally[1:] = np.sort(tally[1:])[::-1]
        q = failing(tally)
        result[distance] = change(q)
    return result
