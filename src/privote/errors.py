"""The error tree. An error is data: the argument, the rule, and the value that broke it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any
from unicodedata import category

if TYPE_CHECKING:  # numpy takes longer to load than most of what a command line refuses
    import numpy.typing as npt

_NO_NUMBERS = ("bool", "timedelta64")  # though Python, and numpy, count them among the integers
_JOINERS = "\u200c\u200d"  # inside words of some scripts
_SHOWN = 60  # letters of a value in a message
_LEAST, _MOST = 1e-150, 1e150  # a square, or one over it, is still a number
_UNSAID: Any = object()
_MENTION = re.compile(r"`(\w+)(?:=([^`]*))?`")  # `argument` or `argument=value` in a rule
_USER, _QUERY = re.compile(":/+.*@"), re.compile(r"(:/+[^?]*)\?.*")  # a path may lack a slash


class PrivoteError(Exception):
    """Base class of all errors raised by privote. ``exit_code`` is that of the command line.

    An error is data: a code, an argument, a rule and a value. ``PrivoteError("sigma", "must be
    positive", -1)`` reads "sigma must be positive, got -1"; ``PrivoteError("a whole sentence.")``
    is about no argument. A rule names other arguments between backticks, as in "needs
    `resume=True`"; the command line replaces them by its options.

    Attributes
    ----------
    code
        The kind of error, in one word that does not change when the sentence does. Each class has
        one; ``code=`` gives a narrower one.
    argument
        The argument that broke the rule, or None.
    rule
        The rule, or the whole sentence.
    shown
        The value that broke the rule, as shown in the message, or None.

    Examples
    --------
    >>> import privote as pv
    >>> try:
    ...     pv.BinaryVoting(sigma=-1)
    ... except pv.PrivoteError as error:
    ...     print(error.code, error.argument, error.exit_code)
    input sigma 2
    """

    exit_code = 1
    code = "refused"

    def __init__(
        self,
        argument: str,
        rule: str | None = None,
        value: Any = _UNSAID,
        *,
        code: str | None = None,
    ) -> None:
        super().__init__(argument)
        self.code = code or type(self).code
        self.argument = None if rule is None else argument
        self.rule = argument if rule is None else rule
        self.shown = None if value is _UNSAID else shown(value)

    def __str__(self) -> str:
        return self.worded(_in_python)

    def __reduce__(self) -> tuple[Any, ...]:  # out of a worker process, whatever made it
        return _again, (type(self), vars(self))

    def worded(self, spell: Callable[[str, str | None], str]) -> str:
        """Return the message, with each argument as ``spell(name, value or None)`` has it."""
        lead = "" if self.argument is None else spell(self.argument, None) + " "
        rule = _MENTION.sub(lambda mention: spell(mention[1], mention[2]), self.rule)
        return masked(lead + rule + ("" if self.shown is None else f", got {self.shown}"))


class PrivoteWarning(UserWarning):
    """Warns of input that looks wrong but may be intended.

    Examples
    --------
    >>> import warnings, privote as pv
    >>> warnings.simplefilter("error", pv.PrivoteWarning)  # treat such warnings as errors
    """


class InputError(PrivoteError, ValueError):
    """An argument breaks a rule; nothing was charged and nothing was changed.

    The message never quotes private files, so it may be logged or sent to others. Such a value is
    in ``sealed``, for the owner's eyes.

    Examples
    --------
    >>> import privote as pv
    >>> try:
    ...     pv.poll({"Ada": [1, 0], "Bo": [0, 1]}, epsilon=0, delta=1e-6)
    ... except pv.InputError as error:
    ...     print(error.argument)
    epsilon
    """

    exit_code = 2
    code = "input"

    def __init__(
        self,
        argument: str,
        rule: str | None = None,
        value: Any = _UNSAID,
        *,
        code: str | None = None,
        sealed: str | None = None,
    ) -> None:
        super().__init__(argument, rule, value, code=code)
        self.sealed = sealed


class BallotError(InputError):
    """The votes break a rule of votes or of the mechanism; nothing was charged.

    Examples
    --------
    >>> import privote as pv
    >>> try:
    ...     pv.Ballots.of([[[0, 7]]])
    ... except pv.BallotError as error:
    ...     print(error.code)
    ballot
    """

    code = "ballot"


class UnavailableError(InputError):
    """A combination that privote does not offer, because there is no proof or no code for it.

    Examples
    --------
    >>> import privote as pv
    >>> issubclass(pv.UnavailableError, pv.InputError)
    True
    """

    code = "unavailable"


class MissingExtraError(PrivoteError, ImportError):
    """An optional dependency is not installed; the message names the extra to install.

    Examples
    --------
    >>> import privote as pv
    >>> issubclass(pv.MissingExtraError, ImportError)
    True
    """

    exit_code = 2
    code = "extra"


class BudgetError(PrivoteError):
    """The privacy budget does not allow the request; nothing was released.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes, mechanism = np.zeros((9, 5, 2), bool), pv.BinaryVoting(sigma=1.0)
    >>> try:
    ...     pv.label(votes, epsilon=0.1, delta=1e-6, mechanism=mechanism, queries=9)
    ... except pv.BudgetError as error:
    ...     print(error.exit_code)
    3
    """

    exit_code = 3
    code = "budget"


class CompleteError(PrivoteError):
    """A run that was to be resumed is complete: it was delivered before. Nothing is left to do."""

    exit_code = 0
    code = "complete"


class ChargedError(PrivoteError):
    """The budget is charged, but the run did not finish.

    ``code`` is "charged" where `resume=True` finishes it at no further charge, and "closed" where
    nothing can.

    Examples
    --------
    >>> import privote as pv
    >>> pv.ChargedError.exit_code  # of privote label: repeat the command with --resume
    6
    """

    exit_code = 6
    code = "charged"


class ChargedInterruptError(ChargedError, KeyboardInterrupt):
    """The budget is charged, but the run was interrupted; resume it at no further charge."""


class LedgerError(PrivoteError):
    """The ledger is broken, unreadable or was tampered with; nothing was released.

    Examples
    --------
    >>> import privote as pv
    >>> try:
    ...     pv.Ledger.open("no-such-folder/ledger.db", readonly=True)
    ... except pv.LedgerError as error:
    ...     print(error.exit_code)
    4
    """

    exit_code = 4
    code = "ledger"


class StorageError(LedgerError):
    """A disk is full, or a database does not answer; nothing was charged or released.

    Examples
    --------
    >>> import privote as pv
    >>> pv.StorageError.exit_code, issubclass(pv.StorageError, pv.LedgerError)
    (7, True)
    """

    exit_code = 7
    code = "storage"


class PeerError(PrivoteError):
    """Another party of a coalition failed, or sent an invalid message."""

    exit_code = 5
    code = "peer"


def _again(kind: type[PrivoteError], state: dict[str, Any]) -> PrivoteError:
    error = kind.__new__(kind, state["rule"])
    vars(error).update(state)
    return error


def _in_python(name: str, value: str | None) -> str:
    return name if value is None else f"{name}={value}"


def missing_extra(extra: str, what: str) -> MissingExtraError:
    """Return the one sentence that says which extra brings ``what``."""
    return MissingExtraError(f"{what} needs the extra [{extra}]: pip install 'privote[{extra}]'")


def shown(value: Any) -> str:
    """Return a value as a message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # an integer of more digits than Python prints, or an object's own fault
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else "?"
    text = masked(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def masked(text: str) -> str:
    """Return a text without what a URL in it may keep secret: user info, and a query string.

    Nobody can tell where a URL with spaces or quotes in it ends. So all is left out up to the last
    ``@``, and from the first ``?`` on.
    """
    return _QUERY.sub(r"\1?***", _USER.sub("://***@", text))


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
    if isinstance(value, Real) and type(value).__name__ not in _NO_NUMBERS:
        with suppress(OverflowError):  # an integer, or a fraction, beyond all floats
            number = float(value)
    if not -math.inf < number < math.inf:
        raise InputError(name, "must be a finite number", value)
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a positive number whose square is one, too."""
    try:
        number = finite(name, value)
    except InputError:
        number = 0.0
    if not number > 0:
        raise InputError(name, "must be finite and positive", value)
    if not _LEAST <= number <= _MOST:
        raise InputError(name, f"must be from {_LEAST:g} to {_MOST:g}", value)
    return number


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return ``value`` as an int if it is an integer from ``least`` to ``most``."""
    counts = isinstance(value, Integral) and type(value).__name__ not in _NO_NUMBERS
    if not counts or int(value) < least:
        raise InputError(name, f"must be an integer of at least {least}", value)
    if most is not None and int(value) > most:
        raise InputError(name, f"must be an integer of at most {most}", value)
    return int(value)


def plural(count: int, noun: str) -> str:
    """Return how many there are of something: "1 query", "1,200 queries"."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun}"


def numbers(name: str, values: Any, kind: type[InputError] = InputError) -> npt.NDArray[Any]:
    """Return an array of numbers, whatever they came as; a cell in which nothing stands is NaN.

    An array of bools, integers or floats keeps its type, which somebody chose. Of anything else
    each cell becomes a float by itself: the type that numpy finds for all of them together changes
    with one cell. No message quotes a cell; the one that is no number is sealed.
    """
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):
        raise kind(name, "must not be masked; use NaN for what is missing")
    rule = "must be numbers, in rows of equal length"
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array if hasattr(values, "dtype") else array.astype(np.float64)
        cells = np.asarray(values, object)
    except Exception:  # ragged, or an object's own fault
        raise kind(name, rule) from None
    if array.dtype.kind in "mM":  # as objects some of these are integers
        raise kind(name, f"{rule}, and no dates")
    flat = cells.ravel().tolist()
    counts = {of: _counts(of) for of in set(map(type, flat))}
    odd = next((at for at, cell in enumerate(flat) if counts[type(cell)] is False), None)
    if odd is None:
        with suppress(OverflowError, ValueError):  # an integer beyond all floats
            made = [cell if counts[type(cell)] else math.nan for cell in flat]
            return np.array(made, np.float64).reshape(cells.shape)
        raise kind(name, rule)
    place = ", ".join(str(at) for at in np.unravel_index(odd, cells.shape))
    real = ". Complex data not supported" if isinstance(flat[odd], complex) else ""
    rule = f"{rule}; the cell at ({place}) is none{real}"
    raise kind(name, rule, sealed=f"it is {shown(flat[odd])}")


def _counts(kind: type) -> bool | None:
    """Return whether cells of this type are numbers; None if nothing stands in them."""
    if kind.__name__ in ("NoneType", "NAType", "NaTType"):
        return None
    if kind.__name__ in ("bool", "bool_"):  # numpy's, by its version
        return True
    return issubclass(kind, Real | Decimal) and kind.__name__ not in _NO_NUMBERS
