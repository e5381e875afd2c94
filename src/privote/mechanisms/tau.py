"""Tau voting: Binary on ballots clipped in l2 norm, or in l1 as Private-kNN does (Definition 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.gaussian import GaussianLink
from ..accounting.renyi import Floats, Orders, divergence
from ..accounting.worst_case import clipped_sum, heaviest_change, shift_costs
from ..errors import InputError, positive, whole
from ..votes.cube import Block
from .base import Gate
from .cells import SEARCHED_VOTERS, CellMechanism, CellTally, costliest_move

_EVERY_SIZE = 1000  # up to here every pair of ballots' sizes is tried; beyond, the Gaussian bound
_EXACT_LABELS = 64  # up to here each weight has its own search; beyond, weights share 128 of them


@dataclass(frozen=True, kw_only=True)
class TauVoting(CellMechanism):
    """Release each label by a noisy majority of clipped ballots.

    Each of the s ones of a ballot counts min(1, tau / sqrt(s)) for ``norm=2``, or min(1, tau / s)
    for ``norm=1``. All other voters count against the label; a missing vote is a no, so the norm of
    a ballot stays bounded.

    With a ``grid``, weights are rounded down to multiples of 1/grid, so that a secure computation
    can count integers. Drawing and pricing use the rounded weights.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: Pr[1] = Phi((2c - n) / (sqrt(2) sigma)) for the clipped, real tally c.
    tau
        The largest norm of a ballot.
    norm
        2, or 1 for the Private-kNN baseline.
    grid
        ``None`` for real weights, or the number of steps per vote.
    gate
        A :class:`privote.Gate` on each label.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.ones((2, 50, 3), bool)
    >>> pv.TauVoting(sigma=1.0, tau=1.8).release(votes).tolist()
    [[1, 1, 1], [1, 1, 1]]
    """

    name: ClassVar[str] = "tau"
    _bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")

    sigma: float
    tau: float
    norm: int = 2
    grid: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        object.__setattr__(self, "tau", positive("tau", self.tau))
        if whole("norm", self.norm) > 2:
            raise InputError("norm", "must be 1 or 2", self.norm)
        object.__setattr__(self, "norm", int(self.norm))
        if self.grid is not None:
            object.__setattr__(self, "grid", whole("grid", self.grid, most=2**53))

    def vote_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2). Margins are real."""
        return GaussianLink(sigma=self.sigma).log_probs(margins, voters)

    def weights(self, labels: int) -> Floats:
        """Return what a one counts by the number of ones of its ballot: (labels + 1,)."""
        if self.grid is not None:
            return self.grid_weights(labels) / self.grid
        sizes = np.arange(1, labels + 1, dtype=np.float64)
        return np.concatenate([[0.0], np.minimum(1.0, self.tau / sizes ** (1 / self.norm))])

    def grid_weights(self, labels: int) -> npt.NDArray[np.int64]:
        """Return the weights as whole steps of the grid, rounded down: (labels + 1,)."""
        if self.grid is None:
            raise InputError("grid", "must be given for integer weights, got None")
        sizes = range(1, labels + 1)
        weights = [whole_weight(self.tau, self.norm, self.grid, size) for size in sizes]
        return np.array([0, *weights], np.int64)

    def tally(self, block: Block) -> CellTally:
        """Return the real margins 2c - n of clipped ballots (queries, labels)."""
        weighted = block.weighted(self.weights(block.labels))
        return CellTally(2 * weighted - block.voters, block.voters, False)

    def cost(self, tally: CellTally, orders: Floats, bound: str) -> Floats:
        """Price each query: the labels that cost most to lose and to gain, within the norm."""
        queries, labels = tally.margins.shape
        levels, index = self._levels(tally)
        total = np.empty((queries, len(orders)))
        if bound == "pate2018":
            table = self._theorem6(levels, tally.voters, self.sigma, orders)
            cap = self.worst_case_rdp(tally.voters, labels, orders, bound="gaussian")
            for rows in _slices(queries, labels * len(orders)):
                total[rows] = np.minimum(table[index[rows]].sum(axis=1), cap)
            return total
        weights, sizes = _distinct(self.weights(labels))
        down, up = self._losses_and_gains(levels, tally.voters, weights, orders)
        # A whole vote up or down bounds any clipped one, as long as no gate can make a short
        # move costlier than a long one.
        binary = None
        if self.gate is None:
            pair = self._losses_and_gains(levels, tally.voters, np.ones(1), orders)
            binary = np.maximum(*pair)[:, 0]
        for rows in _slices(queries, labels * len(weights) * 4 * len(orders)):
            cells = index[rows]
            sides = []
            for way in (0, 1):
                side = clipped_sum(down[cells, :, way], up[cells, :, way], sizes)
                if binary is not None:
                    side = np.minimum(side, binary[cells, way].sum(axis=1))
                sides.append(side)
            total[rows] = np.maximum(*sides)
        return np.minimum(total, self.worst_case_rdp(tally.voters, labels, orders))

    def _losses_and_gains(
        self, levels: Floats, voters: int, weights: Floats, orders: Floats
    ) -> list[Floats]:
        """Return the costs of losing and of gaining a vote of each weight.

        Each (levels, weights, 2, orders).
        """

        def moved(shifts: Floats) -> list[Floats]:
            # A label in both ballots moves by the difference of weights only, and stays inside
            # where a whole weight would leave the range: without a gate, the end bounds it.
            moves = np.concatenate([-2 * shifts, 2 * shifts])
            probs = partial(self.log_probs, voters=voters)
            costs = shift_costs(probs, levels, moves, voters, orders, clamp=self.gate is None)
            return np.split(costs, 2, axis=1)

        both = moved(weights)
        if self.gate is not None:
            # With a gate that difference may cost more than the whole weight: count it with the
            # heavier ballot.
            for i, heavy in enumerate(weights):
                for light in weights[weights < heavy]:
                    for side, less in zip(both, moved(np.array([heavy - light])), strict=True):
                        side[:, i] = np.maximum(side[:, i], less[:, 0])
        return both

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: its worst other ballot on each query, exactly.

        With t ones, the other ballot takes the t labels where a one adds most; the worst over t.
        """
        tally = self.tally(block)
        labels = tally.margins.shape[1]
        query, voter, ballots = block.speakers()
        bill = np.zeros((tally.voters, 2, len(orders)))
        for row, margins in enumerate(tally.margins):
            here = query == row
            cast = np.zeros((tally.voters, labels), bool)
            cast[voter[here]] = ballots[here]
            distinct, who = np.unique(cast, axis=0, return_inverse=True)
            costs = self._worst_replacement(margins, tally.voters, distinct, orders)
            bill += costs[who.reshape(-1)]
        return bill

    def _worst_replacement(
        self, margins: Floats, voters: int, ballots: npt.NDArray[np.bool_], orders: Floats
    ) -> Floats:
        """Return (ballots, 2, orders): the cost of the worst other ballot on one query."""
        weights = self.weights(len(margins))
        cast = weights[ballots.sum(axis=1)][:, None] * ballots
        # Voters whose vote on a label weighs the same leave the same margin behind.
        pairs, pair = np.unique(
            np.stack([np.broadcast_to(margins, cast.shape), margins - 2 * cast]).reshape(2, -1),
            axis=1,
            return_inverse=True,
        )
        pair = pair.reshape(cast.shape)
        here = self.log_probs(pairs[0], voters)

        def both(weight: float) -> Floats:
            there = self.log_probs(pairs[1] + 2 * weight, voters)
            return np.stack(
                [divergence(here, there, orders), divergence(there, here, orders)], axis=1
            )

        without = both(0.0)
        base = without[pair].sum(axis=1)
        worst = base
        for weight in np.unique(weights[1:]):
            gain = -np.sort((without - both(float(weight)))[pair], axis=1)
            sizes = np.flatnonzero(weights == weight)
            worst = np.maximum(worst, base + np.cumsum(gain, axis=1)[:, sizes - 1].max(axis=1))
        return np.asarray(worst)

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most on any votes.

        Not the paper's order * tau^2 / sigma^2, which holds for one noise and not for PATE's two:
        the costliest pair of clipped ballots (:func:`.heaviest_change`).
        """
        orders = self._check_worst_case(voters, labels, orders, bound)
        gate = 0.0 if self.gate is None else 0.5 / self.gate.sigma**2
        unit = orders * (1 / self.sigma**2 + gate)
        if self.grid is not None:
            whole_weight(self.tau, self.norm, self.grid, labels)  # refuse one that is too coarse
        if labels > _EVERY_SIZE:
            # Votes are not negative, so two ballots are no further apart than sqrt(2) norms; in
            # the l1 norm s votes of min(1, tau / s) have squares of at most tau in all.
            longest = min(float(labels), self.tau**2 if self.norm == 2 else self.tau)
            return unit * min(2 * longest, float(labels))
        gaussian = unit * _farthest(self, int(labels))
        if bound == "gaussian" or (self.gate is not None and voters > SEARCHED_VOTERS):
            return gaussian
        return np.minimum(_worst_ballot(self, int(voters), int(labels), tuple(orders)), gaussian)


