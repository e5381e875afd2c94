"""The embedded scenes: what is in them, and that nothing private is in the public ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.refusals import refused

from privote.datasets import Scenes, load_scenes
from privote.datasets.embedded import EMPTY, digit_pools

KINDS = ("private", "public", "test")


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return load_scenes(private=3_000, public=800, test=400)


def used(scenes: Scenes, kind: str) -> set[int]:
    sources = getattr(scenes, f"sources_{kind}")
    return set(np.unique(sources[sources != EMPTY]).tolist())


def test_the_pools_share_no_digit_and_leave_none_out() -> None:
    pools = [set(pool.tolist()) for pool in digit_pools()]
    assert sum(len(pool) for pool in pools) == 1797
    assert set.union(*pools) == set(range(1797))


def test_no_two_digits_are_the_same_picture() -> None:
    # Otherwise disjoint indices would not mean disjoint images.
    assert len(np.unique(load_digits().data, axis=0)) == 1797


def test_private_public_and_test_scenes_share_no_digit_under_any_seed(scenes: Scenes) -> None:
    other = load_scenes(private=3_000, public=800, test=400, seed=7)
    for one, two in combinations(KINDS, 2):
        assert not used(scenes, one) & used(scenes, two)
        assert not used(scenes, one) & used(other, two)
        assert not used(other, one) & used(scenes, two)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_say_which_digits_are_in_the_slots(scenes: Scenes, kind: str) -> None:
    target = load_digits().target
    Y = getattr(scenes, f"Y_{kind}")
    for sources, labels in zip(getattr(scenes, f"sources_{kind}"), Y, strict=True):
        present = {int(target[i]) for i in sources if i != EMPTY}
        assert set(np.flatnonzero(labels).tolist()) == present


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_shows_its_source_digit_and_little_noise(scenes: Scenes, kind: str) -> None:
    digits = np.vstack([load_digits().data / 16.0, np.zeros((1, 64))])  # EMPTY = -1 is the last row
    slots = scenes.slots(getattr(scenes, f"X_{kind}"))
    difference = slots - digits[getattr(scenes, f"sources_{kind}")]
    assert np.abs(difference).mean() < 0.08
    assert np.abs(difference).max() < 0.7


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_types_and_prevalence(scenes: Scenes, kind: str) -> None:
    X, Y = getattr(scenes, f"X_{kind}"), getattr(scenes, f"Y_{kind}")
    assert X.shape == (len(Y), 256)
    assert X.dtype == np.float32
    assert 0.0 <= X.min() < X.max() <= 1.0
    assert Y.dtype == np.int8
    assert set(np.unique(Y)) == {0, 1}
    assert 0.15 < Y.mean(axis=0).min() < Y.mean(axis=0).max() < 0.3
    filled = (getattr(scenes, f"sources_{kind}") != EMPTY).sum(axis=1)
    assert set(np.unique(filled)) == {1, 2, 3, 4}


def test_images_and_slots_agree(scenes: Scenes) -> None:
    image, slots = scenes.images(scenes.X_test)[5], scenes.slots(scenes.X_test)[5]
    assert image.shape == (16, 16)
    np.testing.assert_array_equal(image[:8, 8:].ravel(), slots[1])
    np.testing.assert_array_equal(image[8:, :8].ravel(), slots[2])


def test_the_seed_decides_everything() -> None:
    sizes = {"private": 50, "public": 20, "test": 10}
    one, again, other = (load_scenes(**sizes, seed=seed) for seed in (3, 3, 4))
    for field in ("X_private", "Y_private", "X_public", "X_test", "sources_test"):
        np.testing.assert_array_equal(getattr(one, field), getattr(again, field))
    assert not np.array_equal(one.X_private, other.X_private)


def test_one_size_does_not_change_the_other_scenes() -> None:
    few = load_scenes(private=10, public=20, test=10)
    many = load_scenes(private=99, public=20, test=10)
    np.testing.assert_array_equal(few.X_public, many.X_public)
    np.testing.assert_array_equal(few.X_test, many.X_test)


@pytest.mark.parametrize(("grid", "most"), [((1, 2), 2), ((3, 3), 4), ((1, 1), 1)])
def test_other_grids(grid: tuple[int, int], most: int) -> None:
    scenes = load_scenes(private=200, public=5, test=5, grid=grid)
    assert scenes.images(scenes.X_private).shape == (200, 8 * grid[0], 8 * grid[1])
    assert (scenes.sources_private != EMPTY).sum(axis=1).max() == most


def test_ids_are_unique_and_the_repr_is_short(scenes: Scenes) -> None:
    assert len(set(scenes.ids_private.tolist())) == 3_000
    assert repr(scenes) == "Scenes(private=3000, public=800, test=400, grid=(2, 2), seed=0)"


@pytest.mark.parametrize(
    ("argument", "given", "value"),
    [
        ("private", 0, 0),
        ("public", 2.5, 2.5),
        ("test", True, True),
        ("seed", -1, -1),
        ("grid", 4, 4),
        ("grid", (2, 0), 0),
    ],
)
def test_wrong_arguments(argument: str, given: object, value: object) -> None:
    with refused(argument, value=value):
        load_scenes(**{argument: given})  # type: ignore[arg-type]
