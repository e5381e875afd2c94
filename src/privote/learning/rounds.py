"""Labelling a public pool in rounds: what was released guides what is asked next, for free.

After each round a student is trained on what was released so far. Its prediction is the public
baseline of the next round, so votes that agree with it cost nothing; and where it is unsure is
where the next queries are best spent. All of this reads what was released, and nothing else.

Where tallies are released, a student learns from the expected share of voters who want each label:
it tells more than a yes or no, also where most voters never agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ..accounting.renyi import epsilon
from ..errors import BudgetError, InputError, whole
from ..forecast import chance_of_one
from ..guardian import Guardian
from ..labelling import KeptReleases, with_forecast
from ..mechanisms import Mechanism
from ..release import Release, decide, drawn_of
from ..votes.cube import BallotSource
from .rows import Floats, Progress, Targets, label_probabilities, take_rows
from .students.classifiers import train_student

Rows = npt.NDArray[np.int64]
CHOICES = ("random", "uncertainty")


class Pool(Protocol):
    """Ballots on every row of a public pool; of voters near a row only, with their share."""

    voters: int
    labels: int
    near: Floats | None

    def take(self, rows: Rows) -> BallotSource:
        """Return the ballots on these rows, in this order."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a pool is asked: in how many rounds, which rows first, and how many in all; None: all."""

    rounds: int = 1
    choose: str = "random"
    queries: int | None = None

    def __post_init__(self) -> None:
        whole("rounds", self.rounds)
        if self.queries is not None:
            whole("queries", self.queries)
        if self.choose not in CHOICES:
            raise InputError("choose", f"must be one of {', '.join(CHOICES)}", self.choose)


class PublicRows:
    """The public rows, in the order in which they are asked, and students of them.

    Attributes
    ----------
    order
        A permutation of the rows: which come first where chance decides.
    """

    def __init__(
        self, rows: Any, labels: int, random: Any, student: Any, random_state: Any
    ) -> None:
        self._rows, self._labels = rows, labels
        self.order: Rows = random.permutation(rows.shape[0]).astype(np.int64)
        self._student, self._random_state = student, random_state

    def student(self, rows: Rows, labels: Targets) -> Any:
        """Train a student on what was released for some rows; it may see the others, too."""
        rest = take_rows(self._rows, np.setdiff1d(self.order, rows))
        seed = int(check_random_state(self._random_state).randint(2**31 - 1))
        return train_student(self._student, take_rows(self._rows, rows), labels, rest, seed)

    def ask(self, student: Any, rows: Rows) -> Floats:
        """Return a student's probabilities for rows: (rows, labels)."""
        return label_probabilities(student, self._rows[rows], self._labels)


