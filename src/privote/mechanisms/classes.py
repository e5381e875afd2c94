"""What Powerset and Plurality share: every ballot votes for one class, the noisiest count wins.

Noisy argmax over M classes, M up to 2^5000, without ever listing the classes.

Classes with the same count are exchangeable, and all but a handful have count 0. So a query is its
*profile*, the counts of the classes that got votes; a class at level v wins with probability
    P(v) = integral of pdf(x - v) * prod over levels u of cdf(x - u)^multiplicity dx,
computed in the log domain by Gauss-Legendre panels. A neighbour moves one vote from a class at
level a to a class at level b: few levels, few neighbours.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri_exp, roots_legendre

from ..accounting.pate2018 import theorem6
from ..accounting.renyi import Floats, Orders, divergence
from ..accounting.worst_case import argmax_supremum
from ..entropy import Entropy
from ..errors import BallotError, positive
from ..votes.cube import BallotSource, Block
from .base import (
    ABSTAIN,
    Gate,
    Labels,
    Mechanism,
)

_PANEL = 1.0  # in units of sigma
_NODES, _NODE_WEIGHTS = roots_legendre(20)
_TRUNCATION = 9.0  # every integrand is log-concave with curvature >= 1: e^-40 beyond 9 of its mode
_WIDE = 80.0  # beyond this span, integrate around each mode instead of everywhere
# The product of a huge number of cdfs climbs from 0 to 1 within a sliver; panels split at its
# quantiles e^-t resolve it whatever the number is.
_LOG_QUANTILES = np.log([745.0, 40.0, 5.0, 1.0, 1e-2, 1e-5, 1e-9, 1e-16])
Move = tuple[int | None, int | None]  # places among the levels; None: from or to silence
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class ClassTally:
    """Which classes got how many votes.

    Attributes
    ----------
    profiles
        (queries, width) counts of the classes with votes, descending, padded with 0.
    winners
        (queries, width) the class of each count, as a row of ``ballots``.
    ballots
        (classes seen, labels) bool.
    voter_class
        (speakers, 3): query, voter, and the place of the voter's class in its query's profile.
    """

    profiles: npt.NDArray[np.int64]
    winners: npt.NDArray[np.int64]
    ballots: npt.NDArray[np.bool_]
    voter_class: npt.NDArray[np.int64]
    voters: int
    silent: bool

    def contests(self) -> Iterator[tuple[tuple[int, ...], npt.NDArray[np.intp]]]:
        """Yield each distinct profile with the queries that have it."""
        distinct, inverse = np.unique(self.profiles, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(distinct)))
        for row, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
            yield tuple(int(c) for c in row[row > 0]), rows


@dataclass(frozen=True, kw_only=True)
class ClassMechanism(Mechanism):
    """A mechanism in which each ballot is one vote for one of M classes.

    ``sigma`` is PATE's sigma_GNMax: the count of every class gets its own N(0, sigma^2).
    """

    _bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))

    @abstractmethod
    def classes(self, labels: int) -> int:
        """Return M, the number of classes."""

    def _vote(
        self, block: Block
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return (query, voter, ballot) of every vote for a class; refuse other ballots."""
        query, voter, cast = block.speakers()
        size = cast.sum(axis=1)
        limit = block.labels if self.max_positives is None else self.max_positives
        over = np.flatnonzero(size > limit)
        if len(over):
            first = int(over[0])
            raise BallotError(
                *self._refusal,
                sealed=f"voter {voter[first]} has {size[first]} positives on query "
                f"{block.start + query[first]}: labels {np.flatnonzero(cast[first]).tolist()}",
            )
        if not self.missing_counts_as_no:
            return query, voter, cast
        speaks = cast.any(axis=1)
        return query[speaks], voter[speaks], cast[speaks]

    @property
    @abstractmethod
    def _refusal(self) -> tuple[str, ...]:
        """What is said of a ballot with too many positives: an argument and a rule, or a text."""

    @abstractmethod
    def _draw_unvoted(
        self, voted: npt.NDArray[np.bool_], labels: int, entropy: Entropy
    ) -> npt.NDArray[np.bool_]:
        """Draw a class uniformly among those without a vote."""

    def check(self, ballots: BallotSource) -> None:
        """Refuse ballots that are not a vote for one class."""
        for block in ballots.blocks():
            self._vote(block)

    def gate_probs(self, tally: ClassTally) -> Floats:
        """Return the probability that each query is held back, and that it is answered."""
        if self.gate is None:
            return np.tile([0.0, 1.0], (len(tally.profiles), 1))
        return np.asarray(np.exp(self.gate.log_probs(tally.profiles[:, 0])))

    def tally(self, block: Block) -> ClassTally:
        """Count the classes of each query."""
        query, voter, cast = self._vote(block)
        packed = np.packbits(cast, axis=1)
        if len(cast):
            codes = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}").reshape(-1)
            _, first, code = np.unique(codes, return_index=True, return_inverse=True)
        else:
            first, code = np.zeros(0, np.intp), np.zeros(0, np.intp)
        kinds = max(1, len(first))
        key, run, count = np.unique(
            query * kinds + code.reshape(-1), return_inverse=True, return_counts=True
        )
        run_query, run_class = key // kinds, key % kinds
        # Within a query the largest count first; ties in the order of the codes.
        order = np.lexsort((run_class, -count, run_query))
        starts = np.searchsorted(run_query[order], np.arange(block.queries))
        rank = np.empty(len(key), np.int64)
        rank[order] = np.arange(len(key)) - starts[run_query[order]]
        width = int(rank.max()) + 1 if len(rank) else 1
        profiles = np.zeros((block.queries, width), np.int64)
        winners = np.zeros_like(profiles)
        profiles[run_query, rank], winners[run_query, rank] = count, run_class
        return ClassTally(
            profiles,
            winners,
            np.asarray(cast[first]).reshape(-1, block.labels),
            np.stack([query, voter, rank[run.reshape(-1)]], axis=1),
            block.voters,
            # Where a ballot of zeros is one of nobody, a neighbour may always fall silent.
            block.missing or self.missing_counts_as_no,
        )

    def _contest(self, profile: tuple[int, ...], labels: int) -> Contest:
        return Contest(self.sigma, profile, self.classes(labels))

    def win_log_probs(self, tally: ClassTally) -> Floats:
        """Return the log-probability of each voted class, then of *some* unvoted one.

        (queries, width + 1), -inf where there is no such class. Given that the query is answered.
        """
        queries, width = tally.profiles.shape
        table = np.full((queries, width + 1), -np.inf)
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            levels, log_mult = contest.levels()
            wins = contest.win_log_probs()
            for column, count in enumerate(profile):
                table[rows, column] = wins[levels == count][0]
            if contest.unvoted:
                table[rows, width] = wins[-1] + log_mult[-1]
        return table

    def draw(self, tally: ClassTally, entropy: Entropy) -> Labels:
        """Draw the winning class of each query, or ABSTAIN: (queries, labels)."""
        table = self.win_log_probs(tally)
        labels = tally.ballots.shape[1]
        queries, width = tally.profiles.shape
        winner = entropy.categorical(table)
        drawn = np.zeros((queries, labels), np.int8)
        voted = winner < width
        drawn[voted] = tally.ballots[tally.winners[voted, winner[voted]]]
        for row in np.flatnonzero(~voted):
            seen = tally.ballots[tally.winners[row][tally.profiles[row] > 0]]
            drawn[row] = self._draw_unvoted(seen, labels, entropy)
        if self.gate is not None:
            gate = self.gate.log_probs(tally.profiles[:, 0])
            drawn[~entropy.bernoulli(gate[:, 1], gate[:, 0])] = ABSTAIN
        return drawn

    def cost(self, tally: ClassTally, orders: Floats, bound: str) -> Floats:
        """Price each query: the worst move of any one ballot."""
        total = np.empty((len(tally.profiles), len(orders)))
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            if bound == "pate2018":
                total[rows] = self._theorem6(contest, orders)
            else:
                costs = neighbour_costs(contest, self.gate, tally.silent, tuple(orders))
                total[rows] = costs.max(axis=(0, 1))
        return total

    def _theorem6(self, contest: Contest, orders: Floats) -> Floats:
        # Proposition 7 of PATE 2018: q <= sum over losing classes of Phi(-gap / (sqrt(2) sigma)).
        levels, log_mult = contest.levels()
        lose = np.log(np.maximum(np.exp(np.minimum(log_mult[0], 600.0)) - 1, 1e-300))
        first = np.where(np.arange(len(levels)) == 0, lose, log_mult)
        gap = (levels[0] - levels) / (2**0.5 * self.sigma)
        log_q = np.logaddexp.reduce(first + log_ndtr(-gap))
        cost = theorem6(log_q, self.sigma, orders)
        if self.gate is not None:
            gate = self.gate.log_probs(np.array(float(contest.top)))
            cost = cost + theorem6(gate.min(), 2**0.5 * self.gate.sigma, orders)
        return cost

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: the worst place its one vote could have been."""
        tally = self.tally(block)
        query, voter, rank = tally.voter_class.T
        bill = np.zeros((tally.voters, 2, len(orders)))
        for profile, rows in tally.contests():
            contest = self._contest(profile, tally.ballots.shape[1])
            costs = neighbour_costs(contest, self.gate, tally.silent, tuple(orders))
            levels, _ = contest.levels()
            here = np.isin(query, rows)
            level_of = np.array([np.flatnonzero(levels == count)[0] for count in profile], np.int64)
            np.add.at(bill, voter[here], costs[level_of[rank[here]]])
            if tally.silent:
                spoke = np.bincount(voter[here], minlength=tally.voters)
                bill += (len(rows) - spoke)[:, None, None] * costs[-1]
        return bill

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most: one vote leaves one class and joins another."""
        orders = self._check_worst_case(voters, labels, orders, bound)
        vote = orders / self.sigma**2
        if bound == "exact":
            vote = _worst_move(self.sigma, tuple(orders))
        if self.gate is None:
            return np.array(vote)
        # The gate's check and the vote, one after the other; one noise on one count for the gate.
        gate = orders * 0.5 / self.gate.sigma**2
        return vote + gate


