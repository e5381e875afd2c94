"""The programs of a batch, as both sides of a session build them from public numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...entropy import Entropy
from ..messages import DECISION, IntArray
from ..programs import AllowanceProgram, BallotProgram, DecisionProgram, chunk_rows
from ..terms import Terms


def ballot_session(batch: str, party: str) -> str:
    """Return the id of the session in which a party's ballots are computed."""
    return f"{batch}:{party}"


def decision_session(batch: str) -> str:
    """Return the id of the session in which the labels are decided."""
    return f"{batch}:{DECISION}"


def slices(
    programs: Sequence[BallotProgram] | Sequence[DecisionProgram] | Sequence[AllowanceProgram],
) -> list[slice]:
    """Return which queries of the batch each program takes."""
    rows = [program.rows for program in programs]
    return [slice(end - size, end) for size, end in zip(rows, np.cumsum(rows), strict=True)]


def ballot_programs(terms: Terms, queries: int, hidden: int | None) -> list[BallotProgram]:
    """Return the programs of one party's ballots on a batch."""
    labels = len(terms.labels)
    most = chunk_rows("ballot", labels, features=terms.features, hidden=hidden)
    return [
        BallotProgram(
            rows=rows,
            features=terms.features,
            labels=labels,
            hidden=hidden,
            weights=terms.counted.weights,
        )
        for rows in _chunks(queries, most)
    ]


def decision_programs(terms: Terms, queries: int) -> list[DecisionProgram]:
    """Return the programs that decide a batch without an allowance."""
    labels, gated = len(terms.labels), terms.mechanism.gate is not None
    most = chunk_rows("decision", labels)
    return [
        DecisionProgram(rows=rows, labels=labels, gated=gated, shared=terms.shared is not None)
        for rows in _chunks(queries, most)
    ]


def allowance_programs(
    terms: Terms,
    querier: str,
    queries: int,
    parties: tuple[str, ...],
    baseline: bool,
    allowances: Mapping[str, int],
) -> list[AllowanceProgram]:
    """Return the programs that decide a batch with allowances; what is left goes from one on."""
    labels, has, noise = len(terms.labels), terms.has(parties), terms.shared
    most = chunk_rows("allowance", labels, parties=len(parties))
    return [
        AllowanceProgram(
            rows=rows,
            parties=len(parties),
            voters=len(terms.voters(querier)),
            labels=labels,
            gated=terms.mechanism.gate is not None,
            steps=None if noise is None else noise.steps,
            grid=terms.counted.unit,
            by_ballot=terms.by_ballot,
            baseline=baseline,
            has=None if has.all() else tuple(tuple(row) for row in has.tolist()),
            charged=tuple(allowances[party] for party in parties),
        )
        for rows in _chunks(queries, most)
    ]


def offsets(terms: Terms, querier: str, parties: tuple[str, ...]) -> IntArray:
    """Return what twice the yes-votes (or weights) stand against, by label: (labels,).

    As the mechanisms tally: a missing vote is neither side for binary voting, and not a yes where
    a bar was placed, for tau voting, and with an allowance (where it counts as the baseline).
    """
    voters, labels = len(terms.voters(querier)), len(terms.labels)
    if terms.guarantee == "worst-case" and terms.counted.neutral:
        return np.asarray(terms.has(parties).sum(axis=0), np.int64)
    return np.full(labels, voters * terms.counted.unit, np.int64)


def words(entropy: Entropy, *shape: int) -> IntArray:
    """Return uniform 64-bit words."""
    count = int(np.prod(shape))
    return np.frombuffer(entropy.bytes(8 * count), np.int64).reshape(shape).copy()


def _chunks(queries: int, most: int) -> list[int]:
    full, rest = divmod(queries, most)
    return [most] * full + ([rest] if rest else [])
