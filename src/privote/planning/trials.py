"""Mechanisms tried on votes: what each answers, how good that is, and which of them to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy.typing as npt

from ..errors import InputError
from ..guardian.allowance import check_baseline
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..release import GUARANTEES
from ..votes.cube import Ballots, BallotSource
from .budget import allowance_for
from .counting import QUICK, counted, queries_that_fit
from .quality import Quality, Truth, check_truth, noise_free, quality, quality_of

#: What stands next to every number that depends on votes.
NOT_PRIVATE = (
    "These figures depend on the votes: for the owner's eyes unless the votes are public or paid "
    "for; choosing by them voids the guarantee."
)
_ROUNDING = 1e-12  # must not push the best itself below the bar


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One value, or one combination, that was tried.

    Attributes
    ----------
    values
        What was tried, such as ``{"sigma": 7.0}``.
    mechanism
        Ready to use.
    fits
        Queries that the budget answers, by `COUNTS`; None where a count is not to be had.
    quality
        Of labels for all queries that were looked at, so that trials can be compared.
    noise_free
        Of what the voters want without noise, against what is wanted.
    beyond
        Of labels for all queries under the allowance, where whoever has run out counts as the
        baseline; None unless asked for.
    details
        What else is worth knowing of it, such as how much of the votes clipping keeps.
    """

    values: Mapping[str, Any]
    mechanism: Mechanism
    fits: Mapping[str, int | None]
    quality: Quality
    noise_free: Quality
    beyond: Quality | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def labels_answered(self, count: str, labels: int) -> float:
        """Return how many labels are answered in expectation: a gate holds some back."""
        return (self.fits[count] or 0) * labels * self.quality.answered


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All that was tried on the same votes, under the same budget.

    Attributes
    ----------
    over
        "sigma", "tau", "gate", "threshold" or "mechanism".
    trials
        In the order in which they were tried.
    against
        What labels were compared with: "truth", or the "noise-free majority".
    queries, voters, labels
        The votes that were looked at.
    epsilon, delta
        The budget.
    guarantee, drop, missed
        The rule of choice: see `chosen`.
    left_out
        What could not be tried, and why.
    """

    over: str
    trials: Sequence[Trial]
    against: str
    queries: int
    voters: int
    labels: int
    epsilon: float
    delta: float
    guarantee: str = "allowance"
    drop: float = 0.02
    missed: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[str, ...]:
        """What was counted of every trial."""
        return tuple(self.trials[0].fits)

    @property
    def chosen(self) -> Trial | None:
        """What answers most labels under the guarantee while they stay good.

        Good is: at most ``drop`` more of the cells wrong than the best noise-free outcome has, and
        at most a share ``missed`` of those that should be 1 missed. The paper's rule: as much
        noise, or as small a tau, as the labels stand. None if nothing good is answered.
        """
        best = max(self.trials, key=self.score)
        good, worth, _ = self.score(best)
        return best if good and worth > 0 else None

    def score(self, trial: Trial) -> tuple[bool, float, float]:
        """Rank by being good, then by labels answered, then by how few are wrong."""
        wrong = trial.quality.wrong
        least = min((t.noise_free.wrong for t in self.trials), default=0.0)
        good = wrong <= least + self.drop + _ROUNDING
        if self.missed is not None and not math.isnan(trial.quality.missed):
            good = good and trial.quality.missed <= self.missed + _ROUNDING
        worth = trial.labels_answered(self.guarantee, self.labels)
        return good, worth if good else 0.0, -1.0 if math.isnan(wrong) else -wrong

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, the note first."""
        chosen = self.chosen
        names = ["over", "guarantee", "drop", "missed", "epsilon", "delta"]
        names += ["queries", "voters", "labels", "against", "left_out"]
        return {
            "note": NOT_PRIVATE,
            "private": False,
            **{name: getattr(self, name) for name in names},
            "chosen": None if chosen is None else dict(chosen.values),
            "trials": [self._row(trial) for trial in self.trials],
        }

    def _row(self, trial: Trial) -> dict[str, Any]:
        answered = {name: trial.labels_answered(name, self.labels) for name in trial.fits}
        return {
            **trial.values,
            **trial.details,
            "parameters": trial.mechanism.parameters(),
            "fits": dict(trial.fits),
            "labels_answered": answered,
            "quality": trial.quality.facts(),
            "noise_free": trial.noise_free.facts(),
            "beyond": None if trial.beyond is None else trial.beyond.facts(),
        }


