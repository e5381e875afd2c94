"""Data to vote on: an embedded set, and readers for data sets as their owners distribute them.

Every reader returns :class:`MultiLabelData`; :func:`open` finds a reader by name. Nothing is
downloaded: where a file is missing, the error says where to get it.
"""

from .chest import PAPER_LABELS
from .chexpert import chexpert
from .hashing import keyed_parts
from .images import Images
from .mimic import mimic
from .mulan import mulan
from .nih import nih
from .padchest import padchest
from .patients import PATIENT_LABELS, load_patients
from .records import MultiLabelData, RawTable, Split, union
from .registry import DATASETS
from .registry import open as open
from .scenes import Scenes, load_scenes
from .teacher_votes import TEACHER_VOTES, TeacherVotes, load_teacher_votes
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
