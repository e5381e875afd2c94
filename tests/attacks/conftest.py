"""Attacks that once worked, or might: small in `make test`, full size in `make faults`.

An attack asks :func:`full` how hard to try, and says with ``outcome`` what it tried and what got
through. `make faults` collects those lines into one table.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.ledger.conftest import database, server

__all__ = ["Outcome", "database", "full", "scaled", "server", "time_limit"]

Outcome = Callable[[str, int, int], None]


def full() -> bool:
    """Return True where attacks run at full size."""
    return os.environ.get("PRIVOTE_ATTACKS") == "full"


def scaled(small: int, large: int) -> int:
    """Return how often to try."""
    return large if full() else small


@contextmanager
def time_limit(seconds: int = 60) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer: a hang takes for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """Return ``outcome(attack, tried, through)``: keeps a line of the table, and judges it."""

    def say(attack: str, tried: int, through: int) -> None:
        table = os.environ.get("PRIVOTE_ATTACKS_TABLE")
        if table:
            line = {"attack": attack, "tried": int(tried), "through": int(through)}
            with open(table, "a") as stream:
                stream.write(json.dumps({**line, "test": request.node.nodeid}) + "\n")
        assert tried > 0, f"{attack}: nothing was tried"
        assert through == 0, f"{attack}: {through} of {tried} got through"

    return say
