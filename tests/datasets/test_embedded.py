"""What comes with privote: scenes with nothing private in public ones, patients, real votes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.refusals import refused

import privote as pv
from privote import datasets
from privote.datasets import TEACHER_VOTES, Scenes, load_scenes, load_teacher_votes
from privote.datasets.embedded import EMPTY, digit_pools, slots_of

KINDS = ("private", "public", "test")


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return load_scenes(private=3_000, public=800, test=400)


def used(scenes: Scenes, kind: str) -> set[int]:
    return set(getattr(scenes, f"sources_{kind}").ravel().tolist()) - {EMPTY}


def test_private_public_and_test_scenes_share_no_digit_under_any_seed(scenes: Scenes) -> None:
    pools = [set(pool.tolist()) for pool in digit_pools()]
    assert sum(len(pool) for pool in pools) == 1797
    assert set.union(*pools) == set(range(1797))
    # Otherwise disjoint indices would not mean disjoint images.
    assert len(np.unique(load_digits().data, axis=0)) == 1797
    other = load_scenes(private=3_000, public=800, test=400, seed=7)
    for one, two in combinations(KINDS, 2):
        assert not used(scenes, one) & used(scenes, two)
        assert not used(scenes, one) & used(other, two)
        assert not used(other, one) & used(scenes, two)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scene_shows_its_digits_and_its_labels_name_them(scenes: Scenes, kind: str) -> None:
    X, Y, sources = (getattr(scenes, f"{what}_{kind}") for what in ("X", "Y", "sources"))
    target = np.append(load_digits().target, -1)  # EMPTY = -1 is the last
    for digits, labels in zip(target[sources], Y, strict=True):
        assert set(np.flatnonzero(labels)) == set(digits) - {-1}
    pixels = np.vstack([load_digits().data / 16.0, np.zeros((1, 64))])
    difference = np.abs(slots_of(X) - pixels[sources])
    rows = X.reshape(-1, 16, 16)[:, :8, 8:]
    np.testing.assert_array_equal(rows.reshape(len(X), -1), slots_of(X)[:, 1])
    assert difference.mean() < 0.08
    assert difference.max() < 0.7
    assert (X.shape, X.dtype, Y.dtype) == ((len(Y), 256), np.float32, np.int8)
    assert 0.0 <= X.min() < X.max() <= 1.0
    assert 0.15 < Y.mean(axis=0).min() < Y.mean(axis=0).max() < 0.3
    assert set(np.unique((sources != EMPTY).sum(axis=1))) == {1, 2, 3, 4}


def test_the_seed_decides_everything_and_one_size_nothing_of_the_others() -> None:
    sizes = {"private": 50, "public": 20, "test": 10}
    one, again, other = (load_scenes(**sizes, seed=seed) for seed in (3, 3, 4))
    more = load_scenes(**sizes | {"private": 99}, seed=3)
    for field in ("X_private", "Y_private", "X_public", "X_test", "sources_test"):
        np.testing.assert_array_equal(getattr(one, field), getattr(again, field))
        same = np.array_equal(getattr(one, field), getattr(more, field))
        assert same is not field.endswith("private")
    assert not np.array_equal(one.X_private, other.X_private)
    for argument, value in {"private": 0, "public": 2.5, "test": True, "seed": -1}.items():
        with refused(argument, value=value):
            load_scenes(**{argument: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "shape", "yes", "right"),
    [
        ("tmc2007", (4000, 50, 22), 0.0705, 0.9254),
        ("tmc2007-250", (1000, 250, 22), 0.0535, 0.9176),
        ("voc2012", (5823, 50, 20), 0.0292, 0.9486),
    ],
)
def test_votes_are_those_of_real_teachers_and_label_reads_them(name, shape, yes, right) -> None:
    real = load_teacher_votes(name)
    assert real.votes.shape == shape
    assert real.truth.shape == (shape[0], shape[2])
    assert real.votes.mean() == pytest.approx(yes, abs=1e-4)
    assert (real.votes == real.truth[:, None]).mean() == pytest.approx(right, abs=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        real.votes[0, 0, 0] = True
    read = pv.votes.read(TEACHER_VOTES[name])
    np.testing.assert_array_equal(read.to_array(), real.votes)
    assert (read.label_names, read.query_names) == (real.label_names, real.query_names)
    assert name != "voc2012" or real.label_names[14] == "person"
    with refused("name", value="imagenet"):
        load_teacher_votes("imagenet")


def test_scenes_keep_their_own_sides() -> None:
    sizes = {"private": 30, "public": 20, "test": 10}
    split, made = datasets.open("scenes", **sizes).split(), datasets.load_scenes(**sizes)
    for side in sizes:
        np.testing.assert_array_equal(getattr(split, side).X, getattr(made, f"X_{side}"))
        np.testing.assert_array_equal(getattr(split, side).Y, getattr(made, f"Y_{side}"))
    assert split.private.ids.tolist() == made.ids_private.tolist()


@pytest.mark.parametrize("name", ["nonsense", "nonsense:here", "mulan", "voc2012:", "scenes:here"])
def test_what_cannot_be_opened_is_named(name: str) -> None:
    with refused("data", value=name):
        datasets.open(name)
    with refused("views"):
        datasets.open("scenes", views=4)
