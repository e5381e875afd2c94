"""Blocks: a run of consecutive queries in memory, which is all a mechanism ever counts.

Dense blocks hold every voter's ballot, one vote a byte or packed as bits; sparse ones only the
ballots of those who spoke.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .bits import Bits

MISSING = -1
Votes = npt.NDArray[np.bool_] | npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]
Margins = npt.NDArray[np.signedinteger[Any]]
Floats = npt.NDArray[np.float64]

_FEW = 1 << 14  # votes that are added up sooner than they are packed


class Block(Protocol):
    """A run of consecutive queries: what a mechanism may ask of the ballots."""

    @property
    def start(self) -> int:
        """The first query's place in the whole, for messages."""

    @property
    def queries(self) -> int:
        """Queries of this block."""

    @property
    def voters(self) -> int:
        """Registered voters, whether they spoke or not."""

    @property
    def labels(self) -> int:
        """Labels of every ballot."""

    @property
    def missing(self) -> bool:
        """Whether a vote may be missing."""

    def part(self, start: int, stop: int) -> Block:
        """Return its queries from ``start`` to before ``stop``."""

    def margins(self, *, missing_is_no: bool) -> Margins:
        """Return yes minus no (queries, labels), in the fewest bits that hold twice as much."""

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally (queries, labels) where a ballot with s ones has weight[s] a vote."""

    def speakers(self) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Return (query, voter, yes-ballot) of every ballot cast."""


@dataclass(frozen=True)
class DenseBlock:
    """Every voter's ballot on every query of the block: ``votes`` (queries, voters, labels)."""

    votes: Votes
    missing: bool
    start: int = 0

    @property
    def voters(self) -> int:
        """Registered voters, whether they spoke or not."""
        return self.votes.shape[1]

    @property
    def queries(self) -> int:
        """Queries of this block."""
        return self.votes.shape[0]

    @property
    def labels(self) -> int:
        """Labels of every ballot."""
        return self.votes.shape[2]

    def part(self, start: int, stop: int) -> DenseBlock:
        """Return its queries from ``start`` to before ``stop``."""
        return DenseBlock(self.votes[start:stop], self.missing, self.start + start)

    @property
    def large(self) -> bool:
        """Whether packing the votes pays."""
        return self.votes.size > _FEW

    def bits(self) -> Bits:
        """Return the yes-votes as bits; a missing vote is none."""
        return Bits.of_votes(np.asarray(self.votes == 1 if self.missing else self.votes, np.bool_))

    def margins(self, *, missing_is_no: bool) -> Margins:
        """Return yes minus no (queries, labels); a missing vote is neither, or a no."""
        if self.missing and not missing_is_no:
            yes, no = (_signed(_count(self.votes == vote), self.voters) for vote in (1, 0))
            return yes - no
        return _margins(self._yes(), self.voters)

    def _yes(self) -> npt.NDArray[Any]:
        return _count(self.votes if not self.missing else self.votes == 1)

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally (queries, labels) where a ballot with s ones has weight[s] a vote."""
        return self.bits().weighted(weights)

    def speakers(self) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Return (query, voter, yes-ballot) of every ballot that is not missing as a whole."""
        if self.missing:
            query, voter = np.nonzero((self.votes != MISSING).any(axis=2))
            return query, voter, self.votes[query, voter] == 1
        query = np.repeat(np.arange(self.queries), self.voters)
        voter = np.tile(np.arange(self.voters), self.queries)
        return query, voter, np.asarray(self.votes, bool).reshape(-1, self.labels)


class PackedBlock(DenseBlock):
    """Every voter's ballot, none missing, as bits; they are unpacked where somebody looks at each.

    Attributes
    ----------
    held
        The bits.
    """

    held: Bits
    large = True

    def __init__(self, held: Bits, start: int = 0) -> None:
        for name, value in (("held", held), ("missing", False), ("start", start)):
            object.__setattr__(self, name, value)

    @cached_property
    def votes(self) -> Votes:
        """(queries, voters, labels)."""
        return self.held.votes()

    @property
    def voters(self) -> int:
        """Registered voters."""
        return self.held.voters

    @property
    def queries(self) -> int:
        """Queries of this block."""
        return self.held.queries

    @property
    def labels(self) -> int:
        """Labels of every ballot."""
        return self.held.labels

    def part(self, start: int, stop: int) -> PackedBlock:
        """Return its queries from ``start`` to before ``stop``."""
        return PackedBlock(self.held.part(start, stop), self.start + start)

    def bits(self) -> Bits:
        """Return the votes as they are held."""
        return self.held

    def _yes(self) -> npt.NDArray[Any]:
        return self.held.yes()


@dataclass(frozen=True)
class SparseBlock:
    """Few of many voters speak: row i is voter ``voter[i]``'s ballot on query ``query[i]``.

    A silent voter casts no vote: zero everywhere for Binary and Tau, no class for Powerset and
    Plurality.
    """

    query: Counts
    voter: Counts
    votes: npt.NDArray[np.bool_]
    queries: int
    voters: int
    start: int = 0
    missing: bool = True

    @property
    def labels(self) -> int:
        """Labels of every ballot."""
        return self.votes.shape[1]

    def part(self, start: int, stop: int) -> SparseBlock:
        """Return its queries from ``start`` to before ``stop``."""
        here = (self.query >= start) & (self.query < stop)
        return replace(
            self,
            query=self.query[here] - start,
            voter=self.voter[here],
            votes=self.votes[here],
            queries=stop - start,
            start=self.start + start,
        )

    def margins(self, *, missing_is_no: bool) -> Margins:
        """Return 2 yes - voters (queries, labels): who is silent has not said yes."""
        del missing_is_no
        return _margins(self._sum(None), self.voters)

    def weighted(self, weights: Floats) -> Floats:
        """Return the tally (queries, labels) where a ballot with s ones has weight[s] a vote."""
        return self._sum(weights[self.votes.sum(axis=1)]).astype(np.float64)

    def _sum(self, weights: Floats | None) -> npt.NDArray[Any]:
        """Add up what ballots say; few say yes, so only the yes-votes are visited."""
        row, label = np.nonzero(self.votes)
        cell = self.query[row] * self.labels + label
        each = None if weights is None else weights[row]
        tally = np.bincount(cell, weights=each, minlength=self.queries * self.labels)
        return tally.reshape(self.queries, self.labels)

    def speakers(self) -> tuple[Counts, Counts, npt.NDArray[np.bool_]]:
        """Return (query, voter, yes-ballot) of every ballot cast."""
        return self.query, self.voter, self.votes


def _count(cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sum yes-votes over voters; bytes add up fastest in the narrowest type that holds n."""
    if cells.size > _FEW:
        return Bits.of_votes(cells).yes()
    voters = cells.shape[1]
    width: type[np.unsignedinteger[Any]] = np.uint8 if voters < 256 else np.uint32
    return np.asarray(np.add.reduce(cells.view(np.uint8), axis=1, dtype=width))


def _signed(yes: npt.NDArray[Any], voters: int) -> Margins:
    """Return counts in the fewest bits that hold twice as many as there are voters, and minus."""
    return yes.astype(np.min_scalar_type(-2 * voters - 1))


def _margins(yes: npt.NDArray[Any], voters: int) -> Margins:
    margins = _signed(yes, voters)
    margins *= 2
    margins -= voters
    return margins
