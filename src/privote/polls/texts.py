"""Integers of text files, bounded before they count or size anything."""

from __future__ import annotations

from ..errors import BallotError
from ..votes.cube import MOST


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
