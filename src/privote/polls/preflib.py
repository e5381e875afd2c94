"""PrefLib's files: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders).

"13: {1,2},{3}" is thirteen voters, not a weight. A ballot approves what stands in its first
category, or in its first place; ``top`` says how many categories or places instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import BallotError, InputError, shown, whole
from ..votes.tables import lines
from .ballots import BallotRule, PollBallots, Row, counted
from .texts import integer

ENDINGS = (".cat", ".soc", ".soi", ".toc", ".toi")
_NAME = re.compile(r"ALTERNATIVE NAME (\d+)")
_GROUP = re.compile(r"\{([\d\s,]*)\}|(\d+)")
_GROUPS = re.compile(r"(?:\{[\d\s,]*\}|\d+)(?:\s*,\s*(?:\{[\d\s,]*\}|\d+))*")


def read_preflib(
    path: Path, rule: BallotRule, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of PrefLib's files; see :func:`privote.polls.read`."""
    meta, names = _head(path, encoding)
    kind = meta.get("DATA TYPE", path.suffix[1:]).casefold()
    if f".{kind}" not in ENDINGS:
        raise InputError(f"data type {shown(kind)} is none of {', '.join(ENDINGS)}")
    places = 1 if top is None else whole("top", top)
    what = "categories" if kind == "cat" else "places"
    if rule.each != 1:
        raise InputError("each", "must be 1: PrefLib's ballots have no points", rule.each)
    if rule.most is None and kind in ("soc", "soi"):
        rule = replace(rule, most=min(places, len(names)))  # by the reading, on any ballot
    rows = partial(_rows, path, encoding, len(names), places)
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
    return meta, _unlike([known[number] for number in sorted(known)])


def _unlike(names: list[str]) -> list[str]:
    """Tell options of the same name apart by their number."""
    times = Counter(names)
    return [
        name if times[name] == 1 else f"{name} [{place}]" for place, name in enumerate(names, 1)
    ]


def _rows(path: Path, encoding: str | None, options: int, top: int) -> Iterator[Row]:
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
