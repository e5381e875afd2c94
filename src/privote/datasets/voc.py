"""Pascal VOC 2012: photographs with 20 kinds of objects."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

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
    fit: str = "stretch",
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
    size, fit
        How pictures are scaled when they are read; see :class:`Images`.

    Returns
    -------
    MultiLabelData
        Labels from ``ImageSets/Main/<label>_<part>.txt``, or from ``Annotations`` where these files
        are absent. Ids are the names of the pictures; no group is known. The sides of
        ``"trainval"`` are fixed: train is private; of val in order, every second picture is public,
        and the others are for the test.
    """
    if part not in PARTS:
        raise InputError("part", f"must be one of {', '.join(PARTS)}", part)
    if difficult not in _DIFFICULT:
        raise InputError("difficult", f"must be one of {', '.join(_DIFFICULT)}", difficult)
    home = _home(Path(folder))
    sets = home / "ImageSets" / "Main"
    if (sets / f"{VOC_LABELS[0]}_{part}.txt").is_file():
        names, marks = _from_lists(sets, part)
    else:
        names, marks = _from_annotations(home, part)
    pictures = home / "JPEGImages"
    if images and not (pictures / f"{names[0]}.jpg").is_file():
        raise absent(f"the picture {pictures / names[0]}.jpg", VOC2012)
    paths = [str(pictures / f"{name}.jpg") for name in names]
    return MultiLabelData(
        X=Images(paths=paths, size=size, channels=3, fit=fit) if images else None,
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
    side = {
        line.split()[0]: "private" for line in lines_of(sets / "train.txt", VOC2012) if line.strip()
    }
    listed = [line.split()[0] for line in lines_of(sets / "val.txt", VOC2012) if line.strip()]
    side |= {name: ("public", "test")[place % 2] for place, name in enumerate(listed)}
    lost = next((name for name in names if name not in side), None)
    if lost is not None:
        raise InputError(f"{sets}: the picture {lost} of trainval is in neither train nor val")
    return np.array([side[name] for name in names])


def _from_lists(sets: Path, part: str) -> tuple[list[str], npt.NDArray[np.int8]]:
    """Return picture names and marks (pictures, labels) from one list for each label."""
    names: list[str] = []
    marks = []
    for label in VOC_LABELS:
        path = sets / f"{label}_{part}.txt"
        rows = [line.split() for line in lines_of(path, VOC2012) if line.strip()]
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


def _from_annotations(home: Path, part: str) -> tuple[list[str], npt.NDArray[np.int8]]:
    """Return the same from the objects in Annotations, for the pictures listed in ``part``."""
    path = home / "ImageSets" / "Main" / f"{part}.txt"
    names = [line.split()[0] for line in lines_of(path, VOC2012) if line.strip()]
    if not names:
        raise InputError(f"{path} is empty")
    marks = np.full((len(names), len(VOC_LABELS)), -1, dtype=np.int8)
    for row, name in enumerate(names):
        annotation = home / "Annotations" / f"{name}.xml"
        if not annotation.is_file():
            raise absent(f"the file {annotation}", VOC2012)
        try:
            objects = ElementTree.parse(annotation).getroot().findall("object")
        except ElementTree.ParseError as error:
            raise InputError(f"{annotation} is not XML: {error}") from None
        for item in objects:
            kind = (item.findtext("name") or "").strip()
            if kind not in VOC_LABELS:
                raise InputError(f"{annotation}: {kind!r} is none of the 20 labels")
            easy = (item.findtext("difficult") or "0").strip() != "1"
            label = VOC_LABELS.index(kind)
            marks[row, label] = max(marks[row, label], int(easy))
    return names, marks
