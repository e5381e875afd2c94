"""The Gaussian mechanism's exact epsilon, for whatever is computed from Gaussian noise alone.

Every mechanism here that adds Gaussian noise to counts and releases what follows from them is at
most as telling as the noisy counts, so the Gaussian bound holds for it, gate and clipping included.
Between neighbours the counts move by a vector whose squared length adds up over queries, chosen
adaptively or not (Dong, Roth and Su 2022, Corollary 3.3), and the length alone gives epsilon.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr

from privote.accounting.renyi import Orders, check_delta, check_orders
from privote.errors import InputError, positive


def shift_of(rdp: npt.ArrayLike, orders: Orders) -> float:
    """Return the length of the shift, in units of the noise, behind a Gaussian curve.

    A shift of length m costs order m^2 / 2 at every order; so m = sqrt(2 rdp / order), the largest
    over the orders where a curve is a bound only.

    Parameters
    ----------
    rdp
        (orders,): ``mechanism.worst_case_rdp(voters, labels, orders, bound="gaussian")``.
    """
    curve, orders = np.asarray(rdp, np.float64), check_orders(orders)
    if curve.shape != orders.shape or not (curve >= 0).all():
        raise InputError(
            "rdp",
            f"must be one curve of {len(orders)} costs of at least 0, got shape {curve.shape}",
        )
    return math.sqrt(2 * float((curve / orders).max()))


def analytic_gaussian(ratio: float, delta: float) -> float:
    """Return the exact epsilon of a Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    delta = Phi(m/2 - e/m) - e^e Phi(-m/2 - e/m), solved for e, with m = ``ratio`` = shift / noise.

    Parameters
    ----------
    ratio
        Length of the shift over the standard deviation of each noise. With ``sigma`` on every
        count as everywhere here, a label whose vote flips moves two counts: sqrt(2) / sigma; v
        such labels: sqrt(2 v) / sigma.
    delta
        Strictly between 0 and 1.
    """
    delta = check_delta(delta)
    if ratio == 0:
        return 0.0
    ratio = positive("ratio", ratio)

    def log_excess(eps: float) -> float:
        first = float(log_ndtr(ratio / 2 - eps / ratio))
        second = eps + float(log_ndtr(-ratio / 2 - eps / ratio))
        if second >= first:
            return -math.inf  # they agree to rounding: far below any delta
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    if log_excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while log_excess(high) > 0:
        high *= 2
    root = float(brentq(lambda e: max(log_excess(e), -1e3), 0.0, high, xtol=1e-12, rtol=1e-13))
    while log_excess(root) > 0:  # brentq may stop on either side of the root
        root = root * (1 + 1e-12) + 1e-12
    return root


def largest_count(shift: float, budget: float, delta: float) -> int:
    """Return how many queries, each a shift of this length, an epsilon of ``budget`` allows."""
    shift, budget = positive("shift", shift), positive("budget", budget)
    low, high = 0, 1
    while analytic_gaussian(shift * math.sqrt(high), delta) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = analytic_gaussian(shift * math.sqrt(middle), delta) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return low
