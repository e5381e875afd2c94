"""PadChest: findings as Python lists, broad labels over them, views and methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from privote.datasets import PAPER_LABELS, padchest
from privote.errors import InputError

Write = Callable[..., Path]

FILE = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
HEADER = ",ImageID,ImageDir,PatientID,Projection,Report,MethodLabel,Labels"
ROWS = (
    "0,a.png,0,p1,PA,sin hallazg .,Physician,['normal']",
    "1,b.png,0,p2,AP,\"uno, dos\",RNN_model,\"['pleural effusion', ' alveolar pattern', '']\"",
    "2,c.png,1,p2,L,.,Physician,['pneumonia']",
    "3,d.png,1,p3,PA,.,RNN_model,\"['air bronchogram', ' unchanged']\"",
    "4,e.png,1,p4,PA,.,RNN_model,nan",
    "5,f.png,1,p5,PA,.,Physician,\"['apical pleural thickening', 'pseudonodule']\"",
    "6,g.png,1,p6,AP_horizontal,.,Physician,['cardiomegaly']",
)


@pytest.fixture
def release(write: Write, tmp_path: Path) -> Path:
    write(f"{FILE}.gz", HEADER, *ROWS)
    return tmp_path


def present(data: object) -> dict[str, list[str]]:
    names = np.array(data.label_names)  # type: ignore[attr-defined]
    rows = zip(data.ids.tolist(), data.Y, strict=True)  # type: ignore[attr-defined]
    return {name: names[row == 1].tolist() for name, row in rows}


def test_findings_become_the_labels_of_the_paper(release: Path) -> None:
    data = padchest(release, images=False)
    assert data.label_names == PAPER_LABELS["padchest"]
    assert len(data.label_names) == 15
    assert present(data) == {
        "a.png": [],
        "b.png": ["Effusion", "Infiltration"],
        "d.png": ["Consolidation", "Infiltration"],
        "f.png": ["Nodule", "Pleural_Thickening"],
    }
    assert (data.Y >= 0).all()
    assert data.groups is not None
    assert data.groups.tolist() == ["p1", "p2", "p3", "p5"]
    assert data.columns["view"].tolist() == ["PA", "AP", "PA", "PA"]


def test_views_and_methods(release: Path) -> None:
    assert padchest(release, views=None, images=False).ids.tolist() == [
        "a.png", "b.png", "c.png", "d.png", "f.png", "g.png",
    ]  # fmt: skip
    assert padchest(release, views=["L"], images=False).ids.tolist() == ["c.png"]
    data = padchest(release, images=False)
    people = data.take(data.columns["method"] == "Physician")
    assert people.ids.tolist() == ["a.png", "f.png"]
    changed = ["unchanged" not in text for text in data.columns["findings"].tolist()]
    assert data.take(changed).ids.tolist() == ["a.png", "b.png", "f.png"]


def test_own_labels(release: Path) -> None:
    some = padchest(release, labels=["Nodule", "Effusion"], images=False)
    assert some.Y.tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]
    for bad in (["Wings"], "all of them"):
        with refused("labels"):
            padchest(release, labels=bad, images=False)


@pytest.mark.parametrize("numbered", [True, False])
def test_images_of_sixteen_bits_in_either_layout(
    release: Path, picture: Callable[..., Path], numbered: bool
) -> None:
    for place, row in enumerate(ROWS):
        _, name, folder, *_ = row.split(",")
        picture(f"{folder}/{name}" if numbered else name, 6000 * place, bits=16)
    data = padchest(release, size=4)
    levels = (data.X[:].mean(axis=(1, 2, 3)) * 65535).round().tolist()
    assert levels == [0, 6000, 18000, 30000]


def test_what_is_missing_or_odd_is_named(release: Path, write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.png"):
        padchest(release)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"PADCHEST_\*\.csv "):
        padchest(tmp_path / "empty")
    with pytest.raises(InputError, match="'Labels'"):
        padchest(write("short.csv", HEADER.removesuffix(",Labels"), "0,a,0,p,PA,.,Physician"))
    for cell in ("[normal", "__import__('os')", "5"):
        file = write("odd.csv", HEADER, f"0,a.png,0,p,PA,.,Physician,{cell}")
        with pytest.raises(InputError, match="Labels"):
            padchest(file, images=False)


def test_the_co_prevalence_of_the_paper(chest_labels: Path) -> None:
    # Rows of the paper's positive dependency matrix for PadChest. As with CheXpert, its text says
    # AP and PA, and the numbers are those of PA alone.
    data = padchest(next(chest_labels.glob("PADCHEST_*")), views=("PA",), images=False)
    P = data.Y.astype(float)
    matrix = (P.T @ P) / P.sum(axis=0)[:, None]
    paper = {
        "Atelectasis": "1.000 0.130 0.018 0.002 0.138 0.013 0.005 0.041 0.023 0.171 0.019 0.045 "
        "0.041 0.074 0.005",
        "Infiltration": "0.088 0.140 0.129 0.019 0.130 0.017 0.049 0.028 0.014 1.000 0.012 0.067 "
        "0.043 0.292 0.004",
        "Pneumothorax": "0.081 0.027 0.018 0.004 0.108 0.063 0.009 0.085 0.004 0.130 0.054 0.076 "
        "0.036 0.000 1.000",
    }
    for name, numbers in paper.items():
        row = data.label_names.index(name)
        np.testing.assert_allclose(matrix[row], [float(n) for n in numbers.split()], atol=5.1e-4)
