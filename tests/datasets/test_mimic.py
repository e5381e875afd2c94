"""MIMIC-CXR-JPG: labels of studies, views of images, patients, and the owners' split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.datasets import PAPER_LABELS, mimic
from privote.errors import InputError

Write = Callable[..., Path]

LABELS = (
    "subject_id,study_id,Atelectasis,Cardiomegaly,Consolidation,Edema,Enlarged Cardiomediastinum,"
    "Fracture,Lung Lesion,Lung Opacity,No Finding,Pleural Effusion,Pleural Other,Pneumonia,"
    "Pneumothorax,Support Devices",
    "10000032,50414267,,,,,,,,,1.0,,,,,",
    "10000032,53189527,,-1.0,,1.0,,,,,,0.0,,,,",
    "11000764,57375967,1.0,,,,,,,,,,,,,1.0",
)
METADATA = (
    "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns",
    '02aa804e-a,10000032,50414267,"CHEST (PA AND LAT)",PA,3056,2544',
    '174413ec-b,10000032,50414267,"CHEST (PA AND LAT)",LATERAL,3056,2544',
    '2a2277a9-c,10000032,53189527,"CHEST (PA AND LAT)",AP,3056,2544',
    "096052b7-d,11000764,57375967,CHEST,AP,3056,2544",
    "e084de3b-e,11000764,99999999,CHEST,AP,3056,2544",  # a study without labels
)
SPLIT = (
    "dicom_id,study_id,subject_id,split",
    "02aa804e-a,50414267,10000032,train",
    "174413ec-b,50414267,10000032,train",
    "2a2277a9-c,53189527,10000032,train",
    "096052b7-d,57375967,11000764,test",
    "e084de3b-e,99999999,11000764,test",
)
FILES = (
    "files/p10/p10000032/s50414267/02aa804e-a.jpg",
    "files/p10/p10000032/s53189527/2a2277a9-c.jpg",
    "files/p11/p11000764/s57375967/096052b7-d.jpg",
)


@pytest.fixture
def release(write: Write, picture: Callable[..., Path], tmp_path: Path) -> Path:
    for kind, lines in (("chexpert", LABELS), ("metadata", METADATA), ("split", SPLIT)):
        write(f"mimic-cxr-2.0.0-{kind}.csv.gz", *lines)
    for place, name in enumerate(FILES):
        picture(name, 80 * place)
    return tmp_path


def test_images_carry_the_labels_of_their_study(release: Path) -> None:
    data = mimic(release, size=8)
    assert data.label_names == PAPER_LABELS["mimic"]
    assert len(data.label_names) == 11
    assert data.ids.tolist() == ["02aa804e-a", "2a2277a9-c", "096052b7-d"]
    assert data.groups is not None
    assert data.groups.tolist() == ["10000032", "10000032", "11000764"]
    assert data.columns["study"].tolist() == ["50414267", "53189527", "57375967"]
    by_name = dict(zip(data.label_names, data.Y.T.tolist(), strict=True))
    assert by_name["Edema"] == [0, 1, -1]
    assert by_name["Effusion"] == [0, 0, -1]
    assert by_name["Cardiomegaly"] == [0, -1, -1]
    assert by_name["Atelectasis"] == [0, -1, 1]
    levels = (data.X[:].mean(axis=(1, 2, 3)) * 255).round(-1).tolist()
    assert levels == [0, 80, 160]  # each path leads to its own file


def test_views_and_policies(release: Path) -> None:
    every = mimic(release, views=None, images=False, labels="all")
    assert every.columns["view"].tolist() == ["PA", "LATERAL", "AP", "AP"]
    # Without a finding there is no disease, but nothing is said about devices.
    first = dict(zip(every.label_names, every.Y[0].tolist(), strict=True))
    assert (first["Edema"], first["Support Devices"], first["No Finding"]) == (0, -1, 1)
    ap = mimic(release, views=["AP"], uncertain="positive", blank="negative", images=False)
    assert ap.Y[:, ap.label_names.index("Cardiomegaly")].tolist() == [1, 0]


def test_the_owners_split(release: Path) -> None:
    assert mimic(release, "train", images=False).ids.tolist() == ["02aa804e-a", "2a2277a9-c"]
    assert mimic(release, "test", images=False).ids.tolist() == ["096052b7-d"]
    with refused("part"):
        mimic(release, "valid")


def test_unpacked_files_are_read_too(write: Write, tmp_path: Path) -> None:
    for kind, lines in (("chexpert", LABELS), ("metadata", METADATA)):
        write(f"mimic-cxr-2.0.0-{kind}.csv", *lines)
    assert len(mimic(tmp_path, images=False)) == 3


def test_what_is_missing_is_named_with_its_owner(release: Path) -> None:
    (release / FILES[0]).unlink()
    with pytest.raises(InputError, match=r"02aa804e-a\.jpg"):
        mimic(release)
    (release / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    assert len(mimic(release, images=False)) == 3  # not needed unless a part is asked for
    with pytest.raises(InputError, match=r"split\.csv\.gz"):
        mimic(release, "train")
    (release / "mimic-cxr-2.0.0-metadata.csv.gz").unlink()
    with pytest.raises(InputError, match=r"metadata\.csv\.gz"):
        mimic(release)
