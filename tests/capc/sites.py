"""Sites on loopback: certificates that trust each other, and roles that say what they are told."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.capc.sessions import ClearEngine

from privote.capc.certs import Own, Trust, make, pin
from privote.capc.driver import Driver
from privote.capc.roles import Action, Event, Tick
from privote.capc.streams import Caller, Settings


def trusting(folder: Path, names: Sequence[str]) -> dict[str, tuple[Own, Trust]]:
    """Return key, certificate and trust of each site; everybody pinned everybody else."""
    for name in names:
        make(folder / name, name)
    made = {}
    for name in names:
        for other in names:
            if other != name:
                pin(folder / name / "trust", folder / other / f"{other}.pem")
        own = Own(name, folder / name / f"{name}.pem", folder / name / f"{name}.key")
        made[name] = own, Trust(folder / name / "trust")
    return made


class Scripted:
    """A role that answers events with what a function returns, and remembers them."""

    def __init__(
        self,
        role: str,
        on: Callable[[Event], Sequence[Action]] = lambda event: (),
        start: Sequence[Action] = (),
    ) -> None:
        self.role, self._on, self._start = role, on, start
        self.events: list[Event] = []

    def start(self) -> list[Action]:
        return list(self._start)

    def on(self, event: Event) -> list[Action]:
        if not isinstance(event, Tick):
            self.events.append(event)
        return list(self._on(event))

    def saw(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class InThread:
    """A driver that is made and run in a thread of its own, where its journal belongs."""

    def __init__(self, make: Callable[[Callable[[str], None]], Driver]) -> None:
        self.log: list[str] = []
        self.result: Any = None
        self.error: Exception | None = None
        self._make, self._made = make, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._made.wait(60)
        if not hasattr(self, "driver"):
            assert self.error is not None
            raise self.error

    def _run(self) -> None:
        try:
            try:
                self.driver = self._make(self.log.append)
            finally:
                self._made.set()
            self.result = self.driver.run()
        except Exception as error:
            self.error = error
            self._made.set()

    @property
    def role(self) -> Any:
        return self.driver.role

    @property
    def address(self) -> str:
        assert self.driver.server is not None
        return f"127.0.0.1:{self.driver.server.port}"

    def join(self, seconds: float = 60) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.log
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.driver.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def logged(self, text: str) -> bool:
        return any(text in line for line in self.log)


class Running(InThread):
    """A role with these settings, which computes in clear."""

    def __init__(self, role: Any, own: Own, trust: Trust, **settings: Any) -> None:
        made = Settings(own=own, trust=trust, **{"addresses": {}, **settings})
        super().__init__(lambda log: Driver(role, engine=ClearEngine(), settings=made, log=log))


def caller_of(
    peer: str, address: str, own: Own, trust: Trust, role: str = "querying", **more: Any
) -> Caller:
    """Return what calls a peer at this address."""
    made = Settings(own=own, trust=trust, addresses={peer: address}, **more)
    return Caller(made, role=role)


def said_by(site: Path) -> str:
    """Return what the program of a site has logged."""
    return site.with_name("log.txt").read_text(encoding="utf-8", errors="replace")


def query(site: Path, rows: Path, output: Path, **more: Any) -> subprocess.Popen[str]:
    """Start a querying party as an administrator would."""
    words = [sys.executable, "-m", "privote", "capc", "query", site, rows, "--output", output]
    pipe = subprocess.PIPE
    return subprocess.Popen([*words, "--json"], stdout=pipe, stderr=pipe, text=True, **more)


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
