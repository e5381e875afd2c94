"""Propose-test-release with a distance test: consensus prices, and yet differential privacy.

Proposed, from public numbers alone: the number of queries, one order, and a bound F on their cost.
Tested: how many ballots D would have to change before the votes might cost more than F. Released:
everything with probability pi(D), else nothing; pi rises with D as fast as a reserve r allows. A
failed test is charged like a passed one.

If either of two neighbours has D >= 0 their answers are (order, F)-close, and pi is built so that
the whole run, test included, is (order, F + r)-close. If neither has, both fail but with
probability delta. So every run is (epsilon, delta)-DP with epsilon from F + r (the proof is in
docs/accounting.md, where the distance and the recursion come from). A privately tested bound is
Dwork and Lei's idea (2009), and Redberg, Zhu and Wang's (2023) for PATE.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BudgetError, InputError, positive
from .renyi import (
    UPWARDS,
    Floats,
    Orders,
    check_delta,
    check_orders,
    coin,
    farthest_logit,
    rounded_up,
)
from .sanitize import UNSURE, check_table, expected_cost, statement_epsilon, windowed_max

_DEEPEST = 12  # how many ballots of slack a plan may ask for
_PARTS = 2**40  # of F: a cost is rounded up to one of these


def distance(
    costs: npt.ArrayLike, histogram: npt.ArrayLike, threshold: float, reach: int = 1
) -> int:
    """Return D: how many ballots can change, any of them, with the cost still within ``threshold``.

    The largest d with A_d <= F, where A_d sums, over all cells, the largest cost that d ballots can
    bring a cell to; -1 if even A_0, the cost of these votes, exceeds F. One changed ballot moves no
    cell by more than ``reach``, so A_d(X') <= A_{d+1}(X) and D changes by at most 1. Sealed.

    Parameters
    ----------
    costs, histogram
        (levels,) cost of a cell, and number of cells, at each level.
    threshold
        F, public and positive.
    """
    table, cells = check_table(costs, histogram)
    threshold = positive("threshold", threshold)
    # In whole parts of F, rounded up: sums of integers are exact, so rounding can neither move D
    # by more than 1 between neighbours nor let a cost above F pass. One cell above F is enough.
    shares = np.minimum(table, 2 * threshold) / threshold * (1 + 1e-15)
    parts = np.ceil(shares * _PARTS)

    def fits(ballots: int) -> bool:
        high, low = np.divmod(windowed_max(parts, ballots * reach).astype(np.int64), 2**20)
        return int(cells @ high) * 2**20 + int(cells @ low) <= _PARTS

    # A_d does not fall with d, up to where the window is the whole table.
    furthest = -(-(len(table) - 1) // reach)
    return bisect_left(range(furthest + 1), True, key=lambda ballots: not fits(ballots)) - 1


def pass_log_probs(
    depth: int, threshold: float, reserve: float, order: float, delta: float
) -> Floats:
    """Return log Pr[fail] and log Pr[pass] for D = -1, 0, ..., depth: (depth + 2, 2).

    pi(-1) = delta; pi(d + 1) is the largest q with J(pi(d), q) and J(q, pi(d)) at most F + r, where

        J(p, q) = log[(1-p)^a (1-q)^(1-a) + p^a q^(1-a) e^{(a-1) F}] / (a-1), a the order,

    bounds the divergence of two runs, test included, whose answers are F-close.

    Parameters
    ----------
    depth
        The largest D to cover: the number of voters is always enough.
    threshold, reserve
        F and r, public.
    order, delta
        Public; delta is the whole run's.
    """
    threshold, reserve = positive("threshold", threshold), positive("reserve", reserve)
    delta, total = check_delta(delta), threshold + reserve
    logits = [math.log(delta) - math.log1p(-delta)]
    while len(logits) < depth + 2:
        logits.append(farthest_logit(logits[-1], order, total, gain=threshold))
    return np.array([coin(logit) for logit in logits])


def pass_probabilities(
    depth: int, threshold: float, reserve: float, order: float, delta: float
) -> Floats:
    """Return pi(-1), pi(0), ..., pi(depth): (depth + 2,). See :func:`pass_log_probs`."""
    return np.asarray(np.exp(pass_log_probs(depth, threshold, reserve, order, delta)[:, 1]))


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What is fixed before looking: all of it public.

    ``depth`` ballots of slack pass the test with probability ``pass_probability`` or more.
    ``unsure`` is the share of cells with evenly spread counts, the others being unanimous, up to
    which that slack is there.
    """

    order: float
    threshold: float
    reserve: float
    delta: float
    depth: int
    pass_probability: float
    unsure: float

    @property
    def epsilon(self) -> float:
        """The epsilon of the whole run, test included."""
        return statement_epsilon(self.threshold, self.reserve, self.order, self.delta)


def propose(
    costs: npt.ArrayLike,
    orders: Orders,
    cells: int,
    budget: float,
    delta: float,
    *,
    pass_probability: float = 0.99,
    reach: int = 1,
) -> Proposal:
    """Choose order, F and r for a number of cells, from public numbers alone.

    Of all choices that spend exactly ``budget``, the one under which the test still passes for the
    most divided made-up electorate (:func:`privote.accounting.sanitize.expected_cost`): nothing is
    guessed about the votes, and nothing is learnt from them.

    Parameters
    ----------
    costs
        (orders, levels) cost of a cell at each order and level.
    cells
        Queries times labels.
    budget, delta
        The (epsilon, delta) of the whole run.
    """
    choices = [
        (_tolerated(choice.total, cells, choice), choice)
        for choice in _choices(costs, orders, budget, delta, reach)
    ]
    best: Proposal | None = None
    for bound, choice in sorted(choices, reverse=True):
        if bound < 0 or (best is not None and bound <= best.unsure):
            break  # even without a reserve no later choice tolerates more
        reserve = _least_reserve(choice, delta, pass_probability)
        unsure = _tolerated(choice.total - reserve, cells, choice)
        if unsure >= 0 and (best is None or unsure > best.unsure):
            best = Proposal(
                order=choice.order,
                threshold=choice.total - reserve,
                reserve=reserve,
                delta=delta,
                depth=choice.depth,
                pass_probability=pass_probability,
                unsure=unsure,
            )
    if best is None:
        raise BudgetError(
            f"{cells} cells do not fit in `epsilon={rounded_up(budget)}`, "
            f"`delta={rounded_up(delta)}` even if all voters agree: ask fewer queries, or use "
            "more noise"
        )
    return best


def largest_queries(
    costs: npt.ArrayLike,
    orders: Orders,
    labels: int,
    budget: float,
    delta: float,
    *,
    unsure: float = UNSURE,
    pass_probability: float = 0.99,
    reach: int = 1,
) -> int:
    """Return the most queries whose :func:`propose` tolerates a share ``unsure`` of divided cells.

    A forecast from public numbers: whether these votes pass the test is another matter.
    """
    choices = [
        (choice.total / max(choice.price(unsure), 1e-300), choice)
        for choice in _choices(costs, orders, budget, delta, reach)
    ]
    cells = 0.0
    for bound, choice in sorted(choices, reverse=True):
        if bound <= cells:
            break
        reserve = _least_reserve(choice, delta, pass_probability)
        cells = max(cells, (choice.total - reserve) / max(choice.price(unsure), 1e-300))
    return int(min(cells * (1 - 1e-12), 1e15)) // labels


class _Choice(NamedTuple):
    """An order and a slack, and what a cell costs within that slack of agreed and divided votes."""

    order: float
    total: float
    depth: int
    agreed: float
    divided: float

    def price(self, unsure: float) -> float:
        return (1 - unsure) * self.agreed + unsure * self.divided


def _choices(
    costs: npt.ArrayLike, orders: Orders, budget: float, delta: float, reach: int
) -> Iterator[_Choice]:
    orders, table = check_orders(orders), np.asarray(costs, np.float64)
    if table.ndim != 2 or len(table) != len(orders) or not (table >= 0).all():
        raise InputError(
            "costs", f"must be (orders, levels) for {len(orders)} orders, got shape {table.shape}"
        )
    most, delta = budget / UPWARDS, check_delta(delta)
    for order, row in zip(orders.tolist(), table, strict=True):
        # Canonne, Kamath and Steinke 2020, Proposition 12, solved for the cost.
        total = most - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)
        total -= 1e-12 * abs(total)  # so that converting back never exceeds the budget
        if total > 0 and np.isfinite(row).all():
            for depth in range(min(_DEEPEST, (len(row) - 1) // reach) + 1):
                within = windowed_max(row, depth * reach)
                agreed, divided = (float(expected_cost(within, share)) for share in (0.0, 1.0))
                yield _Choice(order, total, depth, agreed, max(agreed, divided))


def _tolerated(threshold: float, cells: int, choice: _Choice) -> float:
    """Return the share of divided cells at which the expected A_d is F; negative if none."""
    spare = threshold - cells * choice.agreed
    if spare < 0 or choice.divided == choice.agreed:
        return 1.0 if spare >= 0 else -1.0
    return min(1.0, spare / (cells * (choice.divided - choice.agreed)))


def _least_reserve(choice: _Choice, delta: float, pass_probability: float) -> float:
    """Return the smallest part of the total to reserve so that pi(depth) is high enough."""
    low, high = 0.0, choice.total
    for _ in range(16):
        middle = (low + high) / 2
        chances = pass_probabilities(
            choice.depth, choice.total - middle, middle, choice.order, delta
        )
        low, high = (low, middle) if chances[-1] >= pass_probability else (middle, high)
    return high
