"""NIH ChestX-ray14: findings between bars, and the real list, if present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from privote.datasets import nih
from privote.errors import InputError

Write = Callable[..., Path]

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
ROWS = (
    "1_000.png,Cardiomegaly|Emphysema,0,1,57,M,PA,2682,2749,0.143,0.143",
    "1_001.png,No Finding,1,1,58,M,AP,2682,2749,0.143,0.143",
    "2_000.png,Pleural_Thickening,0,2,80,M,PA,2682,2749,0.143,0.143",
)


@pytest.fixture
def release(write: Write, tmp_path: Path) -> Path:
    write("Data_Entry_2017_v2020.csv", HEADER, *ROWS)
    write("test_list.txt", "2_000.png")
    return tmp_path


def test_findings_views_and_parts(release: Path) -> None:
    data = nih(release, images=False)
    assert data.Y.sum(axis=1).tolist() == [2, 0, 1]
    assert data.Y[0, data.label_names.index("Emphysema")] == 1
    assert data.groups is not None
    assert data.groups.tolist() == ["1", "1", "2"]
    assert nih(release, views=["PA"], images=False).ids.tolist() == ["1_000.png", "2_000.png"]
    assert nih(release, "test", images=False).ids.tolist() == ["2_000.png"]
    two = nih(release, labels=["Emphysema", "Cardiomegaly"], images=False)
    assert two.Y.tolist() == [[1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    "folders", [["images"] * 3, ["images_001/images"] * 2 + ["images_002/images"]]
)
def test_images_in_one_folder_or_many(
    release: Path, picture: Callable[..., Path], folders: list[str]
) -> None:
    for place, (folder, row) in enumerate(zip(folders, ROWS, strict=True)):
        picture(f"{folder}/{row.partition(',')[0]}", 100 * place)
    levels = (nih(release, size=4).X[:].mean(axis=(1, 2, 3)) * 255).round().tolist()
    assert levels == [0, 100, 200]


def test_what_is_missing_or_odd_is_named(release: Path, write: Write) -> None:
    with pytest.raises(InputError, match=r"images"):
        nih(release)
    with pytest.raises(InputError, match=r"train_val_list\.txt"):
        nih(release, "train_val", images=False)
    odd = write("odd.csv", HEADER, ROWS[0].replace("Emphysema", "Wings"))
    with pytest.raises(InputError, match="14"):
        nih(odd, images=False)
    with refused("part"):
        nih(release, "train")


def test_the_real_list(shared_data: Path) -> None:
    data = nih(shared_data, images=False)
    assert len(data) == 112_120
    assert data.groups is not None
    assert len(set(data.groups.tolist())) == 30_805
    # Counts of the owners' paper and page for the 2017 release.
    counts = dict(zip(data.label_names, data.Y.sum(axis=0, dtype=int).tolist(), strict=True))
    assert counts["Infiltration"] == 19_894
    assert counts["Hernia"] == 227
    assert (data.Y.sum(axis=1) == 0).sum() == 60_361
    split = data.split(private=0.7, public=0.2, test=0.1)
    patients = [set(side.groups.tolist()) for side in (split.private, split.public, split.test)]
    assert sum(map(len, patients)) == 30_805
    assert np.isclose(len(split.private) / len(data), 0.7, atol=0.02)
