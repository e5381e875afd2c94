"""Worst case: plain composition. Answers until the next query would not fit, by public numbers."""

from __future__ import annotations

import numpy as np

from ..ballots import BallotSource
from ..release import Release
from .issuer import Issuer, Keep, sizes


def release(
    issuer: Issuer, ballots: BallotSource, queries: int | None, keep: Keep | None
) -> Release:
    """Charge as many queries as fit, then draw them."""
    mechanism = issuer.mechanism
    mechanism.check(ballots)
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels, issuer.orders)
    fit = issuer.accounts.charge_fitting(each, ballots.queries, queries, facts=sizes(ballots))
    drawn, spent = [], issuer.epsilon(fit * each)
    for block in ballots.head(fit).blocks():
        drawn.append(mechanism.draw(mechanism.tally(block), issuer.entropy))
        if keep is not None:
            keep(issuer.publish(drawn[-1], ballots.voters, spent))
    return issuer.publish(np.concatenate(drawn), ballots.voters, spent)
