"""What a claim is, what measuring it returns, and what may be said of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import sources

Word = Literal[
    "holds", "holds in part", "does not hold", "cannot be tested here", "not run", "measured"
]
Verdict = tuple[Word, str]

HOLDS: Word = "holds"
PART: Word = "holds in part"
FAILS: Word = "does not hold"
ABSENT: Word = "cannot be tested here"
NOT_RUN: Word = "not run"

MEASURED: Word = "measured"

# What a claim is measured on, and the data that it uses if they are there: for Claim(**...).
On = dict[str, Any]
EXACT: On = {"data": "computation, no data"}
VOC: On = {"data": "VOC (real votes)", "sources": (sources.VOTES, sources.VOC)}
CHEST: On = {"data": "CheXpert (its labels, made votes)", "sources": (sources.CHEXPERT,)}
MODELS: On = {"data": "VOC features, fifty linear models", "sources": (sources.FEATURES,)}
FILE = "the published matrix, the label file"


def together(*parts: On) -> On:
    """Return what a claim is measured on that is measured on all of these."""
    used = tuple(one for part in parts for one in part.get("sources", ()))
    return {"data": ", ".join(part["data"] for part in parts), "sources": used}


TMC: On = {"data": "tmc2007 (real votes)", "sources": (sources.TMC,)}
NIH: On = {"data": "chest X-rays of the NIH", "sources": (sources.NIH,)}
PADCHEST: On = {"data": "PadChest (its labels, ten made voters)", "sources": (sources.PADCHEST,)}
MIMIC: On = {"data": "MIMIC-CXR (all made)"}
BOTH = together(VOC, CHEST)
REAL = together(VOC, TMC, CHEST)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How a run measures: profile, number of seeds, and where data is, if it is."""

    profile: str = "quick"
    seeds: int = 3
    data: Path | None = None


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
        theorem, table, figure or algorithm; prose for the paper's text; ours for what it lacks.
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
    sources
        Names of the data that it uses, if they are there.
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
    sources: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """How to measure this one alone."""
        data = " --data DIR" if set(self.sources) - set(sources.EMBEDDED) - {sources.VOC} else ""
        return f"python -m experiments.paper --only {self.key}{data}"
