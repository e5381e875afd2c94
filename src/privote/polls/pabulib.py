"""Pabulib's ``.pb`` files: projects with costs, money to spend, and ballots on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import BallotError, InputError, UnavailableError, shown, whole
from ..votes.tables import cells, delimiter_of, lines
from .ballots import BallotRule, PollBallots, Row, counted
from .texts import integer

_SECTIONS = ("META", "PROJECTS", "VOTES")
# Digits enough for any money, and no exponent that makes a number of a million digits.
_AMOUNT = re.compile(r"[+-]?\d{0,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?(/\d{1,30})?")
_TYPES = ("approval", "choose-1", "cumulative", "scoring", "ordinal")


def read_pabulib(
    path: Path, rule: BallotRule, each: int | None, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of Pabulib's files; see :func:`privote.polls.read`.

    ``each`` is what was asked for: None takes points as the file's rule has them.
    """
    file = _File.of(path, encoding)
    kind = file.meta.get("vote_type", "")
    if kind not in _TYPES:
        raise UnavailableError("vote_type", f"must be one of {', '.join(_TYPES)}", kind)
    rule, note = _rule(file, kind, rule, each, top)
    known = {project: place for place, project in enumerate(file.projects)}
    places = rule.most if kind == "ordinal" else None

    def rows() -> Iterator[Row]:
        for line, record in file.section("VOTES"):
            yield _ballot(line, record, known, rule, places, kind)

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


def _rule(
    file: _File, kind: str, rule: BallotRule, each: int | None, top: int | None
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


def _ballot(
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
class _File:
    """A file whose first two sections are read."""

    path: Path
    encoding: str | None
    delimiter: str
    meta: dict[str, str]
    projects: list[str]
    names: list[str]
    costs: tuple[Fraction, ...] | None

    @classmethod
    def of(cls, path: Path, encoding: str | None) -> _File:
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
        costs = [_amount(row.get("cost"), f"line {line}: cost") for line, row in listed]
        return cls(
            path,
            encoding,
            bare.delimiter,
            meta,
            ids,
            _named([row for _, row in listed]),
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


def _named(rows: list[dict[str, str]]) -> list[str]:
    """Return what projects are called; those that share a name are told apart by their id."""
    names = [row.get("name", "").strip() or row["project_id"] for row in rows]
    times = Counter(names)
    return [
        name if times[name] == 1 else f"{name} [{row['project_id']}]"
        for name, row in zip(names, rows, strict=True)
    ]


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
