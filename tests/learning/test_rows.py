"""Rows of whatever holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from privote.learning.rows import deviations, padded_blocks, take_rows

TABLE = np.arange(24.0).reshape(6, 4)
CHOSEN = np.array([4, 1])


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE, index=list("fedcba"))
    assert list(take_rows(frame, CHOSEN).index) == ["b", "e"]
    assert len(take_rows(frame, slice(0, 2))) == 2


def test_deviations_of_dense_and_sparse_rows_agree_and_constants_have_none() -> None:
    rows = np.column_stack([TABLE[:, 0], np.full(6, 1e6), np.zeros(6)])
    for kind in (np.asarray, sp.csr_array):
        mean, spread = deviations(kind(rows))
        np.testing.assert_allclose(mean, rows.mean(axis=0))
        np.testing.assert_allclose(spread, [rows[:, 0].std(), 0, 0])


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 6])
def test_blocks_have_one_shape_and_start_with_their_rows(kind: Any, rows: int) -> None:
    seen = []
    for block, place in padded_blocks(kind(TABLE[:rows]), 4):
        assert block.shape == (4, TABLE.shape[1])
        whole = block.toarray() if sp.issparse(block) else block
        seen.append(whole[: place.stop - place.start])
    np.testing.assert_array_equal(np.concatenate(seen), TABLE[:rows])
