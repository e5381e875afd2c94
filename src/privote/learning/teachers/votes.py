"""From probabilities to votes: what a teacher says yes to.

The default rule, "prevalence", takes no threshold: a teacher says yes to the top share of the
public pool, label by label, the share being how often the label is present in its own part. A
teacher of few records ranks better than its probabilities are calibrated. Ties are decided by a
public hash of query, teacher and label. (The first ones of the pool would be the same for all
teachers, and many teachers without an opinion would look like agreement.)

By every rule a teacher's votes depend on its own part and on public data, never on other teachers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...votes.cube import Ballots, BallotSource
from ..rounds import Rows
from ..rows import Floats, Labels, count_rows
from .ensemble import Answers, Teachers

Rule = str | float | npt.ArrayLike
Votes = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

RULES = ("prevalence", "tuned")
METRICS = ("F1", "BAC")
_MEMORY = 1 << 30
_LAST = 2**64 - 1


def cast(
    teachers: Teachers,
    X_public: Any,
    threshold: Rule = "prevalence",
    *,
    block: int | None = None,
    memory: int = _MEMORY,
    scratch: str | Path | None = None,
) -> Votes:
    """Ask the teachers about a public pool and return their votes.

    Parameters
    ----------
    teachers
        From :func:`privote.learning.train`.
    X_public
        (queries, ...) public rows. By "prevalence" a vote depends on the whole pool.
    threshold
        ``"prevalence"``; ``"tuned"``, which ``train(..., tune="F1")`` found; or numbers in [0, 1]:
        one, one per label (labels,), or one per teacher and label (teachers, labels). A probability
        at or above the number is a yes.
    block
        Queries at a time; see :meth:`Teachers.predict_proba`.
    memory
        How many bytes of probabilities "prevalence" may hold; more than that go to a file.
    scratch
        Folder for that file, which has no name and is gone afterwards; the system's by default.

    Returns
    -------
    bool array (queries, teachers, labels)
    """
    queries, cube = count_rows(X_public), (teachers.n_teachers, teachers.n_labels)
    if queries < 1:
        raise InputError("X_public", "must have at least one row, got none")
    place = 0
    if not (isinstance(threshold, str) and threshold == "prevalence"):
        bar, votes = _check_threshold(teachers, threshold), np.empty((queries, *cube), np.bool_)
        for answers in teachers.predict_proba(X_public, block):
            votes[place : place + len(answers)] = answers >= bar
            place += len(answers)
        return votes
    with room_for(cube[0] * cube[1], queries, memory, scratch) as scores:
        for answers in teachers.predict_proba(X_public, block):
            scores[:, place : place + len(answers)] = answers.reshape(len(answers), -1).T
            place += len(answers)
        return _tops(scores, teachers.prevalence, cube)


def best_thresholds(scores: npt.NDArray[Any], Y: Labels, metric: str) -> Floats:
    """Return the threshold of each label (labels,) at which a figure is best on these records.

    Parameters
    ----------
    scores
        (records, labels) in [0, 1], of records that the model has not seen.
    Y
        (records, labels) of 1, 0 and -1 (unknown: left out).
    metric
        "F1" or "BAC".

    Returns
    -------
    float array (labels,)
        Half-way between the last yes and the first no; of equals the highest. 0.5 for a label with
        one class only.
    """
    if metric not in METRICS:
        raise InputError("metric", f"must be one of {', '.join(METRICS)}", metric)
    best = np.full(Y.shape[1], 0.5)
    for label in range(Y.shape[1]):
        known = Y[:, label] >= 0
        truth, score = Y[known, label] == 1, scores[known, label].astype(np.float64)
        if not truth.any() or truth.all():
            continue
        order = np.argsort(-score, kind="stable")
        score, hits = score[order], np.cumsum(truth[order])
        yes = np.arange(1, len(score) + 1)
        ones, zeros = hits[-1], len(score) - hits[-1]
        figure = 2 * hits / (yes + ones) if metric == "F1" else hits / ones - (yes - hits) / zeros
        lower = np.append(score[1:], 0.0)
        # Between equal scores there is no room for a threshold; below the last there always is.
        figure[:-1][score[:-1] == lower[:-1]] = -np.inf
        at = int(np.argmax(figure))
        best[label] = (score[at] + lower[at]) / 2
    return best


def _check_threshold(teachers: Teachers, threshold: Rule) -> npt.NDArray[np.float32]:
    """Return thresholds that broadcast over (rows, teachers, labels)."""
    if isinstance(threshold, str):
        if threshold != "tuned":
            raise InputError(
                "threshold", f"must be one of {', '.join(RULES)}, or numbers", threshold
            )
        if teachers.thresholds is None:
            raise InputError("threshold 'tuned' needs teachers trained with tune='F1' or 'BAC'")
        threshold = teachers.thresholds
    try:
        bar = np.asarray(threshold, np.float64)
    except (TypeError, ValueError):
        raise InputError("threshold", "must be numbers", threshold) from None
    cube = (teachers.n_teachers, teachers.n_labels)
    if bar.shape not in ((), cube[1:], cube):
        raise InputError(
            "threshold",
            f"must be one number, one per label ({cube[1]}), or one per teacher and label "
            f"{cube}, got shape {bar.shape}",
        )
    if not ((bar >= 0) & (bar <= 1)).all():
        raise InputError("threshold", "must lie in [0, 1]")
    return bar.astype(np.float32)


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
        raise InputError(
            "scores", f"must have 3 axes (queries, teachers, labels), got {cube.shape}"
        )
    if cube.dtype.kind not in "fiu" or not np.isfinite(cube).all():
        raise InputError("scores", "must be finite numbers")
    queries, *voters = cube.shape
    voices = np.ascontiguousarray(cube.reshape(queries, -1).T)
    return _tops(voices, share, (voters[0], voters[1]))


def yes_votes(
    share: npt.ArrayLike, queries: int, teachers: int, labels: int
) -> npt.NDArray[np.int64]:
    """Return how many yes-votes each teacher has for each label: (teachers x labels,)."""
    shares = np.asarray(share, np.float64)
    if shares.shape not in ((labels,), (teachers, labels)):
        raise InputError(
            "share",
            f"must hold one number per label ({labels}), or per teacher and label ({teachers}, "
            f"{labels}), got shape {shares.shape}",
        )
    if not ((shares >= 0) & (shares <= 1)).all():
        raise InputError("share", "must lie in [0, 1]")
    each = np.broadcast_to(shares, (teachers, labels)).ravel()
    return np.asarray(np.floor(each * queries + 0.5), np.int64)


def _tops(scores: npt.NDArray[Any], share: npt.ArrayLike, cube: tuple[int, int]) -> Votes:
    """Return votes (queries, teachers, labels): yes to the top share of each voice's queries.

    ``scores`` (voices, queries) lie in memory or in a file; a voice is a teacher's opinion on a
    label.
    """
    queries = scores.shape[1]
    wanted = yes_votes(share, queries, *cube)
    votes = np.empty((queries, len(scores)), np.bool_)
    for voice, row in enumerate(scores):
        votes[:, voice] = _top(np.asarray(row), int(wanted[voice]), voice)
    return votes.reshape(queries, *cube)


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


def _top(scores: npt.NDArray[Any], wanted: int, voice: int) -> Votes:
    """Return yes to the ``wanted`` highest scores of one voice: (queries,)."""
    if wanted < 1 or wanted >= len(scores):
        return np.full(len(scores), wanted >= 1)
    place = len(scores) - wanted
    value = np.partition(scores, place)[place]
    votes, equal = np.asarray(scores > value), np.flatnonzero(scores == value)
    room = wanted - int(votes.sum())
    votes[equal[np.argsort(_hash(equal, voice))[:room]]] = True
    return votes


def _hash(queries: npt.NDArray[Any], voice: int) -> Hashes:
    """Return a public hash (SplitMix64's) of each query; of one voice's, no two are equal."""
    with np.errstate(over="ignore"):
        bits = queries.astype(np.uint64) + np.uint64((voice << 40) & _LAST)
        bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))


class TeacherPool:
    """Ballots of a few teachers on every row of the pool: (rows, voters, labels) bool."""

    near = None
    voter_names = None

    def __init__(self, votes: npt.NDArray[np.bool_], limit: int | None) -> None:
        self.votes, self.limit = votes, limit
        self.voters, self.labels = votes.shape[1:]

    def take(self, rows: Rows) -> BallotSource:
        """Return the ballots on these rows, in this order."""
        ballots = Ballots.from_array(self.votes[rows])
        return ballots if self.limit is None else ballots.clip(self.limit)
