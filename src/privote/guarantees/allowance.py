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
from functools import lru_cache
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
from ..errors import BudgetError, InputError, plural
from ..ledger import AllowanceState, Budget, Request
from ..mechanisms import Mechanism, TallyVoting, mechanism_of
from ..mechanisms.base import Bools
from ..votes.contributions import bound_contributions
from ..votes.cube import (
    MISSING,
    BallotSource,
    Block,
    Counts,
    DenseBlock,
    SparseBlock,
    block_queries,
)
from . import Drawn, Learnt, Sealed

_MOST = 2**62  # of contributions, in the finest unit: sums stay within an int64


# -- what is asked of a ledger ---------------------------------------------------------------------


def asked(request: Request, mechanism: Mechanism, labels: int, limits: Any) -> Request:
    """Return what a run of a named mechanism asks: the largest allowance that it pays for.

    Or ``limits`` where somebody sets them: one for all voters, or one for each, not larger.

    Raises
    ------
    BudgetError
        If not a single contribution fits.
    """
    cost, wanted = request.cost, request.allowance
    assert wanted is not None
    each = mechanism.contribution_rdp(wanted.voters, labels, DEFAULT_ORDERS)

    def price(epsilon: float) -> Floats:
        if epsilon == cost.epsilon:
            return FACTOR * limit * each
        return FACTOR * fitting(FACTOR * each, epsilon, cost.delta, MOST) * each

    most = fitting(FACTOR * each, cost.epsilon, cost.delta, MOST)
    if most < 1:
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} at delta {rounded_up(cost.delta)} does not allow "
            f"a contribution per voter with {mechanism}: use a larger sigma or epsilon"
        )
    allowed = check_allowance(limits, most, wanted.voters, cost)
    limit = int(allowed.max())
    room = request.room + (0 if (allowed == limit).all() else 24 * wanted.voters)
    return replace(request, allowance=replace(wanted, wanted=allowed), price=price, room=room)


def asked_to_learn(
    request: Request, ballots: BallotSource, planned: int, *, plans: bool
) -> Request:
    """Return what a run asks whose noise follows from an allowance: the same on every branch.

    It is learnt for so many queries in all, which somebody ``plans`` or not. Nothing is learnt in
    the worst case.
    """
    cost, wanted, learns = request.cost, request.allowance, request.guarantee == "allowance"
    assert wanted is not None
    size = wanted.voters, planned, ballots.labels
    learning, mu = learning_of(cost, *size, learns=learns)
    if not mu * WIDEST_ROUNDED > ballots.resolution * learning.cells**0.5:
        raise BudgetError(
            f"epsilon {rounded_up(cost.epsilon)} is too small for {plural(planned, 'query')} "
            f"on {plural(ballots.labels, 'label')}: the noise would be too large to draw"
        )
    if learning.cells * ballots.resolution**2 > _MOST:
        raise InputError("plan_for", f"must leave at most {_MOST:g} votes per voter", planned)

    def price(epsilon: float) -> Floats:
        part, mu = learning_of(replace(cost, epsilon=epsilon), *size, learns=learns)
        return line(part.epsilon0, mu) * DEFAULT_ORDERS

    terms = Learnt(
        planned=planned, resolution=ballots.resolution, epsilon0=learning.epsilon0, mu=mu
    )
    return replace(
        request,
        terms={**request.terms, "learnt": vars(terms)},
        allowance=replace(
            wanted,
            terms={**wanted.terms, "resolution": ballots.resolution},
            queries=ballots.queries,
            planned=planned,
            plans=plans,
        ),
        price=price,
    )


@lru_cache(maxsize=256)
def learning_of(
    cost: Budget, voters: int, queries: int, labels: int, *, learns: bool = True
) -> tuple[Learning, float]:
    """Return how an allowance is learnt within a cost, and the mu that is left for tallies."""
    epsilon0 = learning_epsilon(settled(cost.epsilon, cost.delta)[1], voters) if learns else 0.0
    learning = Learning(voters=voters, queries=queries, labels=labels, epsilon0=epsilon0)
    return learning, mu_of_budget(cost.epsilon, cost.delta, epsilon0)


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


