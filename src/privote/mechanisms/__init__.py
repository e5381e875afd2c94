"""The mechanisms, one file each, and the registry that the command line reads."""

from .base import ABSTAIN, Mechanism
from .binary import BinaryVoting
from .cells import VoteMechanism
from .gate import Gate
from .plurality import PluralityVoting
from .powerset import PowersetVoting
from .tau import TauVoting

#: Names on the command line, in files and in statements.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind for kind in (BinaryVoting, TauVoting, PowersetVoting, PluralityVoting)
}

__all__ = [
    "ABSTAIN",
    "MECHANISMS",
    "BinaryVoting",
    "Gate",
    "Mechanism",
    "PluralityVoting",
    "PowersetVoting",
    "TauVoting",
    "VoteMechanism",
]
