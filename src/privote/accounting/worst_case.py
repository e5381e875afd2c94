"""What one changed ballot costs: exactly, on a tally; and at most, on any votes.

A cell is one (query, label). Its outcome distribution is a function of its margin alone, and one
changed ballot moves the margin by a known set of shifts: on a tally the exact cost is a lookup, and
before a vote is cast a supremum over all margins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, roots_legendre

from .renyi import Floats, divergence, paired_divergence

LogProbs = Callable[[npt.NDArray[Any]], Floats]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LEGENDRE: tuple[Floats, Floats] = roots_legendre(80)
_SLACK = 1e-6  # relative: above the error of the search, far below anything that matters


def shift_costs(
    log_probs: LogProbs,
    margins: npt.NDArray[Any],
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
        moved = margins + shift
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


def supremum(
    log_probs: LogProbs,
    shift: float,
    low: float,
    high: float,
    *,
    centres: Sequence[float],
    scale: float,
    orders: Floats,
) -> Floats:
    """Return the largest two-sided cost of moving a real tally by ``shift`` within [low, high].

    The cost is smooth on the scale of the noise near its ``centres`` (the bar, the gate) and ever
    smoother away from them, so a grid that widens geometrically meets every hump. The highest
    few are refined: with a gate there are several, and the highest grid point may lie on a lower
    one. A relative slack covers what is left of the search error.

    Returns
    -------
    (orders,)
    """
    high = high - shift
    if high < low:
        return np.zeros(len(orders))
    width = max(high - low, scale)
    steps = scale * np.concatenate(
        [np.linspace(0, 8, 129), np.geomspace(8, 8 + width / scale, 200)]
    )
    around = [c + off for c in centres for off in (0.0, -shift / 2, -shift)]
    grid = np.concatenate([a + side * steps for a in around for side in (1, -1)])
    grid = np.unique(np.clip(np.append(grid, np.linspace(low, high, 257)), low, high))

    def cost(points: Floats) -> Floats:
        here, there = log_probs(points), log_probs(points + shift)
        return np.maximum(
            paired_divergence(here, there, orders), paired_divergence(there, here, orders)
        )

    coarse = cost(np.broadcast_to(grid[:, None], (len(grid), len(orders))))
    walls = np.pad(coarse, ((1, 1), (0, 0)), constant_values=-1.0)
    peaks = np.where((coarse >= walls[:-2]) & (coarse >= walls[2:]), coarse, -1.0)
    humps = np.argsort(-peaks, axis=0)[: 2 * len(centres)]  # (humps, orders)
    best = coarse.max(axis=0)
    left = grid[np.maximum(humps - 1, 0)]
    right = grid[np.minimum(humps + 1, len(grid) - 1)]
    for _ in range(4):
        points = left + (right - left) * np.linspace(0, 1, 17)[:, None, None]
        fine = cost(points)
        best = np.maximum(best, fine.max(axis=(0, 1)))
        top = fine.argmax(axis=0)[None]
        left = np.take_along_axis(points, np.maximum(top - 1, 0), axis=0)[0]
        right = np.take_along_axis(points, np.minimum(top + 1, 16), axis=0)[0]
    return np.asarray(best * (1 + _SLACK))


def heaviest_change(
    weights: Floats,
    labels: int,
    cost: Callable[[Floats], Floats],
    floor: Callable[[Floats], Floats],
) -> Floats:
    """Return the costliest replacement of one clipped ballot by another.

    max over s, t, o of (s - o) g(w_s) + (t - o) g(w_t) + o g'(|w_s - w_t|), s + t - o <= labels.
    The sum is linear in the overlap o, so only its two ends count.

    Parameters
    ----------
    weights
        (labels + 1,) weight of each vote of a ballot with s ones; ``weights[0]`` is unused.
    cost
        (d,) shifts -> (d, orders): g, exact.
    floor
        (d,) shifts -> (d, orders): g' for the small differences of overlapping labels; any bound
        that does not decrease with the shift.
    """
    sizes = np.arange(labels + 1)
    distinct, inverse = np.unique(weights[1:], return_inverse=True)
    prices = cost(distinct)
    single = np.concatenate([np.zeros((1, prices.shape[1])), prices[inverse.reshape(-1)]])
    # Differences are rounded up to a grid: they only matter when ballots must overlap.
    grid = np.linspace(0, float(weights[1:].max()), 25)[1:]
    overlap_cost = np.concatenate([np.zeros((1, single.shape[1])), floor(grid)])
    best = np.zeros(single.shape[1])
    for s in sizes:
        gap = np.abs(weights - weights[s]) if s else np.zeros(labels + 1)
        rung = np.where(gap > 0, np.searchsorted(grid, gap - 1e-15) + 1, 0)
        for overlap in (np.maximum(0, s + sizes - labels), np.minimum(s, sizes)):
            total = (
                (s - overlap)[:, None] * single[s]
                + (sizes - overlap)[:, None] * single[sizes]
                + overlap[:, None] * overlap_cost[rung]
            )
            best = np.maximum(best, total.max(axis=0))
    return best


def argmax_supremum(sigma: float, orders: Floats) -> Floats:
    """Return the costliest move of one vote from one class to another under noisy argmax.

    Given the maximum w of all other noisy counts, which the move does not touch, the outcome is
    argmax(Y_a, Y_b, w); divergence is quasi-convex, so the cost is at most its supremum over w, and
    by shifting all three over the means (a, b) at w = 0. Slightly above a two-class vote's cost
    (by up to 0.5 %); never above order / sigma^2, which is what both counts together cost.

    Returns
    -------
    (orders,)
    """
    step = 1.0 / sigma
    cap = orders * step * step
    # Far out the search has nothing to find: the cost has come within a few percent of the cap.
    near = orders * step < 25.0
    if not near.any():
        return cap
    small = orders[near]
    radius = 6.0 + 1.5 * small * step
    ticks = np.linspace(-1, 1, 21)
    best = np.zeros(len(small))
    centre_a = centre_b = np.zeros(len(small))
    for _ in range(9):
        a = centre_a + radius * ticks[:, None, None]
        b = centre_b + radius * ticks[None, :, None]
        a, b = (np.broadcast_to(v, (len(ticks), len(ticks), len(small))) for v in (a, b))
        cost = paired_divergence(_three_way(a, b), _three_way(a - step, b + step), small)
        flat = cost.reshape(-1, len(small))
        top = flat.argmax(axis=0)
        best = np.maximum(best, flat.max(axis=0))
        every = np.arange(len(small))
        centre_a, centre_b = (v.reshape(-1, len(small))[top, every] for v in (a, b))
        radius = radius * 2 / (len(ticks) - 1) * 1.25
        ticks = np.linspace(-1, 1, 7)
    result = cap.copy()
    result[near] = np.minimum(cap[near], best * (1 + 10 * _SLACK))
    return result


def _three_way(a: Floats, b: Floats) -> Floats:
    """Return log-probabilities that N(a, 1), N(b, 1) or 0 is the largest: (..., 3)."""
    return np.stack([_beats(a, b), _beats(b, a), log_ndtr(-a) + log_ndtr(-b)], axis=-1)


def _beats(a: Floats, b: Floats) -> Floats:
    """Return log Pr[N(a, 1) > max(N(b, 1), 0)] by quadrature around the integrand's mode."""
    left, right = np.zeros_like(a), np.maximum(np.maximum(a, b), 0.0) + 2.0
    for _ in range(45):  # the integrand is log-concave: its mode on [0, inf) is a bisection
        middle = (left + right) / 2
        z = middle - b
        rising = np.exp(-0.5 * z * z - _HALF_LOG_2PI - log_ndtr(z)) > middle - a
        left, right = np.where(rising, middle, left), np.where(rising, right, middle)
    mode = np.where(left < 1e-9, 0.0, left)
    # At the edge the integrand may fall much faster than a Gaussian: follow its slope.
    fall = np.maximum(-(np.exp(-0.5 * b * b - _HALF_LOG_2PI - log_ndtr(-b)) + a), 1.0)
    above = np.where(mode == 0.0, np.minimum(9.0, 45.0 / fall), 9.0)
    start, stop = np.maximum(mode - 9.0, 0.0), mode + above
    half = ((stop - start) / 2)[..., None]
    x = start[..., None] + half * (1 + _LEGENDRE[0])
    terms = (
        -0.5 * (x - a[..., None]) ** 2
        - _HALF_LOG_2PI
        + log_ndtr(x - b[..., None])
        + np.log(half * _LEGENDRE[1])
    )
    return np.asarray(np.logaddexp.reduce(terms, axis=-1))
