"""Who sits where, and what the public expects of them: checks before an allowance is touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ballots import BallotSource
from ..blocks import MISSING, Block, Counts, DenseBlock, SparseBlock
from ..errors import InputError
from ..mechanisms import Mechanism


def seats(names: Sequence[Any], voters: int) -> dict[Any, int]:
    """Return each named voter's seat; refuse names that do not tell voters apart."""
    try:
        places = {name: place for place, name in enumerate(names)}
    except TypeError:
        raise InputError(f"voter_ids must be a sequence of names, got {names!r:.60}") from None
    if len(names) != voters or len(places) != voters:
        raise InputError(
            f"voter_ids must be {voters} different names, got {len(names)} of which "
            f"{len(places)} differ"
        )
    return places


def seated(block: Block, places: Counts | None, voters: int) -> Block:
    """Put the batch's voters on their registered seats; empty seats are missing."""
    if places is None:
        return block
    if isinstance(block, SparseBlock):
        return SparseBlock(
            block.query, places[block.voter], block.votes, block.queries, voters, block.start
        )
    assert isinstance(block, DenseBlock)
    votes = np.full((block.queries, voters, block.labels), MISSING, np.int8)
    votes[:, places] = block.votes
    return DenseBlock(votes, missing=True, start=block.start)


def check_guess(baseline: Any, queries: int | None) -> Any:
    """Return the first rows of a baseline as an array; refuse what is none."""
    if baseline is None:
        return None
    try:
        return np.atleast_1d(np.asarray(baseline))[:queries]
    except ValueError:
        raise InputError("baseline must be a table (queries, labels) of 0 and 1") from None


def check_baseline(
    baseline: Any, ballots: BallotSource, mechanism: Mechanism
) -> npt.NDArray[np.bool_]:
    """Return a public guess (queries, labels) that this mechanism could have released."""
    shape = (ballots.queries, ballots.labels)
    if baseline is None:
        return np.broadcast_to(np.zeros((), np.bool_), shape)
    guess = np.asarray(baseline)
    if guess.shape != shape:
        raise InputError(f"baseline must be (queries, labels) = {shape}, got {guess.shape}")
    if guess.dtype != np.bool_ and not np.isin(guess, (0, 1)).all():
        raise InputError("baseline must hold 0 and 1 only")
    if ballots.sparse and guess.any():
        raise InputError("sparse ballots take a zero baseline only: a silent voter casts zeros")
    limit = 1 if mechanism.name == "plurality" else None
    limit = getattr(mechanism, "max_positives", limit)
    if limit is not None and (guess.sum(axis=1) > limit).any():
        raise InputError(f"baseline may have at most {limit} positives a query here")
    return guess.astype(np.bool_)