# -- what is drawn ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SeatedBallots:
    """The ballots of a run, and the seats of who cast them.

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
        complete = self.ballots.sparse or self.ballots.voters == self.voters
        start = 0
        for block in self.ballots.blocks() if complete else self._even():
            guess = self.baseline[start : start + block.queries]
            yield block if self.seats is None else self._seated(block, self.seats), guess
            start += block.queries

    def _seated(self, block: Block, seats: Counts) -> Block:
        if isinstance(block, SparseBlock):
            size = block.queries, self.voters, block.start
            return SparseBlock(block.query, seats[block.voter], block.votes, *size)
        votes = np.full((block.queries, self.voters, block.labels), MISSING, np.int8)
        votes[:, seats] = block.votes
        return DenseBlock(votes, missing=True, start=block.start)

    def _even(self) -> Iterator[Block]:
        step, start = block_queries(self.voters, self.ballots.labels), 0
        waiting = np.zeros((0, self.ballots.voters, self.ballots.labels), np.int8)
        for block in self.ballots.blocks():
            assert isinstance(block, DenseBlock)
            waiting = np.concatenate([waiting, block.votes.astype(np.int8, copy=False)])
            while len(waiting) >= step:
                yield DenseBlock(waiting[:step], missing=True, start=start)
                waiting, start = waiting[step:], start + step
        if len(waiting):
            yield DenseBlock(waiting, missing=True, start=start)


def draw(
    account: AllowanceState, seated: SeatedBallots, mechanism: Mechanism, entropy: Entropy
) -> Drawn:
    """Draw every query, block by block: contributions beyond what is left count as the baseline."""
    ballots = seated.ballots
    unit = ballots.resolution**2
    spent, clipped, start = account.spent.copy(), account.clipped.copy(), 0
    outcome: npt.NDArray[Any] = np.empty((ballots.queries, ballots.labels), mechanism.outcomes)
    for block, baseline in seated.blocks():
        counted, cast, cut = bound_contributions(
            block,
            baseline,
            np.where(clipped > 0, 0, unit * account.allowance - spent),  # who was clipped has none
            unit=mechanism.contribution_unit,
            missing_counts_as_no=mechanism.missing_counts_as_no,
            resolution=ballots.resolution,
        )
        spent, clipped = spent + cast, clipped + cut
        drawn = mechanism.draw(mechanism.tally(counted), entropy)
        outcome[start : start + block.queries] = drawn
        start += block.queries
    return Drawn(
        outcome=outcome,
        mechanism=mechanism,
        allowance=account.limits,
        answered_total=account.answered + ballots.queries,
        spending=(spent - account.spent, clipped - account.clipped),
    )


def draw_learnt(account: AllowanceState, seated: SeatedBallots, entropy: Entropy) -> Drawn:
    """Draw tallies with the noise of a learnt allowance; draw that first if nobody has."""
    terms, learnt = Learnt(**account.charge.terms["learnt"]), None
    if account.mechanism is None:
        learning = Learning(
            voters=seated.voters,
            queries=terms.planned,
            labels=seated.ballots.labels,
            epsilon0=terms.epsilon0,
        )
        allowance = learning.grid[0]
        if account.charge.guarantee == "worst-case":
            allowance = -(-learning.cells // 2)  # cuts nobody
        elif learning.learns:
            scale = Fraction(terms.planned, seated.ballots.queries * terms.resolution**2)
            scores = learning.scores(_contributions(seated), scale).tolist()
            place = entropy.exponential_mechanism(scores, Fraction(learning.epsilon0) / 2)
            allowance = learning.grid[place]
        grid = None if terms.resolution == 1 else terms.resolution
        mechanism: Mechanism = TallyVoting(sigma=learning.sigma(allowance, terms.mu), grid=grid)
        learnt = mechanism.parameters(), learning.limit(allowance)
        account = replace(account, allowance=np.full(seated.voters, learnt[1], np.int64))
    else:
        mechanism = mechanism_of(dict(account.mechanism))
    drawn = draw(account, seated, mechanism, entropy)
    allowed = None if account.charge.guarantee == "worst-case" else drawn.allowance
    return replace(drawn, terms=terms, learnt=learnt, allowance=allowed)


def _contributions(seated: SeatedBallots) -> Counts:
    """Return how many contributions each voter would cast, if nothing were cut: (voters,)."""
    total = np.zeros(seated.voters, np.int64)
    unlimited = np.full(seated.voters, np.iinfo(np.int64).max, np.int64)
    for block, baseline in seated.blocks():
        total += bound_contributions(
            block,
            baseline,
            unlimited,
            unit="vote",
            missing_counts_as_no=True,
            resolution=seated.ballots.resolution,
        )[1]
    return total


def curve_of(account: AllowanceState, mechanism: Mechanism, labels: int) -> Floats:
    """Return what a named mechanism costs: the allowance of the voter who has most, (orders,)."""
    each = mechanism.contribution_rdp(len(account.allowance), labels, DEFAULT_ORDERS)
    return np.asarray(FACTOR * account.allowance.max() * each)


def sealed(account: AllowanceState, seats: Counts | None, resolution: int) -> Sealed:
    """Return what voters have spent by now, for the owner's eyes, in the order of the ballots."""
    at = slice(None) if seats is None else seats
    return Sealed(
        spent=-(-account.spent[at] // resolution**2),
        clipped=account.clipped[at].copy(),
        allowance=account.allowance[at].copy(),
    )
