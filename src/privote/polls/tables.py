"""CSV and spreadsheets' exports: a column an option, a column of lists, or a row an approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import BallotError, InputError, shown, whole
from ..votes.cube import MOST
from ..votes.tables import cells, columns_in_words, delimiter_of, is_header, lines
from .ballots import BallotRule, PollBallots, Row, counted
from .texts import integer

FORMS = ("wide", "list", "long")
_VOTER = ("voter", "voter_id", "voterid", "voter id", "id", "email", "e-mail", "name")
_LISTS = ("approved", "approvals", "approves", "vote", "votes", "options", "choices", "ballot")
_ONE = ("option", "choice", "candidate", "project", "approval")
_POINTS = ("points", "value", "score")
_YES = ("1", "x", "yes", "y", "true", "t", "✓", "✔", "1.0")
_NO = ("0", "", "no", "n", "false", "f", "-", "0.0", "-1", "na", "n/a", "nan", "null", "none")
_SEPARATORS = ";|,/\n"
_EXPECTED = (
    "the first line must name the columns, e.g. voter,Ada,Bo above ann,1,0; the `voter` may be "
    "left out"
)
_WORDS = {
    spelled: mark
    for words, mark in ((_YES, 1), (_NO, 0))
    for word in words
    for spelled in (word, word.upper(), word.capitalize())
}


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How a table holds ballots; what is None follows from its header.

    Attributes
    ----------
    form
        ``"wide"``: a row a ballot, a column an option. ``"list"``: a row a ballot, one column with
        the approved options. ``"long"``: a row an approval: voter, option, maybe points.
    options
        The options: needed but for ``"wide"``, which has them in its header. Taken from ballots,
        an option that only one of them names would tell of that ballot.
    voter, column
        The columns with voters' names, and with options.
    voters
        How many voted, for ``"long"``: voters who approved nothing have no row there, and how many
        those are is private.
    separator, delimiter, encoding
        Between the options of a list, between cells, and how letters are stored.
    """

    form: str | None = None
    options: Sequence[str] | None = None
    voter: str | None = None
    column: str | None = None
    voters: int | None = None
    separator: str | None = None
    delimiter: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.form not in (None, *FORMS):
            raise InputError("form", f"must be one of {', '.join(FORMS)}", self.form)
        if self.voters is not None:
            whole("voters", self.voters, most=MOST)
        if isinstance(self.options, str):
            raise InputError("options", "must be a list of names, not one text", self.options)
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError("delimiter", "must be one character", self.delimiter)


