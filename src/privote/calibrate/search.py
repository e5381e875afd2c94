"""The search: a grid of noises, then a climb between its rungs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ..mechanisms import Mechanism
from .agreement import Scorer, scorer
from .answers import Answers
from .families import Family, neat
from .result import Candidate
from .sample import Bools

_FINALISTS = 3  # families that are climbed after the grid

Progress = Callable[[int, int], None]
Score = tuple[bool, float, float]


@dataclass(frozen=True)
class Trial:
    """A mechanism whose utility is known, not yet what it answers."""

    family: Family
    sigma: float
    mechanism: Mechanism
    utility: float
    answered: float


class Search:
    """Tries families of mechanisms; remembers every candidate it has priced.

    Utility is found before the price, because whatever falls short of the floor need not be priced.
    Where more noise never answers fewer queries, only the noisiest rung that reaches the floor is
    priced, and those below that answer as many: nothing else on the grid can be better.

    Parameters
    ----------
    want
        (queries, labels) what should be released, for a family's way of counting.
    floor, measure, grid
        The utility to reach, what it is, and the sigmas of the grid, ascending.
    rounds
        How often the way from the best sigma of the grid to its neighbours is halved.
    progress
        Called with how much is done, and of how much.
    """

    def __init__(
        self,
        answers: Answers,
        want: Callable[[Mechanism], Bools],
        *,
        floor: float,
        measure: str,
        grid: Sequence[float],
        rounds: int,
        progress: Progress | None = None,
    ) -> None:
        self._answers, self._want = answers, want
        self._floor, self._measure, self._grid = floor, measure, tuple(grid)
        self._rounds = rounds
        self._progress, self._done, self._total = progress, 0, 0
        self._scorers: dict[Mechanism, Scorer] = {}
        self._trials: dict[Mechanism, Trial] = {}
        self._priced: dict[Mechanism, Candidate] = {}

    @property
    def candidates(self) -> list[Candidate]:
        """Everything priced so far."""
        return list(self._priced.values())

    def expect(self, families: int) -> None:
        """Count a run of so many families into what is to be done."""
        climbs = 2 * self._rounds * min(_FINALISTS, families)
        self._total += (families + 1) * len(self._grid) + climbs

    def run(self, families: Sequence[Family]) -> Trial:
        """Return the best trial so far; its family's whole grid is priced, for the table."""
        leaders = sorted((self._best_rung(f) for f in families), key=self._score, reverse=True)
        best = max((self._climb(leader) for leader in leaders[:_FINALISTS]), key=self._score)
        for sigma in self._grid:
            self.priced(self._try(best.family, sigma))
            self._tick()
        return max((self._trials[known] for known in self._priced), key=self._score)

    def priced(self, trial: Trial, *, thorough: bool = False) -> Candidate:
        """Return the candidate of a trial: how much it answers, and the allowance."""
        if thorough or trial.mechanism not in self._priced:
            queries, allowance = self._answers.count(trial.mechanism, thorough=thorough)
            self._priced[trial.mechanism] = Candidate(
                mechanism=trial.mechanism,
                queries=queries,
                utility=trial.utility,
                answered=trial.answered,
                allowance=allowance,
            )
        return self._priced[trial.mechanism]

    def reaches(self, candidate: Candidate) -> bool:
        """Return whether a candidate answers something, at the floor or above."""
        return candidate.queries > 0 and candidate.utility >= self._floor

    def come_close(self, families: Sequence[Family]) -> None:
        """Price the least noise that each family can afford: to say how close it comes."""
        for family in families:
            for sigma in self._grid:
                if self.priced(self._try(family, sigma)).queries > 0:
                    break

    def finish(self) -> None:
        """Say that nothing is left to do."""
        self._done = self._total - 1
        self._tick()

    # -- one family --------------------------------------------------------------------------------

    def _best_rung(self, family: Family) -> Trial:
        trials = []
        for sigma in self._grid:
            trials.append(self._try(family, sigma))
            self._tick()
        reached = [trial for trial in trials if trial.utility >= self._floor]
        if not reached:
            return max(trials, key=attrgetter("utility"))
        if self._answers.rises_with_noise and not family.gated:
            most = self.priced(reached[-1]).queries
            for place in range(len(reached) - 1, 0, -1):
                if self.priced(reached[place - 1]).queries < most:
                    reached = reached[place:]
                    break
        return max(reached, key=self._score)

    def _climb(self, best: Trial) -> Trial:
        """Move to better noises between the rungs on either side, halving the way each time."""
        left, right = self._neighbours(best.sigma)
        for _ in range(self._rounds):
            lower, upper = (
                self._try(best.family, neat(math.sqrt(best.sigma * end))) for end in (left, right)
            )
            self._tick(2)
            if self._score(upper) > self._score(best):
                left, best = best.sigma, upper
            elif self._score(lower) > self._score(best):
                right, best = best.sigma, lower
            else:
                left, right = lower.sigma, upper.sigma
        return best

    def _neighbours(self, sigma: float) -> tuple[float, float]:
        place = self._grid.index(sigma)
        return self._grid[max(place - 1, 0)], self._grid[min(place + 1, len(self._grid) - 1)]

    # -- one mechanism -----------------------------------------------------------------------------

    def _try(self, family: Family, sigma: float) -> Trial:
        mechanism = family.make(sigma)
        if mechanism not in self._trials:
            if family.counting not in self._scorers:
                want = self._want(family.counting)
                self._scorers[family.counting] = scorer(self._answers.sample, family.counting, want)
            agreement = self._scorers[family.counting](mechanism)
            utility, answered = agreement.measured(self._measure)
            self._trials[mechanism] = Trial(family, sigma, mechanism, utility, answered)
        return self._trials[mechanism]

    def _score(self, trial: Trial) -> Score:
        """Rank by reaching the floor, then by how much is answered, then by utility."""
        if trial.utility < self._floor:
            return False, trial.utility, 0.0
        return True, self.priced(trial).worth, trial.utility

    def _tick(self, steps: int = 1) -> None:
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)
