"""The common type: what it checks, and how it is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.refusals import refused

from privote.datasets import Images, MultiLabelData, Split, keyed_parts
from privote.errors import InputError


def data(records: int = 600, patients: int | None = None, **changes: Any) -> MultiLabelData:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "X": np.arange(2 * records, dtype=np.float32).reshape(records, 2),
        "Y": rng.integers(-1, 2, (records, 3)).astype(np.int8),
        "label_names": ("a", "b", "c"),
        "ids": np.array([f"r{i}" for i in range(records)]),
        "groups": None if patients is None else np.arange(records) % patients,
        "columns": {"row": np.arange(records)},
        "name": "toy",
    }
    return MultiLabelData(**(fields | changes))


def sides(split: Split) -> dict[str, MultiLabelData]:
    return {"private": split.private, "public": split.public, "test": split.test}


@pytest.mark.parametrize("kind", ["array", "sparse", "images", "none"])
def test_take_cuts_everything_alike(kind: str) -> None:
    whole = data(50, 7)
    X: Any = {
        "array": whole.X,
        "sparse": csr_array(whole.X),
        "images": Images(paths=[f"{i}.png" for i in range(50)]),
        "none": None,
    }[kind]
    rows = np.array([40, 3, 10])
    some = data(50, 7, X=X).take(rows)
    assert some.columns["row"].tolist() == rows.tolist()
    assert some.ids.tolist() == ["r40", "r3", "r10"]
    assert some.groups is not None
    assert some.groups.tolist() == (rows % 7).tolist()
    np.testing.assert_array_equal(some.Y, whole.Y[rows])
    if kind == "images":
        assert some.X.paths.tolist() == ["40.png", "3.png", "10.png"]
    elif kind != "none":
        np.testing.assert_array_equal(csr_array(some.X).toarray(), whole.X[rows])


@pytest.mark.parametrize("patients", [None, 300])
def test_a_split_covers_everything_once_in_about_the_shares_asked_for(patients) -> None:
    parts = sides(data(4000, patients).split(private=0.6, public=0.3, test=0.1))
    rows = np.concatenate([part.columns["row"] for part in parts.values()])
    assert sorted(rows.tolist()) == list(range(4000))
    for part, share in zip(parts.values(), (0.6, 0.3, 0.1), strict=True):
        assert len(part) / 4000 == pytest.approx(share, abs=0.06)
    if patients is not None:  # each is on one side
        found = [set(part.groups.tolist()) for part in parts.values() if part.groups is not None]
        assert sum(map(len, found)) == len(set.union(*found)) == 300


def test_a_split_moves_no_old_record_and_is_unrelated_to_the_partition() -> None:
    before, after = (sides(data(size).split()) for size in (600, 601))
    for side, part in before.items():
        assert set(part.ids.tolist()) <= set(after[side].ids.tolist())
    # Otherwise the private side would fill only the first voters.
    private = data(4000).split(private=0.5, public=0.5, key=b"one key").private
    assert np.bincount(keyed_parts(private.ids, 10, key=b"one key"), minlength=10).min() > 120


def test_zero_leaves_a_side_empty_and_bad_luck_is_an_error() -> None:
    split = data().split(private=0.9, public=0.1)
    assert len(split.test) == 0
    assert len(split.private) + len(split.public) == 600
    assert repr(split).startswith("Split(toy: private=")
    with pytest.raises(InputError, match=r"test=0\.001 "):
        data(5).split(private=0.5, public=0.499, test=0.001)
    with pytest.raises(InputError, match=r" 0\.6"):
        data().split(private=0.5, public=0.1)


def test_sides_fixed_by_the_data_set_are_kept() -> None:
    fixed = np.repeat(["private", "public", "test"], [300, 200, 100])
    split = data(sides=fixed).split()
    assert [len(side) for side in sides(split).values()] == [300, 200, 100]
    assert split.public.columns["row"].tolist() == list(range(300, 500))
    with pytest.raises(InputError, match="toy"):
        data(sides=fixed).split(private=0.5, public=0.5)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"Y": np.full((600, 3), 2)}, None),
        ({"Y": np.full((600, 3), "x")}, "Y"),
        ({"Y": np.zeros((600, 2))}, "Y"),
        ({"X": np.zeros((599, 2))}, None),
        ({"feature_names": ("x",)}, "feature_names"),
        ({"groups": np.zeros(3)}, None),
        ({"columns": {"age": np.zeros(3)}}, None),
        ({"ids": np.zeros(600, dtype=int)}, "ids"),
        ({"label_names": ("a", "b", "a")}, "label_names"),
        ({"sides": np.repeat("nowhere", 600)}, "sides"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], argument: str | None) -> None:
    with refused(argument):
        data(**changes)
