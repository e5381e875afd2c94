"""Neighbours label a pool: a first batch, then passes with a share for every label.

Every answer comes through one guardian, so from one allowance, which is charged before the first
batch. What is asked follows public numbers and labels that were released: shares come from the
first batch, and everything else from the plan. A record that runs out is silent in all later
passes.

With one share for all labels, the votes for a common label lie far above the bar and those for a
rare one far below it; both are released the same way almost everywhere and teach little, and the
common ones use up the allowance. How often a label was released as 1 says how many votes it gets,
because the link is known. So a rare label is asked of many records, and a common one of few.

*The plan*: noise, shares and passes, from public numbers only. Asked with a share for every label
(:func:`privote.learning.balanced_shares`), a label gets ``AIM`` times the bar of votes on an
average query, whatever its prevalence. So a record casts about ``passes * queries * labels * AIM *
bar / voters`` votes, and its allowance has to pay for them. The bar grows with sigma, the allowance
with its square: for any number of passes there is a least sigma with which they last. More passes
teach more and need more noise, so wider circles, which blur.

The constants were chosen on one split of aviation reports and of three smaller data sets (see
docs/training.md); they are public numbers.

*The student* knows how its labels were drawn. A label released by neighbours is not the label of
the query: it is a noisy yes or no to "do enough records around this query carry it?". Both the
noise and the circle are public, so the student can be asked the same question: it predicts every
public row within the circle, adds up, and the link says how likely the released label was. The
weights that make the released labels likeliest undo both the noise and the blur of the circle.
Everything here is public: it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, logit, ndtri
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline

from ...accounting.allowance import FACTOR, MOST
from ...accounting.filters import RenyiFilter, likely_orders
from ...errors import BudgetError, InputError, UnavailableError, positive, whole
from ...guardian import AUTO, Guardian
from ...labelling import KeptReleases, with_forecast
from ...mechanisms import ABSTAIN, BinaryVoting, Mechanism
from ...release import Release, drawn_of
from ..rounds import PartsOf, Rows
from ..rows import Floats, LabelClassifier, Labels, Progress
from .ballots import Circles, NeighbourBallots, check_share

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


# -- how they are asked ----------------------------------------------------------------------------

FALSE_ALARM = 0.05
AIM = 0.45  # votes on an average query, as a part of the bar
_COMMON = 0.1  # the prevalence of a label that the first batch expects
_CIRCLE = 20  # public rows in the circle of such a label: more passes widen it up to here
_PASSES = 8  # at the most
_LEAST_ROWS = 4  # of a circle
_WIDEST = 0.1  # share of the first batch: beyond, fewer queries are asked instead
_LEAST_ALLOWANCE = 10
_FIRST = (20, 1000)  # queries of the first batch: a tenth of all, within these
_START, _SIGMAS = 100.0, (0.1, 1e8)
_STEPS, _CLOSE = 8, 0.02
_BUSIEST = 2.0  # times the mean: some records are near many more queries than others
_ENOUGH = 0.9  # of the rows: a forecast is no closer than that


@dataclass(frozen=True, kw_only=True)
class NeighbourPlan:
    """How a pool is asked.

    Attributes
    ----------
    mechanism
        Binary voting with a sigma and a bar, or another with a noisy bar.
    share
        Of the first batch, one for all labels.
    queries, first, passes
        How many public rows are asked, how many of them in the first batch, and how often each.
    """

    mechanism: Mechanism
    share: float
    queries: int
    first: int
    passes: int

    @property
    def answers(self) -> int:
        """How many answers there will be: every row in every pass, the first batch in one."""
        return self.passes * self.queries

    def rounded(self, shares: Floats, rows: int) -> Floats:
        """Return shares a factor of two apart, so that there are few different circles."""
        least = min(1.0, _LEAST_ROWS / rows)
        steps = np.round(np.log2(np.maximum(shares, least) / self.share))
        return np.asarray(np.clip(self.share * 2.0**steps, least, 1.0))


def can_balance(mechanism: Mechanism | None, guarantee: str, voters: int) -> bool:
    """Return whether a pool can be asked with a share for every label, and more than once."""
    if guarantee not in (
        AUTO,
        "allowance",
    ):  # elsewhere answers cost the same
        return False
    if mechanism is None:
        return True
    bar = mechanism.noisy_bar(voters)
    return bar is not None and bar[0] < voters / 2  # the votes of a few can reach it


def plan_neighbours(
    voters: int,
    labels: int,
    rows: int,
    epsilon: float,
    delta: float,
    *,
    mechanism: Mechanism | None = None,
    queries: int | None = None,
) -> NeighbourPlan:
    """Return how to ask a pool of so many rows; see the module for the rule.

    Parameters
    ----------
    voters, labels
        The size of the electorate: records, or persons.
    rows
        Public rows.
    epsilon, delta
        The budget.
    mechanism
        By default Binary voting with the least sigma with which the passes last.
    queries
        How many rows to ask; by default all, or as many as the allowance is expected to last for.
    """
    wanted = rows if queries is None else whole("queries", queries)
    if wanted > rows:
        raise InputError("queries", f"must lie in 1..{rows}, the public rows, got {queries}")
    size = _Electorate(voters, labels, epsilon, delta)
    if mechanism is None:
        sigma, passes = size.default(wanted, rows)
        mechanism = neighbour_voting(sigma)
    else:
        passes = max(1, min(_PASSES, int(size.lasting(mechanism) / wanted)))
    lasting = int(size.lasting(mechanism) / passes)
    if queries is None and lasting < _ENOUGH * wanted:
        wanted = max(1, lasting)
    least, most = _FIRST
    return NeighbourPlan(
        mechanism=mechanism,
        share=max(min(size.share(mechanism), _WIDEST), min(1.0, _LEAST_ROWS / rows)),
        queries=wanted,
        first=min(max(wanted // 10, least), most, wanted),
        passes=passes,
    )


@dataclass(frozen=True)
class _Electorate:
    """Public sizes, and what they make of a mechanism."""

    voters: int
    labels: int
    epsilon: float
    delta: float

    def default(self, queries: int, rows: int) -> tuple[float, int]:
        """Return a sigma, and how often every query is asked with it."""
        single = self.least(queries)
        once = self.share(neighbour_voting(single))
        passes = max(1, min(_PASSES, round(_CIRCLE / rows / once)))
        if passes > 1:
            return self.least(passes * queries, passes * single), passes
        if once <= _WIDEST:
            return single, 1
        # Too many queries for so few voters: the noise of as many as circles can serve.
        return max(float(f"{_WIDEST / once * single:.3g}"), self.least(1)), 1

    def least(self, answers: int, sigma: float = _START) -> float:
        """Return about the least sigma with which so many answers last.

        The search starts from ``sigma``.
        """
        for _ in range(_STEPS):
            mechanism = neighbour_voting(sigma)
            needed = _BUSIEST * answers * self._cast(mechanism)
            there = self._allowance(mechanism)
            # What is needed grows with sigma and what is there with its square, or nearly so.
            change = max(needed / max(there, 0.25), math.sqrt(_LEAST_ALLOWANCE / max(there, 0.25)))
            sigma = min(max(sigma * change, _SIGMAS[0]), _SIGMAS[1])
            if abs(change - 1) < _CLOSE:
                break
        return float(f"{sigma:.3g}")

    def share(self, mechanism: Mechanism) -> float:
        """Return with which share a label of common prevalence gets the votes aimed at."""
        return self._votes(mechanism) / (_COMMON * self.voters)

    def lasting(self, mechanism: Mechanism) -> float:
        """Return how many answers the allowance is expected to last for."""
        return self._allowance(mechanism) / (_BUSIEST * self._cast(mechanism))

    def _allowance(self, mechanism: Mechanism) -> int:
        # A plan and no promise: the guardian works its allowance out at all orders.
        orders = likely_orders(self.epsilon, self.delta, mechanism.own_order)
        each = FACTOR * mechanism.surprise_rdp(self.voters, self.labels, orders)
        return RenyiFilter(self.epsilon, self.delta, None, orders).fitting(each, MOST)

    def _votes(self, mechanism: Mechanism) -> float:
        return AIM * max(bar_of(mechanism, self.voters, "a plan for neighbours")[0], 1e-9)

    def _cast(self, mechanism: Mechanism) -> float:
        """Return what a record casts on one query, on average."""
        return self.labels * self._votes(mechanism) / self.voters


def neighbour_voting(sigma: float) -> Mechanism:
    """Return how neighbours vote: each label by itself, above a bar that noise seldom reaches."""
    return BinaryVoting(sigma=sigma, false_alarm=FALSE_ALARM)


# -- a student that knows how its labels were drawn ------------------------------------------------

_DENSE = 0.1  # above this share of near rows a product with a dense matrix is the quicker one
_PREVALENCES = np.geomspace(0.001, 0.9, 24)  # of a label, to start from the likeliest
_LOG_DENSITY = -0.5 * np.log(2 * np.pi)


@dataclass(eq=False, repr=False)
class NeighbourStudent(LabelClassifier):
    """Logistic regressions, fitted to labels that neighbours released.

    Parameters
    ----------
    mechanism
        What the labels were released with: Binary voting with a sigma, or any other whose labels
        say whether noisy yes-votes stand above a bar.
    C
        Inverse strength of the penalty |w|^2 / 2, as in scikit-learn.
    max_iter
        Steps of L-BFGS at the most.

    Attributes
    ----------
    coef_, intercept_
        (labels, features), (labels,)
    """

    mechanism: Mechanism
    _: KW_ONLY
    C: float = 1.0
    max_iter: int = 100

    def fit(self, X: Any, batches: Sequence[tuple[Circles, Labels]]) -> NeighbourStudent:
        """Fit to one or more batches of released labels.

        Parameters
        ----------
        X
            The whole public pool (rows, features), dense or sparse, in the student's own features.
        batches
            For each batch its circles (:meth:`privote.NeighbourBallots.circles`) and the released
            labels (queries, labels). What is -1, held back or not asked, is left out. Batches with
            the same circles object are read at once: several passes then cost the time of one.
        """
        rows = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X, np.float64)
        together: dict[int, tuple[Circles, list[Any]]] = {}
        for circles, released in batches:
            together.setdefault(id(circles), (circles, []))[1].append(released)
        evidence = [_Evidence.of(*batch, self.mechanism) for batch in together.values()]
        if not evidence or any(near.shape[1] != rows.shape[0] for x in evidence for near in x.near):
            raise InputError(
                "batches",
                f"must be one or more whose circles are of the {rows.shape[0]} rows of `X`",
            )
        labels = evidence[0].yes.shape[1]
        penalty, shape = positive("C", self.C), (rows.shape[1] + 1, labels)
        start = np.zeros(shape)
        start[-1] = logit(_likeliest(evidence, (rows.shape[0], labels)))

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            chance = expit(np.asarray(rows @ weights[:-1]) + weights[-1])
            total, slope = 0.0, np.zeros_like(chance)
            for part in evidence:
                value, pull = part.likelihood(chance)
                total, slope = total - penalty * float(value.sum()), slope - penalty * pull
            slope *= chance * (1 - chance)
            total += 0.5 * float((weights[:-1] ** 2).sum())
            down = np.vstack([np.asarray(rows.T @ slope) + weights[:-1], slope.sum(axis=0)])
            return total, down.reshape(-1)

        found = minimize(
            loss, start.reshape(-1), jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter}
        )
        best = found.x.reshape(shape)
        self.coef_, self.intercept_ = best[:-1].T.copy(), best[-1].copy()
        self.classes_, self.n_features_in_ = np.arange(labels), rows.shape[1]
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return the logits (rows, labels)."""
        return np.asarray(np.asarray(X @ self.coef_.T) + self.intercept_)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability that each label is true, not that it would be released."""
        return np.asarray(expit(self.decision_function(X)))


def bar_of(mechanism: Mechanism, voters: int, who: str) -> tuple[float, float]:
    """Return the bar of yes-votes and the deviation of the noise on them, which ``who`` needs."""
    found = mechanism.noisy_bar(voters)
    if found is None:
        raise UnavailableError(
            f"{who} needs labels that are noisy yes-votes above a bar, such as those of "
            "BinaryVoting with a sigma and no gate"
        )
    return found


@dataclass(frozen=True)
class _Evidence:
    """Batches with the same circles: how likely their labels are, given chances of public rows."""

    near: tuple[Any, ...]
    radius_of: npt.NDArray[np.int64]
    yes: Floats  # how often 1 was released, and 0: (queries, labels)
    no: Floats
    per_row: float
    bar: float
    slope: float

    @classmethod
    def of(cls, circles: Circles, labels: Sequence[Any], mechanism: Mechanism) -> _Evidence:
        bar, deviation = bar_of(mechanism, circles.voters, "NeighbourStudent")
        shape = (circles.queries, len(circles.radius_of))
        released = [np.asarray(batch) for batch in labels]
        for batch in released:
            if batch.shape != shape:
                raise InputError(
                    f"labels of a batch must be {shape} as its circles, got {batch.shape}"
                )
        many = [near.nnz > _DENSE * near.shape[0] * near.shape[1] for near in circles.near]
        return cls(
            tuple(
                near.toarray() if dense else near
                for near, dense in zip(circles.near, many, strict=True)
            ),
            circles.radius_of,
            np.sum([batch == 1 for batch in released], axis=0, dtype=np.float64),
            np.sum([(batch != 1) & (batch != ABSTAIN) for batch in released], axis=0, dtype=float),
            circles.voters / circles.near[0].shape[1],
            bar,
            1 / deviation,
        )

    def likelihood(self, chance: Floats) -> tuple[Floats, Floats]:
        """Return the log-likelihood (labels,) and its slope in the chances (rows, labels)."""
        up, total = np.zeros_like(chance), np.zeros(chance.shape[1])
        for place, near in enumerate(self.near):
            own = np.flatnonzero(self.radius_of == place)
            yes, no = self.yes[:, own], self.no[:, own]
            votes = self.per_row * np.asarray(near @ chance[:, own])
            z = self.slope * (votes - self.bar)
            log_yes, log_no = log_ndtr(z), log_ndtr(-z)
            total[own] = (yes * log_yes + no * log_no).sum(axis=0)
            density = _LOG_DENSITY - 0.5 * z * z
            pull = yes * np.exp(density - log_yes) - no * np.exp(density - log_no)
            up[:, own] = self.per_row * self.slope * np.asarray(near.T @ pull)
        return total, up


def _likeliest(evidence: Sequence[_Evidence], shape: tuple[int, int]) -> Floats:
    """Return the prevalence that fits each label best if it is the same everywhere: (labels,).

    The likelihood has flat ends, where all labels are released or none; a search that starts there
    may stay there.
    """
    fits = np.zeros((len(_PREVALENCES), shape[1]))
    for place, chance in enumerate(_PREVALENCES):
        for part in evidence:
            fits[place] += part.likelihood(np.full(shape, chance))[0]
    return np.asarray(_PREVALENCES[np.argmax(fits, axis=0)])
