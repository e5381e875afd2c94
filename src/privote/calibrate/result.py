"""What a calibration found: the candidates, the one chosen, and what choosing was worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..accounting.renyi import rounded_up
from ..mechanisms import Mechanism

#: What must stand next to every number of a calibration.
LOOKED = "chosen by looking at these votes: valid only if they are public or paid for"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism, how many queries it answers, and how well.

    Attributes
    ----------
    mechanism
        Ready to use.
    queries
        How many of the sample's queries, the first ones, are answered within the budget.
    utility
        By the measure that was asked for, of what is answered, over all queries of the sample.
    answered
        The share of the measured cells that the gate lets through; 1 without a gate.
    allowance
        V, under an allowance; else None.
    beyond
        The utility if *all* queries of the sample are answered, those after the first voter has run
        out included. None unless asked for.
    on_front
        True if no other candidate answers as much and agrees better, or agrees as well and answers
        more.
    """

    mechanism: Mechanism
    queries: int
    utility: float
    answered: float = 1.0
    allowance: int | None = None
    beyond: float | None = None
    on_front: bool = False

    @property
    def worth(self) -> float:
        """How many whole queries' worth of labels come out: queries times the share answered."""
        return self.queries * self.answered

    def row(self) -> dict[str, Any]:
        """Return the candidate as plain values, for tables and files."""
        return {
            "mechanism": str(self.mechanism),
            "parameters": self.mechanism.parameters(),
            "queries": self.queries,
            "utility": self.utility,
            "answered": self.answered,
            "allowance": self.allowance,
            "beyond": self.beyond,
            "on_front": self.on_front,
        }


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The candidate that answers most at the floor, and all that were tried.

    The numbers are about these votes. Other votes will agree more or less and last longer or less
    long; epsilon holds for all of them, as long as these ones are public or paid for.

    Attributes
    ----------
    chosen
        The candidate with the most queries among those with ``utility >= floor``.
    table
        All candidates, most queries first; those on the Pareto front are marked.
    guarantee, epsilon, delta, floor, measure
        As asked for.
    against
        What utility was measured against: ``"the noise-free outcome"`` or ``"the truth"``.
    available, voters, labels
        The size of the sample: ``queries`` never exceeds ``available``.
    """

    chosen: Candidate
    table: tuple[Candidate, ...]
    guarantee: str
    epsilon: float
    delta: float
    floor: float
    measure: str
    against: str
    available: int
    voters: int
    labels: int

    @property
    def mechanism(self) -> Mechanism:
        """The chosen mechanism, ready to use."""
        return self.chosen.mechanism

    @property
    def queries(self) -> int:
        """How many of the sample's queries it answers."""
        return self.chosen.queries

    @property
    def utility(self) -> float:
        """How well, by the measure."""
        return self.chosen.utility

    @property
    def allowance(self) -> int | None:
        """V, under an allowance; else None."""
        return self.chosen.allowance

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The candidates that nothing beats in both respects, most queries first."""
        return tuple(candidate for candidate in self.table if candidate.on_front)

    def facts(self) -> dict[str, str]:
        """Return what was chosen, name by name, in words."""
        chosen = self.chosen
        facts = {
            "mechanism": str(chosen.mechanism),
            "budget": f"epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)} "
            f"({self.guarantee})",
            "answers": f"{chosen.queries:,} of {self.available:,} queries",
            self.measure: f"{chosen.utility:.4f} with {self.against} (floor {self.floor:g})",
        }
        if chosen.mechanism.gate is not None:
            facts["gate"] = f"lets {chosen.answered:.1%} of these cells through"
        if chosen.allowance is not None:
            unit = f"{chosen.mechanism.surprise_unit}s"
            facts["allowance"] = f"{chosen.allowance:,} surprises a voter, for life ({unit})"
        if chosen.beyond is not None:
            facts["beyond"] = f"{chosen.beyond:.4f} if all {self.available:,} queries are answered"
        return facts

    def summary(self) -> str:
        """Return the result in a few plain lines."""
        return "\n".join([*(f"{k}: {v}" for k, v in self.facts().items()), LOOKED])

    def __repr__(self) -> str:
        return (
            f"Calibration({self.chosen.mechanism}, queries={self.queries}, "
            f"utility={self.utility:.4f}, allowance={self.allowance}; {LOOKED})"
        )


def with_front(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return candidates that answer something, most first, with the Pareto front marked."""
    ordered = sorted(
        (candidate for candidate in candidates if candidate.queries > 0),
        key=lambda candidate: (-candidate.worth, -candidate.utility),
    )
    marked, best = [], -1.0
    for candidate in ordered:
        on_front = candidate.utility > best
        best = max(best, candidate.utility)
        marked.append(replace(candidate, on_front=on_front))
    return tuple(marked)