@dataclass(frozen=True)
class _Table:
    """A file with its header read."""

    path: Path
    given: TableFormat
    delimiter: str
    header: list[str]

    @classmethod
    def of(cls, path: Path, given: TableFormat) -> _Table:
        text = lines(path, given.encoding)
        first = next(text, "")
        delimiter = given.delimiter or delimiter_of(first)
        records = cells(lines(path, given.encoding), delimiter)
        _, header = next(records, (1, []))
        names = [name.strip() for name in header]
        if len(names) > 1 and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            one, two = [at + 1 for at, name in enumerate(names) if name == twice][:2]
            raise BallotError(
                f"line 1: columns {one} and {two} must have different names{_ballot(names)}",
                sealed=f"both are called {shown(twice)}",
            )
        if not any(names):
            raise InputError(f"line 1: a table needs a header; {_EXPECTED}")
        return cls(path, given, delimiter, names)

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows below the header, each as long as it."""
        width = len(self.header)
        # Where a ballot is all of a line, an empty line is an empty ballot: left out, the public
        # number of voters would tell of it.
        source = lines(self.path, self.given.encoding)
        records = cells(source, self.delimiter, blank=width == 1)
        for _, record in records:
            if any(cell.strip() for cell in record):
                break  # the header
        for line, record in records:
            if len(record) != width:
                raise BallotError(
                    f"line {line}: has {len(record)} cells, and the header has {width}"
                )
            yield line, record

    def place(self, name: str, argument: str) -> int:
        """Return where a column stands."""
        if name not in self.header:
            said, sealed = columns_in_words(self.header)
            rule = f"must be a column of the header, and {name!r:.60} is none; it has {said}"
            raise BallotError(argument, rule, sealed=sealed)
        return self.header.index(name)

    def find(self, known: Sequence[str]) -> int | None:
        """Return the first column that is called like one of these."""
        for place, name in enumerate(self.header):
            if name.casefold() in known:
                return place
        return None


def read_table(path: Path, given: TableFormat, rule: BallotRule) -> PollBallots:
    """Read a table; see :func:`privote.polls.read`."""
    table = _Table.of(path, given)
    voter = None if given.voter is None else table.place(given.voter, "voter")
    if voter is None:
        voter = table.find(_VOTER)
    form = given.form or _form(table, voter)
    if form != "long" and given.voters is not None:
        raise InputError("voters", f"goes with the form 'long': {form!r} has a row for each")
    note = (
        "No column names the voters: that nobody voted twice is not checked."
        if voter is None
        else "No voter is named twice."
    )
    if form == "wide":
        places = _option_columns(table, voter)
        names = [table.header[place] for place in places]
        rows: Any = partial(_wide, table, voter, places, rule)
    else:
        if given.options is None:
            raise InputError(
                "options",
                f"must be named for the form {form!r}: an option that only one ballot names would "
                "tell of that ballot",
            )
        names = list(given.options)
        at = {name: place for place, name in enumerate(names)}
        column = _column(table, voter, form)
        if form == "list":
            rows = partial(_list, table, voter, column, at)
        else:
            if voter is None:
                raise InputError("voter", "must be a column for the form 'long'", None)
            if given.voters is None:
                raise InputError(
                    "voters",
                    "must be given for the form 'long': who approved nothing has no row, and how "
                    "many those are is private",
                )
            rows = _long(table, voter, column, at, rule)
    missing = "An empty cell is a no; an empty ballot is a voter who approves nothing."
    return counted(names, rows, rule, notes=(note, missing))


def _form(table: _Table, voter: int | None) -> str:
    """Return which of the forms a header has."""
    others = [name.casefold() for place, name in enumerate(table.header) if place != voter]
    wanted = table.given.options
    if wanted is not None and all(name in table.header for name in wanted):
        return "wide"
    if table.given.column is not None:
        return "list"
    if voter is not None and others[:1] and others[0] in _ONE and set(others[1:]) <= set(_POINTS):
        return "long"
    if any(name in _LISTS for name in others) and (len(others) == 1 or wanted is not None):
        return "list"
    if len(others) == 1:
        said, sealed = columns_in_words(table.header)
        raise BallotError(
            "form",
            "must be said where one column holds all: `form=list` with the `options`, if its cells "
            f"list what a ballot approves; the header has {said}. Else {_EXPECTED}",
            sealed=sealed,
        )
    return "wide"


def _option_columns(table: _Table, voter: int | None) -> list[int]:
    wanted = table.given.options
    if wanted is not None:
        return [table.place(name, "options") for name in wanted]
    places = [place for place in range(len(table.header)) if place != voter]
    for place in places:
        if not table.header[place]:
            raise InputError(
                f"line 1: column {place + 1} has no name; or name the `options` among the columns"
            )
    if all(table.header[place] in _WORDS for place in places[1:] or places):
        raise InputError(
            f"line 1: must be a header with the options' names, not a ballot; {_EXPECTED}"
        )
    return places


def _column(table: _Table, voter: int | None, form: str) -> int:
    if table.given.column is not None:
        return table.place(table.given.column, "column")
    found = table.find(_LISTS if form == "list" else _ONE)
    others = [place for place in range(len(table.header)) if place != voter]
    if found is None and len(others) == 1:
        found = others[0]
    if found is None:
        said, sealed = columns_in_words(table.header)
        raise BallotError(
            "column", f"must name the column with the options; the header has {said}", sealed=sealed
        )
    return found


def _ballot(header: Sequence[str]) -> str:
    """Return the end of a message about a header that may be none."""
    return "" if is_header(header) else f"; it reads like a ballot, and {_EXPECTED}"


def _wide(table: _Table, voter: int | None, places: list[int], rule: BallotRule) -> Iterator[Row]:
    dense = places == list(range(places[0], places[-1] + 1))
    first, last = places[0], places[-1] + 1
    known = _WORDS if rule.each == 1 else _points(rule)
    look = known.__getitem__
    for line, record in table.records():
        taken = record[first:last] if dense else [record[place] for place in places]
        try:
            given = bytes(map(look, taken))
        except KeyError:
            given = bytes(_mark(cell, known, line, table, rule) for cell in taken)
        yield Row(line, _voter(record, voter, line), 1, given)


def _points(rule: BallotRule) -> dict[str, int]:
    return {"": 0, **{str(value): value for value in range(256)}}


def _mark(cell: str, known: dict[str, int], line: int, table: _Table, rule: BallotRule) -> int:
    found = known.get(cell.strip().casefold())
    if found is None:
        what = "yes or no (1/0, x, true/false)" if rule.each == 1 else "whole points"
        hint = "name the `options` if some columns are none, or the column of the `voter`"
        if any(mark in cell for mark in _SEPARATORS):
            hint = (
                "if it lists what a ballot approves, as forms export it, give `form=list`, the "
                "`column` and the `options`"
            )
        raise BallotError(
            f"line {line}: a cell is not {what}; {hint}", sealed=f"the cell is {shown(cell)}"
        )
    return found


def _voter(record: list[str], voter: int | None, line: int) -> str | None:
    if voter is None:
        return None
    name = record[voter].strip()
    if not name:
        raise BallotError(f"line {line}: the voter has no name")
    return name


def _list(table: _Table, voter: int | None, column: int, at: dict[str, int]) -> Iterator[Row]:
    split = _splitter(table.given.separator, at)
    for line, record in table.records():
        given = [(option, 1) for option in split(record[column], line)]
        yield Row(line, _voter(record, voter, line), 1, given)


def _splitter(separator: str | None, at: dict[str, int]) -> Callable[[str, int], list[int]]:
    """Return how a cell becomes options: by the separator, or by any that leaves only options."""

    def parts(cell: str, mark: str) -> list[int] | None:
        names = [name.strip() for name in cell.split(mark)]
        found = [at.get(name, -1) for name in names if name]
        return None if -1 in found else found

    def split(cell: str, line: int) -> list[int]:
        if not cell.strip():
            return []
        if separator is None and cell.strip() in at:
            return [at[cell.strip()]]
        for mark in _SEPARATORS if separator is None else (separator,):
            found = parts(cell, mark)
            if found is not None:
                return found
        raise BallotError(
            f"line {line}: the ballot names something that is not among the `options`",
            sealed=f"the cell is {cell!r}",
        )

    return split


def _long(
    table: _Table, voter: int, column: int, at: dict[str, int], rule: BallotRule
) -> Callable[[], Iterator[Row]]:
    """Gather the rows of each voter; a row without an option is an empty ballot."""
    points = table.find(_POINTS)

    def rows() -> Iterator[Row]:
        first: dict[str, int] = {}
        given: dict[str, list[tuple[int, int]]] = {}
        for line, record in table.records():
            name = _voter(record, voter, line)
            assert name is not None
            first.setdefault(name, line)
            ballot = given.setdefault(name, [])
            option = record[column].strip()
            if not option:
                continue
            if option not in at:
                raise BallotError(
                    f"line {line}: the option is not among the `options`",
                    sealed=f"it is {option!r}",
                )
            value = 1
            if points is not None:
                value = integer(record[points], f"line {line}: points")
                value = value if rule.each > 1 else min(value, 1)
            if any(option_ == at[option] for option_, _ in ballot):
                raise BallotError(f"line {line}: the voter names an option twice")
            ballot.append((at[option], value))
        silent = (table.given.voters or 0) - len(given)
        if silent < 0:
            raise BallotError("voters", f"must be at least those that are named ({len(given)})")
        for name, ballot in given.items():
            yield Row(first[name], name, 1, ballot)
        if silent:
            yield Row(0, None, silent, [])

    return rows
