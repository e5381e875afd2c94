"""The mechanisms, one file each, and the registry that the command line reads."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import InputError
from .base import ABSTAIN, Gate, Mechanism
from .binary import BinaryVoting
from .cells import VoteMechanism
from .plurality import PluralityVoting
from .powerset import PowersetVoting
from .tally import TallyVoting
from .tau import TauVoting

#: Mechanisms by their names on the command line, in files and in statements:
#: ``pv.MECHANISMS["binary"](sigma=7.0)``.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (BinaryVoting, TauVoting, PowersetVoting, PluralityVoting, TallyVoting)
}


def mechanism_of(parameters: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism whose ``parameters()`` these are."""
    settings = dict(parameters)
    name = settings.pop("mechanism", None)
    if name not in MECHANISMS:
        choices = ", ".join(MECHANISMS)
        raise InputError("mechanism", f"must be one of {choices}", name)
    try:
        if isinstance(settings.get("gate"), Mapping):
            settings["gate"] = Gate(**{k: v for k, v in settings["gate"].items() if k != "kind"})
        return MECHANISMS[name](**settings)
    except TypeError as error:
        kinds = [MECHANISMS[name], *([Gate] if "gate" in settings else [])]
        choices = ", ".join(item.name for kind in kinds for item in fields(kind) if item.init)
        raise InputError(
            f"mechanism {name!r} takes {choices}; {str(error).split('() ')[-1]}"
        ) from None


__all__ = [
    "ABSTAIN",
    "MECHANISMS",
    "BinaryVoting",
    "Gate",
    "Mechanism",
    "PluralityVoting",
    "PowersetVoting",
    "TallyVoting",
    "TauVoting",
    "VoteMechanism",
]