@lru_cache(maxsize=64)
def _worst_move(sigma: float, orders: tuple[float, ...]) -> Floats:
    worst = argmax_supremum(sigma, np.array(orders))
    worst.setflags(write=False)
    return worst


# -- the noisy argmax of one query -----------------------------------------------------------------


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
        for index, change in ((a, -1.0), (b, 1.0)):
            if index is not None:
                level = float(self.levels[index])
                product = product - self.log_cdf(level) + self.log_cdf(level + change)
        return product

    def wins(self, products: Floats) -> Floats:
        """Return log Pr[one class of each level wins]: (products, x) -> (products, levels)."""
        return np.stack([self.win(products, float(level)) for level in self.levels], axis=1)

    def win(self, products: Floats, level: float) -> Floats:
        """Return log Pr[one class with this count wins] under each product: (products,)."""
        deviation = self.x - level * self.unit
        density = self._log_w - 0.5 * deviation * deviation - _HALF_LOG_2PI - self.log_cdf(level)
        terms = products + density
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
    low = max(means[-1] - _TRUNCATION, marks[0]) - shift
    high = max(means[0], marks[-1]) + _TRUNCATION + shift
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
    radius = _TRUNCATION + 2 * shift
    spans: list[tuple[float, float]] = []
    for mode in np.sort(left):
        if spans and mode - radius <= spans[-1][1]:
            spans[-1] = (spans[-1][0], float(mode + radius))
        else:
            spans.append((float(mode - radius), float(mode + radius)))
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
        for index in {p for p in places if p is not None}:
            rows = [i for i, p in enumerate(places) if p == index]
            level = float(field.levels[index]) + change
            here[rows, column] = field.base[index]
            there[rows, column] = field.win(products[rows], level)
            left[rows, index] = [_log_minus_one(float(left[row, index])) for row in rows]
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
