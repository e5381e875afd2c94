"""Tables as people have them: CSV and Parquet files, data frames, mappings, lists of records.

A sheet has a header and gives its rows in blocks of columns, so that a large file is never a list
of rows. Every message about a cell names the file, the line and the column. What a cell is,
:mod:`privote.votes.cells` decides from that cell alone; no type of a column matters.

Votes. A row is a ballot: columns ``query`` and ``voter``, then one column a label. Without the
column ``query`` there is one query, and a row is a voter; voters may be named in the column
``voter``, or in the first one under a head like ``name``. An empty cell is a missing vote.

Which queries and voters there are is public: a table has a row for each of them together, or public
lists name them, and a ballot without a row is missing. Without lists they come in the order of
their names, so the order of the rows says nothing.
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
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, PrivoteWarning, missing_extra, shown
from ..files import check_file, check_unpacked, why
from .cells import (
    ODD,
    VOTE_WORDS,
    YesNo,
    cell_of,
    is_number,
    is_several,
    name_in,
    name_of,
    number,
)
from .cube import MISSING, Ballots, Threshold, check_threshold
from .names import Names, folded, in_order

TABLES = (".csv", ".tsv", ".txt", ".tab", ".parquet")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
Block = tuple[list[int], list[Sequence[Any]]]  # where each row stands, and the columns

_ROWS, _CELLS = 1 << 16, 1 << 22  # of a block, at most
NO_HEADER = "the first line reads like a row, and must name the columns"
# What stands in rows and in no header: words for yes, no and a gap, dates, addresses.
_CELL = re.compile(
    r"yes|no|true|false|n/?a|nan|null|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?|\S+@\S+", re.I
)
Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]

_VOTE = f"must be a vote: {VOTE_WORDS} (missing)"
# The text of a cell must not decide what it is: it is private.
_PROBABILITIES = "; if these are probabilities, give `threshold` or `soft`"
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

    @abstractmethod
    def table(self) -> RawTable:
        """Return all rows, in memory."""

    def check_header(self, *, nameless: bool = False) -> None:
        """Refuse columns of one name, and without a name but for the first.

        With ``nameless``, of ballots, columns may lack one, and no name is quoted: a first line
        that is a ballot does not show as one.
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
        # In a list, numpy's nanoseconds would be integers.
        self.columns = {
            head: cells.astype("M8[us]").astype(object) if cells.dtype.kind == "M" else cells
            for head, cells in columns.items()
        }
        self.name, self.places, self.unit = name, places, unit
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

    def table(self) -> RawTable:
        """Return it as it is."""
        return self

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


def open_table(
    source: Any,
    what: str = "table",
    *,
    columns: Iterable[str] | None = None,
    public: bool = False,
    **reading: Any,
) -> Sheet:
    """Open a table: a file, a data frame, a mapping of columns or a list of records.

    Parameters
    ----------
    source
        A path that ends in one of :data:`TABLES`; a frame of pandas, polars or Arrow, of which only
        a named index counts as columns; a mapping; or records, which are mappings themselves.
    what
        Which argument it is, for messages.
    columns
        The columns of a list of records. They must be named: which keys occur is private.
    public
        The rows are public: a list of records then has all columns that occur in it.
    reading
        For :class:`CSVFile`.
    """
    if isinstance(source, Sheet):
        return source
    if is_path(source):
        file = check_file(source, what)
        suffix = file.suffix.casefold()
        if suffix not in TABLES:
            rule = f"a table must end in {', '.join(TABLES)}, got {file.name!r}"
            raise InputError(rule + as_csv(file.name))
        return _parquet_table(file) if suffix == ".parquet" else CSVFile(file, what, **reading)
    if is_frame(source):
        return _frame_table(source, what)
    if is_records(source):
        if columns is None and not public:
            rule = (
                "is a list of records, and its columns must be named: which keys occur is private"
            )
            raise InputError(what, rule)
        # Not by `name_of`, which refuses some: one record's key must change nothing.
        records = [{name_in(str(key).strip()): record[key] for key in record} for record in source]
        heads = dict.fromkeys(chain.from_iterable(records)) if columns is None else columns
        source = {name: [record.get(name) for record in records] for name in heads}
    if not isinstance(source, Mapping):
        raise InputError(
            what,
            "must be a CSV or Parquet file, a data frame, a mapping of columns or a list of "
            f"records, got {type(source).__name__}",
        )
    return _table_of(what, [(name_of(key), values) for key, values in source.items()])


