"""Pascal VOC 2012 in its own folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from privote import datasets
from privote.datasets import voc2012
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


@pytest.mark.parametrize(
    ("start", "more", "hard"),
    [
        ("", {}, -1),
        ("VOCdevkit", {"difficult": "positive"}, 1),
        ("VOCdevkit/VOC2012", {"difficult": "negative"}, 0),
    ],
)
def test_labels_and_pictures(devkit: Path, start: str, more, hard: int) -> None:
    data = voc2012(devkit / start, "train", size=8, **more)
    assert data.label_names == VOC_LABELS
    assert data.ids.tolist() == list(NAMES)
    wanted = np.zeros((3, 20), int)
    wanted[:, VOC_LABELS.index("boat")] = [1, 0, hard]
    wanted[:, VOC_LABELS.index("person")] = [0, 1, 1]
    assert data.Y.tolist() == wanted.tolist()
    batch = data.X[:]
    assert batch.shape == (3, 3, 8, 8)
    np.testing.assert_allclose(batch[:, 0].mean(axis=(1, 2)) * 255, [0, 100, 200], atol=5)
    assert datasets.open(f"voc2012:{devkit}", part="train", images=False).X is None


def test_what_is_missing_or_disagrees_is_named(devkit: Path, write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ImageSets/Main"):
        voc2012(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"_val\.txt"):
        voc2012(devkit, "val")
    (devkit / HOME / "JPEGImages" / f"{NAMES[0]}.jpg").unlink()
    with refused(sealed="2008_000002.jpg"):
        voc2012(devkit, "train")
    (devkit / HOME / "ImageSets/Main/sofa_train.txt").unlink()
    with pytest.raises(InputError, match=r"sofa_train\.txt"):
        voc2012(devkit, "train", images=False)
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
    with refused(sealed="it is e"):
        voc2012(tmp_path, images=False)
