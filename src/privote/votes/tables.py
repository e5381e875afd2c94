"""Tables as people have them: CSV and Parquet files, data frames, mappings, lists of records.

Every message about a cell names the file, the line and the column. What a cell is,
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
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, Unpack

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, missing_extra, shown
from ..files import check_file, check_unpacked, why
from .cells import (
    ODD,
    VOTE_WORDS,
    YesNo,
    cell_of,
    is_gap,
    is_number,
    is_several,
    name_in,
    name_of,
    number,
)
from .cube import MISSING, Ballots, Reading
from .names import folded, in_order

TABLES = (".csv", ".tsv", ".txt", ".tab", ".parquet")
_SPREADSHEETS = (".xlsx", ".xls", ".ods")

NO_HEADER = "the first line reads like a row, and must name the columns"
# What stands in rows and in no header: words for yes, no and a gap, dates, addresses.
_CELL = re.compile(
    r"yes|no|true|false|n/?a|nan|null|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?|\S+@\S+", re.I
)
Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]

# The text of a cell must not decide what it is: it is private.
_VOTE = f"must be a vote: {VOTE_WORDS} (missing)"
_VOTE += "; if these are probabilities, give `threshold` or `soft`"
_CHANCE = "must be a probability from 0 to 1, or empty (missing)"
# How people head columns of queries and voters where they do not call them that.
_NO_LABEL = re.compile(r"(query|queries|voters?)([ _-]?(id|name|index|number))?s?")
# How people head the first column where a row is a voter, and it names them.
_HEADS = ("", "voter", "voters", "name", "id", "person", "teacher", "participant", "respondent")


class RawTable:
    """A table as people have it: a header, and rows of numbers, words, dates, texts and gaps.

    Attributes
    ----------
    name
        What messages call it: a file, as a rule.
    header
        Names of the columns, in order.
    cells, columns
        The columns in order, and by name; each (records,): texts as they stand in a file, or
        whatever a data frame holds.
    places
        (records,) where each row stands: the line of a file, or the row of a frame.
    unit
        What a place counts: "line" or "row".
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, Cells] | Sequence[tuple[str, Cells]],
        places: Ints,
        unit: str = "line",
    ) -> None:
        pairs = [*(columns.items() if isinstance(columns, Mapping) else columns)]
        self.name, self.places, self.unit = name, places, unit
        self.header: tuple[str, ...] = tuple(head for head, _ in pairs)
        # In a list, numpy's nanoseconds would be integers.
        self.cells = [
            cells.astype("M8[us]").astype(object) if cells.dtype.kind == "M" else cells
            for _, cells in pairs
        ]
        self.columns: dict[str, Cells] = dict(zip(self.header, self.cells, strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """(records, columns)."""
        return len(self.places), len(self.header)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: Any) -> RawTable:
        columns = [(head, c[rows]) for head, c in zip(self.header, self.cells, strict=True)]
        return RawTable(self.name, columns, self.places[rows], self.unit)

    take = __getitem__

    def at(self, row: int, column: str | None = None) -> str:
        """Return where the row of this number is, or a cell of it, in words."""
        place = f"{self.name}, {self.unit} {self.places[row]}"
        return place if column is None else f"{place}, {called(self.header, column)}"

    def only(self, names: Sequence[str]) -> RawTable:
        """Return the table with these columns, in this order."""
        for name in names:
            if name not in self.columns:
                heads, sealed = columns_in_words(self.columns)
                rule = f"{self.name} has no {called([*names], name)}; it has {heads}"
                raise InputError(rule, sealed=sealed)
        columns = {name: self.columns[name] for name in names}
        return RawTable(self.name, columns, self.places, self.unit)

    def values(
        self,
        columns: Iterable[int | str],
        read: Callable[[Sequence[Any]], Cells],
        rule: str,
        error: type[InputError] = InputError,
        *,
        odd: float = ODD,
    ) -> Cells:
        """Return columns (records, columns) as ``read`` has each of them.

        The first cell that it returns as ``odd`` is refused: it breaks the ``rule``.
        """
        parts = [np.zeros((len(self), 0), np.int8)]
        for column in columns:
            place = column if isinstance(column, int) else self.header.index(column)
            cells = self.cells[place].tolist()
            parts.append(np.reshape(read(cells), (-1, 1)))
            rows = np.flatnonzero(parts[-1] == odd)
            if len(rows):
                where, cell = self.at(rows[0], self.header[place]), cells[rows[0]]
                raise error(where, rule, sealed=f"the cell is {shown(cell)}")
        return np.concatenate(parts, axis=1)

    def check_header(self, *, nameless: bool = False) -> None:
        """Refuse columns of one name, and without a name but for the first.

        With ``nameless``, of ballots, columns may lack one. No name is quoted: a first line may be
        a row in truth.
        """
        places: dict[str, int] = {}
        where = f"{self.name}, line 1:" if self.unit == "line" else self.name
        for place, head in enumerate(self.header, 1):
            first = places.setdefault(head, place)
            if not head and place > 1 and not nameless:
                raise InputError(where, f"column {place} has no name")
            if head and first < place:
                rule = f"columns {first} and {place} must not have the same name"
                raise InputError(where, rule, sealed=f"it is {shown(head)}")


def open_table(
    source: Any,
    what: str = "table",
    *,
    columns: Iterable[str] | None = None,
    public: bool = False,
    encoding: str | None = None,
    ballots: bool = False,
) -> RawTable:
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
    encoding
        How a CSV file's letters are stored; by default as its own mark says, or UTF-8.
    ballots
        Of a CSV file: where a ballot is all of a line, an empty line is an empty ballot (left out,
        the public number of voters would tell of it), and columns may have no name.
    """
    if isinstance(source, RawTable):
        return source
    if is_path(source):
        file = check_file(source, what)
        suffix = file.suffix.casefold()
        if suffix not in TABLES:
            rule = f"a table must end in {', '.join(TABLES)}, got {file.name!r}"
            raise InputError(rule + as_csv(file.name))
        return _parquet_table(file) if suffix == ".parquet" else _csv(file, encoding, ballots)
    if is_frame(source):
        return _frame_table(source, what)
    if is_records(source):
        if columns is None and not public:
            rule = "is a list of records; name its columns, as which keys occur is private"
            raise InputError(what, rule)
        # Not by `name_of`, which refuses some: one record's key must change nothing.
        records = [{name_in(str(key).strip()): record[key] for key in record} for record in source]
        heads = dict.fromkeys(chain.from_iterable(records)) if columns is None else columns
        source = {name: [record.get(name) for record in records] for name in heads}
    if not isinstance(source, Mapping):
        forms = "a CSV or Parquet file, a data frame, a mapping of columns or a list of records"
        raise InputError(what, f"must be {forms}, got {type(source).__name__}")
    return _table_of(what, [(name_of(key), values) for key, values in source.items()])


def _table_of(name: str, columns: Iterable[tuple[str, Any]]) -> RawTable:
    """Return columns as a table, its rows numbered from 0."""
    pairs = []
    for head, values in columns:
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(name, f"must have a list of values in column {head!r:.60}")
        pairs.append((head, np.fromiter(values, object, len(values))))
    lengths = {len(cells) for _, cells in pairs}
    if len(lengths) > 1:
        raise InputError(name, f"must have columns of one length, got {sorted(lengths)}")
    table = RawTable(name, pairs, np.arange(max(lengths, default=0)), "row")
    table.check_header()
    return table


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
    with _sealing(name):  # of a year beyond 9999, say
        if hasattr(frame, "get_columns"):  # polars
            heads, columns = frame.columns, [column.to_list() for column in frame.get_columns()]
        elif hasattr(frame, "to_pydict"):  # Arrow, and not by numpy: a gap would make floats
            heads, columns = frame.column_names, [column.to_pylist() for column in frame.columns]
        else:
            if any(level is not None for level in frame.index.names):
                frame = frame.reset_index()
            heads = frame.columns
            columns = [frame.iloc[:, place].tolist() for place in range(len(heads))]
    return _table_of(name, zip(map(name_of, heads), columns, strict=True))


def _parquet_table(file: Path) -> RawTable:
    with _sealing(file.name):
        import pyarrow.parquet as pq

        data = pq.ParquetFile(file, page_checksum_verification=True)
        sizes = data.metadata
        check_unpacked(file.name, file.stat().st_size, sizes.num_rows * sizes.num_columns * 8)
        return _frame_table(data.read(), file.name)


@contextmanager
def _sealing(name: str) -> Iterator[None]:
    """Seal what another library says of a table: it may quote a cell."""
    try:
        yield
    except InputError:
        raise
    except ImportError:
        raise missing_extra("files", "reading Parquet") from None
    except Exception as error:
        sealed = f"the library says: {why(error)}"
        raise InputError(name, "is not a table that can be read", sealed=sealed) from None


def names_from(source: Any, axis: str, argument: str) -> tuple[str, ...]:
    """Return a public list of names: a sequence, a text file with one a line, or a table.

    Of a table counts the column called as the axis is, or its first one.
    """
    if not is_path(source):
        names = [name_of(name) for name in source]
    elif Path(source).suffix.casefold() in (".csv", ".tsv", ".parquet"):
        table = open_table(source, argument)
        column = axis if axis in table.columns else table.header[0]
        names = [name_of(cell) for cell in table.columns[column]]
    else:
        names = [line.strip() for line in lines(check_file(source, argument)) if line.strip()]
    if not names or not all(names) or len({folded(name) for name in names}) < len(names):
        raise InputError(argument, f"must have a name of its own for every {axis}")
    return tuple(names)


def _csv(file: Path, encoding: str | None, ballots: bool) -> RawTable:
    """Read a CSV file: separated by commas, semicolons or tabs, whichever its header has."""
    first = next(lines(file, encoding), "")
    delimiter = "\t" if file.suffix == ".tsv" else delimiter_of(first)
    records = cells(lines(file, encoding), delimiter, file.name, blank=ballots)
    header = next((row for _, row in records if any(map(str.strip, row))), None)
    if header is None:
        raise InputError(f"{file.name}, line 1: must be a header with a name for every column")
    places, rows, width = list[int](), list[list[str]](), len(header)
    for line, row in records:
        if len(row) == width:
            places.append(line)
            rows.append(row)
        elif any(map(str.strip, row)):  # a line of blanks is no row, however many of them it has
            rule = f"{len(row)} values under a header of {width}"
            raise InputError(f"{file.name}, line {line}: {rule}")
    table = np.array(rows, object).reshape(-1, width)
    heads = (name_in(cell.strip()) for cell in header)
    sheet = RawTable(file.name, [*zip(heads, table.T, strict=True)], np.array(places, np.int64))
    sheet.check_header(nameless=ballots)
    return sheet


# -- texts -----------------------------------------------------------------------------------------


def lines(path: Path, encoding: str | None = None, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a text file, which may be packed (``.gz``).

    Its letters are stored as ``encoding`` says, as the file's own mark does, or as UTF-8.
    """
    try:
        if encoding is None:
            with path.open("rb") as stream:
                marked = stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            encoding = "utf-16" if marked else "utf-8-sig"
        opened: Any = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding=encoding, errors=errors, newline="") as text:
            yield from text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is cut short or not gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeError:
        rule = f"must be text in {str(encoding).removesuffix('-sig').upper()}; save it as UTF-8 or"
        rule += " name its `encoding` where that can be said, e.g. cp1252"
        raise InputError(path.name, rule) from None
    except (LookupError, ValueError):  # also what Python knows, but not for text
        raise InputError("encoding", "must be known to Python, e.g. cp1252", encoding) from None


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
    reader, line = csv.reader(source, delimiter=delimiter, strict=True), 1
    try:
        for record in reader:
            if blank or (record and (len(record) > 1 or record[0].strip())):
                yield line, record or [""]
            line = reader.line_num + 1
    except csv.Error as error:
        where = f"{name}, line {line}" if name else f"line {line}"
        raise InputError(f"{where}: cannot be read: {error}") from None


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
    writer = csv.writer(
        stream, lineterminator="\n", quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
    )
    writer.writerow(cells)


