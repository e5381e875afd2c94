"""privote: publish the outcome of a vote without publishing the votes.

Multi-winner votes released under differential privacy, with an exact bill. Start with
:func:`label`; every mechanism also prices and draws on its own.
"""

from importlib import import_module
from typing import Any

from . import metrics
from ._version import __version__
from .accounting.renyi import DEFAULT_ORDERS, epsilon, epsilon_2017
from .ballots import Ballots, SparseBallots
from .electorate import Electorate
from .errors import (
    BallotError,
    BudgetError,
    ChargedError,
    InputError,
    LedgerError,
    MissingExtraError,
    PrivoteError,
    UnavailableError,
)
from .guardian import Guardian, bills
from .labelling import label
from .ledger import Budget, Ledger
from .links import OptimalLink
from .mechanisms import (
    ABSTAIN,
    MECHANISMS,
    BinaryVoting,
    Gate,
    Mechanism,
    PluralityVoting,
    PowersetVoting,
    TauVoting,
)
from .release import Release

__all__ = [
    "ABSTAIN",
    "DEFAULT_ORDERS",
    "MECHANISMS",
    "BallotError",
    "Ballots",
    "BinaryVoting",
    "Budget",
    "BudgetError",
    "ChargedError",
    "Electorate",
    "Gate",
    "Guardian",
    "InputError",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "MissingExtraError",
    "NeighbourBallots",
    "OptimalLink",
    "PATEClassifier",
    "PluralityVoting",
    "PowersetVoting",
    "PrivoteError",
    "Release",
    "SparseBallots",
    "TauVoting",
    "UnavailableError",
    "__version__",
    "bills",
    "epsilon",
    "epsilon_2017",
    "label",
    "metrics",
    "poll",
]

_ROOMS = ("audit", "datasets", "learning", "planning", "polls", "report", "votefiles")
_OF_LEARNING = ("NeighbourBallots", "PATEClassifier")


def __getattr__(name: str) -> Any:
    """Open a room when somebody asks for it: ``import privote`` stays fast."""
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name == "poll":
        return import_module(".polls", __name__).poll
    if name in _OF_LEARNING:
        return getattr(import_module(".learning", __name__), name)
    raise AttributeError(f"module 'privote' has no attribute {name!r}")
