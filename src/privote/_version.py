"""The version of privote, in its only place; and what a file says of the privote that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InputError, PrivoteError

__version__ = "0.3.0"


def written(number: int) -> dict[str, Any]:
    """Return what every file says of itself: its format, and the version that wrote it."""
    return {"format": number, "version": __version__}


def check_written(
    what: str,
    facts: Mapping[str, Any],
    number: int,
    error: type[PrivoteError] = InputError,
    hint: str = "",
) -> None:
    """Refuse a file of another format than ``number``, in one sentence that says who wrote it."""
    if facts.get("format") != number:
        version = facts.get("version")
        writer = f"privote {version!s:.20}" if version else "an unknown version of privote"
        raise error(
            f"{what} has format {facts.get('format')!r:.20}, written by {writer}; this is privote "
            f"{__version__}, which reads format {number}{hint and f': {hint}'}"
        )
