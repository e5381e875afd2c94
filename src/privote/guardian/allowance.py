"""Allowance: every voter may depart from a public baseline V times in its life.

The whole cost is charged once, at the first answer; later batches go on with it
(:mod:`privote.accounting.allowance` has the theorem).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import BudgetError
from ..mechanisms import ABSTAIN
from ..release import Release
from ..votes.cube import BallotSource, Block, Counts
from ..votes.surprises import effective
from . import learnt
from .accounts import Allowance, Roll, plain
from .issuer import Issuer, Labels, Pacer, Parts, charged
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
    pace: Pacer | None,
    plan_for: int | None,
) -> Release:
    """Answer block by block: each block's surprises are entered before it is drawn.

    Without a pace every query is answered. With one, blocks are cut as it says, from what was
    released before.
    """
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
    mechanism, start, past = issuer.mechanism, 0, allowance.past
    shape = ballots.queries, ballots.labels
    labels: Labels = np.empty(shape, mechanism.outcomes)  # once, not in pieces
    blocks, departed = registered_blocks(ballots, places, voters), 0
    if pace is not None:
        pace.start(voters, int(allowance.each.min()), allowance.earlier)
        blocks = _paced(blocks, lambda: pace.more(labels[:start], guess[:start]))

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
        for block in blocks:
            tally = allowance.answer(block.queries, partial(weigh, block))
            now = slice(start, start + block.queries)
            part = partial(publish, so_far=allowance.answered)
            labels[now], start = issuer.next(tally, block.queries, parts, part), now.stop
            apart = (labels[now] != guess[now]) & (labels[now] != ABSTAIN)
            departed += int(np.count_nonzero(apart))  # of numpy 2 it is no int
    if pace is not None and not start:
        raise BudgetError(f"nothing more was answered from this allowance: {pace.why}")
    # Of what was released, and nothing else: later runs tell by it how long the allowance lasts.
    more: dict[str, Any] = {} if labels.dtype == np.int64 else {"departed": departed}
    more |= {} if pace is None else {"out": pace.out}
    sealed = allowance.spending(earlier=past)
    whole = publish(labels[:start], so_far=allowance.answered, sealed=sealed)
    return issuer.record(whole, parts, account=allowance.account, more=more)


def _paced(blocks: Iterator[Block], more: Callable[[], int]) -> Iterator[Block]:
    """Yield blocks, cut where a batch ends: as large as is said before it; nothing is the end.

    Sizes of blocks show in a ledger: they follow from public sizes and from what was released.
    """
    size = 0
    for block in blocks:
        start = 0
        while start < block.queries:
            size = size or more()
            if size < 1:
                return
            stop = min(start + size, block.queries)
            yield block if stop - start == block.queries else block.part(start, stop)
            start, size = stop, size - (stop - start)
