"""Reading a poll: a table as spreadsheets and forms export it, or an archive's file.

A table has a row a ballot, and a column an option or columns that list what a ballot approves. What
the options are is public: the header says it, or an argument. No cell of a ballot does.

PrefLib: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders). "13: {1,2},{3}"
is thirteen voters, not a weight. A ballot approves what stands in its first category, or in its
first place; ``top`` says how many categories or places instead. Pabulib: ``.pb``, projects with
costs, money to spend, and ballots on them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, UnavailableError, shown, whole
from ..files import check_file
from ..votes import tables
from ..votes.cells import ODD, YesNo, name_of
from ..votes.cube import MOST
from ..votes.names import folded
from .mechanisms import PollSize, Whole

# -- ballots, checked against the rule and counted

_CELLS = 1 << 22  # of a block: 8 MB
_ROWS = 1 << 14  # of a block, which are objects before they are an array
_MOST_POINTS = np.iinfo(np.int16).max - 1  # what a ballot has beyond is stored as one more
INVALID = ("error", "empty")
DUPLICATES = (None, "first", "last")
_NO_ROLL = "No column names the voters, so double votes cannot be detected."
_ROLL = "The column {!r} is the public roll: who voted is not protected, how they voted is."


class Row(NamedTuple):
    """One line of a file: so many voters with the same ballot, the options it names and points.

    ``voter`` is folded, or None where nobody is named.
    """

    line: int
    voter: str | None
    times: int
    given: Sequence[tuple[int, int]]


class Block(NamedTuple):
    """Some lines: where they stand, names, voters each stands for, points (rows, options)."""

    lines: Sequence[int]
    voters: Sequence[str | None]
    times: Whole
    votes: npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True)
class BallotRule:
    """What a ballot may hold, and what becomes of one that holds more.

    Attributes
    ----------
    most
        Approvals, or points in total, on each question; None if the poll has no such rule.
    each
        Points for one option; 1 for approvals.
    invalid
        ``"error"``: refuse the file and name the line. ``"empty"``: count it as an empty ballot;
        its voter still counts, so that the number of voters stays public.
    duplicates
        Which row of a voter who is named twice counts, ``"first"`` or ``"last"``; None: refuse the
        file and name the lines.
    """

    most: int | None = None
    each: int = 1
    invalid: str = "error"
    duplicates: str | None = None

    def __post_init__(self) -> None:
        if self.most is not None:
            object.__setattr__(self, "most", whole("most", self.most))
        object.__setattr__(self, "each", whole("each", self.each, most=_MOST_POINTS))
        if self.invalid not in INVALID:
            raise InputError("invalid", f"must be one of {', '.join(INVALID)}", self.invalid)
        if self.duplicates not in DUPLICATES:
            raise InputError("duplicates", "must be first or last", self.duplicates)

    def kept(self, block: Block, questions: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return which ballots of a block are within the rule; refuse the others if told so.

        ``questions`` says how many options each has.
        """
        over = (block.votes > self.each).any(axis=1)
        if self.most is not None:
            starts = np.cumsum([0, *questions[:-1]])
            totals = np.add.reduceat(block.votes, starts, axis=1, dtype=np.int64)
            over |= (totals > self.most).any(axis=1)
        if over.any() and self.invalid == "error":
            unit = "approvals" if self.each == 1 else "points in total"
            limits = [f"{self.most} {unit}"] * (self.most is not None)
            limits += [f"{self.each} points per option"] * (self.each > 1)
            raise BallotError(
                f"line {block.lines[int(over.argmax())]}: the ballot breaks the poll's rule of at "
                f"most {' and '.join(limits)}; give `invalid=empty` to count such ballots as empty"
            )
        return np.asarray(~over)


