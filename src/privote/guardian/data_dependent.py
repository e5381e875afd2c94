"""Data-dependent: the paper's. A statement about these votes; its exact epsilon is sealed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..accounting.renyi import epsilon
from ..errors import InputError
from ..release import Later, Release, Sealed
from ..votes.cube import BallotSource
from .consensus import Levels, sanitize
from .issuer import Issuer, Parts, fixed, sizes
from .voter_bills import bills, by_voter


def release(
    issuer: Issuer, ballots: BallotSource, queries: int | None, bound: str, parts: Parts | None
) -> Release:
    """Price and draw in one pass; charge, sealed, before anything leaves."""
    fixed("data-dependent", queries)
    mechanism, orders, delta = issuer.mechanism, issuer.orders, issuer.accounts.budget.delta
    if bound not in mechanism.bounds:
        raise InputError("bound", f"must be one of {', '.join(mechanism.bounds)}", bound)
    mechanism.check(ballots)
    levels = Levels.of(mechanism, ballots) if bound == "exact" else None
    total = np.zeros(len(orders))

    def price(tally: Any) -> None:
        nonlocal total
        total += mechanism.total_cost(tally, orders=orders, bound=bound)
        if levels is not None:
            levels.add(tally)

    # One pass: the tally that is priced is the one that is drawn. The draws stay here until the
    # charge is on disk.
    labels = issuer.draw(ballots, price)
    shown, terms = sanitize(levels, orders, delta, issuer.entropy)
    issuer.accounts.charge_sealed(total, {"queries": ballots.queries, **sizes(ballots)})
    exact = Later(lambda: by_voter(mechanism, ballots, delta))
    sealed = Sealed(
        epsilon=epsilon(total, orders, delta),
        rdp=total,
        orders=orders,
        bound=bound,
        bills=partial(bills, mechanism, ballots, delta),
        epsilon_by_voter=Later(lambda: exact.value.epsilon),
        accountant=Later(lambda: exact.value.accountant),
        epsilon_rdp=Later(lambda: exact.value.rdp),
        epsilon_pld=Later(lambda: exact.value.pld),
    )
    made = issuer.publish(labels, ballots.voters, shown, terms=terms, sealed=sealed)
    if parts is not None:
        parts.keep(made)
    return issuer.record(made, parts)
