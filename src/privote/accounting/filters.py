"""Rényi filters: which charges a budget admits when they are chosen from what was released.

A filter stops a run whose charges follow the history before it leaves a budget. Its theorem
(Feldman and Zrnic 2021) needs one order, fixed in advance. "Admit whatever the best order of the
summed curve still allows" lets the settling order follow the history, too, and breaks the promise:
charges can be steered so that each branch settles where it looks cheapest. So a budget pins one
order when it is set, for good, and every charge counts by its cost at that order.

Equal charges whose number is fixed in advance, those of one run, may use all orders: the best one
for that number is the fixed one (:func:`fitting`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..errors import InputError
from .renyi import DEFAULT_ORDERS, Floats, epsilon_at, largest_curve

_NEAR = 5  # orders on either side of the likely one
_SPARE = 1e-10  # of what is left: more than rounding takes
_DIPS = 1e-9  # a curve of suprema rises with the order, up to rounding


@lru_cache(maxsize=1024)
def pinned_order(budget: float, delta: float) -> float:
    """Return the order at which a full budget of Gaussian-like charges settles, for any sigmas.

    Such curves are multiples of the order, so the best order a leaves the largest curve over a.
    """
    return float(
        DEFAULT_ORDERS[np.argmax(largest_curve(budget, DEFAULT_ORDERS, delta) / DEFAULT_ORDERS)]
    )


def likely_orders(budget: float, delta: float) -> Floats:
    """Return a few orders around the one where a full budget most likely settles, and the largest.

    The largest are where a few charges settle whose cost no longer rises with the order.

    For plans that ask prices again and again. Were the best order another, epsilon would be
    overstated, and never understated.
    """
    place = int(np.searchsorted(DEFAULT_ORDERS, pinned_order(budget, delta)))
    near = DEFAULT_ORDERS[max(0, place - _NEAR) : place + _NEAR + 1]
    return np.union1d(near, DEFAULT_ORDERS[-_NEAR:])


def largest_part(price: Callable[[float], float], room: float, most: float) -> float:
    """Return about the largest epsilon, up to ``most``, of a run that fits; 0 if none does.

    ``price`` is what a run of this epsilon costs at the pinned order, and rises with it. The number
    is rounded down to three digits, and was seen to fit.
    """

    def down(value: float) -> float:
        digits = 2 - math.floor(math.log10(value))
        return math.floor(value * 10.0**digits) / 10.0**digits

    low, high = most / 1000, most
    if price(low) > room:
        return 0.0
    while high > low * 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if price(middle) <= room else (low, middle)
    return down(low) if price(down(low)) <= room else 0.0


def check_charge(curve: Floats, orders: Floats = DEFAULT_ORDERS) -> Floats:
    """Return a curve that a budget can be charged with: finite, none negative, never falling.

    A Rényi divergence does not fall with its order; where rounding makes a curve dip, the larger
    value counts.
    """
    try:
        values, at = np.asarray(curve, np.float64), np.asarray(orders, np.float64)
    except (TypeError, ValueError):
        raise InputError("a charge must be a curve of numbers") from None
    if values.ndim != 1 or values.shape != at.shape or not len(at) or (np.diff(at) <= 0).any():
        rule = "a charge must have one value for each order, and orders must rise"
        raise InputError(f"{rule}; got shapes {values.shape} and {at.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        bad = values[~(np.isfinite(values) & (values >= 0))][0]
        raise InputError(f"a charge must be finite and not negative at every order, got {bad:g}")
    highest = np.maximum.accumulate(values)
    if (values < highest * (1 - _DIPS)).any():
        raise InputError("a charge must not decrease with the order: this is not a Rényi curve")
    return highest


def fitting(curve: Floats, epsilon: float, delta: float, most: int) -> int:
    """Return how many equal charges, up to ``most``, keep within epsilon at the best order.

    Parameters
    ----------
    curve
        What one charge costs at each of the default orders: (orders,).
    """
    cost, orders = check_charge(curve), DEFAULT_ORDERS

    def exceeds(times: int) -> bool:
        return epsilon_at(times * cost, orders, delta)[0] > epsilon

    # What the orders say, one by one; only rounding can make that differ from the epsilon.
    room, free = largest_curve(epsilon, orders, delta), cost == 0
    with np.errstate(over="ignore"):
        times = room / np.where(free, 1.0, cost)
    times = np.where(free, np.where(room >= 0, np.inf, -1.0), times)
    high = int(min(most, max(0.0, math.floor(min(most, times.max())) + 1)))
    low = max(0, high - 2)
    if low and exceeds(low):
        low, high = 0, low - 1
    return low + bisect_left(range(low + 1, high + 1), True, key=exceeds)


@dataclass(frozen=True)
class RenyiFilter:
    """What a budget admits at its pinned order; ``spent`` is what was charged there so far."""

    budget: float
    delta: float
    order: float

    def epsilon(self, spent: float) -> float:
        """Return the epsilon of all that was spent; above 0 even where that is nothing."""
        return epsilon_at(np.array([spent]), np.array([self.order]), self.delta)[0]

    def admits(self, spent: float, cost: float) -> bool:
        """Return whether a further cost keeps within the budget."""
        return self.epsilon(spent + cost) <= self.budget

    @property
    def capacity(self) -> float:
        """How much an empty budget admits."""
        return float(largest_curve(self.budget, np.array([self.order]), self.delta)[0])

    def room(self, spent: float) -> float:
        """Return how much more it admits; a little less, so that rounding cannot exceed it."""
        return max(0.0, (self.capacity - spent) * (1 - _SPARE))

    def fitting(self, spent: float, cost: float, most: int) -> int:
        """Return how many further costs, up to ``most``, it admits."""

        def exceeds(times: int) -> bool:
            return not self.admits(spent, times * cost)

        return bisect_left(range(1, most + 1), True, key=exceeds)
