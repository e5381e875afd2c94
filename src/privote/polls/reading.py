"""Reading a poll: a table as spreadsheets export it or a data frame, or an archive's file.

A table has a row a ballot, and a column an option or one column that lists what it approves.

PrefLib: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders). "13: {1,2},{3}"
is thirteen voters, not a weight. A ballot approves what stands in its first category, or in its
first place; ``top`` says how many categories or places instead. Pabulib: ``.pb``, projects with
costs, money to spend, and ballots on them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BallotError, InputError, UnavailableError, shown, whole
from ..files import check_file
from ..votes.cells import ODD, YesNo, name_of
from ..votes.tables import (
    CSVFile,
    Sheet,
    as_csv,
    cells,
    columns_in_words,
    delimiter_of,
    lines,
    open_table,
)
from .ballots import BallotRule, Block, PollBallots, Row, counted, gathered, integer

_TABLES = (".csv", ".tsv", ".txt", ".tab")
_VOTER = ("voter", "voter_id", "voterid", "voter id", "id", "email", "e-mail", "name")
_ONE = ("option", "choice", "candidate", "project", "approval")  # heads of what is no option
_SEPARATORS = ";|,/\n"  # between the options of a list
_LISTED = "if one column lists the approved options, as form services export it"
_WHOLE = {"": 0, **{str(points): points for points in range(256)}}
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
    options: Sequence[str] | None = None,
    voter: str | None = None,
    column: str | None = None,
    encoding: str | None = None,
) -> PollBallots:
    """Read the ballots of a poll.

    Parameters
    ----------
    source
        A path: ``.csv``, ``.tsv`` or ``.txt`` (a spreadsheet's export), PrefLib's ``.cat``,
        ``.soc``, ``.soi``, ``.toc`` and ``.toi``, Pabulib's ``.pb``; or a data frame, a mapping of
        columns or a list of records.
    most, each
        The poll's rule. ``most``: the largest number of approvals on a ballot, or of points in
        total; default: no limit, or that of a Pabulib file. ``each``: the largest number of points
        for one option; ``each=1`` counts any points as an approval. The rule is never taken from
        the ballots.
    top
        For rankings and categories: how many of the first places (or categories) count as approved;
        default 1.
    invalid
        What to do with a ballot that breaks the rule: ``"error"`` (stop) or ``"empty"`` (count it
        as empty).
    options
        For a table: the columns that are options; default: all but the voter's. Required with
        ``column``: an option that only one ballot names would reveal that ballot.
    voter
        For a table: the column that names the voters; default: one called "voter", "id" or similar.
    column
        For a table: the one column that lists the approved options.
    encoding
        Text encoding of the file, e.g. cp1252; default: UTF-8, or as the file declares.
    """
    if each is not None:
        whole("each", each)
    table = {"options": options, "voter": voter, "column": column}
    if isinstance(source, PollBallots):
        given = {"most": most, "each": each, "top": top, **table, "encoding": encoding}
        _refuse(given, "applies to a file, not to ballots already read")
        return source
    rule = BallotRule(most=most, each=1 if each is None else each, invalid=invalid)
    if not isinstance(source, str | os.PathLike):
        _refuse({"top": top, "encoding": encoding}, "applies to a file, not to a data frame")
        return _read_table(open_table(source, "source"), rule, options, voter, column)
    path = check_file(source, "source")
    ending = path.suffix.casefold()
    if ending in (*PREFLIB, ".pb"):  # such a file says these things itself
        _refuse(table, f"applies to a table, not to a {ending} file")
        if ending == ".pb":
            return read_pabulib(path, rule, each, top, encoding)
        return read_preflib(path, rule, top, encoding)
    _refuse({"top": top}, "applies to rankings and categories, not to a table")
    if ending not in _TABLES:
        known = ", ".join((*_TABLES, *PREFLIB, ".pb"))
        raise InputError(f"{path.name!r} must end in one of {known}{as_csv(path.name)}")
    return _read_table(CSVFile(path, encoding=encoding, ballots=True), rule, options, voter, column)


def _refuse(given: dict[str, Any], rule: str) -> None:
    """Refuse what is not kept here: it must not look as if it were."""
    for name, value in given.items():
        if value is not None:
            raise InputError(name, rule, value)


# -- tables ----------------------------------------------------------------------------------------


def _read_table(
    table: Sheet,
    rule: BallotRule,
    options: Sequence[str] | None,
    voter: str | None,
    column: str | None,
) -> PollBallots:
    if isinstance(options, str):
        raise InputError("options", "must be a list of names, not one text", options)
    who = _named_voter(table) if voter is None else _place(table, voter, "voter")
    if column is None:
        places = _option_columns(table, who, options)
        names = [table.header[place] for place in places]
        blocks = _marked(table, who, places, rule)
    else:
        if options is None:
            raise InputError(
                "options",
                "must be named with `column`: an option that only one ballot names would reveal "
                "that ballot",
            )
        names = list(options)
        rows = _lists(table, who, _place(table, column, "column"), names)
        blocks = gathered(rows, len(names))
    note = (
        "No column names the voters, so double votes are not detected."
        if who is None
        else "No voter is named twice."
    )
    missing = "An empty cell counts as no; an empty ballot approves nothing."
    return counted(names, blocks, rule, notes=(note, missing))


def _place(table: Sheet, name: str, argument: str) -> int:
    """Return where a column stands."""
    if name not in table.header:
        said, sealed = columns_in_words(table.header)
        rule = f"must be a column of the table, and {name!r:.60} is not; it has {said}"
        raise BallotError(argument, rule, sealed=sealed)
    return table.header.index(name)


def _named_voter(table: Sheet) -> int | None:
    """Return the first column that is called like one that names voters."""
    return next((at for at, name in enumerate(table.header) if name.casefold() in _VOTER), None)


def _option_columns(table: Sheet, voter: int | None, wanted: Sequence[str] | None) -> list[int]:
    if wanted is not None:
        return [_place(table, name, "options") for name in wanted]
    places = [place for place in range(len(table.header)) if place != voter]
    # Of a row an approval, such as voter, option, points, its heads would be taken for options.
    if len(places) < 2 or table.header[places[0]].casefold() in _ONE:
        raise BallotError("column", f"must be given, with the `options`, {_LISTED}")
    for place in places:
        if not table.header[place]:
            raise InputError(
                f"line 1: column {place + 1} has no name; name it, or list the `options`"
            )
    says = YesNo()
    if all(says[table.header[place]] != ODD for place in places[1:]):
        raise InputError(
            "line 1: must be a header with the options' names, not a ballot; e.g. voter,Ada,Bo "
            "followed by ann,1,0. The column `voter` is optional"
        )
    return places


def _marked(
    table: Sheet, voter: int | None, places: list[int], rule: BallotRule
) -> Iterator[Block]:
    """Yield ballots with a column an option: yes or no, or points."""
    says = YesNo()
    for rows, columns in table.blocks():
        marks = np.empty((len(rows), len(places)), np.int16)
        for at, place in enumerate(places):
            marks[:, at] = (
                says.read(columns[place])
                if rule.each == 1
                else [_WHOLE.get(name_of(cell), ODD) for cell in columns[place]]
            )
        odd = np.argwhere(marks == ODD)
        if len(odd):
            row, at = odd[0]
            what = "yes or no (1/0, x, true/false)" if rule.each == 1 else "integer points"
            raise BallotError(
                f"{table.unit} {rows[row]}: a cell is not {what}. Name the `options` if other "
                f"columns exist, or the `voter` column, or the `column` {_LISTED}",
                sealed=f"the cell is {shown(columns[places[at]][row])}",
            )
        votes = np.maximum(marks, 0)  # a gap is a no
        yield Block(rows, _voters(table, columns, voter, rows), np.ones(len(rows), np.int64), votes)


def _voters(
    table: Sheet, columns: Sequence[Sequence[Any]], voter: int | None, rows: Sequence[int]
) -> Sequence[str | None]:
    if voter is None:
        return [None] * len(rows)
    names = [name_of(cell) for cell in columns[voter]]
    if "" in names:
        raise BallotError(f"{table.unit} {rows[names.index('')]}: the voter has no name")
    return names


def _lists(table: Sheet, voter: int | None, column: int, options: list[str]) -> Iterator[Row]:
    """Yield ballots whose options one column lists."""
    at = {name: place for place, name in enumerate(options)}
    for rows, columns in table.blocks():
        names = _voters(table, columns, voter, rows)
        for row, name, cell in zip(rows, names, columns[column], strict=True):
            listed = _listed(name_of(cell), at)
            if listed is None:
                raise BallotError(
                    f"{table.unit} {row}: the ballot names something that is not among the "
                    "`options`",
                    sealed=f"the cell is {cell!r}",
                )
            yield Row(row, name, 1, [(option, 1) for option in listed])


def _listed(cell: str, at: dict[str, int]) -> list[int] | None:
    """Return the options of a list, by whichever separator leaves only options; None without."""
    if not cell or cell in at:
        return [at[cell]] if cell else []
    for mark in _SEPARATORS:
        found = [at.get(part.strip(), -1) for part in cell.split(mark) if part.strip()]
        if -1 not in found:
            return found
    return None


# -- PrefLib ---------------------------------------------------------------------------------------


def read_preflib(
    path: Path, rule: BallotRule, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of PrefLib's files; see :func:`privote.polls.read`."""
    meta, names = _head(path, encoding)
    kind = meta.get("DATA TYPE", path.suffix[1:]).casefold()
    if f".{kind}" not in PREFLIB:
        raise InputError(f"data type {shown(kind)} must be one of {', '.join(PREFLIB)}")
    places = 1 if top is None else whole("top", top)
    what = "categories" if kind == "cat" else "places"
    if rule.each != 1:
        raise InputError("each", "must be 1: PrefLib's ballots have no points", rule.each)
    if rule.most is None and kind in ("soc", "soi"):
        rule = replace(rule, most=min(places, len(names)))  # by the reading, on any ballot
    rows = _preflib_rows(path, encoding, len(names), places)
    found = counted(
        names,
        gathered(rows, len(names)),
        rule,
        meta=meta,
        notes=(
            f"A ballot approves the options in its first {places} {what}."
            if places > 1
            else f"A ballot approves the options in the first of its {what}.",
            "A line that starts with 13 stands for thirteen voters.",
        ),
    )
    said = meta.get("NUMBER VOTERS", "")
    voters = integer(said, "NUMBER VOTERS") if said.isdecimal() else found.voters
    if voters != found.voters:
        raise BallotError(f"the file declares {voters} voters but has {found.voters} ballots")
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

    rows = (
        _pabulib_ballot(line, record, known, rule, places, kind)
        for line, record in file.section("VOTES")
    )
    found = counted(
        file.names,
        gathered(rows, len(known)),
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
            raise BallotError(f"the file declares {key} {number} but has {value}")
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
                raise InputError("each", "must be given: the file has no max_points")
            rule = replace(rule, each=highest, most=rule.most or total)
            return rule, f"Ballots give points, at most {highest} to a project."
        most = rule.most
        if each == 1 and most is None and total is not None:
            most = min(total, options)  # an approval takes a point at least
        return replace(rule, each=each, most=most), (
            "Any number of points counts as an approval." if each == 1 else "Ballots give points."
        )
    if kind == "ordinal":
        places = min(1 if top is None else whole("top", top), options)
        return replace(rule, most=places), f"A ballot approves its first {places} places."
    longest = 1 if kind == "choose-1" else file.number("max_length")
    most = longest if rule.most is None else rule.most
    said = "without a limit" if most is None else f"at most {most}"
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
            raise BallotError(f"line {line}: needs integer points, one per project named")
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
