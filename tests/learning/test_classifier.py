"""Rows of any kind become float32 batches on one scale; augmentations leave what they should."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.refusals import refused

from privote.learning.mixmatch import Recipe
from privote.learning.networks import Rows, Scaling

VECTORS = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 4))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array, list])
def test_vectors_of_any_kind_give_the_same_batches(kind):
    rows = Rows(kind(VECTORS))
    assert (len(rows), rows.shape) == (50, (4,))
    batch = rows[np.array([3, 1])]
    assert batch.dtype == np.float32
    assert batch == pytest.approx(VECTORS[[3, 1]], rel=1e-6)
    assert np.concatenate(list(rows.batches(7))).shape == (50, 4)


def test_bytes_become_numbers_from_0_to_1():
    images = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    assert Rows(images)[:].ravel() == pytest.approx([0.0, 0.2, 1.0])
    counts = np.array([[0, 51, 255]], np.uint8)  # vectors of small numbers are not pixels
    assert Rows(counts)[:].ravel() == pytest.approx([0, 51, 255])


@pytest.mark.parametrize(
    "wrong",
    [*(np.zeros(shape) for shape in [(3,), (3, 4, 5), (3, 0)]), np.array([["a", "b"]])]
    + [np.where(VECTORS == VECTORS[2, 1], bad, VECTORS) for bad in (np.nan, np.inf)],
)
def test_other_rows_are_refused(wrong):
    with refused("X"):
        Rows(wrong)[:]


def test_scaling_standardises_features_and_channels():
    scaling = Scaling.of([Rows(VECTORS[:30]), Rows(VECTORS[30:])])
    scaled = scaling(Rows(VECTORS)[:])
    assert scaled.mean(axis=0) == pytest.approx(np.zeros(4), abs=0.05)
    assert scaled.std(axis=0) == pytest.approx(np.ones(4), abs=0.05)
    images = VECTORS.reshape(25, 2, 2, 2)
    assert Scaling.of([Rows(images)]).mean == pytest.approx(images.mean(axis=(0, 2, 3)), rel=1e-5)


@given(arrays(np.float64, (6, 3), elements=st.floats(-1e6, 1e6)))
def test_scaled_vectors_are_bounded_whatever_they_hold(values):
    scaling = Scaling.of([Rows(values)])
    assert np.abs(scaling(Rows(values * 1e3)[:])).max() <= 3.0


# -- augmentation ------------------------------------------------------------------------------

torch = pytest.importorskip("torch")

IMAGES = torch.arange(2 * 3 * 5 * 4, dtype=torch.float32).reshape(2, 3, 5, 4) + 1


def _changed(batch, noise=0.0, feature_dropout=0.0, by=1.0):
    recipe = Recipe(noise=noise, feature_dropout=feature_dropout)
    return recipe.changed(batch, torch.Generator().manual_seed(0), by)


def test_dropout_keeps_the_mean_and_noise_has_its_deviation():
    ones = torch.ones(400, 500)
    dropped = _changed(ones, feature_dropout=0.5)
    assert set(np.unique(dropped.numpy())) == {0.0, 2.0}
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    noisy = _changed(ones, noise=0.6, by=0.5)
    assert (noisy - ones).std().item() == pytest.approx(0.3, rel=0.02)
    assert torch.equal(_changed(IMAGES), IMAGES)
    both = {"noise": 0.1, "feature_dropout": 0.2}  # the generator decides, and nothing else
    assert torch.equal(_changed(IMAGES, **both), _changed(IMAGES, **both))
