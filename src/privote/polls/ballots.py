"""Ballots of people on one question: a file's lines, checked against the poll's rule and counted.

A file is read row by row; only counts are kept. Whoever needs the ballots themselves reads the file
again, in blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BallotError, InputError, MissingExtraError, UnavailableError, shown, whole
from ..mechanisms.outcomes import PollSize, PollTally
from ..votes.cube import MOST, Ballots, BallotSource

_CELLS = 1 << 22  # of a block: 8 MB
_ROWS = 1 << 14  # of a block, which are objects before they are an array
_MOST_POINTS = np.iinfo(np.int16).max - 1  # what a ballot has beyond is stored as one more
_MOST_VOTES = 1 << 31  # that are laid out one by one: 2 GB
INVALID = ("error", "empty")


class Row(NamedTuple):
    """One line of a file: so many voters with the same ballot.

    ``given`` is a byte for every option, or the options it names with their points.
    """

    line: int
    voter: str | None
    times: int
    given: bytes | Sequence[tuple[int, int]]


class Block(NamedTuple):
    """Some lines as arrays: line numbers, voters each stands for, points (rows, options)."""

    lines: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    votes: npt.NDArray[np.int16]


@dataclass(frozen=True, kw_only=True)
class BallotRule:
    """What a ballot may hold, and what becomes of one that holds more.

    Attributes
    ----------
    most
        Approvals, or points in all; None if the poll has no such rule.
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
            unit = "approvals" if self.each == 1 else "points in all"
            limit = "" if self.most is None else f"{self.most} {unit}"
            if self.each > 1:
                limit += f"{' and ' if limit else ''}{self.each} points an option"
            raise BallotError(
                f"line {block.lines[over][0]}: the ballot breaks the poll's rule of at most "
                f"{limit}; or give `invalid=empty`, and such ballots count as empty"
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
    rows: Callable[[], Iterable[Row]] = field(repr=False)

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

    def blocks(self) -> Iterator[Block]:
        """Read the ballots again, in blocks; those that broke the rule are empty."""
        for block in _blocks(self.rows(), len(self.options)):
            block.votes[~self.rule.kept(block)] = 0
            yield block

    def votes(self) -> BallotSource:
        """Return the ballots as every other part of privote takes them: (1, voters, options)."""
        if self.rule.each > 1:
            raise UnavailableError("votes are yes or no, and this poll has points")
        self._check_each()
        parts = [np.repeat(block.votes, block.times, axis=0) for block in self.blocks()]
        return Ballots.of(np.concatenate(parts).astype(bool)[None])

    def _check_each(self) -> None:
        """Refuse to lay out ballots one by one where a line may stand for millions of voters."""
        if self.voters * len(self.options) > _MOST_VOTES:
            raise UnavailableError(
                f"{self.voters:,} ballots on {len(self.options):,} options are too many to hold "
                "one by one"
            )

    def profile(self) -> Any:
        """Return the ballots as an abcvoting Profile, if abcvoting is installed."""
        try:
            preferences: Any = import_module("abcvoting.preferences")
        except ImportError as error:
            raise MissingExtraError(
                "an abcvoting profile needs abcvoting: pip install abcvoting"
            ) from error
        self._check_each()
        made = preferences.Profile(len(self.options), cand_names=list(self.options))
        for block in self.blocks():
            for times, row in zip(block.times.tolist(), block.votes, strict=True):
                made.add_voters([np.flatnonzero(row).tolist()] * times)
        return made


def from_profile(profile: Any, *, most: int | None = None) -> PollBallots:
    """Return the ballots of an abcvoting profile, or of anything like it.

    It iterates over voters, each with ``approved`` (numbers of candidates) and maybe ``weight``,
    and has ``num_cand`` and ``cand_names``. A weight other than 1 is no voter.
    """
    names = tuple(str(name) for name in profile.cand_names)[: profile.num_cand]

    def rows() -> Iterator[Row]:
        for place, voter in enumerate(profile, 1):
            if getattr(voter, "weight", 1) != 1:
                raise BallotError(f"voter {place}: a weight other than 1 stands for no person")
            yield Row(place, None, 1, [(int(option), 1) for option in sorted(voter.approved)])

    return counted(names, rows, BallotRule(most=most))


def counted(
    options: Sequence[str],
    rows: Callable[[], Iterable[Row]],
    rule: BallotRule,
    **facts: Any,
) -> PollBallots:
    """Count the rows of a file, checking each ballot and that no voter is named twice."""
    names = tuple(options)
    if len(names) < 2:
        raise InputError("a poll needs at least 2 options, got " + str(len(names)))
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"the option {shown(twice[0])} is named twice")
    seen = _Names()
    voters, emptied = 0, 0
    counts = np.zeros(len(names), np.int64)
    for block in _blocks(seen.watched(rows()), len(names)):
        voters += int(block.times.sum())
        if voters > MOST:  # before anything is multiplied by it
            raise BallotError(f"a poll must have at most {MOST:,} voters")
        kept = rule.kept(block)
        emptied += int(block.times[~kept].sum())
        block.votes[~kept] = 0
        counts += block.times @ block.votes.astype(np.int64)
    if not voters:
        raise BallotError("there is not one ballot")
    seen.check(rows)
    tally = PollTally(voters, counts)
    return PollBallots(options=names, rule=rule, tally=tally, emptied=emptied, rows=rows, **facts)


