"""Exact costs of cell-wise mechanisms: every neighbour of a tally, priced in closed form.

A cell is one (query, label). Its outcome distribution is a function of its margin alone, and one
changed ballot moves the margin by a known set of shifts; so the exact cost is a lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .renyi import Floats, divergence

LogProbs = Callable[[npt.NDArray[np.generic]], Floats]


def shift_costs(
    log_probs: LogProbs,
    margins: npt.NDArray[np.generic],
    shifts: Sequence[float],
    bound: int,
    orders: Floats,
    *,
    clamp: bool = False,
) -> Floats:
    """Price a move of each margin by each shift, in both directions.

    Returns
    -------
    (margins, shifts, 2, orders): D(here || there), D(there || here). Where the shifted margin would
    leave [-bound, bound] no neighbour is there: 0; or, with ``clamp``, the cost of going to the
    end, which bounds every shorter move that does stay inside.
    """
    costs = np.zeros((len(margins), len(shifts), 2, len(orders)))
    here = log_probs(margins)
    for column, shift in enumerate(shifts):
        moved = margins + shift  # type: ignore[operator]
        if clamp:
            moved = np.clip(moved, -bound, bound)
        inside = np.abs(moved) <= bound + 1e-9
        there = log_probs(moved[inside])
        costs[inside, column, 0] = divergence(here[inside], there, orders)
        costs[inside, column, 1] = divergence(there, here[inside], orders)
    return costs


def clipped_sum(down: Floats, up: Floats, sizes: npt.NDArray[np.int64]) -> Floats:
    """Bound a query whose changed ballot loses s labels at one weight and gains t at another.

    The s labels that cost most to lose plus the t that cost most to gain, the worst over s and t.

    Parameters
    ----------
    down, up
        (queries, labels, weights, orders): cost per label of losing / gaining a vote of a weight.
    sizes
        (weights,): the largest ballot size that has this weight (equal weights are one column:
        a larger ballot of the same weight costs at least as much).

    Returns
    -------
    (queries, orders)
    """
    totals = []
    for side in (down, up):
        best = np.zeros((side.shape[0], side.shape[3]))
        for column, size in enumerate(sizes):
            cost = side[:, :, column, :]
            if size < cost.shape[1]:
                cost = -np.partition(-cost, size - 1, axis=1)[:, :size]
            best = np.maximum(best, cost.sum(axis=1))
        totals.append(best)
    return np.asarray(totals[0] + totals[1])
