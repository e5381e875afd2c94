"""Learning from private data through votes: teachers, neighbours, students, multi-label PATE.

Names are loaded when somebody asks for them: scikit-learn takes a second to import.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "PartialLabels": "student",
    "SavedStudent": "saving",
    "load_student": "saving",
    "save_student": "saving",
    "LinearStudent": "linear_student",
    "LinearTeachers": "linear",
    "NeighbourBallots": "neighbours",
    "NeighbourStudent": "neighbour_student",
    "PATEClassifier": "pate",
    "Teachers": "teachers",
    "balanced_shares": "shares",
    "cast": "thresholds",
    "cast_packed": "thresholds",
    "train": "teachers",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load what is asked for, from the module it lives in."""
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
