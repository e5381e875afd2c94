"""Tables as people have them, CSV files and data frames, and the votes in them.

A sheet has a header and gives its rows in blocks of columns, so that a large file is never a list
of rows. Every message about a cell names the file, the line and the column. The cells of a CSV file
are texts; those of a data frame are whatever the frame holds.

Votes. A row is a ballot: columns ``query`` and ``voter``, then one column a label. Without the
column ``query`` there is one query, and a row is a voter; voters may be named in the column
``voter``, or in the first one under a head like ``name``. An empty cell is a missing vote, and so
is a ballot without a row.

Queries and voters come in the order of their names, so the order of the rows says nothing. Which
queries there are is public: one that only one voter names would tell what this voter said, and is
refused unless a row without a voter lists it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, PrivoteWarning, shown
from ..files import check_file, check_unpacked
from .cube import MISSING, Ballots, Threshold, check_threshold
from .names import Names, in_order

_SPREADSHEETS = (".xlsx", ".xls", ".ods")
Block = tuple[list[int], list[Sequence[Any]]]  # where each row stands, and the columns

# How a formula begins in one spreadsheet or another, in either width.
_FORMULAS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_ROWS, _CELLS = 1 << 16, 1 << 22  # of a block, at most
_WORDS = {
    1: ("1", "yes", "true", "y", "1.0"),
    0: ("0", "no", "false", "n", "0.0"),
    -1: ("", "-1", "-1.0", "na", "n/a", "nan", "null"),
}
# What people mark votes with; in a feature these may mean anything.
_TICKS = {1: ("x", "t", "\u2713", "\u2714"), 0: ("f",), -1: ("-", "none")}
ODD = -9  # what is neither yes, no nor a gap
VOTE_WORDS = "1, 0, yes, no, true, false or empty"
NO_HEADER = "the first line reads like a row, and must name the columns"
# What stands in rows and in no header: words for yes, no and a gap, dates, addresses.
_CELL = re.compile(
    r"yes|no|true|false|n/?a|nan|null|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?|\S+@\S+", re.I
)
Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]

_VOTE = f"must be a vote: {VOTE_WORDS} (missing)"
# The text of a cell must not decide what it is: it is private.
_PROBABILITIES = (
    "; if these are probabilities, give `threshold`, or save them as floats in a .npy, .npz, Zarr "
    "or Parquet file, where they count as they are"
)
_CHANCE = "must be a probability from 0 to 1, or empty (missing)"
# How people head columns of queries and voters where they do not call them that.
_NO_LABEL = re.compile(r"(query|queries|voters?)([ _-]?(id|name|index|number))?s?")
# How people head the first column where a row is a voter, and it names them.
_HEADS = ("", "voter", "voters", "name", "id", "person", "teacher", "participant", "respondent")


class Sheet(ABC):
    """A table with a header, read in blocks: a CSV file, or a :class:`RawTable`.

    Attributes
    ----------
    name
        What messages call it.
    header
        Names of the columns.
    unit
        What a place counts: "line" or "row".
    size
        Bytes it takes where it lies.
    """

    name: str
    header: tuple[str, ...]
    unit: str
    size: int

    def where(self, place: int, column: str | None = None) -> str:
        """Return where a cell or a row is, in words."""
        row = f"{self.name}, {self.unit} {place}"
        return row if column is None else f"{row}, {called(self.header, column)}"

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks: where they stand, and their columns."""

    def check_header(self, *, nameless: bool = False) -> None:
        """Refuse columns of one name, and without a name but for the first.

        With ``nameless``, of a poll, columns may lack one, and no name is quoted: a first line that
        is a ballot does not show as one.
        """
        seen: dict[str, int] = {}
        for place, column in enumerate(self.header):
            if not column and place and not nameless:
                raise InputError(f"{self.where(1)}: column {place + 1} has no name")
            if column in seen and column:
                both = f"{self.where(1)}: columns {seen[column] + 1} and {place + 1} are both "
                if is_header(self.header) and not nameless:
                    raise InputError(f"{both}called {column!r:.60}")
                raise InputError(
                    f"{both}called the same; {NO_HEADER}", sealed=f"the name is {shown(column)}"
                )
            seen[column] = place


