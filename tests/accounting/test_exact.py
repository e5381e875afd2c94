"""Costs of cells: every shift, both directions, and sums over clipped ballots."""

from __future__ import annotations

import itertools

import numpy as np

from privote.accounting.exact import clipped_sum


def test_clipped_sum_is_the_worst_choice_of_labels() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([1, 3, 4])
    down, up = rng.random((2, 5, 4, 3, 2))
    found = clipped_sum(down, up, sizes)
    for query, order in itertools.product(range(5), range(2)):
        best = [0.0, 0.0]
        for place, side in enumerate((down, up)):
            for column, size in enumerate(sizes):
                for lost in itertools.combinations(range(4), size):
                    best[place] = max(best[place], side[query, list(lost), column, order].sum())
        assert found[query, order] == np.float64(sum(best)) or np.isclose(
            found[query, order], sum(best)
        )
