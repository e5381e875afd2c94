"""Rows of any kind become float32 batches on one scale."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privote.datasets.images import Images
from privote.errors import InputError
from privote.learning.networks.classifier import Rows, Scaling

VECTORS = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 4))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array, list])
def test_vectors_of_any_kind_give_the_same_batches(kind):
    rows = Rows(kind(VECTORS))
    assert len(rows) == 50
    assert rows.shape == (4,)
    batch = rows[np.array([3, 1])]
    assert batch.dtype == np.float32
    assert batch == pytest.approx(VECTORS[[3, 1]], rel=1e-6)
    assert np.concatenate(list(rows.batches(7))).shape == (50, 4)


def test_bytes_become_numbers_from_0_to_1():
    images = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    assert Rows(images)[:].ravel() == pytest.approx([0.0, 0.2, 1.0])
    counts = np.array([[0, 51, 255]], np.uint8)  # vectors of small numbers are not pixels
    assert Rows(counts)[:].ravel() == pytest.approx([0, 51, 255])


def test_images_on_disk_are_read_by_the_batch(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for place in range(5):
        pillow.new("L", (8, 8), color=place * 50).save(tmp_path / f"{place}.png")
    on_disk = Images(paths=[str(tmp_path / f"{n}.png") for n in range(5)], size=8, channels=1)
    rows = Rows(on_disk)
    assert rows.shape == (1, 8, 8)
    assert rows[np.array([4, 0])].mean(axis=(1, 2, 3)) == pytest.approx([200 / 255, 0.0])
    (tmp_path / "3.png").unlink()
    assert len(rows[np.array([0, 1])]) == 2


@pytest.mark.parametrize("shape", [(3,), (3, 4, 5), (3, 0)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="shape"):
        Rows(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad):
    wrong = VECTORS.copy()
    wrong[2, 1] = bad
    with pytest.raises(InputError, match="finite"):
        Rows(wrong)[:]


def test_words_are_refused():
    with pytest.raises(InputError, match="numbers"):
        Rows(np.array([["a", "b"]]))


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
    kept = Scaling.from_arrays(scaling.to_arrays(), 3)
    assert np.array_equal(kept(Rows(values)[:]), scaling(Rows(values)[:]))


def test_a_broken_scaling_is_refused():
    good = Scaling.of([Rows(VECTORS)]).to_arrays()
    with pytest.raises(InputError, match="mean"):
        Scaling.from_arrays({**good, "scale/mean": np.array([np.nan] * 4)}, 4)
    with pytest.raises(InputError, match="deviation"):
        Scaling.from_arrays({**good, "scale/deviation": np.zeros(4)}, 4)
    with pytest.raises(InputError, match="5 finite"):
        Scaling.from_arrays(good, 5)
