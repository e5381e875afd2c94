"""Reading a poll: an archive's file, a profile, or a table as spreadsheets export it.

A table has a column an option, a column of lists, or a row an approval.

PrefLib: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders). "13: {1,2},{3}"
is thirteen voters, not a weight. A ballot approves what stands in its first category, or in its
first place; ``top`` says how many categories or places instead. Pabulib: ``.pb``, projects with
costs, money to spend, and ballots on them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import BallotError, InputError, UnavailableError, shown, whole
from ..votes.cube import MOST
from ..votes.tables import cells, columns_in_words, delimiter_of, is_header, lines
from .ballots import BallotRule, PollBallots, Row, counted, from_profile, integer

_TABLES = (".csv", ".tsv", ".txt", ".tab")
_BOOKS = (".xlsx", ".xls", ".ods", ".numbers")
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
PREFLIB = (".cat", ".soc", ".soi", ".toc", ".toi")
_NAME = re.compile(r"ALTERNATIVE NAME (\d+)")
_GROUP = re.compile(r"\{([\d\s,]*)\}|(\d+)")
_GROUPS = re.compile(r"(?:\{[\d\s,]*\}|\d+)(?:\s*,\s*(?:\{[\d\s,]*\}|\d+))*")
_SECTIONS = ("META", "PROJECTS", "VOTES")
# Digits enough for any money, and no exponent that makes a number of a million digits.
_AMOUNT = re.compile(r"[+-]?\d{0,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?(/\d{1,30})?")
_TYPES = ("approval", "choose-1", "cumulative", "scoring", "ordinal")


def read(
    source: Any,
    *,
    most: int | None = None,
    each: int | None = None,
    top: int | None = None,
    invalid: str = "error",
    **table: Any,
) -> PollBallots:
    """Read the ballots of a poll.

    Parameters
    ----------
    source
        A path: ``.csv``, ``.tsv`` or ``.txt`` (a spreadsheet's export), PrefLib's ``.cat``,
        ``.soc``, ``.soi``, ``.toc`` and ``.toi``, Pabulib's ``.pb``; or an abcvoting profile, or
        anything like it.
    most, each
        The poll's rule: how many approvals a ballot may have; with points how many in all, and how
        many for one option. Without ``most`` there is no limit, unless a Pabulib file says one:
        it is never taken from the ballots. ``each=1`` makes any points an approval.
    top
        Orders and categories: how many first places, or categories, are approved; 1 unless told.
    invalid
        What becomes of a ballot that breaks the rule: ``"error"``, or ``"empty"``.
    table
        How a table is laid out, where its header does not say: the fields of
        :class:`privote.polls.reading.TableFormat`. Other files take an ``encoding`` only.
    """
    if each is not None:
        whole("each", each)
    rule = BallotRule(most=most, each=1 if each is None else each, invalid=invalid)
    layout = TableFormat(**table)
    if not isinstance(source, str | os.PathLike):
        profile = hasattr(source, "num_cand")
        given = {**vars(layout), "each": each, "top": top, "most": None if profile else most}
        for name, value in given.items():  # a rule that is not kept must not look as if it were
            if value is not None:
                raise InputError(name, "goes with a file, not with ballots that were read", value)
        if isinstance(source, PollBallots):
            return source
        if profile:
            return from_profile(source, most=most)
        raise InputError("source", "must be a path or an abcvoting profile", source)
    path = Path(source)
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    ending = path.suffix.casefold()
    if ending in (*PREFLIB, ".pb"):
        for name, value in vars(layout).items():  # such a file says these things itself
            if value is not None and name != "encoding":
                raise InputError(name, f"goes with a table, not with a file that ends in {ending}")
        if ending == ".pb":
            return read_pabulib(path, rule, each, top, layout.encoding)
        return read_preflib(path, rule, top, layout.encoding)
    if top is not None:
        raise InputError("top", "goes with orders and categories, not with a table", top)
    if ending in _BOOKS:
        raise InputError(f"{path.name!r} is a workbook: save the sheet as CSV and give that")
    if ending not in _TABLES:
        known = ", ".join((*_TABLES, *PREFLIB, ".pb"))
        raise InputError(f"{path.name!r} must end in one of {known}")
    return read_table(path, layout, rule)


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


# -- PrefLib ---------------------------------------------------------------------------------------


def read_preflib(
    path: Path, rule: BallotRule, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of PrefLib's files; see :func:`privote.polls.read`."""
    meta, names = _head(path, encoding)
    kind = meta.get("DATA TYPE", path.suffix[1:]).casefold()
    if f".{kind}" not in PREFLIB:
        raise InputError(f"data type {shown(kind)} is none of {', '.join(PREFLIB)}")
    places = 1 if top is None else whole("top", top)
    what = "categories" if kind == "cat" else "places"
    if rule.each != 1:
        raise InputError("each", "must be 1: PrefLib's ballots have no points", rule.each)
    if rule.most is None and kind in ("soc", "soi"):
        rule = replace(rule, most=min(places, len(names)))  # by the reading, on any ballot
    rows = partial(_preflib_rows, path, encoding, len(names), places)
    found = counted(
        names,
        rows,
        rule,
        meta=meta,
        notes=(
            f"A ballot approves what stands in its first {places} {what}."
            if places > 1
            else f"A ballot approves what stands in the first of its {what}.",
            "A line that begins with 13 is thirteen voters.",
        ),
    )
    said = meta.get("NUMBER VOTERS", "")
    voters = integer(said, "NUMBER VOTERS") if said.isdecimal() else found.voters
    if voters != found.voters:
        raise BallotError(f"the file says {voters} voters and has {found.voters} ballots")
    return found


def _head(path: Path, encoding: str | None) -> tuple[dict[str, str], list[str]]:
    meta: dict[str, str] = {}
    known: dict[int, str] = {}
    for line in lines(path, encoding):
        if not line.startswith("#"):
            break
        key, _, value = line[1:].strip().partition(":")
        found = _NAME.fullmatch(key.strip())
        if found:
            known[integer(found[1], "the number of an ALTERNATIVE NAME")] = value.strip()
        else:
            meta[key.strip()] = value.strip()
    said = meta.get("NUMBER ALTERNATIVES", "")
    number = integer(said, "NUMBER ALTERNATIVES", 1) if said else None
    # So many different numbers from 1 on: no list is made as long as the file says.
    if len(known) != number or (min(known), max(known)) != (1, number):
        raise InputError(
            f"the header must say NUMBER ALTERNATIVES and name each: it says {number or 'nothing'} "
            f"and names {len(known)}"
        )
    places = sorted(known)
    return meta, _told_apart([known[place] for place in places], places)


def _told_apart(names: Sequence[str], marks: Sequence[object]) -> list[str]:
    """Return the names; those that several options share with what tells them apart."""
    times = Counter(names)
    return [
        name if times[name] == 1 else f"{name} [{mark}]"
        for name, mark in zip(names, marks, strict=True)
    ]


def _preflib_rows(path: Path, encoding: str | None, options: int, top: int) -> Iterator[Row]:
    for number, line in enumerate(lines(path, encoding), 1):
        if line.startswith("#") or not line.strip():
            continue
        voters, _, ballot = line.partition(":")
        if not voters.strip().isdecimal() or not _GROUPS.fullmatch(ballot.strip()):
            raise BallotError(
                f"line {number}: must be a number of voters, a colon and options: 13: {{1,2}},3"
            )
        groups = [
            [
                integer(part, f"line {number}: an option", 1, options)
                for part in (several or one).split(",")
                if part.strip()
            ]
            for several, one in _GROUP.findall(ballot)
        ]
        every = [option for group in groups for option in group]
        if len(set(every)) < len(every):
            raise BallotError(f"line {number}: the ballot names an option twice")
        given = [(option - 1, 1) for group in groups[:top] for option in group]
        yield Row(number, None, integer(voters, f"line {number}: the voters"), given)


# -- Pabulib ---------------------------------------------------------------------------------------


def read_pabulib(
    path: Path, rule: BallotRule, each: int | None, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of Pabulib's files; see :func:`privote.polls.read`.

    ``each`` is what was asked for: None takes points as the file's rule has them.
    """
    file = _Pabulib.of(path, encoding)
    kind = file.meta.get("vote_type", "")
    if kind not in _TYPES:
        raise UnavailableError("vote_type", f"must be one of {', '.join(_TYPES)}", kind)
    rule, note = _pabulib_rule(file, kind, rule, each, top)
    known = {project: place for place, project in enumerate(file.projects)}
    places = rule.most if kind == "ordinal" else None

    def rows() -> Iterator[Row]:
        for line, record in file.section("VOTES"):
            yield _pabulib_ballot(line, record, known, rule, places, kind)

    found = counted(
        file.names,
        rows,
        rule,
        meta=file.meta,
        costs=file.costs,
        money=_amount(file.meta.get("budget"), "budget"),
        notes=(note, "No voter is named twice."),
    )
    for key, value in (("num_votes", found.voters), ("num_projects", len(file.projects))):
        said = file.meta.get(key, "")
        number = integer(said, key) if said.isdecimal() else value
        if number != value:
            raise BallotError(f"the file says {key} {number} and has {value}")
    return found


def _pabulib_rule(
    file: _Pabulib, kind: str, rule: BallotRule, each: int | None, top: int | None
) -> tuple[BallotRule, str]:
    """Return the poll's rule as the file's own settings have it, where none was given."""
    options = len(file.projects)
    if kind in ("cumulative", "scoring"):
        total = file.number("max_sum_points")
        if each is None:
            highest = file.number("max_points") or total
            if highest is None:
                raise InputError("each", "must be given: the file says no max_points")
            rule = replace(rule, each=highest, most=rule.most or total)
            return rule, f"Ballots give points, at most {highest} to a project."
        most = rule.most
        if each == 1 and most is None and total is not None:
            most = min(total, options)  # an approval takes a point at least
        return replace(rule, each=each, most=most), (
            "Any points are an approval." if each == 1 else "Ballots give points."
        )
    if kind == "ordinal":
        places = min(1 if top is None else whole("top", top), options)
        return replace(rule, most=places), f"A ballot approves its first {places} places."
    longest = 1 if kind == "choose-1" else file.number("max_length")
    most = longest if rule.most is None else rule.most
    said = "no rule on how many" if most is None else f"at most {most}"
    return replace(rule, most=most), f"A ballot approves projects, {said}."


def _pabulib_ballot(
    line: int,
    record: dict[str, str],
    known: dict[str, int],
    rule: BallotRule,
    places: int | None,
    kind: str,
) -> Row:
    named = [part.strip() for part in record["vote"].split(",") if part.strip()]
    options = [known.get(project, -1) for project in named]
    if -1 in options:
        raise BallotError(
            f"line {line}: the ballot names a project that is not listed",
            sealed=f"it is {named[options.index(-1)]!r}",
        )
    if len(set(options)) < len(options):
        raise BallotError(f"line {line}: the ballot names a project twice")
    points = [1] * len(options)
    if kind in ("cumulative", "scoring"):
        given = [part.strip() for part in record.get("points", "").split(",") if part.strip()]
        if len(given) != len(options):
            raise BallotError(f"line {line}: needs whole points, one for each project it names")
        points = [integer(part, f"line {line}: points") for part in given]
        if rule.each == 1:
            points = [min(value, 1) for value in points]
    return Row(line, record["voter_id"], 1, list(zip(options, points, strict=True))[:places])


@dataclass(frozen=True)
class _Pabulib:
    """A file whose first two sections are read."""

    path: Path
    encoding: str | None
    delimiter: str
    meta: dict[str, str]
    projects: list[str]
    names: list[str]
    costs: tuple[Fraction, ...] | None

    @classmethod
    def of(cls, path: Path, encoding: str | None) -> _Pabulib:
        text = lines(path, encoding)
        first, second = next(text, "").strip(), next(text, "")
        if first.strip(";,") != "META":
            raise InputError("line 1: must be META in a Pabulib file")
        bare = cls(path, encoding, delimiter_of(second), {}, [], [], None)
        meta = {row["key"]: row.get("value", "").strip() for _, row in bare.section("META")}
        listed = list(bare.section("PROJECTS"))
        ids = [row["project_id"] for _, row in listed]
        often, times = Counter(ids).most_common(1)[0] if ids else ("", 0)
        if times > 1:
            raise InputError(f"the project {shown(often)} is listed twice")
        names = [row.get("name", "").strip() or row["project_id"] for _, row in listed]
        costs = [_amount(row.get("cost"), f"line {line}: cost") for line, row in listed]
        return cls(
            path,
            encoding,
            bare.delimiter,
            meta,
            ids,
            _told_apart(names, ids),
            None if None in costs else tuple(cost for cost in costs if cost is not None),
        )

    def number(self, key: str) -> int | None:
        """Return a whole number that the file says about itself."""
        said = self.meta.get(key, "")
        return integer(said, key, 1) if said else None

    def section(self, wanted: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the rows of a section by the names of its columns, with their lines."""
        here = ""
        header: list[str] = []
        needed = {"META": ("key",), "PROJECTS": ("project_id",), "VOTES": ("voter_id", "vote")}
        for line, record in cells(lines(self.path, self.encoding), self.delimiter):
            if record[0].strip() in _SECTIONS and not any(cell.strip() for cell in record[1:]):
                if here == wanted:
                    return
                here, header = record[0].strip(), []
            elif here == wanted and not header:
                header = [name.strip() for name in record]
                for name in needed[wanted]:
                    if name not in header:
                        raise InputError(f"line {line}: {wanted} needs a column {name!r}")
            elif here == wanted:
                if len(record) > len(header):
                    raise InputError(
                        f"line {line}: has {len(record)} cells, and the header has {len(header)}"
                    )
                row = dict(zip(header, record, strict=False))
                for name in needed[wanted]:
                    if row.get(name) is None or (name != "vote" and not row[name].strip()):
                        raise InputError(f"line {line}: has no {name}")
                    row[name] = row[name].strip()
                yield line, row
        if here != wanted and not header:
            raise InputError(f"a Pabulib file needs a section {wanted}")


def _amount(text: Any, what: str) -> Fraction | None:
    if text is None or not text.strip():
        return None
    plain = text.strip().replace(" ", "").replace(",", ".")
    try:
        amount = Fraction(plain) if _AMOUNT.fullmatch(plain) else None
    except (ValueError, ZeroDivisionError):
        amount = None
    if amount is None:
        raise InputError(f"{what} must be an amount of money, got {shown(text)}")
    if amount < 0:
        raise InputError(f"{what} must not be negative, got {text!r}")
    return amount
