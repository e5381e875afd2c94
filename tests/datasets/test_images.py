"""Images on disk: what is read, how it is scaled, and what happens to broken files."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.datasets import Images
from privote.errors import MissingExtraError

Picture = Callable[..., Path]


def test_a_batch_by_any_index_is_float32_between_0_and_1(picture: Picture) -> None:
    images = Images(paths=[picture(f"{i}.png", 51 * i) for i in range(6)], size=(4, 6), channels=1)
    batch = images[:]
    assert batch.shape == images.shape == (6, 1, 4, 6)
    assert batch.dtype == np.float32
    np.testing.assert_allclose(batch[:, 0, 3, 5], [0, 0.2, 0.4, 0.6, 0.8, 1.0], atol=1e-6)
    mask = np.array([True, False, False, False, False, True])
    for index in (slice(1, 4), [4, 0], mask, 2, np.int64(-1), []):
        np.testing.assert_array_equal(images[index], batch[index])
    np.testing.assert_array_equal(np.asarray(images), batch)
    there = pickle.loads(pickle.dumps(images))  # to another process
    np.testing.assert_array_equal(there[:], batch)
    assert repr(there) == "Images(1 x 4 x 6, stretch)"


def test_colours_come_first(picture: Picture) -> None:
    path = picture("orange.png", (255, 102, 0))
    np.testing.assert_allclose(Images(paths=[path], size=2)[0][:, 0, 0], [1.0, 0.4, 0.0], atol=1e-6)
    assert Images(paths=[path], size=2, channels=1)[0].shape == (1, 2, 2)
    grey = Images(paths=[picture("grey.png", 51)], size=2, channels=3)[0]
    np.testing.assert_allclose(grey, 0.2, atol=1e-6)
    grey += 1  # a training loop may write to what it was given


def test_crop_keeps_the_middle_and_stretch_keeps_all(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.zeros((20, 60), dtype=np.uint8)
    pixels[:, 20:40] = 255  # white in the middle third only
    for name, shown in (("wide.png", pixels), ("high.png", pixels.T)):
        pillow.fromarray(shown).save(tmp_path / name)
        paths = [tmp_path / name]
        # Scaling looks a little over the edge of the box, so the border is not quite white.
        assert Images(paths=paths, size=8, channels=1, fit="crop")[0].min() > 0.8
        assert Images(paths=paths, size=8, channels=1)[0].mean() == pytest.approx(1 / 3, abs=0.05)
    # A target of another shape: the middle of the wide one at two to one is half white.
    half = Images(paths=[tmp_path / "wide.png"], size=(10, 20), channels=1, fit="crop")[0]
    assert half.mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_a_large_jpeg_decoded_small_is_the_same_picture(tmp_path: Path, fit: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    blocks = np.random.default_rng(0).integers(0, 256, (8, 10))
    pixels = pillow.fromarray(np.kron(blocks, np.ones((100, 100))).astype(np.uint8))
    paths = [tmp_path / "large.jpg", tmp_path / "large.png"]
    for path in paths:
        pixels.save(path, quality=95)
    jpeg, png = Images(paths=paths, size=32, channels=1, fit=fit)[:]
    assert np.abs(jpeg - png).mean() < 0.02


def test_names_of_broken_and_absent_files_are_sealed(
    picture: Picture, tmp_path: Path, monkeypatch
) -> None:
    good = picture("good.png")
    broken = tmp_path / "broken.png"
    broken.write_bytes(good.read_bytes()[:40])
    images = Images(paths=[good, broken, tmp_path / "absent.png"], size=2)
    for index, name in ((1, "broken"), (2, "absent"), (slice(None), "broken")):
        with refused(sealed=name):
            images[index]
    assert images.unreadable().tolist() == [1, 2]
    assert images.take([0, 2]).paths.tolist() == [str(good), str(tmp_path / "absent.png")]
    with refused(sealed="absent"):
        images.take([0, 2]).check()
    monkeypatch.setitem(sys.modules, "PIL", None)  # without Pillow the extra is named
    with pytest.raises(MissingExtraError, match=r"\[pictures\]"):
        images[0]


WRONG = {"size": [0, (1, 2, 3), 2.5], "channels": [2], "fit": ["pad"]}


@pytest.mark.parametrize(("argument", "value"), [(a, v) for a, vs in WRONG.items() for v in vs])
def test_bad_input_is_named(argument: str, value: Any) -> None:
    with refused(argument, value=value):
        Images(paths=["a.png"], **{argument: value})
