"""Attacks that once worked, or might: small in `make test`, full size in `make faults`.

An attack asks :func:`full` how hard to try, and says with ``outcome`` what it tried and what got
through. `make faults` collects those lines into one table.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.conftest import database, path, server
from typer.testing import CliRunner

import privote as pv
from privote.cli import app
from privote.ledger.events import Event

__all__ = ["database", "path", "server"]  # fixtures that attacks ask for


RNG = np.random.default_rng(0)
SHAPE = (60, 30, 4)
VOTES = {"quiet": np.zeros(SHAPE, bool), "loud": RNG.random(SHAPE) < 0.5}
X, PUBLIC = RNG.normal(size=(240, 3)), RNG.normal(size=(40, 3))
SIDES = {"quiet": X[:, :2] > 9, "loud": X[:, :2] > 0}
POLLS = {
    "quiet": {"Ada": [1] + [0] * 79, "Bo": [0] * 80, "Cy": [0] * 80},
    "loud": {"Ada": [1] * 80, "Bo": [1, 0] * 40, "Cy": [1] * 79 + [0]},
}
BINARY = pv.BinaryVoting(sigma=7.0)
Charge = Callable[..., str]  # of a ledger, once; returns the digest of what was drawn


def _label(**asked: Any) -> Charge:
    def run(ledger: Any, *, kind: str = "loud", **how: Any) -> str:
        release = pv.label(VOTES[kind], epsilon=8.0, delta=1e-5, ledger=ledger, **asked, **how)
        return release.guarantee.drawn

    return run


def _poll(ledger: Any, *, kind: str = "loud", **how: Any) -> str:
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "seats": 1, "shares": True}
    return pv.poll(POLLS[kind], ledger=ledger, **asked, **how).guarantee.drawn


def _train(method: str, **settings: Any) -> Charge:
    def run(ledger: Any, *, kind: str = "loud", **how: Any) -> str:
        model = pv.PrivateClassifier(method, 8.0, 1e-5, settings=settings)
        model.fit(X, SIDES[kind].astype(np.int8), PUBLIC, ledger=ledger, **how)
        return model.guarantee_.drawn

    return run


CHARGES: dict[str, Charge] = {
    "learnt": _label(),
    "allowance": _label(mechanism=BINARY, guarantee="allowance"),  # of loud votes some run out
    "worst-case": _label(mechanism=BINARY, guarantee="worst-case"),
    "data-dependent": _label(mechanism=BINARY, guarantee="data-dependent", queries=40),
    "poll": _poll,
    "gradients": _train("gradients", steps=4),
    "moments": _train("moments"),
    "dpsgd": _train("dpsgd", steps=2, sample_rate=0.5),
    "teachers": _train("teachers", n_teachers=20),
    "neighbours": _train("neighbours"),
}


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


def check(file: Path, ledger: Path) -> bool:
    """Return whether `privote ledger check` finds what released a file."""
    done = CliRunner().invoke(
        app, ["ledger", "check", str(file), "--ledger", str(ledger), "--json"]
    )
    assert done.exit_code in (0, 1, 2), done.output
    return done.exit_code == 0


def accepted(
    kind: type[Exception] | tuple[type[Exception], ...],
    call: Callable[..., object],
    *given: Any,
    **named: Any,
) -> bool:
    """Return whether a call goes through; False if it is refused with an error of this kind."""
    try:
        call(*given, **named)
    except kind:
        return False
    return True


def in_a_child(job: Callable[[], int]) -> int:
    """Return how a job ends in a forked process: its number, 99 for an error, < 0 if killed."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = int(job())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut the end off, flip bytes, repeat or drop a part."""
    kind, size = rng.integers(5), max(1, len(content))
    place = int(rng.integers(size))
    if kind == 0:
        return content[:place]
    if kind == 1:
        end = place + int(rng.integers(1, 40))
        return content[:place] + content[end:]
    if kind == 2:
        end = place + int(rng.integers(1, 40))
        return content[:end] + content[place:]
    out = bytearray(content)
    for at in rng.integers(size, size=1 if kind == 3 else int(rng.integers(2, 30))):
        if at < len(out):
            out[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
    return bytes(out)


def write_poll(folder: Path) -> Path:
    """Write a poll of sixty voters on three options."""
    rows = "".join(f"v{n},{n < 43:d},{n < 31:d},{n < 20:d}\n" for n in range(60))
    (folder / "poll.csv").write_text("voter,Ada,Bo,Cy\n" + rows)
    return folder / "poll.csv"


class Killed(BaseException):
    """Stands for a process that ends."""


def dying_at(kind: str) -> Callable[..., Any]:
    """Return an ``append`` of the ledger that ends the process before an entry of this kind."""
    append = pv.Ledger.append

    def dying(self: pv.Ledger, event: Event) -> int:
        if event.kind == kind:
            raise Killed
        return append(self, event)

    return dying


class Outcome:
    """Keeps a line of the table for each attack, and judges it."""

    def __init__(self, test: str) -> None:
        self._test = test

    def __call__(self, attack: str, tried: int, through: int) -> None:
        """Say how often an attack was tried, and how often it got through."""
        table = os.environ.get("PRIVOTE_ATTACKS_TABLE")
        if table:
            line = {"attack": attack, "tried": int(tried), "through": int(through)}
            with open(table, "a") as stream:
                stream.write(json.dumps({**line, "test": self._test}) + "\n")
        assert tried > 0, f"{attack}: nothing was tried"
        assert through == 0, f"{attack}: {through} of {tried} got through"

    def of(self, attack: str, found: Iterable[object]) -> None:
        """Say what came of each try: nothing (None, False), or what got through."""
        tries = list(found)
        through = [each for each in tries if each]
        print(*through[:5], sep="\n")
        self(attack, len(tries), len(through))


@pytest.fixture
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return Outcome(request.node.nodeid)
