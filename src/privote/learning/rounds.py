"""Labelling a public pool in rounds: what was released guides what is asked next, for free.

After each round a student is trained on the labels released so far. Its prediction is the public
baseline of the next round, so votes that agree with it cost nothing; and where it is unsure is
where the next queries are best spent. Released labels also tell how fast voters use up their
allowance, and so how many queries it lasts for. All of this reads released labels only.
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
from ..guardian import Guardian
from ..labelling import KeptReleases
from ..mechanisms import Mechanism
from ..planning import Pace, with_forecast
from ..release import Release, drawn_of
from ..votes.cube import BallotSource
from .rows import Floats, Labels, Progress, label_probabilities
from .students.classifiers import train_student

Rows = npt.NDArray[np.int64]
CHOICES = ("random", "uncertainty")
# How often the busiest voter departs, over the mean. Teachers are alike, as their parts are, and go
# on until a mean one is out; some records are near many more queries than others.
EVEN, UNEVEN = 1.0, 2.0


class Pool(Protocol):
    """Ballots on every row of a public pool; of voters near a row only, with their share."""

    voters: int
    labels: int
    near: Floats | None

    def take(self, rows: Rows) -> BallotSource:
        """Return the ballots on these rows, in this order."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a pool is asked: in how many rounds, which rows first, and how many in all.

    ``queries`` None: under an allowance, as many as it is expected to last for; else all.
    """

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

    def student(self, rows: Rows, labels: Labels) -> Any:
        """Train a student on released labels of some rows; it may see the others, too."""
        rest = self._rows[np.setdiff1d(self.order, rows)]
        seed = int(check_random_state(self._random_state).randint(2**31 - 1))
        return train_student(self._student, self._rows[rows], labels, rest, seed)

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
    progress
        Called as ``progress(rows labelled, rows to label)``.
    parts
        Where each part of a release is kept as soon as it is drawn.
    """

    guardian: Guardian
    pool: Pool
    schedule: Schedule
    public: PublicRows
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
        paced = wanted is None and kind == "allowance" and self.pool.near is None
        total = len(self.public.order) if wanted is None else int(wanted)
        mechanism, labels = self.guardian.mechanism, self.pool.labels
        for left in range(self.schedule.rounds, 0, -1):
            size = (total - len(self.asked)) // left
            # When to stop, by releases only.
            pace = Pace(mechanism=mechanism, labels=labels, busiest=EVEN, rounds=left, anew=True)
            if size and not self._round(size, total, pace if paced else None):
                break
        return self.asked, self._together(asked=0 if paced else None)

    def _round(self, size: int, total: int, pace: Pace | None) -> bool:
        """Ask so many rows; return whether more may be asked."""
        waiting = self.public.order[~np.isin(self.public.order, self.asked)]
        guess = None
        if self.asked.size and (self.schedule.rounds > 1):
            model = self.public.student(self.asked, self._labels())
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
                pace=pace,
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
        return pace is not None or release.answered == len(batch)

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

    def _labels(self) -> Labels:
        return np.concatenate([release.labels for release in self.releases])

    def _together(self, asked: int | None) -> Release:
        """Return all rounds as one release, with the price and the forecast of all of them."""
        last, guardian = self.releases[-1], self.guardian
        labels, cost = self._labels(), last.epsilon  # of an allowance: the same for all rounds
        if guardian.guarantee == "worst-case" and len(self.releases) > 1:
            each = guardian.mechanism.worst_case_rdp(last.voters, labels.shape[1], guardian.orders)
            cost = float(epsilon(len(labels) * each, guardian.orders, last.delta))
        return expected(
            replace(last, labels=labels, epsilon=cost, drawn=drawn_of(self.releases)),
            guardian.mechanism,
            baseline=np.concatenate(self.guesses),
            near=self.pool.near,
            asked=asked,
        )


def expected(
    release: Release,
    mechanism: Mechanism,
    *,
    baseline: npt.NDArray[np.bool_] | None = None,
    near: Floats | None = None,
    asked: int | None = None,
) -> Release:
    """Return a release of a whole pool with its forecast; parameters as in `forecast`."""
    given: dict[str, Any] = {"baseline": baseline, "near": near, "asked": asked}
    return with_forecast(release, mechanism, busiest=EVEN if near is None else UNEVEN, **given)


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