# -- votes -----------------------------------------------------------------------------------------


def of_table(table: RawTable, **reading: Unpack[Reading]) -> Ballots:
    """Return the votes of a table as checked ballots, with their names.

    They are probabilities where there is a ``threshold``, or with ``soft`` a ``resolution`` above
    1. ``queries_from`` and ``voters_from`` are public lists of who may be there, as
    :func:`names_from` takes them.
    """
    table.check_header()  # options of a poll may lack a name, and labels may not
    query_at, voter_at, labels = _columns(table)
    if not len(table):
        raise BallotError(f"{table.name} has a header and no rows")
    if query_at is not None:  # else every row is a ballot
        rows = zip(*table.cells, strict=True)
        table = table[[not all(map(is_gap, row)) for row in rows]]
        if not len(table):
            raise BallotError(f"{table.name} names no voter")
    threshold, resolution = reading.get("threshold"), reading.get("resolution", 1)
    probable = threshold is not None or (bool(reading.get("soft")) and resolution > 1)
    read, rule = (_chances, _CHANCE) if probable else (YesNo().read, _VOTE)
    votes = table.values(labels, read, rule, BallotError)
    queries, query = _axis(table, query_at, "query", reading.get("queries_from"))
    voters, voter = _axis(table, voter_at, "voter", reading.get("voters_from"))
    shape = len(queries) or 1, len(voters) or len(table), len(labels)
    check_unpacked(table.name, 8 * math.prod(table.shape), math.prod(shape))
    ballots = query * shape[1] + voter
    order = np.argsort(ballots, kind="stable")
    same = np.flatnonzero(np.diff(ballots[order]) == 0)
    if len(same):
        first, second = order[same[0] : same[0] + 2]
        where = f"{table.at(first)} and {table.unit} {table.places[second]}"
        raise BallotError(f"{where}: a voter must cast one ballot on one query")
    if len(ballots) < shape[0] * shape[1]:
        for argument in ("voters_from", "queries_from")[: 1 if query_at is None else 2]:
            if reading.get(argument) is None:
                rule = f"must list all of them: {table.name} has no row for some query and voter, "
                raise InputError(argument, rule + "and which of them occur in ballots is private")
    cube = np.full(shape, np.nan if probable else MISSING, votes.dtype)
    cube[query, voter] = votes
    cast = Ballots.from_array(cube, threshold=threshold, resolution=resolution, soft=probable)
    return cast.named(queries or None, voters or None, [table.header[label] for label in labels])


