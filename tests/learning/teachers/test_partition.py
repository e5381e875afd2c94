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


def test_all_records_of_a_group_reach_one_teacher() -> None:
    patients = np.random.default_rng(0).integers(0, 60, 500)
    parts = partition(500, 10, ids=np.arange(500), groups=patients, key=KEY)
    assert {len(set(parts[patients == p])) for p in range(60) if (patients == p).any()} == {1}
    assert len(set(parts)) > 5


def test_without_names_a_record_is_its_row() -> None:
    assert np.array_equal(
        partition(100, 9, key=KEY), partition(100, 9, ids=list(range(100)), key=KEY)
    )


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
        ({"ids": ["a", "b", "a"], "groups": [1, 2, 3]}, "groups"),
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
