"""Allowance: every voter may depart from a public baseline V times in its life.

The whole cost is charged once, at the first answer; later batches go on with it
(:mod:`privote.accounting.allowance` has the theorem). Blocks come with every registered voter on
its seat.

A *learnt* allowance is one number about the voters, paid for, and the noise that follows from it.
Everything is charged first, the same whatever will be learnt. Then voters' contributions are
counted, the allowance is drawn, once, and it is durable before a tally is drawn. What was drawn in
a process that died before that never left it, so the next one draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.allowance import Learning, learning_epsilon, line, mu_of_budget, settled
from ..accounting.renyi import DEFAULT_ORDERS, rounded_up
from ..entropy import WIDEST_ROUNDED
from ..errors import BudgetError, InputError, shown, whole
from ..mechanisms import Mechanism, TallyVoting, mechanism_of
from ..mechanisms.base import Bools
from ..release import Release, Sealed
from ..votes.contributions import effective
from ..votes.cube import (
    MISSING,
    BallotSource,
    Block,
    Counts,
    DenseBlock,
    SparseBlock,
    block_queries,
)
from ..votes.names import folded
from .accounts import Allowance, Roll, plain
from .issuer import Issuer, Labels, Parts, charged

#: What entries say in the place of settings that are not known when they are charged.
PENDING = {
    "allowance": {"mechanism": TallyVoting.name, "noise": "learnt"},
    "worst-case": {"mechanism": TallyVoting.name, "noise": "solved"},
}
_MOST = 2**62  # of contributions, in the finest unit: sums stay within an int64


def register(
    issuer: Issuer, voters: int, labels: int, wanted: Any, ids: dict[str, int] | None
) -> Allowance:
    """Find this electorate's account in the ledger, or open and charge it."""
    return issuer.accounts.open(
        partial(issuer.mechanism.contribution_rdp, voters, labels, DEFAULT_ORDERS),
        None if wanted is None else check_allowance(wanted, voters),
        {"voters": voters, "labels": labels},
        None if ids is None else roll_of(issuer, ids),
    )


def roll_of(issuer: Issuer, ids: dict[str, int]) -> Roll:
    """Return the digests of named voters, as the ledger has them."""
    return {name: issuer.accounts.ledger.name_voter(name) for name in ids}


def release(
    issuer: Issuer,
    ballots: BallotSource,
    queries: int | None,
    baseline: Any,
    wanted: Any,
    ids: dict[str, int] | None,
    voter_ids: Sequence[Any] | None,
    parts: Parts | None,
    plan_for: int | None,
) -> Release:
    """Answer every query, block by block: contributions are entered before a block is drawn."""
    shape, here = (ballots.queries, ballots.labels), None
    if ids is not None or voter_ids is not None:
        here = seats_in_batch(ids, ballots.voters, voter_ids)
    guess: Bools = np.broadcast_to(np.zeros((), np.bool_), shape)
    if baseline is not None:
        guess = check_baseline(baseline, ballots, issuer.mechanism, first=queries)
    if issuer.learns:
        allowance = charge_learnt(
            issuer, ballots, None if ids is None else roll_of(issuer, ids), plan_for
        )
    else:
        issuer.mechanism.check(ballots)
        named = ballots.voters if ids is None else len(ids)
        allowance = register(issuer, named, ballots.labels, wanted, ids)
        allowance = replace(allowance, unit=ballots.steps**2)
    places, voters = allowance.seats, len(allowance.each)
    if here is not None:
        places = here if places is None else places[here]
    # Without a ledger that lasts, a run that is resumed knows by its parts alone what was spent.
    alone = parts is not None and not issuer.accounts.ledger.lasts
    first = parts.ahead() if parts is not None and alone else None
    if first is not None:
        check_resumed(first, allowance, ballots)
    if issuer.learns:
        seen = registered_blocks(ballots, places, voters)
        allowance = learn(issuer, allowance, ballots, seen, guess, first)
        more = {} if ballots.near is None else {"near": ballots.near}
        issuer, publish = learnt_settings(issuer, allowance, more)
    else:
        publish = partial(
            issuer.publish,
            voters=voters,
            epsilon=issuer.epsilon(allowance.curve),
            allowance=plain(allowance.each),
        )
    mechanism, start = issuer.mechanism, 0
    labels: Labels = np.empty(shape, mechanism.outcomes)  # once, not in pieces

    def weigh(
        block: Block, taken: tuple[Counts, Counts] | None, left: Counts
    ) -> tuple[Any, Counts, Counts]:
        if taken is not None:  # by votes that may have been edited since, and were released
            return None, *taken
        counted, spent, refused = effective(
            block,
            guess[start : start + block.queries],
            left,
            unit=mechanism.contribution_unit,
            missing_counts_as_no=mechanism.missing_counts_as_no,
            steps=ballots.steps,
        )
        return mechanism.tally(counted), spent, refused

    with charged():
        for block in registered_blocks(ballots, places, voters):
            taken = parts.taken() if parts is not None and alone else None
            tally = allowance.answer(block.queries, partial(weigh, block, taken))
            now = slice(start, start + block.queries)
            part = partial(publish, so_far=allowance.answered)
            if alone:
                part = partial(part, sealed=Sealed(taken=allowance.last))
            labels[now], start = issuer.next(tally, block.queries, parts, part), now.stop
    sealed = allowance.spending()
    whole = publish(labels[:start], so_far=allowance.answered, sealed=sealed)
    return issuer.record(whole, parts, account=allowance.account)


