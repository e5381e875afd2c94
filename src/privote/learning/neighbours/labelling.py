"""Neighbours label a pool: a first batch, then passes with a share for every label.

Every answer comes through one guardian, so from one allowance, which is charged before the first
batch. What is asked follows public numbers and labels that were released: shares come from the
first batch, and everything else from the plan. A record that runs out is silent in all later
passes.

With one share for all labels, the votes for a common label lie far above the bar and those for a
rare one far below it; both are released the same way almost everywhere and teach little, and the
common ones use up the allowance. How often a label was released as 1 says how many votes it gets,
because the link is known. So a rare label is asked of many records, and a common one of few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import ndtri
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline

from ...errors import BudgetError, InputError, positive
from ...guardian import Guardian
from ...labelling import KeptReleases, with_forecast
from ...mechanisms import ABSTAIN, Mechanism
from ...release import Release, drawn_of
from ..rounds import PartsOf, Rows
from ..rows import Floats, Labels, Progress
from .ballots import NeighbourBallots
from .nearness import check_share
from .plan import AIM, NeighbourPlan
from .student import Circles, NeighbourStudent, bar_of

Batch = tuple[Circles, Labels]

MOST_ROWS = 10_000  # of a pool whose circles a student holds: they grow with its square
_LARGEST, _SMALLEST = 1.0, 0.1  # of the penalty C
_STEP = 8.0  # a share changes by this factor at the most


@dataclass(frozen=True, kw_only=True)
class NeighbourAnswers:
    """What came of it; all of it may be published.

    Attributes
    ----------
    rows
        (answers,) which public row each answer is about; every row once a pass.
    release
        All answers as one release, in that order.
    mechanism
        With which they were released.
    shares
        (labels,) with which the passes were asked.
    batches
        For :class:`privote.learning.NeighbourStudent`; empty if the pool is too large for it.
    """

    rows: Rows
    release: Release
    mechanism: Mechanism
    shares: Floats
    batches: list[Batch]


def label_by_neighbours(
    guardian: Guardian,
    ballots: NeighbourBallots,
    plan: NeighbourPlan,
    order: Rows,
    *,
    again: bool = False,
    progress: Progress | None = None,
    parts: KeptReleases | None = None,
) -> NeighbourAnswers:
    """Let neighbours label a pool: ask the first batch, then every row once a pass.

    Parameters
    ----------
    guardian
        The door, with the plan's mechanism and an allowance.
    ballots
        The neighbours, on every row of the pool, with the plan's share.
    plan
        How they are asked.
    order
        A permutation of the pool: the first rows of it are asked.
    again
        Whether voters that have answered before may go on with what is left of their allowance.
    progress
        Called as ``progress(answers, answers in all)``.
    parts
        Where each part of a release is kept as soon as it is drawn.
    """
    before = guardian.register(ballots.voters, ballots.labels).before
    if before and not again:
        raise BudgetError(
            f"this electorate has answered {before} queries from its allowance already, and "
            "what is left is sealed: say with queries how many more to ask"
        )
    asked: list[Rows] = []
    releases: list[Release] = []

    def ask(near: NeighbourBallots, rows: Rows) -> None:
        if len(rows):
            own = None if parts is None else PartsOf(parts, rows)
            releases.append(guardian.release(near.take(rows), parts=own))
        asked.append(rows)
        if progress is not None:
            progress(sum(map(len, asked)), plan.answers)

    rows = order[: plan.queries]
    ask(ballots, rows[: plan.first])
    wide = ballots.with_share(_shares(ballots, plan, releases[0].labels, order))
    for turn in range(plan.passes):
        ask(wide, rows[0 if turn else plan.first :])
    labels = np.concatenate([release.labels for release in releases])
    whole = replace(releases[-1], labels=labels, drawn=drawn_of(releases))
    release = with_forecast(whole, plan.mechanism, near=wide.near)
    return collected(ballots, plan, order, np.concatenate(asked), release)


def collected(
    ballots: NeighbourBallots, plan: NeighbourPlan, order: Rows, rows: Rows, release: Release
) -> NeighbourAnswers:
    """Return the answers with all that follows from them, which costs nothing.

    Answers that broke off before the end have no batches: they are for another student.
    """
    labels, asked = release.labels, order[: plan.queries]
    shares = _shares(ballots, plan, labels[: plan.first], order)
    batches: list[Batch] = []
    if len(labels) == plan.answers and len(order) <= MOST_ROWS:
        circles = ballots.with_share(shares).take(asked).circles()
        batches.append((ballots.take(asked[: plan.first]).circles(), labels[: plan.first]))
        # What a pass did not ask is held back in it.
        nothing = np.full((plan.first, labels.shape[1]), ABSTAIN, np.int8)
        passes = np.concatenate([nothing, labels[plan.first :]])
        batches += [(circles, part) for part in np.split(passes, plan.passes)]
    return NeighbourAnswers(
        rows=rows, release=release, mechanism=plan.mechanism, shares=shares, batches=batches
    )


def _shares(ballots: NeighbourBallots, plan: NeighbourPlan, first: Labels, order: Rows) -> Floats:
    """Return a share for every label, from the labels of the first batch."""
    balanced = balanced_shares(first, plan.share, plan.mechanism, ballots.voters, aim=AIM)
    return plan.rounded(balanced, len(order))


def train_neighbour_student(
    answers: NeighbourAnswers, X_public: Any, embedding: Any, epsilon: float
) -> Any:
    """Return the default student: it knows how its labels were drawn, and costs nothing.

    It sees rows as they are given, or weighted by the pool's TF-IDF where the embedding is one of
    words. Its penalty is for rows of mean square length 1 about their mean, and the stronger the
    larger epsilon is: what clear labels say beyond what a linear model can is mostly blur.
    """
    words = isinstance(embedding, str) and (embedding == "tfidf" or embedding.startswith("lsa:"))
    weighted = TfidfTransformer().fit_transform(X_public) if words else X_public
    C = min(max(2.0 / epsilon, _SMALLEST), _LARGEST) / _spread(weighted)
    student = NeighbourStudent(answers.mechanism, C=C)
    if not words:
        return student.fit(X_public, answers.batches)
    return make_pipeline(TfidfTransformer(), student).fit(X_public, answers.batches)


def _spread(X: Any) -> float:
    """Return the mean square distance of rows from their mean; 1 if there is none."""
    square = X.multiply(X) if sparse.issparse(X) else np.square(np.asarray(X, np.float64))
    middle = np.asarray(X.mean(axis=0), np.float64)
    spread = float(square.sum()) / X.shape[0] - float(np.square(middle).sum())
    return spread if spread > 0 else 1.0


def balanced_shares(
    labels: Labels,
    share: float | npt.ArrayLike,
    mechanism: Mechanism,
    voters: int,
    *,
    aim: float = 0.5,
    most: float = 0.25,
) -> Floats:
    """Return a share for every label with which its votes would average ``aim`` times the bar.

    Parameters
    ----------
    labels
        (queries, labels) released so far.
    share
        With which they were released: one, or one per label.
    mechanism
        Binary voting with sigma and a bar (``false_alarm`` or ``quota``).
    voters
        Registered voters.
    aim
        Votes on an average query as a part of the bar. Below 1, or a label that is true of few
        queries would be released on half of them.
    most
        No share is larger than this.

    Returns
    -------
    (labels,), each at most 8 times above or below ``share``.
    """
    bar, deviation = bar_of(mechanism, voters, "balanced_shares")
    released = np.asarray(labels)
    if released.ndim != 2 or 0 in released.shape:
        raise InputError("labels", f"must be (queries, labels), got shape {released.shape}")
    before = check_share(share, released.shape[1])
    known = (released != ABSTAIN).sum(axis=0) + 1.0
    often = ((released == 1).sum(axis=0) + 0.5) / known
    votes = bar + deviation * ndtri(often)
    wanted = positive("aim", aim) * bar
    change = np.where(votes > 0, wanted / np.maximum(votes, wanted / _STEP), _STEP)
    limit = float(check_share(most, 1)[0])
    return np.asarray(np.minimum(before * np.clip(change, 1 / _STEP, _STEP), limit))
