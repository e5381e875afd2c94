"""The everyday job: votes in, private labels and an honest bill out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from .ballots import Ballots, Threshold
from .guardian import Guardian, seats
from .ledger import Budget, Ledger
from .mechanisms import Mechanism
from .release import Release


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
        query would not fit. ``"ptr"``: unconditional at the prices of consensus; a private test
        decides whether all labels leave or none, and is charged either way. Binary only.
        ``"data-dependent"``: the paper's; about these votes only, exact epsilon sealed, a sanitized
        one published for Binary; ``epsilon`` is no more than a public design target.
    queries
        How many to answer: the first ones. Needed for ``"data-dependent"`` and ``"ptr"``.
    baseline
        (queries, labels) public guess for ``"allowance"``; zeros by default.
    bound
        For ``"data-dependent"``: ``"exact"``, or ``"pate2018"`` to compare.
    ledger, dataset, consumer
        A :class:`privote.Ledger` or its path: then the budget is the data set's, over all runs
        and all processes. Without one, the budget is this call's.
    voter_ids
        Names of the voters, where their allowances last beyond one call. Without names a voter is
        known by its place in the votes, which must then be the same in every call.
    seed
        An integer makes a simulation, marked as such; it protects nobody.

    Bad input raises before anything is charged or drawn.
    """
    ballots = Ballots.of(votes, threshold=threshold)
    if voter_ids is not None:
        seats(voter_ids, ballots.voters)
    with Guardian(
        mechanism,
        Budget(epsilon=epsilon, delta=delta),
        Ledger.in_memory() if ledger is None else ledger,
        guarantee=guarantee,
        dataset=dataset,
        consumer=consumer,
        voter_ids=voter_ids,
        seed=seed,
    ) as guardian:
        return guardian.release(ballots, queries=queries, baseline=baseline, bound=bound)
