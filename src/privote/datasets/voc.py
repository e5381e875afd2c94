"""Pascal VOC 2012: photographs with 20 kinds of objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.errors import InputError

from .images import Images
from .records import MISSING, MultiLabelData
from .sources import VOC2012, absent, lines_of

# In the order of Everingham et al., which is also that of the paper: "the first k labels".
VOC_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
PARTS = ("train", "val", "trainval")
_DIFFICULT = {"missing": MISSING, "positive": 1, "negative": 0}


def voc2012(
    folder: str | Path,
    part: str = "trainval",
    *,
    difficult: str = "missing",
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read Pascal VOC 2012 from ``VOCdevkit/VOC2012``.

    Parameters
    ----------
    folder
        ``VOC2012``, or a folder that holds it or ``VOCdevkit/VOC2012``.
    part
        ``"train"`` (5,717 images), ``"val"`` (5,823) or ``"trainval"``.
    difficult
        What a label is if all objects of its kind in the picture are marked as difficult:
        ``"missing"``, as in the owners' own evaluation, ``"positive"`` or ``"negative"``.
    images
        False reads the labels only; then ``X`` is None and the pictures may be absent.
    size
        Of the pictures when they are read; see :class:`Images`.

    Returns
    -------
    MultiLabelData
        Labels from ``ImageSets/Main/<label>_<part>.txt``. Ids are the names of the pictures; no
        group is known. The sides of ``"trainval"`` are fixed: train is private; of val in order,
        every second picture is public, and the others are for the test.
    """
    if part not in PARTS:
        raise InputError("part", f"must be one of {', '.join(PARTS)}", part)
    if difficult not in _DIFFICULT:
        raise InputError("difficult", f"must be one of {', '.join(_DIFFICULT)}", difficult)
    home = _home(Path(folder))
    sets = home / "ImageSets" / "Main"
    names, marks = _marks(sets, part)
    pictures = home / "JPEGImages"
    if images and not (pictures / f"{names[0]}.jpg").is_file():
        sealed = f"it is {pictures / names[0]}.jpg"
        raise absent(f"a picture in {pictures}", VOC2012, sealed=sealed)
    paths = [str(pictures / f"{name}.jpg") for name in names]
    return MultiLabelData(
        X=Images(paths=paths, size=size) if images else None,
        # In the lists 1 is present, -1 absent and 0 present but difficult throughout.
        Y=np.where(marks == 0, _DIFFICULT[difficult], marks == 1).astype(np.int8),
        label_names=VOC_LABELS,
        ids=np.array(names, dtype=np.str_),
        sides=_sides(sets, names) if part == "trainval" else None,
        name=f"voc2012 {part}",
    )


def _home(folder: Path) -> Path:
    for candidate in (folder, folder / "VOC2012", folder / "VOCdevkit" / "VOC2012"):
        if (candidate / "ImageSets" / "Main").is_dir():
            return candidate
    raise absent(f"the folder {folder / 'ImageSets' / 'Main'}", VOC2012)


def _sides(sets: Path, names: list[str]) -> npt.NDArray[np.str_]:
    """Return the side of each picture of trainval."""
    train, val = ([row[0] for row in _rows(sets / f"{part}.txt")] for part in ("train", "val"))
    side = dict.fromkeys(train, "private")
    side |= {name: ("public", "test")[index % 2] for index, name in enumerate(val)}
    lost = next((name for name in names if name not in side), None)
    if lost is not None:
        rule = "a picture of trainval is in neither train nor val"
        raise InputError(f"{sets}: {rule}", sealed=f"it is {lost}")
    return np.array([side[name] for name in names])


def _marks(sets: Path, part: str) -> tuple[list[str], npt.NDArray[np.int8]]:
    """Return picture names and marks (pictures, labels) from one list for each label."""
    names: list[str] = []
    marks = []
    for label in VOC_LABELS:
        path = sets / f"{label}_{part}.txt"
        rows = _rows(path)
        if any(len(row) != 2 or row[1] not in ("-1", "0", "1") for row in rows):
            raise InputError(f"{path}: a line must be a name and one of -1, 0, 1")
        listed = [row[0] for row in rows]
        if names and listed != names:
            raise InputError(f"{path} does not list the same pictures as the other labels do")
        names = listed
        marks.append(np.array([row[1] for row in rows], dtype=np.int8))
    if not names:
        raise InputError(f"{sets}: the lists of {part} are empty")
    return names, np.stack(marks, axis=1)


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in lines_of(path, VOC2012) if line.strip()]
