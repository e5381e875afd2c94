"""Cells: every (query, label) is released on its own margin.

A cell's outcome distribution, gate included, is a function of its margin m (yes minus no) and of
the number of registered voters n: answered with Phi((max(c, n - c) - T) / sigma_T), c = (n + m)/2,
then 0 or 1 as the mechanism says for that margin. Where a margin counts single votes, all else
follows from those log-probabilities: :class:`VoteMechanism`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.pate2018 import theorem6
from ..accounting.renyi import Floats, Orders
from ..accounting.worst_case import LogProbs, shift_costs, supremum
from ..entropy import Chances, Entropy
from ..errors import InputError, UnavailableError
from ..votes.cube import Block, Counts, DenseBlock
from .base import ABSTAIN, Bools, Labels, Mechanism, check_electorate

_TABLE_VOTERS = 512  # up to here all margins are tabulated once; beyond, those that occur
_SCANNED, _MOST_SCANNED = 1000, 1 << 20  # margins priced at a time, and in all

# Beyond, the tallies around a gate lie too far from zero for a search among floats, and a worst
# case is the bound that holds for any number of voters.
SEARCHED_VOTERS = 1 << 30


@dataclass(frozen=True)
class CellTally:
    """Margins (queries, labels), integer for Binary and real for Tau, and who was registered.

    Attributes
    ----------
    counted
        The margins; whole ones in no more bits than they need, to be stored and sent.
    """

    counted: npt.NDArray[Any]
    voters: int
    missing: bool

    @property
    def margins(self) -> npt.NDArray[Any]:
        """The margins to compute with: whole ones in 64 bits, where no sum wraps around."""
        return self.counted.astype(np.int64) if self.counted.dtype.kind == "i" else self.counted


@dataclass(frozen=True, kw_only=True)
class CellMechanism(Mechanism):
    """A mechanism that releases each label on its own margin."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        members = vars(cls)
        if "log_probs" in members:
            raise TypeError(f"{cls.__name__} must define vote_log_probs")
        if "vote_log_probs" not in members or {"worst_case_rdp", "_worst_vote"} & members.keys():
            return
        if cls.worst_case_rdp is not VoteMechanism.worst_case_rdp or (
            getattr(cls, "_worst_vote", None) is not VoteMechanism._worst_vote
        ):
            raise TypeError(
                f"{cls.__name__} changes the probabilities of its parent, which has its own worst "
                "case: extend privote.VoteMechanism, or define worst_case_rdp too"
            )

    @abstractmethod
    def vote_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] of an answered label by its margin: (..., 2).

        The margin is yes minus no: (voters + margin) / 2 of the registered voters said yes.
        """

    def gate_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[abstain], log Pr[answer]: (..., 2). Only with a gate."""
        assert self.gate is not None
        return self.gate.log_probs((voters + np.abs(margins)) / 2)

    def log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return the log-probabilities of 0, 1 and, with a gate, ABSTAIN: (..., 2 or 3)."""
        vote = self.vote_log_probs(margins, voters)
        if self.gate is None:
            return vote
        gate = self.gate_log_probs(margins, voters)
        return np.concatenate([vote + gate[..., 1:], gate[..., :1]], axis=-1)

    def outcome_probabilities(self, votes: Any) -> Floats:
        """Return the probability of 0, 1 (and ABSTAIN) in each cell: (queries, labels, 2 or 3)."""
        tallies = [self.tally(block) for block in self._accept(votes).blocks()]
        cells = np.concatenate([self.log_probs(t.margins, t.voters) for t in tallies])
        return np.asarray(np.exp(cells))

    def draw(self, tally: CellTally, entropy: Entropy) -> Labels:
        """Draw 0, 1 or ABSTAIN for every cell (queries, labels)."""
        drawn = self._coins(self.vote_log_probs, tally, entropy).view(np.int8)
        if self.gate is not None:
            drawn[~self._coins(self.gate_log_probs, tally, entropy)] = ABSTAIN
        return drawn

    def _coins(
        self,
        log_probs: Callable[[npt.NDArray[Any], int], Floats],
        tally: CellTally,
        entropy: Entropy,
    ) -> Bools:
        """Draw yes or no for every cell; distinct margins are looked for in few cells at a time."""
        cells = tally.counted.reshape(-1)

        def chances(at: slice) -> Chances:
            levels, index = self._levels(replace(tally, counted=cells[at]))
            table = log_probs(levels, tally.voters)
            return table[:, 1], table[:, 0], index

        return entropy.coins(cells.size, chances).reshape(tally.counted.shape)

    def _levels(self, tally: CellTally) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        """Return the distinct margins and each cell's place among them."""
        flat, index = np.unique(tally.margins, return_inverse=True)
        return flat, index.reshape(tally.counted.shape)

    def _theorem6(
        self, margins: npt.NDArray[Any], voters: int, sigma: float, orders: Floats
    ) -> Floats:
        """Return PATE 2018's bound for each margin, the gate's own check added: (..., orders)."""
        cost = theorem6(self.vote_log_probs(margins, voters).min(axis=-1), sigma, orders)
        if self.gate is not None:
            # One noise on one count: as Theorem 6 for a GNMax with sqrt(2) more noise.
            log_q = self.gate_log_probs(margins, voters).min(axis=-1)
            cost = cost + theorem6(log_q, 2**0.5 * self.gate.sigma, orders)
        return cost


