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


def annotate(write: Write, name: str, *objects: tuple[str, int]) -> None:
    inner = (
        f"<object><name>{kind}</name><difficult>{hard}</difficult></object>"
        for kind, hard in objects
    )
    write(f"{HOME}/Annotations/{name}.xml", "<annotation>", *inner, "</annotation>")


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
    assert data.Y[2, VOC_LABELS.index("boat")] == value
    assert data.Y[0, VOC_LABELS.index("boat")] == 1


def test_annotations_give_the_same_labels(devkit: Path, write: Write) -> None:
    lists = voc2012(devkit, "train")
    for label in VOC_LABELS:
        (devkit / HOME / "ImageSets/Main" / f"{label}_train.txt").unlink()
    write(f"{HOME}/ImageSets/Main/train.txt", *NAMES)
    annotate(write, NAMES[0], ("boat", 1), ("boat", 0))
    annotate(write, NAMES[1], ("person", 0))
    annotate(write, NAMES[2], ("person", 0), ("person", 1), ("boat", 1))
    data = voc2012(devkit, "train")
    assert data.ids.tolist() == lists.ids.tolist()
    np.testing.assert_array_equal(data.Y, lists.Y)
    write(f"{HOME}/Annotations/{NAMES[1]}.xml", "<annotation>")
    with pytest.raises(InputError, match=r"2008_000003\.xml"):
        voc2012(devkit, "train")
    (devkit / HOME / "Annotations" / f"{NAMES[2]}.xml").unlink()
    annotate(write, NAMES[1], ("person", 0))
    with pytest.raises(InputError, match=r"2008_000007\.xml"):
        voc2012(devkit, "train")
    annotate(write, NAMES[1], ("unicorn", 0))
    with pytest.raises(InputError, match="unicorn"):
        voc2012(devkit, "train")


def test_what_is_missing_is_named_with_its_owner(devkit: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ImageSets/Main"):
        voc2012(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"val\.txt"):
        voc2012(devkit, "val")
    (devkit / HOME / "JPEGImages" / f"{NAMES[0]}.jpg").unlink()
    with pytest.raises(InputError, match=r"2008_000002\.jpg"):
        voc2012(devkit, "train")
    (devkit / HOME / "ImageSets/Main/sofa_train.txt").unlink()
    with pytest.raises(InputError, match=r"sofa_train\.txt"):
        voc2012(devkit, "train", images=False)


def test_lists_that_disagree(devkit: Path, write: Write) -> None:
    write(f"{HOME}/ImageSets/Main/sofa_train.txt", f"{NAMES[0]} -1")
    with pytest.raises(InputError, match=r"sofa_train"):
        voc2012(devkit, "train")
    write(f"{HOME}/ImageSets/Main/sofa_train.txt", f"{NAMES[0]} 2")
    with pytest.raises(InputError, match="sofa_train"):
        voc2012(devkit, "train")
    with refused("part"):
        voc2012(devkit, "test")
    with refused("difficult"):
        voc2012(devkit, "train", difficult="easy")


def test_the_sides_are_fixed(tmp_path) -> None:
    sets = tmp_path / "ImageSets" / "Main"
    sets.mkdir(parents=True)
    (sets / "train.txt").write_text("b\nd\n")
    (sets / "val.txt").write_text("a\nc\ne\n")
    for label in VOC_LABELS:
        (sets / f"{label}_trainval.txt").write_text("".join(f"{name} -1\n" for name in "abcde"))
    sides = voc2012(tmp_path, images=False).split()
    names = [side.ids.tolist() for side in (sides.private, sides.public, sides.test)]
    assert names == [["b", "d"], ["a", "e"], ["c"]]
