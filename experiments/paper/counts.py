"""Counting queries and judging labels, in the paper's accounting and exactly.

*Paper's accounting*: Theorem 6 of PATE 2018 for each label or set (one direction of the divergence;
for Tau the paper's own order·tau²/sigma² as the cap; for a gate the check and Pr[answered] times
the vote), the conversion of 2017, and answering until the budget is used up. *Exact*: the true
two-sided cost of each query, converted by dp-accounting. Both stop on a sealed number, as the paper
does: to compare accountants, not to be released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.pate2018 import theorem6
from privote.accounting.renyi import largest_curve
from privote.planning.chances import cell_probabilities
from privote.votes.cube import Ballots

from .bench import over_seeds
from .electorates import Electorate, Labels

Floats = npt.NDArray[np.float64]

_STEP = 100
_LOW = (1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.5, 4.0)
_MIDDLE = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0)
_HIGH = (4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 28.0, 40.0, 64.0)


def orders_for(epsilon: float) -> Floats:
    """Return the orders at which a full budget of this size settles: few, so that it is quick."""
    return np.array(_LOW if epsilon >= 14 else _MIDDLE if epsilon >= 5 else _HIGH)


def limits(epsilon: float, delta: float, orders: Floats, *, old: bool) -> Floats:
    """Return how much may be spent at each order, by the conversion of 2017 or dp-accounting's."""
    if old:
        return epsilon + math.log(delta) / (orders - 1)
    return np.asarray(largest_curve(epsilon, orders, delta))


def fitting(costs: Floats, epsilon: float, delta: float, orders: Floats, *, old: bool) -> int:
    """Return how many of the first queries fit; ``costs`` are (queries, orders)."""
    within = (np.cumsum(costs, axis=0) <= limits(epsilon, delta, orders, old=old)).any(axis=1)
    return len(within) if within.all() else int(within.argmin())


def answered(
    mechanism: Any,
    votes: npt.NDArray[np.bool_],
    epsilon: float = 20.0,
    delta: float = 1e-5,
    *,
    paper: bool = False,
    cap: Callable[[Floats], Floats] | None = None,
) -> int:
    """Return how many of the first queries a budget answers, data-dependent.

    Parameters
    ----------
    paper
        True for the paper's accounting.
    cap
        Orders -> the most that the paper lets a query cost, where its own bound is below
        Theorem 6's sum.
    """
    orders, spent = orders_for(epsilon), 0.0
    most = limits(epsilon, delta, orders, old=paper)
    for start in range(0, len(votes), _STEP):
        block = votes[start : start + _STEP]
        if paper and mechanism.gate is not None:
            costs = _expected_cost(mechanism, block, orders)
        else:
            costs = mechanism.rdp(block, orders, bound="pate2018" if paper else "exact")
        if cap is not None:
            costs = np.minimum(costs, cap(orders))
        total = spent + np.cumsum(costs, axis=0)
        within = (total <= most).any(axis=1)
        if not within.all():
            return start + int(within.argmin())
        spent = total[-1]
    return len(votes)


def _expected_cost(mechanism: Any, votes: npt.NDArray[np.bool_], orders: Floats) -> Floats:
    """Return gate + Pr[answered] · vote for each query, as published PATE code adds it up."""
    parts = []
    for block in Ballots.of(votes).blocks():
        tally = mechanism.tally(block)
        gate = mechanism.gate_log_probs(tally.margins, tally.voters)
        vote = mechanism.vote_log_probs(tally.margins, tally.voters).min(axis=-1)
        # One noise on one count: as Theorem 6 for a GNMax with sqrt(2) more noise.
        check = theorem6(gate.min(axis=-1), math.sqrt(2) * mechanism.gate.sigma, orders)
        cost = check + np.exp(gate[..., 1:]) * theorem6(vote, mechanism.sigma, orders)
        parts.append(cost.sum(axis=1))
    return np.concatenate(parts)


def independent(cost: Callable[[Floats], Floats], epsilon: float, delta: float, most: int) -> int:
    """Return how many queries fit if each costs the same, by the conversion of 2017."""
    orders = orders_for(epsilon)
    room = limits(epsilon, delta, orders, old=True) / cost(orders)
    return int(min(most, max(0.0, room.max())))


def worst_case(mechanism: Any, voters: int, labels: int, epsilon: float, delta: float) -> int:
    """Return how many queries fit whatever the votes, exactly."""
    orders = orders_for(epsilon)
    each = mechanism.worst_case_rdp(voters, labels, orders)
    return int(max(0.0, (limits(epsilon, delta, orders, old=False) / each).max()))


def chances(mechanism: Any, votes: npt.NDArray[np.bool_]) -> Floats:
    """Return Pr[0], Pr[1], Pr[ABSTAIN] in each cell: (queries, labels, 3)."""
    tallies = [mechanism.tally(block) for block in Ballots.of(votes).blocks()]
    return np.concatenate([cell_probabilities(mechanism, tally) for tally in tallies])


def utility(mechanism: Any, some: Electorate) -> dict[str, float]:
    """Return the expected ACC and BAC of released labels, exactly: no draw is made."""
    return expected(chances(mechanism, some.votes), some.truth)


def expected(table: Floats, truth: Labels) -> dict[str, float]:
    """Return expected ACC and BAC over the cells that are known and answered."""
    right = np.where(truth == 1, table[..., 1], table[..., 0])
    given = table[..., 0] + table[..., 1]
    shares = []
    for side in (0, 1):
        cells = truth == side
        total = (given * cells).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares.append((right * cells).sum(axis=0) / total)
    known = truth >= 0
    acc = (right * known).sum(axis=0) / (given * known).sum(axis=0)
    both_sides = np.mean(shares, axis=0)
    return {"ACC": float(acc.mean()), "BAC": float(np.nanmean(both_sides))}


def drawn(mechanism: Any, some: Electorate, seed: int) -> dict[str, float]:
    """Return ACC, BAC, AUC and MAP of labels that were drawn once (a simulation)."""
    labels = mechanism.release(some.votes, seed=seed)
    found = pv.metrics.multilabel(some.truth, labels.astype(float), labels)
    return {name: float(found[name]) for name in ("ACC", "BAC", "AUC", "MAP")}


def judged(
    mechanism: Any, electorates: Sequence[Electorate]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return expected ACC and BAC, and MAP of labels drawn once, over electorates: as below."""
    return over_seeds(
        [
            {**utility(mechanism, one), "MAP": drawn(mechanism, one, seed)["MAP"]}
            for seed, one in enumerate(electorates)
        ]
    )
