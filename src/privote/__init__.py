"""privote: publish the outcome of a vote without publishing the votes.

Multi-winner votes released under differential privacy, with an exact bill. Start with
:func:`label`; every mechanism also prices and draws on its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import audit as audit
    from . import datasets as datasets
    from . import dependencies as dependencies
    from . import learning as learning
    from . import metrics as metrics
    from . import planning as planning
    from . import polls as polls
    from . import report as report
    from . import votes as votes
    from .accounting.renyi import DEFAULT_ORDERS as DEFAULT_ORDERS
    from .accounting.renyi import epsilon as epsilon
    from .accounting.renyi import epsilon_2017 as epsilon_2017
    from .errors import BallotError as BallotError
    from .errors import BudgetError as BudgetError
    from .errors import ChargedError as ChargedError
    from .errors import InputError as InputError
    from .errors import LedgerError as LedgerError
    from .errors import MissingExtraError as MissingExtraError
    from .errors import PrivoteError as PrivoteError
    from .errors import PrivoteWarning as PrivoteWarning
    from .errors import UnavailableError as UnavailableError
    from .guarantees import Guarantee as Guarantee
    from .guarantees.data_dependent import bills as bills
    from .labelling import Electorate as Electorate
    from .labelling import label as label
    from .learning import NeighbourBallots as NeighbourBallots
    from .learning import PATEClassifier as PATEClassifier
    from .learning import PrivateClassifier as PrivateClassifier
    from .learning import collect_votes as collect_votes
    from .learning import load as load
    from .ledger import Budget as Budget
    from .ledger import Ledger as Ledger
    from .mechanisms import *  # noqa: F403
    from .planning import plan as plan
    from .polls import poll as poll
    from .release import Release as Release
    from .release import decide as decide
    from .votes.cube import Ballots as Ballots
    from .votes.cube import SparseBallots as SparseBallots

# Which module each name comes from. It is loaded when somebody asks for the name: a command line
# that only prints its help waits for no library. The registry of mechanisms knows every voting.
_NAMES = {
    "accounting.renyi": "DEFAULT_ORDERS epsilon epsilon_2017",
    "errors": "BallotError BudgetError ChargedError InputError LedgerError MissingExtraError "
    "PrivoteError PrivoteWarning UnavailableError",
    "guarantees": "Guarantee",
    "guarantees.data_dependent": "bills",
    "labelling": "Electorate label",
    "learning": "NeighbourBallots PATEClassifier PrivateClassifier collect_votes load",
    "ledger": "Budget Ledger",
    "mechanisms": "ABSTAIN MECHANISMS Gate Mechanism VoteMechanism",
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

    def __getattr__(name: str) -> object:
        """Load what is asked for, once (PEP 562)."""
        if name in _ROOMS:
            return import_module(f".{name}", __name__)
        if name == "__all__":
            return __dir__()
        module = "mechanisms" if name.endswith("Voting") else _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module 'privote' has no attribute {name!r}")
        found = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    from . import mechanisms

    return sorted({*_WHERE, *_ROOMS, "__version__", *mechanisms.__all__})
