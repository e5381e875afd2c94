"""What a claim is, what measuring it returns, and what may be said of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

Word = Literal["holds", "holds in part", "does not hold", "cannot be tested here", "not run"]
Verdict = tuple[Word, str]

HOLDS: Word = "holds"
PART: Word = "holds in part"
FAILS: Word = "does not hold"
ABSENT: Word = "cannot be tested here"
NOT_RUN: Word = "not run"

# What a claim is measured on.
EXACT = "computation, no data"
VOC = "VOC electorate (made)"
CHEST = "CheXpert electorate (made)"
BOTH = "VOC and CheXpert electorates (made)"
REAL = "VOC and CheXpert electorates (made), tmc2007 (real votes)"
SCENES = "scenes of digits (embedded), 50 linear models"
FILE = "the published matrix; the label file, if --data has it"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How a run measures: profile, number of seeds, where data is, if it is, and where parts go."""

    profile: str = "quick"
    seeds: int = 3
    data: Path | None = None
    parts: Path | None = None

    @property
    def full(self) -> bool:
        """Whether there is a night for it."""
        return self.profile == "full"

    def find(self, *patterns: str) -> Path | None:
        """Return the first file of the data folder that fits, or None."""
        if self.data is None:
            return None
        found = (path for pattern in patterns for path in sorted(self.data.rglob(pattern)))
        return next(found, None)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make`` makes, as plain values; a part that was made before is read.

        A long measurement that is made in such parts goes on where it was broken off.
        """
        if self.parts is None:
            return _plain(make())
        file = self.parts / f"{name}.json"
        if not file.is_file():
            self.parts.mkdir(parents=True, exist_ok=True)
            write_whole(file, make())
        return json.loads(file.read_text(encoding="utf-8"))


def write_whole(file: Path, value: Any) -> None:
    """Write plain values as JSON; a run that is broken off leaves no half a file."""
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(_plain(value), ensure_ascii=False), encoding="utf-8")
    draft.replace(file)


def _plain(value: Any) -> Any:
    """Return plain values: NumPy's numbers as Python's, what is no number as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines as the paper draws them: name -> x -> y."""

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[float, float]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured: rows of a table, numbers for the verdict, and plots; plain values only."""

    rows: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    plots: Sequence[Plot] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "rows": [dict(row) for row in self.rows],
            "facts": dict(self.facts),
            "plots": [
                {
                    "title": p.title,
                    "x": p.x,
                    "y": p.y,
                    "series": {n: [[x, y] for x, y in s.items()] for n, s in p.series.items()},
                }
                for p in self.plots
            ],
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Measured:
        """Return what was kept as JSON."""
        return cls(
            rows=kept["rows"],
            facts=kept["facts"],
            plots=[
                Plot(
                    title=p["title"],
                    x=p["x"],
                    y=p["y"],
                    series={n: {float(x): float(y) for x, y in s} for n, s in p["series"].items()},
                )
                for p in kept["plots"]
            ],
        )


Measure = Callable[[Bench], Measured | None]
Judge = Callable[[Mapping[str, Any]], Verdict]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement, table or figure of the paper.

    Attributes
    ----------
    key
        Its label in the paper's source; a label that is used twice has "#2" the second time.
    kind
        theorem, table, figure or algorithm.
    title, says
        What it is, and what it says, in our words.
    paper
        Its figures, where it has any.
    data
        What it is measured on here.
    measure
        Measures it; returns None where what it needs is not at hand.
    verdict
        What was measured -> verdict and reason.
    needs
        What it needs if it cannot be measured.
    slow
        Whether it is left to the full profile.
    """

    key: str
    kind: str
    title: str
    says: str
    data: str
    paper: str = "–"
    measure: Measure | None = None
    verdict: Judge | None = None
    needs: str = ""
    slow: bool = False

    @property
    def command(self) -> str:
        """How to measure this one alone."""
        return f"python -m experiments.paper --only {self.key}" + (
            " --profile full" if self.slow else ""
        )
