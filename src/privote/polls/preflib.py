"""PrefLib's files: ``.cat`` (categories) and ``.soc``, ``.soi``, ``.toc``, ``.toi`` (orders).

"13: {1,2},{3}" is thirteen voters, not a weight. A ballot approves what stands in its first
category, or in its first place; ``top`` says how many categories or places instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import BallotError, InputError, whole
from .ballots import BallotRule, PollBallots, Row, counted
from .texts import lines

ENDINGS = (".cat", ".soc", ".soi", ".toc", ".toi")
_NAME = re.compile(r"ALTERNATIVE NAME (\d+)")
_LINE = re.compile(r"\s*(\d+)\s*:\s*(.*?)\s*$")
_GROUP = re.compile(r"\{([\d\s,]*)\}|(\d+)")
_GROUPS = re.compile(r"(?:\{[\d\s,]*\}|\d+)(?:\s*,\s*(?:\{[\d\s,]*\}|\d+))*")


def read_preflib(
    path: Path, rule: BallotRule, top: int | None, encoding: str | None
) -> PollBallots:
    """Read one of PrefLib's files; see :func:`privote.polls.read`."""
    meta, names = _head(path, encoding)
    kind = meta.get("DATA TYPE", path.suffix[1:]).casefold()
    if f".{kind}" not in ENDINGS:
        raise InputError(f"data type {kind!r} is none of {', '.join(ENDINGS)}")
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
    if said.isdecimal() and int(said) != found.voters:
        raise BallotError(f"the file says {said} voters and has {found.voters} ballots")
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
            known[int(found[1])] = value.strip()
        else:
            meta[key.strip()] = value.strip()
    said = meta.get("NUMBER ALTERNATIVES", "")
    if not said.isdecimal() or sorted(known) != list(range(1, int(said) + 1)):
        raise InputError(
            f"the header must say NUMBER ALTERNATIVES and name each: it says {said or 'nothing'} "
            f"and names {len(known)}"
        )
    return meta, _unlike([known[number] for number in sorted(known)])


def _unlike(names: list[str]) -> list[str]:
    """Tell options of the same name apart by their number."""
    return [
        name if names.count(name) == 1 else f"{name} [{place}]"
        for place, name in enumerate(names, 1)
    ]


def _rows(path: Path, encoding: str | None, options: int, top: int) -> Iterator[Row]:
    for number, line in enumerate(lines(path, encoding), 1):
        if line.startswith("#") or not line.strip():
            continue
        found = _LINE.match(line)
        if not found or not _GROUPS.fullmatch(found[2]):
            raise BallotError(
                f"line {number}: must be a number of voters, a colon and options: 13: {{1,2}},3"
            )
        groups = [
            [int(part) for part in (several or one).split(",") if part.strip()]
            for several, one in _GROUP.findall(found[2])
        ]
        every = [option for group in groups for option in group]
        if len(set(every)) < len(every):
            raise BallotError(f"line {number}: the ballot names an option twice")
        if any(not 1 <= option <= options for option in every):
            raise BallotError(f"line {number}: options are numbered from 1 to {options}")
        given = [(option - 1, 1) for group in groups[:top] for option in group]
        yield Row(number, None, int(found[1]), given)
