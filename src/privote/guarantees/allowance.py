"""Allowance: every voter may depart from a public baseline so many times in its life.

The whole cost is charged once; later batches go on with it
(:mod:`privote.accounting.allowance` has the theorem). Blocks come with every registered voter on
its seat.

A *learnt* allowance is one number about the voters, paid for, and the noise that follows from it.
Everything is charged first, the same whatever will be learnt. Then voters' contributions are
counted, the allowance is drawn, and the tallies with it; both are committed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import (
    FACTOR,
    MOST,
    Learning,
    learning_epsilon,
    line,
    mu_of_budget,
    settled,
)
from ..accounting.filters import fitting
from ..accounting.renyi import DEFAULT_ORDERS, Floats, rounded_up
from ..entropy import WIDEST_ROUNDED, Entropy
from ..errors import BudgetError, InputError, whole
from ..ledger import AllowanceState, Budget
from ..mechanisms import Mechanism, TallyVoting, mechanism_of
from ..mechanisms.base import Bools
from ..votes.contributions import bound_contributions, remaining
from ..votes.cube import (
    MISSING,
    BallotSource,
    Block,
    Counts,
    DenseBlock,
    SparseBlock,
    block_queries,
)
from .guarantee import Learnt

_MOST = 2**62  # of contributions, in the finest unit: sums stay within an int64


@dataclass(frozen=True, eq=False)
class Electorate:
    """The ballots of a run, and who cast them.

    Attributes
    ----------
    ballots
        Votes, of some or all registered voters.
    voters
        How many are registered.
    seats
        The seat of each of the ballots' voters; None if all come in the order of their seats.
    baseline
        (queries, labels) the public guess.
    """

    ballots: BallotSource
    voters: int
    seats: Counts | None
    baseline: Bools

    def blocks(self) -> Iterator[tuple[Block, Bools]]:
        """Yield blocks with every registered voter on its seat, each with its baseline.

        Blocks are cut as if everybody were there, so who is absent leaves no trace in their sizes.
        """
        start = 0
        for block in self._even():
            yield self._seated(block), self.baseline[start : start + block.queries]
            start += block.queries

    def _seated(self, block: Block) -> Block:
        if self.seats is None:
            return block
        if isinstance(block, SparseBlock):
            size = block.queries, self.voters, block.start
            return SparseBlock(block.query, self.seats[block.voter], block.votes, *size)
        votes = np.full((block.queries, self.voters, block.labels), MISSING, np.int8)
        votes[:, self.seats] = block.votes
        return DenseBlock(votes, missing=True, start=block.start)

    def _even(self) -> Iterator[Block]:
        ballots = self.ballots
        if ballots.sparse or ballots.voters == self.voters:
            yield from ballots.blocks()
            return
        step, start = block_queries(self.voters, ballots.labels), 0
        waiting = np.zeros((0, ballots.voters, ballots.labels), np.int8)
        for block in ballots.blocks():
            assert isinstance(block, DenseBlock)
            waiting = np.concatenate([waiting, block.votes.astype(np.int8, copy=False)])
            while len(waiting) >= step:
                yield DenseBlock(waiting[:step], missing=True, start=start)
                waiting, start = waiting[step:], start + step
        if len(waiting):
            yield DenseBlock(waiting, missing=True, start=start)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn, and what each voter took from its allowance: spent, clipped."""

    outcome: npt.NDArray[Any]
    mechanism: Mechanism
    spending: tuple[Counts, Counts]
    limit: int | None = None  # contributions that count, where they were learnt


