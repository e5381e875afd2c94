"""Sheets: tables as people have them, CSV files and data frames, with the place of every cell.

A sheet has a header and gives its rows in blocks of columns, so that a large file is never a list
of rows. Every message about a cell names the file, the line and the column. The cells of a CSV file
are texts; those of a data frame are whatever the frame holds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .arrayfiles import check_file
from .errors import InputError, MissingExtraError, shown

SUFFIXES = (".csv", ".tsv")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
Block = tuple[list[int], list[Sequence[Any]]]  # where each row stands, and the columns

# How a formula begins in one spreadsheet or another, in either width.
_FORMULAS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_ROWS = 1 << 16  # of a block
_YES, _NO = ("1", "yes", "true", "y", "1.0"), ("0", "no", "false", "n", "0.0")
_GAPS = ("", "-1", "-1.0", "na", "n/a", "nan", "null")
ODD = -9  # what is neither yes, no nor a gap
VOTE_WORDS = "1, 0, yes, no, true, false or empty"
NO_HEADER = "the first line reads like a row, and must name the columns"
# What stands in rows and in no header: words for yes, no and a gap, dates, addresses.
_CELL = re.compile(
    r"yes|no|true|false|n/?a|nan|null|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?|\S+@\S+", re.I
)


class Sheet:
    """A table with a header.

    Attributes
    ----------
    name
        What messages call it.
    header
        Names of the columns, all different.
    size
        Bytes it takes where it lies.
    """

    def __init__(
        self,
        name: str,
        header: Sequence[str],
        blocks: Callable[[], Iterator[Block]],
        *,
        unit: str,
        size: int,
    ) -> None:
        self.name, self.header, self.size = name, tuple(header), size
        self._blocks, self.unit = blocks, unit
        seen: dict[str, int] = {}
        for place, column in enumerate(self.header):
            if not column and place:
                raise InputError(f"{self.at(1)}: column {place + 1} has no name")
            if column in seen:
                both = f"{self.at(1)}: columns {seen[column] + 1} and {place + 1} are both called "
                if is_header(self.header):
                    raise InputError(f"{both}{column!r:.60}")
                raise InputError(
                    f"{both}the same; {NO_HEADER}", sealed=f"the name is {shown(column)}"
                )
            seen[column] = place

    def __repr__(self) -> str:
        return f"Sheet({self.name}, {len(self.header)} columns)"

    def at(self, place: int, column: str | None = None) -> str:
        """Return where a cell or a row is, in words."""
        row = f"{self.name}, {self.unit} {place}"
        return row if column is None else f"{row}, {called(self.header, column)}"

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks: where they stand, and their columns."""
        return self._blocks()


def open_sheet(source: Any, name: str = "table") -> Sheet:
    """Return a CSV file, a data frame, a mapping of columns or a list of records as a sheet."""
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return open_csv(source, name)
    if is_frame(source):
        return open_frame(source, name)
    if isinstance(source, Mapping):
        return of_columns(name, source)
    if isinstance(source, Sequence) and source and all(isinstance(r, Mapping) for r in source):
        header = list(dict.fromkeys(column for record in source for column in record))
        return of_columns(name, {key: [row.get(key) for row in source] for key in header})
    raise InputError(
        name,
        "must be a CSV file, a data frame, a mapping of columns or a list of records, got "
        f"{type(source).__name__}",
    )


def is_frame(value: Any) -> bool:
    """Return whether this is a data frame, whose ever: pandas', polars', Arrow's."""
    return hasattr(value, "columns") and any(
        hasattr(value, how) for how in ("iloc", "get_columns", "to_pydict", "to_pandas")
    )


def open_frame(frame: Any, name: str = "table") -> Sheet:
    """Return a data frame as a sheet; an index that says something comes first, as a column."""
    if hasattr(frame, "get_columns") and hasattr(frame, "to_dict"):
        return of_columns(name, frame.to_dict(as_series=False))  # polars
    if hasattr(frame, "to_pydict"):
        return of_columns(name, frame.to_pydict())  # Arrow
    if not hasattr(frame, "iloc"):
        try:
            frame = frame.to_pandas()
        except ImportError:
            raise MissingExtraError(
                f"{name}: reading a {type(frame).__name__} needs pandas: pip install pandas"
            ) from None
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns: dict[Any, Any] = {}
    if frame.index.dtype.kind not in "iu":
        columns[""] = frame.index.tolist()
    for place, column in enumerate(frame.columns):
        text = _text(column)
        if text in columns:
            raise InputError(f"{name}: two columns are called {text!r:.60}")
        columns[text] = frame.iloc[:, place].tolist()
    return of_columns(name, columns)


def of_columns(
    name: str, columns: Mapping[Any, Any], *, unit: str = "row", size: int | None = None
) -> Sheet:
    """Return columns of one length as a sheet; rows count from 0."""
    held = {_text(key): list(values) for key, values in columns.items()}
    lengths = {len(values) for values in held.values()}
    if len(lengths) > 1:
        raise InputError(name, f"must have columns of one length, got {sorted(lengths)}")
    rows = lengths.pop() if lengths else 0

    def blocks() -> Iterator[Block]:
        for start in range(0, rows, _ROWS):
            stop = min(start + _ROWS, rows)
            yield list(range(start, stop)), [column[start:stop] for column in held.values()]

    return Sheet(
        name, list(held), blocks, unit=unit, size=8 * rows * len(held) if size is None else size
    )


