"""Counts: how far one ballot moves them, what noise on them costs, how far it reaches.

Neighbours are two elections of as many voters in which one ballot differs. Counts are integers, so
is their noise, the rounded Gaussian: the Gaussian, then post-processing, so that all that holds for
the Gaussian holds for it, also its own (epsilon, delta) curve.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp, ndtr

from ..errors import positive
from .renyi import Floats

_REACH = 12.0  # standard deviations: beyond lies less than e^-72
_STEPS = 513
_WIDE = 30.0  # sigmas above have the Gaussian's line for a price
_NARROW = 1e-3  # ranges below: the cap is exact to the digits that the search would keep


def squared_shift(options: int, most: int, each: int = 1) -> int:
    """Return the largest squared length by which one replaced ballot moves the counts.

    A ballot gives each option 0 to ``each`` points and ``most`` in all. The length is convex in
    either ballot, so it is largest at corners: options in full, and one with what remains. Two
    ballots do best on options of their own: as many in full as there are, then remainders.

    Approvals (``each`` = 1) give min(2 most, options); 3 points each and 7 in all give 38.
    """
    most = min(most, each * options)
    full, rest = divmod(most, each)
    whole = min(2 * full, options)
    return each**2 * whole + rest**2 * min(2, options - whole)


def bounded_range_rdp(width: float, orders: Floats) -> Floats:
    """Return the largest Rényi divergence of two distributions whose log-ratio has this range.

    The log-ratio of an exponential mechanism's outcomes between neighbours lies in an interval
    [t - width, t] (Durfee and Rogers 2019). E[e^(order L)] is convex in L and E[e^L] = 1 is given,
    so only the two ends occur in the worst case; t is searched. It is below order width^2 / 8
    (Cesar and Rogers 2021), which also caps what is left of the search's error.
    """
    width = positive("width", width)
    cap = np.minimum(orders * width**2 / 8, width)
    if width < _NARROW:
        return cap
    low, high = np.full(len(orders), 0.0), np.full(len(orders), width)
    best = np.zeros(len(orders))
    for _ in range(3):
        top = low + (high - low) * np.linspace(0, 1, _STEPS)[:, None]
        costs = _two_point(top, width, orders)
        peak = costs.argmax(axis=0)[None]
        best = np.maximum(best, costs.max(axis=0))
        low = np.take_along_axis(top, np.maximum(peak - 1, 0), axis=0)[0]
        high = np.take_along_axis(top, np.minimum(peak + 1, _STEPS - 1), axis=0)[0]
    return np.minimum(best * (1 + 1e-9), cap)


def _two_point(top: Floats, width: float, orders: Floats) -> Floats:
    """Return D_a where the log-ratio is ``top`` or ``top - width``: (tops, orders)."""
    low = top - width
    with np.errstate(divide="ignore"):
        # Probability of the upper end, such that the ratios' mean is 1.
        log_up = np.log(-np.expm1(low)) - top - math.log(-math.expm1(-width))
        log_down = np.log(np.expm1(top)) - top - math.log(-math.expm1(-width))
    moments = np.logaddexp(log_up + orders * top, log_down + orders * low)
    return np.asarray(np.maximum(moments, 0.0) / (orders - 1))


@dataclass(frozen=True)
class RoundedGaussian:
    """Integer noise round(sigma Z) with Pr[N = x] = Phi((x+1/2)/sigma) - Phi((x-1/2)/sigma)."""

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))

    def log_pmf(self, x: npt.ArrayLike) -> Floats:
        """Return log Pr[N = x] for integers x, however far out."""
        size = np.abs(np.asarray(x, np.float64))
        near, far = log_ndtr((0.5 - size) / self.sigma), log_ndtr((-0.5 - size) / self.sigma)
        with np.errstate(divide="ignore"):
            return np.asarray(near + np.log(-np.expm1(far - near)))

    @property
    def reach(self) -> int:
        """Beyond this the noise is never seen: the probability is below e^-72."""
        return math.ceil(_REACH * self.sigma) + 1

    def above(self, x: npt.ArrayLike) -> Floats:
        """Return Pr[N > x] for real x."""
        return np.asarray(ndtr(-(np.floor(np.asarray(x, np.float64)) + 0.5) / self.sigma))

    def at_most(self, x: npt.ArrayLike) -> Floats:
        """Return Pr[N <= x] for real x: exact also where it is small."""
        return np.asarray(ndtr((np.floor(np.asarray(x, np.float64)) + 0.5) / self.sigma))

    def within(self, options: int, confidence: float) -> int:
        """Return the least h such that all of so many noises lie in -h..h with this chance."""
        return self._least(lambda h: float((1 - 2 * self.above(h)) ** options), confidence)

    def apart(self, options: int, confidence: float) -> int:
        """Return the least g such that no two of so many noises are further apart than g."""
        if options == 1:
            return 0
        step = max(1, int(self.sigma / 50))  # a wider step only makes the chance smaller
        lowest = np.arange(-self.reach, self.reach + 1, step)

        def chance(g: int) -> float:
            # The least noise lies in [x, x + step): all in [x, x + g], not all in [x + step, x + g]
            inside = self.at_most(lowest + g) - self.at_most(lowest - 1)
            later = np.maximum(self.at_most(lowest + g) - self.at_most(lowest + step - 1), 0.0)
            return float((inside**options - later**options).sum())

        return self._least(chance, confidence)

    def _least(self, chance: Callable[[int], float], confidence: float) -> int:
        return bisect_left(range(2 * self.reach), True, key=lambda h: chance(h) >= confidence)

    def gaussian_rdp(self, squared_shift: float, orders: Floats) -> Floats:
        """Return what counts that move by this squared length cost at most: (orders,).

        Mironov 2017, Proposition 7: order x squared shift / (2 sigma^2), a line in the order.
        """
        return orders * (squared_shift / (2 * self.sigma**2))

    def rdp(self, shift: int, orders: Floats) -> Floats:
        """Return the divergence of one count that moves by so much: (orders,), both directions.

        Summed around the place where the terms of each order are largest. Noise is wide where the
        Gaussian's line is right to 1e-4 of itself, and is returned.
        """
        line = self.gaussian_rdp(float(shift) ** 2, orders)
        if shift == 0 or self.sigma > _WIDE:
            return line
        reach = math.ceil(40 * self.sigma + 2 * shift) + 4
        x = np.rint(orders[:, None] * shift) + np.arange(-reach, reach + 1)
        here, there = self.log_pmf(x - shift), self.log_pmf(x)
        terms = orders[:, None] * here - (orders[:, None] - 1) * there
        cost = np.maximum(logsumexp(terms, axis=1), 0.0) / (orders - 1)
        return np.minimum(cost, line)
