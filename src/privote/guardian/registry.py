"""Who sits where, and what the public expects of them: checks before an allowance is touched.

Blocks come here with every registered voter on its seat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, shown
from ..mechanisms import Mechanism
from ..votes.cube import (
    MISSING,
    BallotSource,
    Block,
    Counts,
    DenseBlock,
    SparseBlock,
    block_queries,
)
from ..votes.names import folded


def seats(names: Sequence[Any], voters: int | None = None) -> dict[str, int]:
    """Return each named voter's seat; refuse names that do not tell voters apart.

    Names are texts or integers, and are compared as texts, folded: 7 and "7" name one voter, and so
    do "Anna" and "anna ".
    """
    if isinstance(names, Set | Mapping) or not hasattr(names, "__len__"):
        raise InputError("voter_ids", "must be a sequence of names", names)
    texts = [_name(name, place) for place, name in enumerate(names)]
    places = {folded(name): place for place, name in enumerate(texts)}
    wanted = len(texts) if voters is None else voters
    if not texts or len(texts) != wanted:
        raise InputError(
            "voter_ids", f"must be {wanted or 'one or more'} different names, got {len(texts)}"
        )
    if len(places) < wanted:
        first, twice = next(
            (at, name) for at, name in enumerate(texts) if places[folded(name)] != at
        )
        last = places[folded(twice)]
        raise InputError(
            "voter_ids",
            f"must be {wanted} different names, but voters {first} and {last} have one (apart from "
            "case, spaces and invisible characters)",
            sealed=f"it is {shown(twice)}",
        )
    return {name: place for place, name in enumerate(texts)}


def _name(name: Any, place: int) -> str:
    if isinstance(name, int | np.integer) and not isinstance(name, bool):
        return str(int(name))
    if not isinstance(name, str) or not folded(name):
        raise InputError(
            "voter_ids",
            f"must hold texts that are not empty, or integers; voter {place} has "
            f"{'an empty one' if isinstance(name, str) else type(name).__name__}",
        )
    return str(name)


def seats_in_batch(
    registered: dict[str, int] | None, voters: int, voter_ids: Sequence[Any] | None
) -> Counts | None:
    """Return the seat of each of a batch's voters; None if they come as they were registered."""
    if voter_ids is None:
        if registered is not None and voters != len(registered):
            raise InputError(
                "votes",
                f"must have {len(registered)} voters, got {voters}; name them with `voter_ids` "
                "if some are absent",
            )
        return None
    if registered is None:
        raise InputError("`voter_ids` given, but the voters were registered without names")
    batch = seats(voter_ids, voters)
    known = {folded(name): seat for name, seat in registered.items()}
    unknown = [name for name in batch if folded(name) not in known]
    if unknown:
        raise InputError(
            "voter_ids",
            f"must name registered voters, and voter {batch[unknown[0]]} is not",
            sealed=f"it is {shown(unknown[0])}",
        )
    return np.array([known[folded(name)] for name in batch], np.int64)


def check_baseline(
    baseline: Any, ballots: BallotSource, mechanism: Mechanism, *, first: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return a public guess (queries, labels) that this mechanism could have released.

    With ``first`` the ballots are the first ones of those that the baseline is about.
    """
    shape = (ballots.queries, ballots.labels)
    if baseline is None:
        return np.broadcast_to(np.zeros((), np.bool_), shape)
    try:
        guess: npt.NDArray[Any] = np.atleast_1d(np.asarray(baseline))[:first]
    except ValueError:  # ragged
        raise InputError("baseline", "must be a table (queries, labels) of 0 and 1") from None
    if guess.shape != shape:
        raise InputError("baseline", f"must be (queries, labels) = {shape}, got {guess.shape}")
    # A bool from outside may hide any byte.
    values = guess.view(np.uint8) if guess.dtype == np.bool_ else guess
    if not ((values == 0) | (values == 1)).all():
        raise InputError("baseline", "must hold 0 and 1 only")
    if ballots.sparse and guess.any():
        raise InputError("sparse ballots take a zero baseline only: a silent voter casts zeros")
    limit = mechanism.most_ones
    if limit is not None and (guess.sum(axis=1) > limit).any():
        raise InputError("baseline", f"may have at most {limit} positives a query here")
    return guess.astype(np.bool_)


def check_allowance(wanted: npt.ArrayLike | None, voters: int) -> Counts | None:
    """Return the allowance that was asked for, for every voter (voters,); None if none was."""
    if wanted is None:
        return None
    try:
        array = np.asarray(wanted)
    except ValueError:  # ragged
        array = np.asarray(None)
    whole = array.dtype.kind in "iu" and array.shape in ((), (voters,))
    # Before the cast, which would wrap around: a large unsigned number would become negative.
    if not whole or array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise InputError(
            "allowance",
            f"must be one integer or one per voter ({voters}), none negative and all below 2**63",
            wanted,
        )
    return np.broadcast_to(array, (voters,)).astype(np.int64)


def registered_blocks(
    ballots: BallotSource, places: Counts | None, registered: int
) -> Iterator[Block]:
    """Yield blocks with every registered voter on its seat; who is absent is missing.

    Blocks are cut as if everybody were there, so who is absent leaves no trace in their sizes.

    Parameters
    ----------
    places
        The seat of each of the ballots' voters; None if all come in the order of their seats.
    """
    return (_seated(block, places, registered) for block in _even_blocks(ballots, registered))


def _seated(block: Block, places: Counts | None, registered: int) -> Block:
    """Return a block with every registered voter on its seat; who is absent is missing."""
    if places is None:
        return block
    if isinstance(block, SparseBlock):
        voter = places[block.voter]
        return SparseBlock(block.query, voter, block.votes, block.queries, registered, block.start)
    assert isinstance(block, DenseBlock)
    votes = np.full((block.queries, registered, block.labels), MISSING, np.int8)
    votes[:, places] = block.votes
    return DenseBlock(votes, missing=True, start=block.start)


def _even_blocks(ballots: BallotSource, registered: int) -> Iterator[Block]:
    """Yield blocks of as many queries as if all registered voters were there."""
    if ballots.sparse or ballots.voters == registered:
        yield from ballots.blocks()
        return
    step, start = block_queries(registered, ballots.labels), 0
    waiting = np.zeros((0, ballots.voters, ballots.labels), np.int8)
    for block in ballots.blocks():
        assert isinstance(block, DenseBlock)
        waiting = np.concatenate([waiting, block.votes.astype(np.int8, copy=False)])
        while len(waiting) >= step:
            yield DenseBlock(waiting[:step], missing=True, start=start)
            waiting, start = waiting[step:], start + step
    if len(waiting):
        yield DenseBlock(waiting, missing=True, start=start)
