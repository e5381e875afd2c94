"""The bench on which mechanisms are tried: votes, truth, a budget and a rule of choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from ..ballots import Ballots, BallotSource
from ..errors import InputError
from ..guardian.registry import check_baseline
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..release import GUARANTEES
from .budget import allowance_for
from .counting import QUICK, counted, queries_that_fit
from .quality import Quality, Truth, check_truth, noise_free, quality, quality_of
from .result import Trial, Tuning

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where mechanisms are tried: votes, what to compare with, a budget, a rule of choice."""

    ballots: BallotSource
    truth: Truth | None
    budget: Budget
    counts: tuple[str, ...]
    baseline: npt.ArrayLike | None
    beyond: bool
    rule: Mapping[str, Any]
    progress: Progress | None
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        votes: Any,
        truth: npt.ArrayLike | None = None,
        *,
        epsilon: float,
        delta: float,
        guarantee: str = "allowance",
        drop: float = 0.02,
        missed: float | None = None,
        rule: str | None = None,
        by_voter: bool = False,
        beyond: bool = False,
        baseline: npt.ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Bench:
        """Check everything before the work begins.

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
        if guarantee not in GUARANTEES:
            raise InputError("guarantee", f"must be one of {', '.join(GUARANTEES)}", guarantee)
        for name, value in (("drop", drop), ("missed", 0 if missed is None else missed)):
            if not 0 <= value <= 1:
                raise InputError(name, "must lie in [0, 1]", value)
        ballots = Ballots.of(votes)
        counts = QUICK if guarantee in QUICK else (*QUICK, guarantee)
        return cls(
            ballots=ballots,
            truth=None if truth is None else check_truth(truth, ballots.queries, ballots.labels),
            budget=Budget(epsilon=epsilon, delta=delta, rule=rule),
            counts=(*counts, "by-voter") if by_voter else counts,
            baseline=baseline,
            beyond=beyond,
            rule={"guarantee": guarantee, "drop": drop, "missed": missed},
            progress=progress,
        )

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
        wanted = plain if self.truth is None else self.truth
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
        left = counted(mechanism, source, guess, allowance)
        return quality(mechanism, source, wanted, left) if allowance else None

    def wrong(self, mechanism: Mechanism) -> float:
        """Return how much of a mechanism's labels is wrong."""
        plain = noise_free(mechanism, self.ballots) if self.truth is None else self.truth
        return quality(mechanism, self.ballots, plain).wrong

    def tuning(self, over: str, trials: Sequence[Trial]) -> Tuning:
        """Return what was tried, with what it was tried on."""
        return Tuning(
            over=over,
            trials=tuple(trials),
            against="noise-free majority" if self.truth is None else "truth",
            queries=self.ballots.queries,
            voters=self.ballots.voters,
            labels=self.ballots.labels,
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            left_out=self.left_out,
            **self.rule,
        )

    def watched(self, items: Sequence[Any]) -> Iterator[Any]:
        """Yield the items, saying how many are done."""
        for done, item in enumerate(items):
            if self.progress is not None:
                self.progress(done, len(items))
            yield item
