"""A secure session's bytes through one stream: the engine's sockets, and what is exchanged beside.

The engine speaks plain text over unix sockets in a folder of its own (0700), because its own TLS
can be bypassed. It listens on ``self.sock`` and connects to ``peer.sock``, behind which is this
relay: every connection becomes numbered frames in a stream that gRPC encrypts, and comes out at
the other side's ``self.sock``. The relay counts the bytes and ends a session that has too many.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import PeerError
from .engine import OTHER, OWN
from .messages import printable

OPEN, DATA, SHUT, EXCHANGE, BYE = range(5)
PIECE = 256 * 1024  # bytes of a socket, or of an exchange, in one frame
FRAME = PIECE + 64  # no frame is longer
MOST_BYTES = 1 << 33
_BUFFER = 4 << 20
_CONNECTIONS = 32
_HEAD = struct.Struct("!BI")  # kind; number of the connection


_CLOSED = "it closed the connection: it may have stopped, or may not have pinned our certificate"
#: What gRPC's words mean, for whoever connected: (part of its text, our sentence).
_MEANINGS = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not yet valid: check the clocks"),
    ("Hostname Verification", "the certificate it presents is for another name"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not the pinned one"),
    ("Connection refused", "no program is listening there"),
    ("Socket closed", _CLOSED),
    ("Connection reset", _CLOSED),
    ("Broken pipe", _CLOSED),
)  # fmt: skip


def cause(error: Any) -> str:
    """Return what went wrong with a call, in one line for a log."""
    details = error.details() if callable(getattr(error, "details", None)) else str(error)
    code = error.code().name if callable(getattr(error, "code", None)) else type(error).__name__
    if code in ("UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED"):
        for part, meaning in _MEANINGS:
            if part in str(details):
                return meaning
    return printable(f"{details or code}")[:300]


class Outbox:
    """Frames on their way: gRPC takes them at the peer's pace, and whoever puts waits for room.

    Parameters
    ----------
    most_bytes
        How much may wait in memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._held = most_bytes, 0
        self._frames: deque[bytes] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, frame: bytes, *, wait: float | None = None) -> None:
        """Add a frame; waits ``wait`` seconds (None: as long as it takes) for room.

        Raises
        ------
        PeerError
            If the stream has ended, or the peer took nothing for that long.
        """
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or not self._frames or self._held + len(frame) <= self._most,
                timeout=wait,
            )
            if self._closed:
                raise PeerError("the stream to the peer has ended")
            if not room:
                raise PeerError(f"the peer took nothing for {wait:g} s")
            self._frames.append(frame)
            self._held += len(frame)
            self._changed.notify_all()

    def close(self) -> None:
        """Let what is waiting go out, and nothing after it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def drop(self) -> None:
        """End at once: what is waiting goes nowhere."""
        with self._changed:
            self._frames.clear()
            self._held = 0
            self.close()

    @property
    def closed(self) -> bool:
        """True once nothing more can be put."""
        return self._closed

    @property
    def waiting(self) -> bool:
        """True while something has not gone out."""
        return bool(self._frames)

    def __iter__(self) -> Outbox:
        return self

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._closed)
            if not self._frames:
                raise StopIteration
            frame = self._frames.popleft()
            self._held -= len(frame)
            self._changed.notify_all()
            return frame


class Tunnel:
    """One side of a session, as the engine knows it (:class:`privote.capc.engine.Channel`).

    Parameters
    ----------
    outbox, incoming
        Frames to and from the peer.
    first
        True at the side that opened the stream: the two sides number connections apart.
    patience
        Seconds to wait for the engine to listen, and for it to take what the peer exchanges.
    most_bytes
        More than this, both ways together, ends the session.
    """

    def __init__(
        self,
        outbox: Outbox,
        incoming: Iterator[bytes],
        *,
        first: bool,
        patience: float,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        # Short: the path of a unix socket has room for about 100 characters.
        self._scratch = TemporaryDirectory(prefix="pv-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        self.sent = self.received = 0
        self._outbox, self._incoming, self.patience = outbox, incoming, patience
        self._most = most_bytes
        self._lock = threading.Lock()
        self._blobs: queue.Queue[bytes | None] = queue.Queue(maxsize=8)
        self._connections: dict[int, _Connection] = {}
        self._next = 0 if first else 1
        self._why: str | None = None
        self._closed = self._bye = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / OTHER))
        self._listener.listen(_CONNECTIONS)
        for work in (self._accept, self._read):
            threading.Thread(target=work, daemon=True, name=f"tunnel-{work.__name__}").start()

    @property
    def why(self) -> str | None:
        """Why the session broke, if it did."""
        return self._why

    @property
    def closed(self) -> bool:
        """True once the session is closed or broken."""
        return self._closed or self._why is not None

    def exchange(self, data: bytes, seconds: float) -> bytes:
        """Send ours, return the peer's; PeerError if that takes longer than so many seconds.

        Either must fit a frame: digests do.
        """
        until = time.monotonic() + seconds
        self.send(EXCHANGE, 0, data, seconds)
        try:
            theirs = self._blobs.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise PeerError(f"the peer sent nothing within {seconds:g} s") from None
        if theirs is None:
            self._blobs.put(None)
            raise PeerError(self._why or "the peer ended the session early")
        return theirs

    def close(self) -> None:
        """End our side: what is on its way still goes out."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(PeerError):
            self._outbox.put(_HEAD.pack(BYE, 0), wait=1.0)
        self._outbox.close()
        self._end_sockets()
        self._scratch.cleanup()

    def fail(self, why: str) -> None:
        """Break the session off: both the engine and whoever waits in `exchange` notice."""
        with self._lock:
            if self._why is None and not self._closed:
                self._why = why
        self._outbox.drop()
        self._end_sockets()
        with contextlib.suppress(queue.Full):
            self._blobs.put_nowait(None)

    def send(self, kind: int, number: int, data: bytes = b"", wait: float | None = None) -> None:
        """Send a frame; waits while the peer is slow, no longer than ``wait`` seconds if given."""
        self._count(sent=_HEAD.size + len(data))
        self._outbox.put(_HEAD.pack(kind, number) + data, wait=wait)

    def _count(self, *, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.received += received
            over = self.sent + self.received > self._most
        if over:
            self.fail(f"the session has more than {self._most} bytes")
            raise PeerError(self._why or "the session is over")

    def _end_sockets(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._connections.values()):
            each.end()

    def _accept(self) -> None:
        """Turn every connection of our engine into a numbered one."""
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            number, self._next = self._next, self._next + 2
            try:
                self._begin(number, end, connected=True)
            except PeerError as error:
                end.close()
                self.fail(str(error))
                return

    def _begin(self, number: int, end: socket.socket, *, connected: bool) -> None:
        if len(self._connections) >= _CONNECTIONS:
            raise PeerError(f"a session must have at most {_CONNECTIONS} connections")
        made = self._connections[number] = _Connection(self, number, end)
        # Not before it is listed: the peer may answer at once.
        threading.Thread(target=made.write, args=(connected,), daemon=True).start()

    def _read(self) -> None:
        """Take the peer's frames until its stream ends."""
        why = "the peer's stream ended early"
        try:
            for frame in self._incoming:
                self._take(frame)
                if self._bye:
                    break
        except PeerError as error:
            why = str(error)
        except Exception as error:  # whatever gRPC raises when a stream breaks
            why = f"the stream broke: {cause(error)}"
        if not self._bye:
            self.fail(why)
            return
        with contextlib.suppress(queue.Full):  # nobody waits for more than it has sent
            self._blobs.put(None, timeout=self.patience)
        for each in list(self._connections.values()):
            each.put(None)

    def _take(self, frame: bytes) -> None:
        if not _HEAD.size <= len(frame) <= FRAME:
            raise PeerError(f"a frame must have {_HEAD.size} to {FRAME} bytes, got {len(frame)}")
        kind, number = _HEAD.unpack_from(frame)
        data = frame[_HEAD.size :]
        self._count(received=len(frame))  # empty frames count too
        if kind == EXCHANGE:
            try:
                self._blobs.put(data, timeout=self.patience)
            except queue.Full:
                raise PeerError("the peer exchanges more than was agreed") from None
        elif kind == OPEN:
            if number in self._connections or number % 2 == self._next % 2:
                raise PeerError(f"connection {number} cannot be opened by the peer")
            self._begin(number, socket.socket(socket.AF_UNIX), connected=False)
        elif kind in (DATA, SHUT):
            if number not in self._connections:
                raise PeerError(f"connection {number} was never opened")
            self._connections[number].put(data if kind == DATA else None)
        elif kind == BYE:
            self._bye = True
        else:
            raise PeerError(f"a frame of unknown kind {kind}")


class _Connection:
    """One connection of the engine: a thread for each direction, and a bounded buffer inwards."""

    def __init__(self, tunnel: Tunnel, number: int, end: socket.socket) -> None:
        self.socket, self._inward = end, Outbox(_BUFFER)
        self._tunnel, self._number = tunnel, number

    def put(self, data: bytes | None) -> None:
        """Give the engine bytes of the peer; None: there will be no more."""
        if data is None:
            self._inward.close()
        elif data:  # nothing takes no room, so that there could be any number of it
            with contextlib.suppress(PeerError):  # our engine closed it: nobody wants them
                self._inward.put(data)

    def end(self) -> None:
        """Drop what was not delivered."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._inward.drop()

    def write(self, connected: bool) -> None:
        """Take what the peer sends to our engine, once that listens; a thread takes the rest."""
        try:
            if connected:
                self._tunnel.send(OPEN, self._number)
            else:
                self._connect()
            threading.Thread(target=self._read, daemon=True).start()
            for data in self._inward:
                self.socket.sendall(data)
            self.socket.shutdown(socket.SHUT_WR)
        except (OSError, PeerError):
            self._inward.drop()

    def _connect(self) -> None:
        """Reach our engine, which may still be on its way up."""
        path, until = str(self._tunnel.folder / OWN), time.monotonic() + self._tunnel.patience
        while True:
            try:
                self.socket.connect(path)
                return
            except OSError:
                if time.monotonic() > until or self._tunnel.closed:
                    raise
                time.sleep(0.02)

    def _read(self) -> None:
        with contextlib.suppress(OSError, PeerError):
            while data := self.socket.recv(PIECE):
                self._tunnel.send(DATA, self._number, data)
        with contextlib.suppress(PeerError):
            self._tunnel.send(SHUT, self._number)
