"""What an exact audit found: comparisons, violations, and the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .textbook import Floats

RELATIVE, ABSOLUTE = 1e-7, 1e-12  # what rounding may put between two right answers
TIGHT = 1e-6
_KEPT = 20  # violations kept with their election
FORWARD, BACKWARD = "here||neighbour", "neighbour||here"


@dataclass(frozen=True)
class Violation:
    """A stated cost that an election exceeds, with all it takes to see it again."""

    quantity: str
    direction: str
    order: float
    stated: float
    enumerated: float
    mechanism: str
    votes: list[Any]
    neighbour: list[Any] | None

    def __str__(self) -> str:
        change = "" if self.neighbour is None else f", neighbour {self.neighbour}"
        return (
            f"{self.quantity}: stated {self.stated:.9g}, enumerated {self.enumerated:.9g} at order "
            f"{self.order:g}, {self.direction}; {self.mechanism}, votes {self.votes}{change}"
        )


@dataclass(frozen=True)
class AuditReport:
    """What an exact audit saw.

    Attributes
    ----------
    elections, neighbours
        How many were enumerated.
    ratios
        For each stated quantity the largest enumerated / stated; above 1 the guarantee is broken.
    tightness
        The smallest enumerated / stated of each voter's own bill; 1 means it is exact.
    exceeded
        For each quantity and direction, in how many elections it was too small.
    violations
        The first of them, each reproducible.
    independent
        Whether the true probabilities are a textbook's; or the mechanism's own, one from outside.
    """

    mechanism: str
    voters: int
    labels: int
    orders: tuple[float, ...]
    elections: int
    neighbours: int
    ratios: dict[str, float]
    tightness: float
    exceeded: dict[tuple[str, str], int]
    violations: tuple[Violation, ...]
    independent: bool = True

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.exceeded

    @property
    def tight(self) -> bool:
        """True if every voter's own bill is its enumerated cost, and not only an upper bound."""
        return self.tightness >= 1 - TIGHT

    def summary(self) -> str:
        """Return the findings in a few lines."""
        lines = [
            f"{'ok' if self.ok else 'BROKEN'}: {self.mechanism}, {self.voters} voters, "
            f"{self.labels} labels: {self.elections} elections, {self.neighbours} neighbours",
            *(
                f"  {name}: largest enumerated/stated {ratio:.9f}"
                for name, ratio in self.ratios.items()
            ),
            *(
                []
                if self.independent
                else ["  probabilities: the mechanism's own, no textbook has it"]
            ),
            f"  rdp_by_voter: smallest enumerated/stated {self.tightness:.9f}",
            *(
                f"  {name} is too small in {count} elections, direction {direction}"
                for (name, direction), count in self.exceeded.items()
            ),
            *(f"  {violation}" for violation in self.violations[:3]),
        ]
        return "\n".join(lines)


@dataclass
class Findings:
    """Collects comparisons; becomes the report."""

    mechanism: str
    orders: Floats
    ratios: dict[str, float] = field(default_factory=dict)
    exceeded: dict[tuple[str, str], int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def compare(
        self,
        quantity: str,
        direction: str,
        enumerated: Floats,
        stated: Floats,
        show: Callable[[int], tuple[list[Any], list[Any] | None]],
    ) -> None:
        """Compare (cases, ..., orders) with what was stated; ``show`` names a case's election."""
        stated = np.broadcast_to(stated, enumerated.shape)
        above = np.maximum(enumerated - ABSOLUTE, 0.0)
        ratio = np.divide(above, stated, out=np.where(above > 0, np.inf, 0.0), where=stated > 0)
        self.ratios[quantity] = max(self.ratios.get(quantity, 0.0), float(ratio.max(initial=0.0)))
        # Written so that a NaN on either side is a violation too.
        bad = ~(enumerated <= stated * (1 + RELATIVE) + ABSOLUTE)
        if not bad.any():
            return
        cases = np.unique(np.nonzero(bad)[0])
        key = (quantity, direction)
        self.exceeded[key] = self.exceeded.get(key, 0) + len(cases)
        for case in cases[: max(0, _KEPT - len(self.violations))]:
            at = np.unravel_index(
                np.argmax(np.where(bad[case], ratio[case], -1.0)), bad[case].shape
            )
            votes, neighbour = show(int(case))
            self.violations.append(
                Violation(
                    quantity,
                    direction,
                    float(self.orders[at[-1]]),
                    float(stated[case][at]),
                    float(enumerated[case][at]),
                    self.mechanism,
                    votes,
                    neighbour,
                )
            )
