"""Text files as spreadsheets and archives write them: encodings, delimiters, cells, integers."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from pathlib import Path

from ..errors import BallotError, InputError
from ..votes.cube import MOST

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = "\t;,"


def encoding_of(path: Path, encoding: str | None) -> str:
    """Return how a file's letters are stored: as named, by its mark, or UTF-8."""
    if encoding is not None:
        try:
            "a".encode(encoding)
        except (LookupError, ValueError):  # also what Python knows, but not for text
            raise InputError(
                "encoding", "must be one that Python knows, e.g. cp1252", encoding
            ) from None
        return encoding
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def lines(path: Path, encoding: str | None) -> Iterator[str]:
    """Yield the lines of a file; the message of one that cannot be decoded has its number."""
    name = encoding_of(path, encoding)
    try:
        with path.open(encoding=name, newline="") as file:
            yield from file
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeError:
        raise InputError(
            f"line {_undecodable(path, name)} is not {name}: say what `encoding` the file has, "
            "e.g. cp1252 for older spreadsheets"
        ) from None


def _undecodable(path: Path, name: str) -> int:
    reader = codecs.getincrementaldecoder(name)()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                reader.decode(line)
            except UnicodeError:
                return number
    return number


def delimiter_of(header: str) -> str:
    """Return what separates the cells of a header; a tab if nothing does."""
    counts = {mark: _outside_quotes(header, mark) for mark in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda mark: counts[mark])
    return best if counts[best] else "\t"


def _outside_quotes(text: str, mark: str) -> int:
    return sum(part.count(mark) for part in text.split('"')[::2])


def integer(text: str, what: str, least: int = 0, most: int = MOST) -> int:
    """Return an integer of a file, bounded before it counts or sizes anything.

    The message does not repeat it: in a private file it tells of ballots.
    """
    digits = text.strip().lstrip("0") or "0"
    # Not even converted if it is too long: Python refuses thousands of digits, and is slow before.
    short = text.strip().isdecimal() and len(digits) <= len(str(most))
    if not short or not least <= int(digits) <= most:
        raise BallotError(f"{what} must be a whole number from {least} to {most}")
    return int(digits)


def cells(
    source: Iterator[str], delimiter: str, start: int = 0, *, blank: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line a record begins on, and its cells.

    Empty lines are left out, unless ``blank``: then one is a record with an empty cell.
    """
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        line = start + reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"line {line}: {error}") from None
        if blank or (record and (len(record) > 1 or record[0].strip())):
            yield line, record or [""]
