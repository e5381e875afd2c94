"""Binary voting: each label is its own yes/no election (the paper's Definition 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.exact import shift_costs
from ..accounting.renyi import Floats, Orders, check_orders
from ..accounting.worst_case import supremum
from ..blocks import Block, DenseBlock
from ..errors import InputError, UnavailableError
from ..links import GaussianLink, Link, OptimalLink
from .base import Bools, Mechanism, check_electorate
from .cells import SEARCHED_VOTERS, CellMechanism, CellTally

_TABLE_VOTERS = 512  # up to here all margins are tabulated once; beyond, those that occur
_SCAN_VOTERS = 2000  # up to here a worst case scans every margin; beyond, it searches real tallies


@dataclass(frozen=True, kw_only=True)
class BinaryVoting(CellMechanism):
    """Release each label by a noisy majority of its own.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: both counts of a label (yes, no) get their own N(0, sigma^2), so
        Pr[1] = Phi((yes - no) / (sqrt(2) sigma)), one noise of std sigma/sqrt(2) on the yes-votes.
    link
        Instead of sigma: :class:`privote.OptimalLink`.
    quota, false_alarm
        Where the bar stands: a share of the registered voters, or such that a label without a
        single yes is released as 1 with this probability. With a bar a missing vote is not a yes;
        without one it counts for neither side.
    gate
        A :class:`privote.Gate` on each label; only with the bar at one half.
    """

    name: ClassVar[str] = "binary"
    surprise_unit: ClassVar[str] = "vote"

    sigma: float | None = None
    link: OptimalLink | None = None
    quota: float | None = None
    false_alarm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.sigma is None) == (self.link is None):
            raise InputError("give exactly one of sigma and link")
        if self.link is not None and not isinstance(self.link, OptimalLink):
            raise InputError("link", "must be a privote.OptimalLink", self.link)
        if self.sigma is not None:
            link = GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)
            for name in ("sigma", "quota", "false_alarm"):
                object.__setattr__(self, name, getattr(link, name))
            if self.gate is not None and link.has_bar and self.quota != 0.5:
                raise UnavailableError(
                    "a gate asks how many agree with the majority, so it goes with the bar at "
                    f"one half only; got `quota={self.quota}`, `false_alarm={self.false_alarm}`"
                )
        elif self.quota is not None or self.false_alarm is not None:
            raise UnavailableError(
                "an optimal link is symmetric about one half: it takes no quota and no "
                "`false_alarm`"
            )

    @property
    def _link(self) -> Link:
        if self.link is not None:
            return self.link
        assert self.sigma is not None
        return GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)

    @property
    def own_order(self) -> float | None:
        """An optimal link's order."""
        return None if self.link is None else self.link.order

    @classmethod
    def variants(cls, sigma: float, order: float) -> tuple[Mechanism, ...]:
        """Return Gaussian noise, and the optimal link that a vote at the bar costs as much with."""
        linked = cls(link=OptimalLink(cost=1.0, order=order))
        return cls(sigma=sigma), linked.with_noise(sigma)

    def with_noise(self, sigma: float) -> Mechanism:
        """Return the same mechanism with another amount of noise.

        A link has no sigma: it gets what a vote at the bar costs with Gaussian noise of this sigma,
        where it moves Pr[1] by 1 / (sqrt(pi) sigma), which costs (2 / pi) order / sigma^2.
        """
        if self.link is None:
            return super().with_noise(sigma)
        cost = float(f"{2 / math.pi * self.link.order / sigma**2:.4g}")
        return replace(self, link=replace(self.link, cost=cost))

    def noisy_bar(self, voters: int) -> tuple[float, float] | None:
        """Return the bar of yes-votes and the noise on them; None with a link or a gate."""
        if self.sigma is None or self.gate is not None:
            return None
        link = GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)
        return link.bar(voters), self.sigma / math.sqrt(2)

    def noise_free(self, block: Block) -> Bools:
        """Return which labels stand above the bar: (queries, labels)."""
        tally = self.tally(block)
        vote = self._link.log_probs(tally.margins, tally.voters)
        return np.asarray(vote[..., 1] > vote[..., 0])

    def tally(self, block: Block) -> CellTally:
        """Return the margins (queries, labels)."""
        missing = self.counts_missing(block.missing)
        return CellTally(block.margins(missing_is_no=not missing), block.voters, missing)

    def unanimous(self, voters: int, labels: int) -> float:
        """Return how often a label that every voter wants, and nothing else, is released as 1."""
        check_electorate(voters, labels)
        return float(np.exp(self.log_probs(np.array(voters), voters)[1]))

    def counts_missing(self, missing: bool) -> bool:
        """Return whether a missing vote counts for neither side here; with a bar it is a no."""
        return missing and self.quota is None and self.false_alarm is None

    def level_costs(
        self, margins: npt.NDArray[Any], voters: int, missing: bool, orders: Floats
    ) -> Floats:
        """Return the worst two-sided cost of a cell at each margin: (margins, orders)."""
        return np.asarray(self._directed(margins, voters, missing, orders).max(axis=(1, 2)))

    def _levels(self, tally: CellTally) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        if tally.voters > _TABLE_VOTERS:
            return super()._levels(tally)
        return np.arange(-tally.voters, tally.voters + 1), tally.margins + tally.voters

    def cost(self, tally: CellTally, orders: Floats, bound: str) -> Floats:
        """Price each query: the sum over labels of the worst neighbour's cost."""
        levels, index = np.unique(tally.margins, return_inverse=True)
        table = self._cell_cost(levels, tally, orders, bound)
        index = index.reshape(tally.margins.shape)
        total = np.zeros((len(tally.margins), len(orders)))
        for label in range(index.shape[1]):
            total += table[index[:, label]]
        return total

    def total_cost(self, tally: CellTally, orders: Floats, bound: str) -> Floats:
        """Price a whole tally: a histogram of margins times a table."""
        histogram = np.bincount(tally.margins.reshape(-1) + tally.voters)
        levels = np.flatnonzero(histogram)
        table = self._cell_cost(levels - tally.voters, tally, orders, bound)
        return np.asarray(histogram[levels] @ table)

    def _cell_cost(
        self, margins: npt.NDArray[Any], tally: CellTally, orders: Floats, bound: str
    ) -> Floats:
        """Return the cost of a cell at each margin: (margins, orders)."""
        if bound == "pate2018":
            if self.sigma is None:
                raise UnavailableError(
                    "bound 'pate2018' is proved for Gaussian noise, not for a link"
                )
            return self._theorem6(margins, tally.voters, self.sigma, orders)
        return self.level_costs(margins, tally.voters, tally.missing, orders)

    def _directed(
        self, margins: npt.NDArray[Any], voters: int, missing: bool, orders: Floats
    ) -> Floats:
        """Return (margins, 3, 2, orders): costs of a cell by the changing voter's vote 0, 1, -1.

        The changed vote may become anything else, so each is the worst over where it can go. The
        row of a missing vote is zero where no vote is missing.
        """
        if voters <= _TABLE_VOTERS:
            return np.asarray(_table(self, voters, missing, tuple(orders))[margins + voters])
        return _directed_costs(self, margins, voters, missing, orders)

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: flipping all its votes is the worst it can do."""
        tally = self.tally(block)
        levels, index = np.unique(tally.margins, return_inverse=True)
        index = index.reshape(tally.margins.shape)
        costs = self._directed(levels, tally.voters, tally.missing, orders)
        width = len(levels)
        if isinstance(block, DenseBlock):
            votes = block.votes if tally.missing else block.votes == 1
            kinds = (0, 1, -1) if tally.missing else (0, 1)
            bill = np.zeros((tally.voters, 2, len(orders)))
            for j in range(tally.voters):
                for column, kind in enumerate(kinds):
                    seen = index[votes[:, j] == kind]
                    bill[j] += np.tensordot(
                        np.bincount(seen, minlength=width), costs[:, column], axes=1
                    )
            return bill
        # Sparse: everyone said no everywhere, but for the few cells where a speaker said yes.
        # Counts are subtracted, not costs: no bill is a small difference of large numbers.
        query, voter, ballot = block.speakers()
        everywhere = np.bincount(index.reshape(-1), minlength=width)
        bill = np.broadcast_to(
            np.tensordot(everywhere, costs[:, 0], axes=1), (tally.voters, 2, len(orders))
        ).copy()
        row, label = np.nonzero(ballot)
        speakers, place = np.unique(voter[row], return_inverse=True)
        yes = np.zeros((len(speakers), width), np.int64)
        np.add.at(yes, (place.reshape(-1), index[query[row], label]), 1)
        bill[speakers] = np.tensordot(everywhere - yes, costs[:, 0], axes=1)
        bill[speakers] += np.tensordot(yes, costs[:, 1], axes=1)
        return bill

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most: every label flips at its costliest margin."""
        self._check_bound(bound, self.worst_case_bounds)
        orders = check_orders(orders)
        check_electorate(voters, labels)
        if self.sigma is None:
            if bound == "gaussian":
                raise UnavailableError("bound 'gaussian' is for Gaussian noise, not for a link")
            return labels * _worst_vote(self, int(voters), tuple(orders))
        gate = 0.0 if self.gate is None else 0.5 / self.gate.sigma**2
        gaussian = labels * orders * (1 / self.sigma**2 + gate)
        if bound == "gaussian":
            return gaussian
        return np.minimum(labels * _worst_vote(self, int(voters), tuple(orders)), gaussian)

    def surprise_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one surprising *vote* costs at most."""
        check_electorate(voters, labels)
        return self.worst_case_rdp(voters, 1, orders)


def _directed_costs(
    mech: BinaryVoting, margins: npt.NDArray[Any], voters: int, missing: bool, orders: Floats
) -> Floats:
    def log_probs(at: npt.NDArray[Any]) -> Floats:
        return mech.log_probs(at, voters)

    if not missing:
        up, down = np.moveaxis(shift_costs(log_probs, margins, (2, -2), voters, orders), 1, 0)
        return np.stack([up, down, np.zeros_like(up)], axis=1)
    two_up, up, down, two_down = np.moveaxis(
        shift_costs(log_probs, margins, (2, 1, -1, -2), voters, orders), 1, 0
    )
    return np.stack(
        [np.maximum(two_up, up), np.maximum(two_down, down), np.maximum(up, down)], axis=1
    )


@lru_cache(maxsize=32)
def _table(mech: BinaryVoting, voters: int, missing: bool, orders: tuple[float, ...]) -> Floats:
    margins = np.arange(-voters, voters + 1)
    return _directed_costs(mech, margins, voters, missing, np.array(orders))


@lru_cache(maxsize=64)
def _worst_vote(mech: BinaryVoting, voters: int, orders: tuple[float, ...]) -> Floats:
    """Return the costliest change of one vote, to another or to missing, at any margin."""
    array = np.array(orders)
    if voters <= _SCAN_VOTERS or mech.link is not None:
        worst = np.zeros(len(array))
        # Where a link has nowhere left to go, a vote changes nothing and costs nothing.
        end = voters if mech.link is None else mech.link.decided(voters)
        for start in range(-end, end + 1, 1000):
            margins = np.arange(start, min(start + 1000, end + 1))
            worst = np.maximum(
                worst, _directed_costs(mech, margins, voters, True, array).max(axis=(0, 1, 2))
            )
        worst.setflags(write=False)
        return worst
    assert mech.sigma is not None
    link = GaussianLink(sigma=mech.sigma, quota=mech.quota, false_alarm=mech.false_alarm)
    bar, scale = 2 * link.bar(voters) - voters, math.sqrt(2) * mech.sigma
    if mech.gate is None:
        # Margins from the bar, where the cost is: exact beside any number of voters.
        centres, low, high = [0.0], -voters - bar, voters - bar
        plain = GaussianLink(sigma=mech.sigma)

        def log_probs(margins: npt.NDArray[Any]) -> Floats:
            return plain.log_probs(margins, voters)

    else:
        if voters > SEARCHED_VOTERS:  # the bound that needs no search is the smaller one
            return np.full(len(array), np.inf)
        edge = 2 * mech.gate.threshold - voters
        centres, low, high = [bar, 0.0, edge, -edge], -voters, voters
        scale = min(scale, 2 * mech.gate.sigma)

        def log_probs(margins: npt.NDArray[Any]) -> Floats:
            return mech.log_probs(margins, voters)

    worst = np.zeros(len(array))
    for shift in (1.0, 2.0):
        worst = np.maximum(
            worst,
            supremum(
                log_probs,
                shift,
                low,
                high,
                centres=centres,
                scale=scale,
                orders=array,
            ),
        )
    worst.setflags(write=False)
    return worst