@dataclass(frozen=True, kw_only=True, eq=False)
class PollBallots:
    """What :func:`privote.polls.read` returns. Ballots and counts are private.

    Attributes
    ----------
    options
        Their names, in the file's order; "question: option" where there are several questions.
    questions
        How many of the options belong to each question, by its name; empty if there is one.
    size
        The public numbers: voters, those with an empty ballot included, and the poll's rule.
    counts
        How many approvals (or points) each option has: (options,). Sealed.
    emptied
        How many ballots broke the rule and count as empty. Sealed.
    roll
        The column that names the people who voted, None without. It is public.
    repeated
        How many rows named a voter again and were left out: a fact about the roll, so public.
    costs, money
        What options cost and what there is to spend; None in a poll without.
    notes
        How the file was read, in sentences: what is public about it.
    meta
        What the file says about itself, by key.
    """

    options: tuple[str, ...]
    questions: Mapping[str, int] = field(default_factory=dict)
    size: PollSize
    counts: Whole = field(repr=False)
    emptied: int = field(default=0, repr=False)
    roll: str | None = None
    repeated: int = 0
    costs: tuple[Fraction, ...] | None = field(default=None, repr=False)
    money: Fraction | None = None
    notes: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def voters(self) -> int:
        """How many: public."""
        return self.size.voters


def counted(
    options: Sequence[str],
    blocks: Callable[[], Iterable[Block]],
    rule: BallotRule,
    roll: str | None,
    notes: tuple[str, ...],
    **facts: Any,
) -> PollBallots:
    """Count ballots, checking each; ``blocks`` begins to read them. The other facts are public."""
    names = tuple(options)
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"the option {shown(twice[0])} is named twice")
    sizes = tuple(facts.get("questions", {}).values()) or (len(names),)
    if min(sizes) < 2:
        raise InputError(f"a poll needs at least 2 options, got {min(sizes)}")
    lines: dict[str | None, int] = {}  # where the ballot of each voter stands
    if rule.duplicates == "last":
        for block in blocks():
            lines.update(zip(block.voters, block.lines, strict=True))
    voters = emptied = repeated = 0
    counts = np.zeros(len(names), np.int64)
    for block in blocks():
        repeated += _drop_repeated(block, lines, rule)
        voters += int(block.times.sum())
        if voters > MOST:  # before anything is multiplied by it
            raise BallotError(f"a poll must have at most {MOST:,} voters")
        valid = rule.kept(block, sizes)
        emptied += int(block.times[~valid].sum())
        block.votes[~valid] = 0
        counts += block.times @ block.votes.astype(np.int64)
    if not voters:
        raise BallotError("there are no ballots")
    notes += (_NO_ROLL if roll is None else _ROLL.format(roll),)
    if rule.duplicates is not None:
        rows = "1 row" if repeated == 1 else f"{repeated:,} rows"
        notes += (f"{rows} repeated a voter; the {rule.duplicates} of each counts.",)
    elif roll is not None:
        notes += ("No voter is named twice.",)
    most = rule.most or rule.each * max(sizes)
    size = PollSize(voters=voters, options=len(names), most=most, each=rule.each, questions=sizes)
    facts |= {"size": size, "counts": counts, "emptied": emptied, "repeated": repeated}
    return PollBallots(options=names, roll=roll, notes=notes, **facts)


def _drop_repeated(block: Block, lines: dict[str | None, int], rule: BallotRule) -> int:
    """Empty the rows of voters whose ballot is on another line; return how many. Or refuse them."""
    pairs = zip(block.voters, block.lines, strict=True)
    other = np.array([v is not None and lines.setdefault(v, row) != row for v, row in pairs], bool)
    if rule.duplicates is None and other.any():
        row = int(other.argmax())
        voter = block.voters[row]
        where = f"lines {lines[voter]} and {block.lines[row]}"
        text = "each person has one ballot; `duplicates=first` or `duplicates=last` counts one"
        sealed = f"the voter is {voter!r}"
        raise BallotError(f"{where} name the same voter: {text}", sealed=sealed)
    block.times[other] = 0
    block.votes[other] = 0
    return int(other.sum())


