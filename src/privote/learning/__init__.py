"""Learning from private data: by votes (teachers, neighbours, students), or directly with noise.

Names are loaded when somebody asks for them: scikit-learn takes a second to import.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Collected": "collect",
    "DPLinear": "gradients",
    "DPMoments": "moments",
    "DPSGDClassifier": "dpsgd",
    "ImageNetwork": "networks",
    "MixMatchClassifier": "mixmatch",
    "PartialLabels": "students",
    "SavedStudent": "saving",
    "load": "saving",
    "load_student": "saving",
    "save_student": "saving",
    "LinearStudent": "students",
    "LinearTeachers": "teachers",
    "NeighbourBallots": "neighbours",
    "PATEClassifier": "pate",
    "PictureEncoder": "pictures",
    "PrivateClassifier": "private",
    "TableEncoder": "tables",
    "TextNetwork": "texts",
    "Teachers": "teachers",
    "cast": "teachers",
    "collect_votes": "collect",
    "train": "teachers",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load what is asked for, from the module it lives in."""
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
