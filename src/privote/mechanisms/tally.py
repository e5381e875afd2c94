"""Tally voting: every label's noisy number of yes-votes is released, and decided afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.counts import RoundedGaussian
from ..accounting.renyi import Floats, Orders
from ..entropy import WIDEST_ROUNDED, Entropy
from ..errors import InputError, UnavailableError, positive, whole
from ..votes.cube import Ballots, BallotSource, Block, Counts, DenseBlock
from .base import Mechanism, check_electorate
from .tau import whole_weight

#: Steps of a vote that is a probability. A percent is as fine as anybody states one, moves a tally
#: of n voters by at most n/200, and fits the byte that also holds -1 for a missing vote.
PERCENT = 100
CLIPPED = 1000  # steps of a vote where ballots are clipped: what rounding down loses is below 1/30
_TRUNCATION = 7.1  # deviations: what lies beyond, on either side, has a probability below 1e-12
_EVERY_SIZE = 200  # up to here every pair of ballots' sizes is tried; beyond, tau's own bound


@dataclass(frozen=True)
class Tally:
    """Counted votes (queries, labels), in whole steps, and how many were registered."""

    steps: Counts
    voters: int


@dataclass(frozen=True, kw_only=True)
class TallyVoting(Mechanism):
    """Release each label's tally of yes-votes plus noise: an integer on the whole line.

    The noise is the rounded Gaussian: Pr[x] = Phi((x+1/2)/sigma) - Phi((x-1/2)/sigma) for an
    integer x. A missing vote is a no. Labels are decided afterwards from all released tallies
    together, at no further cost.

    Parameters
    ----------
    sigma
        Standard deviation of the noise on a tally, in votes, before it is rounded: *not* PATE's
        sigma, which is sqrt(2) times that.
    tau
        Clip ballots to this l2 norm: each of the s ones of a ballot counts min(1, tau / sqrt(s)),
        rounded down. Replacing a ballot then moves the tallies by at most sqrt(2) tau.
    grid
        Steps per vote; a released tally is an integer number of steps. Default: 1, or 1000 with
        ``tau``. Use :data:`PERCENT` for probabilities, which are rounded to it.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.ones((2, 50, 3), bool)
    >>> pv.TallyVoting(sigma=12.0).release(votes).shape
    (2, 3)
    """

    name: ClassVar[str] = "tally"
    outcomes: ClassVar[type] = np.int64

    sigma: float
    tau: float | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        if self.gate is not None:
            raise UnavailableError("gate", "needs labels that are decided separately", self)
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        if self.grid is not None:
            finest = PERCENT if self.tau is None else 1 << 20
            object.__setattr__(self, "grid", whole("grid", self.grid, most=finest))
        if self.tau is not None:
            object.__setattr__(self, "tau", positive("tau", self.tau))
        if self.sigma * self.steps > WIDEST_ROUNDED:  # here, and not once it is charged
            widest = WIDEST_ROUNDED / self.steps
            raise InputError("sigma", f"must be at most {widest:g} to be drawn exactly", self.sigma)

    # -- facts -------------------------------------------------------------------------------------

    @property
    def contribution_unit(self) -> str:  # type: ignore[override]
        """Single votes; whole ballots where they are clipped."""
        return "vote" if self.tau is None else "ballot"

    @property
    def steps(self) -> int:
        """How many steps a whole vote has."""
        return self.grid or (1 if self.tau is None else CLIPPED)

    @property
    def resolution(self) -> int:
        """Of votes that are probabilities; 1 where ballots are clipped: their votes are 0 or 1."""
        return self.steps if self.tau is None else 1

    @property
    def noise(self) -> RoundedGaussian:
        """The noise on one tally, in steps."""
        return RoundedGaussian(self.sigma * self.steps)

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return all settings: a tally has no gate."""
        return ("sigma", "tau", "grid")

    def weights(self, labels: int) -> Counts:
        """Return what a one counts by the number of ones of its ballot, in steps: (labels + 1,)."""
        if self.tau is None:
            return np.full(labels + 1, self.steps, np.int64)
        weights = [whole_weight(self.tau, 2, self.steps, size) for size in range(1, labels + 1)]
        return np.array([0, *weights], np.int64)

    # -- counting ----------------------------------------------------------------------------------

    def _accept(self, votes: Any) -> BallotSource:
        if self.tau is None and self.steps > 1 and not isinstance(votes, BallotSource):
            return self.ballots(votes)
        return super()._accept(votes)

    def ballots(self, votes: npt.ArrayLike) -> Ballots:
        """Return probabilities (queries, voters, labels) as votes in whole steps, rounded.

        -1 is a missing vote, which counts as no.
        """
        return Ballots.from_array(votes, resolution=self.steps, soft=True)

    def check(self, ballots: BallotSource) -> None:
        """Refuse ballots in other steps than these: :meth:`ballots` makes them of probabilities."""
        due, given = self.resolution, ballots.resolution
        if given != due:
            raise InputError("votes", f"must have {due} steps per vote (`grid`), got {given}")

    def tally(self, block: Block) -> Tally:
        """Return the tallies (queries, labels) in steps."""
        if self.tau is not None:
            weights = self.weights(block.labels).astype(np.float64)
            return Tally(np.rint(block.weighted(weights)).astype(np.int64), block.voters)
        if self.steps > 1:
            assert isinstance(block, DenseBlock)
            counted = np.maximum(block.votes, 0).sum(axis=1, dtype=np.int64)
            return Tally(counted, block.voters)
        margins = block.margins(missing_is_no=True).astype(np.int64)
        return Tally((margins + block.voters) // 2, block.voters)

    def draw(self, tally: Tally, entropy: Entropy) -> Counts:  # type: ignore[override]
        """Draw the noisy tallies (queries, labels), in steps."""
        noise = entropy.rounded_gaussian(self.noise.sigma, tally.steps.size)
        return np.asarray(tally.steps + noise.reshape(tally.steps.shape))

    # -- outcomes ----------------------------------------------------------------------------------

    def support(self, voters: int) -> Counts:
        """Return the tallies that are listed where all cannot be: beyond lies less than 1e-12.

        The first and the last stand for all beyond them, too.
        """
        truncation = math.ceil(_TRUNCATION * self.noise.sigma) + 1
        return np.arange(-truncation, voters * self.steps + truncation + 1)

    def outcome_probabilities(self, votes: Any) -> Floats:
        """Return the probability of each of :meth:`support`: (queries, labels, tallies)."""
        tallies = [self.tally(block) for block in self._accept(votes).blocks()]
        steps = np.concatenate([tally.steps for tally in tallies])[..., None]
        listed = self.support(tallies[0].voters)
        out = np.exp(self.noise.log_pmf(listed - steps))
        out[..., 0] = self.noise.above(steps[..., 0] - listed[0] - 1)
        out[..., -1] = self.noise.above(listed[-1] - 1 - steps[..., 0])
        return np.asarray(out)

    # -- prices ------------------------------------------------------------------------------------

    def cost(self, tally: Tally, orders: Floats, bound: str) -> Floats:
        """Price each query: noise on the whole line costs the same at every tally."""
        self._check_bound(bound, self._bounds)
        queries, labels = tally.steps.shape
        if self.tau is None:
            price = labels * self.noise.rdp(self.steps, orders)
        else:
            price = _replacements(self, labels, tuple(orders)).max(axis=0)
        return np.broadcast_to(price, (queries, len(orders))).copy()

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: its worst other ballot on each query, exactly."""
        bill = np.zeros((block.voters, 2, len(orders)))
        if self.tau is not None:
            by_size = _replacements(self, block.labels, tuple(orders))
            bill += block.queries * by_size[0]
            query, voter, ballots = block.speakers()
            del query
            np.add.at(bill, voter, (by_size[ballots.sum(axis=1)] - by_size[0])[:, None])
        elif self.steps == 1:
            bill += block.queries * block.labels * self.noise.rdp(1, orders)
        else:
            assert isinstance(block, DenseBlock)
            votes = np.maximum(block.votes, 0)
            furthest = np.maximum(votes, self.steps - votes)
            for shift in np.unique(furthest).tolist():
                cells = (furthest == shift).sum(axis=(0, 2))
                bill += cells[:, None, None] * self.noise.rdp(shift, orders)
        return bill

    def squared_shift(self, labels: int) -> float:
        """Return the largest squared length by which a replaced ballot moves tallies, in steps."""
        if self.tau is None:
            return float(labels * self.steps**2)
        return _squared_shift(self, labels)

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most: order x labels / (2 sigma^2), or 2 tau^2 for labels.

        A line in the order, and not the little less that rounded noise costs: then the price of
        all noises that are solved for one budget is the same at every order.
        """
        orders = self._check_worst_case(voters, labels, orders, bound)
        return self.noise.gaussian_rdp(self.squared_shift(int(labels)), orders)

    def contribution_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one contribution costs at most: a vote, or a clipped ballot."""
        check_electorate(voters, labels)
        return self.worst_case_rdp(voters, 1 if self.tau is None else labels, orders)


def _changes(labels: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the sizes of two ballots, and labels that only the one, only the other, both have.

    For each pair of sizes as few common labels as can be and as many: costs are linear between.
    """
    for size in range(labels + 1):
        for other in range(labels + 1):
            for overlap in {max(0, size + other - labels), min(size, other)}:
                yield size, other, size - overlap, other - overlap, overlap


@lru_cache(maxsize=256)
def _squared_shift(mech: TallyVoting, labels: int) -> float:
    assert mech.tau is not None
    weights = [int(weight) for weight in mech.weights(labels)]
    if labels > _EVERY_SIZE:
        return float(min(2 * Fraction(mech.tau) ** 2, Fraction(labels)) * mech.steps**2)
    return float(
        max(
            lost * weights[size] ** 2
            + gained * weights[other] ** 2
            + overlap * (weights[size] - weights[other]) ** 2
            for size, other, lost, gained, overlap in _changes(labels)
        )
    )


@lru_cache(maxsize=64)
def _replacements(mech: TallyVoting, labels: int, orders: tuple[float, ...]) -> Floats:
    """Return what the worst other ballot costs by the size of a voter's own: (sizes, orders)."""
    array = np.array(orders)
    if labels > _EVERY_SIZE:
        bound = mech.noise.gaussian_rdp(mech.squared_shift(labels), array)
        return np.broadcast_to(bound, (labels + 1, len(array)))
    weights = [int(weight) for weight in mech.weights(labels)]
    shifts = {abs(first - second) for first in weights for second in weights}
    prices = {shift: mech.noise.rdp(shift, array) for shift in shifts}
    out = np.zeros((labels + 1, len(array)))
    for size, other, lost, gained, overlap in _changes(labels):
        cost = lost * prices[weights[size]] + gained * prices[weights[other]]
        cost = cost + overlap * prices[abs(weights[size] - weights[other])]
        out[size] = np.maximum(out[size], cost)
    out.setflags(write=False)
    return out