@dataclass(frozen=True, kw_only=True)
class VoteMechanism(CellMechanism):
    """A mechanism that decides each label by its number of yes votes.

    :meth:`vote_log_probs` is all that such a mechanism must define. The cost of changing one vote
    is computed from it at every margin, so every price and every guarantee follows.

    Examples
    --------
    >>> import privote as pv
    >>> isinstance(pv.BinaryVoting(sigma=7.0), pv.VoteMechanism)
    True
    """

    contribution_unit: ClassVar[str] = "vote"
    _worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact",)

    @property
    def rises(self) -> bool:
        """Whether a cell releases one bit that never gets likelier to be 1 by losing a yes."""
        return False

    def counts_missing(self, missing: bool) -> bool:
        """Return whether a missing vote, if there may be one, counts for neither side."""
        return False

    def tally(self, block: Block) -> CellTally:
        """Return the margins (queries, labels)."""
        missing = self.counts_missing(block.missing)
        return CellTally(block.margins(missing_is_no=not missing), block.voters, missing)

    def margin_grid(self, voters: int, missing: bool) -> MarginGrid | None:
        """Return the levels that a cell can stand at, with what it costs there."""
        return MarginGrid(self, voters, self.counts_missing(missing))

    def _levels(self, tally: CellTally) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        # All margins there can be take less time than a search for those that there are, unless
        # cells are few.
        if tally.voters > max(_TABLE_VOTERS, tally.counted.size):
            return super()._levels(tally)
        grid = self._grid(tally)
        return grid.margins, grid.places(tally.counted)

    def _grid(self, tally: CellTally) -> MarginGrid:
        return MarginGrid(self, tally.voters, tally.missing)

    def cost(self, tally: CellTally, orders: Floats, bound: str) -> Floats:
        """Price each query: the sum over labels of the worst neighbour's cost."""
        levels, index = super()._levels(tally)
        table = self.cell_costs(self._grid(tally), levels, orders, bound)
        total = np.zeros((len(tally.margins), len(orders)))
        for label in range(index.shape[1]):
            total += table[index[:, label]]
        return total

    def total_cost(self, tally: CellTally, orders: Floats, bound: str) -> Floats:
        """Price a whole tally: a histogram of margins times a table."""
        histogram = np.bincount(tally.margins.reshape(-1) + tally.voters)
        levels = np.flatnonzero(histogram)
        table = self.cell_costs(self._grid(tally), levels - tally.voters, orders, bound)
        # Not a product of matrices: that adds up in an order of its own on other threads.
        return np.asarray((histogram[levels][:, None] * table).sum(axis=0))

    def cell_costs(
        self, grid: MarginGrid, margins: npt.NDArray[Any], orders: Floats, bound: str = "exact"
    ) -> Floats:
        """Return the worst two-sided cost of a cell at each margin: (margins, orders)."""
        self._check_bound(bound, self._bounds)
        return np.asarray(grid.directed(margins, orders).max(axis=(1, 2)))

    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price the block for each voter: flipping all its votes is the worst it can do."""
        tally = self.tally(block)
        levels, index = super()._levels(tally)
        costs = self._grid(tally).directed(levels, orders)
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
        speakers, speaker = np.unique(voter[row], return_inverse=True)
        yes = np.zeros((len(speakers), width), np.int64)
        np.add.at(yes, (speaker.reshape(-1), index[query[row], label]), 1)
        bill[speakers] = np.tensordot(everywhere - yes, costs[:, 0], axes=1)
        bill[speakers] += np.tensordot(yes, costs[:, 1], axes=1)
        return bill

    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most: every label flips at its costliest margin."""
        orders = self._check_worst_case(voters, labels, orders, bound)
        return labels * self._worst_vote(int(voters), orders, bound)

    def _worst_vote(self, voters: int, orders: Floats, bound: str) -> Floats:
        """Return the costliest change of one vote, to another or to missing: (orders,)."""
        return worst_of_all(self, voters, self.counts_missing(True), tuple(orders))

    def contribution_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one contributing *vote* costs at most."""
        check_electorate(voters, labels)
        return self.worst_case_rdp(voters, 1, orders)


@dataclass(frozen=True)
class MarginGrid:
    """The levels on which the cells of a tally of single votes stand, and what one costs there.

    The cost of a query is the sum over its cells, and one changed ballot moves every cell by at
    most ``max_shift`` levels: what prices of consensus are proved for.
    """

    mechanism: VoteMechanism
    voters: int
    missing: bool

    @property
    def max_shift(self) -> int:
        """How many levels one ballot can move a cell by."""
        return 2 if self.missing else 1

    @cached_property
    def margins(self) -> Counts:
        """The margin at each level; without missing votes every other one cannot occur."""
        return np.arange(-self.voters, self.voters + 1, 3 - self.max_shift)

    def places(self, margins: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return where each margin stands among the levels, in as few bits as they come in."""
        wide = np.promote_types(margins.dtype, np.min_scalar_type(-2 * self.voters - 1))
        levels = margins.astype(wide)
        levels += self.voters
        levels //= 3 - self.max_shift
        return levels

    def costs(self, levels: slice, orders: Floats) -> Floats:
        """Return the two-sided cost of a cell at some of the levels: (levels, orders)."""
        return self.mechanism.cell_costs(self, self.margins[levels], orders)

    def directed(self, margins: npt.NDArray[Any], orders: Floats) -> Floats:
        """Return (margins, 3, 2, orders): costs of a cell by the changing voter's vote 0, 1, -1.

        The changed vote may become anything else, so each is the worst over where it can go. The
        row of a missing vote is zero where no vote is missing.
        """
        if self.voters <= _TABLE_VOTERS:
            return np.asarray(_table(self, tuple(orders))[self.places(margins)])
        return self.computed(margins, orders)

    def computed(self, margins: npt.NDArray[Any], orders: Floats) -> Floats:
        """Return the same, without a table."""
        log_probs, voters = _distributions(self.mechanism, self.voters), self.voters
        if not self.missing:
            up, down = np.moveaxis(shift_costs(log_probs, margins, (2, -2), voters, orders), 1, 0)
            return np.stack([up, down, np.zeros_like(up)], axis=1)
        costs = shift_costs(log_probs, margins, (2, 1, -1, -2), voters, orders)
        two_up, up, down, two_down = np.moveaxis(costs, 1, 0)
        worst = np.maximum(two_up, up), np.maximum(two_down, down), np.maximum(up, down)
        return np.stack(worst, axis=1)


