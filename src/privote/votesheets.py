"""Votes in sheets: CSV files and data frames, as people have them.

One row a ballot: columns ``query`` and ``voter``, then one column a label. One row a vote: columns
``query``, ``voter``, ``label`` and ``vote``. One row a yes: ``query``, ``voter``, ``label``; a row
without a label is a ballot without a yes. Without the column ``query`` there is one query, and
then a row is a voter and a column is a label; voters may be named in the column ``voter`` or in
the first one. An empty cell is a missing vote, and so is a ballot without a row.

Queries, voters and labels come in the order of their names, so the order of the rows says nothing.
Which there are is public: a query, or a label of rows, that only one voter names would tell what
this voter said, and is refused unless a row without a voter lists it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrayfiles import check_unpacked
from .ballots import Ballots, Threshold, check_threshold
from .blocks import MISSING
from .errors import BallotError, PrivoteWarning, shown
from .names import Names, in_order
from .sheets import ODD, VOTE_WORDS, Sheet, YesNo, columns_in_words, is_gap, name_of

Ints = npt.NDArray[np.int64]
Cells = npt.NDArray[Any]

_VOTE = f"must be a vote: {VOTE_WORDS} (missing)"
_CHANCE = "must be a probability from 0 to 1, or empty (missing)"
# How people head a column of names where a row is a voter.
_HEADS = ("", "voter", "voters", "name", "id", "person", "teacher", "participant", "respondent")


def of_sheet(sheet: Sheet, threshold: Threshold = None) -> Ballots:
    """Return the votes of a sheet as checked ballots, with their names."""
    votes, names = cube_of(sheet, soft=threshold is not None)
    if threshold is not None:
        bar = check_threshold(threshold, votes.shape[2])
        votes = np.where(np.isnan(votes), MISSING, votes >= bar).astype(np.int8)
    # An empty cell could stand anywhere, so a neighbour's vote may be missing whether or not one is
    return Ballots.from_array(votes, may_be_missing=True).named(names, sheet.name)


def cube_of(sheet: Sheet, *, soft: bool) -> tuple[Cells, Names]:
    """Return votes, or with ``soft`` probabilities, as (queries, voters, labels), and the names.

    A missing vote is -1, a missing probability NaN.
    """
    rows = _Rows.of(sheet, _Form.of(sheet), soft)
    return rows.cube()


@dataclass(frozen=True)
class _Form:
    """Which column is what; places in the header, None for a column that is not there."""

    query: int | None
    voter: int | None
    label: int | None
    vote: int | None
    votes: tuple[int, ...]

    @classmethod
    def of(cls, sheet: Sheet) -> _Form:
        known = {name.lower(): place for place, name in enumerate(sheet.header)}
        query, voter, label = (known.get(name) for name in ("query", "voter", "label"))
        if query is not None and voter is None:
            raise _misnamed(
                sheet, "has a column 'query' and must then have a column 'voter'; it has"
            )
        others = [p for p in range(len(sheet.header)) if p not in (query, voter, label)]
        if voter is not None and label is not None:
            vote = known.get("vote")
            if others not in ([], [vote]):
                raise _misnamed(
                    sheet,
                    "has a column 'label', so a row is one vote and the columns are query, voter, "
                    "label and vote; it has",
                )
            return cls(query, voter, label, vote, () if vote is None else (vote,))
        if label is not None:
            others = sorted([*others, label])
        if voter is None and others and _names_voters(sheet):
            voter = others.pop(0)
        if not others:
            raise _misnamed(sheet, "must have one column a label, it has")
        says = YesNo()
        if sheet.unit == "line" and all(says[sheet.header[place]] != ODD for place in others):
            warnings.warn(
                f"{sheet.name}: the first line is taken for a header, and reads like a ballot: it "
                "must name the labels",
                PrivoteWarning,
                stacklevel=2,
            )
        return cls(query, voter, None, None, tuple(others))


def _names_voters(sheet: Sheet) -> bool:
    """Return whether the first column names voters: by its head, or as nothing in it is a vote."""
    if len(sheet.header) < 2 or sheet.header[0].lower() in _HEADS:
        return len(sheet.header) > 1
    says = YesNo()
    return all(
        says[cell] == ODD and not _is_number(cell)
        for _, columns in sheet.blocks()
        for cell in columns[0]
    )


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
    form: _Form
    places: Ints
    queries: tuple[Ints, list[str]]
    voters: tuple[Ints, list[str]]
    labels: tuple[Ints, list[str]] | None
    votes: Cells  # (rows, labels); one column where a row is one vote

    @classmethod
    def of(cls, sheet: Sheet, form: _Form, soft: bool) -> _Rows:
        query, voter, label = _Index(), _Index(), _Index()
        parts: list[tuple[Any, ...]] = []
        says = YesNo()
        for places, columns in sheet.blocks():
            size = len(places)
            votes = np.ones((size, max(1, len(form.votes))), np.float64 if soft else np.int8)
            for at, place in enumerate(form.votes):
                column = columns[place]
                votes[:, at] = said = _chances(column) if soft else _words(column, says)
                odd = (said < 0) | (said > 1) if soft else said == ODD
                if odd.any():
                    row = int(np.flatnonzero(odd)[0])
                    raise _odd_cell(sheet, places[row], sheet.header[place], column[row], soft)
            index = np.arange(size) + sum(len(part[0]) for part in parts)
            parts.append(
                (
                    np.array(places, np.int64),
                    np.zeros(size, np.int64)
                    if form.query is None
                    else _read(query, columns, form.query),
                    index if form.voter is None else _read(voter, columns, form.voter),
                    np.zeros(0, np.int64)
                    if form.label is None
                    else _read(label, columns, form.label),
                    votes,
                )
            )
        if not parts:
            raise BallotError(f"{sheet.name} has a header and no rows")
        held = [np.concatenate(column) for column in zip(*parts, strict=True)]
        everybody = [str(place) for place in range(len(held[0]))]
        return cls(
            sheet,
            form,
            held[0],
            (held[1], ["0"] if form.query is None else list(query.names)),
            (held[2], everybody if form.voter is None else list(voter.names)),
            None if form.label is None else (held[3], list(label.names)),
            held[4],
        )

    def cube(self) -> tuple[Cells, Names]:
        """Return (queries, voters, labels), and the names along the axes."""
        ballots = self._ballots()
        if not ballots.any():
            raise BallotError(f"{self.sheet.name} names no voter")
        query, queries = self._ordered("query", self.queries, ballots)
        voter, voters = self._ordered("voter", self.voters, ballots)
        if self.labels is None:
            label, labels = None, [self.sheet.header[place] for place in self.form.votes]
        else:
            label, labels = self._ordered("label", self.labels, ballots)
        shape = (len(queries), len(voters), len(labels))
        check_unpacked(self.sheet.name, self.sheet.size, shape[0] * shape[1] * shape[2])
        query, voter, votes = query[ballots], voter[ballots], self.votes[ballots]
        missing = np.nan if votes.dtype == np.float64 else MISSING
        cube = np.full(shape, missing, votes.dtype)
        self._refuse_twice(ballots, query, voter, label, shape)
        if label is None:
            cube[query, voter] = votes
        else:
            if self.form.vote is None:
                cube[query, voter] = 0  # who names some labels says no to the others
            said = label[ballots] >= 0
            cube[query[said], voter[said], label[ballots][said]] = votes[said, 0]
        return cube, Names(
            queries=None if self.form.query is None else tuple(queries),
            voters=None if self.form.voter is None else tuple(voters),
            labels=tuple(labels),
        )

    def _ballots(self) -> npt.NDArray[np.bool_]:
        """Return which rows are ballots: the others have no voter, and list what there is."""
        cast = self.voters[0] >= 0
        if self.form.votes:
            gaps = np.isnan(self.votes) if self.votes.dtype == np.float64 else self.votes == MISSING
            self._refuse(~cast & ~gaps.all(axis=1), "voter", "must name the voter of these votes")
        self._refuse(cast & (self.queries[0] < 0), "query", "must name the query")
        if self.labels is not None and self.form.vote is not None:
            self._refuse(cast & (self.labels[0] < 0), "label", "must name the label of this vote")
        return cast

    def _refuse(self, bad: npt.NDArray[np.bool_], column: str, rule: str) -> None:
        if bad.any():
            place = int(self.places[np.flatnonzero(bad)[0]])
            raise BallotError(self.sheet.at(place, column), f"{rule}, and is empty")

    def _ordered(
        self, column: str, found: tuple[Ints, list[str]], ballots: npt.NDArray[np.bool_]
    ) -> tuple[Ints, list[str]]:
        """Return rows and names in order: first what rows without a voter list, then by name."""
        numbers, names = found
        given = numbers[~ballots & (numbers >= 0)]
        listed = [names[number] for number in dict.fromkeys(given.tolist())]
        if column != "voter" and getattr(self.form, column) is not None:
            self._refuse_alone(column, numbers, names, set(listed), ballots)
        order = [*listed, *in_order(set(names) - set(listed))]
        rank = {name: place for place, name in enumerate(order)}
        place = np.array([*(rank[name] for name in names), -1], np.int64)  # the last is for no name
        return place[numbers], order

    def _refuse_alone(
        self,
        column: str,
        numbers: Ints,
        names: list[str],
        listed: set[str],
        ballots: npt.NDArray[np.bool_],
    ) -> None:
        """Refuse a query or a label that exists because of one voter only."""
        voters = len(self.voters[1])
        if voters < 2 or len(listed) == len(names):
            return
        named = ballots & (numbers >= 0)
        pairs = np.unique(numbers[named] * voters + self.voters[0][named])
        count = np.bincount(pairs // voters, minlength=len(names))
        for number in np.flatnonzero(count == 1).tolist():
            if names[number] in listed:
                continue
            row = int(np.flatnonzero(named & (numbers == number))[0])
            raise BallotError(
                self.sheet.at(int(self.places[row]), column),
                "must be named by two voters or more, and this one is by one: the list of them "
                "would tell what this voter said. If it is public, list it in a row of its own, "
                "without a voter and a vote",
                sealed=f"it is {shown(names[number])}",
            )

    def _refuse_twice(
        self,
        ballots: npt.NDArray[np.bool_],
        query: Ints,
        voter: Ints,
        label: Ints | None,
        shape: tuple[int, int, int],
    ) -> None:
        key = query * shape[1] + voter
        if label is not None:
            key = key * (shape[2] + 1) + label[ballots] + 1
        order = np.argsort(key, kind="stable")
        same = np.flatnonzero(np.diff(key[order]) == 0)
        if not len(same):
            return
        first, second = self.places[ballots][order[same[0] : same[0] + 2]].tolist()
        what = "ballot on one query" if label is None else "vote on one label of one query"
        raise BallotError(
            f"{self.sheet.at(first)} and {self.sheet.unit} {second}: a voter must cast one {what}, "
            "and these two are by one voter on the same"
        )


def _read(index: _Index, columns: Any, place: int) -> Ints:
    return index.read(columns[place])


def _words(column: Any, says: YesNo) -> Cells:
    try:
        return np.fromiter(map(says.__getitem__, column), np.int8, len(column))
    except TypeError:  # a list, or something else that is no cell
        return np.array([says[c] if c.__hash__ else ODD for c in column], np.int8)


def _chances(column: Any) -> Cells:
    return np.fromiter(map(_chance, column), np.float64, len(column))


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


def _is_number(cell: Any) -> bool:
    return bool(np.isfinite(_chance(cell)))


def _odd_cell(sheet: Sheet, place: int, column: str, cell: Any, soft: bool) -> BallotError:
    where, sealed = sheet.at(place, column), f"the cell is {shown(cell)}"
    if soft:
        return BallotError(where, _CHANCE, sealed=sealed)
    hint = "; give `threshold` if these are probabilities" if 0 < _chance(cell) < 1 else ""
    return BallotError(where, _VOTE + hint, sealed=sealed)


def _misnamed(sheet: Sheet, rule: str) -> BallotError:
    said, sealed = columns_in_words(sheet.header)
    return BallotError(f"{sheet.name} {rule}: {said}", sealed=sealed)
