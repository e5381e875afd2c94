"""Allowance: every voter may depart from a public baseline V times in its life.

The whole cost is charged once, at the first answer; later batches go on with it
(:mod:`privote.accounting.allowance` has the theorem).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..ballots import BallotSource
from ..release import Release
from .accounts import Allowance, plain
from .issuer import Issuer, Keep
from .registry import check_allowance, check_baseline, registered_blocks, seats_in_batch


def register(
    issuer: Issuer, voters: int, labels: int, wanted: Any, ids: dict[str, int] | None
) -> Allowance:
    """Find this electorate's account in the ledger, or open and charge it."""
    accounts = issuer.accounts
    return accounts.open(
        partial(issuer.mechanism.surprise_rdp, voters, labels, issuer.orders),
        check_allowance(wanted, voters),
        {"voters": voters, "labels": labels},
        None if ids is None else {name: accounts.ledger.name_voter(name) for name in ids},
    )


def release(
    issuer: Issuer,
    ballots: BallotSource,
    queries: int | None,
    baseline: Any,
    wanted: Any,
    ids: dict[str, int] | None,
    voter_ids: Sequence[Any] | None,
    keep: Keep | None,
) -> Release:
    """Answer every query, block by block: each block's surprises are entered before it is drawn."""
    mechanism = issuer.mechanism
    here = seats_in_batch(ids, ballots.voters, voter_ids)
    guess = check_baseline(baseline, ballots, mechanism, first=queries)
    mechanism.check(ballots)
    named = ballots.voters if ids is None else len(ids)
    allowance = register(issuer, named, ballots.labels, wanted, ids)
    places = allowance.seats
    if here is not None:
        places = here if places is None else places[here]
    voters = len(allowance.each)
    publish = partial(
        issuer.publish,
        voters=voters,
        epsilon=issuer.epsilon(allowance.curve),
        allowance=plain(allowance.each),
    )
    labels, start = np.empty((ballots.queries, ballots.labels), np.int8), 0  # once, not in pieces
    for block in registered_blocks(ballots, places, voters):
        now = slice(start, start + block.queries)
        start += block.queries
        counted = allowance.answer(
            block,
            guess[now],
            unit=mechanism.surprise_unit,
            silence_is_zeros=mechanism.silence_is_zeros,
        )
        labels[now] = mechanism.draw(mechanism.tally(counted), issuer.entropy)
        if keep is not None:
            keep(publish(labels[now], so_far=allowance.answered))
    return publish(labels, so_far=allowance.answered, sealed=allowance.spending())
