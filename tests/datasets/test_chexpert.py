"""CheXpert's .csv files: views, patients, and what becomes of uncertain and unmentioned labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.datasets import PAPER_LABELS, Images, chexpert
from privote.errors import InputError

Write = Callable[..., Path]

HEADER = (
    "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,Cardiomegaly,"
    "Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,"
    "Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
STUDY = "CheXpert-v1.0-small/train/patient"
ROWS = (
    f"{STUDY}00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,,,,,,,,0.0,,,,1.0",
    f"{STUDY}00002/study2/view1_frontal.jpg,Male,87,Frontal,PA,,,-1.0,1.0,,-1.0,,,-1.0,,1.0,,0.0,",
    f"{STUDY}00002/study1/view2_lateral.jpg,Male,83,Lateral,,,,,1.0,,,,,,,,,,",
    f"{STUDY}00003/study1/view1_frontal.jpg,Male,40,Frontal,LL,,,1.0,,,,,,,,,,,",
)
FOLDER = "CheXpert-v1.0-small"


@pytest.fixture
def release(write: Write, picture: Callable[..., Path], tmp_path: Path) -> Path:
    write(f"{FOLDER}/train.csv", HEADER, *ROWS)
    for row in ROWS:
        picture(row.partition(",")[0], 255)
    return tmp_path / FOLDER


def column(data: Any, name: str) -> list[int]:
    found: list[int] = data.Y[:, data.label_names.index(name)].tolist()
    return found


def test_frontal_views_of_patients(release: Path) -> None:
    data = chexpert(release, size=8)
    assert data.label_names == PAPER_LABELS["chexpert"]
    assert len(data.label_names) == 11
    assert data.ids.tolist() == [
        "train/patient00001/study1/view1_frontal.jpg",
        "train/patient00002/study2/view1_frontal.jpg",
    ]
    assert data.groups is not None
    assert data.groups.tolist() == ["patient00001", "patient00002"]
    assert data.columns["view"].tolist() == ["AP", "PA"]
    assert data.columns["sex"].tolist() == ["Female", "Male"]
    assert data.columns["age"].tolist() == ["68", "87"]
    assert isinstance(data.X, Images)
    assert data.X[:].shape == (2, 1, 8, 8)
    assert data.X[:].min() > 0.9


def test_views(release: Path) -> None:
    assert len(chexpert(release, views=None)) == 4
    lateral = chexpert(release, views=["L"])
    assert lateral.ids.tolist() == ["train/patient00002/study1/view2_lateral.jpg"]
    with pytest.raises(InputError, match=r"no record has a view in \('XX',\); there are AP, L, LL"):
        chexpert(release, views=("XX",))
    with refused("views"):
        chexpert(release, views="PA")


def test_no_finding_makes_unmentioned_diseases_absent(release: Path) -> None:
    data = chexpert(release, labels="all")
    assert len(data.label_names) == 14
    assert column(data, "No Finding") == [1, -1]
    # The first patient has no finding but a device, and no more is known of the second's.
    assert column(data, "Fracture") == [0, 0]
    assert column(data, "Pneumonia") == [0, -1]
    assert column(data, "Support Devices") == [1, -1]


def test_blank_and_uncertain_are_missing_unless_told(release: Path) -> None:
    data = chexpert(release)
    assert column(data, "Effusion") == [0, 1]
    assert column(data, "Edema") == [0, -1]
    assert column(data, "Lung Lesion") == [0, -1]
    ones = chexpert(release, uncertain="positive")
    assert column(ones, "Edema") == [0, 1]
    assert column(ones, "Lung Lesion") == [0, -1]
    zeros = chexpert(release, uncertain="negative", blank="negative")
    assert column(zeros, "Edema") == [0, 0]
    assert column(zeros, "Lung Lesion") == [0, 0]
    assert column(zeros, "Lung Opacity") == [0, 1]


def test_a_policy_for_each_label(release: Path) -> None:
    data = chexpert(release, uncertain={"Edema": "positive", "Cardiomegaly": "negative"})
    assert column(data, "Edema") == [0, 1]
    assert column(data, "Cardiomegaly") == [0, 0]
    assert column(data, "Atelectasis") == [0, -1]
    with refused("uncertain"):
        chexpert(release, uncertain={"Oedema": "positive"})
    with refused("uncertain"):
        chexpert(release, uncertain="maybe")
    with refused("blank"):
        chexpert(release, blank="maybe")


def test_chosen_labels_keep_their_order(release: Path) -> None:
    data = chexpert(release, labels=["Effusion", "Edema"], images=False)
    assert data.label_names == ("Effusion", "Edema")
    assert data.Y.tolist() == [[0, 0], [1, -1]]
    assert data.X is None
    for bad in (["Pleural Effusion"], [], "paper labels"):
        with refused("labels"):
            chexpert(release, labels=bad)


def test_a_csv_file_alone_packed_or_not(write: Write) -> None:
    file = write("anywhere/valid.csv.gz", HEADER, *ROWS)
    data = chexpert(file, images=False)
    assert data.name == "chexpert valid"
    assert len(data) == 2


def test_what_is_missing_is_named_with_its_owner(
    release: Path, write: Write, tmp_path: Path
) -> None:
    owner = r"is missing; CheXpert is at https://stanfordmlgroup\.github\.io.*agreement"
    with pytest.raises(InputError, match=rf"valid\.csv in .* {owner}"):
        chexpert(release, "valid")
    with pytest.raises(InputError, match=rf"the folder .*nowhere {owner}"):
        chexpert(tmp_path / "nowhere")
    with pytest.raises(InputError, match=rf"the column 'AP/PA' of .*train\.csv {owner}"):
        chexpert(write("short/train.csv", "Path,Sex,Age,Frontal/Lateral", "a,b,c,d").parent)
    (release / "train/patient00001/study1/view1_frontal.jpg").unlink()
    with pytest.raises(InputError, match=rf"view1_frontal\.jpg {owner}"):
        chexpert(release)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROWS[0].replace("0.0", "2.0"), "Pneumothorax must be 1, 0, -1 or blank$"),
        ("one,two", "line 2: "),
        (ROWS[0].replace("patient", "person"), "a path must be release/part/patient"),
    ],
)
def test_odd_rows_are_named(write: Write, row: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chexpert(write("train.csv", HEADER, row), images=False)


def test_a_broken_archive_is_named(write: Write) -> None:
    file = write("train.csv.gz", HEADER, *ROWS)
    file.write_bytes(file.read_bytes()[:80])
    with pytest.raises(InputError, match=r"train\.csv\.gz is cut short or not gzip"):
        chexpert(file, images=False)
    file.write_bytes(b"plain text")
    with pytest.raises(InputError, match=r"train\.csv\.gz is cut short or not gzip"):
        chexpert(file, images=False)


def test_the_co_prevalence_of_the_paper(chest_labels: Path) -> None:
    # Rows of the paper's positive dependency matrix for CheXpert (its columns are in the order of
    # ours but for Pleural Effusion, which it puts last). Its text says AP and PA; the numbers are
    # those of PA alone, with uncertain and unmentioned labels counted as not positive.
    data = chexpert(
        next(chest_labels.glob("*train.csv*")),
        views=("PA",),
        uncertain="negative",
        blank="negative",
        images=False,
    )
    assert len(data) == 29_420
    order = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 4]
    P = data.Y[:, order].astype(float)
    matrix = (P.T @ P) / P.sum(axis=0)[:, None]
    paper = {
        0: [1.000, 0.107, 0.055, 0.056, 0.048, 0.053, 0.056, 0.414, 0.033, 0.084, 0.471],
        9: [0.149, 0.037, 0.030, 0.023, 0.039, 0.042, 0.064, 0.336, 0.011, 1.000, 0.381],
        10: [0.186, 0.127, 0.079, 0.102, 0.046, 0.034, 0.085, 0.463, 0.035, 0.085, 1.000],
    }
    for row, numbers in paper.items():
        np.testing.assert_allclose(matrix[row], numbers, atol=5.1e-4)
