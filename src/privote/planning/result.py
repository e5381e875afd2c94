"""What was tried, what it answers and how good that is; and which of it to take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..mechanisms import Mechanism
from .quality import Quality

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

    @property
    def front(self) -> tuple[Trial, ...]:
        """Trials that no other beats in both: labels answered, and how few are wrong."""

        def worth(trial: Trial) -> tuple[float, float]:
            return trial.labels_answered(self.guarantee, self.labels), -trial.quality.wrong

        ranked = sorted((t for t in self.trials if worth(t)[0] > 0), key=worth, reverse=True)
        kept: list[Trial] = []
        for trial in ranked:
            if not kept or trial.quality.wrong < kept[-1].quality.wrong:
                kept.append(trial)
        return tuple(kept)

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
