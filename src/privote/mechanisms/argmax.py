"""Noisy argmax over M classes, M up to 2^5000, without ever listing the classes.

Classes with the same count are exchangeable, and all but a handful have count 0. So a query is its
*profile*, the counts of the classes that got votes; a class at level v wins with probability
    P(v) = integral of pdf(x - v) * prod over levels u of cdf(x - u)^multiplicity dx,
computed in the log domain by Gauss-Legendre panels. A neighbour moves one vote from a class at
level a to a class at level b: few levels, few neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.special import log_ndtr, ndtri_exp, roots_legendre

from ..accounting.renyi import Floats, divergence
from .gate import Gate

_PANEL = 1.0  # in units of sigma
_NODES, _NODE_WEIGHTS = roots_legendre(20)
_REACH = 9.0  # every integrand is log-concave with curvature >= 1: e^-40 beyond 9 of its mode
_WIDE = 80.0  # beyond this span, integrate around each mode instead of everywhere
# The product of a huge number of cdfs climbs from 0 to 1 within a sliver; panels split at its
# quantiles e^-t resolve it whatever the number is.
_LOG_QUANTILES = np.log([745.0, 40.0, 5.0, 1.0, 1e-2, 1e-5, 1e-9, 1e-16])
Move = tuple[int | None, int | None]  # places among the levels; None: from or to silence
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Contest:
    """One query, as its outcome distribution sees it; a million queries share a few hundred.

    Attributes
    ----------
    sigma
        PATE's sigma_GNMax: every class's count gets its own N(0, sigma^2).
    profile
        Counts of the classes that got votes, in descending order.
    classes
        M, how many classes there are, as an exact integer.
    """

    sigma: float
    profile: tuple[int, ...]
    classes: int

    @property
    def unvoted(self) -> int:
        """How many classes got no vote."""
        return self.classes - len(self.profile)

    @property
    def top(self) -> int:
        """The count of the leading class; 0 if nobody voted."""
        return self.profile[0] if self.profile else 0

    def levels(self) -> tuple[Floats, Floats]:
        """Return the distinct counts, descending and 0 last if unvoted, and log-multiplicities."""
        values, counts = np.unique(np.array(self.profile, np.int64), return_counts=True)
        levels = values[::-1].astype(np.float64)
        log_mult = np.log(counts[::-1].astype(np.float64))
        if self.unvoted:
            levels = np.append(levels, 0.0)
            log_mult = np.append(log_mult, math.log(self.unvoted))
        return levels, log_mult

    def win_log_probs(self) -> Floats:
        """Return the log-probability that *one* class of each level wins: (levels,)."""
        return np.array(_Integrals(self).base)


class _Integrals:
    """The integrals of one contest and of all its neighbours, on one set of nodes."""

    def __init__(self, contest: Contest) -> None:
        self.levels, self.log_mult = contest.levels()
        self.unit = 1.0 / contest.sigma
        means = self.levels * self.unit
        self.x, self._log_w = _grid(means, self.log_mult, self.unit)
        self._cdf: dict[float, Floats] = {}
        self._product = np.zeros(len(self.x))
        with np.errstate(over="ignore"):
            for mean, log_m in zip(means, self.log_mult, strict=True):
                self._product -= np.exp(log_m + _log_minus_log_cdf(self.x - mean))
        self.base = self.wins(self._product[None])[0]

    def log_cdf(self, level: float) -> Floats:
        """Return log Phi at the nodes for a class with this count."""
        if level not in self._cdf:
            self._cdf[level] = log_ndtr(self.x - level * self.unit)
        return self._cdf[level]

    def moved(self, a: int | None, b: int | None) -> Floats:
        """Return the log-product after one class of level a lost a vote, one of level b got it."""
        product = self._product
        for place, change in ((a, -1.0), (b, 1.0)):
            if place is not None:
                level = float(self.levels[place])
                product = product - self.log_cdf(level) + self.log_cdf(level + change)
        return product

    def wins(self, products: Floats) -> Floats:
        """Return log Pr[one class of each level wins]: (products, x) -> (products, levels)."""
        return np.stack([self.win(products, float(level)) for level in self.levels], axis=1)

    def win(self, products: Floats, level: float) -> Floats:
        """Return log Pr[one class with this count wins] under each product: (products,)."""
        deviation = self.x - level * self.unit
        own = self._log_w - 0.5 * deviation * deviation - _HALF_LOG_2PI - self.log_cdf(level)
        terms = products + own
        peak = terms.max(axis=-1, keepdims=True)
        return np.asarray(peak[..., 0] + np.log(np.exp(terms - peak).sum(axis=-1)))


def _log_minus_log_cdf(z: Floats) -> Floats:
    """Return log(-log Phi(z)); where log Phi(z) would round to 0, from its tail."""
    tail = log_ndtr(-z)
    with np.errstate(divide="ignore"):
        exact = np.log(-log_ndtr(np.minimum(z, 6.0)))
    return np.where(z > 5.0, tail + np.log1p(np.exp(tail) / 2), exact)


def _quantile(log_t: Floats) -> Floats:
    """Return z with -log Phi(z) = e^{log_t}."""
    far = log_t < -5.0
    near = ndtri_exp(-np.exp(np.where(far, -5.0, log_t)))
    # Once Phi(-z) is small, -log Phi(z) is Phi(-z), and ndtri_exp takes its logarithm.
    return np.asarray(np.where(far, -ndtri_exp(np.where(far, log_t, -5.0)), near))


def _grid(means: Floats, log_mult: Floats, shift: float) -> tuple[Floats, Floats]:
    """Return nodes and log-weights, in units of sigma, that serve every class and neighbour."""
    # Only the crowd on the lowest level can be large; its maximum has cdf e^-t at these marks.
    marks = means[-1] + _quantile(_LOG_QUANTILES - log_mult[-1])
    low = max(means[-1] - _REACH, marks[0]) - shift
    high = max(means[0], marks[-1]) + _REACH + shift
    spans = [(low, high)]
    if high - low > _WIDE:
        spans = _windows(means, log_mult, shift, low, high)
    starts, stops = [], []
    for left, right in spans:
        cuts = np.concatenate([[left], marks[(marks > left) & (marks < right)], [right]])
        for a, b in pairwise(cuts):
            edges = np.linspace(a, b, max(1, math.ceil((b - a) / _PANEL)) + 1)
            starts.append(edges[:-1])
            stops.append(edges[1:])
    start, stop = np.concatenate(starts), np.concatenate(stops)
    half = ((stop - start) / 2)[:, None]
    x = start[:, None] + half * (1 + _NODES)
    return x.reshape(-1), (np.log(half) + np.log(_NODE_WEIGHTS)).reshape(-1)


def _windows(
    means: Floats, log_mult: Floats, shift: float, low: float, high: float
) -> list[tuple[float, float]]:
    """Return the union of the places around each class's mode, found by bisection."""
    left, right = np.full(len(means), low), np.full(len(means), high)
    for _ in range(60):
        middle = (left + right) / 2
        z = middle[:, None] - means
        with np.errstate(over="ignore"):
            pull = np.exp(log_mult - 0.5 * z * z - _HALF_LOG_2PI - log_ndtr(z)).sum(axis=1)
        rising = pull > middle - means
        left, right = np.where(rising, middle, left), np.where(rising, right, middle)
    reach = _REACH + 2 * shift
    spans: list[tuple[float, float]] = []
    for mode in np.sort(left):
        if spans and mode - reach <= spans[-1][1]:
            spans[-1] = (spans[-1][0], float(mode + reach))
        else:
            spans.append((float(mode - reach), float(mode + reach)))
    return spans


