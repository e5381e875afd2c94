"""What a querying party brings to a batch, and what it takes home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..messages import IntArray
from ..terms import Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What a batch gave: the released labels and what may be said about them.

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


def check_rows(rows: IntArray, terms: Terms) -> IntArray:
    """Return the rows (queries, features), if they are quantised as the terms say."""
    rows = np.asarray(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[1] != terms.features:
        raise InputError(
            "rows",
            f"must be whole numbers (queries, {terms.features}), got {rows.dtype} {rows.shape}",
        )
    if not 1 <= len(rows) <= terms.most_queries:
        raise InputError("rows", f"must be 1 to {terms.most_queries} queries, got {len(rows)}")
    if np.abs(rows).max() > 2**terms.bits:
        raise InputError("rows", f"must lie within 2^{terms.bits}, got {np.abs(rows).max()}")
    return rows.astype(np.int64)


def check_baseline(baseline: npt.ArrayLike | None, queries: int, terms: Terms) -> IntArray | None:
    """Return the private guess (queries, labels), if the terms allow one."""
    if baseline is None:
        return None
    if not terms.takes_baseline:
        raise InputError("baseline", "goes with an allowance and binary voting only")
    guess = np.asarray(baseline)
    shape = (queries, len(terms.labels))
    if guess.shape != shape:
        raise InputError("baseline", f"must be (queries, labels) = {shape}, got {guess.shape}")
    strange = ~np.isin(guess, (0, 1))
    if strange.any():
        raise InputError("baseline", "must hold 0 and 1 only", guess[strange][0])
    return guess.astype(np.int64)
