"""The error tree: every message names the argument, the rule and the value that broke it."""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Integral, Real
from typing import Any
from unicodedata import category

import numpy as np
import numpy.typing as npt

_NO_NUMBERS = (bool, np.timedelta64)  # though Python, and numpy, count them among the integers
_JOINERS = "\u200c\u200d"  # inside words of some scripts
_SHOWN = 60  # letters of a value in a message
_LEAST, _MOST = 1e-150, 1e150  # a square, or one over it, is still a number


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


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # an integer of more digits than Python prints, or an object's own fault
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "?"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text as a terminal may get it: what would steer it is spelled out instead.

    Names come from files, and files from strangers: an escape sequence would colour, hide or
    overwrite what else is on the screen, and a line break would forge a line. With ``lines`` the
    text is privote's own and its line breaks stay.
    """
    if lines:
        return "\n".join(map(printable, text.split("\n")))
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in _JOINERS or category(c) == "Zs" else ascii(c)[1:-1]
        for c in text
    )


def finite(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite number; a bool or a text is none."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, _NO_NUMBERS):
        with suppress(OverflowError):  # an integer, or a fraction, beyond all floats
            number = float(value)
    if not -math.inf < number < math.inf:
        raise InputError(f"{name} must be a finite number, got {shown(value)}")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a positive number whose square is one, too."""
    try:
        number = finite(name, value)
    except InputError:
        number = 0.0
    if not number > 0:
        raise InputError(f"{name} must be finite and positive, got {shown(value)}")
    if not _LEAST <= number <= _MOST:
        raise InputError(f"{name} must lie from {_LEAST:g} to {_MOST:g}, got {shown(value)}")
    return number


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return ``value`` as an int if it is an integer from ``least`` to ``most``."""
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    if most is not None and int(value) > most:
        raise InputError(f"{name} must be an integer of at most {most}, got {shown(value)}")
    return int(value)


def numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return values as floats if they are numbers; bools and texts that look like some are none."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be numbers, got {shown(values)}")
    return array.astype(np.float64)
