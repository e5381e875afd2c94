"""Rényi filters: which charges a budget admits when they are chosen from what was released.

A filter stops a run whose charges follow the history before it leaves a budget. Its theorem
(Feldman and Zrnic 2021) needs one order, fixed in advance. "Admit whatever the best order of the
summed curve still allows" lets the settling order follow the history, too, and breaks the promise:
charges can be steered so that each branch settles where it looks cheapest. So a budget has a rule,
fixed with it, for good:

- *Shared* by mechanisms of any kind: one order is pinned.
- *Exclusive* to one curve: every charge is a multiple of the first. Then what fits is a number
  of multiples, known from the first charge on, and all orders may be used: the best one for that
  number is the fixed one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from ..errors import BudgetError, InputError
from .renyi import DEFAULT_ORDERS, Floats, epsilon_at, largest_curve

# Curves that were worked out twice are multiples of each other up to rounding. What is counted is
# the larger multiple, so the tolerance decides what is refused and never what is promised.
_PROPORTIONAL = 1e-6
_NEAR = 5  # orders on either side of the likely one
_SPARE = 1e-10  # of what is left: more than rounding takes
_DIPS = 1e-9  # a curve of suprema rises with the order, up to rounding


def pinned_order(budget: float, delta: float, orders: Floats = DEFAULT_ORDERS) -> float:
    """Return the order at which a full budget of Gaussian-like charges settles, for any sigmas.

    Such curves are multiples of the order, so the best order a leaves the largest curve over a.
    """
    return float(orders[np.argmax(largest_curve(budget, orders, delta) / orders)])


def likely_orders(budget: float, delta: float) -> Floats:
    """Return a few orders around the one where a full budget most likely settles, and the largest.

    The largest are where a few charges settle whose cost no longer rises with the order.

    For plans that ask prices again and again. Were the best order another, epsilon would be
    overstated, and never understated.
    """
    place = int(np.searchsorted(DEFAULT_ORDERS, pinned_order(budget, delta)))
    near = DEFAULT_ORDERS[max(0, place - _NEAR) : place + _NEAR + 1]
    return np.union1d(near, DEFAULT_ORDERS[-_NEAR:])


def check_charge(curve: Floats, orders: Floats) -> Floats:
    """Return a curve that a budget can be charged with: finite, none negative, never falling.

    A Rényi divergence does not fall with its order; where rounding makes a curve dip, the larger
    value counts.
    """
    try:
        values, at = np.asarray(curve, np.float64), np.asarray(orders, np.float64)
    except (TypeError, ValueError):
        raise InputError("a charge must be a curve of numbers") from None
    if values.ndim != 1 or values.shape != at.shape or not len(at) or (np.diff(at) <= 0).any():
        raise InputError(
            "a charge must have one value for each order, and orders must rise; got shapes "
            f"{values.shape} and {at.shape}"
        )
    if not (np.isfinite(values).all() and (values >= 0).all()):
        bad = values[~(np.isfinite(values) & (values >= 0))][0]
        raise InputError(f"a charge must be finite and not negative at every order, got {bad:g}")
    highest = np.maximum.accumulate(values)
    if (values < highest * (1 - _DIPS)).any():
        raise InputError("a charge must not decrease with the order: this is not a Rényi curve")
    return highest


@dataclass
class RenyiFilter:
    """What was charged against one budget, and what it still admits.

    Attributes
    ----------
    budget, delta
        The promise.
    pinned
        The order of a shared budget; None if it is exclusive to the first curve.
    orders
        The orders of every curve that is charged: (orders,).
    """

    budget: float
    delta: float
    pinned: float | None
    orders: Floats
    _unit: Floats | None = field(default=None, repr=False)
    _times: float = field(default=0.0, repr=False)

    def add(self, curve: Floats) -> None:
        """Count a charge."""
        curve = check_charge(curve, self.orders)
        if self.pinned is None:
            self._times += self._multiple(curve)
            if self._unit is None:
                self._unit = curve
        else:
            self._unit = curve if self._unit is None else self._unit + curve

    def epsilon(self, times: int = 0, each: Floats | None = None) -> float:
        """Return the epsilon of all charges, and of so many more at this cost each."""
        if each is None:
            each = np.zeros(len(self.orders))
        if self.pinned is None:
            unit = each if self._unit is None else self._unit
            more = times * (1.0 if self._unit is None else self._multiple(each))
            return epsilon_at((self._times + more) * unit, self.orders, self.delta)[0]
        total = times * each if self._unit is None else self._unit + times * each
        at = self._places()
        return epsilon_at(total[at], self.orders[at], self.delta)[0]

    def slope(self) -> float:
        """Return the largest rho so that a Gaussian-like curve, rho times the order, still fits."""
        at, left = self._left()
        # A little less: what is worked out again from the sum must not exceed the budget.
        return max(0.0, float((left / self.orders[at]).max()) * (1 - _SPARE))

    def fitting(self, each: Floats, most: int) -> int:
        """Return how many costs ``each``, up to ``most``, still fit."""
        each = check_charge(each, self.orders)
        # What the orders say, one by one; only rounding can make that differ from the epsilon.
        at, left = self._left()
        cost = each[at]
        if self.pinned is None and self._unit is not None:
            cost = self._multiple(each) * self._unit
        free = cost == 0
        with np.errstate(over="ignore"):
            fit = left / np.where(free, 1.0, cost)
        fit = np.where(free, np.where(left >= 0, np.inf, -1.0), fit)
        high = int(min(most, max(0.0, math.floor(min(most, fit.max())) + 1)))
        low = max(0, high - 2)
        if low and self.epsilon(low, each) > self.budget:
            low, high = 0, low - 1
        more = range(low + 1, high + 1)
        return low + bisect_left(more, True, key=lambda m: self.epsilon(m, each) > self.budget)

    def _left(self) -> tuple[list[int], Floats]:
        """Return the places of the orders that count, and what is left there."""
        at = self._places()
        used = np.zeros(len(self.orders)) if self._unit is None else self._unit
        if self.pinned is None:
            used = self._times * used
        return at, largest_curve(self.budget, self.orders[at], self.delta) - used[at]

    def _places(self) -> list[int]:
        """Return where the orders that count stand among the curve's."""
        if self.pinned is None:
            return [*range(len(self.orders))]
        place = int(np.searchsorted(self.orders, self.pinned))
        if place == len(self.orders) or self.orders[place] != self.pinned:
            raise InputError("orders", f"must include {self.pinned:g}, the order of this budget")
        return [place]

    def _multiple(self, curve: Floats) -> float:
        """Return how often the first curve covers this one; refuse one that is no multiple."""
        if self._unit is None:
            return 1.0
        if not curve.any():
            return 0.0
        known, given = self._unit > 0, curve > 0
        ratio = curve[known] / self._unit[known]
        if (known != given).any() or ratio.max() > ratio.min() * (1 + _PROPORTIONAL):
            raise BudgetError(
                "this budget is exclusive: every charge must be a multiple of the first, from "
                "the same mechanism with the same number of voters and labels. For several "
                "mechanisms use a ledger in a file"
            )
        return math.nextafter(float(ratio.max()), math.inf)
