"""Data sets by name and place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote import datasets
from privote.datasets.voc import VOC_LABELS
from privote.errors import InputError

Write = Callable[..., Path]


@pytest.fixture
def places(write: Write, tmp_path: Path) -> dict[str, Path]:
    """Return the smallest thing that each loader recognises and reads."""
    write("m/toy.xml", '<labels><label name="y"/></labels>')
    for label in VOC_LABELS:
        write(f"v/VOC2012/ImageSets/Main/{label}_trainval.txt", "one -1")
    labeller = (
        "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,"
        "Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"
        "Support Devices"
    )
    blank = "," * 13
    write(
        "c/train.csv",
        f"Path,Sex,Age,Frontal/Lateral,AP/PA,{labeller}",
        f"r/train/patient1/s/v.jpg,F,1,Frontal,PA,{blank}",
    )
    write("i/mimic-cxr-2.0.0-chexpert.csv", f"subject_id,study_id,{labeller}", f"10,50,{blank}")
    write(
        "i/mimic-cxr-2.0.0-metadata.csv", "dicom_id,subject_id,study_id,ViewPosition", "d,10,50,PA"
    )
    write(
        "p/PADCHEST_x.csv",
        "ImageID,ImageDir,PatientID,Projection,MethodLabel,Labels",
        "a.png,0,p,PA,Physician,['normal']",
    )
    write(
        "n/Data_Entry_2017.csv",
        "Image Index,Finding Labels,Patient ID,View Position",
        "a.png,No Finding,1,PA",
    )
    toy = write(
        "m/toy.arff", "@relation t", "@attribute x real", "@attribute y {0,1}", "@data", "3,1"
    )
    folders = {name: tmp_path / letter for name, letter in zip(
        ("voc2012", "chexpert", "mimic", "padchest", "nih"), "vcipn", strict=True
    )}  # fmt: skip
    return {"mulan": toy, **folders}


def test_every_data_set_opens_by_name_by_place_and_by_both(places: dict[str, Path]) -> None:
    assert set(places) | {"scenes"} == set(datasets.DATASETS)
    for name, place in places.items():
        options: dict[str, Any] = {} if name == "mulan" else {"images": False}
        by_name = datasets.open(f"{name}:{place}", **options)
        apart = datasets.open(name, folder=place, **options)
        by_place = datasets.open(place, **options)
        assert len(by_name) == 1
        assert by_name.name == apart.name == by_place.name
        assert by_name.name.startswith("toy" if name == "mulan" else name)


def test_scenes_keep_their_own_sides() -> None:
    data = datasets.open("scenes", private=30, public=20, test=10)
    split = data.split()
    made = datasets.load_scenes(private=30, public=20, test=10)
    for side, X, Y in (
        (split.private, made.X_private, made.Y_private),
        (split.public, made.X_public, made.Y_public),
        (split.test, made.X_test, made.Y_test),
    ):
        np.testing.assert_array_equal(side.X, X)
        np.testing.assert_array_equal(side.Y, Y)
    assert split.private.ids.tolist() == made.ids_private.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense",), "'nonsense' is no data set .* names are scenes, mulan, voc2012"),
        (("nonsense:here",), "'nonsense:here' is no data set"),
        (("mulan",), "mulan needs a place: mulan:FILE.arff"),
        (("voc2012:",), "voc2012 needs a place: voc2012:FOLDER"),
        (("scenes:here",), "scenes are embedded and have no place, got 'here'"),
        (("nih:a", "b"), "give the place once: got 'nih:a' and folder='b'"),
    ],
)
def test_what_cannot_be_opened_is_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.open(*arguments)


def test_an_option_that_a_loader_does_not_know_is_named(tmp_path: Path) -> None:
    with refused("mulan"):
        datasets.open("mulan:x.arff", views=["PA"])
    with refused("scenes"):
        datasets.open("scenes", size=4)
    with pytest.raises(InputError, match="is no data set"):
        datasets.open(tmp_path)
