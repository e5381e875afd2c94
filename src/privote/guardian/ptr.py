"""Propose, test, release: consensus prices, if a private test says that there is consensus."""

from __future__ import annotations

import numpy as np

from ..errors import UnavailableError
from ..release import Release
from ..votes.cube import BallotSource
from .consensus import Levels, propose
from .issuer import Issuer, Parts, charged, fixed, sizes


def release(
    issuer: Issuer, ballots: BallotSource, queries: int | None, parts: Parts | None
) -> Release:
    """Charge the whole budget, then release all labels or none."""
    fixed("ptr", queries)
    levels = Levels.of(issuer.mechanism, ballots)
    if levels is None:
        raise UnavailableError(
            "guarantee 'ptr' has a proof for mechanisms that count single votes, such as binary, "
            f"not for {issuer.mechanism.name}; 'allowance' and 'worst-case' take every mechanism"
        )
    issuer.mechanism.check(ballots)
    proposal = propose(levels, issuer.orders, ballots, issuer.accounts.budget)
    # Its promise holds at one order and with all of delta: nothing can be added to it.
    issuer.accounts.charge_everything(
        proposal.epsilon,
        proposal.delta,
        {"queries": ballots.queries, "epsilon": proposal.epsilon, **sizes(ballots)},
    )
    with charged():
        labels = issuer.draw(ballots, levels.add)
    passed = levels.passes(proposal, issuer.entropy)
    made = issuer.publish(
        labels if passed else np.zeros((0, ballots.labels), np.int8),
        ballots.voters,
        proposal.epsilon,
        terms=levels.terms(proposal, passed),
    )
    if parts is not None:
        parts.keep(made)
    return issuer.record(made, parts, queries=ballots.queries)
