"""privote: publish the outcome of a vote without publishing the votes.

Multi-winner votes released under differential privacy, with an exact bill. Start with
:func:`label`; every mechanism also prices and draws on its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from typing import Any

    from . import audit, datasets, dependencies, learning, metrics, planning, polls, report, votes
    from .accounting.renyi import DEFAULT_ORDERS, epsilon, epsilon_2017
    from .errors import (
        BallotError,
        BudgetError,
        ChargedError,
        InputError,
        LedgerError,
        MissingExtraError,
        PrivoteError,
        PrivoteWarning,
        UnavailableError,
    )
    from .guardian import Guardian, bills
    from .labelling import Electorate, label
    from .learning import NeighbourBallots, PATEClassifier, PrivateClassifier, collect_votes, load
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
        TallyVoting,
        TauVoting,
        VoteMechanism,
    )
    from .planning import plan
    from .polls import poll
    from .release import Release, decide
    from .votes.cube import Ballots, SparseBallots

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
    "PrivateClassifier",
    "PrivoteError",
    "PrivoteWarning",
    "Release",
    "SparseBallots",
    "TallyVoting",
    "TauVoting",
    "UnavailableError",
    "VoteMechanism",
    "__version__",
    "audit",
    "bills",
    "collect_votes",
    "datasets",
    "decide",
    "dependencies",
    "epsilon",
    "epsilon_2017",
    "label",
    "learning",
    "load",
    "metrics",
    "plan",
    "planning",
    "poll",
    "polls",
    "report",
    "votes",
]

# Which module each name comes from. It is loaded when somebody asks for the name: a command line
# that only prints its help waits for no library.
_NAMES = {
    "accounting.renyi": "DEFAULT_ORDERS epsilon epsilon_2017",
    "errors": "BallotError BudgetError ChargedError InputError LedgerError MissingExtraError "
    "PrivoteError PrivoteWarning UnavailableError",
    "guardian": "Guardian bills",
    "labelling": "Electorate label",
    "learning": "NeighbourBallots PATEClassifier PrivateClassifier collect_votes load",
    "ledger": "Budget Ledger",
    "links": "OptimalLink",
    "mechanisms": "ABSTAIN MECHANISMS BinaryVoting Gate Mechanism PluralityVoting PowersetVoting "
    "TallyVoting TauVoting VoteMechanism",
    "planning": "plan",
    "polls": "poll",
    "release": "Release decide",
    "votes.cube": "Ballots SparseBallots",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
_ROOMS = (
    "audit",
    "datasets",
    "dependencies",
    "learning",
    "metrics",
    "planning",
    "polls",
    "report",
    "votes",
)


if not TYPE_CHECKING:  # whoever checks types reads the imports above, and finds misspelt names

    def __getattr__(name: str) -> "Any":
        """Load what is asked for, once (PEP 562)."""
        if name in _ROOMS:
            return import_module(f".{name}", __name__)
        if name not in _WHERE:
            raise AttributeError(f"module 'privote' has no attribute {name!r}")
        found = getattr(import_module(f".{_WHERE[name]}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
