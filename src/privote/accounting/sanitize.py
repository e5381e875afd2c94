"""Publishing a data-dependent cost: noise scaled to its smooth sensitivity, and what that costs.

The total exact cost f of a batch depends on the votes, so it is sealed. What may leave is
f + S sigma_s (Z + z_gamma): S bounds smoothly how much f can differ between neighbours (Nissim,
Raskhodnikova and Smith 2007, Definition 2.2), Z is a standard normal drawn by the caller, and
z_gamma makes the number an upper bound on f with probability 1 - gamma. All at one order; sigma_s,
beta, gamma and the order are public and chosen before looking.

PATE 2018 (Papernot et al., Appendix B) has the idea; its Theorem 23 understates the price near the
end of its range. The price here is the exact divergence of the two Gaussians.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..errors import InputError, positive
from .renyi import Floats, Orders, best_order, check_delta, epsilon

#: Public defaults: the share of cells on which voters are expected to disagree, the chance that a
#: published number is too small, the noise, and beta as a share of the largest one.
UNSURE, GAMMA, SIGMA_S, BETA_SHARE = 0.2, 0.05, 1.5, 0.6

_PARTS = 1000  # a published number has three decimals


def windowed_max(values: Floats, radius: int) -> Floats:
    """Return the largest value within ``radius`` places of each place: same shape."""
    values = np.asarray(values, np.float64)
    radius = min(radius, len(values) - 1)
    best = values.copy()
    span = 0
    # A window is two overlapping half-size windows, so it doubles at each pass.
    while span < radius:
        step = min(span + 1, radius - span)
        wider = best.copy()
        wider[step:] = np.maximum(wider[step:], best[:-step])
        wider[:-step] = np.maximum(wider[:-step], best[step:])
        best, span = wider, span + step
    return best


def smooth_sensitivity(
    costs: npt.ArrayLike, histogram: npt.ArrayLike, beta: float, max_shift: int = 1
) -> float:
    """Return S = max over d of e^{-beta d} * sum over cells of the local sensitivity at distance d.

    That is how much a cell's cost can change by one more ballot after d have changed: max over
    |c' - c| <= d * max_shift of max over |c'' - c'| <= max_shift of |cost(c'') - cost(c')|.

    One changed ballot moves every cell by at most ``max_shift`` levels, so the sum at distance d is
    at most a neighbour's at d + 1: S(X) <= e^beta S(X') (Nissim et al. 2007, Definition 2.2), and
    |f(X) - f(X')| <= min(S(X), S(X')). Proved for costs that are a table by cell, as of
    mechanisms that count single votes; others need their own proof.

    Parameters
    ----------
    costs, histogram
        (levels,) two-sided cost of a cell, and number of cells, at each level: counts 0..n, or
        margins -n..n where votes can be missing.
    max_shift
        Levels that one ballot can move a cell by: 1 for counts, 2 for margins.
    beta
        Public and positive.
    """
    table, cells = np.asarray(costs, np.float64), np.asarray(histogram)
    if not np.isfinite(table).all():
        raise InputError("costs", "must be finite")
    # How much a cell's cost can change by one more ballot: the largest difference to a place within
    # max_shift is one to the window's top or bottom.
    change = np.maximum(
        windowed_max(table, max_shift) - table, table + windowed_max(-table, max_shift)
    )
    seen = np.flatnonzero(cells)
    furthest = -(-(len(table) - 1) // max_shift)  # from here on the window is the whole table

    def total(distance: int) -> float:
        return float(cells[seen] @ windowed_max(change, distance * max_shift)[seen])

    last = total(furthest)
    best = max(total(0), math.exp(-beta * furthest) * last)
    # The sums do not fall with d, so within (low, high) nothing exceeds e^(-beta (low + 1)) times
    # the sum at high. Stretches are halved until none can exceed the best seen, the nearest first:
    # the result is the maximum over all d, of which few are looked at.
    stretches = [(0, furthest, last)]
    while stretches:
        low, high, above = stretches.pop()
        if high - low < 2 or math.exp(-beta * (low + 1)) * above <= best:
            continue
        middle = (low + high) // 2
        here = total(middle)
        best = max(best, math.exp(-beta * middle) * here)
        stretches += [(middle, high, above), (low, middle, here)]
    return best


def z_value(gamma: float) -> float:
    """Return z with Pr[Z > z] = gamma for a standard normal Z."""
    if not 0 < check_delta(gamma) <= 0.5:
        raise InputError("gamma", "must lie in (0, 1/2]", gamma)
    return max(0.0, -float(ndtri(gamma)))


def largest_beta(order: float) -> float:
    """Return the beta at and above which the release has no finite cost at this order."""
    return 0.5 * math.log1p(1 / (_order(order) - 1))


def default_beta(order: float) -> float:
    """Return a beta that balances a small S against a small :func:`release_cost`."""
    return BETA_SHARE * largest_beta(order)


def public_order(
    costs: npt.ArrayLike, orders: Orders, cells: int, delta: float, unsure: float = UNSURE
) -> float:
    """Return the order at which ``cells`` cells of a made-up electorate have the least epsilon.

    It sees no vote: all voters agree, except in a share ``unsure`` of the cells, where any count is
    as likely as any other.

    Parameters
    ----------
    costs
        (orders, levels) cost of a cell at each order and level.
    """
    table = np.asarray(costs, np.float64)
    agreed = np.maximum(table[..., 0], table[..., -1])
    return best_order(cells * ((1 - unsure) * agreed + unsure * table.mean(axis=-1)), orders, delta)


def _order(order: float) -> float:
    if not positive("order", order) > 1:
        raise InputError("order", "must be above 1", order)
    return float(order)


def release_cost(order: float, beta: float, sigma_s: float, gamma: float = 0.5) -> float:
    """Return what publishing f + S sigma_s (Z + z_gamma) costs at ``order``.

    Between neighbours the scales differ by a factor e^t, |t| <= beta, and the means by at most
    min(S, S') (1 + z_gamma sigma_s (e^|t| - 1)): the second part is the shift of z_gamma itself.
    The divergence of N(m, s^2) from N(m', s'^2) is (Gil, Alajaji and Linder 2013, Table 2)

        order (m - m')^2 / (2 w) + log(s'^order s^(1-order) / sqrt(w)) / (order - 1),
        w = order s'^2 + (1 - order) s^2,

    which is largest where the second scale is the smaller by all of e^beta (t = -beta; the proof
    is in docs/accounting.md).

    Parameters
    ----------
    order, beta, sigma_s
        Public. 1 - order + order e^(-2 beta) must be positive: beta below :func:`largest_beta`.
    gamma
        The chance that the number is below f. At 1/2 nothing is added (z_gamma = 0).
    """
    order, beta, sigma_s = _order(order), positive("beta", beta), positive("sigma_s", sigma_s)
    # 1 - order + order e^{-2 beta}, rounded down: near 0 the cost is its inverse.
    spread = 1 + order * math.expm1(-2 * beta) - 4 * order * sys.float_info.epsilon
    if spread <= 0:
        rule = f"must be below {largest_beta(order):.6g} at order {order:g}"
        raise InputError("beta", rule, beta)
    shift = (1 + z_value(gamma) * sigma_s * math.expm1(beta)) / sigma_s
    mean = order * min(1.0, math.exp(-2 * beta)) * shift**2 / (2 * spread)
    return mean + (order * -beta - 0.5 * math.log(spread)) / (order - 1)


def sanitized_upper(f: float, sensitivity: float, sigma_s: float, z: float, gamma: float) -> float:
    """Return the number that may be published: f + S sigma_s (z + z_gamma), rounded up.

    Rounding to thousandths hides the last bits of a floating-point sum, which would tell more about
    f than its leading digits do (Mironov 2012).

    Parameters
    ----------
    f, sensitivity
        Sealed: the total exact cost at the public order, and its :func:`smooth_sensitivity`.
    sigma_s, gamma
        Public, as given to :func:`release_cost`.
    z
        A standard normal, drawn by the caller from secure randomness, used once.
    """
    upper = f + sensitivity * positive("sigma_s", sigma_s) * (z + z_value(gamma))
    # Rounding and cutting are post-processing; neither makes an upper bound on a cost too small.
    # The least is one part, not 0: whether a tiny cost underflowed must not show.
    return max(1, math.ceil(upper * _PARTS)) / _PARTS


def statement_epsilon(upper: float, cost: float, order: float, delta: float) -> float:
    """Return the epsilon to state for labels and published number together, at one public order.

    "With probability 1 - gamma, these labels and this number are (epsilon, delta)-close to those of
    every neighbour of these votes." A statement about these votes, not differential privacy.
    """
    return float(epsilon(np.array([upper + cost]), [_order(order)], delta))


def published_cost_2018(order: float, beta: float, sigma_s: float) -> float:
    """Return PATE 2018's Theorem 23 as published and coded in public, only to compare with.

    order e^{2 beta}/sigma_s^2 + (beta order - log(1 - 2 order beta)/2)/(order - 1). At order 5,
    beta=.099, sigma_s=1 it says 6.79 where the truth is 20.30: do not charge it.
    """
    order, beta, sigma_s = _order(order), positive("beta", beta), positive("sigma_s", sigma_s)
    if not 2 * order * beta < 1:
        raise InputError(f"Theorem 23 needs order * beta below 1/2, got {order * beta:g}")
    first = order * math.exp(2 * beta) / sigma_s**2
    return first + (beta * order - 0.5 * math.log1p(-2 * order * beta)) / (order - 1)