@lru_cache(maxsize=32)
def _table(grid: MarginGrid, orders: tuple[float, ...]) -> Floats:
    return grid.computed(grid.margins, np.array(orders))


def _distributions(mech: VoteMechanism, voters: int) -> LogProbs:
    """Return the log-probabilities of a cell by its margin, checked: they add up to one."""

    def log_probs(at: npt.NDArray[Any]) -> Floats:
        table = mech.log_probs(at, voters)
        # What is drawn and what is priced read this: it must be a distribution.
        total = np.logaddexp.reduce(table, axis=-1) if table.shape[-1] in (2, 3) else np.inf
        if not np.abs(total).max(initial=0.0) < 1e-9:
            raise InputError(f"the probabilities of {mech} must add up to 1 at every margin")
        return table

    return log_probs


@lru_cache(maxsize=64)
def worst_of_all(
    mech: VoteMechanism, voters: int, missing: bool, orders: tuple[float, ...]
) -> Floats:
    """Return the costliest change of one vote at any margin: (orders,)."""
    array = np.array(orders)
    worst = np.zeros(len(array))
    if voters > _MOST_SCANNED:
        raise UnavailableError(
            f"the worst case of {mech} is searched over all counts, for at most {_MOST_SCANNED} "
            f"voters, got {voters}: for more, the mechanism must define worst_case_rdp"
        )
    step, shifts = (1, (2, 1)) if missing else (2, (2,))
    # Upwards is enough: both directions are priced, and every move down is one up from below.
    for start in range(-voters, voters + 1, step * _SCANNED):
        margins = np.arange(start, min(start + step * _SCANNED, voters + 1), step)
        costs = shift_costs(_distributions(mech, voters), margins, shifts, voters, array)
        worst = np.maximum(worst, costs.max(axis=(0, 1, 2)))
    worst.setflags(write=False)
    return worst


def costliest_move(
    mech: CellMechanism, sigma: float, voters: int, shift: float, orders: Floats, bar: float = 0.0
) -> Floats:
    """Return the costliest shift of a real margin with Gaussian noise, both directions: (orders,).

    Looked for around the ``bar`` (a margin) and the two edges of the gate.
    """
    centres, scale = [bar], math.sqrt(2) * sigma
    if mech.gate is not None:
        edge = 2 * mech.gate.threshold - voters
        centres, scale = [bar, edge, -edge], min(scale, 2 * mech.gate.sigma)
    return supremum(
        lambda margins: mech.log_probs(margins, voters),
        shift,
        -voters,
        voters,
        centres=centres,
        scale=scale,
        orders=orders,
    )