def _columns(table: RawTable) -> tuple[int | None, int | None, list[int]]:
    """Return the columns of queries and of voters, None for one that is not there, and of labels.

    Where a row is a voter, the first column may name voters under another head.
    """
    header = [name.lower() for name in table.header]
    query, voter = (header.index(name) if name in header else None for name in ("query", "voter"))
    if query is None and voter is None and len(header) > 1 and header[0] in _HEADS:
        voter = 0
    labels = [place for place in range(len(header)) if place not in (query, voter)]
    says, heads = YesNo(), [table.header[label] for label in labels]
    ballot = all(says[head] != ODD and not is_header([head]) for head in heads)
    rules = {
        "must have a column 'voter' beside 'query'": query is not None and voter is None,
        "must have one column a label, and none called 'label'": (
            voter is not None and "label" in header
        ),
        "must have one column a label": not labels,
        # Taken for a label, every row would be another voter, and one voter have several.
        "must call its columns of queries and voters 'query' and 'voter'": any(
            _NO_LABEL.fullmatch(head.lower()) for head in heads
        ),
        "must begin with a line that names the labels, and has a ballot there": (
            voter is None and table.unit == "line" and ballot
        ),
    }
    for rule, broken in rules.items():
        if broken:
            names, sealed = columns_in_words(table.header)
            raise BallotError(f"{table.name} {rule}; it has {names}", sealed=sealed)
    return query, voter, labels


