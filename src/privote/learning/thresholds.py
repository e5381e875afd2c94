"""From probabilities to votes: from which probability on a teacher says yes.

The default rule, "prevalence", takes no threshold: a teacher says yes to the top share of the
public pool, label by label, the share being how often the label is present in its own part. A
teacher of few records ranks better than its probabilities are calibrated.

By every rule a teacher's votes depend on its own part and on public data, never on other teachers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..ballots import Ballots
from ..errors import InputError
from .rows import count_rows
from .top_shares import Votes, room_for, votes_of, yes_votes

if TYPE_CHECKING:
    from .teachers import Teachers

Floats = npt.NDArray[np.float64]
Rule = str | float | npt.ArrayLike

RULES = ("prevalence", "tuned")
METRICS = ("F1", "BAC")
_MEMORY = 1 << 30


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
    votes = np.empty((count_rows(X_public), teachers.n_teachers, teachers.n_labels), np.bool_)
    place = 0
    for rows in vote_blocks(teachers, X_public, threshold, block, memory, scratch):
        votes[place : place + len(rows)] = rows
        place += len(rows)
    return votes


def cast_packed(
    teachers: Teachers,
    X_public: Any,
    threshold: Rule = "prevalence",
    *,
    block: int | None = None,
    memory: int = _MEMORY,
    scratch: str | Path | None = None,
) -> Ballots:
    """Ask the teachers as :func:`cast` does, and keep one bit per vote."""
    shape = (count_rows(X_public), teachers.n_teachers, teachers.n_labels)
    if block is not None and block % 8:
        raise InputError(f"block must be a multiple of 8, to fill bytes, got {block}")
    bits = [
        np.packbits(rows)
        for rows in vote_blocks(teachers, X_public, threshold, block, memory, scratch)
    ]
    return Ballots.from_packed(np.concatenate(bits), shape)


def vote_blocks(
    teachers: Teachers,
    X_public: Any,
    threshold: Rule = "prevalence",
    block: int | None = None,
    memory: int = _MEMORY,
    scratch: str | Path | None = None,
) -> Iterator[Votes]:
    """Yield votes (rows, teachers, labels) of consecutive queries; parameters as in `cast`."""
    queries = count_rows(X_public)
    if queries < 1:
        raise InputError("X_public must have at least one row, got none")
    if not (isinstance(threshold, str) and threshold == "prevalence"):
        bar = _check_threshold(teachers, threshold)
        for answers in teachers.predict_proba(X_public, block):
            yield np.asarray(answers >= bar)
        return
    cube = (teachers.n_teachers, teachers.n_labels)
    with room_for(cube[0] * cube[1], queries, memory, scratch) as scores:
        sizes: list[int] = []
        for answers in teachers.predict_proba(X_public, block):
            place = sum(sizes)
            sizes.append(len(answers))
            scores[:, place : place + len(answers)] = answers.reshape(len(answers), -1).T
        wanted = yes_votes(teachers.prevalence, queries, *cube)
        for votes in votes_of(scores, wanted, sizes):
            yield votes.reshape(-1, *cube)


def best_thresholds(scores: npt.NDArray[Any], Y: npt.NDArray[np.int8], metric: str) -> Floats:
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
        raise InputError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
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
                f"threshold must be one of {', '.join(RULES)}, or numbers, got {threshold!r}"
            )
        if teachers.thresholds is None:
            raise InputError("threshold 'tuned' needs teachers trained with tune='F1' or 'BAC'")
        threshold = teachers.thresholds
    try:
        bar = np.asarray(threshold, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"threshold must be numbers, got {threshold!r}") from None
    cube = (teachers.n_teachers, teachers.n_labels)
    if bar.shape not in ((), cube[1:], cube):
        raise InputError(
            f"threshold must be one number, one per label ({cube[1]}), or one per teacher and "
            f"label {cube}, got shape {bar.shape}"
        )
    if not ((bar >= 0) & (bar <= 1)).all():
        raise InputError("threshold must lie in [0, 1]")
    return bar.astype(np.float32)
