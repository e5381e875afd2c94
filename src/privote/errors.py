"""The error tree: every message names the argument, the rule and the value that broke it."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


class PrivoteError(Exception):
    """Anything privote refuses to do. ``exit_code`` is what the command line returns."""

    exit_code = 1


class InputError(PrivoteError, ValueError):
    """An argument breaks a rule; nothing was charged and nothing was changed."""

    exit_code = 2


class BallotError(InputError):
    """Votes that break a rule of votes, or of a mechanism.

    The message may end up in a log. What a valid ballot says is private, so it is not in there, but
    in ``sealed``: for the owner's eyes, who has to find the place.
    """

    def __init__(self, message: str = "", *, sealed: str | None = None) -> None:
        super().__init__(message)
        self.sealed = sealed


class UnavailableError(InputError):
    """A combination that privote does not offer because it has no proof (or no code) for it."""


class MissingExtraError(PrivoteError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""

    exit_code = 2


class BudgetError(PrivoteError):
    """The privacy budget does not allow the request; nothing was released."""

    exit_code = 3


class ChargedError(PrivoteError):
    """The budget is charged and labels were released, but what was to be made of them was not.

    ``draft`` is the file in which the labels are; resuming finishes from it, for nothing more.
    """

    exit_code = 6

    def __init__(self, message: str, *, draft: Any = None) -> None:
        super().__init__(message)
        self.draft = draft


class ChargedInterruptError(ChargedError, KeyboardInterrupt):
    """The same, because somebody interrupted the work."""


class LedgerError(PrivoteError):
    """The ledger is broken, unreadable or was tampered with."""

    exit_code = 4


class PeerError(PrivoteError):
    """Another party of a coalition failed, or sent what it should not."""

    exit_code = 5


def missing_extra(extra: str, what: str) -> MissingExtraError:
    """Return the one sentence that says which extra brings ``what``."""
    return MissingExtraError(f"{what} needs the extra [{extra}]: pip install 'privote[{extra}]'")


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite positive number."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else 0.0
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not 0 < number < math.inf:
        raise InputError(f"{name} must be finite and positive, got {value!r:.60}")
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {value!r:.60}")
    return int(value)
