from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tests.refusals import refused

import privote as pv

TABLES = arrays(
    np.int8, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-1, 1)
)


@given(TABLES)
def test_it_is_the_share_of_pairs_that_are_known(Y: np.ndarray) -> None:
    for value, matrix in ((1, pv.dependencies.positive(Y)), (0, pv.dependencies.negative(Y))):
        for row in range(Y.shape[1]):
            for column in range(Y.shape[1]):
                there = Y[Y[:, row] == value, column]
                there = there[there >= 0]
                expected = (there == value).mean() if len(there) else np.nan
                assert matrix[row, column] == pytest.approx(expected, nan_ok=True)


def test_a_release_that_abstains() -> None:
    votes = np.random.default_rng(0).random((40, 9, 4)) < 0.5
    mechanism = pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=6, sigma=1.0))
    release = pv.label(
        votes, mechanism=mechanism, guarantee="allowance", epsilon=50, delta=1e-5, seed=1
    )
    assert release.abstained
    matrix = pv.dependencies.positive(release)
    np.testing.assert_array_equal(matrix, pv.dependencies.positive(release.labels))
    assert (np.diag(matrix) == 1).all()


@pytest.mark.parametrize("bad", [[1, 0], [[2, 0]], [[0.5, 1]], [["1", "0"]], [[1], [0, 1]], None])
def test_other_tables_are_refused(bad: object) -> None:
    with refused("Y"):
        pv.dependencies.positive(bad)
