"""The votes a calibration looks at, as a guarantee counts them. Public, or paid for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ballots import BallotSource
from ..blocks import Block, Counts, DenseBlock, SparseBlock
from ..errors import InputError
from ..mechanisms import BinaryVoting, Mechanism, TauVoting
from ..mechanisms.cells import CellMechanism
from ..mechanisms.classes import ClassMechanism, ClassTally
from ..surprises import effective

Bools = npt.NDArray[np.bool_]

_PLENTY = np.iinfo(np.int64).max  # an allowance that never ends


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Ballots, and how they count.

    Attributes
    ----------
    ballots
        (queries, voters, labels).
    guess
        (queries, labels) baseline if the votes count under an allowance, where who is missing
        counts as the baseline; else None, and the mechanism decides what a missing vote is.
    """

    ballots: BallotSource
    guess: Bools | None

    def blocks(
        self, mechanism: Mechanism, allowance: int | None = None
    ) -> Iterator[tuple[slice, Block]]:
        """Yield the places of consecutive queries and the ballots that count there.

        Parameters
        ----------
        mechanism
            Its unit of surprise counts.
        allowance
            How many surprises every voter has in its life; without end by default.
        """
        left = np.full(self.ballots.voters, _PLENTY if allowance is None else allowance, np.int64)
        start = 0
        for block in self.ballots.blocks():
            rows = slice(start, start + block.queries)
            start = rows.stop
            if self.guess is None:
                yield rows, block
                continue
            counted, spent, *_ = effective(
                block,
                self.guess[rows],
                left,
                unit=mechanism.surprise_unit,
                silence_is_zeros=mechanism.name != "powerset",
            )
            left = left - spent
            yield rows, counted

    def busiest(self, mechanism: Mechanism) -> Counts:
        """Return how many surprises the busiest voter has cast after each query: (queries,)."""
        assert self.guess is not None
        cast = np.zeros(self.ballots.voters, np.int64)
        most = [
            _running(block, self.guess[rows], cast, mechanism)
            for rows, block in self.blocks(mechanism)
        ]
        return np.asarray(np.maximum.accumulate(np.concatenate(most)))

    def without_noise(self, mechanism: Mechanism) -> Bools:
        """Return what would be released without noise: (queries, labels).

        Labels above the bar (a tie is a no), or the class with the most votes.
        """
        want = np.zeros((self.ballots.queries, self.ballots.labels), np.bool_)
        for rows, block in self.blocks(mechanism):
            tally = mechanism.tally(block)
            if isinstance(mechanism, CellMechanism):
                chances = mechanism.log_probs(tally.margins, tally.voters)
                want[rows] = chances[..., 1] > chances[..., 0]
            else:
                want[rows] = _leading(tally)
        return want


class Wanted:
    """What should be released (queries, labels): the truth, or what would be without noise."""

    def __init__(self, sample: Sample, truth: npt.ArrayLike | None = None) -> None:
        self._sample = sample
        self._truth = None if truth is None else _check_truth(truth, sample.ballots)
        self._known: dict[Mechanism, Bools] = {}

    @property
    def name(self) -> str:
        """What utility is measured against, in words."""
        return "the noise-free outcome" if self._truth is None else "the truth"

    def __call__(self, mechanism: Mechanism) -> Bools:
        """Return it for ballots counted as this mechanism does."""
        if self._truth is not None:
            return self._truth
        whole = unclipped(mechanism, self._sample.ballots.labels)
        if whole not in self._known:
            self._known[whole] = self._sample.without_noise(whole)
        return self._known[whole]


def unclipped(mechanism: Mechanism, labels: int) -> Mechanism:
    """Return the mechanism whose noise-free outcome is to be met: for Tau, on whole ballots.

    Measured against clipped ballots, clipping everything away would look best. Mechanisms that
    count alike give the same, whatever their noise and gate.
    """
    if isinstance(mechanism, TauVoting):
        return TauVoting(sigma=1.0, tau=labels)
    if isinstance(mechanism, BinaryVoting):
        return BinaryVoting(sigma=1.0, quota=mechanism.quota)
    assert isinstance(mechanism, ClassMechanism)
    return replace(mechanism, sigma=1.0, gate=None)


def longest_ballot(ballots: BallotSource) -> int:
    """Return how many yes-votes the longest ballot has."""
    sizes = (block.speakers()[2].sum(axis=1) for block in ballots.blocks())
    return max(int(size.max(initial=0)) for size in sizes)


def _running(block: Block, guess: Bools, cast: Counts, mechanism: Mechanism) -> Counts:
    """Add a block's surprises to ``cast``; return the most any voter has cast by then: (queries,).

    Of a sparse block only those who speak are looked at, so a later query may show less.
    """
    single = mechanism.surprise_unit == "vote"
    if isinstance(block, SparseBlock):
        size = block.votes.sum(axis=1)
        # Saying "none of them" differs from saying nothing only where the empty set is a class.
        spoke = np.ones_like(size) if mechanism.name == "powerset" else size > 0
        counts = size if single else spoke.astype(np.int64)
        order = np.argsort(block.query, kind="stable")
        ends = np.searchsorted(block.query[order], np.arange(block.queries + 1))
        most = np.zeros(block.queries, np.int64)
        for row in range(block.queries):
            here = order[ends[row] : ends[row + 1]]
            cast[block.voter[here]] += counts[here]  # at most one ballot a voter and query
            most[row] = cast[block.voter[here]].max(initial=0)
        return most
    assert isinstance(block, DenseBlock)
    departs = block.votes != guess[:, None, :]
    count = departs.sum(axis=2) if single else departs.any(axis=2)
    running = cast + np.cumsum(count, axis=0)
    cast[:] = running[-1]
    return np.asarray(running.max(axis=1))


def _leading(tally: ClassTally) -> Bools:
    """Return the class with the most votes of each query, or nothing where nobody votes."""
    if not len(tally.ballots):
        return np.zeros((len(tally.profiles), tally.ballots.shape[1]), np.bool_)
    voted = tally.profiles[:, :1] > 0
    return np.asarray(tally.ballots[tally.winners[:, 0]] & voted)


def _check_truth(truth: Any, ballots: BallotSource) -> Bools:
    """Return the true labels (queries, labels) as bool."""
    shape = (ballots.queries, ballots.labels)
    array = np.asarray(truth)
    if array.shape != shape:
        raise InputError(f"truth must be (queries, labels) = {shape}, got shape {array.shape}")
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise InputError("truth must hold 0 and 1 only")
    return array.astype(np.bool_)
