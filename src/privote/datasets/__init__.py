"""Data to vote on: an embedded set, and readers for data sets as their owners distribute them.

Every reader returns :class:`MultiLabelData`; :func:`open` finds a reader by name, as the command
line does: ``"voc2012:FOLDER"`` opens Pascal VOC 2012. Nothing is downloaded: where a file is
missing, the error says where to get it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privote.errors import InputError

from .chest import PAPER_LABELS, chexpert, mimic, nih, padchest
from .embedded import (
    PATIENT_LABELS,
    TEACHER_VOTES,
    Scenes,
    TeacherVotes,
    load_patients,
    load_scenes,
    load_teacher_votes,
    scene_data,
)
from .images import Images
from .mulan import mulan
from .records import MultiLabelData, RawTable, Split, keyed_parts, union
from .voc import voc2012

# Not `open`, which `import *` would put in place of Python's own.
__all__ = [
    "DATASETS",
    "PAPER_LABELS",
    "PATIENT_LABELS",
    "TEACHER_VOTES",
    "Images",
    "MultiLabelData",
    "RawTable",
    "Scenes",
    "Split",
    "TeacherVotes",
    "chexpert",
    "keyed_parts",
    "load_patients",
    "load_scenes",
    "load_teacher_votes",
    "mimic",
    "mulan",
    "nih",
    "padchest",
    "union",
    "voc2012",
]

DATASETS: dict[str, Callable[..., MultiLabelData]] = {
    "scenes": scene_data,
    "mulan": mulan,
    "voc2012": voc2012,
    "chexpert": chexpert,
    "mimic": mimic,
    "padchest": padchest,
    "nih": nih,
}

# What a folder has that holds a data set, to know it by.
_MARKS = {
    "voc2012": ("ImageSets/Main", "VOC2012/ImageSets/Main", "VOCdevkit/VOC2012/ImageSets/Main"),
    "mimic": ("mimic-cxr-*-metadata.csv*",),
    "padchest": ("PADCHEST_*.csv*",),
    "nih": ("*Data_Entry_2017*.csv*",),
    "chexpert": ("train.csv*",),
}


def open(
    name_or_path: str | Path, folder: str | Path | None = None, **options: Any
) -> MultiLabelData:
    """Open a data set by name and place.

    Parameters
    ----------
    name_or_path
        ``"scenes"``; ``"mulan:FILE.arff"``; ``"voc2012:FOLDER"``, ``"chexpert:FOLDER"``,
        ``"mimic:FOLDER"``, ``"padchest:FOLDER"`` or ``"nih:FOLDER"``; or just the file or folder
        if it can be told what it holds.
    folder
        The place, if it does not follow the name.
    options
        What the loader of that name takes, for example ``part`` and ``views``.
    """
    text = str(name_or_path)
    name, colon, place = text.partition(":")
    if name not in DATASETS:
        name, place = _recognised(Path(text)), text
    elif colon and folder is not None:
        raise InputError(f"give the place once: got {text!r} and folder={str(folder)!r}")
    where = place or folder
    loader = DATASETS[name]
    if name == "scenes":
        if where:
            raise InputError(f"scenes are embedded and have no place, got {str(where)!r}")
        return loader(**_allowed(name, load_scenes, options))
    if not where:
        kind = "FILE.arff" if name == "mulan" else "FOLDER"
        raise InputError(f"{name} needs a place: {name}:{kind}")
    return loader(where, **_allowed(name, loader, options))


def _recognised(path: Path) -> str:
    if path.name.endswith((".arff", ".arff.gz")):
        return "mulan"
    if path.is_dir():
        for name, marks in _MARKS.items():
            if any(next(path.glob(mark), None) for mark in marks):
                return name
    raise InputError(
        f"{str(path)!r} is no data set that is known by name or by what is in it; "
        f"names are {', '.join(DATASETS)}"
    )


def _allowed(name: str, loader: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(loader).parameters
    known = [option for option in parameters if option not in ("path", "folder")]
    for option in options:
        if option not in known:
            raise InputError(name, f"has no option {option!r}; it takes {', '.join(known)}")
    return options
