"""Learning from private data: by votes (teachers, neighbours, students), or directly with noise.

Names are loaded when somebody asks for them: scikit-learn takes a second to import.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Collected": "collect",
    "DPLinear": "direct.linear",
    "DPMoments": "direct.linear",
    "DPSGDClassifier": "direct.dpsgd",
    "ImageNetwork": "networks.image",
    "MixMatchClassifier": "students.mixmatch",
    "PartialLabels": "students.classifiers",
    "SavedStudent": "students.saving",
    "load": "students.saving",
    "load_student": "students.saving",
    "save_student": "students.saving",
    "LinearStudent": "students.classifiers",
    "LinearTeachers": "teachers.votes",
    "NeighbourBallots": "neighbours",
    "PATEClassifier": "pate",
    "PictureEncoder": "pictures",
    "PrivateClassifier": "private",
    "TableEncoder": "tables",
    "TextNetwork": "texts",
    "Teachers": "teachers.votes",
    "cast": "teachers.votes",
    "collect_votes": "collect",
    "train": "teachers.training",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load what is asked for, from the module it lives in."""
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
