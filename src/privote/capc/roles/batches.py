"""A batch: what a querying party brings, the programs both sides build, what it takes home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...entropy import Entropy
from ...errors import InputError
from ..charges import Prices
from ..messages import DECISION, IntArray
from ..programs import AllowanceProgram, BallotProgram, DecisionProgram, Program
from ..quantise import quantise_rows
from ..terms import Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledBatch:
    """What a querying party takes home: released labels, and what may be said about them.

    Attributes
    ----------
    labels
        (queries, labels) int8: 1, 0 or ABSTAIN (-1).
    parties, voters
        Who took part, and how many were registered.
    left_out
        Why, of everybody who did not take part.
    epsilon, delta, guarantee
        For each answering party's data: the whole budget, of all batches of all querying parties
        together. No smaller number is true of one querying party alone, because answering models
        may have learnt from labels that others received.
    resumed
        Whether an earlier batch's charge paid for it.
    simulated, engine
        Whether somebody's randomness had a seed; which engine ("clear" hides nothing).
    """

    batch: str
    labels: npt.NDArray[np.int8]
    parties: tuple[str, ...]
    voters: int
    left_out: Mapping[str, str]
    epsilon: float
    delta: float
    guarantee: str
    resumed: bool
    simulated: bool
    engine: str

    def facts(self) -> dict[str, Any]:
        """Return all but the labels, as JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if key != "labels"
        }


def batch_rows(X: Any, terms: Terms) -> IntArray:
    """Return a batch's rows (queries, features) as the whole numbers that programs take."""
    rows = quantise_rows(X, features=terms.features, bound=terms.bound, bits=terms.bits)
    if len(rows) > terms.most_queries:
        rule = f"must have at most {terms.most_queries} rows (most_queries of the terms)"
        raise InputError("X", f"{rule}: ask in several batches", len(rows))
    if not len(rows):
        raise InputError("X", "must have at least one row", 0)
    return rows


def check_baseline(baseline: npt.ArrayLike | None, queries: int, terms: Terms) -> IntArray | None:
    """Return the private guess (queries, labels), if the terms allow one."""
    if baseline is None:
        return None
    if not terms.takes_baseline:
        raise InputError("baseline", "goes with an allowance of single votes only")
    guess = np.asarray(baseline)
    shape = (queries, len(terms.labels))
    if guess.shape != shape:
        raise InputError("baseline", f"must be (queries, labels) = {shape}", guess.shape)
    strange = ~np.isin(guess, (0, 1))
    if strange.any():
        raise InputError("baseline", "must hold 0 and 1 only", guess[strange][0])
    return guess.astype(np.int64)


# -- what both sides of a session build from public numbers ----------------------------------------


def session_of(batch: str, other: str = DECISION) -> str:
    """Return the id of the session in which a party's ballots are computed, or labels decided."""
    return f"{batch}:{other}"


def sliced(
    programs: Sequence[Program], values: Mapping[str, IntArray]
) -> list[dict[str, IntArray]]:
    """Return the values of each program: those of the queries it takes."""
    ends = np.cumsum([program.rows for program in programs])
    return [
        {name: value[end - program.rows : end] for name, value in values.items()}
        for program, end in zip(programs, ends, strict=True)
    ]


def ballot_programs(terms: Terms, queries: int, hidden: int | None) -> list[BallotProgram]:
    """Return the programs of one party's ballots on a batch."""
    return BallotProgram(
        rows=1,
        features=terms.features,
        labels=len(terms.labels),
        hidden=hidden,
        weights=terms.counted.weights,
    ).split(queries)


def decision_programs(
    terms: Terms,
    querier: str,
    queries: int,
    parties: tuple[str, ...],
    *,
    baseline: bool = False,
) -> list[DecisionProgram] | list[AllowanceProgram]:
    """Return the programs that decide a batch; with allowances, what is left goes from one on."""
    labels, has, noise = len(terms.labels), terms.has(parties), terms.shared
    gated = terms.mechanism.gate is not None
    if not terms.allowance:
        shared = noise is not None
        return DecisionProgram(rows=1, labels=labels, gated=gated, shared=shared).split(queries)
    return AllowanceProgram(
        rows=1,
        parties=len(parties),
        voters=len(terms.voters(querier)),
        labels=labels,
        gated=gated,
        steps=None if noise is None else noise.steps,
        grid=terms.counted.unit,
        by_ballot=terms.by_ballot,
        baseline=baseline,
        has=None if has.all() else tuple(tuple(row) for row in has.tolist()),
        charged=tuple(Prices(terms).allowance(party) for party in parties),
    ).split(queries)


def offsets(terms: Terms, querier: str, parties: tuple[str, ...]) -> IntArray:
    """Return what twice the yes-votes (or weights) stand against, by label: (labels,).

    As the mechanisms tally: a missing vote is neither side for binary voting, and not a yes where
    a bar was placed, for tau voting, and with an allowance (where it counts as the baseline).
    """
    voters, labels = len(terms.voters(querier)), len(terms.labels)
    if not terms.allowance and terms.counted.neutral:
        return np.asarray(terms.counted.unit * terms.has(parties).sum(axis=0), np.int64)
    return np.full(labels, terms.counted.unit * voters, np.int64)


def words(entropy: Entropy, *shape: int) -> IntArray:
    """Return uniform 64-bit words."""
    count = int(np.prod(shape))
    return np.frombuffer(entropy.bytes(8 * count), np.int64).reshape(shape).copy()
