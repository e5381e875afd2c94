"""What server and client share: two calls, their bounds, their streams, and why one broke."""

from __future__ import annotations

import resource
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from privote.errors import PeerError, missing_extra

from ..messages import printable

SERVICE = "privote.Capc"
TALK, TUNNEL = "Talk", "Tunnel"
SESSION_KEY = "privote-session"  # the session a tunnel is for
ROLE_KEY = "privote-role"  # as what a site opens a stream: one certificate may answer and query
TALK_BUFFER = 64 << 20
_CONNECTIONS = 4096
Log = Callable[[str], None]


def grpc_module() -> Any:
    """Return gRPC, or say which extra brings it."""
    try:
        import grpc
    except ImportError:
        raise missing_extra("capc", "a coalition over a network") from None
    return grpc


def bounds(most_message: int) -> list[tuple[str, int]]:
    """Return gRPC's options that keep messages, idle streams and detours in bounds."""
    return [
        ("grpc.max_receive_message_length", most_message),
        ("grpc.max_send_message_length", most_message),
        ("grpc.max_metadata_size", 8192),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a packed frame may be a bomb
        ("grpc.keepalive_time_ms", 20_000),  # a peer whose machine is gone is noticed
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


def limits() -> list[tuple[str, int]]:
    """Return gRPC's options that keep in bounds what strangers can hold of a server.

    Half of the process's files are left to journals, sessions and their sockets.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = _CONNECTIONS if files == resource.RLIM_INFINITY else min(_CONNECTIONS, files // 2)
    return [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server_handshake_timeout_ms", 10_000),  # whoever is silent holds no connection
        ("grpc.max_connection_idle_ms", 120_000),  # without a stream; calling again reconnects
    ]


_CLOSED = (
    "it closed the connection: it may not have pinned our certificate, have revoked it, or have "
    "stopped; its log says which"
)
#: What gRPC's words mean, for whoever connected: (part of its text, our sentence).
_MEANINGS = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not valid yet: check the clocks"),
    ("Hostname Verification", "the certificate it presents is for another name"),
    ("CERTIFICATE_VERIFY_FAILED", "it presents another certificate than the pinned one"),
    ("Connection refused", "nobody listens there"),
    ("No address", "there is no such address"),
    ("name resolution", "there is no such address"),
    ("Name or service not known", "there is no such address"),
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


@dataclass(eq=False)
class Line:
    """A stream of messages with one peer, from either side."""

    peer: str
    role: str
    fingerprint: str
    end: Callable[[str], None]  # cuts it off, with the reason
    garbled: int = 0
    outbox: Outbox = field(default_factory=lambda: Outbox(TALK_BUFFER))

    def send(self, data: bytes) -> None:
        """Send a message without waiting; a peer that takes nothing is as good as gone."""
        self.outbox.put(data, wait=0.0)
