"""What a program of a coalition says on stderr: one line an event, with the time."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from datetime import UTC, datetime
from json import dumps
from types import TracebackType

_REFUSED = re.compile(r"Handshake failed .*?: ?([A-Z_]+): ?([^:]*)$")
_MINUTE, _REASONS = 60.0, 100  # seconds; kinds of refusals that are remembered
_NOISE = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\] ")


class Log:
    """A log on stderr; as a context it also tells gRPC's own lines in our words.

    gRPC's library turns a caller with an unknown certificate away before any of our code sees it,
    and says so on the process's stderr alone. That is where those lines are taken from.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json, self._lock = json, threading.Lock()
        self._stderr = os.dup(2)
        self._reader: threading.Thread | None = None
        self._turned_away: dict[str, tuple[float, int]] = {}  # when last told, how many since

    def __call__(self, line: str) -> None:
        """Write one line."""
        moment, said = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), _plain(line)
        text = dumps({"time": moment, "event": said}) if self._json else f"{moment} {said}"
        data = f"{text}\n".encode()
        with self._lock, contextlib.suppress(OSError):  # nobody reads it any more
            os.write(self._stderr, data)

    def __enter__(self) -> Log:
        inward, outward = os.pipe()
        sys.stderr.flush()
        os.dup2(outward, 2)
        os.close(outward)
        self._reader = threading.Thread(target=self._read, args=(inward,), daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        os.dup2(self._stderr, 2)  # closes the pipe's end, and so ends its reader
        if self._reader is not None:
            self._reader.join(1.0)

    def _read(self, inward: int) -> None:
        with os.fdopen(inward, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._tell(line.rstrip())

    def _tell(self, line: str) -> None:
        refused = _REFUSED.search(line)
        if refused:
            why = _MEANING.get(refused[1], refused[1].lower().replace("_", " "))
            self._refused(f"refused a connection: {why} ({refused[2].strip() or refused[1]})")
        elif line and not _NOISE.match(line):
            with self._lock, contextlib.suppress(OSError):
                os.write(self._stderr, (line + "\n").encode())

    def _refused(self, line: str) -> None:
        """Log a refusal once a minute, with how many there were: anybody can bring one about."""
        now = time.monotonic()
        last, more = self._turned_away.get(line, (-_MINUTE, 0))
        if now - last < _MINUTE:
            self._turned_away[line] = last, more + 1
            return
        if len(self._turned_away) >= _REASONS:
            self._turned_away.clear()
        self._turned_away[line] = now, 0
        self(f"{line}; so were {more} more since" if more else line)


def _plain(line: str) -> str:
    """Return one line without anything that a terminal would obey: peers' words may be in it."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(line.split()))


_MEANING = {
    "CERTIFICATE_VERIFY_FAILED": "the caller's certificate is not pinned here, or has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the caller showed no certificate",
    "WRONG_VERSION_NUMBER": "the caller does not speak TLS",
    "HTTP_REQUEST": "the caller does not speak TLS",
}
