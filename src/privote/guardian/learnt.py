"""A learnt allowance: one number about the voters, paid for, and the noise that follows from it.

Everything is charged first, the same whatever will be learnt. Then voters' surprises are counted,
the allowance is drawn, once, and it is durable before a tally is drawn
(:mod:`privote.accounting.allowance` has the theorem). What was drawn in a process that died before
that never left it, so the next one draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from ..accounting.allowance import (
    Learning,
    learning_epsilon,
    mu_at_order,
    mu_of_budget,
    settled,
)
from ..entropy import WIDEST_ROUNDED
from ..errors import BudgetError, InputError, whole
from ..mechanisms import TallyVoting, mechanism_of
from ..mechanisms.base import Bools
from ..release import Release
from ..votes.cube import BallotSource, Block, Counts
from ..votes.surprises import effective
from .accounts import Allowance, Roll
from .issuer import Issuer, charged

#: What entries say in the place of settings that are not known when they are charged.
PENDING = {
    "allowance": {"mechanism": TallyVoting.name, "noise": "learnt"},
    "worst-case": {"mechanism": TallyVoting.name, "noise": "solved"},
}
_MOST = 2**62  # of surprises, in the finest unit: sums stay within an int64


def charge(
    issuer: Issuer, ballots: BallotSource, roll: Roll | None, plan_for: int | None
) -> Allowance:
    """Find the account of these voters, or open and charge it: by public numbers only."""
    accounts, asked = issuer.accounts, ballots.queries
    planned = asked if plan_for is None else whole("plan_for", plan_for)
    if planned < asked:
        raise InputError("plan_for", f"must cover the {asked} queries that are asked now", plan_for)
    steps, voters = getattr(ballots, "steps", 1), ballots.voters if roll is None else len(roll)

    def terms(left: float | None) -> dict[str, Any]:
        budget = accounts.budget
        rho = settled(budget.epsilon, budget.delta)[1] if left is None else left
        epsilon0 = learning_epsilon(rho, voters) if issuer.guarantee == "allowance" else 0.0
        learning = Learning(
            voters=voters, queries=planned, labels=ballots.labels, epsilon0=epsilon0
        )
        if left is None:
            mu = mu_of_budget(budget.epsilon, budget.delta, epsilon0)
        else:
            mu = mu_at_order(rho - epsilon0**2 / 8, 1.0)
        if not mu * WIDEST_ROUNDED > steps * learning.cells**0.5:
            raise BudgetError(
                f"the budget of data set {accounts.dataset!r} is too small for {planned:,} queries "
                f"on {ballots.labels:,} labels: no such noise can be drawn"
            )
        if learning.cells * steps**2 > _MOST:
            raise InputError("plan_for", f"must leave at most {_MOST:g} votes a voter", planned)
        known = {"epsilon0": epsilon0, "planned": planned, "learns": learning.learns}
        return {**known, "exact": left is None, "mu": mu, "steps": steps}

    before = set(accounts.ledger.reading().accounts)
    facts = {"voters": voters, "labels": ballots.labels}
    # One call takes a whole budget at once; several that depend on each other, by Rényi orders.
    once = plan_for is None and not accounts.ledger.lasts
    found = accounts.open_learnt(terms, facts, roll, once=once)
    learnt = found.learnt
    assert learnt is not None
    if plan_for is not None and learnt["planned"] != planned:
        raise BudgetError(
            f"this allowance was learnt for {learnt['planned']:,} queries in all, and that stays; "
            f"got `plan_for={planned}`"
        )
    if learnt["steps"] != steps:
        kinds = [
            "single votes" if each == 1 else "probabilities" for each in (learnt["steps"], steps)
        ]
        raise InputError("votes", f"must be {kinds[0]}, as in earlier calls, got {kinds[1]}")
    if learnt["exact"] and found.account in before:
        raise BudgetError("this takes the whole budget of a run, and that run is over")
    found.check_planned(found.before, asked)
    return replace(found, unit=steps**2)


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
    if first is not None and first.terms["learnt"]["planned"] != learning.queries:
        raise InputError("resume", "must be with the same votes, and these are more or fewer")
    surprises, start = np.zeros(learning.voters, np.int64), 0
    if first is None and learning.learns:
        with charged():
            for block in blocks:
                now = slice(start, start + block.queries)
                surprises += _surprises(block, guess[now], terms["steps"])
                start = now.stop

    def draw() -> tuple[dict[str, Any], int | None, int]:
        if first is not None:
            assert not isinstance(first.allowance, tuple)
            return first.mechanism, first.allowance, first.allowance or learning.cells
        place, most = 0, -(-learning.cells // 2)
        if learning.learns:
            scale = Fraction(terms["planned"], ballots.queries * terms["steps"] ** 2)
            scores = learning.scores(surprises, scale).tolist()
            place = issuer.entropy.tempered(scores, Fraction(learning.epsilon0) / 2)
        allowed = most if issuer.guarantee == "worst-case" else learning.grid[place]
        mechanism = TallyVoting(
            sigma=learning.sigma(allowed, terms["mu"]),
            grid=None if terms["steps"] == 1 else terms["steps"],
        )
        limit = learning.limit(allowed)
        return mechanism.parameters(), None if issuer.guarantee == "worst-case" else limit, limit

    return allowance.learn(draw)


def _surprises(block: Block, guess: Bools, steps: int) -> Counts:
    """Return how many surprises each voter casts in a block, if nothing is cut."""
    unlimited = np.full(block.voters, np.iinfo(np.int64).max, np.int64)
    given: dict[str, Any] = {"unit": "vote", "silence_is_zeros": True, "steps": steps}
    return effective(block, guess, unlimited, **given)[1]


def settings(issuer: Issuer, allowance: Allowance) -> tuple[Issuer, partial[Release]]:
    """Return the issuer with the mechanism that was learnt, and what makes releases of it."""
    assert allowance.mechanism is not None
    assert allowance.learnt is not None
    terms = {name: allowance.learnt[name] for name in ("epsilon0", "planned", "learns", "exact")}
    cost = issuer.accounts.budget.epsilon if terms["exact"] else issuer.epsilon(allowance.curve)
    worst = issuer.guarantee == "worst-case"
    solved = replace(issuer, mechanism=mechanism_of(allowance.mechanism))
    return solved, partial(
        solved.publish,
        voters=len(allowance.each),
        epsilon=cost,
        allowance=None if worst else int(allowance.each[0]),
        terms={"learnt": terms},
    )
