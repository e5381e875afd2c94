"""The teachers of the scenes: good enough to vote, and one record reaches one of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from privote.datasets import Scenes, load_scenes, scene_teachers
from privote.datasets.scene_teachers import partition
from privote.errors import InputError


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return load_scenes(private=2_000, public=300, test=100)


@pytest.fixture(scope="module")
def answers(scenes: Scenes) -> np.ndarray:
    return scene_teachers(scenes, teachers=10)


def test_ten_teachers_of_two_hundred_scenes_know_their_digits(
    scenes: Scenes, answers: np.ndarray
) -> None:
    assert answers.shape == (300, 10, 10)
    assert 0.0 <= answers.min() < answers.max() <= 1.0
    share = (answers > 0.5).mean(axis=1)
    winners, truth = share > 0.5, scenes.Y_public == 1
    balanced = (winners[truth].mean() + (~winners)[~truth].mean()) / 2
    assert balanced > 0.9
    assert np.maximum(share, 1 - share).mean() > 0.95  # strong consensus


def test_one_record_reaches_one_teacher(scenes: Scenes, answers: np.ndarray) -> None:
    changed = scenes.Y_private.copy()
    changed[17] = 1 - changed[17]
    other = scene_teachers(dataclasses.replace(scenes, Y_private=changed), teachers=10)
    moved = np.flatnonzero((answers != other).any(axis=(0, 2)))
    assert moved.tolist() == [partition(scenes.ids_private, 10)[17]]


def test_the_truth_of_the_public_scenes_is_not_read(scenes: Scenes, answers: np.ndarray) -> None:
    blind = dataclasses.replace(
        scenes, Y_public=scenes.Y_public[:0], X_test=scenes.X_test[:0], Y_test=scenes.Y_test[:0]
    )
    np.testing.assert_array_equal(scene_teachers(blind, teachers=10), answers)


def test_the_partition_reads_ids_and_the_key_only() -> None:
    ids = np.array([f"r{i}" for i in range(5_000)])
    parts = partition(ids, 10)
    shuffled = np.random.default_rng(0).permutation(5_000)
    np.testing.assert_array_equal(partition(ids[shuffled], 10), parts[shuffled])
    assert (partition(ids, 10, b"another key") != parts).mean() > 0.8
    assert np.bincount(parts, minlength=10).min() > 400


def test_a_part_with_one_class_votes_it_and_an_empty_part_votes_no() -> None:
    few = load_scenes(private=6, public=30, test=5)
    answers = scene_teachers(few, teachers=12)
    parts = partition(few.ids_private, 12)
    for teacher in range(12):
        Y = few.Y_private[parts == teacher]
        for label in range(10):
            seen = np.unique(Y[:, label])
            if len(seen) < 2:
                expected = float(seen[0]) if len(seen) else 0.0
                assert (answers[:, teacher, label] == expected).all()
    assert len(set(parts.tolist())) < 12  # some part was empty


def test_two_processes_give_the_same_answers_and_progress_is_told() -> None:
    few = load_scenes(private=200, public=40, test=5)
    told: list[tuple[int, int]] = []
    alone = scene_teachers(few, 4, None, lambda done, total: told.append((done, total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    np.testing.assert_allclose(scene_teachers(few, 4, n_jobs=2), alone, atol=1e-9)


def test_other_queries() -> None:
    few = load_scenes(private=200, public=40, test=7)
    assert scene_teachers(few, 2, queries=few.X_test).shape == (7, 2, 10)
    with pytest.raises(InputError, match=r"queries must have the shape \(queries, 256\), got"):
        scene_teachers(few, 2, queries=few.X_test[:, :5])


@pytest.mark.parametrize("teachers", [0, 2.5, True])
def test_wrong_number_of_teachers(teachers: object) -> None:
    few = load_scenes(private=20, public=5, test=5)
    with pytest.raises(InputError, match="teachers must be a whole number of at least 1, got"):
        scene_teachers(few, teachers)  # type: ignore[arg-type]


def test_wrong_key() -> None:
    with pytest.raises(InputError, match="key must be 1 to 64 bytes"):
        partition(np.array(["a"]), 2, b"")
