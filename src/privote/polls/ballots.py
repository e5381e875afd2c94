"""Ballots of people on one question or several: lines, checked against the poll's rule and counted.

A file is read in blocks of lines; only counts are kept, and the names of voters while it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, shown, whole
from ..votes.cube import MOST
from .outcomes import PollSize, Whole

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
        raise BallotError(
            f"lines {lines[voter]} and {block.lines[row]} name the same voter: each person has one "
            "ballot; give `duplicates=first` or `duplicates=last` to count one of them",
            sealed=f"the voter is {voter!r}",
        )
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