def check_resumed(first: Release, allowance: Allowance, ballots: BallotSource) -> None:
    """Refuse other votes than those of the first part that a run without a ledger has kept.

    What was drawn for them, and what each voter has left, is for so many voters, labels and
    queries, and for votes in these steps: the noise that was learnt would not cover others.
    """
    same = first.voters == len(allowance.each) and first.labels.shape[1] == ballots.labels
    if allowance.learnt is not None:
        terms = {**first.terms["learnt"], "steps": first.mechanism.get("grid", 1)}
        same &= all(allowance.learnt[name] == value for name, value in terms.items())
    if not same:
        raise InputError("resume", "must repeat the call with the same votes")


# -- a learnt allowance ----------------------------------------------------------------------------


def charge_learnt(
    issuer: Issuer, ballots: BallotSource, roll: Roll | None, plan_for: int | None
) -> Allowance:
    """Find the account of these voters, or open and charge it: by public numbers only."""
    accounts, asked = issuer.accounts, ballots.queries
    planned = asked if plan_for is None else whole("plan_for", plan_for)
    if planned < asked:
        raise InputError("plan_for", f"must be at least the {asked} queries asked now", plan_for)
    steps, voters = ballots.steps, ballots.voters if roll is None else len(roll)

    budget = accounts.budget

    def settled_for(epsilon: float) -> tuple[float, float]:
        """Return epsilon0 of the learning, and the mu that is left for tallies."""
        rho = settled(epsilon, budget.delta)[1]
        epsilon0 = learning_epsilon(rho, voters) if issuer.guarantee == "allowance" else 0.0
        return epsilon0, mu_of_budget(epsilon, budget.delta, epsilon0)

    epsilon0, mu = settled_for(budget.epsilon)
    learning = Learning(voters=voters, queries=planned, labels=ballots.labels, epsilon0=epsilon0)
    if not mu * WIDEST_ROUNDED > steps * learning.cells**0.5:
        raise BudgetError(
            f"epsilon {rounded_up(budget.epsilon)} is too small for {planned:,} queries on "
            f"{ballots.labels:,} labels: the noise would be too large to draw"
        )
    if learning.cells * steps**2 > _MOST:
        raise InputError("plan_for", f"must leave at most {_MOST:g} votes per voter", planned)
    allowance = accounts.open_learnt(
        {
            "epsilon0": epsilon0,
            "planned": planned,
            "learns": learning.learns,
            "mu": mu,
            "steps": steps,
        },
        lambda epsilon: line(*settled_for(epsilon)) * DEFAULT_ORDERS,
        {"voters": voters, "labels": ballots.labels},
        roll,
        queries=asked,
        plans=plan_for is not None,
    )
    learnt = allowance.learnt
    assert learnt is not None
    if plan_for is not None and learnt["planned"] != planned:
        raise BudgetError(
            f"this allowance was learnt for {learnt['planned']:,} queries in total, which cannot "
            f"be changed; got `plan_for={planned}`"
        )
    if learnt["steps"] != steps:
        kinds = [
            "single votes" if each == 1 else "probabilities" for each in (learnt["steps"], steps)
        ]
        raise InputError("votes", f"must be {kinds[0]}, as in earlier calls, got {kinds[1]}")
    allowance.check_planned(allowance.before, asked)
    return replace(allowance, unit=steps**2)


