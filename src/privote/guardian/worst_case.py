"""Worst case: plain composition. Answers until the next query would not fit, by public numbers."""

from __future__ import annotations

from functools import partial

from ..release import Release
from ..votes.cube import BallotSource
from .issuer import Issuer, Parts, charged, sizes


def release(
    issuer: Issuer, ballots: BallotSource, queries: int | None, parts: Parts | None
) -> Release:
    """Charge as many queries as fit, then draw them."""
    mechanism = issuer.mechanism
    mechanism.check(ballots)
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels, issuer.orders)
    fit = issuer.accounts.charge_fitting(each, ballots.queries, queries, facts=sizes(ballots))
    publish = partial(issuer.publish, voters=ballots.voters, epsilon=issuer.epsilon(fit * each))
    with charged():
        labels = issuer.draw(ballots.head(fit), parts=parts, publish=publish)
    return issuer.record(publish(labels), parts, queries=fit)