def _chances(column: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return probabilities, NaN for a gap, and :data:`ODD` for anything else."""

    def chance(cell: Any) -> float:
        try:
            value = number(cell.replace(",", ".") if isinstance(cell, str) else cell)
        except (TypeError, ValueError):
            return ODD
        if value is None or value == MISSING:
            return math.nan
        return value if 0 <= value <= 1 else ODD

    return np.array([chance(cell) for cell in column])


def _axis(
    table: RawTable, column: int | None, axis: str, public: Any
) -> tuple[tuple[str, ...], Ints]:
    """Return the names on an axis, and where the name in every row stands among them.

    Names come as a public list has them, or in their natural order. Without a column there are
    none, and a row is another voter on the one query. Names of queries are published as they are
    spelled.
    """
    argument = "queries_from" if axis == "query" else "voters_from"
    if column is None:
        if public is not None:
            raise InputError(argument, f"needs a column {axis!r} in {table.name}")
        return (), np.arange(len(table)) if axis == "voter" else np.zeros(len(table), np.int64)
    names = ["" if is_several(cell) else name_of(cell) for cell in table.cells[column]]
    fold = {name: folded(name) for name in set(names)}
    keys = [fold[name] for name in names]
    if public is None:
        order = tuple(in_order(dict(zip(reversed(keys), reversed(names), strict=True)).values()))
    else:
        order = names_from(public, axis, argument)
    places = {folded(name): place for place, name in enumerate(order)}
    for row, (name, key) in enumerate(zip(names, keys, strict=True)):
        if not key:
            rule = f"must name the {axis}, by one text or number"
        elif key not in places:
            rule = f"must be in the list `{argument}`"
        elif axis == "query" and public is None and order[places[key]] != name:
            rule = "must spell the query as all other rows do, or `queries_from` must say how: "
            rule += "names of queries are published"
        else:
            continue
        raise BallotError(table.at(row, axis), rule)
    return order, np.array([places[key] for key in keys], np.int64)
