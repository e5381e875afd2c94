"""What is told of a claim, on any page: in words, and in tables for readers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .runner import Result

Row = Mapping[str, Any]

_WORDS = {"sigma": "σ", "tau": "τ", "epsilon": "ε", "voc": "VOC", "chexpert": "CheXpert"}
_WORDS |= {"mimic": "MIMIC-CXR", "padchest": "PadChest"}
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)?")
_SAME = re.compile(r"^(\S+) \[\1, \1\]$")  # what no seed changes


def worded(text: str) -> str:
    """Return Greek letters and names of data as the paper has them."""
    return _WORD.sub(lambda found: _WORDS.get(found[0], found[0]), text)


def file_name(key: str) -> str:
    """Return a claim's key as the name of a file, and as its place on the page."""
    return key.replace(":", "-").replace("#", "-")


def remarks(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what is said of a claim, in words: a lead and the text behind it."""
    claim, (word, reason) = result.claim, result.verdict
    figures = "" if claim.paper == "–" else f" Its figures: {claim.paper}."
    ours = claim.kind == "ours"
    yield "What it is:" if ours else "The paper:", claim.says + figures
    yield "Result:" if ours else f"Verdict: {word}.", reason
    absent = f"; not at hand: {', '.join(result.absent)}" if result.absent else ""
    yield "Measured on:", f"{claim.data}{absent}."


def first_with(results: Sequence[Result]) -> dict[str, str]:
    """Return, for claims whose measurement an earlier claim shows, the key of that one."""
    first: dict[Any, str] = {}
    for result in results:
        first.setdefault(result.claim.measure or result.claim.key, result.claim.key)
    found = {r.claim.key: first[r.claim.measure or r.claim.key] for r in results}
    return {key: earlier for key, earlier in found.items() if key != earlier}


def tables(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows as tables: those that share no more than their first column stand apart.

    Names are as the paper has them, and numbers of a column that are all whole lose their decimals.
    """
    found: list[list[Row]] = []
    for row in rows:
        shared = len({key for one in found[-1] for key in one} & set(row)) if found else 0
        if shared > 1 or (found and len(row) == 1):
            found[-1].append(row)
        else:
            found.append([row])
    return [_readable(part) for part in found]


def _readable(rows: Sequence[Row]) -> list[Row]:
    floats: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, float):
                floats.setdefault(key, []).append(value)
    whole = {key for key, values in floats.items() if all(v.is_integer() for v in values)}
    return [
        {
            worded(key): int(value) if key in whole and value is not None else _cell(value)
            for key, value in row.items()
        }
        for row in rows
    ]


def _cell(value: Any) -> Any:
    return _SAME.sub(r"\1", worded(value)) if isinstance(value, str) else value
