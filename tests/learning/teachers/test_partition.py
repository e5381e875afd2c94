"""Parts by names: a record's part follows from its own name and the key, from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

import privote as pv
from privote.learning.teachers.training import partition, partition_key

KEY = b"a secret of the hospital"


@given(
    names=st.lists(st.integers(0, 10**6), min_size=2, max_size=40, unique=True),
    gone=st.integers(0, 39),
    teachers=st.integers(1, 12),
)
def test_taking_a_record_away_moves_no_other(names: list[int], gone: int, teachers: int) -> None:
    before = partition(len(names), teachers, ids=names, key=KEY)
    place = gone % len(names)
    rest = names[:place] + names[place + 1 :]
    after = partition(len(rest), teachers, ids=rest, key=KEY)
    assert np.array_equal(np.delete(before, place), after)


def test_the_order_of_records_does_not_matter() -> None:
    names = [f"record {i}" for i in range(200)]
    order = np.random.default_rng(0).permutation(200)
    parts = partition(200, 7, ids=names, key=KEY)
    assert np.array_equal(partition(200, 7, ids=np.array(names)[order], key=KEY), parts[order])


def test_all_records_of_a_group_reach_one_teacher() -> None:
    patients = np.random.default_rng(0).integers(0, 60, 500)
    parts = partition(500, 10, ids=np.arange(500), groups=patients, key=KEY)
    assert {len(set(parts[patients == p])) for p in range(60) if (patients == p).any()} == {1}
    assert len(set(parts)) > 5


def test_records_of_the_same_name_reach_one_teacher() -> None:
    parts = partition(6, 50, ids=["a", "b", "a", "c", "b", "a"], key=KEY)
    assert parts[0] == parts[2] == parts[5]
    assert parts[1] == parts[4]


def test_without_names_a_record_is_its_row() -> None:
    assert np.array_equal(
        partition(100, 9, key=KEY), partition(100, 9, ids=list(range(100)), key=KEY)
    )


def test_parts_are_even_by_chance() -> None:
    sizes = np.bincount(partition(20_000, 50, key=KEY), minlength=50)
    # 50 parts of 400 +- 20: five standard deviations either way.
    assert 300 < sizes.min()
    assert sizes.max() < 500


def test_the_key_decides() -> None:
    one, two = partition(300, 20, key=KEY), partition(300, 20, key=b"another")
    assert (one == two).mean() < 0.2
    assert np.array_equal(partition(300, 20, key=5), partition(300, 20, key=np.int64(5)))
    assert not np.array_equal(partition(300, 20, key=5), partition(300, 20, key=6))


def test_a_key_is_a_secret_unless_there_is_a_seed(tmp_path: Path) -> None:
    book = pv.Ledger.in_memory()
    keys = [partition_key(None, "ward 7", None) for _ in range(2)]
    keys += [partition_key(None, "ward 7", seed) for seed in (0, 1)]
    keys += [partition_key(book, name, None) for name in ("ward 7", "ward 8")]
    keys += [partition_key(tmp_path / name, "ward 7", None) for name in ("a.db", "b.db")]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert partition_key(None, "ward 7", 0) == partition_key(book, "ward 8", 0)
    assert partition_key(tmp_path / "a.db", "ward 7", None) == keys[6]
    # Nothing that the ledger shows holds it.
    assert keys[6].hex() not in (tmp_path / "a.db").read_bytes().hex()


def test_a_row_that_is_put_in_leaves_the_others_apart_by_chance() -> None:
    # Without names: under a secret key, parts of rows are independent of where a row stands, so
    # the others can be paired with the parts that they would have had.
    sizes = np.zeros((3, 3, 2))
    for key in range(3000):
        for rows in (2, 3):
            place = partition(rows, 3, key=key)[-2:]
            sizes[place[0], place[1], rows - 2] += 1
    assert np.abs(sizes / 3000 - 1 / 9).max() < 0.03


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"n_records": 0}, "n_records"),
        ({"n_teachers": 0}, "n_teachers"),
        ({"n_teachers": 2.0}, "n_teachers"),
        ({"n_teachers": True}, "n_teachers"),
        ({"ids": ["a", "b"]}, "ids"),
        ({"ids": "abc"}, "ids"),
        ({"ids": ["a", None, "b"]}, None),
        ({"groups": [1.0, 2.0, float("nan")]}, None),
        (
            {"ids": ["a", "b", "a"], "groups": [1, 2, 3]},
            "groups",
        ),
        ({"key": b""}, "key"),
        ({"key": -1}, "key"),
        ({"key": "secret"}, "key"),
        ({"key": True}, "key"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], argument: str | None) -> None:
    arguments: dict[str, Any] = {"n_records": 3, "n_teachers": 2, "key": KEY} | changed
    with refused(argument):
        partition(arguments.pop("n_records"), arguments.pop("n_teachers"), **arguments)
