"""The attack on types that are inferred: one cell of one record re-encodes all other records.

In a column of codes that are words and numbers (V27, 250), pandas makes floats of whole numbers
where one record has a gap. While "250.0" was another word than "250", all records then fell under
"other". Whoever knows all records but one tells from the model whether that record has a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import beta
from tests.attacks.conftest import Outcome, full

import privote as pv
from privote.learning.gradients import clipped_sum
from privote.learning.rows import normalize_rows
from privote.learning.tables import TableEncoder

Floats = npt.NDArray[np.float64]

EPSILON, DELTA, RECORDS = 0.5, 1e-6, 1000
ILL = np.arange(RECORDS)[:, None] % 2


def parquet(path: Path, cells: list[Any]) -> Path:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"code": cells}), path)
    return path


@dataclass(frozen=True)
class Case:
    """A table of one column: public cells, two private ones, and what one record has instead."""

    table: Callable[[Path, list[Any]], Any]
    public: list[Any]
    healthy: Any
    ill: Any
    instead: Any
    fits: int = 80

    def tables(self, folder: Path) -> tuple[Any, Any, Any]:
        """Return the public table and the private ones of two neighbours."""
        cells = [self.ill if one else self.healthy for one in ILL[:, 0]]
        names = (folder / f"{name}.parquet" for name in ("public", "private", "neighbour"))
        rows = ([*self.public] * 25, cells, [self.instead, *cells[1:]])
        public, private, neighbour = map(self.table, names, rows)
        return public, private, neighbour

    def row(self, folder: Path, cell: Any) -> Any:
        """Return a table with one row."""
        return self.table(folder / f"{cell}.parquet", [cell])


DAYS = ["2021-03-01", "2021-03-09", "2021-06-02", "2021-09-04"]
CASES = {
    "a gap in a frame": Case(
        lambda _, cells: pd.DataFrame({"code": cells}), ["V27", 250, 401, 530], 250, 401, None, 400
    ),
    "a gap in Parquet": Case(parquet, ["V27", "250", "401", "530"], 250, 401, None),
    "a time of day among arrays": Case(
        lambda _, cells: {"code": np.array(cells, "M8")}, DAYS, DAYS[0], DAYS[3], f"{DAYS[2]}T13:37"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_record_moves_the_gradients_by_no_more_than_is_priced(
    name: str, tmp_path: Path
) -> None:
    public, *neighbours = CASES[name].tables(tmp_path)
    encoder = TableEncoder().fit(public)
    sums = []
    for table in neighbours:
        rows = normalize_rows(np.asarray(encoder.transform(table), np.float64))
        start = np.zeros((rows.shape[1], 1))
        sums.append(clipped_sum(rows, ILL.astype(np.int8), start, 0.0, 1.0)[0])
    assert np.linalg.norm(sums[0] - sums[1]) <= 2


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")  # of poor models
@pytest.mark.parametrize("name", CASES)
def test_no_model_tells_which_neighbour_it_was_trained_on(
    name: str, tmp_path: Path, outcome: Outcome
) -> None:
    """Fit both neighbours often, with noise of its own each time, and bound epsilon from below."""
    case = CASES[name]
    public, *neighbours = case.tables(tmp_path)
    fits = (2000 if full() else case.fits) // 2
    codes = [case.row(tmp_path, code) for code in (case.ill, case.healthy)]
    seen = np.zeros((2, fits))
    for side, table in enumerate(neighbours):
        for fit in range(fits):
            model = pv.PrivateClassifier("moments", epsilon=EPSILON, delta=DELTA)
            model.fit(table, ILL, public, seed=2 * fit + side)
            # What the model makes of a code that is common among the ill, and of the other one.
            ill, healthy = (model.predict_proba(row)[0, 0] for row in codes)
            seen[side, fit] = ill - healthy
    bound = least_epsilon(*seen)
    print(f"{name}: epsilon is at least {bound:.2f} after {2 * fits} fits")
    outcome(f"a model that tells of {name}", 2 * fits, int(bound > EPSILON))


def least_epsilon(first: Floats, second: Floats) -> float:
    """Return what epsilon is at least, with 95 % confidence, by what models of two neighbours say.

    The event is chosen by one half of the fits and counted in the other.
    """
    half = len(first) // 2

    def bound(event: Callable[[Floats], Any], part: slice) -> float:
        (often, tries), (seldom, _) = (
            (int(event(side[part]).sum()), len(side[part])) for side in (first, second)
        )
        # Clopper and Pearson, each side with 97.5 %.
        least = beta.ppf(0.025, often, tries - often + 1) if often else 0.0
        most = beta.ppf(0.975, seldom + 1, tries - seldom) if seldom < tries else 1.0
        return math.log(max(least - DELTA, 1e-9) / most)

    events: list[Callable[[Floats], Any]] = []
    for bar in np.concatenate([first[:half], second[:half]]):
        events += [lambda said, bar=bar: said >= bar, lambda said, bar=bar: said < bar]
    best = max(events, key=lambda event: bound(event, slice(half)))
    return max(0.0, bound(best, slice(half, None)))
