"""Asking one label first, and the others only if it was released as 1, on readers of CheXpert.

- all: all five findings are asked.
- more noise: the same, with so much noise that it costs what the gated questions cost.
- gated: the four others are asked where the first is released as 1, and are 0 elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv

from .bench import Bench, Measured, over_seeds
from .counts import chances, expected
from .electorates import Electorate, electorate
from .sources import RADIOLOGISTS, find

Array = npt.NDArray[Any]
LABELS = 5


def gated_questions(bench: Bench) -> Measured | None:
    """Ask five findings always, with more noise, or four of them only if the first was released 1.

    Real readers of CheXpert: eight radiologists, and the same with ten models. Sigma is the paper's
    7 of fifty voters, scaled to theirs. Costs are summed over all 500 studies at order 2, so that
    "more noise" costs what the gated questions cost.
    """
    if find(bench.data, RADIOLOGISTS) is None:
        return None
    rows: list[dict[str, Any]] = []
    facts: dict[str, float] = {}
    for name in ("radiologists", "readers"):
        for account in ("pate2018", "exact"):
            runs = [_ways(electorate(name, s, bench.data).first(LABELS), account, s)
                    for s in range(bench.seeds)]  # fmt: skip
            for way in runs[0]:
                means, shown = over_seeds([run[way] for run in runs])
                kind = "paper" if account == "pate2018" else "exact"
                rows.append({"votes": name, "accounting": kind, "way": way, **shown})
                key = way.replace(" ", "_")
                facts |= {f"{name}_{kind}_{key}_{f}": v for f, v in means.items()}
    return Measured(rows=rows, facts=facts)


def _ways(some: Electorate, bound: str, seed: int) -> dict[str, dict[str, float]]:
    """Return for each way how many times as many queries it allows, its noise, ACC and BAC."""
    scale = some.voters / 50
    mechanism, rng = pv.BinaryVoting(sigma=7.0 * scale), np.random.default_rng(seed)

    def cost(votes: Array, noise: float) -> Array:
        return np.asarray(pv.BinaryVoting(sigma=noise).rdp(votes, [2.0], bound=bound)[:, 0])

    table = chances(mechanism, some.votes)
    asked = rng.random(len(table)) < table[:, 0, 1]
    every = cost(some.votes, mechanism.sigma).sum()
    gated = cost(some.votes[:, :, :1], mechanism.sigma).sum()
    gated += (cost(some.votes[:, :, 1:], mechanism.sigma) * asked).sum()
    louder = 7.0 * scale
    while louder < 400 and cost(some.votes, louder).sum() > gated:
        louder *= 1.02
    through = table.copy()
    through[~asked, 1:, 0], through[~asked, 1:, 1] = 1.0, 0.0
    through[:, 0, 1], through[:, 0, 0] = asked, ~asked
    noisy = chances(pv.BinaryVoting(sigma=louder), some.votes)
    more = float(every / gated)
    return {
        "all": {"queries": 1.0, "sigma": 7.0, **expected(table, some.truth)},
        "more noise": {"queries": more, "sigma": louder / scale, **expected(noisy, some.truth)},
        "gated": {"queries": more, "sigma": 7.0, **expected(through, some.truth)},
    }