def whole_weight(tau: float, norm: int, grid: int, size: int) -> int:
    """Return the weight of a ballot with so many ones, in whole steps of a grid; never 0.

    Rounded down in exact arithmetic, so that no ballot's norm exceeds tau, not even by a rounding
    error.
    """
    bound = Fraction(tau) * grid
    weight = min(grid, bound // size if norm == 1 else math.isqrt(bound**2 // size))
    if weight == 0:
        raise InputError(
            "grid",
            f"must be fine enough for a weight above 0 at {size} ones with `tau={tau:g}`",
            grid,
        )
    return weight


@lru_cache(maxsize=32)
def _farthest(mech: TauVoting, labels: int) -> float:
    """Return the largest squared distance of two clipped ballots."""

    def squared(shifts: Floats) -> Floats:
        return shifts[:, None] ** 2

    return float(heaviest_change(mech.weights(labels), labels, squared, squared)[0])


def _distinct(weights: Floats) -> tuple[Floats, Any]:
    """Return the distinct weights and the largest ballot that has each."""
    values = np.unique(weights[1:])
    return values, np.array([np.flatnonzero(weights == value).max() for value in values])


def _slices(queries: int, cells: int) -> list[slice]:
    step = max(1, (1 << 23) // max(1, cells))
    return [slice(start, start + step) for start in range(0, queries, step)]


@lru_cache(maxsize=32)
def _worst_ballot(mech: TauVoting, voters: int, labels: int, orders: tuple[float, ...]) -> Floats:
    array = np.array(orders)

    def sup(gate: Gate | None, shift: float) -> Floats:
        return costliest_move(replace(mech, gate=gate), mech.sigma, voters, 2 * shift, array)

    def exact(shifts: Floats) -> Floats:
        return np.array([sup(mech.gate, d) for d in shifts])

    def vote_and_gate(shifts: Floats) -> Floats:
        # Not jointly, but one after the other: grows with the shift even where the joint cost
        # does not. The gate alone is a Gaussian on one count.
        gate = 0.0 if mech.gate is None else 0.5 / mech.gate.sigma**2
        return np.array([sup(None, d) + array * gate * d * d for d in shifts])

    weights = mech.weights(labels)
    distinct = np.unique(weights[1:])
    if len(distinct) <= _EXACT_LABELS:
        return heaviest_change(weights, labels, exact, vote_and_gate)
    rungs = np.geomspace(distinct[0], distinct[-1], 128)
    prices = vote_and_gate(rungs)

    def rounded_up(shifts: Floats) -> Floats:
        rung = np.searchsorted(rungs, shifts * (1 - 1e-12))
        return np.asarray(prices[np.minimum(rung, len(rungs) - 1)])

    return heaviest_change(weights, labels, rounded_up, rounded_up)
