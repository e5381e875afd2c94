"""Pascal VOC 2012 in its own folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from privote.datasets import Images, voc2012
from privote.datasets.voc import VOC_LABELS
from privote.errors import InputError

NAMES = ("2008_000002", "2008_000003", "2008_000007")
MARKS = {"boat": (1, -1, 0), "person": (-1, 1, 1)}  # all other labels are absent throughout
HOME = "VOCdevkit/VOC2012"

Write = Callable[..., Path]


@pytest.fixture
def devkit(write: Write, picture: Callable[..., Path], tmp_path: Path) -> Path:
    for label in VOC_LABELS:
        rows = zip(NAMES, MARKS.get(label, (-1, -1, -1)), strict=True)
        write(f"{HOME}/ImageSets/Main/{label}_train.txt", *(f"{n} {m:2d}" for n, m in rows))
    for place, name in enumerate(NAMES):
        picture(f"{HOME}/JPEGImages/{name}.jpg", (100 * place, 0, 0))
    return tmp_path


@pytest.mark.parametrize("start", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_labels_and_pictures(devkit: Path, start: str) -> None:
    data = voc2012(devkit / start, "train", size=8)
    assert data.label_names == VOC_LABELS
    assert data.ids.tolist() == list(NAMES)
    boat, person = VOC_LABELS.index("boat"), VOC_LABELS.index("person")
    assert data.Y[:, boat].tolist() == [1, 0, -1]
    assert data.Y[:, person].tolist() == [0, 1, 1]
    others = np.delete(data.Y, [boat, person], axis=1)
    assert not others.any()
    assert isinstance(data.X, Images)
    batch = data.X[:]
    assert batch.shape == (3, 3, 8, 8)
    np.testing.assert_allclose(
        batch[:, 0].mean(axis=(1, 2)), np.array([0, 100, 200]) / 255, atol=0.02
    )


@pytest.mark.parametrize(
    ("difficult", "value"), [("missing", -1), ("positive", 1), ("negative", 0)]
)
def test_difficult_objects(devkit: Path, difficult: str, value: int) -> None:
    data = voc2012(devkit, "train", difficult=difficult, images=False)
    assert data.X is None
    assert data.Y[:, VOC_LABELS.index("boat")].tolist() == [1, 0, value]


def test_what_is_missing_is_named_with_its_owner(devkit: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ImageSets/Main"):
        voc2012(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"_val\.txt"):
        voc2012(devkit, "val")
    (devkit / HOME / "JPEGImages" / f"{NAMES[0]}.jpg").unlink()
    with pytest.raises(InputError, match=r"2008_000002\.jpg"):
        voc2012(devkit, "train")
    (devkit / HOME / "ImageSets/Main/sofa_train.txt").unlink()
    with pytest.raises(InputError, match=r"sofa_train\.txt"):
        voc2012(devkit, "train", images=False)


def test_lists_that_disagree(devkit: Path, write: Write) -> None:
    for row in (f"{NAMES[0]} -1", f"{NAMES[0]} 2"):
        write(f"{HOME}/ImageSets/Main/sofa_train.txt", row)
        with pytest.raises(InputError, match="sofa_train"):
            voc2012(devkit, "train")
    for wrong in ({"part": "test"}, {"part": "train", "difficult": "easy"}):
        with refused([*wrong][-1]):
            voc2012(devkit, **wrong)


def test_the_sides_are_fixed(write: Write, tmp_path: Path) -> None:
    for part, names in (("train", "bd"), ("val", "ace")):
        write(f"ImageSets/Main/{part}.txt", *names)
    for label in VOC_LABELS:
        write(f"ImageSets/Main/{label}_trainval.txt", *(f"{name} -1" for name in "abcde"))
    sides = voc2012(tmp_path, images=False).split()
    names = [side.ids.tolist() for side in (sides.private, sides.public, sides.test)]
    assert names == [["b", "d"], ["a", "e"], ["c"]]
    write("ImageSets/Main/val.txt", *"ac")
    with pytest.raises(InputError, match="picture e "):
        voc2012(tmp_path, images=False)