@dataclass
class Bench:
    """Where mechanisms are tried: votes, what to compare with, a budget, a rule of choice.

    Everything is checked before the work begins.

    Parameters
    ----------
    votes, baseline
        As in `queries_that_fit`.
    truth
        (queries, labels) of 1, 0 and -1 (unknown); without it labels are compared with what the
        voters want without noise.
    epsilon, delta, rule
        The budget, as in `queries_for`.
    guarantee, drop, missed
        What to choose by: see `Tuning.chosen`.
    by_voter
        Also count by each voter's exact bill, which takes long but for Binary.
    beyond
        Also say how good labels are if all queries are answered under the allowance.
    progress
        Called as ``progress(done, total)``.
    """

    votes: Any
    truth: npt.ArrayLike | None = None
    _: KW_ONLY
    epsilon: float
    delta: float
    guarantee: str = "allowance"
    drop: float = 0.02
    missed: float | None = None
    rule: str | None = None
    by_voter: bool = False
    beyond: bool = False
    baseline: npt.ArrayLike | None = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.guarantee not in GUARANTEES:
            known = ", ".join(GUARANTEES)
            raise InputError("guarantee", f"must be one of {known}", self.guarantee)
        for name, value in (("drop", self.drop), ("missed", self.missed or 0)):
            if not 0 <= value <= 1:
                raise InputError(name, "must lie in [0, 1]", value)
        self.ballots: BallotSource = Ballots.of(self.votes)
        self.wanted: Truth | None = None
        if self.truth is not None:
            self.wanted = check_truth(self.truth, self.ballots.queries, self.ballots.labels)
        self.budget = Budget(epsilon=self.epsilon, delta=self.delta, rule=self.rule)
        counted_too = [self.guarantee, *(["by-voter"] if self.by_voter else [])]
        self.counts = tuple(dict.fromkeys([*QUICK, *counted_too]))
        self.left_out: dict[str, str] = {}

    def try_out(
        self,
        mechanism: Mechanism,
        values: Mapping[str, Any],
        details: Mapping[str, Any] | None = None,
        ballots: BallotSource | None = None,
    ) -> Trial:
        """Count the queries that fit, and say how good their labels are."""
        source, budget = self.ballots if ballots is None else ballots, self.budget
        plain = noise_free(mechanism, source)
        wanted = plain if self.wanted is None else self.wanted
        fits = queries_that_fit(
            mechanism,
            source,
            budget.epsilon,
            budget.delta,
            counts=self.counts,
            baseline=self.baseline,
            rule=budget.rule,
        )
        return Trial(
            values=dict(values),
            mechanism=mechanism,
            fits=fits,
            quality=quality(mechanism, source, wanted),
            noise_free=quality_of(plain, wanted),
            beyond=self._beyond(mechanism, source, wanted) if self.beyond else None,
            details=dict(details or {}),
        )

    def _beyond(self, mechanism: Mechanism, source: BallotSource, wanted: Truth) -> Quality | None:
        size = source.voters, source.labels, self.budget.epsilon, self.budget.delta
        allowance = allowance_for(mechanism, *size, rule=self.budget.rule)
        guess = check_baseline(self.baseline, source, mechanism)
        left = (block for block, _ in counted(mechanism, source, guess, allowance))
        return quality(mechanism, source, wanted, left) if allowance else None

    def wrong(self, mechanism: Mechanism) -> float:
        """Return how much of a mechanism's labels is wrong."""
        wanted = noise_free(mechanism, self.ballots) if self.wanted is None else self.wanted
        return quality(mechanism, self.ballots, wanted).wrong

    def tuning(self, over: str, trials: Sequence[Trial]) -> Tuning:
        """Return what was tried, with what it was tried on."""
        return Tuning(
            over=over,
            trials=tuple(trials),
            against="noise-free majority" if self.wanted is None else "truth",
            queries=self.ballots.queries,
            voters=self.ballots.voters,
            labels=self.ballots.labels,
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            guarantee=self.guarantee,
            drop=self.drop,
            missed=self.missed,
            left_out=self.left_out,
        )

    def watched(self, items: Sequence[Any]) -> Iterator[Any]:
        """Yield the items, saying how many are done."""
        for done, item in enumerate(items):
            if self.progress is not None:
                self.progress(done, len(items))
            yield item