@lru_cache(maxsize=4096)
def neighbour_costs(
    contest: Contest, gate: Gate | None, silent: bool, orders: tuple[float, ...]
) -> Floats:
    """Return what each voter's change can cost: (levels + 1, 2, orders), both directions.

    Row i is a voter whose class stands at ``contest.levels()[0][i]`` (the row of level 0 is empty:
    nobody voted there); the last row is a silent voter. Each is the worst over where the vote may
    go; with ``silent`` it may also go nowhere.
    """
    array = np.array(orders)
    field = _Integrals(contest)
    voted = [i for i, level in enumerate(field.levels) if level > 0]
    everywhere = range(len(field.levels))
    moves: list[Move] = [
        (a, b)
        for a in voted
        for b in everywhere
        if a != b or field.log_mult[a] > 0  # onto another class of the same level, if there is one
    ]
    if silent or not moves:  # a lone silent electorate still has neighbours: someone speaks up
        moves += [(a, None) for a in voted] + [(None, b) for b in everywhere]
    here, there = _outcomes(field, moves)
    if gate is not None:
        tops = np.array([_moved_top(contest, field, a, b) for a, b in moves])
        here = _gated(here, gate, np.full(len(moves), float(contest.top)))
        there = _gated(there, gate, tops)
    costs = np.zeros((len(field.levels) + 1, 2, len(array)))
    rows = [len(field.levels) if a is None else a for a, _ in moves]
    np.maximum.at(costs[:, 0], rows, divergence(here, there, array))
    np.maximum.at(costs[:, 1], rows, divergence(there, here, array))
    # Whatever the quadrature says, one vote moves two of the counts by one.
    cap = array * (1 / contest.sigma**2 + (0.0 if gate is None else 0.5 / gate.sigma**2))
    costs = np.minimum(costs, cap)
    costs.setflags(write=False)
    return costs


def _outcomes(field: _Integrals, moves: list[Move]) -> tuple[Floats, Floats]:
    """Return both distributions of every move: (moves, 2 + levels) each.

    Outcomes: the class that loses the vote wins, the class that gains it wins, any other class of
    a level wins. Classes that stay put are exchangeable before and after, so a level is one
    outcome.
    """
    width = len(field.levels)
    products = np.stack([field.moved(a, b) for a, b in moves])
    here = np.full((len(moves), 2 + width), -np.inf)
    there = here.copy()
    left = np.broadcast_to(field.log_mult, (len(moves), width)).copy()
    for column, change in ((0, -1.0), (1, 1.0)):
        places = [move[column] for move in moves]
        for place in {p for p in places if p is not None}:
            rows = [i for i, p in enumerate(places) if p == place]
            level = float(field.levels[place]) + change
            here[rows, column] = field.base[place]
            there[rows, column] = field.win(products[rows], level)
            left[rows, place] = [_log_minus_one(float(left[row, place])) for row in rows]
    here[:, 2:] = field.base + left
    there[:, 2:] = field.wins(products) + left
    return here, there


def _log_minus_one(log_m: float) -> float:
    """Return log(m - 1)."""
    return -np.inf if log_m <= 1e-12 else float(log_m + math.log(-math.expm1(-log_m)))


def _gated(log_p: Floats, gate: Gate, top: Floats) -> Floats:
    gates = gate.log_probs(top)
    return np.concatenate([log_p + gates[:, 1:], gates[:, :1]], axis=1)


def _moved_top(contest: Contest, field: _Integrals, a: int | None, b: int | None) -> float:
    top = float(contest.top)
    if a is not None and field.levels[a] == top and field.log_mult[a] <= 0:
        lower = field.levels[a + 1] if a + 1 < len(field.levels) else 0.0
        top = max(top - 1, float(lower))
    return top if b is None else max(top, float(field.levels[b]) + 1)
