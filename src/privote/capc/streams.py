"""Calls between sites: two kinds of stream over gRPC and mutual TLS, from either side.

The caller trusts a peer only with exactly its pinned certificate; the server identifies a caller by
its certificate, and hands its streams on.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import grpc

from ..errors import InputError, PeerError, PrivoteError
from .certs import Own, Trust, fingerprint_of
from .messages import ROLES
from .tunnel import FRAME, Outbox, Tunnel, cause

if TYPE_CHECKING:
    from .driver import Driver

SERVICE = "privote.Capc"
TALK, TUNNEL = "Talk", "Tunnel"
SESSION_KEY = "privote-session"  # the session a tunnel is for
ROLE_KEY = "privote-role"  # as what a site opens a stream: one certificate may answer and query
TALK_BUFFER = 64 << 20
_CONNECTIONS = 4096
_LINGER = 5.0  # seconds for the peer to end its side of a session
Log = Callable[[str], None]


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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a role needs of its site to run on a network.

    Attributes
    ----------
    own, trust
        Our certificate, the pinned ones.
    addresses
        Where those are whom this role calls: name to ``HOST:PORT``.
    listen
        ``HOST:PORT`` for those who call; None if nobody does.
    callers
        Who may call.
    most_message
        Bytes of the longest message.
    sessions
        Secure sessions at a time.
    """

    own: Own
    trust: Trust
    addresses: Mapping[str, str]
    listen: str | None = None
    callers: frozenset[str] = frozenset()
    most_message: int = 16 << 20
    sessions: int = 2

    @property
    def most_frame(self) -> int:
        """Bytes of the longest thing that a stream carries: a message, or a tunnel's frame."""
        return max(self.most_message, 2 * FRAME)


@dataclass(eq=False)
class Line:
    """A stream with one peer, from either side."""

    peer: str
    role: str
    end: Callable[[str], None]  # cuts it off, with the reason
    outbox: Outbox

    def send(self, data: bytes) -> None:
        """Send a message without waiting; a peer that takes nothing is as good as gone."""
        self.outbox.put(data, wait=0.0)


class _Call:
    """A stream that we opened, on a connection of its own."""

    def __init__(
        self,
        peer: str,
        settings: Settings,
        method: str,
        outbox: Outbox,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        key, certificate = settings.own.read()
        pinned = settings.trust.of(peer)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=b"".join(each.pem for each in pinned),
            private_key=key,
            certificate_chain=certificate,
        )
        self._channel = grpc.secure_channel(
            settings.addresses[peer],
            credentials,
            [*bounds(settings.most_frame), ("grpc.ssl_target_name_override", peer)],
        )
        start = self._channel.stream_stream(f"/{SERVICE}/{method}")
        self.stream = start(outbox, metadata=metadata)
        self.why: str | None = None

    def end(self, why: str = "") -> None:
        """End it, with the reason."""
        self.why = self.why or why
        self._channel.close()


class Caller:
    """Calls peers.

    Parameters
    ----------
    settings
        As whom we call, whom we trust, and where peers listen.
    role
        As what we call.
    """

    def __init__(self, settings: Settings, *, role: str) -> None:
        self._settings, self._role = settings, role
        self._calls: WeakSet[_Call] = WeakSet()

    def _call(self, peer: str, method: str, outbox: Outbox, session: str = "") -> _Call:
        if peer not in self._settings.addresses:
            raise PeerError(f"no address of {peer} is known")
        metadata = ((ROLE_KEY, self._role), (SESSION_KEY, session))
        call = _Call(peer, self._settings, method, outbox, metadata)
        self._calls.add(call)
        return call

    def close(self) -> None:
        """End all streams."""
        for call in list(self._calls):
            call.end("this program is stopping")

    def talk(
        self,
        peer: str,
        role: str,
        take: Callable[[Line, bytes], None],
        lost: Callable[[Line, str], None],
    ) -> Line:
        """Open the stream of messages.

        Parameters
        ----------
        peer, role
            Whom we call, and as what.
        take
            Gets every message of the peer; PrivoteError ends the stream.
        lost
            Called once when the stream has ended, with the reason.
        """
        outbox = Outbox(TALK_BUFFER)
        call = self._call(peer, TALK, outbox)
        line = Line(peer, role, call.end, outbox)

        def listen() -> None:
            why = "it ended the stream"
            try:
                for data in call.stream:
                    take(line, data)
            except PrivoteError as error:
                why = f"what it sent was refused: {error}"
            except grpc.RpcError as error:
                why = call.why or cause(error)
            except Exception as error:  # whoever waits for this peer must hear that it is gone
                why = f"what it sent could not be read: {type(error).__name__}"
            outbox.drop()
            call.end()
            lost(line, why)

        threading.Thread(target=listen, daemon=True, name=f"talk-{peer}").start()
        return line

    def tunnel(self, peer: str, session: str, patience: float) -> Tunnel:
        """Open a session's tunnel, and wait until the peer is ready for it."""
        outbox = Outbox(4 * FRAME)
        call = self._call(peer, TUNNEL, outbox, session)
        ready = threading.Timer(patience, call.end)  # reading has no time limit of its own
        ready.daemon = True
        ready.start()
        try:
            if next(call.stream, None) != b"":
                raise PeerError(f"{peer} did not open session {session!r}")
        except (grpc.RpcError, PeerError) as error:
            call.end()
            if isinstance(error, PeerError):
                raise
            late = error.code() == grpc.StatusCode.CANCELLED
            why = f"not ready after {patience:g} s" if late else cause(error)
            raise PeerError(f"session {session} with {peer}: {why}") from None
        finally:
            ready.cancel()
        return _CallersTunnel(call, outbox, patience)


