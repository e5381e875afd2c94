"""What each voter's change could tell: every voter's own bill, by two accountants. Sealed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..accounting import pld
from ..accounting.renyi import Floats, check_orders, epsilon
from ..errors import InputError, UnavailableError
from ..mechanisms import Mechanism
from ..mechanisms.cells import Ladder
from ..votes.cube import Ballots, BallotSource, Block, Counts, DenseBlock

ACCOUNTANTS = ("rdp", "pld", "smaller")

_CELLS = 2**21  # votes counted at a time
_LARGEST = 2**24  # voters times votes times margins that are counted for each voter: 128 MB


class VoterLevels:
    """In how many cells at each level each voter said what: (voters, votes, levels). Sealed."""

    def __init__(self, ladder: Ladder, sparse: bool) -> None:
        self._ladder, self._mechanism, self._missing = ladder, ladder.mechanism, ladder.missing
        # A vote that can be missing can change by half a flip; a silent voter casts zeros.
        self._halves = ladder.missing and not sparse
        shape = (ladder.voters, 1 + ladder.reach, len(ladder.margins))  # no, yes, missing
        self.counts: Counts = np.zeros(shape, np.int64)

    @classmethod
    def of(cls, mechanism: Mechanism, ballots: BallotSource) -> VoterLevels | None:
        """Return empty levels for these ballots.

        None for mechanisms that price no cells by level, and where the table would be too large:
        above 2,800 voters, or 1,600 if votes can be missing.
        """
        ladder = mechanism.by_level(ballots.voters, ballots.missing)
        if ladder is None:
            return None
        if ballots.voters * len(ladder.margins) * (1 + ladder.reach) > _LARGEST:
            return None
        return cls(ladder, ballots.sparse)

    def add(self, block: Block) -> None:
        """Count the votes of a block."""
        voters, kinds, levels = self.counts.shape
        places = self._ladder.places(self._mechanism.tally(block).margins)
        if isinstance(block, DenseBlock):
            step = max(1, max(_CELLS, self.counts.size) // (voters * block.labels))
            for start in range(0, block.queries, step):
                rows = slice(start, start + step)
                said = block.votes[rows].astype(np.int64) % 3
                if not self._missing:
                    said = said == 1
                cells = (np.arange(voters)[:, None] * kinds + said) * levels
                cells += places[rows, None, :]
                found = np.bincount(cells.reshape(-1), minlength=self.counts.size)
                self.counts += found.reshape(self.counts.shape)
            return
        # Sparse: everyone said no everywhere, but for the few cells where a speaker said yes.
        self.counts[:, 0] += np.bincount(places.reshape(-1), minlength=levels)
        query, voter, ballot = block.speakers()
        row, label = np.nonzero(ballot)
        who, where = voter[row], places[query[row], label]
        np.subtract.at(self.counts[:, 0], (who, where), 1)
        np.add.at(self.counts[:, 1], (who, where), 1)

    def moves(self) -> tuple[pld.Moves, Counts]:
        """Return moves of a cell, and how often each voter makes them: (voters, moves).

        One list for each voter stands for all its neighbours: what is observed tells at least as
        much as with any other ballots of that voter. Cells are independent, and a neighbour that
        leaves cells as they are is the same with less to look at. In one cell:

        - A complete vote can only flip.
        - One that can be missing can also change by half a flip. Where a released label is one bit
          whose probability rises with the margin, the farther of two moves to one side tells at
          least as much as the nearer.
        - A missing vote can move either way; and elsewhere, as with a gate, the nearer move can
          tell more. There both moves are listed: either alone is the same with less to look at.
        """
        shifts: tuple[tuple[int, ...], ...] = ((2,), (-2,), (1, -1))
        if self._halves and not self._mechanism.rises:
            shifts = ((2, 1), (-2, -1), (1, -1))
        here, there, times = [], [], []
        voters, kinds, _ = self.counts.shape
        for kind in range(kinds):
            seen = np.flatnonzero(self.counts[:, kind].any(axis=0))
            for step in shifts[kind]:
                margins = self._ladder.margins[seen]
                here.append(self._mechanism.log_probs(margins, voters))
                there.append(self._mechanism.log_probs(margins + step, voters))
                times.append(self.counts[:, kind, seen])
        moves = pld.Moves(np.concatenate(here), np.concatenate(there))
        return moves, np.concatenate(times, axis=1)


def voter_moves(mechanism: Mechanism, votes: Any) -> tuple[pld.Moves, Counts] | None:
    """Return :meth:`VoterLevels.moves` of a whole batch; None where there are none."""
    ballots = Ballots.of(votes)
    levels = VoterLevels.of(mechanism, ballots)
    if levels is None:
        return None
    for block in ballots.blocks():
        levels.add(block)
    return levels.moves()


class ByVoter(NamedTuple):
    """The epsilon of a batch, the largest over voters: by both accountants, and the smaller."""

    epsilon: float
    accountant: str
    rdp: float
    pld: float | None


def by_voter(mechanism: Mechanism, votes: Any, delta: float) -> ByVoter:
    """Return what a batch costs exactly, voter by voter, by the better accountant. Sealed.

    Both are valid for every voter and direction, so the smaller counts; ``pld`` is None where the
    curve is all there is (see :meth:`VoterLevels.of`).
    """
    each = _curve_epsilons(mechanism, votes, delta)
    rdp = float(each.max(initial=0.0))
    found = voter_moves(mechanism, votes)
    if found is None:
        return ByVoter(rdp, "rdp", rdp, None)
    loss = pld.epsilon_by_voter_max(*found, each, delta)
    return ByVoter(*pld.smaller(rdp, loss), rdp, loss)


def bills(mechanism: Mechanism, votes: Any, delta: float, accountant: str = "rdp") -> Floats:
    """Return each voter's own epsilon for a batch: (voters,). Sealed: for the owner's eyes.

    Parameters
    ----------
    accountant
        ``"rdp"``: the Rényi curve. ``"pld"``: the privacy-loss distribution, for mechanisms
        that price cells by level, such as Binary voting.
        ``"smaller"``: the smaller of both for each voter, and the curve where it is all there is.
    """
    if accountant not in ACCOUNTANTS:
        raise InputError("accountant", f"must be one of {', '.join(ACCOUNTANTS)}", accountant)
    found = None if accountant == "rdp" else voter_moves(mechanism, votes)
    if accountant == "pld" and found is None:
        raise UnavailableError(
            "accountant 'pld' is for mechanisms that count single votes, such as binary, with a "
            f"few thousand voters at most, got {mechanism}; 'rdp' prices every mechanism"
        )
    each = np.full((1, 2), np.inf)
    if accountant != "pld":
        each = _curve_epsilons(mechanism, votes, delta)
    if found is not None:
        moves, times = found
        loss = [pld.epsilons(way, times, delta) for way in (moves, moves.reversed())]
        each = np.minimum(each, np.stack(loss, axis=1))
    return np.asarray(each.max(axis=1))


def _curve_epsilons(mechanism: Mechanism, votes: Any, delta: float) -> Floats:
    """Return each voter's epsilon by the curve, in both directions: (voters, 2)."""
    orders = check_orders(None)
    return np.asarray(epsilon(mechanism.rdp_by_voter(votes, orders), orders, delta))
