"""Prices of consensus: what these votes cost, and what of that may be said.

The paper's guarantee: a statement about these votes; its exact epsilon is sealed. One that may be
published follows from the smooth sensitivity (:mod:`privote.accounting.sanitize`), which is proved
for mechanisms that price cells by level, such as Binary voting, gated or not: the cost is a sum
over cells of a table by level, and one changed ballot moves every cell by at most one vote. Each
voter's own bill, by two accountants, is sealed as well.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..accounting import pld
from ..accounting import sanitize as rules
from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon
from ..entropy import Entropy
from ..errors import InputError, UnavailableError
from ..mechanisms import Mechanism
from ..mechanisms.cells import CellTally, MarginGrid
from ..votes.cube import Ballots, BallotSource, Block, Counts, DenseBlock
from . import Drawn, Later, Sanitized, Sealed

_CHUNK = 2**14  # costs worked out at a time
_TABLE = 2**20  # costs that are worked out to choose an order


def draw(ballots: BallotSource, mechanism: Mechanism, delta: float, entropy: Entropy) -> Drawn:
    """Price and draw in one pass: the tally that is priced is the one that is drawn."""
    orders, start = DEFAULT_ORDERS, 0
    levels, total = MarginHistogram.of(mechanism, ballots), np.zeros(len(orders))
    outcome: npt.NDArray[Any] = np.empty((ballots.queries, ballots.labels), mechanism.outcomes)
    for block in ballots.blocks():
        tally = mechanism.tally(block)
        total += mechanism.total_cost(tally, orders=orders, bound="exact")
        if levels is not None:
            levels.add(tally)
        outcome[start : start + block.queries] = mechanism.draw(tally, entropy)
        start += block.queries
    epsilon, terms = sanitize(levels, orders, delta, entropy)
    return Drawn(outcome=outcome, mechanism=mechanism, epsilon=epsilon, terms=terms, curve=total)


def sealed(ballots: BallotSource, mechanism: Mechanism, delta: float, curve: Floats) -> Sealed:
    """Return what these votes cost exactly, for the owner's eyes."""
    exact = Later(lambda: by_voter(mechanism, ballots, delta))
    return Sealed(
        epsilon=epsilon(curve, DEFAULT_ORDERS, delta),
        rdp=curve,
        orders=DEFAULT_ORDERS,
        bound="exact",
        bills=partial(bills, mechanism, ballots, delta),
        epsilon_by_voter=Later(lambda: exact.value.epsilon),
        accountant=Later(lambda: exact.value.accountant),
        epsilon_rdp=Later(lambda: exact.value.rdp),
        epsilon_pld=Later(lambda: exact.value.pld),
    )


class MarginHistogram:
    """How many cells stand at each margin, and what one costs there. Sealed."""

    def __init__(self, grid: MarginGrid) -> None:
        self.grid = grid
        self.histogram: Counts = np.zeros(len(grid.margins), np.int64)

    @classmethod
    def of(cls, mechanism: Mechanism, ballots: BallotSource) -> MarginHistogram | None:
        """Return empty levels for these ballots; None where there is no proof."""
        grid = mechanism.margin_grid(ballots.voters, ballots.missing)
        return None if grid is None else cls(grid)

    def add(self, tally: CellTally) -> None:
        """Count the cells of a tally."""
        places = self.grid.places(tally.margins.reshape(-1))
        self.histogram += np.bincount(places, minlength=len(self.histogram))

    def costs(self, orders: Floats) -> Floats:
        """Return the two-sided cost of a cell at each order and margin: (orders, levels)."""
        chunk = max(1, _CHUNK // len(orders))
        starts = range(0, len(self.histogram), chunk)
        parts = [self.grid.costs(slice(start, start + chunk), orders) for start in starts]
        return np.concatenate(parts).T

    def few(self, orders: Floats) -> Floats:
        """Return the orders to choose one from: all, or fewer where tables are long. Public."""
        return orders[:: max(1, len(self.histogram) * len(orders) // _TABLE)]


def sanitize(
    levels: MarginHistogram | None, orders: Floats, delta: float, entropy: Entropy
) -> tuple[float | None, Sanitized | None]:
    """Return an epsilon that may be published, and its public terms; None where unproved."""
    if levels is None:
        return None, None
    orders = levels.few(orders)
    costs, cells = levels.costs(orders), int(levels.histogram.sum())
    order = rules.public_order(costs, orders, cells, delta)
    beta, gamma, sigma_s = rules.default_beta(order), rules.GAMMA, rules.SIGMA_S
    table = levels.costs(np.array([order]))[0]
    price = rules.release_cost(order, beta, sigma_s, gamma)
    upper = rules.sanitized_upper(
        float(levels.histogram @ table),
        rules.smooth_sensitivity(table, levels.histogram, beta, levels.grid.max_shift),
        sigma_s,
        float(ndtri(entropy.uniform(1)[0])),
        gamma,
    )
    terms = Sanitized(order=order, beta=beta, sigma_s=sigma_s, gamma=gamma, price=price)
    return rules.statement_epsilon(upper, price, order, delta), terms


# -- every voter's own bill ------------------------------------------------------------------------

ACCOUNTANTS = ("rdp", "pld", "smaller")

_CELLS = 2**21  # votes counted at a time
_LARGEST = 2**24  # voters times votes times margins that are counted for each voter: 128 MB


class VoterLevels:
    """In how many cells at each level each voter said what: (voters, votes, levels). Sealed."""

    def __init__(self, grid: MarginGrid, sparse: bool) -> None:
        self._grid, self._mechanism, self._missing = grid, grid.mechanism, grid.missing
        # A vote that can be missing can change by half a flip; a silent voter casts zeros.
        self._halves = grid.missing and not sparse
        shape = (grid.voters, 1 + grid.max_shift, len(grid.margins))  # no, yes, missing
        self.counts: Counts = np.zeros(shape, np.int64)

    @classmethod
    def of(cls, mechanism: Mechanism, ballots: BallotSource) -> VoterLevels | None:
        """Return empty levels for these ballots.

        None for mechanisms that price no cells by level, and where the table would be too large:
        above 2,800 voters, or 1,600 if votes can be missing.
        """
        grid = mechanism.margin_grid(ballots.voters, ballots.missing)
        if grid is None:
            return None
        if ballots.voters * len(grid.margins) * (1 + grid.max_shift) > _LARGEST:
            return None
        return cls(grid, ballots.sparse)

    def add(self, block: Block) -> None:
        """Count the votes of a block."""
        voters, kinds, levels = self.counts.shape
        places = self._grid.places(self._mechanism.tally(block).margins)
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
                margins = self._grid.margins[seen]
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
        ``"rdp"``: Rényi divergence. ``"pld"``: the privacy-loss distribution, for mechanisms that
        count single votes, such as Binary voting. ``"smaller"``: the smaller of both for each voter
        (only ``"rdp"`` where ``"pld"`` is not available).

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.zeros((10, 50, 4), bool)
    >>> pv.bills(pv.BinaryVoting(sigma=7.0), votes, delta=1e-5).shape
    (50,)
    """
    if accountant not in ACCOUNTANTS:
        raise InputError("accountant", f"must be one of {', '.join(ACCOUNTANTS)}", accountant)
    found = None if accountant == "rdp" else voter_moves(mechanism, votes)
    if accountant == "pld" and found is None:
        raise UnavailableError(
            "accountant 'pld' is for mechanisms that count single votes, such as binary, with at "
            f"most a few thousand voters, got {mechanism}; 'rdp' works with every mechanism"
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
    return np.asarray(epsilon(mechanism.rdp_by_voter(votes), None, delta))
