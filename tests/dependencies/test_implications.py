from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.refusals import refused

import privote as pv
from privote.dependencies import Implications, consistent

CHEST = [("Pneumonia", "Consolidation"), ("Consolidation", "Opacity"), ("Edema", "Opacity")]
NAMES = ("Opacity", "Consolidation", "Pneumonia", "Edema")

# Pairs of places that go up in number cannot lead back.
RISING = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] < pair[1]),
    min_size=1,
    max_size=8,
)
ROWS = arrays(np.int8, (7, 5), elements=st.integers(-1, 1))


@pytest.mark.parametrize(
    "source",
    [
        CHEST,
        {"Pneumonia": "Consolidation", "Consolidation": ["Opacity"], "Edema": ("Opacity",)},
        Implications.of(CHEST),
        [*CHEST, CHEST[0]],
    ],
)
def test_pairs_and_mappings_say_the_same(source: Any) -> None:
    assert set(Implications.of(source).pairs) == set(CHEST)
    assert len(Implications.of(source).pairs) == len(CHEST)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("child,parent\nPneumonia,Consolidation\nConsolidation,Opacity\nEdema,Opacity\n", CHEST),
        ("\ufeffparent,why,child\nb, ,a\n", [("a", "b")]),
        ("", None),
        ("a,b\nc,d\n", None),
        ("child,parent\na,b\nc\n", None),
        ("child,parent\na,\n", None),
        ("child,parent\n", None),
    ],
)
def test_files(tmp_path: Path, text: str, pairs: list[tuple[str, str]] | None) -> None:
    file = tmp_path / "implies.csv"
    file.write_text(text, encoding="utf-8")
    if pairs is None:
        with refused("implies"):
            Implications.of(file)
        return
    assert set(Implications.of(file).pairs) == set(Implications.of(str(file)).pairs) == set(pairs)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00 -> \x81")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "bytes"):
        with refused("implies"):
            Implications.of(path)


@pytest.mark.parametrize(
    "bad", [3, [], {}, ["ab"], [("a",)], [("a", "")], [("a", -1)], [("a", True)]]
)
def test_odd_sources_are_refused(bad: Any) -> None:
    with refused("implies"):
        Implications.of(bad)


def test_a_cycle_is_shown() -> None:
    with refused("implies") as caught:
        Implications.of([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    cycle = str(caught.value).rpartition(": ")[2].split(" -> ")
    assert len(cycle) == 4
    assert cycle[0] == cycle[-1]
    assert {*itertools.pairwise(cycle)} == {("a", "b"), ("b", "c"), ("c", "a")}
    with refused("implies"):
        Implications.of([("a", "a")])


def test_a_cycle_between_a_name_and_its_place() -> None:
    mixed = Implications.of([("a", "b"), (1, 0)])
    with refused("implies"):
        mixed.places(2, ("a", "b"))


def test_labels_are_found_by_name_or_place() -> None:
    stated = Implications.of(CHEST)
    assert set(stated.places(4, NAMES)) == {(2, 1), (1, 0), (3, 0)}
    assert Implications.of([("2", "0")]).places(3) == [(2, 0)]
    with refused("implies"):
        stated.places(3, NAMES[:3])
    with refused("implies"):
        stated.places(4)
    with refused("implies", value=3):
        Implications.of([(3, 0)]).places(3)


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


def test_bad_labels_and_rules() -> None:
    with refused("rule", value="sideways"):
        consistent([[1, 0]], [(0, 1)], "sideways")
    with refused("labels"):
        consistent(np.array([[0.2, -1.0]]), [(0, 1)])
    with refused("labels"):
        consistent([[1, 2]], [(0, 1)])


def test_a_release_says_what_was_done(tmp_path: Path) -> None:
    votes = np.random.default_rng(3).random((60, 20, 3)) < [0.7, 0.3, 0.5]
    plain = pv.label(
        votes, mechanism=pv.BinaryVoting(sigma=3.0), guarantee="worst-case", epsilon=200,
        delta=1e-5, seed=4,
    )  # fmt: skip
    made = consistent(plain, {0: [1, 2]})
    changed = int((made.labels != plain.labels).sum())
    assert changed
    assert made.processed == (f"2 implications were applied (up) and changed {changed} labels",)
    assert made.epsilon == plain.epsilon
    assert plain.processed == ()
    for text in (made.summary(), made.statement()):
        assert made.processed[0] in text
    assert "costs no privacy budget" in made.statement()
    assert "Post-processing" not in plain.statement()
    made.save(tmp_path / "made.npz")
    assert pv.Release.load(tmp_path / "made.npz").processed == made.processed