def _table_of(name: str, columns: Iterable[tuple[str, Any]]) -> RawTable:
    """Return columns as a table, its rows numbered from 0."""
    table: dict[str, Cells] = {}
    for head, values in columns:
        if head in table:
            raise InputError(name, f"must not have two columns called {head!r:.60}")
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(name, f"must have a list of values in column {head!r:.60}")
        table[head] = np.fromiter(values, object, len(values))
    lengths = {len(values) for values in table.values()}
    if len(lengths) > 1:
        raise InputError(name, f"must have columns of one length, got {sorted(lengths)}")
    sheet = RawTable(name, table, np.arange(max(lengths, default=0)), "row")
    sheet.check_header()
    return sheet


def is_path(source: Any) -> bool:
    """Return whether this is a path."""
    return isinstance(source, str) or hasattr(source, "__fspath__")


def is_frame(value: Any) -> bool:
    """Return whether this is a data frame, whose ever: pandas', polars', Arrow's."""
    return hasattr(value, "columns") and any(
        hasattr(value, how) for how in ("iloc", "get_columns", "to_pydict")
    )


def is_records(value: Any) -> bool:
    """Return whether this is a list of records."""
    several = isinstance(value, Sequence) and bool(value) and not isinstance(value, str)
    return several and all(isinstance(record, Mapping) for record in value)


def _frame_table(frame: Any, name: str) -> RawTable:
    """Return a frame as a table, the columns of a named index first."""
    try:
        if hasattr(frame, "get_columns"):  # polars
            heads, columns = frame.columns, [column.to_list() for column in frame.get_columns()]
        elif hasattr(frame, "to_pydict"):  # Arrow, and not by numpy: a gap would make floats
            heads, columns = frame.column_names, [column.to_pylist() for column in frame.columns]
        else:
            if any(level is not None for level in frame.index.names):
                frame = frame.reset_index()
            heads = frame.columns
            columns = [frame.iloc[:, place].tolist() for place in range(len(heads))]
    except Exception as error:  # of a year beyond 9999, say
        raise _unreadable(name, error) from None
    return _table_of(name, zip(map(name_of, heads), columns, strict=True))


def _parquet_table(file: Path) -> RawTable:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    try:
        data = pq.ParquetFile(file, page_checksum_verification=True)
        sizes = data.metadata
        check_unpacked(file.name, file.stat().st_size, sizes.num_rows * sizes.num_columns * 8)
        table = data.read()
    except InputError:
        raise
    except Exception as error:  # whatever Arrow calls it
        raise _unreadable(file.name, error) from None
    return _frame_table(table, file.name)


def _unreadable(name: str, error: Exception) -> InputError:
    """Return a refusal in which the words of another library, who may quote a cell, are sealed."""
    said = why(error)
    return InputError(name, "is not a table that can be read", sealed=f"the library says: {said}")


def names_from(source: Any, axis: str, argument: str) -> tuple[str, ...]:
    """Return a public list of names: a sequence, a text file with one a line, or a table.

    Of a table counts the column called as the axis is, or its first one.
    """
    if not is_path(source):
        names = [name_of(name) for name in source]
    elif Path(source).suffix.casefold() in (".csv", ".tsv", ".parquet"):
        table = open_table(source, argument).table()
        column = axis if axis in table.columns else table.header[0]
        names = [name_of(cell) for cell in table.columns[column]]
    else:
        names = [line.strip() for line in lines(check_file(source, argument)) if line.strip()]
    if not names or not all(names) or len({folded(name) for name in names}) < len(names):
        raise InputError(argument, f"must have a name of its own for every {axis}")
    return tuple(names)


