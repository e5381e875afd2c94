"""Which public embedding suits a linear model with noise, and what keeps it."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
from tests.refusals import refused

from privote.datasets import load_scenes
from privote.datasets.embedded import slots_of
from privote.learning.embedding import Landmarks, embed, embedding_for, fit_embedding

RNG = np.random.default_rng(0)
POOL = RNG.normal(size=(200, 30)) * np.geomspace(0.01, 100, 30)


def test_more_records_or_epsilon_mean_more_dimensions_and_more_labels_fewer():
    def size(records, labels, epsilon):
        kind, _, many = embedding_for(np.zeros((4000, 500)), records, labels, epsilon).partition(
            ":"
        )
        assert kind == "pca"
        return int(many)

    assert size(1000, 10, 1.0) < size(1000, 10, 8.0) < size(9000, 10, 8.0)
    assert size(1000, 100, 8.0) < size(1000, 10, 8.0)
    assert size(10, 10, 0.1) == 5
    assert size(10**9, 1, 100.0) == 200


def test_the_pool_bounds_the_dimensions_and_its_kind_decides():
    assert embedding_for(np.zeros((40, 500)), 10**6, 5, 8.0) == "pca:10"
    assert embedding_for(RNG.random((400, 8)), 10**6, 5, 8.0) is None  # nothing to leave out
    assert embedding_for(POOL, 200, 5, 8.0) == "std:24"  # different units
    assert embedding_for(sp.csr_array((400, 200)), 10**6, 5, 8.0) == "lsa:100"
    assert embedding_for(np.zeros((3, 5)), 10**6, 5, 8.0) is None
    scaled = partial(embedding_for, records=10**6, labels=5, epsilon=8.0, scaled=True)
    assert scaled(np.zeros((40, 500))) == "std:10"
    assert scaled(RNG.random((400, 8))) is None
    assert scaled(np.zeros((3, 5))) is None
    assert scaled(sp.csr_array((400, 200))) == "lsa:100"


def test_standardised_components_know_no_units():
    found = embed(fit_embedding("std:5", POOL), POOL)
    other = embed(fit_embedding("std:5", POOL * 1000), POOL * 1000)
    np.testing.assert_allclose(np.abs(found), np.abs(other), rtol=1e-3, atol=1e-4)
    assert found.shape == (200, 5)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)


def test_similarities_are_sums_of_kernels_over_slots():
    scenes = load_scenes(private=30, public=40, test=1)
    made = Landmarks(count=7, width=0.5).fit(scenes.X_public)
    cut = slots_of(scenes.X_private)
    want = np.exp(-0.5 * ((cut[:, :, None] - made.slots_) ** 2).sum(axis=3)).sum(axis=1)
    np.testing.assert_allclose(made.transform(scenes.X_private), want, rtol=1e-5)
    public = slots_of(scenes.X_public).reshape(-1, 64)
    assert all((public == slot).all(axis=1).any() for slot in made.slots_)
    assert (made.slots_.sum(axis=1) > 8).all()  # filled
    for bad in (scenes.X_public[:, :100], np.zeros((3, 256))):
        with refused("X"):
            made.fit(bad)
