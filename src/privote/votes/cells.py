"""Cells of tables, frames and arrays: what each one is, decided from that cell alone.

What pandas, Arrow or numpy infers from a whole column changes for everybody when one record
changes: a gap turns integers into floats and "1" into "1.0". So no reader looks at a column's type.
Every cell goes through :func:`canonical`, which undoes what a type may have done to it, and is then
read as a number, a day, a word, a yes or a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

#: What a cell is: a gap, yes or no, a number, a text, a day.
Cell = None | bool | int | float | str | date

ODD = -9  # what is neither yes, no nor a gap
VOTE_WORDS = "1, 0, yes, no, true, false or empty"
ISO = "iso"  # the form of a day as 2024-01-31
_WORDS = {
    1: ("1", "yes", "true", "y", "1.0"),
    0: ("0", "no", "false", "n", "0.0"),
    -1: ("", "-1", "-1.0", "na", "n/a", "nan", "null"),
}
# How people mark votes; in a feature these may mean anything.
_TICKS = {1: ("x", "t", "\u2713", "\u2714"), 0: ("f",), -1: ("-", "none")}
_NO_VALUE = ("na", "n/a", "nan", "null", "none", "nat", "<na>")  # in columns of numbers and days
_TRUTH: dict[str, int] = {"true": 1, "false": 0}
_MISSING_TYPES = ("NAType", "NaTType")  # pandas'; they equal nothing, not even themselves
_NUMERAL = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)", re.ASCII | re.IGNORECASE)
# What Arrow, too, reads as a moment, a time and an integer where a whole column is one.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[t ]\d\d(:\d\d(:\d\d([.,]\d+)?)?)?(z|[+-]\d\d(:?\d\d)?)?", re.ASCII
)
_TIME = re.compile(r"\d\d:\d\d", re.ASCII)
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]00(:00(:00([.,]0+)?)?)?", re.ASCII)
_HEX = re.compile(r"0x[0-9a-f]{1,16}")
_WHOLE = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_EXACT = 2**53  # from here on a float no longer tells an integer from the next
_MOST = 10**30
_EPOCH = date(1970, 1, 1).toordinal()
# How a formula begins in one spreadsheet or another, in either width.
_FORMULAS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def canonical(cell: Any) -> Cell:
    """Return what a cell is, whatever type its column had; None for a gap.

    A gap is None, NaN, NaT, pandas' NA or an empty text. Whole floats below 2^53 become integers. A
    moment becomes its day, one of a time zone that of Greenwich: Arrow writes a whole column in the
    zone of its first cell. A text stays a text, without the blanks around it.

    Raises
    ------
    TypeError
        For a list, an array or something else that holds several values.
    """
    if isinstance(cell, str):
        return str(cell).strip() or None
    if cell is None or type(cell).__name__ in _MISSING_TYPES:
        return None
    if isinstance(cell, np.datetime64):  # in nanoseconds, `item` would return an integer
        cell = cell.astype("M8[us]")
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, bool | int) or cell is None:
        return cell
    if isinstance(cell, Decimal):
        cell = float(cell) if not cell.is_finite() or cell % 1 else int(cell)
    if isinstance(cell, float):
        if math.isnan(cell):
            return None
        return int(cell) if abs(cell) < _EXACT and cell.is_integer() else cell
    if isinstance(cell, datetime):
        with suppress(NotImplementedError):  # pandas has years beyond 9999
            return _day_of(cell)
        return str(cell)
    if isinstance(cell, Mapping | Sequence | Set | np.ndarray):
        raise TypeError("a cell must hold one value")
    return cell if isinstance(cell, date) else str(cell)


def _day_of(moment: datetime) -> date:
    """Return a moment's day, that of Greenwich where it has a time zone."""
    try:
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    except OverflowError:  # beside the first day or the last one that there is
        return moment.date()


def _moment(text: str) -> date | None:
    """Return the day of a folded text that is a moment; None for any other."""
    try:
        return _day_of(datetime.fromisoformat(text.upper())) if _MOMENT.fullmatch(text) else None
    except ValueError:  # no such day, or time
        return None


def _integer(text: str) -> int:
    """Return what 16 digits to the base of 16 are to Arrow, a sign among them."""
    value = int(text, 16)
    return value - 2**64 if value >= 2**63 else value


def _value(cell: Any) -> Cell:
    """Return a cell of a column of values, a text as a type would have it; None without a value."""
    value = canonical(cell)
    if not isinstance(value, str):
        return value
    text = value.casefold()
    if text in _NO_VALUE:
        return None
    if text in _TRUTH or _HEX.fullmatch(text):
        return _TRUTH[text] if text in _TRUTH else _integer(text)
    if _NUMERAL.fullmatch(text):
        return float(text)
    return _moment(text) or (f"{text}:00" if _TIME.fullmatch(text) else text)


def is_gap(cell: Any) -> bool:
    """Return whether nothing stands in a cell."""
    return not is_several(cell) and canonical(cell) is None


def is_several(cell: Any) -> bool:
    """Return whether a cell holds several values."""
    return not isinstance(cell, str) and isinstance(cell, Mapping | Sequence | Set | np.ndarray)