def learn(
    issuer: Issuer,
    allowance: Allowance,
    ballots: BallotSource,
    blocks: Iterator[Block],
    guess: Bools,
    first: Release | None,
) -> Allowance:
    """Return a charged allowance with the number that is learnt, drawn now if it was not before.

    Parameters
    ----------
    blocks
        The ballots, of every registered voter.
    first
        The first part that the run which is resumed has kept, if its ledger is gone: drawn from
        the same allowance.
    """
    if allowance.mechanism is not None:
        return allowance
    terms = allowance.learnt
    assert terms is not None
    learning = Learning(
        voters=len(allowance.each),
        queries=terms["planned"],
        labels=ballots.labels,
        epsilon0=terms["epsilon0"],
    )
    contributions, start = np.zeros(learning.voters, np.int64), 0
    if first is None and learning.learns:
        with charged():
            for block in blocks:
                now = slice(start, start + block.queries)
                contributions += _contributions(block, guess[now], terms["steps"])
                start = now.stop

    def draw() -> tuple[dict[str, Any], int | None, int]:
        if first is not None:
            assert not isinstance(first.allowance, tuple)
            return first.mechanism, first.allowance, first.allowance or learning.cells
        place, most = 0, -(-learning.cells // 2)
        if learning.learns:
            scale = Fraction(terms["planned"], ballots.queries * terms["steps"] ** 2)
            scores = learning.scores(contributions, scale).tolist()
            place = issuer.entropy.exponential_mechanism(scores, Fraction(learning.epsilon0) / 2)
        allowed = most if issuer.guarantee == "worst-case" else learning.grid[place]
        mechanism = TallyVoting(
            sigma=learning.sigma(allowed, terms["mu"]),
            grid=None if terms["steps"] == 1 else terms["steps"],
        )
        limit = learning.limit(allowed)
        return mechanism.parameters(), None if issuer.guarantee == "worst-case" else limit, limit

    return allowance.learn(draw)


def _contributions(block: Block, guess: Bools, steps: int) -> Counts:
    """Return how many contributions each voter casts in a block, if nothing is cut."""
    unlimited = np.full(block.voters, np.iinfo(np.int64).max, np.int64)
    given: dict[str, Any] = {"unit": "vote", "missing_counts_as_no": True, "steps": steps}
    return effective(block, guess, unlimited, **given)[1]


def learnt_settings(
    issuer: Issuer, allowance: Allowance, more: Mapping[str, Any]
) -> tuple[Issuer, partial[Release]]:
    """Return the issuer with the mechanism that was learnt, and what makes releases of it."""
    assert allowance.mechanism is not None
    assert allowance.learnt is not None
    terms = {name: allowance.learnt[name] for name in ("epsilon0", "planned", "learns")}
    cost = issuer.accounts.budget.epsilon
    worst = issuer.guarantee == "worst-case"
    solved = replace(issuer, mechanism=mechanism_of(allowance.mechanism))
    return solved, partial(
        solved.publish,
        voters=len(allowance.each),
        epsilon=cost,
        allowance=None if worst else int(allowance.each[0]),
        terms={"learnt": terms, **more},
    )


# -- who sits where, and what the public expects of them ------------------------------------------


def seats(names: Sequence[Any], voters: int | None = None) -> dict[str, int]:
    """Return each named voter's seat; refuse names that do not tell voters apart.

    Names are texts or integers, and are compared as texts, folded: 7 and "7" name one voter, and so
    do "Anna" and "anna ".
    """
    if isinstance(names, Set | Mapping) or not hasattr(names, "__len__"):
        sealed = f"they are {shown(names)}"
        raise InputError("voter_ids", "must be a sequence of names", sealed=sealed)
    texts = [_name(name, place) for place, name in enumerate(names)]
    places = {folded(name): place for place, name in enumerate(texts)}
    wanted = len(texts) if voters is None else voters
    if not texts or len(texts) != wanted:
        raise InputError(
            "voter_ids", f"must be {wanted or 'one or more'} different names, got {len(texts)}"
        )
    if len(places) < wanted:
        first, twice = next(
            (at, name) for at, name in enumerate(texts) if places[folded(name)] != at
        )
        last = places[folded(twice)]
        raise InputError(
            "voter_ids",
            f"must be {wanted} different names, but voters {first} and {last} have the same one "
            "(ignoring case, spaces and invisible characters)",
            sealed=f"it is {shown(twice)}",
        )
    return {name: place for place, name in enumerate(texts)}


def _name(name: Any, place: int) -> str:
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return str(int(name))
    if not isinstance(name, str) or not folded(name):
        raise InputError(
            "voter_ids",
            f"must be non-empty texts or integers; voter {place} has "
            f"{'an empty one' if isinstance(name, str) else type(name).__name__}",
        )
    return str(name)


def seats_in_batch(
    registered: dict[str, int] | None, voters: int, voter_ids: Sequence[Any] | None
) -> Counts | None:
    """Return the seat of each of a batch's voters; None if they come as they were registered."""
    if voter_ids is None:
        if registered is not None and voters != len(registered):
            raise InputError(
                "votes",
                f"must have {len(registered)} voters, got {voters}; if some are absent, name the "
                "others with `voter_ids`",
            )
        return None
    if registered is None:
        raise InputError("`voter_ids` given, but the voters were registered without names")
    batch = seats(voter_ids, voters)
    known = {folded(name): seat for name, seat in registered.items()}
    unknown = [name for name in batch if folded(name) not in known]
    if unknown:
        raise InputError(
            "voter_ids",
            f"must name registered voters, and voter {batch[unknown[0]]} is not registered",
            sealed=f"it is {shown(unknown[0])}",
        )
    return np.array([known[folded(name)] for name in batch], np.int64)


def check_baseline(
    baseline: Any, ballots: BallotSource, mechanism: Mechanism, *, first: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return a public guess (queries, labels) that this mechanism could have released.

    With ``first`` the ballots are the first ones of those that the baseline is about.
    """
    shape = (ballots.queries, ballots.labels)
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
    limit = mechanism.max_positives
    if limit is not None and (guess.sum(axis=1) > limit).any():
        raise InputError("baseline", f"must have at most {limit} positives per query")
    return guess.astype(np.bool_)


def check_allowance(wanted: npt.ArrayLike, voters: int) -> Counts:
    """Return the allowance that was asked for, for every voter (voters,)."""
    try:
        array = np.asarray(wanted)
    except ValueError:  # ragged
        array = np.asarray(None)
    whole = array.dtype.kind in "iu" and array.shape in ((), (voters,))
    # Before the cast, which would wrap around: a large unsigned number would become negative.
    if not whole or array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise InputError(
            "allowance",
            f"must be one integer or one per voter ({voters}), from 0 to 2**63 - 1",
            wanted,
        )
    return np.broadcast_to(array, (voters,)).astype(np.int64)


def registered_blocks(
    ballots: BallotSource, places: Counts | None, registered: int
) -> Iterator[Block]:
    """Yield blocks with every registered voter on its seat; who is absent is missing.

    Blocks are cut as if everybody were there, so who is absent leaves no trace in their sizes.

    Parameters
    ----------
    places
        The seat of each of the ballots' voters; None if all come in the order of their seats.
    """
    even = ballots.sparse or ballots.voters == registered
    for block in ballots.blocks() if even else _even_blocks(ballots, registered):
        if places is None:
            yield block
        elif isinstance(block, SparseBlock):
            size = block.queries, registered, block.start
            yield SparseBlock(block.query, places[block.voter], block.votes, *size)
        else:
            assert isinstance(block, DenseBlock)
            votes = np.full((block.queries, registered, block.labels), MISSING, np.int8)
            votes[:, places] = block.votes
            yield DenseBlock(votes, missing=True, start=block.start)


def _even_blocks(ballots: BallotSource, registered: int) -> Iterator[Block]:
    """Yield blocks of as many queries as if all registered voters were there."""
    step, start = block_queries(registered, ballots.labels), 0
    waiting = np.zeros((0, ballots.voters, ballots.labels), np.int8)
    for block in ballots.blocks():
        assert isinstance(block, DenseBlock)
        waiting = np.concatenate([waiting, block.votes.astype(np.int8, copy=False)])
        while len(waiting) >= step:
            yield DenseBlock(waiting[:step], missing=True, start=start)
            waiting, start = waiting[step:], start + step
    if len(waiting):
        yield DenseBlock(waiting, missing=True, start=start)
