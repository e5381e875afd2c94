"""How a run measures, and what measuring a claim returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How a run measures: number of seeds, and where data and the authors' code are, if at all."""

    seeds: int = 3
    data: Path | None = None
    authors: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured: rows of a table, and numbers by name for the claim's row of the page."""

    rows: Sequence[Mapping[str, Any]] = ()
    facts: Facts = field(default_factory=dict)


#: Measures a claim; returns None where what it needs is not at hand.
Measure = Callable[[Bench], Measured | None]


def plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, and as None what is no number: ready for JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def spread(values: Sequence[float]) -> str:
    """Return the mean over seeds and its range: mean [lowest, highest]; one value as it is."""
    digits = 0 if all(float(v).is_integer() for v in values) else 3
    mean, low, high = (f"{v:.{digits}f}" for v in (np.mean(values), min(values), max(values)))
    return mean if low == high else f"{mean} [{low}, {high}]"


def over_seeds(draws: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the mean of every figure over the seeds that have it, and the same with its range."""
    names = list(dict.fromkeys(name for draw in draws for name in draw))
    values = {name: [draw[name] for draw in draws if name in draw] for name in names}
    means = {name: float(np.mean(series)) for name, series in values.items()}
    return means, {name: spread(series) for name, series in values.items()}
