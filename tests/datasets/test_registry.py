"""Data sets by name and place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.test_chest import LABELLER
from tests.refusals import refused

from privote import datasets
from privote.datasets.voc import VOC_LABELS

Write = Callable[..., Path]


@pytest.fixture
def places(write: Write, tmp_path: Path) -> dict[str, Path]:
    """Return the smallest thing that each loader recognises and reads."""
    write("m/toy.xml", '<labels><label name="y"/></labels>')
    for label in VOC_LABELS:
        write(f"v/VOC2012/ImageSets/Main/{label}_trainval.txt", "one -1")
    for part, name in (("train", "one"), ("val", "two")):
        write(f"v/VOC2012/ImageSets/Main/{part}.txt", name)
    blank = "," * 13
    for name, *lines in (
        ("c/train.csv", f"Path,Sex,Age,Frontal/Lateral,AP/PA,{LABELLER}",
         f"r/train/patient1/s/v.jpg,F,1,Frontal,PA,{blank}"),
        ("i/mimic-cxr-2.0.0-chexpert.csv", f"subject_id,study_id,{LABELLER}", f"10,50,{blank}"),
        ("i/mimic-cxr-2.0.0-metadata.csv", "dicom_id,subject_id,study_id,ViewPosition",
         "d,10,50,PA"),
        ("p/PADCHEST_x.csv", "ImageID,ImageDir,PatientID,Projection,MethodLabel,Labels",
         "a.png,0,p,PA,Physician,['normal']"),
        ("n/Data_Entry_2017.csv", "Image Index,Finding Labels,Patient ID,View Position",
         "a.png,No Finding,1,PA"),
    ):  # fmt: skip
        write(name, *lines)
    toy = write(
        "m/toy.arff", "@relation t", "@attribute x real", "@attribute y {0,1}", "@data", "3,1"
    )
    folders = {name: tmp_path / letter for name, letter in zip(
        ("voc2012", "chexpert", "mimic", "padchest", "nih"), "vcipn", strict=True
    )}  # fmt: skip
    return {"mulan": toy, **folders}


def test_every_data_set_opens_by_name_and_place(places: dict[str, Path]) -> None:
    assert set(places) | {"scenes"} == set(datasets.DATASETS)
    for name, place in places.items():
        options: dict[str, Any] = {} if name == "mulan" else {"images": False}
        data = datasets.open(f"{name}:{place}", **options)
        assert len(data) == 1
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


@pytest.mark.parametrize(("name", "option"), [("mulan:x.arff", "views"), ("scenes", "size")])
def test_an_option_that_a_loader_does_not_know_is_named(name: str, option: str) -> None:
    with refused(option):
        datasets.open(name, **{option: 4})
