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
from .registry import (
    check_baseline,
    check_wanted,
    placed,
    seated,
    steady_blocks,
)


def register(
    issuer: Issuer, voters: int, labels: int, wanted: Any, ids: dict[str, int] | None
) -> Allowance:
    """Find this electorate's account in the ledger, or open and charge it."""
    surprise = partial(issuer.mechanism.surprise_rdp, voters, labels, issuer.orders)
    ledger = issuer.accounts.ledger
    roll = None if ids is None else {name: ledger.name_voter(name) for name in ids}
    facts = {"voters": voters, "labels": labels}
    return issuer.accounts.open(surprise, check_wanted(wanted, voters), facts, roll)


def release(
    issuer: Issuer,
    ballots: BallotSource,
    baseline: Any,
    wanted: Any,
    ids: dict[str, int] | None,
    voter_ids: Sequence[Any] | None,
    keep: Keep | None,
) -> Release:
    """Answer every query, block by block: each block's surprises are entered before it is drawn."""
    mechanism = issuer.mechanism
    here = placed(ids, ballots.voters, voter_ids)
    guess = check_baseline(baseline, ballots, mechanism)
    mechanism.check(ballots)
    named = ballots.voters if ids is None else len(ids)
    allowance = register(issuer, named, ballots.labels, wanted, ids)
    at = allowance.seats
    if here is not None:
        at = here if at is None else at[here]
    voters, start = len(allowance.each), 0
    lasting = plain(allowance.each)
    labels = np.empty((ballots.queries, ballots.labels), np.int8)  # once, not in pieces
    for block in steady_blocks(ballots, voters):
        now = slice(start, start + block.queries)
        start += block.queries
        counted = allowance.answer(
            seated(block, at, voters),
            guess[now],
            unit=mechanism.surprise_unit,
            silence_is_zeros=mechanism.silence_is_zeros,
        )
        labels[now] = mechanism.draw(mechanism.tally(counted), issuer.entropy)
        if keep is not None:
            keep(
                issuer.publish(
                    labels[now],
                    voters,
                    allowance.curve,
                    allowance=lasting,
                    so_far=allowance.answered,
                )
            )
    return issuer.publish(
        labels,
        voters,
        allowance.curve,
        allowance=lasting,
        so_far=allowance.answered,
        sealed=allowance.spending(),
    )
