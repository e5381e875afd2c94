"""Checks of what is public about a program: sizes, flags and tables that a peer may announce."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, whole

_LARGEST = 1 << 20  # of any size: what a peer announces must not exhaust memory


def check_size(name: str, value: Any) -> int:
    """Return a size of at least 1 that does not exhaust memory."""
    if whole(name, value) > _LARGEST:
        raise InputError(name, f"must be at most {_LARGEST}, got {value}")
    return int(value)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InputError(name, "must be True or False", value)


def check_rows(rows: int, most: int) -> None:
    """Refuse more rows than one program may have."""
    if rows > most:
        raise InputError("rows", f"must be at most {most} for a program of these sizes, got {rows}")


def weight_table(name: str, value: Any, labels: int) -> tuple[int, ...]:
    """Return a table of what a yes counts, by the number of yeses: (labels + 1,)."""
    table = tuple(whole(name, one, 0) for one in value)
    if len(table) != labels + 1 or max(table) > 1 << 40:
        raise InputError(
            name,
            f"must hold {labels + 1} integers of at most 2^40, got {len(table)}, the largest "
            f"{max(table, default=0)}",
        )
    return table


def label_table(value: Any, parties: int, labels: int) -> tuple[tuple[int, ...], ...]:
    """Return which labels each party has: (parties, labels) of 0 and 1."""
    rows = tuple(tuple(whole("has", one, 0) for one in row) for row in value)
    if len(rows) != parties or any(len(row) != labels or max(row) > 1 for row in rows):
        raise InputError(f"has must be 0 or 1 of shape ({parties}, {labels}), got {value!r:.60}")
    return rows


def count_table(value: Any, parties: int) -> tuple[int, ...]:
    """Return a count for each party: (parties,) of whole numbers."""
    table = tuple(whole("charged", one, 0) for one in value)
    if len(table) != parties or max(table) > 1 << 40:
        raise InputError(
            f"charged must hold {parties} whole numbers of at most 2^40, got {value!r:.60}"
        )
    return table
