"""Allowance: every voter may depart from a public baseline V times in its life.

The whole cost is charged once, at the first answer; later batches go on with it
(:mod:`privote.accounting.allowance` has the theorem).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..mechanisms import ABSTAIN
from ..release import Release
from ..votes.cube import BallotSource, Block, Counts
from ..votes.surprises import effective
from . import learnt
from .accounts import Allowance, Roll, plain
from .issuer import Issuer, Labels, Parts, charged
from .registry import check_allowance, check_baseline, registered_blocks, seats_in_batch


def register(
    issuer: Issuer, voters: int, labels: int, wanted: Any, ids: dict[str, int] | None
) -> Allowance:
    """Find this electorate's account in the ledger, or open and charge it."""
    return issuer.accounts.open(
        partial(issuer.mechanism.surprise_rdp, voters, labels, issuer.orders),
        check_allowance(wanted, voters),
        {"voters": voters, "labels": labels},
        roll_of(issuer, ids),
    )


def roll_of(issuer: Issuer, ids: dict[str, int] | None) -> Roll | None:
    """Return the digests of named voters, as the ledger has them; None if they have no names."""
    ledger = issuer.accounts.ledger
    return None if ids is None else {name: ledger.name_voter(name) for name in ids}


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
    """Answer every query, block by block: a block's surprises are entered before it is drawn."""
    here = seats_in_batch(ids, ballots.voters, voter_ids)
    guess = check_baseline(baseline, ballots, issuer.mechanism, first=queries)
    if issuer.learns:
        allowance = learnt.charge(issuer, ballots, roll_of(issuer, ids), plan_for)
    else:
        issuer.mechanism.check(ballots)
        named = ballots.voters if ids is None else len(ids)
        allowance = register(issuer, named, ballots.labels, wanted, ids)
        allowance = replace(allowance, unit=getattr(ballots, "steps", 1) ** 2)
    places, voters = allowance.seats, len(allowance.each)
    if here is not None:
        places = here if places is None else places[here]
    if issuer.learns:
        first = None if parts is None or issuer.accounts.ledger.lasts else parts.ahead()
        seen = registered_blocks(ballots, places, voters)
        allowance = learnt.learn(issuer, allowance, ballots, seen, guess, first)
        issuer, publish = learnt.settings(issuer, allowance)
    else:
        publish = partial(
            issuer.publish,
            voters=voters,
            epsilon=issuer.epsilon(allowance.curve),
            allowance=plain(allowance.each),
        )
    mechanism, start, before, departed = issuer.mechanism, 0, allowance.departed, 0
    shape = ballots.queries, ballots.labels
    labels: Labels = np.empty(shape, mechanism.outcomes)  # once, not in pieces

    def weigh(block: Block, left: Counts) -> tuple[Any, Counts, Counts]:
        counted, spent, refused = effective(
            block,
            guess[start : start + block.queries],
            left,
            unit=mechanism.surprise_unit,
            silence_is_zeros=mechanism.silence_is_zeros,
            steps=getattr(ballots, "steps", 1),
        )
        return mechanism.tally(counted), spent, refused

    with charged():
        for block in registered_blocks(ballots, places, voters):
            tally = allowance.answer(block.queries, partial(weigh, block))
            now = slice(start, start + block.queries)
            part = partial(publish, so_far=allowance.answered)
            labels[now], start = issuer.next(tally, block.queries, parts, part), now.stop
            apart = (labels[now] != guess[now]) & (labels[now] != ABSTAIN)
            departed += int(np.count_nonzero(apart))  # of numpy 2 it is no int
    sealed = allowance.spending(departed=before)
    whole = publish(labels[:start], so_far=allowance.answered, sealed=sealed)
    # Of what was released, and nothing else: later runs tell by it how long the allowance lasts.
    more = {"departed": departed} if whole.tallies is None else {}
    return issuer.record(whole, parts, account=allowance.account, more=more)
