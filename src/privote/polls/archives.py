"""Ballots from the archives PrefLib and Pabulib, whose files say what the options are.

PrefLib: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders). "13: {1,2},{3}"
is thirteen voters, not a weight. A ballot approves what stands in its first category, or in its
first place; ``top`` says how many categories or places instead. Pabulib: ``.pb``, projects with
costs, money to spend, and ballots on them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import takewhile
from pathlib import Path

from ..errors import BallotError, InputError, UnavailableError, shown, whole
from ..votes.names import folded
from ..votes.tables import cells, delimiter_of, lines
from .ballots import BallotRule, PollBallots, Row, counted, gathered, integer

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
    for line in takewhile(lambda line: line.startswith("#"), lines(path, encoding)):
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
        raise InputError(
            f"the header must say NUMBER ALTERNATIVES and name each: it says {number or 'nothing'} "
            f"and names {len(names)}"
        )
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
    for number, line in enumerate(lines(path, encoding), 1):
        if line.startswith("#") or not line.strip():
            continue
        voters, _, ballot = line.partition(":")
        if not voters.strip().isdecimal() or not _GROUPS.fullmatch(ballot.strip()):
            raise BallotError(
                f"line {number}: must be a number of voters, a colon and options: 13: {{1,2}},3"
            )
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
        most = most or (1 if kind == "choose-1" else number("max_length"))
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
        raise BallotError(
            f"line {line}: the ballot names a project that is not listed",
            sealed=f"it is {projects[options.index(-1)]!r}",
        )
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
    text = lines(path, encoding)
    first, second = next(text, "").strip(), next(text, "")
    if first.strip(";,") != "META":
        raise InputError("line 1: must be META in a Pabulib file")
    section, header = "", list[str]()
    missing = dict(_SECTIONS)
    for line, record in cells(lines(path, encoding), delimiter_of(second)):
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