def gathered(rows: Iterator[Row], options: int) -> Iterator[Block]:
    """Yield rows in blocks, as arrays."""
    while part := list(islice(rows, min(max(1, _CELLS // options), _ROWS))):
        votes = np.zeros((len(part), options), np.int16)
        for index, row in enumerate(part):
            for option, points in row.given:
                if votes[index, option]:
                    raise BallotError(f"line {row.line}: the ballot names an option twice")
                # Beyond any rule either way: a number that does not fit is not cut to one that does
                votes[index, option] = min(points, _MOST_POINTS + 1)
        times = np.array([row.times for row in part], np.int64)
        yield Block([row.line for row in part], [row.voter for row in part], times, votes)


def integer(text: str, what: str, least: int = 0, most: int = MOST) -> int:
    """Return an integer of a file, bounded before it counts or sizes anything.

    The message does not repeat it: in a private file it tells of ballots.
    """
    digits = text.strip().lstrip("0") or "0"
    # Not even converted if it is too long: Python refuses thousands of digits, and is slow before.
    short = text.strip().isdecimal() and len(digits) <= len(str(most))
    if not short or not least <= int(digits) <= most:
        raise BallotError(f"{what} must be an integer from {least} to {most}")
    return int(digits)


# -- what is read

# Heads of columns that name voters, as letters and digits only, the surest first; the last names
# responses. Google, Microsoft, LimeSurvey, SurveyMonkey, Qualtrics and Typeform export them.
_VOTERS = re.compile(
    r"((?:your|work|voter|respondent|recipient|participant|member|user)?(?:email|emailaddress))"
    r"|((?:user|login)(?:name|id)?|token|accesscode|(?:member|student|employee)(?:id|no|number)|"
    r"(?:voter|respondent|participant|person)s?(?:id|name|no|number|code|token)?)"
    r"|(id)|((?:full|your)?name)|((?:response|submission|entry|record)(?:id|no|number)|#)"
)
_ID, _RESPONSE = 3, 5
# Heads of what else such exports have. Others may be options: what stands below tells.
_EXPORT = re.compile(
    r"(?:time|date)stamp|(?:date|time)(?:submitted|started|completed|lastaction)|submittedat|"
    r"(?:start|end|completion|submit|submission|stage|recorded|created|(?:last)?modified)"
    r"(?:date|time)(?:utc)?|lastpage|(?:start|user)language|ipaddr(?:ess)?|(?:collector|network)id|"
    r"(?:recipient)?(?:first|last)name|durationinseconds|distributionchannel|"
    r"location(?:latitude|longitude)|external(?:data)?reference|customdata\d*|"
    r"groupid|n(?:comments|votes|agree|disagree)"  # Polis
)
_NOBODY = ("", "anonymous")  # which Microsoft's forms call everybody without an account
_WEIGHT = re.compile(r"(?:vote|voter)?weights?|wt|weighting")
_ONE = ("option", "choice", "candidate", "project", "approval")  # heads of what is no option
_SEPARATORS = ";|,/\n"  # between the options of a list
_QUOTED = "\"' \t"  # may stand around an option
_LISTED = "that lists the approved options"
_WHOLE: dict[str | None, int] = {"": 0, **{str(points): points for points in range(256)}}
PREFLIB = (".cat", ".soc", ".soi", ".toc", ".toi")
_NAME = re.compile(r"ALTERNATIVE NAME (\d+)")
_GROUP = re.compile(r"\{([\d\s,]*)\}|(\d+)")
_GROUPS = re.compile(r"(?:\{[\d\s,]*\}|\d+)(?:\s*,\s*(?:\{[\d\s,]*\}|\d+))*")
# Sections of a Pabulib file, and the columns that each must have.
_SECTIONS = {"META": ("key",), "PROJECTS": ("project_id",), "VOTES": ("voter_id", "vote")}
# Digits enough for any money, and no exponent that makes a number of a million digits.
_AMOUNT = re.compile(r"\+?(?=\.?\d)\d{0,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?")
_POINTS = ("cumulative", "scoring")
_TYPES = ("approval", "choose-1", *_POINTS, "ordinal")
Options = Sequence[str] | Mapping[str, Sequence[str]] | None


def read(
    source: Any,
    *,
    most: int | None = None,
    each: int | None = None,
    top: int | None = None,
    invalid: str = "error",
    duplicates: str | None = None,
    options: Options = None,
    voter: str | None = None,
    column: str | Sequence[str] | None = None,
    encoding: str | None = None,
) -> PollBallots:
    """Read the ballots of a poll.

    Parameters
    ----------
    source
        A path: ``.csv``, ``.tsv``, ``.txt`` or ``.parquet`` (a spreadsheet's export), PrefLib's
        ``.cat``, ``.soc``, ``.soi``, ``.toc`` and ``.toi``, Pabulib's ``.pb``; or a data frame, a
        mapping of columns or a list of records.
    most, each
        The poll's rule. ``most``: the largest number of approvals on a ballot, or of points in
        total, on each question; default: no limit, or that of a Pabulib file. ``each``: the largest
        number of points for one option; ``each=1`` counts any points as an approval. The rule is
        never taken from the ballots.
    top
        For rankings and categories: how many of the first places (or categories) count as approved;
        default 1.
    invalid
        What to do with a ballot that breaks the rule: ``"error"`` (stop) or ``"empty"`` (count it
        as empty).
    duplicates
        Which row counts where a voter is named twice: ``"first"`` or ``"last"``; default: stop.
    options
        For a table: the columns that are options; default: all but those that form services add.
        Required with ``column`` and for a list of records: an option that only one ballot names
        would reveal that ballot. With several columns one list for all, or a list for each.
    voter
        For a table: the column that names the voters; default: one called "voter", "Email Address",
        "Username", "Token", "ID" or similar. A list of records has none unless it is named.
    column
        For a table: the column that lists the approved options; several are several questions.
    encoding
        Text encoding of the file, e.g. cp1252; default: UTF-8, or as the file declares.
    """
    if each is not None:
        whole("each", each)
    table = {"options": options, "voter": voter, "column": column}
    if isinstance(source, PollBallots):
        arguments = {"most": most, "each": each, "top": top, **table, "encoding": encoding}
        _refuse({**arguments, "duplicates": duplicates}, "applies to a file, not to ballots")
        return source
    points = 1 if each is None else each
    rule = BallotRule(most=most, each=points, invalid=invalid, duplicates=duplicates)
    ending = ""
    if isinstance(source, str | os.PathLike):
        path = check_file(source, "source")
        ending = path.suffix.casefold()
    if ending in (*PREFLIB, ".pb"):  # such a file says these things itself
        _refuse(table, f"applies to a table, not to a {ending} file")
        if ending == ".pb":
            return read_pabulib(path, rule, each, top, encoding)
        _refuse({"duplicates": duplicates}, "needs a file that names the voters")
        return read_preflib(path, rule, top, encoding)
    _refuse({"top": top}, "applies to rankings and categories, not to a table")
    if ending and ending not in tables.TABLES:
        endings = ", ".join((*tables.TABLES, *PREFLIB, ".pb"))
        raise InputError(f"{path.name!r} must end in one of {endings}{tables.as_csv(path.name)}")
    if ending in ("", ".parquet"):
        _refuse({"encoding": encoding}, "applies to a text file")
    return _read_table(source, rule, options, voter, column, encoding)


def _refuse(given: dict[str, Any], rule: str) -> None:
    """Refuse what is not kept here: it must not look as if it were."""
    for name, value in given.items():
        if value is not None:
            raise InputError(name, rule, value)


# -- tables ----------------------------------------------------------------------------------------


def _read_table(
    source: Any, rule: BallotRule, options: Options, voter: str | None, column: Any, encoding: Any
) -> PollBallots:
    questions = [column] if isinstance(column, str) else list(column or ())
    named = _named_options(options, questions)
    if not named and tables.is_records(source):
        text = "must be given for a list of records: which keys its ballots have is private"
        raise InputError("options", text)
    columns = questions or named.get("", [])
    keys = columns if voter is None else [voter, *columns]
    table = tables.open_table(source, "source", columns=keys, encoding=encoding, ballots=True)
    who, roll = _voter_column(table, voter, columns)
    if who is None:
        _refuse({"duplicates": rule.duplicates}, "needs a column that names the voters")
    weights = [h for h in table.header if _WEIGHT.fullmatch(_letters(h)) and h not in columns]
    if weights:
        text = f"the column {weights[0]!r} would give ballots a weight: remove it"
        raise BallotError(f"each ballot of a poll counts once, and {text}")
    notes: tuple[str, ...] = ("An empty cell counts as no; an empty ballot approves nothing.",)
    if {"participant", "ndisagree"} <= {_letters(head) for head in table.header}:
        notes = ("As Polis exports it: 1 agrees; a pass, -1 (disagrees) and an empty cell are no.",)
    if not questions:
        places, skipped = _option_columns(table, who, columns)
        names = [table.header[index] for index in places]
        notes += (f"Not counted as options: {skipped}.",) if skipped else ()
        return counted(names, partial(_marked, table, who, places, rule), rule, roll, notes)
    if rule.each != 1:
        raise InputError("each", "must be 1: lists of options have no points", rule.each)
    several = len(questions) > 1
    leads = [f"{question}: " if several else "" for question in questions]
    pairs = zip(leads, questions, strict=True)
    names = [lead + name for lead, question in pairs for name in named[question]]
    sizes = {question: len(named[question]) for question in questions} if several else {}
    places = [_place(table, question, "column") for question in questions]
    blocks = partial(_lists, table, who, places, [named[question] for question in questions])
    return counted(names, blocks, rule, roll, notes, questions=sizes)


def _named_options(options: Options, questions: list[str]) -> dict[str, list[str]]:
    """Return the options of each question, or of "" where columns are options; empty without."""
    if isinstance(options, str):
        raise InputError("options", "must be a list of names, not one text", options)
    if len(set(questions)) < len(questions):
        raise InputError("column", "must name a column once", questions)
    if options is None and questions:
        rule = "are required with `column`: an option that only one ballot names would reveal it"
        raise InputError("options", rule)
    if not isinstance(options, Mapping):
        options = {} if options is None else dict.fromkeys(questions or [""], options)
    elif set(options) != set(questions):
        raise InputError("options", "must have a list for every `column`, and for no other")
    named = {question: [name_of(name) for name in names] for question, names in options.items()}
    if not all(names and all(names) for names in named.values()):
        raise InputError("options", "must be names")
    return named


def _letters(head: str) -> str:
    """Return a head as the patterns above have it."""
    return "".join(filter(str.isalnum, folded(head))) or head.strip()


def _place(table: tables.RawTable, name: str, argument: str) -> int:
    """Return where a column stands."""
    if name not in table.header:
        said, sealed = tables.columns_in_words(table.header)
        rule = f"must be a column of the table, and {name!r:.60} is not; it has {said}"
        raise BallotError(argument, rule, sealed=sealed)
    return table.header.index(name)


def _voter_column(
    table: tables.RawTable, voter: str | None, taken: list[str]
) -> tuple[int | None, str | None]:
    """Return where voters are named, and the head of that column unless it numbers responses."""
    if voter is not None:
        index = _place(table, voter, "voter")
        kind = _VOTERS.fullmatch(_letters(voter))
        return index, None if kind and kind.lastindex == _RESPONSE else voter
    kinds = {head: _VOTERS.fullmatch(_letters(head)) for head in table.header if head not in taken}
    ranks = {head: kind.lastindex or 0 for head, kind in kinds.items() if kind}
    if not ranks:
        return None, None
    best = min(ranks, key=ranks.__getitem__)
    # Beside times an "ID" is a form's own, which numbers responses.
    form = any(_EXPORT.fullmatch(_letters(head)) for head in table.header)
    responses = ranks[best] == _RESPONSE or (form and ranks[best] == _ID)
    return table.header.index(best), None if responses else best


def _option_columns(
    table: tables.RawTable, voter: int | None, wanted: list[str]
) -> tuple[list[int], str]:
    """Return where the options stand, and which columns that form services add are left out."""
    if wanted:
        return [_place(table, name, "options") for name in wanted], ""
    heads = dict(enumerate(table.header))
    letters = {index: _letters(head) for index, head in heads.items() if index != voter}
    added = [index for index, k in letters.items() if _EXPORT.fullmatch(k) or _VOTERS.fullmatch(k)]
    places = [index for index in letters if index not in added]
    # Of a row an approval, such as voter, option, points, its heads would be taken for options.
    if len(places) < 2 or heads[places[0]].casefold() in _ONE:
        raise BallotError("column", f"must name the column {_LISTED}, and `options` must list them")
    for index in places:
        if not heads[index]:
            raise InputError(f"line 1: column {index + 1} has no name; or list the `options`")
    says = YesNo()
    if all(says[heads[index]] != ODD for index in places[1:]):
        text = "must be a header with the options' names, not a ballot, e.g. voter,Ada,Bo"
        raise InputError(f"line 1: {text}")
    return places, ", ".join(repr(heads[index]) for index in added)


def _marked(
    table: tables.RawTable, voter: int | None, places: list[int], rule: BallotRule
) -> Iterator[Block]:
    """Yield ballots with a column an option: yes or no, or points."""
    says, marks = YesNo(), np.empty((len(table), len(places)), np.int16)
    for index, place in enumerate(places):
        cells = table.cells[place].tolist()
        points = [] if rule.each == 1 else [_WHOLE.get(_text(cell), ODD) for cell in cells]
        marks[:, index] = says.read(cells) if rule.each == 1 else points
    odd = np.argwhere(marks == ODD)
    if len(odd):
        row, index = odd[0]
        what = "yes or no (1/0, x, true/false)" if rule.each == 1 else "integer points"
        text = f"a cell is not {what}. Name the `options`, the `voter`, or the `column` {_LISTED}"
        sealed = f"the cell is {shown(table.cells[places[index]][row])}"
        raise BallotError(f"{table.at(row)}: {text}", sealed=sealed)
    votes = np.maximum(marks, 0)  # a gap is a no
    yield Block(table.places.tolist(), _voters(table, voter), np.ones_like(table.places), votes)


def _voters(table: tables.RawTable, voter: int | None) -> Sequence[str | None]:
    if voter is None:
        return [None] * len(table)
    names = [folded(_text(cell) or "") for cell in table.cells[voter]]
    for row, name in enumerate(names):
        if name in _NOBODY:
            text = "the voter must have a name, a text or an integer below 2^53; or name another"
            raise BallotError(f"{table.at(row)}: {text} column as `voter`")
    return names


def _text(cell: Any) -> str | None:
    """Return what stands in a cell; None where that is no name: a list, a bool, a huge number."""
    try:
        return name_of(cell)
    except (TypeError, InputError):
        return None


def _lists(
    table: tables.RawTable, voter: int | None, places: list[int], options: list[list[str]]
) -> Iterator[Block]:
    """Yield ballots whose options stand in a column, or in one for each question."""
    starts = np.cumsum([0, *map(len, options)]).tolist()
    indices = [
        {folded(name.strip(_QUOTED)): start + index for index, name in enumerate(names)}
        for start, names in zip(starts, options, strict=False)
    ]
    if sum(map(len, indices)) < starts[-1]:
        raise InputError("options", "must differ in more than spaces and case")

    def ballots() -> Iterator[Row]:
        columns = (table.cells[place] for place in places)
        for row, (name, *ballot) in enumerate(zip(_voters(table, voter), *columns, strict=True)):
            listed = [_listed(cell, here) for cell, here in zip(ballot, indices, strict=True)]
            if None in listed:
                text = "the ballot names something that is not among the `options`"
                sealed = f"the cell is {shown(ballot[listed.index(None)])}"
                raise BallotError(f"{table.at(row)}: {text}", sealed=sealed)
            approved = [(option, 1) for part in listed for option in part or ()]
            yield Row(int(table.places[row]), name, 1, approved)

    return gathered(ballots(), starts[-1])


def _listed(cell: Any, at: dict[str, int]) -> list[int] | None:
    """Return the options of a list, by whichever separator leaves only options; None without."""
    text = _text(cell)
    if text is None:
        several = isinstance(cell, Sequence | Set | np.ndarray)
        options = [at.get(folded(_text(part) or ""), -1) for part in cell] if several else [-1]
        return None if -1 in options else options
    for mark in ("", *(mark for mark in _SEPARATORS if mark in text)):
        parts = text.split(mark) if mark else [text]
        # Options from each part on: an option may hold the mark, and the longest counts.
        rest: dict[int, list[int]] = {len(parts): []}
        longest = 1 + max(name.count(mark) for name in at) if mark else 1
        for start in reversed(range(len(parts))):
            for end in range(min(start + longest, len(parts)), start, -1):
                name = folded(mark.join(parts[start:end]).strip(_QUOTED))
                if end in rest and (name in at or not name):
                    rest[start] = [at[name], *rest[end]] if name else rest[end]
                    break
        if 0 in rest:
            return rest[0]
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
    if rule.each != 1:
        raise InputError("each", "must be 1: PrefLib's ballots have no points", rule.each)
    if rule.most is None and kind in ("soc", "soi"):
        rule = replace(rule, most=min(places, len(names)))  # by the reading, on any ballot
    what = "categories" if kind == "cat" else "places"
    first = f"its first {places} {what}" if places > 1 else f"the first of its {what}"
    notes = (
        f"A ballot approves the options in {first}.",
        "A line that starts with 13 stands for thirteen voters.",
    )

    rows = partial(_preflib_rows, path, encoding, len(names), places)
    ballots = counted(names, lambda: gathered(rows(), len(names)), rule, None, notes, meta=meta)
    _check_declared(meta, {"NUMBER VOTERS": ballots.voters})
    return ballots


def _head(path: Path, encoding: str | None) -> tuple[dict[str, str], list[str]]:
    meta, names = dict[str, str](), dict[int, str]()
    for line in takewhile(lambda line: line.startswith("#"), tables.lines(path, encoding)):
        key, _, value = line[1:].strip().partition(":")
        match = _NAME.fullmatch(key.strip())
        if match:
            names[integer(match[1], "the number of an ALTERNATIVE NAME")] = value.strip()
        else:
            meta[key.strip()] = value.strip()
    stated = meta.get("NUMBER ALTERNATIVES", "")
    number = integer(stated, "NUMBER ALTERNATIVES", 1) if stated else None
    # So many different numbers from 1 on: no list is made as long as the file says.
    if len(names) != number or (min(names), max(names)) != (1, number):
        text = f"must name each of NUMBER ALTERNATIVES, {number or 'absent'}"
        raise InputError(f"the header {text}; it says {number} and names {len(names)}")
    places = sorted(names)
    return meta, _told_apart([names[index] for index in places], places)


def _told_apart(names: Sequence[str], marks: Sequence[object]) -> list[str]:
    """Return the names; those that several options share with what tells them apart."""
    times, pairs = Counter(names), zip(names, marks, strict=True)
    return [name if times[name] == 1 else f"{name} [{mark}]" for name, mark in pairs]


def _check_declared(meta: Mapping[str, str], counts: Mapping[str, int]) -> None:
    """Refuse a file that has another number of something than its own head says."""
    for key, count in counts.items():
        stated = meta.get(key, "")
        number = integer(stated, key) if stated.isdecimal() else count
        if number != count:
            raise BallotError(f"the file declares {key} {number} but has {count}")


def _preflib_rows(path: Path, encoding: str | None, options: int, top: int) -> Iterator[Row]:
    for number, line in enumerate(tables.lines(path, encoding), 1):
        if line.startswith("#") or not line.strip():
            continue
        voters, _, ballot = line.partition(":")
        if not voters.strip().isdecimal() or not _GROUPS.fullmatch(ballot.strip()):
            text = "must be a number of voters, a colon and options: 13: {1,2},3"
            raise BallotError(f"line {number}: {text}")
        where = f"line {number}: an option"
        groups = [
            [integer(part, where, 1, options) for part in group.split(",") if part.strip()]
            for group in map("".join, _GROUP.findall(ballot))
        ]
        every = [option for group in groups for option in group]
        if len(set(every)) < len(every):
            raise BallotError(f"line {number}: the ballot names an option twice")
        approved = [(option - 1, 1) for group in groups[:top] for option in group]
        yield Row(number, None, integer(voters, f"line {number}: the voters"), approved)


# -- Pabulib ---------------------------------------------------------------------------------------


def read_pabulib(
    path: Path, rule: BallotRule, each: int | None, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of Pabulib's files; see :func:`privote.polls.read`.

    ``each`` is the argument: None takes points as the file's rule has them.
    """
    # All rows up to the votes before any is read: without that section a row may be a ballot.
    head = list(takewhile(lambda row: row[0] != "VOTES", _pabulib_rows(path, encoding)))
    meta = {row["key"]: row.get("value", "").strip() for part, _, row in head if part == "META"}
    kind = meta.get("vote_type", "")
    if kind not in _TYPES:
        raise UnavailableError("vote_type", f"must be one of {', '.join(_TYPES)}", kind)
    listed = [(line, row) for section, line, row in head if section == "PROJECTS"]
    ids = [row["project_id"] for _, row in listed]
    places = {project: index for index, project in enumerate(ids)}
    if len(places) < len(ids):
        raise InputError(f"the project {shown(Counter(ids).most_common(1)[0][0])} is listed twice")
    rule, note = _pabulib_rule(meta, len(ids), kind, rule, each, top)
    costs = [_amount(row.get("cost"), f"line {line}: cost") for line, row in listed]

    def rows() -> Iterator[Row]:
        for section, line, row in _pabulib_rows(path, encoding):
            if section == "VOTES":
                yield _pabulib_ballot(line, row, places, rule, kind)

    ballots = counted(
        _told_apart([row.get("name", "").strip() or row["project_id"] for _, row in listed], ids),
        lambda: gathered(rows(), len(places)),
        rule,
        "voter_id",
        (note,),
        meta=meta,
        costs=None if None in costs else tuple(costs),
        money=_amount(meta.get("budget"), "budget"),
    )
    votes = ballots.voters + ballots.repeated
    _check_declared(meta, {"num_votes": votes, "num_projects": len(places)})
    return ballots


def _pabulib_rule(
    meta: Mapping[str, str],
    options: int,
    kind: str,
    rule: BallotRule,
    each: int | None,
    top: int | None,
) -> tuple[BallotRule, str]:
    """Return the poll's rule as the file's own settings have it, where none was given."""

    def number(key: str) -> int | None:
        return integer(meta[key], key, 1) if meta.get(key) else None

    most, note = rule.most, "Ballots give points."
    if kind == "ordinal":
        most = min(1 if top is None else whole("top", top), options)
        note = f"A ballot approves its first {most} places."
    elif kind not in _POINTS:
        longest = 1 if kind == "choose-1" else number("max_length")
        most = most or longest
        limit = "without a limit" if most is None else f"at most {most}"
        note = f"A ballot approves projects, {limit}."
    else:
        total = number("max_sum_points")
        if each is None:
            each = number("max_points") or total
            if each is None:
                raise InputError("each", "must be given: the file has no max_points")
            most, note = most or total, f"Ballots give points, at most {each} to a project."
        elif each == 1:
            note = "Any number of points counts as an approval."
            if total is not None:
                most = most or min(total, options)  # an approval takes a point at least
        rule = replace(rule, each=each)
    return replace(rule, most=most), note


def _pabulib_ballot(
    line: int, row: dict[str, str], places: dict[str, int], rule: BallotRule, kind: str
) -> Row:
    projects = [part.strip() for part in row["vote"].split(",") if part.strip()]
    options = [places.get(project, -1) for project in projects]
    if -1 in options:
        sealed = f"it is {projects[options.index(-1)]!r}"
        raise BallotError(f"line {line}: names a project that is not listed", sealed=sealed)
    if len(set(options)) < len(options):
        raise BallotError(f"line {line}: the ballot names a project twice")
    points = [1] * len(options)
    if kind in _POINTS:
        texts = [part.strip() for part in row.get("points", "").split(",") if part.strip()]
        if len(texts) != len(options):
            raise BallotError(f"line {line}: needs integer points, one per project named")
        points = [integer(text, f"line {line}: points") for text in texts]
        if rule.each == 1:
            points = [min(value, 1) for value in points]
    approved = list(zip(options, points, strict=True))
    return Row(
        line, folded(row["voter_id"]), 1, approved[: rule.most if kind == "ordinal" else None]
    )


def _pabulib_rows(path: Path, encoding: str | None) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield the rows of a file by the names of their columns, each with its section and line."""
    text = tables.lines(path, encoding)
    first, second = next(text, "").strip(), next(text, "")
    if first.strip(";,") != "META":
        raise InputError("line 1: must be META in a Pabulib file")
    section, header = "", list[str]()
    missing = dict(_SECTIONS)
    for line, record in tables.cells(tables.lines(path, encoding), tables.delimiter_of(second)):
        if record[0].strip() in _SECTIONS and not any(cell.strip() for cell in record[1:]):
            section, header = record[0].strip(), []
        elif not header:
            header = [name.strip() for name in record]
            for name in missing.pop(section, ()):
                if name not in header:
                    raise InputError(f"line {line}: {section} needs a column {name!r}")
        elif len(record) > len(header):
            rule = f"has {len(record)} cells, and the header has {len(header)}"
            raise InputError(f"line {line}: {rule}")
        else:
            row = dict(zip(header, record, strict=False))
            for name in _SECTIONS[section]:
                row[name] = row.get(name, "").strip()
                if not row[name] and (name != "vote" or len(record) <= header.index(name)):
                    raise InputError(f"line {line}: has no {name}")
            yield section, line, row
    if missing:
        raise InputError(f"a Pabulib file needs a section {min(missing)}")


def _amount(text: str | None, what: str) -> Fraction | None:
    plain = (text or "").strip().replace(" ", "").replace(",", ".")
    if not plain:
        return None
    if not _AMOUNT.fullmatch(plain):
        raise InputError(f"{what} must be an amount of money, got {shown(text)}")
    return Fraction(plain)
