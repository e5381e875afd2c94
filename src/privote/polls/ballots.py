"""Ballots of people on one question: a file's lines, checked against the poll's rule and counted.

A file is read in blocks of lines; only counts are kept, and the names of voters while it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, shown, whole
from ..mechanisms.outcomes import PollSize, PollTally
from ..votes.cube import MOST

_CELLS = 1 << 22  # of a block: 8 MB
_ROWS = 1 << 14  # of a block, which are objects before they are an array
_MOST_POINTS = np.iinfo(np.int16).max - 1  # what a ballot has beyond is stored as one more
INVALID = ("error", "empty")


class Row(NamedTuple):
    """One line of a file: so many voters with the same ballot, the options it names and points."""

    line: int
    voter: str | None
    times: int
    given: Sequence[tuple[int, int]]


class Block(NamedTuple):
    """Some lines: where they stand, names, voters each stands for, points (rows, options)."""

    lines: Sequence[int]
    voters: Sequence[str | None]
    times: npt.NDArray[np.int64]
    votes: npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True)
class BallotRule:
    """What a ballot may hold, and what becomes of one that holds more.

    Attributes
    ----------
    most
        Approvals, or points in total; None if the poll has no such rule.
    each
        Points for one option; 1 for approvals.
    invalid
        ``"error"``: refuse the file and name the line. ``"empty"``: count it as an empty ballot;
        its voter still counts, so that the number of voters stays public.
    """

    most: int | None = None
    each: int = 1
    invalid: str = "error"

    def __post_init__(self) -> None:
        if self.most is not None:
            object.__setattr__(self, "most", whole("most", self.most))
        object.__setattr__(self, "each", whole("each", self.each, most=_MOST_POINTS))
        if self.invalid not in INVALID:
            raise InputError("invalid", f"must be one of {', '.join(INVALID)}", self.invalid)

    def kept(self, block: Block) -> npt.NDArray[np.bool_]:
        """Return which ballots of a block are within the rule; refuse the others if told so."""
        over = (block.votes > self.each).any(axis=1)
        if self.most is not None:
            over |= block.votes.sum(axis=1, dtype=np.int64) > self.most
        if over.any() and self.invalid == "error":
            unit = "approvals" if self.each == 1 else "points in total"
            limit = "" if self.most is None else f"{self.most} {unit}"
            if self.each > 1:
                limit += f"{' and ' if limit else ''}{self.each} points per option"
            line = block.lines[int(np.flatnonzero(over)[0])]
            raise BallotError(
                f"line {line}: the ballot breaks the poll's rule of at most {limit}; give "
                "`invalid=empty` to count such ballots as empty"
            )
        return np.asarray(~over)


@dataclass(frozen=True, kw_only=True, eq=False)
class PollBallots:
    """What :func:`privote.polls.read` returns. Ballots and counts are private.

    Attributes
    ----------
    options
        Their names, in the file's order.
    rule
        What a ballot may hold, by the poll's rule.
    tally
        The true counts. Sealed.
    emptied
        How many ballots broke the rule and count as empty. Sealed.
    costs, money
        What options cost and what there is to spend; None in a poll without.
    notes
        How the file was read, in sentences: what is public about it.
    meta
        What the file says about itself, by key.
    """

    options: tuple[str, ...]
    rule: BallotRule
    tally: PollTally = field(repr=False)
    emptied: int = field(default=0, repr=False)
    costs: tuple[Fraction, ...] | None = field(default=None, repr=False)
    money: Fraction | None = None
    notes: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def voters(self) -> int:
        """How many, those with an empty ballot included: a public number."""
        return self.tally.voters

    @property
    def size(self) -> PollSize:
        """The public numbers."""
        most = self.rule.most or self.rule.each * len(self.options)
        return PollSize(
            voters=self.voters, options=len(self.options), most=most, each=self.rule.each
        )


def counted(
    options: Sequence[str], blocks: Iterable[Block], rule: BallotRule, **facts: Any
) -> PollBallots:
    """Count ballots, checking each, and that no voter is named twice."""
    names = tuple(options)
    if len(names) < 2:
        raise InputError("a poll needs at least 2 options, got " + str(len(names)))
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"the option {shown(twice[0])} is named twice")
    first: dict[str, int] = {}
    voters, emptied = 0, 0
    counts = np.zeros(len(names), np.int64)
    for block in blocks:
        voters += int(block.times.sum())
        if voters > MOST:  # before anything is multiplied by it
            raise BallotError(f"a poll must have at most {MOST:,} voters")
        _check_once(block, first)
        kept = rule.kept(block)
        emptied += int(block.times[~kept].sum())
        block.votes[~kept] = 0
        counts += block.times @ block.votes.astype(np.int64)
    if not voters:
        raise BallotError("there are no ballots")
    tally = PollTally(voters, counts)
    return PollBallots(options=names, rule=rule, tally=tally, emptied=emptied, **facts)


def _check_once(block: Block, first: dict[str, int]) -> None:
    """Refuse a voter who is named twice; ``first`` has the line of everybody named so far."""
    for line, voter in zip(block.lines, block.voters, strict=True):
        if voter is not None and first.setdefault(voter, line) != line:
            raise BallotError(
                f"lines {first[voter]} and {line} name the same voter: each person has one ballot",
                sealed=f"the voter is {voter!r}",
            )


def gathered(rows: Iterator[Row], options: int) -> Iterator[Block]:
    """Yield rows in blocks, as arrays."""
    while part := list(islice(rows, min(max(1, _CELLS // options), _ROWS))):
        votes = np.zeros((len(part), options), np.int16)
        for place, row in enumerate(part):
            for option, points in row.given:
                if votes[place, option]:
                    raise BallotError(f"line {row.line}: the ballot names an option twice")
                # Beyond any rule either way: a number that does not fit is not cut to one that does
                votes[place, option] = min(points, _MOST_POINTS + 1)
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
