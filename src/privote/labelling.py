"""The everyday job: votes in, private labels and an honest bill out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting.allowance import largest_count
from .accounting.renyi import Floats, check_delta, check_orders
from .accounting.renyi import epsilon as to_epsilon
from .ballots import Ballots, BallotSource, Threshold, check_head
from .electorate import Electorate
from .entropy import Entropy
from .errors import BudgetError, InputError, UnavailableError, positive
from .mechanisms import Mechanism
from .release import GUARANTEES, Release, Sealed


def label(
    votes: Any,
    *,
    mechanism: Mechanism,
    epsilon: float,
    delta: float,
    guarantee: str = "allowance",
    queries: int | None = None,
    baseline: npt.ArrayLike | None = None,
    bound: str = "exact",
    threshold: Threshold = None,
    ledger: Any = None,
    dataset: str = "default",
    consumer: str | None = None,
    voter_ids: Sequence[Any] | None = None,
    seed: int | None = None,
) -> Release:
    """Release private labels for votes, within a budget.

    Parameters
    ----------
    votes
        (queries, voters, labels): bool or 0/1/-1 array, probabilities with ``threshold``, ballots,
        or the path of a votes file.
    mechanism
        E.g. ``BinaryVoting(sigma=7.0)``.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    guarantee
        ``"allowance"`` (default): unconditional, epsilon fixed before any vote is seen; answers
        every query. ``"worst-case"``: unconditional, plain composition; answers until the next
        query would not fit. ``"data-dependent"``: the paper's; about these votes only, epsilon
        sealed, and ``epsilon`` is no more than a public design target.
    queries
        How many to answer: the first ones. Must be fixed beforehand for ``"data-dependent"``.
    baseline
        (queries, labels) public guess for ``"allowance"``; zeros by default.
    bound
        For ``"data-dependent"``: ``"exact"``, or ``"pate2018"`` to compare.
    seed
        An integer makes a simulation, marked as such; it protects nobody.

    Bad input raises before anything is charged or drawn.
    """
    if guarantee not in GUARANTEES:
        raise InputError(f"guarantee must be one of {', '.join(GUARANTEES)}, got {guarantee!r}")
    if guarantee == "ptr":
        raise UnavailableError(
            "guarantee 'ptr' (propose-test-release) is not available in this version; "
            "'allowance' and 'worst-case' are unconditional too"
        )
    if ledger is not None or consumer is not None or dataset != "default":
        raise UnavailableError(
            "ledger, dataset and consumer are not available in this version: nothing would be "
            "recorded; leave them out"
        )
    if not isinstance(mechanism, Mechanism):
        raise InputError(f"mechanism must be a privote mechanism, got {mechanism!r}")
    if baseline is not None and guarantee != "allowance":
        raise InputError(f"baseline goes with guarantee 'allowance', not with {guarantee!r}")
    budget, delta = positive("epsilon", epsilon), check_delta(delta)
    ballots = Ballots.of(votes, threshold=threshold)
    if queries is not None:
        ballots = ballots.head(check_head(queries, ballots.queries))
        baseline = None if baseline is None else np.asarray(baseline)[:queries]
    if guarantee == "allowance":
        return Electorate(
            mechanism=mechanism,
            voters=ballots.voters,
            labels=ballots.labels,
            epsilon=budget,
            delta=delta,
            voter_ids=voter_ids,
            seed=seed,
        ).answer(ballots, baseline)
    entropy = Entropy(seed)
    if guarantee == "worst-case":
        return _worst_case(ballots, mechanism, budget, delta, queries, entropy)
    if queries is None:
        raise InputError(
            "queries must be given for guarantee 'data-dependent': stopping when a data-dependent "
            "cost is used up leaks, so the number is fixed before looking"
        )
    return _data_dependent(ballots, mechanism, budget, delta, bound, entropy)


def _worst_case(
    ballots: BallotSource,
    mechanism: Mechanism,
    budget: float,
    delta: float,
    queries: int | None,
    entropy: Entropy,
) -> Release:
    orders = check_orders(None)
    each = mechanism.worst_case_rdp(ballots.voters, ballots.labels, orders)
    fit = largest_count(each, orders, budget, delta)
    if fit < 1 or (queries is not None and queries > fit):
        raise BudgetError(
            f"epsilon={budget:g} at delta={delta:g} allows {fit} queries in the worst case with "
            f"{mechanism}" + (f", but queries={queries}" if queries else "")
        )
    ballots = ballots.head(min(fit, ballots.queries))
    mechanism.check(ballots)
    labels = [mechanism.draw(mechanism.tally(block), entropy) for block in ballots.blocks()]
    return Release(
        labels=np.concatenate(labels),
        epsilon=float(np.max(to_epsilon(ballots.queries * each, orders, delta))),
        delta=delta,
        guarantee="worst-case",
        budget=budget,
        mechanism=mechanism.parameters(),
        voters=ballots.voters,
        simulated=entropy.simulated,
    )


def _data_dependent(
    ballots: BallotSource,
    mechanism: Mechanism,
    budget: float,
    delta: float,
    bound: str,
    entropy: Entropy,
) -> Release:
    orders = check_orders(None)
    if bound not in mechanism.bounds:
        raise InputError(f"bound must be one of {', '.join(mechanism.bounds)}, got {bound!r}")
    mechanism.check(ballots)
    total = np.zeros(len(orders))
    labels = []
    for block in ballots.blocks():  # one pass: the tally that is priced is the one that is drawn
        tally = mechanism.tally(block)
        total += mechanism.total_cost(tally, orders, bound)
        labels.append(mechanism.draw(tally, entropy))
    return Release(
        labels=np.concatenate(labels),
        epsilon=None,
        delta=delta,
        guarantee="data-dependent",
        budget=budget,
        mechanism=mechanism.parameters(),
        voters=ballots.voters,
        simulated=entropy.simulated,
        sealed=Sealed(
            epsilon=to_epsilon(total, orders, delta),
            rdp=total,
            orders=orders,
            bound=bound,
            bills=lambda: bills(mechanism, ballots, delta),
        ),
    )


def bills(mechanism: Mechanism, votes: Any, delta: float) -> Floats:
    """Return each voter's own epsilon for a batch: (voters,). Sealed: for the owner's eyes."""
    orders = check_orders(None)
    each = mechanism.rdp_by_voter(votes, orders)
    return np.asarray(np.asarray(to_epsilon(each, orders, delta)).max(axis=1))