@dataclass(kw_only=True)
class PoolLabelling:
    """A pool that is being labelled.

    Parameters
    ----------
    guardian
        The door; with more than one round its guarantee must be "allowance" or "worst-case".
    pool
        The ballots.
    schedule, public
        How they are asked, and the rows that they are about.
    plan_for
        For how many rows an allowance that is learnt is to last: those asked now, by default.
    progress
        Called as ``progress(rows labelled, rows to label)``.
    parts
        Where each part of a release is kept as soon as it is drawn.
    """

    guardian: Guardian
    pool: Pool
    schedule: Schedule
    public: PublicRows
    plan_for: int | None = None
    progress: Progress | None = None
    parts: KeptReleases | None = None
    asked: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    releases: list[Release] = field(default_factory=list)
    guesses: list[npt.NDArray[np.bool_]] = field(default_factory=list)

    def run(self) -> tuple[Rows, Release]:
        """Return the rows that were answered, and one release of all rounds together."""
        kind, wanted = self.guardian.guarantee, self.schedule.queries
        if self.schedule.rounds > 1 and kind not in ("allowance", "worst-case"):
            raise InputError(
                "rounds",
                f"must be 1 with guarantee {kind!r}: its queries are fixed before looking, and "
                "later rounds depend on released labels",
            )
        if wanted is not None and wanted > len(self.public.order):
            raise InputError(
                "queries", f"must lie in 1..{len(self.public.order)}, the public rows, got {wanted}"
            )
        if wanted is None and kind in ("ptr", "data-dependent"):
            raise InputError("queries", f"must be given for guarantee {kind!r}, before looking")
        total = len(self.public.order) if wanted is None else int(wanted)
        if self.schedule.rounds > 1 and self.guardian.learns:
            self.plan_for = self.plan_for or total
        for left in range(self.schedule.rounds, 0, -1):
            size = (total - len(self.asked)) // left
            if size and not self._round(size, total):
                break
        return self.asked, self._together()

    def _round(self, size: int, total: int) -> bool:
        """Ask so many rows; return whether more may be asked."""
        waiting = self.public.order[~np.isin(self.public.order, self.asked)]
        guess = None
        if self.asked.size and (self.schedule.rounds > 1):
            model = self.public.student(self.asked, learnt_from(self._joined()))
            waiting = self._next(waiting, size, partial(self.public.ask, model))
            if self.guardian.guarantee == "allowance" and self.pool.near is None:
                guess = _guess(self.public.ask(model, waiting[:size]), self.guardian.mechanism)
        batch = waiting[:size]
        fixed = len(batch) if self.guardian.guarantee in ("ptr", "data-dependent") else None
        try:
            release = self.guardian.release(
                self.pool.take(batch),
                queries=fixed,
                baseline=guess,
                parts=None if self.parts is None else PartsOf(self.parts, batch, self._priced),
                plan_for=self.plan_for,
            )
        except BudgetError:
            if not self.releases:
                raise
            return False  # the rounds before took all there was
        self.releases.append(release)
        known = np.zeros(release.labels.shape, np.bool_) if guess is None else guess
        self.guesses.append(known[: release.answered])
        self.asked = np.concatenate([self.asked, batch[: release.answered]])
        if self.progress is not None:
            self.progress(len(self.asked), max(total, len(self.asked)))
        return release.answered == len(batch)

    def _priced(self, part: Release) -> Release:
        """Return a part with a price that covers all rounds so far, should it be the last."""
        if self.guardian.guarantee == "worst-case" and self.releases:
            return replace(part, epsilon=part.budget)  # rounds together never cost more
        return part

    def _next(self, waiting: Rows, size: int, ask: Callable[[Rows], Floats]) -> Rows:
        """Return the rows to ask next, the most wanted ones first."""
        if self.schedule.choose == "random" or len(waiting) <= size:
            return waiting
        chance = np.clip(ask(waiting), 1e-9, 1 - 1e-9)
        doubt = -(chance * np.log(chance) + (1 - chance) * np.log1p(-chance)).sum(axis=1)
        return waiting[np.argsort(-doubt, kind="stable")]

    def _joined(self) -> Release:
        """Return all that was released so far as one, decided together."""
        last, labels = self.releases[-1], [release.labels for release in self.releases]
        whole = replace(last, labels=np.concatenate(labels), drawn=drawn_of(self.releases))
        if last.tallies is None:
            return whole
        tallies = np.concatenate([release.outcome for release in self.releases])
        return decide(replace(whole, tallies=tallies))

    def _together(self) -> Release:
        """Return all rounds as one release, with the price and the forecast of all of them."""
        whole, guardian = self._joined(), self.guardian
        # Of an allowance, and of noise that is solved for all rounds, the price is that of all.
        alone = guardian.guarantee == "worst-case" and not guardian.learns
        if alone and len(self.releases) > 1:
            size = whole.voters, whole.labels.shape[1]
            each = guardian.mechanism.worst_case_rdp(*size, guardian.orders)
            cost = float(epsilon(whole.answered * each, guardian.orders, whole.delta))
            whole = replace(whole, epsilon=cost)
        given: dict[str, Any] = {"baseline": np.concatenate(self.guesses), "near": self.pool.near}
        return with_forecast(whole, guardian.mechanism, **given)


def learnt_from(release: Release) -> Targets:
    """Return what a student learns from: shares of voters where tallies tell them, else labels."""
    shares = release.shares
    return release.labels if shares is None else shares


def yes_shares(release: Release, mechanism: Mechanism | str) -> Floats:
    """Return how often voters said yes to each label, as released numbers tell: (labels,).

    Of labels: with noise a share ``low`` of ones is released where nobody wants a label, and
    ``high`` where everybody does; in between it is about a straight line.
    """
    shares = release.shares
    if shares is not None:
        return np.asarray(shares.mean(axis=0))
    assert isinstance(mechanism, Mechanism)
    answered = release.labels >= 0
    ones = (release.labels == 1).sum(axis=0) / np.maximum(answered.sum(axis=0), 1)
    if mechanism.surprise_unit != "vote":
        return np.asarray(ones)
    voters = release.voters
    low, high = (chance_of_one(mechanism, voters, 1, count) for count in (0, voters))
    return np.asarray(np.clip((ones - low) / max(high - low, 1e-9), 0.0, 1.0))


class PartsOf:
    """The parts of one release among those of a draft; knows which of ``rows`` each is about."""

    def __init__(
        self, parts: KeptReleases, rows: Rows, priced: Callable[[Release], Release] | None = None
    ) -> None:
        self._parts, self._rows, self._priced = parts, rows, priced

    def kept(self, queries: int | None) -> Release | None:
        """Return the next part that was kept; None where there is no more."""
        part = self._parts.kept(queries, self._rows[:queries])
        if part is not None:
            self._rows = self._rows[part.answered :]
        return part

    def ahead(self) -> Release | None:
        """Return the part that comes next, and leave it there."""
        return self._parts.ahead()

    def taken(self) -> None:
        """Without a ledger a training is finished with what was released, and takes no more."""

    def keep(self, part: Release) -> None:
        """Make a part durable, with its rows."""
        rows, self._rows = self._rows[: part.answered], self._rows[part.answered :]
        self._parts.keep(part if self._priced is None else self._priced(part), rows)


def _guess(chance: Floats, mechanism: Mechanism) -> npt.NDArray[np.bool_]:
    """Return what the student would say, cut to what the mechanism could release."""
    likely, limit = chance >= 0.5, mechanism.most_ones
    if limit is not None:
        rank = np.argsort(np.argsort(-chance, axis=1, kind="stable"), axis=1)
        likely &= rank < limit
    return np.asarray(likely)