def draw(
    account: AllowanceState, electorate: Electorate, mechanism: Mechanism, entropy: Entropy
) -> Drawn:
    """Draw every query, block by block: contributions beyond what is left count as the baseline."""
    ballots = electorate.ballots
    unit = ballots.resolution**2
    spent, clipped, start = account.spent.copy(), account.clipped.copy(), 0
    outcome: npt.NDArray[Any] = np.empty((ballots.queries, ballots.labels), mechanism.outcomes)
    for block, baseline in electorate.blocks():
        counted, cast, cut = bound_contributions(
            block,
            baseline,
            remaining(unit * account.allowance, spent, clipped),
            unit=mechanism.contribution_unit,
            missing_counts_as_no=mechanism.missing_counts_as_no,
            resolution=ballots.resolution,
        )
        spent, clipped = spent + cast, clipped + cut
        drawn = mechanism.draw(mechanism.tally(counted), entropy)
        outcome[start : start + block.queries] = drawn
        start += block.queries
    return Drawn(outcome, mechanism, (spent - account.spent, clipped - account.clipped))


# -- a named mechanism -----------------------------------------------------------------------------


def largest_allowance(
    mechanism: Mechanism, voters: int, labels: int, cost: Budget
) -> tuple[int, Floats]:
    """Return the largest allowance that a run of this cost pays for, and one contribution's curve.

    Raises
    ------
    BudgetError
        If not a single contribution fits.
    """
    each = mechanism.contribution_rdp(voters, labels, DEFAULT_ORDERS)
    most = contributions_that_fit(each, cost)
    if most < 1:
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} at delta {rounded_up(cost.delta)} does not allow "
            f"a contribution per voter with {mechanism}: use a larger sigma or epsilon"
        )
    return most, each


def contributions_that_fit(each: Floats, cost: Budget) -> int:
    """Return the largest allowance within a cost, by what one contribution costs: (orders,)."""
    return fitting(FACTOR * each, cost.epsilon, cost.delta, MOST)


def check_allowance(wanted: npt.ArrayLike | None, most: int, voters: int, cost: Budget) -> Counts:
    """Return every voter's allowance (voters,): what was asked for, or the largest."""
    if wanted is None:
        return np.full(voters, most, np.int64)
    try:
        array = np.asarray(wanted)
    except ValueError:  # ragged
        array = np.asarray(None)
    integers = array.dtype.kind in "iu" and array.shape in ((), (voters,))
    # Before the cast, which would wrap around: a large unsigned number would become negative.
    if not integers or array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        rule = f"must be one integer or one per voter ({voters}), from 0 to 2**63 - 1"
        raise InputError("allowance", rule, wanted)
    if array.max() < 1:
        raise BudgetError("an allowance of 0 contributions releases nothing about any voter")
    if array.max() > most:
        raise InputError(
            "allowance",
            f"must lie in 0..{most}, the largest that keeps "
            f"`epsilon={rounded_up(cost.epsilon)}`; got {array.max()}",
        )
    return np.broadcast_to(array, (voters,)).astype(np.int64)


def check_baseline(
    baseline: Any, ballots: BallotSource, most: int | None, *, first: int | None = None
) -> Bools:
    """Return a public guess (queries, labels) with at most so many positives a query.

    With ``first`` the ballots are the first ones of those that the baseline is about.
    """
    shape = (ballots.queries, ballots.labels)
    if baseline is None:
        return np.broadcast_to(np.zeros((), np.bool_), shape)
    try:
        guess: npt.NDArray[Any] = np.atleast_1d(np.asarray(baseline))[:first]
    except ValueError:  # ragged
        raise InputError("baseline", "must be a table (queries, labels) of 0 and 1") from None
    if guess.shape != shape:
        raise InputError("baseline", f"must be (queries, labels) = {shape}, got {guess.shape}")
    # A bool from outside may hide any byte.
    values = guess.view(np.uint8) if guess.dtype == np.bool_ else guess
    if not ((values == 0) | (values == 1)).all():
        raise InputError("baseline", "must contain only 0 and 1")
    if ballots.sparse and guess.any():
        raise InputError("sparse ballots need a zero baseline: a silent voter casts zeros")
    if most is not None and (guess.sum(axis=1) > most).any():
        raise InputError("baseline", f"must have at most {most} positives per query")
    return guess.astype(np.bool_)


