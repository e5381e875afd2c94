from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tests.refusals import refused

import privote as pv
from privote.dependencies import Implications, consistent

CHEST = [("Pneumonia", "Consolidation"), ("Consolidation", "Opacity"), ("Edema", "Opacity")]
DELTA = 1e-5
NAMES = ("Opacity", "Consolidation", "Pneumonia", "Edema")

# Pairs of places that go up in number cannot lead back.
RISING = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] < pair[1]),
    min_size=1,
    max_size=8,
)
ROWS = arrays(np.int8, (7, 5), elements=st.integers(-1, 1))


def test_pairs_and_mappings_say_the_same() -> None:
    mapping = {"Pneumonia": "Consolidation", "Consolidation": ["Opacity"], "Edema": ("Opacity",)}
    for source in (CHEST, mapping, Implications.of(CHEST), [*CHEST, CHEST[0]]):
        assert sorted(Implications.of(source).pairs) == sorted(CHEST)


def test_a_cycle_is_shown() -> None:
    with refused("implies") as caught:
        Implications.of([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    cycle = str(caught.value).rpartition(": ")[2].split(" -> ")
    assert len(cycle) == 4
    assert cycle[0] == cycle[-1]
    assert {*itertools.pairwise(cycle)} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_labels_are_found_by_name_or_place() -> None:
    assert set(Implications.of(CHEST).places(4, NAMES)) == {(2, 1), (1, 0), (3, 0)}
    assert Implications.of([("2", "0")]).places(3) == [(2, 0)]


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("up", [[1, 1, 1, 0], [0, 0, 0, 0], [1, -1, -1, 1], [1, 1, 1, -1], [0, 0, 0, 0]]),
        ("down", [[0, 0, 0, 0], [0, 0, 0, 0], [1, -1, -1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]),
    ],
)
def test_who_gives_way(rule: str, made: list[list[int]]) -> None:
    labels = np.array(
        [[0, 0, 1, 0], [0, 0, 0, 0], [-1, -1, -1, 1], [0, -1, 1, -1], [0, -1, -1, 0]], np.int8
    )
    np.testing.assert_array_equal(consistent(labels, CHEST, rule, names=NAMES), made)


@given(labels=ROWS, pairs=RISING, rule=st.sampled_from(["up", "down"]))
def test_what_is_consistent(labels: np.ndarray, pairs: list[tuple[int, int]], rule: str) -> None:
    before = labels.copy()
    made = consistent(labels, pairs, rule)
    np.testing.assert_array_equal(labels, before)
    for child, parent in Implications.of(pairs).pairs:
        below, above = made[:, int(child)], made[:, int(parent)]
        assert (above[below == 1] == 1).all()
        assert (below[above == 0] == 0).all()
    np.testing.assert_array_equal(consistent(made, pairs, rule), made)
    # The side that does not give way keeps what was released, and nothing else is made up.
    kept = 1 if rule == "up" else 0
    assert (made[labels == kept] == kept).all()
    alone = np.setdiff1d(np.arange(5), np.unique(pairs))
    np.testing.assert_array_equal(made[:, alone], labels[:, alone])
    assert ((made != labels) <= ((labels >= 0).any(axis=1)[:, None])).all()


@given(
    scores=arrays(np.float64, (4, 5), elements=st.floats(0, 1)),
    pairs=RISING,
    rule=st.sampled_from(["up", "down"]),
)
def test_probabilities(scores: np.ndarray, pairs: list[tuple[int, int]], rule: str) -> None:
    made = consistent(scores, pairs, rule)
    assert ((made >= scores) if rule == "up" else (made <= scores)).all()
    for child, parent in pairs:
        assert (made[:, child] <= made[:, parent]).all()
    # Labels by a bar on consistent probabilities are the consistent labels.
    bar = (scores >= 0.5).astype(np.int8)
    np.testing.assert_array_equal(made >= 0.5, consistent(bar, pairs, rule))


def test_a_release_says_what_was_done(tmp_path: Path) -> None:
    votes = np.random.default_rng(3).random((60, 20, 3)) < [0.7, 0.3, 0.5]
    asked = {"mechanism": pv.BinaryVoting(sigma=3.0), "guarantee": "worst-case", "seed": 4}
    plain = pv.label(votes, epsilon=200, delta=DELTA, **asked)
    made = consistent(plain, {0: [1, 2]})
    changed = int((made.labels != plain.labels).sum())
    assert changed
    assert made.processed == (f"2 implications were applied (up) and changed {changed} labels",)
    assert (made.epsilon, plain.processed) == (plain.epsilon, ())
    assert made.processed[0] in made.summary()
    made.save(tmp_path / "made.npz")
    assert pv.Release.load(tmp_path / "made.npz").processed == made.processed
    matrix = pv.dependencies.positive(made)
    np.testing.assert_array_equal(matrix, pv.dependencies.positive(made.labels))


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