def number(cell: Any) -> float | None:
    """Return a cell as a number, None for a gap; ValueError if it is none.

    A fraction is cut to 15 digits: pandas may read what is beyond otherwise than Python does, and
    reads it only where all cells of a column are numbers.
    """
    value = _value(cell)
    if value is None:
        return None
    if isinstance(value, str | date) or not -_MOST < value < _MOST:  # an integer may have any size
        raise ValueError("not a number within bounds")
    value = float(value)
    return value if value.is_integer() else float(f"{value:.15g}")


def day(cell: Any, form: str = ISO) -> float | None:
    """Return a cell as days since 1970, None for a gap; ValueError if it is no date.

    ``form`` is how dates are written: "iso", or a format of ``strptime``.
    """
    cell = canonical(cell)
    if isinstance(cell, str):
        text = cell.casefold()
        if text in _NO_VALUE:
            return None
        if form != ISO:
            cell = datetime.strptime(text, form).date()
        elif "-" in text:
            cell = _moment(text) or date.fromisoformat(text)
    if isinstance(cell, date):
        return float(cell.toordinal() - _EPOCH)
    if cell is None:
        return None
    raise ValueError("not a date")


def word(cell: Any) -> str | None:
    """Return a cell as a category, folded; None for a gap.

    Cells that a type may have made of one another are one word: 250, 250.0 and "250.00"; True,
    "True" and 1; 31 and "0x1F"; a day, and that day with a time; 10:30 and 10:30:00.
    """
    value = _value(cell)
    if value is None or isinstance(value, str | date):
        return None if value is None else str(value)
    try:
        value = float(value)
    except OverflowError:
        return str(value)
    # pandas may read the last digit of a long decimal otherwise than Python does.
    whole = abs(value) < _EXACT and value.is_integer()
    return str(int(value)) if whole else f"{value:.12g}"


class YesNo(dict[Any, int]):
    """What a cell says: 1, 0, -1 for a gap, :data:`ODD` for anything else. Ask it with ``[]``.

    ``ticks`` is False for a feature, in which an x need not be a yes.
    """

    def __init__(self, *, ticks: bool = True) -> None:
        super().__init__({1: 1, 0: 0, -1: -1, None: -1})  # True, 1.0 and 1 are one key
        for words in (_WORDS, _TICKS) if ticks else (_WORDS,):
            self.update({word: value for value, spelled in words.items() for word in spelled})

    def __missing__(self, cell: Any) -> int:
        if is_several(cell):
            return ODD
        value = canonical(cell)
        value = value.lower() if isinstance(value, str) else value
        return self.get(value, ODD)

    def read(self, column: Sequence[Any]) -> npt.NDArray[np.int8]:
        """Return what every cell of a column says."""
        try:
            return np.fromiter(map(self.__getitem__, column), np.int8, len(column))
        except TypeError:  # a list, which no dictionary takes
            return np.array([ODD if is_several(c) else self[c] for c in column], np.int8)


# -- names -----------------------------------------------------------------------------------------


def name_of(cell: Any) -> str:
    """Return a cell as a name, without blanks around it; "" if nothing stands there.

    Raises
    ------
    InputError
        For a yes or no, which a type may have made of a number; and for a number from 2^53 on,
        which one fraction in its column would round.
    """
    cell = canonical(cell)
    if isinstance(cell, bool) or (isinstance(cell, int | float) and abs(cell) >= _EXACT):
        raise InputError("a name", "must be a text, or an integer below 2^53")
    return name_in(cell) if isinstance(cell, str) else "" if cell is None else str(cell)


def typed(name: str) -> str:
    """Return a name as a type would make it: 1e5, +5 and 0x1F integers, 10:30 with seconds.

    A column is of that type only where all of its cells are, so names are compared as if each were.
    """
    if _HEX.fullmatch(name.casefold()):
        return str(_integer(name))
    if _TIME.fullmatch(name):
        return f"{name}:00"
    if _MIDNIGHT.fullmatch(name):
        return name[:10]
    if name.isdecimal() or not _WHOLE.fullmatch(name):
        return name
    value = float(name)
    return str(int(value)) if abs(value) < _EXACT and value.is_integer() else name


def is_inexact(cell: Any) -> bool:
    """Return whether a cell has a fraction or a time of day that its type writes in its own way."""
    if isinstance(cell, np.datetime64):
        cell = cell.astype("M8[us]").item()
    if isinstance(cell, datetime):
        return cell.tzinfo is not None or cell.time() != time()
    return isinstance(cell, float | np.floating) and bool(cell % 1)


def cell_of(name: str) -> str:
    """Return a name as a cell of a CSV file that no spreadsheet takes for a formula.

    One that begins as a formula gets an apostrophe in front; :func:`name_in` takes it away again.
    A plain number stays what it is.
    """
    begins = name.lstrip("'")[:1]
    if not begins or begins not in _FORMULAS or is_number(name):
        return name
    return f"'{name}"


def name_in(cell: str) -> str:
    """Return the name that :func:`cell_of` made this cell of."""
    begins = cell.lstrip("'")[:1]
    return cell[1:] if cell.startswith("'") and begins and begins in _FORMULAS else cell


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
