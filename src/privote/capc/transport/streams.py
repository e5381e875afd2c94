"""What server and client share: names of the two calls, bounds, and how a broken call is told."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from privote.errors import missing_extra

from ..messages import printable

SERVICE = "privote.Capc"
TALK, TUNNEL = f"/{SERVICE}/Talk", f"/{SERVICE}/Tunnel"
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
    ("Socket closed", "it closed the connection: it may not have pinned our certificate, have "
     "revoked it, or have stopped; its log says which"),
    ("Connection reset", "it closed the connection: it may not have pinned our certificate, have "
     "revoked it, or have stopped; its log says which"),
    ("Broken pipe", "it closed the connection: it may not have pinned our certificate, have "
     "revoked it, or have stopped; its log says which"),
)  # fmt: skip


def told(error: Any) -> str:
    """Return what went wrong with a call, in one line for a log."""
    details = error.details() if callable(getattr(error, "details", None)) else str(error)
    code = error.code().name if callable(getattr(error, "code", None)) else type(error).__name__
    if code in ("UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED"):
        for part, meaning in _MEANINGS:
            if part in str(details):
                return meaning
    return printable(f"{details or code}")[:300]
