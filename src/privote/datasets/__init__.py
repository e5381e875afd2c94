"""Data to vote on: an embedded set, and readers for data sets as their owners distribute them.

Every reader returns :class:`MultiLabelData`; :func:`open` finds a reader by name, as the command
line does: ``"voc2012:FOLDER"`` opens Pascal VOC 2012. Nothing is downloaded: where a file is
missing, the error says where to get it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from privote.errors import InputError
from privote.votes.tables import RawTable as RawTable

from .chest import PAPER_LABELS as PAPER_LABELS
from .chest import chexpert as chexpert
from .chest import mimic as mimic
from .chest import nih as nih
from .chest import padchest as padchest
from .embedded import PATIENT_LABELS as PATIENT_LABELS
from .embedded import TEACHER_VOTES as TEACHER_VOTES
from .embedded import Scenes as Scenes
from .embedded import TeacherVotes as TeacherVotes
from .embedded import load_patients as load_patients
from .embedded import load_scenes as load_scenes
from .embedded import load_teacher_votes as load_teacher_votes
from .embedded import scene_data
from .images import Images as Images
from .mulan import mulan as mulan
from .pictures import pictures as pictures
from .records import MultiLabelData as MultiLabelData
from .records import Split as Split
from .records import keyed_parts as keyed_parts
from .voc import voc2012 as voc2012

DATASETS: dict[str, Callable[..., MultiLabelData]] = {
    "scenes": scene_data,
    "mulan": mulan,
    "voc2012": voc2012,
    "chexpert": chexpert,
    "mimic": mimic,
    "padchest": padchest,
    "nih": nih,
}


def open(name: str, **options: Any) -> MultiLabelData:
    """Open a data set by name and place, as the command line does.

    Parameters
    ----------
    name
        ``"scenes"``; ``"mulan:FILE.arff"``; ``"voc2012:FOLDER"``, ``"chexpert:FOLDER"``,
        ``"mimic:FOLDER"``, ``"padchest:FOLDER"`` or ``"nih:FOLDER"``.
    options
        What the loader of that name takes, for example ``part`` and ``views``.
    """
    kind, _, path = name.partition(":")
    if kind not in DATASETS:
        rule = f"must be one of {', '.join(DATASETS)}, followed by a colon and a path"
        raise InputError("data", rule, name)
    if (kind == "scenes") is bool(path):
        rule = "needs no path: it is embedded" if path else "needs a path after a colon"
        raise InputError("data", rule, name)
    loader = DATASETS[kind]
    taken_by = inspect.signature(load_scenes if kind == "scenes" else loader).parameters
    for option in options:
        if option not in taken_by:
            raise InputError(option, f"is not an option of {kind}; it takes {', '.join(taken_by)}")
    return loader(path, **options) if path else loader(**options)