class RawTable(Sheet):
    """Rows with columns as people have them, in memory: numbers, words, dates, texts, gaps.

    Attributes
    ----------
    name
        What messages call it: a file, as a rule.
    columns
        Each (records,): texts as they stand in a file, or whatever a data frame holds.
    places
        (records,) where each row stands: the line of a file, or the row of a frame.
    unit
        "line" or "row".
    """

    def __init__(
        self, name: str, columns: Mapping[str, Cells], places: Ints, unit: str = "line"
    ) -> None:
        self.name, self.columns, self.places, self.unit = name, columns, places, unit
        self.header, self.size = tuple(columns), 8 * len(places) * len(columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(records, columns)."""
        return len(self.places), len(self.columns)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: Any) -> RawTable:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return RawTable(self.name, columns, self.places[rows], self.unit)

    take = __getitem__

    def at(self, row: int, column: str) -> str:
        """Return where a cell is, in words."""
        return self.where(self.places[row], column)

    def only(self, names: Sequence[str]) -> RawTable:
        """Return the table with these columns, in this order."""
        for name in names:
            if name not in self.columns:
                said, sealed = columns_in_words(self.columns)
                raise InputError(
                    f"{self.name} has no {called([*names], name)}; it has {said}", sealed=sealed
                )
        columns = {name: self.columns[name] for name in names}
        return RawTable(self.name, columns, self.places, self.unit)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks."""
        for start in range(0, len(self), _ROWS):
            part = self[start : start + _ROWS]
            yield part.places.tolist(), [column.tolist() for column in part.columns.values()]


def open_sheet(source: Any, name: str = "table") -> RawTable:
    """Return a data frame, a mapping of columns or a list of records as a table; rows from 0."""
    if is_frame(source):
        source = _frame_columns(source, name)
    elif isinstance(source, Sequence) and source and all(isinstance(r, Mapping) for r in source):
        header = dict.fromkeys(column for record in source for column in record)
        source = {key: [row.get(key) for row in source] for key in header}
    if not isinstance(source, Mapping):
        raise InputError(
            name,
            "must be a CSV file, a data frame, a mapping of columns or a list of records, got "
            f"{type(source).__name__}",
        )
    columns = {name_of(key): np.fromiter(values, object) for key, values in source.items()}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InputError(name, f"must have columns of one length, got {sorted(lengths)}")
    table = RawTable(name, columns, np.arange(max(lengths, default=0)), "row")
    table.check_header()
    return table


def is_frame(value: Any) -> bool:
    """Return whether this is a data frame, whose ever: pandas', polars', Arrow's."""
    return hasattr(value, "columns") and any(
        hasattr(value, how) for how in ("iloc", "get_columns", "to_pydict")
    )


def _frame_columns(frame: Any, name: str) -> Mapping[Any, Any]:
    """Return a frame's columns; an index that says something comes first."""
    if hasattr(frame, "get_columns") and hasattr(frame, "to_dict"):
        return dict(frame.to_dict(as_series=False))  # polars
    if hasattr(frame, "to_pydict"):
        return dict(frame.to_pydict())  # Arrow
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns: dict[Any, Any] = {}
    if frame.index.dtype.kind not in "iu":
        columns[""] = frame.index.tolist()
    for place, column in enumerate(frame.columns):
        text = name_of(column)
        if text in columns:
            raise InputError(f"{name}: two columns are called {text!r:.60}")
        columns[text] = frame.iloc[:, place].tolist()
    return columns


class CSVFile(Sheet):
    """A CSV file: separated by commas, semicolons or tabs, whichever its header has.

    With ``ballots``, of a poll: where a ballot is all of a line, an empty line is an empty ballot
    (left out, the public number of voters would tell of it), and columns may have no name.
    """

    unit = "line"

    def __init__(
        self,
        path: Any,
        what: str = "file",
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        ballots: bool = False,
    ) -> None:
        file = check_file(path, what)
        self._file, self._encoding, self._ballots = file, encoding, ballots
        self.name, self.size, self.header = file.name, file.stat().st_size, ()
        self._delimiter = delimiter or (
            "\t" if file.suffix == ".tsv" else delimiter_of(next(lines(file, encoding), ""))
        )
        header, _ = self._records()
        if not header:
            raise InputError(f"{file.name}, line 1: must be a header with a name for every column")
        self.header = tuple(name_in(cell.strip()) for cell in header)
        self.check_header(nameless=ballots)

    def _records(self) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
        """Return the header, none if the file is empty, and the rows below it."""
        blank = self._ballots and len(self.header) == 1
        source = lines(self._file, self._encoding)
        records = cells(source, self._delimiter, self.name, blank=blank)
        return next((row for _, row in records if any(map(str.strip, row))), []), records

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks."""
        _, records = self._records()
        width = len(self.header)
        while block := list(islice(records, max(1, min(_ROWS, _CELLS // width)))):
            # A line of blanks is no row, however many of them it has.
            rows = [(at, row) for at, row in block if len(row) == width or any(map(str.strip, row))]
            for at, row in rows:
                if len(row) != width:
                    raise InputError(
                        f"{self.where(at)}: {len(row)} values under a header of {width}"
                    )
            if rows:
                yield [at for at, _ in rows], list(zip(*(row for _, row in rows), strict=True))

    def table(self) -> RawTable:
        """Read all of it."""
        blocks = list(self.blocks())
        places = np.array([place for part, _ in blocks for place in part], np.int64)
        parts = ([columns[at] for _, columns in blocks] for at in range(len(self.header)))
        columns = [np.fromiter(chain.from_iterable(part), object) for part in parts]
        return RawTable(self.name, dict(zip(self.header, columns, strict=True)), places)


# -- texts -----------------------------------------------------------------------------------------


def lines(path: Path, encoding: str | None = None, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a text file, which may be packed (``.gz``).

    Its letters are stored as ``encoding`` says, as the file's own mark does, or as UTF-8.
    """
    name = ""
    try:
        name = _encoding(path, encoding)
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding=name, errors=errors, newline=""
        ) as stream:
            yield from stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is cut short or not gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeError:
        raise InputError(
            f"{path.name} must be text in {name.removesuffix('-sig').upper()}; save it as UTF-8 or "
            "name its `encoding` where that can be said, e.g. cp1252"
        ) from None