# -- a learnt allowance ----------------------------------------------------------------------------


def learnt_terms(
    cost: Budget,
    voters: int,
    ballots: BallotSource,
    *,
    planned: int,
    learns: bool,
) -> Learnt:
    """Return the public terms of tallies whose noise follows from an allowance."""
    epsilon0, mu = _settled_for(cost.epsilon, cost.delta, voters, learns)
    learning = Learning(voters=voters, queries=planned, labels=ballots.labels, epsilon0=epsilon0)
    if not mu * WIDEST_ROUNDED > ballots.resolution * learning.cells**0.5:
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} is too small for {planned:,} queries on "
            f"{ballots.labels:,} labels: the noise would be too large to draw"
        )
    if learning.cells * ballots.resolution**2 > _MOST:
        raise InputError("plan_for", f"must leave at most {_MOST:g} votes per voter", planned)
    return Learnt(planned=planned, resolution=ballots.resolution, epsilon0=epsilon0, mu=mu)


def learnt_price(epsilon: float, delta: float, voters: int, learns: bool) -> Floats:
    """Return what learnt tallies of this epsilon cost: a line in the order, on every branch."""
    return line(*_settled_for(epsilon, delta, voters, learns)) * DEFAULT_ORDERS


def _settled_for(epsilon: float, delta: float, voters: int, learns: bool) -> tuple[float, float]:
    """Return epsilon0 of the learning, and the mu that is left for tallies."""
    rho = settled(epsilon, delta)[1]
    epsilon0 = learning_epsilon(rho, voters) if learns else 0.0
    return epsilon0, mu_of_budget(epsilon, delta, epsilon0)


def check_planned(plan_for: Any, asked: int) -> int:
    """Return for how many queries an allowance is learnt, these included."""
    planned = asked if plan_for is None else whole("plan_for", plan_for)
    if planned < asked:
        raise InputError("plan_for", f"must be at least the {asked} queries asked now", plan_for)
    return planned


def draw_learnt(
    account: AllowanceState, electorate: Electorate, terms: Learnt, entropy: Entropy
) -> Drawn:
    """Draw tallies with the noise of a learnt allowance; draw that first if nobody has."""
    if account.mechanism is not None:
        return draw(account, electorate, mechanism_of(dict(account.mechanism)), entropy)
    ballots = electorate.ballots
    learning = Learning(
        voters=electorate.voters,
        queries=terms.planned,
        labels=ballots.labels,
        epsilon0=terms.epsilon0,
    )
    place = 0
    if learning.learns:
        scale = Fraction(terms.planned, ballots.queries * terms.resolution**2)
        scores = learning.scores(_contributions(electorate), scale).tolist()
        place = entropy.exponential_mechanism(scores, Fraction(learning.epsilon0) / 2)
    allowance = learning.grid[place]
    if account.charge.guarantee == "worst-case":
        allowance = -(-learning.cells // 2)  # cuts nobody
    mechanism = TallyVoting(
        sigma=learning.sigma(allowance, terms.mu),
        grid=None if terms.resolution == 1 else terms.resolution,
    )
    limit = learning.limit(allowance)
    limited = replace(account, allowance=np.full(electorate.voters, limit, np.int64))
    return replace(draw(limited, electorate, mechanism, entropy), limit=limit)


def _contributions(electorate: Electorate) -> Counts:
    """Return how many contributions each voter would cast, if nothing were cut: (voters,)."""
    total = np.zeros(electorate.voters, np.int64)
    unlimited = np.full(electorate.voters, np.iinfo(np.int64).max, np.int64)
    for block, baseline in electorate.blocks():
        total += bound_contributions(
            block,
            baseline,
            unlimited,
            unit="vote",
            missing_counts_as_no=True,
            resolution=electorate.ballots.resolution,
        )[1]
    return total