def open_csv(path: Any, what: str = "file") -> Sheet:
    """Open a CSV file: separated by commas, semicolons or tabs, whichever its header has."""
    file = check_file(path, what)
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline(1 << 20)
        separator = "\t" if file.suffix == ".tsv" else max(",;\t", key=first.count)
        with file.open(newline="", encoding="utf-8-sig") as stream:
            header = next(csv.reader(stream, delimiter=separator, strict=True), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(file, error, 1) from None
    if not any(cell.strip() for cell in header):
        raise InputError(f"{file.name}, line 1: must be a header with a name for every column")
    names = [name_in(cell.strip()) for cell in header]
    return Sheet(
        file.name,
        names,
        lambda: _csv_blocks(file, separator, len(names)),
        unit="line",
        size=file.stat().st_size,
    )


def _csv_blocks(file: Path, separator: str, width: int) -> Iterator[Block]:
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream, delimiter=separator, strict=True)
        try:
            next(reader)
            line, more = reader.line_num, True
            while more:
                lines: list[int] = []
                rows: list[list[str]] = []
                more = False
                for row in islice(reader, _ROWS):
                    more = True
                    if len(row) == width and (width > 1 or row[0].strip()):
                        lines.append(line + 1)
                        rows.append(row)
                    elif any(cell.strip() for cell in row):  # a blank line is no row
                        raise InputError(
                            f"{file.name}, line {line + 1}: {len(row)} values under a header of "
                            f"{width}"
                        )
                    line = reader.line_num
                if rows:
                    yield lines, list(zip(*rows, strict=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise _unreadable(file, error, reader.line_num) from None


def _unreadable(file: Path, error: Exception, line: int) -> InputError:
    """Return what goes wrong while a text is read as one sentence, with the line."""
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"{file.name}, line {_undecodable(file)}: must be text in UTF-8")
    if isinstance(error, csv.Error):
        return InputError(f"{file.name}, line {line}: cannot be read: {error}")
    return InputError(f"{file.name} cannot be read: {error}")


def _undecodable(file: Path) -> int:
    """Return the first line that is no UTF-8."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


# -- headers ---------------------------------------------------------------------------------------


def is_header(names: Iterable[str]) -> bool:
    """Return whether names may be quoted: none reads as a cell would, a number, a date or a yes.

    A file whose header is missing has a private row in its place.
    """
    return not any(_CELL.fullmatch(name.strip()) or _is_number(name) for name in names)


def called(header: Sequence[str], column: str) -> str:
    """Return what a message calls a column: by its name, unless that may be a private cell."""
    if column not in header or is_header(header):
        return f"column {column!r:.60}"
    return f"column {list(header).index(column) + 1}"


def as_csv(file: str) -> str:
    """Return what to do with a file of a spreadsheet program, for the end of a message."""
    return ": save the sheet as CSV first" if file.lower().endswith(_SPREADSHEETS) else ""


def columns_in_words(header: Iterable[str]) -> tuple[str, str | None]:
    """Return which columns there are, for a message: what it may say, and what is sealed."""
    names = list(header)
    few = ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if names[8:] else "")
    if len(names) == 1 and "|" in names[0]:
        few += "; columns must be separated by commas, semicolons or tabs"
    return (few, None) if is_header(names) else (f"{len(names)} others, but {NO_HEADER}", few)


# -- cells -----------------------------------------------------------------------------------------


class YesNo(dict[Any, int]):
    """What a cell says: 1, 0, -1 for a gap, :data:`ODD` for anything else. Ask it with ``[]``."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_YES, 1) | dict.fromkeys(_NO, 0) | dict.fromkeys(_GAPS, -1))
        self.update([(1, 1), (0, 0), (-1, -1), (None, -1)])  # True, 1.0 and 1 are one key

    def __missing__(self, cell: Any) -> int:
        if is_gap(cell):
            return -1
        if not isinstance(cell, str):
            return ODD
        found = super().get(cell.strip().lower(), ODD)
        if found != ODD and len(self) < 1000:  # the next "Yes" is as fast as "yes"
            self[cell] = found
        return found


def is_gap(cell: Any) -> bool:
    """Return whether nothing stands in a cell: empty, None, NaN, pandas' NA and NaT."""
    if isinstance(cell, str):
        return cell.strip().lower() in ("", "na", "n/a", "nan", "null")
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and cell != cell


def name_of(cell: Any) -> str:
    """Return a cell as a name, without blanks around it; "" if nothing stands there."""
    if isinstance(cell, str):
        return name_in(cell.strip())
    if is_gap(cell):
        return ""
    return _text(cell)


def _text(value: Any) -> str:
    """Return a value as text; a whole number that a frame made a float is written as one."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return name_in(str(value).strip()) if isinstance(value, str) else str(value)


def cell_of(name: str) -> str:
    """Return a name as a cell of a CSV file that no spreadsheet takes for a formula.

    One that begins as a formula gets an apostrophe in front; :func:`name_in` takes it away again.
    A plain number stays what it is.
    """
    begins = name.lstrip("'")[:1]
    if not begins or begins not in _FORMULAS or _is_number(name):
        return name
    return f"'{name}"


def name_in(cell: str) -> str:
    """Return the name that :func:`cell_of` made this cell of."""
    begins = cell.lstrip("'")[:1]
    return cell[1:] if cell.startswith("'") and begins and begins in _FORMULAS else cell


def write_header(stream: TextIO, names: Iterable[str]) -> None:
    """Write the first line of a CSV file, so that readers here find these very names."""
    cells = [cell_of(name) for name in names]
    # Else the writer leaves a carriage return bare, and readers end the line there.
    odd = any("\r" in cell or "\n" in cell for cell in cells)
    made = csv.writer(
        stream, lineterminator="\n", quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
    )
    made.writerow(cells)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
