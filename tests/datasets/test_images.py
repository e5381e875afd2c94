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
from privote.errors import InputError, MissingExtraError

Picture = Callable[..., Path]


def test_a_batch_is_float32_between_0_and_1(picture: Picture) -> None:
    paths = [picture("black.png", 0), picture("grey.png", 51), picture("white.png", 255)]
    images = Images(paths=[str(path) for path in paths], size=(4, 6), channels=1)
    batch = images[:]
    assert batch.shape == images.shape == (3, 1, 4, 6)
    assert batch.dtype == np.float32
    for place, level in enumerate((0.0, 0.2, 1.0)):
        np.testing.assert_allclose(batch[place], level, atol=1e-6)


def test_every_kind_of_index(picture: Picture) -> None:
    images = Images(paths=[picture(f"{i}.png", 10 * i) for i in range(5)], size=2, channels=1)
    levels = np.arange(5) * 10 / 255

    def seen(index: Any) -> list[float]:
        return np.round(images[index].reshape(-1, 4)[:, 0] * 255).tolist()

    assert seen(slice(1, 4)) == [10, 20, 30]
    assert seen([4, 0]) == [40, 0]
    assert seen(np.array([True, False, False, False, True])) == [0, 40]
    assert images[2].shape == (1, 2, 2)
    assert images[np.int64(-1)].max() == pytest.approx(levels[4])
    assert images[[]].shape == (0, 1, 2, 2)
    np.testing.assert_array_equal(np.asarray(images), images[:])


def test_take_reads_nothing(picture: Picture, tmp_path: Path) -> None:
    images = Images(
        paths=[str(tmp_path / "absent.png"), str(picture("there.png", 255))], size=3, channels=1
    )
    some = images.take([1])
    assert len(some) == 1
    assert some.shape == (1, 1, 3, 3)
    assert some[0].min() == 1.0
    assert len(images.take(np.array([True, False]))) == 1


def test_colours_come_first(picture: Picture) -> None:
    path = picture("orange.png", (255, 102, 0))
    np.testing.assert_allclose(Images(paths=[path], size=2)[0][:, 0, 0], [1.0, 0.4, 0.0], atol=1e-6)
    grey = Images(paths=[path], size=2, channels=1)[0]
    assert grey.shape == (1, 2, 2)
    grey_as_colour = Images(paths=[picture("grey.png", 51)], size=2, channels=3)[0]
    np.testing.assert_allclose(grey_as_colour, 0.2, atol=1e-6)
    grey_as_colour += 1  # a training loop may write to what it was given


def test_sixteen_bits_are_not_cut_to_eight(picture: Picture) -> None:
    # Pillow's own conversion to 8 bits makes everything above 255 white.
    path = picture("deep.png", 13107, bits=16)
    np.testing.assert_allclose(Images(paths=[path], size=4, channels=1)[0], 0.2, atol=1e-6)


def test_crop_keeps_the_middle_and_stretch_keeps_all(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.zeros((20, 60), dtype=np.uint8)
    pixels[:, 20:40] = 255  # white in the middle third only
    pillow.fromarray(pixels).save(tmp_path / "wide.png")
    pillow.fromarray(pixels.T).save(tmp_path / "high.png")
    for name in ("wide.png", "high.png"):
        paths = [tmp_path / name]
        # Scaling looks a little over the edge of the box, so the border is not quite white.
        assert Images(paths=paths, size=8, channels=1, fit="crop")[0].min() > 0.8
        assert Images(paths=paths, size=8, channels=1)[0].mean() == pytest.approx(1 / 3, abs=0.05)
    # A target of another shape: the middle of the wide one at two to one is half white.
    half = Images(paths=[tmp_path / "wide.png"], size=(10, 20), channels=1, fit="crop")[0]
    assert half.shape == (1, 10, 20)
    assert half.mean() == pytest.approx(0.5, abs=0.05)


def test_a_large_jpeg_decoded_small_is_the_same_picture(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    blocks = np.random.default_rng(0).integers(0, 256, (8, 10))
    pixels = np.kron(blocks, np.ones((100, 100))).astype(np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "large.jpg", quality=95)
    pillow.fromarray(pixels).save(tmp_path / "large.png")
    for fit in ("crop", "stretch"):
        jpeg, png = (
            Images(paths=[tmp_path / f"large.{kind}"], size=32, channels=1, fit=fit)[0]
            for kind in ("jpg", "png")
        )
        assert np.abs(jpeg - png).mean() < 0.02


def test_broken_and_absent_files_are_named(picture: Picture, tmp_path: Path) -> None:
    good = picture("good.png")
    broken = tmp_path / "broken.png"
    broken.write_bytes(good.read_bytes()[:40])
    images = Images(paths=[good, broken, tmp_path / "absent.png"], size=2)
    with pytest.raises(InputError, match=r"broken\.png cannot be read"):
        images[1]
    with pytest.raises(InputError, match=r"absent\.png is missing"):
        images[2]
    with pytest.raises(InputError, match=r"broken\.png cannot be read"):
        images[:]
    assert images.unreadable().tolist() == [1, 2]


def test_images_travel_between_processes(picture: Picture) -> None:
    images = Images(paths=[picture("a.png", 255)], size=2, fit="crop")
    there = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(there[:], images[:])
    assert there.fit == "crop"
    assert repr(there) == "Images(1 files, 3 x 2 x 2, crop)"


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"reading images needs the extra \[deep\]"):
        Images(paths=["a.png"])[0]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"size": 0}, "size"),
        ({"size": (1, 2, 3)}, "size"),
        ({"size": 2.5}, "size"),
        ({"channels": 2}, "channels"),
        ({"fit": "pad"}, "fit"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], argument: str) -> None:
    with refused(argument):
        Images(paths=["a.png"], **arguments)
