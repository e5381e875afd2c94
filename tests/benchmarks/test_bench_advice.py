from __future__ import annotations

import bench_advice as bench
import numpy as np
import pytest

CELLS = [cell for cell in bench.cells(bench.GRID, small=True) if cell.voters <= 250][::2]


@pytest.mark.parametrize(("factor", "most"), [(1.0, 0.02), (3.0, 0.05), (1 / 3, 0.05)])
def test_advice_is_close_to_the_best_settings(factor: float, most: float) -> None:
    regrets = []
    for cell in CELLS:
        if factor * cell.yes > 0.9 * cell.agreement:
            continue
        advice = bench.advise(cell, factor * cell.yes)
        queries = advice.queries if factor == 1 else bench.stop(cell, advice)
        regrets.append(max(0.0, bench.best(cell)[0] - bench.reached(cell, advice, queries)))
    assert len(regrets) >= 10
    assert np.mean(regrets) <= most


@pytest.mark.parametrize(
    "cell",
    [
        bench.Cell(0.3, "high", 50, 10, 100, 8.0),
        bench.Cell(0.1, "middle", 250, 10, 100, 1.0),
        bench.Cell(0.03, "low", 50, 100, 100, 8.0),
    ],
    ids=str,
)
def test_expectations_are_what_draws_give(cell: bench.Cell) -> None:
    advice = bench.advise(cell, cell.yes)
    for queries in (advice.queries, cell.queries):  # the second goes on after voters ran out
        expected = bench.reached(cell, advice, queries)
        drawn = [bench.drawn(cell, advice, queries, seed) for seed in range(3)]
        assert np.mean(drawn) == pytest.approx(expected, abs=0.02)