def _blocks(rows: Iterable[Row], options: int) -> Iterator[Block]:
    """Gather rows into arrays."""
    most = min(max(1, _CELLS // options), _ROWS)
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == most:
            yield _block(part, options)
            part = []
    if part:
        yield _block(part, options)


def _block(rows: Sequence[Row], options: int) -> Block:
    if isinstance(rows[0].given, bytes):
        joined = b"".join(row.given for row in rows if isinstance(row.given, bytes))
        votes = np.frombuffer(joined, np.uint8).reshape(len(rows), options).astype(np.int16)
    else:
        votes = np.zeros((len(rows), options), np.int16)
        for place, row in enumerate(rows):
            assert not isinstance(row.given, bytes)
            for option, points in row.given:
                if votes[place, option]:
                    raise BallotError(f"line {row.line}: the ballot names an option twice")
                # Beyond any rule either way: a number that does not fit is not cut to one that does
                votes[place, option] = min(points, _MOST_POINTS + 1)
    return Block(
        np.array([row.line for row in rows], np.int64),
        np.array([row.times for row in rows], np.int64),
        votes,
    )


class _Names:
    """Finds a voter who is named twice, with eight bytes a voter."""

    def __init__(self) -> None:
        self.hashes: list[npt.NDArray[np.int64]] = []

    def watched(self, rows: Iterable[Row]) -> Iterator[Row]:
        part: list[int] = []
        for row in rows:
            if row.voter is not None:
                part.append(hash(row.voter))
                if len(part) == 1 << 16:
                    self.hashes.append(np.array(part, np.int64))
                    part = []
            yield row
        self.hashes.append(np.array(part, np.int64))

    def check(self, rows: Callable[[], Iterable[Row]]) -> None:
        values, times = np.unique(np.concatenate(self.hashes), return_counts=True)
        again = set(values[times > 1].tolist())
        if not again:
            return
        first: dict[str, int] = {}
        for row in rows():  # hashes may agree by chance: only names count
            if row.voter is not None and hash(row.voter) in again:
                if row.voter in first:
                    raise BallotError(
                        f"lines {first[row.voter]} and {row.line} name the same voter: a person "
                        "has one ballot",
                        sealed=f"the voter is {row.voter!r}",
                    )
                first[row.voter] = row.line


def integer(text: str, what: str, least: int = 0, most: int = MOST) -> int:
    """Return an integer of a file, bounded before it counts or sizes anything.

    The message does not repeat it: in a private file it tells of ballots.
    """
    digits = text.strip().lstrip("0") or "0"
    # Not even converted if it is too long: Python refuses thousands of digits, and is slow before.
    short = text.strip().isdecimal() and len(digits) <= len(str(most))
    if not short or not least <= int(digits) <= most:
        raise BallotError(f"{what} must be a whole number from {least} to {most}")
    return int(digits)
