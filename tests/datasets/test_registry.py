"""Data sets by name and place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.test_chest import places
from tests.refusals import refused

from privote import datasets
from privote.datasets.voc import VOC_LABELS

__all__ = ["places"]  # a fixture of the chest X-rays

Write = Callable[..., Path]


@pytest.fixture
def files(write: Write, places: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """Return the smallest thing that each loader reads."""
    write("m/toy.xml", '<labels><label name="y"/></labels>')
    header = ("@relation t", "@attribute x real", "@attribute y {0,1}")
    toy = write("m/toy.arff", *header, "@data", "3,1")
    for label in VOC_LABELS:
        write(f"v/VOC2012/ImageSets/Main/{label}_trainval.txt", "one -1")
    for part, name in (("train", "one"), ("val", "two")):
        write(f"v/VOC2012/ImageSets/Main/{part}.txt", name)
    return {"mulan": toy, "voc2012": tmp_path / "v", **places}


def test_every_data_set_opens_by_name_and_place(files: dict[str, Path]) -> None:
    assert set(files) | {"scenes"} == set(datasets.DATASETS)
    for name, place in files.items():
        options: dict[str, Any] = {} if name == "mulan" else {"images": False}
        data = datasets.open(f"{name}:{place}", **options)
        assert len(data) > 0
        assert data.name.startswith("toy" if name == "mulan" else name)


def test_scenes_keep_their_own_sides() -> None:
    sizes = {"private": 30, "public": 20, "test": 10}
    split, made = datasets.open("scenes", **sizes).split(), datasets.load_scenes(**sizes)
    for side in sizes:
        np.testing.assert_array_equal(getattr(split, side).X, getattr(made, f"X_{side}"))
        np.testing.assert_array_equal(getattr(split, side).Y, getattr(made, f"Y_{side}"))
    assert split.private.ids.tolist() == made.ids_private.tolist()


@pytest.mark.parametrize("name", ["nonsense", "nonsense:here", "mulan", "voc2012:", "scenes:here"])
def test_what_cannot_be_opened_is_named(name: str) -> None:
    with refused("data", value=name):
        datasets.open(name)
    with refused("views"):
        datasets.open("scenes", views=4)
