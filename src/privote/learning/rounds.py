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
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import epsilon
from ..ballots import Ballots, BallotSource
from ..errors import BudgetError, InputError, whole
from ..guardian import Guardian
from ..mechanisms import ABSTAIN, Mechanism
from ..release import Release

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Keep = Callable[[Release, Rows], None]
CHOICES = ("random", "uncertainty")


class Pool(Protocol):
    """Ballots on every row of a public pool."""

    sparse: bool
    voters: int
    labels: int

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


@dataclass(kw_only=True)
class PoolLabelling:
    """A pool that is being labelled.

    Parameters
    ----------
    guardian
        The door; with more than one round its guarantee must be "allowance" or "worst-case".
    pool, rows
        The ballots, and on how many rows.
    student
        Trains a student on (rows, released labels).
    ask
        Returns a student's probabilities (rows, labels) for rows of the pool.
    order
        A permutation of the rows: the order in which they are asked where chance decides.
    progress
        Called as ``progress(rows labelled, rows to label)``.
    keep
        Called as ``keep(part, rows)`` with each part of a release as soon as it is drawn.
    """

    guardian: Guardian
    pool: Pool
    rows: int
    schedule: Schedule
    student: Callable[[Rows, npt.NDArray[np.int8]], Any]
    ask: Callable[[Any, Rows], Floats]
    order: Rows
    progress: Callable[[int, int], None] | None = None
    keep: Keep | None = None
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
        if wanted is not None and wanted > self.rows:
            raise InputError(
                "queries", f"must lie in 1..{self.rows}, the public rows, got {wanted}"
            )
        if wanted is None and kind in ("ptr", "data-dependent"):
            raise InputError("queries", f"must be given for guarantee {kind!r}, before looking")
        if wanted is None and kind == "allowance" and not self.pool.sparse:
            self._as_long_as_it_lasts()
        else:
            total = self.rows if wanted is None else int(wanted)
            for part in np.array_split(np.arange(total), self.schedule.rounds):
                if len(part) and not self._round(len(part), total):
                    break
        return self.asked, self._together()

    def _as_long_as_it_lasts(self) -> None:
        """Ask until voters are expected to have used up what they have."""
        account = self.guardian.register(self.pool.voters, self.pool.labels)
        before = account.answered
        if before:
            raise BudgetError(
                f"this electorate has answered {before} queries from its allowance already, and "
                "what is left is sealed: say with queries how many more to ask"
            )
        allowance = int(account.each.min())
        by_vote = self.guardian.mechanism.surprise_unit == "vote"
        # Nobody can run out on so few; then released labels say how fast it goes.
        first = max(1, allowance // (self.pool.labels if by_vote else 1) // self.schedule.rounds)
        self._round(min(first, self.rows), self.rows)
        for left in range(self.schedule.rounds, 0, -1):
            used, pace = self._pace(by_vote)
            size = int((allowance - used) / max(pace, 1e-9) / left)
            size = min(size, self.rows - len(self.asked))
            if size < 1 or not self._round(size, len(self.asked) + size * left):
                break

    def _pace(self, by_vote: bool) -> tuple[float, float]:
        """Return what a voter has cast so far, and casts on one row: estimates, from releases."""
        low, high = _ends(self.guardian.mechanism, self.pool.voters) if by_vote else (0.0, 1.0)
        paces, used = [], 0.0
        for release, guess in zip(self.releases, self.guesses, strict=True):
            departs = release.labels == np.where(guess, 0, 1)
            counts = departs.sum(axis=1) if by_vote else departs.any(axis=1)
            # With flat noise the share of ones is low + (high - low) times the share of yes-votes.
            cells = self.pool.labels if by_vote else 1
            share = (float(counts.mean()) / cells - low) / (high - low)
            paces.append(cells * min(max(share, 0.0), 1.0))
            used += paces[-1] * len(counts)
        return used, paces[-1]

    def _round(self, size: int, total: int) -> bool:
        """Ask so many rows; return whether more may be asked."""
        waiting = self.order[~np.isin(self.order, self.asked)]
        guess = None
        if self.asked.size and (self.schedule.rounds > 1):
            model = self.student(self.asked, self._labels())
            waiting = self._next(waiting, size, partial(self.ask, model))
            if self.guardian.guarantee == "allowance" and not self.pool.sparse:
                guess = _guess(self.ask(model, waiting[:size]), self.guardian.mechanism)
        batch = waiting[:size]
        fixed = len(batch) if self.guardian.guarantee in ("ptr", "data-dependent") else None
        try:
            release = self.guardian.release(
                self.pool.take(batch),
                queries=fixed,
                baseline=guess,
                keep=None if self.keep is None else keeping(self._keep, batch),
            )
        except BudgetError:
            if not self.releases:
                raise
            return False  # composition: the rounds before took all there was
        self.releases.append(release)
        self.guesses.append(np.zeros(release.labels.shape, np.bool_) if guess is None else guess)
        self.asked = np.concatenate([self.asked, batch[: release.answered]])
        if self.progress is not None:
            self.progress(len(self.asked), max(total, len(self.asked)))
        return release.answered == len(batch)

    def _keep(self, part: Release, rows: Rows) -> None:
        """Keep a part with a price that covers all rounds so far, should it be the last."""
        if self.guardian.guarantee == "worst-case" and self.releases:
            part = replace(part, epsilon=part.budget)  # rounds together never cost more
        if self.keep is not None:
            self.keep(part, rows)

    def _next(self, waiting: Rows, size: int, ask: Callable[[Rows], Floats]) -> Rows:
        """Return the rows to ask next, the most wanted ones first."""
        if self.schedule.choose == "random" or len(waiting) <= size:
            return waiting
        chance = np.clip(ask(waiting), 1e-9, 1 - 1e-9)
        doubt = -(chance * np.log(chance) + (1 - chance) * np.log1p(-chance)).sum(axis=1)
        return waiting[np.argsort(-doubt, kind="stable")]

    def _labels(self) -> npt.NDArray[np.int8]:
        return np.concatenate([release.labels for release in self.releases])

    def _together(self) -> Release:
        """Return all rounds as one release, with the price of all of them."""
        last, guardian = self.releases[-1], self.guardian
        if len(self.releases) == 1:
            return last
        labels = self._labels()
        cost = last.epsilon  # of an allowance: the same for any number of rounds
        if guardian.guarantee == "worst-case":
            each = guardian.mechanism.worst_case_rdp(last.voters, labels.shape[1], guardian.orders)
            cost = float(epsilon(len(labels) * each, guardian.orders, last.delta))
        return replace(last, labels=labels, epsilon=cost)


def keeping(keep: Keep | None, rows: Rows) -> Callable[[Release], None] | None:
    """Return what takes the parts of one release, and knows which of ``rows`` each is about."""
    if keep is None:
        return None
    left = iter(rows.tolist())

    def take(part: Release) -> None:
        keep(part, np.fromiter(islice(left, part.answered), np.int64))

    return take


def _guess(chance: Floats, mechanism: Mechanism) -> npt.NDArray[np.bool_]:
    """Return what the student would say, cut to what the mechanism could release."""
    likely, limit = chance >= 0.5, mechanism.most_ones
    if limit is not None:
        rank = np.argsort(np.argsort(-chance, axis=1, kind="stable"), axis=1)
        likely &= rank < limit
    return np.asarray(likely)


def yes_share(release: Release, mechanism: Mechanism) -> Floats:
    """Return how often voters said yes to each label, from released labels alone: (labels,).

    With noise a share ``low`` of ones is released where nobody wants a label, and ``high`` where
    everybody does; in between it is about a straight line.
    """
    answered = release.labels != ABSTAIN
    ones = (release.labels == 1).sum(axis=0) / np.maximum(answered.sum(axis=0), 1)
    if mechanism.surprise_unit != "vote":
        return np.asarray(ones)
    low, high = _ends(mechanism, release.voters)
    return np.asarray(np.clip((ones - low) / (high - low), 0.0, 1.0))


def _ends(mechanism: Mechanism, voters: int) -> tuple[float, float]:
    """Return how often a label is released as 1 if nobody wants it, and if everybody does."""
    unanimous = Ballots.from_array(np.repeat([[[False]], [[True]]], voters, axis=1))
    (block,) = unanimous.blocks()
    low, high = mechanism.cell_probabilities(mechanism.tally(block))[:, 0, 1]
    return float(low), float(max(high, low + 1e-9))
