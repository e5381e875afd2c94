"""What was tried, what it answers and how good that is; and the marks that go with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...accounting.renyi import check_delta
from ...ballots import Ballots
from ...errors import InputError, positive
from ...mechanisms import Mechanism
from .figures import FIGURES, Truth, expected_figures, figures_of, label_chances, majority
from .fits import GUARANTEES, check_guarantees, default_guarantees, queries_that_fit

NOT_PRIVATE = (
    "These figures depend on the votes: for the owner's eyes unless the votes are public or paid "
    "for; choosing by them voids the guarantee."
)
TRUTH, MAJORITY = "truth", "noise-free majority"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One value, or one combination, that was tried.

    Attributes
    ----------
    values
        What was tried, such as ``{"sigma": 7.0}``.
    fits
        Queries that fit the budget, by guarantee.
    utility
        Figures of merit by guarantee, of the labels released for so many queries; and under
        ``"all"`` of labels for all queries that were looked at.
    details
        What else is worth knowing of it, such as how much of the votes clipping keeps.
    """

    values: Mapping[str, Any]
    fits: Mapping[str, int]
    utility: Mapping[str, Mapping[str, float]]
    details: Mapping[str, Any] = field(default_factory=dict)

    def answered(self, guarantee: str, labels: int) -> float:
        """Return how many labels are answered in expectation: a gate holds some back."""
        queries = self.fits[guarantee]
        return queries * labels * self.utility[guarantee]["coverage"] if queries else 0.0

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            **self.values,
            **self.details,
            "fits": dict(self.fits),
            "utility": {name: dict(figures) for name, figures in self.utility.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All values that were tried on the same votes, under the same budget.

    Attributes
    ----------
    parameter
        "sigma", "tau", "gate" or "threshold".
    trials
        In the order in which they were tried.
    reference
        What the labels were compared with: "truth", or the "noise-free majority".
    noise_free
        Figures of the noise-free majority against the reference.
    queries, voters, labels
        The votes that were looked at.
    epsilon, delta
        The budget.
    note
        Who may see this, and what choosing by it means.
    """

    parameter: str
    trials: Sequence[Trial]
    reference: str
    noise_free: Mapping[str, float]
    queries: int
    voters: int
    labels: int
    epsilon: float
    delta: float
    note: str = NOT_PRIVATE

    @property
    def guarantees(self) -> tuple[str, ...]:
        """Guarantees for which queries were counted."""
        return tuple(name for name in GUARANTEES if all(name in t.fits for t in self.trials))

    def choose(
        self, *, metric: str = "BAC", drop: float = 0.02, guarantee: str = "allowance"
    ) -> Trial | None:
        """Return what answers most labels while a figure stays within ``drop`` of the best tried.

        The paper's rule: as much noise, or as small a tau, as the figures stand. Figures are those
        over all queries; None if nothing is answered or no figure is defined. The choice depends
        on the votes.
        """
        if metric not in FIGURES:
            raise InputError(f"metric must be one of {', '.join(FIGURES)}, got {metric!r}")
        if guarantee not in self.guarantees:
            known = ", ".join(self.guarantees)
            raise InputError(f"guarantee must be one of {known}, got {guarantee!r}")
        if not 0 <= drop <= 1:
            raise InputError(f"drop must lie in [0, 1], got {drop!r}")
        figures = np.array([trial.utility["all"][metric] for trial in self.trials])
        if np.isnan(figures).all():
            return None
        # A rounding error must not push the best itself below the bar.
        good = np.flatnonzero(figures >= np.nanmax(figures) - drop - 1e-12)
        best = max((self.trials[i] for i in good), key=lambda t: t.answered(guarantee, self.labels))
        return best if best.fits[guarantee] else None

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, the note first."""
        return {
            "note": self.note,
            "private": False,
            "parameter": self.parameter,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "queries": self.queries,
            "voters": self.voters,
            "labels": self.labels,
            "reference": self.reference,
            "noise_free": dict(self.noise_free),
            "trials": [
                {
                    **trial.facts(),
                    "labels_answered": {
                        name: trial.answered(name, self.labels) for name in trial.fits
                    },
                }
                for trial in self.trials
            ],
        }


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where mechanisms are tried: votes, what to compare with, a budget."""

    votes: npt.NDArray[Any]
    reference: Truth
    has_truth: bool
    epsilon: float
    delta: float
    guarantees: tuple[str, ...] | None
    releases: int
    seed: int

    @classmethod
    def of(
        cls,
        votes: Any,
        truth: npt.ArrayLike | None,
        *,
        epsilon: float,
        delta: float,
        guarantees: Sequence[str] | None = None,
        releases: int = 20,
        seed: int = 0,
    ) -> Bench:
        """Check everything before the work begins."""
        ballots = Ballots.of(votes)
        if not isinstance(ballots, Ballots):
            raise InputError("votes must be a dense cube (queries, voters, labels) to be tuned on")
        cube = ballots.to_array()
        queries, _, labels = cube.shape
        return cls(
            votes=cube,
            reference=majority(cube) if truth is None else check_truth(truth, queries, labels),
            has_truth=truth is not None,
            epsilon=positive("epsilon", epsilon),
            delta=check_delta(delta),
            guarantees=None if guarantees is None else check_guarantees(guarantees),
            releases=releases,
            seed=seed,
        )

    def try_out(
        self,
        mechanism: Mechanism,
        values: Mapping[str, Any],
        details: Mapping[str, Any] | None = None,
        votes: npt.NDArray[Any] | None = None,
    ) -> Trial:
        """Count the queries that fit, and say how good their labels are."""
        cube = self.votes if votes is None else votes
        names = default_guarantees(mechanism) if self.guarantees is None else self.guarantees
        fits = queries_that_fit(mechanism, cube, self.epsilon, self.delta, names)
        figures = expected_figures(
            label_chances(mechanism, cube),
            self.reference,
            [*fits.values(), len(cube)],
            releases=self.releases,
            seed=self.seed,
        )
        utility = dict(zip([*fits, "all"], figures, strict=True))
        return Trial(values=dict(values), fits=fits, utility=utility, details=dict(details or {}))

    def tuning(self, parameter: str, trials: Sequence[Trial]) -> Tuning:
        """Return what was tried, with what it was tried on."""
        queries, voters, labels = self.votes.shape
        return Tuning(
            parameter=parameter,
            trials=tuple(trials),
            reference=TRUTH if self.has_truth else MAJORITY,
            noise_free=figures_of(majority(self.votes), self.reference),
            queries=queries,
            voters=voters,
            labels=labels,
            epsilon=self.epsilon,
            delta=self.delta,
        )


def check_truth(truth: npt.ArrayLike, queries: int, labels: int) -> Truth:
    """Return true labels as (queries, labels) int8 of 1, 0 and -1 (unknown)."""
    array = np.asarray(truth)
    if array.shape != (queries, labels):
        raise InputError(
            f"truth must have the shape (queries, labels), ({queries}, {labels}) as the votes, "
            f"got {array.shape}"
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, (-1, 0, 1)).all():
        raise InputError("truth must hold 1, 0 and -1 (unknown) only")
    return array.astype(np.int8)


def check_grid(name: str, values: Sequence[float]) -> list[float]:
    """Return the values to try; at least one, all finite and positive, none twice."""
    grid = [positive(name, value) for value in values]
    if not grid:
        raise InputError(f"{name} must hold at least one value, got none")
    if len(set(grid)) < len(grid):
        raise InputError(f"{name} must not hold a value twice, got {grid}")
    return grid