class CSVFile(Sheet):
    """A CSV file: separated by commas, semicolons or tabs, whichever its header has.

    With ``ballots``: where a ballot is all of a line, an empty line is an empty ballot (left out,
    the public number of voters would tell of it), and columns may have no name.
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
    return not any(_CELL.fullmatch(name.strip()) or is_number(name) for name in names)


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


def write_header(stream: TextIO, names: Iterable[str]) -> None:
    """Write the first line of a CSV file, so that readers here find these very names."""
    cells = [cell_of(name) for name in names]
    # Else the writer leaves a carriage return bare, and readers end the line there.
    odd = any("\r" in cell or "\n" in cell for cell in cells)
    made = csv.writer(
        stream, lineterminator="\n", quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
    )
    made.writerow(cells)


# -- votes -----------------------------------------------------------------------------------------


def of_sheet(
    sheet: Sheet,
    *,
    threshold: Threshold = None,
    resolution: int = 1,
    queries_from: Any = None,
    voters_from: Any = None,
) -> Ballots:
    """Return the votes of a sheet as checked ballots, with their names.

    They are probabilities where there is a ``threshold``, or a ``resolution`` above 1.
    ``queries_from`` and ``voters_from`` are public lists of who may be there, as
    :func:`names_from` takes them.
    """
    sheet.check_header()  # options of a poll may lack a name, and labels may not
    query_at, voter_at, labels = _columns(sheet)
    query, voter = _Axis("query", queries_from), _Axis("voter", voters_from)
    for axis, at in ((query, query_at), (voter, voter_at)):
        if axis.public and at is None:
            raise InputError(axis.argument, f"needs a column {axis.name!r} in {sheet.name}")
    soft = threshold is not None or resolution > 1
    places, votes = _read_rows(sheet, (query_at, query), (voter_at, voter), labels, soft)
    cube = _cube(sheet, query, voter, places, votes)
    if threshold is not None:
        bar = check_threshold(threshold, cube.shape[2])
        cube = np.where(np.isnan(cube), MISSING, cube >= bar).astype(np.int8)
    elif soft:
        cube = np.where(np.isnan(cube), MISSING, cube)
    # An empty cell could stand anywhere, so a neighbour's vote may be missing whether or not one is
    ballots = Ballots.from_array(cube, may_be_missing=True, resolution=resolution)
    names = Names(
        queries=tuple(query.names) or None,
        voters=tuple(voter.names) or None,
        labels=tuple(sheet.header[label] for label in labels),
    )
    return ballots.named(names, sheet.name)


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


class _Axis(dict[Any, int]):
    """Where names stand on an axis: as a public list has them, or in the order in which they come.

    A cell without a name is -1, and one that names nobody of the list is -2. Without a list names
    of queries are published as they are spelled, so one that is spelled otherwise is -3.
    """

    def __init__(self, name: str, public: Any) -> None:
        super().__init__()
        self.name, self.argument = name, "queries_from" if name == "query" else "voters_from"
        self.public, self._places = public is not None, dict[str, int]()
        self.names = list(names_from(public, name, self.argument) if self.public else ())
        for text in self.names:
            self._places[folded(text)] = len(self._places)

    def __missing__(self, cell: Any) -> int:
        name = name_of(cell)
        key = folded(name)
        if key and key not in self._places and not self.public:
            self._places[key] = len(self.names)
            self.names.append(name)
        place = self._places.get(key, -2) if key else -1
        if self.name == "query" and not self.public and place >= 0 and self.names[place] != name:
            place = -3
        if isinstance(cell, str | int):
            self[cell] = place
        return place

    def read(self, column: Any) -> Ints:
        """Return where the name in every cell stands."""
        try:
            return np.fromiter(map(self.__getitem__, column), np.int64, len(column))
        except TypeError:  # a list, which names nobody
            return np.array([-1 if is_several(cell) else self[cell] for cell in column], np.int64)

    def sort(self) -> Ints:
        """Sort the names, unless a list gave their order; return where each stands now."""
        before = self.names
        self.names = before if self.public else in_order(before)
        rank = {name: place for place, name in enumerate(self.names)}
        return np.array([rank[name] for name in before], np.int64)


def _read_rows(
    sheet: Sheet,
    queries: tuple[int | None, _Axis],
    voters: tuple[int | None, _Axis],
    labels: list[int],
    soft: bool,
) -> tuple[Ints, Cells]:
    """Return (line, query, voter) of every row and its votes; a missing probability is NaN."""
    says, parts, count = YesNo(), list[tuple[Ints, Cells]](), 0
    for lines_, columns in sheet.blocks():
        size = len(lines_)
        votes: Cells = np.empty((size, len(labels)), np.float64 if soft else np.int8)
        for at, label in enumerate(labels):
            votes[:, at] = _chances(columns[label]) if soft else says.read(columns[label])
            odd = np.flatnonzero(
                (votes[:, at] < 0) | (votes[:, at] > 1) if soft else votes[:, at] == ODD
            )
            if len(odd):
                raise _odd_cell(
                    sheet, lines_[odd[0]], sheet.header[label], columns[label][odd[0]], soft
                )
        rows = np.zeros(size, np.int64), np.arange(count, count + size)
        whose = [
            axis.read(columns[at]) if at is not None else row
            for (at, axis), row in zip((queries, voters), rows, strict=True)
        ]
        parts.append((np.stack([np.array(lines_, np.int64), *whose]), votes))
        count += size
    if not parts:
        raise BallotError(f"{sheet.name} has a header and no rows")
    places, votes_ = zip(*parts, strict=True)
    return np.concatenate(places, axis=1), np.concatenate(votes_)


def _cube(sheet: Sheet, query: _Axis, voter: _Axis, places: Ints, votes: Cells) -> Cells:
    """Return (queries, voters, labels): a missing vote is -1, a missing probability NaN."""
    sizes = []
    gaps = np.isnan(votes) if votes.dtype.kind == "f" else votes == MISSING
    blank = (places[1:] == -1).all(axis=0) & gaps.all(axis=1)  # no row, but a line of separators
    places, votes = places[:, ~blank], votes[~blank]
    if not len(votes):
        raise BallotError(f"{sheet.name} names no voter")
    for row, axis in ((1, query), (2, voter)):
        _refuse_nobody(sheet, axis, places, row)
        if axis.names:
            places[row] = axis.sort()[places[row]]
        sizes.append(len(axis.names) or int(places[row].max()) + 1)
    shape = sizes[0], sizes[1], votes.shape[1]
    check_unpacked(sheet.name, sheet.size, shape[0] * shape[1] * shape[2])
    _refuse_twice(sheet, places[1] * shape[1] + places[2], places[0])
    listed = voter.public and (query.public or not query.names)
    if places.shape[1] < shape[0] * shape[1] and not listed:
        needed = "queries_from" if voter.public else "voters_from"
        raise InputError(
            needed,
            f"must be given: {sheet.name} has no row for some query and voter, and which of them "
            "occur in ballots is private. Give public lists of all queries and all voters",
        )
    cube = np.full(shape, np.nan if votes.dtype == np.float64 else MISSING, votes.dtype)
    cube[places[1], places[2]] = votes
    return cube


def _refuse_nobody(sheet: Sheet, axis: _Axis, places: Ints, row: int) -> None:
    bad = np.flatnonzero(places[row] < 0)
    if len(bad):
        where = sheet.where(int(places[0][bad[0]]), axis.name)
        if places[row][bad[0]] == -1:
            raise BallotError(where, f"must name the {axis.name}, by one text or number")
        if places[row][bad[0]] == -3:
            rule = f"must spell the {axis.name} as all other rows do, or `{axis.argument}` must say"
            raise BallotError(where, f"{rule} how: names of queries are published")
        raise BallotError(where, f"must be in the list `{axis.argument}`")


def _refuse_twice(sheet: Sheet, key: Ints, lines_: Ints) -> None:
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(np.diff(key[order]) == 0)
    if len(same):
        first, second = lines_[order[same[0] : same[0] + 2]].tolist()
        raise BallotError(
            f"{sheet.where(first)} and {sheet.unit} {second}: a voter must cast one "
            "ballot on one query, and these two are by one voter on the same"
        )


def _chances(column: Sequence[Any]) -> npt.NDArray[np.float64]:
    return np.fromiter(map(chance, column), np.float64, len(column))


def chance(cell: Any) -> float:
    """Return a probability, NaN for a gap, and a number outside [0, 1] for anything else."""
    try:
        value = number(cell.replace(",", ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return -np.inf
    return np.nan if value is None or value == MISSING else value


def _odd_cell(sheet: Sheet, place: int, column: str, cell: Any, soft: bool) -> BallotError:
    where, sealed = sheet.where(place, column), f"the cell is {shown(cell)}"
    return BallotError(where, _CHANCE if soft else _VOTE + _PROBABILITIES, sealed=sealed)


def _misnamed(sheet: Sheet, rule: str) -> BallotError:
    names, sealed = columns_in_words(sheet.header)
    return BallotError(f"{sheet.name} {rule}: {names}", sealed=sealed)