class _CallersTunnel(Tunnel):
    """A tunnel that ends its call when both sides are done."""

    def __init__(self, call: _Call, outbox: Outbox, patience: float) -> None:
        self._call, self._over = call, threading.Event()
        call.stream.add_done_callback(lambda _: self._over.set())
        super().__init__(outbox, call.stream, first=True, patience=patience)

    def close(self) -> None:
        super().close()
        # What we sent last must arrive; a peer that does not end its side is cut off.
        self._over.wait(_LINGER)
        self._call.end()

    def fail(self, why: str) -> None:
        super().fail(why)
        self._call.end()


class Server:
    """Listens with mutual TLS and serves only peers whose certificate is pinned.

    Sites that may not call are refused even if they are pinned, and so is a caller with too many
    streams.

    Parameters
    ----------
    settings
        Where to listen, as whom, and for whom; with port 0 a free one, see `port`.
    driver
        What to do with streams.
    log
        Gets one line for each refusal.
    """

    def __init__(self, settings: Settings, driver: Driver, log: Log) -> None:
        self._settings, self._trust = settings, settings.trust
        self._driver, self._log = driver, log
        self._open: set[Line] = set()
        self._lock = threading.Lock()
        # Each caller may answer and query, and have sessions open beside.
        self._most_each = 2 * settings.sessions + 4
        most_streams = self._most_each * len(settings.callers) + 8
        key, certificate = settings.own.read()
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], self._trust.bundle() or certificate, require_client_auth=True
        )
        calls = {TALK: self.talk, TUNNEL: self.tunnel}  # bytes in, bytes out
        serving = grpc.stream_stream_rpc_method_handler
        methods = {name: serving(serve) for name, serve in calls.items()}
        self._server = grpc.server(
            futures.ThreadPoolExecutor(most_streams + 4, thread_name_prefix="capc"),
            handlers=(grpc.method_handlers_generic_handler(SERVICE, methods),),
            options=[*bounds(settings.most_frame), *limits()],
            maximum_concurrent_rpcs=most_streams,
        )
        try:
            self.port = self._server.add_secure_port(settings.listen, credentials)
        except RuntimeError:
            raise InputError(
                "listen", "must be a free HOST:PORT of this machine", settings.listen
            ) from None
        self._server.start()

    def stop(self, grace: float = 1.0) -> None:
        """End all streams."""
        self._server.stop(grace).wait()

    def _caller(self, context: Any, what: str) -> Line:
        """Return who calls, by the fingerprint of the certificate it presents; or refuse."""
        presented = context.auth_context().get("x509_pem_cert", [b""])[0]
        try:
            fingerprint = fingerprint_of(presented)
            peer = self._trust.owner(fingerprint)
        except PrivoteError:
            peer, fingerprint = None, "none"
        if peer is None:
            why = f"{what} refused: certificate {fingerprint[:16]} is not pinned here"
            self._refuse(context, "UNAUTHENTICATED", why)
        if peer not in self._settings.callers:
            us = self._settings.own.name
            why = f"{what} refused: {peer} has no part with {us} in this coalition"
            self._refuse(context, "PERMISSION_DENIED", why)
        role = _said(context, ROLE_KEY)
        if role not in ROLES:
            why = f"{what} of {peer} refused: its role must be one of {', '.join(ROLES)}"
            self._refuse(context, "INVALID_ARGUMENT", why)

        def end(why: str) -> None:
            self._log(f"{what} with {peer} ended: {why}")
            context.cancel()

        return Line(str(peer), role, end, Outbox(TALK_BUFFER))

    def _refuse(self, context: Any, code: str, why: str) -> None:
        self._log(why)
        context.abort(getattr(grpc.StatusCode, code), why)

    def talk(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serve a stream of messages: ours go out while a thread takes the peer's."""
        line = self._caller(context, "messages")
        if not context.add_callback(line.outbox.close):
            return  # it is over before it began
        why: list[str] = []

        def listen() -> None:
            try:
                for data in requests:
                    self._driver.message(line, data)
            except PrivoteError as error:
                why.append(f"messages from {line.peer} refused: {error}")
                self._log(why[0])
            except Exception:  # gRPC's own, when the peer is gone
                pass
            line.outbox.close()

        with self._watched(line, context):
            self._driver.opened(line)
            listening = threading.Thread(target=listen, daemon=True, name=f"talk-{line.peer}")
            listening.start()
            try:
                yield from line.outbox
            finally:
                line.outbox.close()
                if not context.is_active():
                    # It counts as the caller's until all that it sent is dealt with.
                    listening.join()
                self._driver.closed(line)
        if why:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, why[0])

    def tunnel(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serve a session's tunnel."""
        line = self._caller(context, "tunnel")
        session = _said(context, SESSION_KEY)
        with self._watched(line, context):
            try:
                yield from self._driver.tunnel(line.peer, session, requests)
            except PeerError as error:
                why = f"tunnel of {line.peer} for session {session!r:.80} refused: {error}"
                self._refuse(context, "FAILED_PRECONDITION", why)

    @contextmanager
    def _watched(self, line: Line, context: Any) -> Iterator[None]:
        """Count a stream among its caller's while it is open; refuse one too many."""
        with self._lock:
            full = sum(each.peer == line.peer for each in self._open) >= self._most_each
            if not full:
                self._open.add(line)
        if full:
            why = f"stream refused: {line.peer} has {self._most_each} open, and may have no more"
            self._refuse(context, "RESOURCE_EXHAUSTED", why)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(line)


def _said(context: Any, key: str) -> str:
    """Return what a caller sent with its call under a key."""
    return str(dict(context.invocation_metadata()).get(key, ""))
