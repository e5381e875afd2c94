"""Chest X-rays in their owners' tables: views, patients, parts, and what is not certain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote import datasets
from privote.datasets import PAPER_LABELS, chexpert, nih, padchest
from privote.errors import InputError

Write = Callable[..., Path]
Read = Callable[..., Any]
Picture = Callable[..., Path]
LABELLER = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,"
    "Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"
    "Support Devices"
)
STUDY = "CheXpert-v1.0-small/train/patient"
CHEXPERT = (
    f"Path,Sex,Age,Frontal/Lateral,AP/PA,{LABELLER}",
    f"{STUDY}00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,,,,,,,,0.0,,,,1.0",
    f"{STUDY}00002/study2/view1_frontal.jpg,Male,87,Frontal,PA,,,-1.0,1.0,,-1.0,,,-1.0,,1.0,,0.0,",
    f"{STUDY}00002/study1/view2_lateral.jpg,Male,83,Lateral,,,,,1.0,,,,,,,,,,",
    f"{STUDY}00003/study1/view1_frontal.jpg,Male,40,Frontal,LL,,,1.0,,,,,,,,,,,",
)
MIMIC = {
    "chexpert": (
        f"subject_id,study_id,{LABELLER}",
        "10000032,50414267,1.0,,,,,,,,,,,,,",
        "10000032,53189527,,,-1.0,,,1.0,,,,,0.0,,,",
        "11000764,57375967,,,,,,,,,1.0,,,,,1.0",
    ),
    "metadata": (
        "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition",
        '02aa804e-a,10000032,50414267,"CHEST (PA AND LAT)",PA',
        '174413ec-b,10000032,50414267,"CHEST (PA, LAT)",LATERAL',
        '2a2277a9-c,10000032,53189527,"CHEST (PA AND LAT)",AP',
        "096052b7-d,11000764,57375967,CHEST,AP",
        "e084de3b-e,11000764,99999999,CHEST,AP",  # a study without labels
    ),
}
PADCHEST = (
    ",ImageID,ImageDir,PatientID,Projection,Report,MethodLabel,Labels",
    "0,a.png,0,p1,PA,sin hallazg .,Physician,['normal']",
    "1,b.png,0,p2,AP,\"uno, dos\",RNN_model,\"['pleural effusion', ' alveolar pattern', '']\"",
    "2,c.png,1,p2,L,.,Physician,['pneumonia']",
    "3,d.png,1,p3,PA,.,RNN_model,\"['air bronchogram', ' unchanged']\"",
    "4,e.png,1,p4,PA,.,RNN_model,nan",
    "5,f.png,1,p5,PA,.,Physician,\"['apical pleural thickening', 'pseudonodule']\"",
    "6,g.png,1,p6,AP_horizontal,.,Physician,['cardiomegaly']",
)
NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]",
    "1_000.png,Cardiomegaly|Emphysema,0,1,57,M,PA,2682,2749,0.143,0.143",
    "1_001.png,No Finding,1,1,58,M,AP,2682,2749,0.143,0.143",
    "2_000.png,Pleural_Thickening,0,2,80,M,PA,2682,2749,0.143,0.143",
)


@pytest.fixture
def read(write: Write, tmp_path: Path) -> Read:
    """Write the tables of all four; return what opens one of them by its name."""
    write("chexpert/train.csv", *CHEXPERT)
    for kind, lines in MIMIC.items():
        write(f"mimic/mimic-cxr-2.0.0-{kind}.csv.gz", *lines)
    write("padchest/PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz", *PADCHEST)
    write("nih/Data_Entry_2017_v2020.csv", *NIH)

    def opened(name: str, **options: Any) -> Any:
        return datasets.open(f"{name}:{tmp_path / name}", **{"images": False, **options})

    return opened


# Which frontal images there are: of which patient, in which view, with which findings.
RECORDS: dict[str, list[tuple[str, str, str, list[str]]]] = {
    "chexpert": [
        ("train/patient00001/study1/view1_frontal.jpg", "patient00001", "AP", []),
        ("train/patient00002/study2/view1_frontal.jpg", "patient00002", "PA",
         ["Effusion", "Lung Opacity"]),
    ],
    "mimic": [
        ("02aa804e-a", "10000032", "PA", []),
        ("2a2277a9-c", "10000032", "AP", ["Edema"]),  # its study's
        ("096052b7-d", "11000764", "AP", ["Atelectasis"]),
    ],
    "padchest": [
        ("a.png", "p1", "PA", []),
        ("b.png", "p2", "AP", ["Effusion", "Infiltration"]),
        ("d.png", "p3", "PA", ["Consolidation", "Infiltration"]),
        ("f.png", "p5", "PA", ["Nodule", "Pleural_Thickening"]),
    ],
    "nih": [
        ("1_000.png", "1", "PA", ["Cardiomegaly", "Emphysema"]),
        ("1_001.png", "1", "AP", []),
        ("2_000.png", "2", "PA", ["Pleural_Thickening"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_frontal_views_of_patients_with_the_labels_of_the_paper(read: Read, name: str) -> None:
    data = read(name)
    assert data.label_names == PAPER_LABELS[name]
    names = np.array(data.label_names)
    found = [names[row == 1].tolist() for row in data.Y]
    facts = (data.ids.tolist(), data.groups.tolist(), data.columns["view"].tolist())
    assert list(zip(*facts, found, strict=True)) == RECORDS[name]
    assert (data.Y >= 0).all() == (name in ("padchest", "nih"))
    assert data.X is None
    assert data.name.startswith(name)
    chosen = [names[4], names[0]]
    some = read(name, labels=chosen)
    assert some.label_names == tuple(chosen)  # in their order
    np.testing.assert_array_equal(some.Y, data.Y[:, [4, 0]])
    for bad in (["Wings"], [], "paper labels"):
        with refused("labels"):
            read(name, labels=bad)


@pytest.mark.parametrize(
    ("name", "views", "records", "every"),
    [
        ("chexpert", ["L"], 1, 4),
        ("mimic", ["LATERAL"], 1, 4),
        ("padchest", ["L"], 1, 6),
        ("nih", ["PA"], 2, 3),
    ],
)
def test_views(read: Read, name: str, views: list[str], records: int, every: int) -> None:
    assert len(read(name, views=views)) == records
    assert len(read(name, views=None)) == every
    with refused("views", value=("XX",), sealed="PA"):
        read(name, views=("XX",))
    with refused("views"):
        read(name, views="PA")


def column(data: Any, name: str) -> list[int]:
    found: list[int] = data.Y[:, data.label_names.index(name)].tolist()
    return found


def test_blank_and_uncertain_are_missing(read: Read, write: Write) -> None:
    # The first patient has no finding but a device, and no more is known of the second's.
    data = read("chexpert", labels="all")
    assert len(data.label_names) == 14
    assert column(data, "Edema") == column(data, "Lung Lesion") == [0, -1]
    assert column(data, "Effusion") == [0, 1]
    first = {name: column(data, name)[0] for name in ("No Finding", "Fracture", "Support Devices")}
    assert first == {"No Finding": 1, "Fracture": 0, "Support Devices": 1}
    assert read("mimic").columns["study"].tolist() == ["50414267", "53189527", "57375967"]
    methods = ["Physician", "RNN_model", "RNN_model", "Physician"]
    assert read("padchest").columns["method"].tolist() == methods
    assert len(chexpert(write("anywhere/valid.csv.gz", *CHEXPERT), images=False)) == 2


def test_a_study_has_one_row_of_labels(read: Read, write: Write) -> None:
    """Of two, one record would label the images of another."""
    rows = MIMIC["chexpert"]
    write("mimic/mimic-cxr-2.0.0-chexpert.csv.gz", *rows, f"11000764{rows[1][8:]}")
    with pytest.raises(InputError) as refusal:
        read("mimic")
    assert refusal.value.argument == "folder"


LAYOUTS = {
    "chexpert": ("chexpert", [row.partition("/")[2].partition(",")[0] for row in CHEXPERT[1:3]]),
    "mimic": ("mimic", ["files/p10/p10000032/s50414267/02aa804e-a.jpg",
                        "files/p10/p10000032/s53189527/2a2277a9-c.jpg",
                        "files/p11/p11000764/s57375967/096052b7-d.jpg"]),
    "padchest in folders": ("padchest", ["0/a.png", "0/b.png", "1/d.png", "1/f.png"]),
    "padchest flat": ("padchest", ["a.png", "b.png", "d.png", "f.png"]),
    "padchest in both": ("padchest", ["0/a.png", "b.png", "1/d.png", "f.png"]),
    "nih in one folder": ("nih", ["images/1_000.png", "images/1_001.png", "images/2_000.png"]),
    "nih in several": ("nih", ["images_001/images/1_000.png", "images_001/images/1_001.png",
                               "images_002/images/2_000.png"]),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_path_leads_to_its_own_picture(read: Read, picture: Picture, layout: str) -> None:
    name, files = LAYOUTS[layout]
    bits = 16 if name == "padchest" else 8
    made = [
        picture(f"{name}/{file}", (50 << (bits - 8)) * place, bits=bits)
        for place, file in enumerate(files)
    ]
    X = read(name, images=True, size=4).X
    assert X.shape == (len(files), 1, 4, 4)
    levels = X[:].mean(axis=(1, 2, 3)) * (2**bits - 1) / (50 << (bits - 8))
    np.testing.assert_allclose(levels, range(len(files)), atol=0.05)
    made[0].unlink()
    with refused(sealed=made[0].name):
        read(name, images=True)


def test_what_is_missing_is_named_with_its_owner(read: Read, tmp_path: Path) -> None:
    for name in RECORDS:
        with pytest.raises(InputError, match=r"nowhere.*http"):
            datasets.open(f"{name}:nowhere")
    (tmp_path / "chexpert" / "train.csv").unlink()
    for name, what in (("chexpert", r"train\.csv"), ("nih", "images")):
        with pytest.raises(InputError, match=f"{what}.*http"):
            read(name, images=True)


@pytest.mark.parametrize(
    ("reader", "lines", "message"),
    [
        (chexpert, (CHEXPERT[0], CHEXPERT[1].replace("0.0", "2.0")), "Pneumothorax"),
        (chexpert, (CHEXPERT[0], "one,two"), "line 2: "),
        (chexpert, (CHEXPERT[0], CHEXPERT[1].replace("patient", "person")), "release/part/patient"),
        (chexpert, ("Path,Sex,Age,Frontal/Lateral", "a,b,c,d"), "'AP/PA'"),
        (padchest, (PADCHEST[0].removesuffix(",Labels"), "0,a,0,p,PA,.,Physician"), "'Labels'"),
        *((padchest, (PADCHEST[0], f"0,a.png,0,p,PA,.,Physician,{cell}"), "Labels")
          for cell in ("[normal", "__import__('os')", "5")),
        (nih, (NIH[0], NIH[1].replace("Emphysema", "Wings")), "14"),
    ],
)  # fmt: skip
def test_odd_rows_and_broken_archives_are_named(write: Write, reader, lines, message) -> None:
    with pytest.raises(InputError, match=message):
        reader(write("odd.csv", *lines), images=False)
    file = write("odd.csv.gz", *lines)
    for content in (file.read_bytes()[:80], b"plain text"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"odd\.csv\.gz"):
            reader(file, images=False)


def test_the_real_list(shared_data: Path) -> None:
    data = nih(shared_data, images=False)
    assert len(data) == 112_120
    # Counts of the owners' paper and page for the 2017 release.
    counts = dict(zip(data.label_names, data.Y.sum(axis=0, dtype=int).tolist(), strict=True))
    assert (counts["Infiltration"], counts["Hernia"]) == (19_894, 227)
    assert (data.Y.sum(axis=1) == 0).sum() == 60_361
    assert len(set(data.groups.tolist())) == 30_805
