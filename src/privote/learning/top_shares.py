"""Yes to the top share of a pool: one rank for each teacher and label, and nobody else's.

Ties are decided by a public hash of query, teacher and label. (The first ones of the pool would be
the same for all teachers, and many teachers without an opinion would look like agreement.)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

if TYPE_CHECKING:
    from .teachers import Answers

Votes = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Cut = tuple[float, int]  # yes above the value; at the value, up to the hash

_LAST = 2**64 - 1


def top_share(scores: npt.NDArray[Any], share: npt.ArrayLike) -> Votes:
    """Return votes (queries, teachers, labels): yes to each teacher's top share of the queries.

    Parameters
    ----------
    scores
        (queries, teachers, labels) finite numbers.
    share
        (labels,) or (teachers, labels) in [0, 1]. Times the queries, it is rounded to the nearest
        whole number, a half upwards.
    """
    cube = np.asarray(scores)
    if cube.ndim != 3:
        raise InputError(f"scores must have 3 axes (queries, teachers, labels), got {cube.shape}")
    if cube.dtype.kind not in "fiu" or not np.isfinite(cube).all():
        raise InputError("scores must be finite numbers")
    queries, teachers, labels = cube.shape
    voices = np.ascontiguousarray(cube.reshape(queries, -1).T)
    wanted = yes_votes(share, queries, teachers, labels)
    return next(votes_of(voices, wanted, [queries])).reshape(cube.shape)


def yes_votes(
    share: npt.ArrayLike, queries: int, teachers: int, labels: int
) -> npt.NDArray[np.int64]:
    """Return how many yes-votes each teacher has for each label: (teachers x labels,)."""
    shares = np.asarray(share, np.float64)
    if shares.shape not in ((labels,), (teachers, labels)):
        raise InputError(
            f"share must hold one number per label ({labels}), or per teacher and label "
            f"({teachers}, {labels}), got shape {shares.shape}"
        )
    if not ((shares >= 0) & (shares <= 1)).all():
        raise InputError("share must lie in [0, 1]")
    each = np.broadcast_to(shares, (teachers, labels)).ravel()
    return np.asarray(np.floor(each * queries + 0.5), np.int64)


def votes_of(
    scores: npt.NDArray[Any], wanted: npt.NDArray[np.int64], sizes: list[int]
) -> Iterator[Votes]:
    """Yield votes (rows, voices) for runs of queries of the given sizes.

    Parameters
    ----------
    scores
        (voices, queries), in memory or in a file; a voice is a teacher's opinion on a label.
    wanted
        (voices,) how many of its queries a voice says yes to.
    """
    cuts = [_cut(np.asarray(row), int(wanted[voice]), voice) for voice, row in enumerate(scores)]
    place = 0
    for size in sizes:
        votes = np.empty((len(cuts), size), np.bool_)
        for voice, (value, last) in enumerate(cuts):
            row = np.asarray(scores[voice, place : place + size])
            votes[voice] = row > value
            equal = np.flatnonzero(row == value)
            if len(equal):
                votes[voice, equal] = _hash(equal + place, voice) <= last
        place += size
        yield np.ascontiguousarray(votes.T)


@contextmanager
def room_for(
    voices: int, queries: int, memory: int, scratch: str | Path | None
) -> Iterator[Answers]:
    """Yield a float32 array (voices, queries): in memory, or else in a file that soon is gone."""
    if 4 * voices * queries <= memory:
        yield np.empty((voices, queries), np.float32)
        return
    # Without a name, and its owner's alone: what teachers think is private.
    with tempfile.TemporaryFile(dir=scratch, prefix="privote") as file:
        room = np.memmap(file, np.float32, mode="w+", shape=(voices, queries))
        yield room
        del room


def _cut(scores: npt.NDArray[Any], wanted: int, voice: int) -> Cut:
    """Return where the top ``wanted`` of one voice's scores end."""
    if wanted < 1:
        return np.inf, _LAST
    if wanted >= len(scores):
        return -np.inf, _LAST
    place = len(scores) - wanted
    value = np.partition(scores, place)[place]
    room = wanted - int((scores > value).sum())
    equal = np.flatnonzero(scores == value)
    if room == len(equal):
        return float(value), _LAST
    return float(value), int(np.partition(_hash(equal, voice), room - 1)[room - 1])


def _hash(queries: npt.NDArray[Any], voice: int) -> Hashes:
    """Return a public hash (SplitMix64's) of each query; of one voice's, no two are equal."""
    with np.errstate(over="ignore"):
        bits = queries.astype(np.uint64) + np.uint64((voice << 40) & _LAST)
        bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))