def _encoding(path: Path, encoding: str | None) -> str:
    if encoding is not None:
        try:
            "a".encode(encoding)
        except (LookupError, ValueError):  # also what Python knows, but not for text
            rule = "must be one that Python knows, e.g. cp1252"
            raise InputError("encoding", rule, encoding) from None
        return encoding
    with path.open("rb") as stream:
        marked = stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if marked else "utf-8-sig"


def delimiter_of(header: str) -> str:
    """Return what separates the cells of a header, outside of quotes; a tab if nothing does."""
    plain = "".join(header.split('"')[::2])
    return max("\t;,", key=plain.count)


def cells(
    source: Iterator[str], delimiter: str, name: str = "", *, blank: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line a record begins on, and its cells.

    Empty lines are left out, unless ``blank``: then one is a record with an empty cell. ``name`` is
    the file's, for messages.
    """
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = f"{name}, line {line}" if name else f"line {line}"
            raise InputError(f"{where}: cannot be read: {error}") from None
        if blank or (record and (len(record) > 1 or record[0].strip())):
            yield line, record or [""]


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
    """What a cell says: 1, 0, -1 for a gap, :data:`ODD` for anything else. Ask it with ``[]``.

    ``ticks`` is False for a feature, in which an x need not be a yes.
    """

    def __init__(self, *, ticks: bool = True) -> None:
        super().__init__()
        for words in (_WORDS, _TICKS) if ticks else (_WORDS,):
            self.update({word: said for said, spelled in words.items() for word in spelled})
        self.update([(1, 1), (0, 0), (-1, -1), (None, -1)])  # True, 1.0 and 1 are one key

    def __missing__(self, cell: Any) -> int:
        if is_gap(cell):
            return -1
        if not isinstance(cell, str):
            return ODD
        said = super().get(cell.strip().lower(), ODD)
        if said != ODD and len(self) < 1000:  # the next "Yes" is as fast as "yes"
            self[cell] = said
        return said

    def read(self, column: Sequence[Any]) -> npt.NDArray[np.int8]:
        """Return what every cell of a column says."""
        try:
            return np.fromiter(map(self.__getitem__, column), np.int8, len(column))
        except TypeError:  # a list, or something else that is no cell
            return np.array([self[c] if c.__hash__ else ODD for c in column], np.int8)


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
    # A whole number that a frame made a float is written as one.
    whole = isinstance(cell, float | np.floating) and float(cell).is_integer()
    return str(int(cell) if whole else cell)


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


# -- votes -----------------------------------------------------------------------------------------


def of_sheet(sheet: Sheet, threshold: Threshold = None, steps: int = 1) -> Ballots:
    """Return the votes of a sheet as checked ballots, with their names.

    They are probabilities where there is a ``threshold``, or more than one of ``steps``.
    """
    soft = threshold is not None or steps > 1
    votes, names = _Rows.of(sheet, soft).cube()
    if threshold is not None:
        bar = check_threshold(threshold, votes.shape[2])
        votes = np.where(np.isnan(votes), MISSING, votes >= bar).astype(np.int8)
    elif steps > 1:
        votes = np.where(np.isnan(votes), MISSING, votes)
    # An empty cell could stand anywhere, so a neighbour's vote may be missing whether or not one is
    made = Ballots.from_array(votes, may_be_missing=True, steps=steps)
    return made.named(names, sheet.name)


def _columns(sheet: Sheet) -> tuple[int | None, int | None, list[int]]:
    """Return the columns of queries and of voters, None for one that is not there, and of labels.

    Where a row is a voter, the first column may name voters under another head.
    """
    header = [name.lower() for name in sheet.header]
    query, voter = (header.index(name) if name in header else None for name in ("query", "voter"))
    if query is None and voter is None and len(header) > 1 and header[0] in _HEADS:
        voter = 0
    if query is not None and voter is None:
        raise _misnamed(sheet, "has a column 'query' and must then have a column 'voter'; it has")
    if voter is not None and "label" in header:
        raise _misnamed(sheet, "must have one column a label, and none called 'label'; it has")
    places = [place for place in range(len(header)) if place not in (query, voter)]
    if not places:
        raise _misnamed(sheet, "must have one column a label, it has")
    if any(_NO_LABEL.fullmatch(header[place]) for place in places):
        # Taken for a label, every row would be another voter, and one voter have several.
        raise _misnamed(sheet, "must call its columns of queries and voters so; it has")
    says, labels = YesNo(), [sheet.header[place] for place in places]
    if sheet.unit == "line" and all(says[n] != ODD and not is_header([n]) for n in labels):
        warnings.warn(
            f"{sheet.name}: the first line is taken for a header, and reads like a ballot: it "
            "must name the labels",
            PrivoteWarning,
            stacklevel=2,
        )
    return query, voter, places


class _Index(dict[Any, int]):
    """Names in the order in which they come, as numbers; a cell without a name is -1."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, int] = {}

    def __missing__(self, cell: Any) -> int:
        name = name_of(cell)
        found = self.names.setdefault(name, len(self.names)) if name else -1
        if isinstance(cell, str | int):
            self[cell] = found
        return found

    def read(self, column: Any) -> Ints:
        """Return the number of every cell's name."""
        return np.fromiter(map(self.__getitem__, column), np.int64, len(column))


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows of a sheet as numbers: where they stand, whose they are, what they say."""

    sheet: Sheet
    places: Ints
    queries: tuple[Ints, list[str] | None]  # the names are None where no column has them
    voters: tuple[Ints, list[str] | None]
    labels: list[str]
    votes: Cells  # (rows, labels)

    @classmethod
    def of(cls, sheet: Sheet, soft: bool) -> _Rows:
        query_at, voter_at, labels = _columns(sheet)
        query, voter, says = _Index(), _Index(), YesNo()
        parts: list[tuple[Any, ...]] = []
        for places, columns in sheet.blocks():
            size = len(places)
            votes: Cells = np.empty((size, len(labels)), np.float64 if soft else np.int8)
            for at, label in enumerate(labels):
                column = columns[label]
                if soft:
                    votes[:, at] = np.fromiter(map(_chance, column), np.float64, size)
                    odd = (votes[:, at] < 0) | (votes[:, at] > 1)
                else:
                    votes[:, at] = says.read(column)
                    odd = votes[:, at] == ODD
                if odd.any():
                    row = int(np.flatnonzero(odd)[0])
                    raise _odd_cell(sheet, places[row], sheet.header[label], column[row], soft)
            whose = np.zeros(size, np.int64), np.arange(size) + sum(len(part[0]) for part in parts)
            parts.append(
                (
                    np.array(places, np.int64),
                    whose[0] if query_at is None else query.read(columns[query_at]),
                    whose[1] if voter_at is None else voter.read(columns[voter_at]),
                    votes,
                )
            )
        if not parts:
            raise BallotError(f"{sheet.name} has a header and no rows")
        held = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(
            sheet,
            held[0],
            (held[1], None if query_at is None else list(query.names)),
            (held[2], None if voter_at is None else list(voter.names)),
            [sheet.header[label] for label in labels],
            held[3],
        )

    def cube(self) -> tuple[Cells, Names]:
        """Return (queries, voters, labels), and the names along the axes.

        A missing vote is -1, a missing probability NaN.
        """
        missing = np.nan if self.votes.dtype == np.float64 else MISSING
        gaps = np.isnan(self.votes) if self.votes.dtype == np.float64 else self.votes == MISSING
        # Rows without a voter are no ballots: they list queries.
        cast = self.voters[0] >= 0
        self._refuse(~cast & ~gaps.all(axis=1), "voter", "must name the voter of these votes")
        self._refuse(cast & (self.queries[0] < 0), "query", "must name the query")
        if not cast.any():
            raise BallotError(f"{self.sheet.name} names no voter")
        self._refuse_alone(cast)
        query, queries = _ordered(self.queries, cast)
        voter, voters = _ordered(self.voters, cast)
        shape = int(query.max()) + 1, int(voter.max()) + 1, len(self.labels)
        check_unpacked(self.sheet.name, self.sheet.size, shape[0] * shape[1] * shape[2])
        query, voter = query[cast], voter[cast]
        self._refuse_twice(query * shape[1] + voter, self.places[cast])
        cube = np.full(shape, missing, self.votes.dtype)
        cube[query, voter] = self.votes[cast]
        return cube, Names(queries=queries, voters=voters, labels=tuple(self.labels))

    def _refuse(self, bad: npt.NDArray[np.bool_], column: str, rule: str) -> None:
        if bad.any():
            place = int(self.places[np.flatnonzero(bad)[0]])
            raise BallotError(self.sheet.where(place, column), f"{rule}, and is empty")

    def _refuse_alone(self, cast: npt.NDArray[np.bool_]) -> None:
        """Refuse a query that exists because of one voter only."""
        numbers, names = self.queries
        voters = int(self.voters[0].max()) + 1
        if names is None or voters < 2:
            return
        pairs = np.unique(numbers[cast] * voters + self.voters[0][cast])
        count = np.bincount(pairs // voters, minlength=len(names))
        count[numbers[~cast & (numbers >= 0)]] = 0
        for number in np.flatnonzero(count == 1)[:1].tolist():
            row = int(np.flatnonzero(numbers == number)[0])
            raise BallotError(
                self.sheet.where(int(self.places[row]), "query"),
                "must be named by two voters or more, and this one is by one: the list of them "
                "would tell what this voter said. If it is public, list it in a row of its own, "
                "without a voter and a vote",
                sealed=f"it is {shown(names[number])}",
            )

    def _refuse_twice(self, key: Ints, places: Ints) -> None:
        order = np.argsort(key, kind="stable")
        same = np.flatnonzero(np.diff(key[order]) == 0)
        if len(same):
            first, second = places[order[same[0] : same[0] + 2]].tolist()
            raise BallotError(
                f"{self.sheet.where(first)} and {self.sheet.unit} {second}: a voter must cast one "
                "ballot on one query, and these two are by one voter on the same"
            )


def _ordered(
    column: tuple[Ints, list[str] | None], cast: npt.NDArray[np.bool_]
) -> tuple[Ints, tuple[str, ...] | None]:
    """Return rows and names in order: first what rows without a voter list, then by name."""
    numbers, names = column
    if names is None:
        return numbers, None
    listed = [names[n] for n in dict.fromkeys(numbers[~cast & (numbers >= 0)].tolist())]
    order = [*listed, *in_order(set(names) - set(listed))]
    rank = {name: place for place, name in enumerate(order)}
    place = np.array([*(rank[name] for name in names), -1], np.int64)  # the last is for no name
    return place[numbers], tuple(order)


def _chance(cell: Any) -> float:
    """Return a probability, NaN for a gap, and a number outside [0, 1] for anything else."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        text = cell.strip().replace(",", ".") if isinstance(cell, str) else ""
        if is_gap(cell):
            return float("nan")
        return float(text) if text.replace(".", "", 1).isdigit() else -np.inf
    return -np.inf if isinstance(cell, str) and "_" in cell else number


def _odd_cell(sheet: Sheet, place: int, column: str, cell: Any, soft: bool) -> BallotError:
    where, sealed = sheet.where(place, column), f"the cell is {shown(cell)}"
    if soft:
        return BallotError(where, _CHANCE, sealed=sealed)
    hint = _PROBABILITIES if 0 <= _chance(cell) <= 1 else ""
    return BallotError(where, _VOTE + hint, sealed=sealed)


def _misnamed(sheet: Sheet, rule: str) -> BallotError:
    said, sealed = columns_in_words(sheet.header)
    return BallotError(f"{sheet.name} {rule}: {said}", sealed=sealed)
