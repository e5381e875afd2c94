"""Landmarks: a public embedding, the same for every private scene whatever the others are."""

import numpy as np
from tests.refusals import refused

from privote.datasets import load_scenes
from privote.datasets.embedded import Landmarks

SCENES = load_scenes(private=30, public=40, test=5)


def test_similarities_are_sums_of_kernels_over_slots():
    made = Landmarks(count=7, width=0.5).fit(SCENES.X_public)
    got = made.transform(SCENES.X_private)
    cut = SCENES.slots(SCENES.X_private)
    want = np.exp(-0.5 * ((cut[:, :, None] - made.slots_) ** 2).sum(axis=3)).sum(axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert got.shape == (30, 7)


def test_landmarks_come_from_what_fit_was_given_and_are_filled():
    made = Landmarks(count=5).fit(SCENES.X_public)
    public = SCENES.slots(SCENES.X_public).reshape(-1, 64)
    assert all((public == slot).all(axis=1).any() for slot in made.slots_)
    assert (made.slots_.sum(axis=1) > 8).all()
    assert len(made.fit(SCENES.X_public[:2]).slots_) <= 5


def test_rows_of_another_size_and_empty_scenes_are_refused():
    with refused("X"):
        Landmarks().fit(SCENES.X_public[:, :100])
    with refused("X"):
        Landmarks().fit(np.zeros((3, 256)))
