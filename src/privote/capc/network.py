"""Calls between sites over gRPC and mutual TLS, and the stream of one secure session.

The caller trusts a peer only with exactly its pinned certificate; the server identifies a caller by
its certificate. The trust folder is read anew for every connection and every call.

A session has one stream. The engine speaks plain text over unix sockets in a folder of its own
(0700), because its own TLS can be bypassed: it listens on ``self.sock`` and connects to
``peer.sock``, behind which is this relay. What a connection says goes into the stream under its
number and comes out at the other side's ``self.sock``. The relay counts the bytes and ends a
session that has too many. An engine whose messages Python carries would be plugged in at
:class:`Link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import grpc

from ..errors import InputError, PeerError, PrivoteError
from .certs import Own, Trust
from .engine import OTHER, OWN
from .logs import WARNING, log
from .messages import Disconnected, Message, decode, encode, printable

Some = TypeVar("Some")
#: What answers calls: who calls, and the request; returns the reply.
Handler = Callable[[str, Message], Awaitable[Message]]

PIECE = 256 * 1024  # bytes of a socket in one frame
MOST_BYTES = 1 << 33
# A frame begins with the number of a connection, whose bytes follow: none at its end. Or else:
EXCHANGE, BYE = -1, -2
_HEAD = struct.Struct("!i")
_FRAME = PIECE + _HEAD.size
_CONNECTIONS = 32  # of one session
_PERIOD = 10.0  # seconds between looks at failed handshakes
_LINGER = 2.0  # seconds for the peer to end its side of a session

SERVICE = "privote.Capc"
SESSION_KEY = "privote-session"  # which session a stream is for


class Wire(Protocol):
    """Frames to and from the other side of a session."""

    async def read(self) -> bytes | None:
        """Return the next frame; None if there will be none, PeerError if the stream broke."""

    async def write(self, frame: bytes) -> None:
        """Send a frame, at the peer's pace."""

    async def close(self) -> None:
        """End the stream."""


class Link:
    """One side of a session, as :mod:`privote.capc.engine` uses it.

    Parameters
    ----------
    wire
        Frames to and from the peer; closed at the end.
    first
        True at the querier's side: the two sides number connections apart.
    most_bytes
        More than this, both ways together, ends the session.
    """

    def __init__(self, wire: Wire, *, first: bool, most_bytes: int = MOST_BYTES) -> None:
        self._wire, self._most, self._next = wire, most_bytes, 0 if first else 1
        self.bytes = 0
        self._writing = asyncio.Lock()
        self._exchanged: asyncio.Queue[bytes] = asyncio.Queue(maxsize=8)
        self._ends: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._folder: Path | None = None

    async def __aenter__(self) -> Link:
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        # Who failed leaves without a word: the peer must not wait for it.
        if kind is None and not self._failure.done():
            with contextlib.suppress(PeerError, TimeoutError):
                async with asyncio.timeout(_LINGER):  # what was sent last must arrive
                    await self._send(BYE)
                    await asyncio.wait({self._reader})
        for task in (self._reader, *self._tasks):
            task.cancel()
        await asyncio.gather(self._reader, *self._tasks, return_exceptions=True)
        self._failure.cancel()
        await self._wire.close()

    def fail(self, why: str) -> None:
        """Break the session off: whoever is guarded notices."""
        if not self._failure.done():
            self._failure.set_exception(PeerError(why))
            self._failure.exception()  # it need not interest anybody

    async def guard(self, work: Awaitable[Some]) -> Some:
        """Return what ``work`` does; PeerError as soon as the session breaks."""
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                await self._failure
            result: Some = await task
            return result
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def exchange(self, data: bytes) -> bytes:
        """Send ours, return the peer's."""
        await self._send(EXCHANGE, data)
        return await self._exchanged.get()

    @asynccontextmanager
    async def sockets(self) -> AsyncIterator[Path]:
        """Listen on ``peer.sock`` in a folder of its own, for the engine's connections."""
        # Short: the path of a unix socket has room for about 100 characters.
        with TemporaryDirectory(prefix="pv-", ignore_cleanup_errors=True) as name:
            self._folder = Path(name)
            server = await asyncio.start_unix_server(self._accept, self._folder / OTHER)
            try:
                yield self._folder
            finally:
                server.close()
                for end in self._ends.values():
                    end.close()

    async def _send(self, number: int, data: bytes = b"") -> None:
        self._count(_HEAD.size + len(data))
        async with self._writing:
            await self._wire.write(_HEAD.pack(number) + data)

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self._most:
            raise PeerError(f"the session has more than {self._most} bytes")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Turn a connection of our engine into a numbered one."""
        number, self._next = self._next, self._next + 2
        self._begin(number, reader, writer)

    def _begin(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._ends[number] = writer
        if len(self._ends) > _CONNECTIONS:
            self.fail(f"a session must have at most {_CONNECTIONS} connections")
            return
        task = asyncio.create_task(self._pump(number, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pump(self, number: int, reader: asyncio.StreamReader) -> None:
        """Send what our engine writes."""
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(PIECE):
                    await self._send(number, data)
            await self._send(number)
        except PeerError as error:
            self.fail(str(error))

    async def _read(self) -> None:
        """Take the peer's frames until it says that it is done."""
        try:
            while (frame := await self._wire.read()) != _HEAD.pack(BYE):
                if frame is None:
                    raise PeerError("the peer's stream ended early")
                await self._take(frame)
        except PeerError as error:
            self.fail(str(error))

    async def _take(self, frame: bytes) -> None:
        self._count(len(frame))  # empty frames count too
        if len(frame) < _HEAD.size:
            raise PeerError(f"a frame must have at least {_HEAD.size} bytes, got {len(frame)}")
        (number,), data = _HEAD.unpack_from(frame), frame[_HEAD.size :]
        if number == EXCHANGE:
            if self._exchanged.full():
                raise PeerError("the peer exchanges more than was agreed")
            self._exchanged.put_nowait(data)
            return
        if number not in self._ends:
            if number < 0 or number % 2 == self._next % 2 or self._folder is None:
                raise PeerError(f"connection {number} cannot be opened by the peer")
            self._begin(number, *await self._connect(self._folder / OWN))
        end = self._ends[number]
        with contextlib.suppress(OSError, RuntimeError):  # our engine closed it: nobody wants it
            if data:
                end.write(data)
                await end.drain()
            else:
                end.write_eof()

    async def _connect(self, path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Reach our engine, which may still be on its way up."""
        while True:
            with contextlib.suppress(OSError):
                return await asyncio.open_unix_connection(path)
            await asyncio.sleep(0.02)


# -- gRPC ------------------------------------------------------------------------------------------

#: What gRPC's words mean, for whoever connected: a pattern in its text, and our sentence.
_MEANINGS = {
    "certificate has expired": "its certificate has expired",
    "certificate is not yet valid": "its certificate is not yet valid: check the clocks",
    "Hostname Verification": "the certificate it presents is for another name",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not the pinned one",
    "Connection refused": "no program is listening there",
    "Socket closed|Connection reset|Broken pipe": "it closed the connection: it may have stopped, "
    "or may not have pinned our certificate",
    "Deadline Exceeded": "it did not answer in time",
}


def _cause(error: grpc.aio.AioRpcError) -> str:
    """Return what went wrong with a call, in one line."""
    details = str(error.details() or error.code().name)
    meant = (meaning for part, meaning in _MEANINGS.items() if re.search(part, details))
    return next(meant, printable(details)[:300])


def _options(most_message: int) -> list[tuple[str, int]]:
    """Return gRPC's options that keep in bounds messages, detours and what strangers can hold.

    Half of the process's files are left to journals, sessions and their sockets.
    """
    most, files = max(most_message, 2 * _FRAME), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.max_metadata_size", 8192),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a packed frame may be a bomb
        ("grpc.keepalive_time_ms", 20_000),  # a peer whose machine is gone is noticed
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_allowed_incoming_connections", 4096 if files < 0 else min(4096, files // 2)),
        ("grpc.server_handshake_timeout_ms", 10_000),  # whoever is silent holds no connection
        ("grpc.max_connection_idle_ms", 120_000),  # without a call; calling again reconnects
    ]


class _Stream:
    """A gRPC stream as a wire, from either side."""

    def __init__(self, call: Any, end: Callable[[], Awaitable[None]]) -> None:
        self._call, self._end = call, end

    async def close(self) -> None:
        await self._end()

    async def read(self) -> bytes | None:
        frame = await self._do(self._call.read())
        return None if frame is grpc.aio.EOF else bytes(frame)

    async def write(self, frame: bytes) -> None:
        await self._do(self._call.write(frame))

    async def _do(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except grpc.aio.AioRpcError as error:
            raise PeerError(f"the stream broke: {_cause(error)}") from None
        except (asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError):
            raise PeerError("the stream to the peer has ended") from None


@dataclass(kw_only=True, eq=False)
class Network:
    """Calls peers, and serves calls: as one site, with its certificate and what it has pinned.

    Attributes
    ----------
    own, trust
        Our certificate, the pinned ones.
    addresses
        Where those are whom we call: name to ``HOST:PORT``.
    callers
        Who may call us.
    most_message
        Bytes of the longest message.
    most_calls
        Calls and streams that one caller may have open at a time.
    """

    own: Own
    trust: Trust
    addresses: Mapping[str, str]
    callers: frozenset[str] = frozenset()
    most_message: int = 16 << 20
    most_calls: int = 16

    def __post_init__(self) -> None:
        self._expected: dict[tuple[str, str], asyncio.Future[Wire]] = {}
        self._open: Counter[str] = Counter()
        self._handshakes, self._seen = 0, set[str]()

    # -- calling -----------------------------------------------------------------------------------

    async def call(self, to: str, message: Message, timeout: float) -> Message:
        """Return the reply of a site; its refusal is raised as the error that it stands for.

        Raises
        ------
        Disconnected
            It cannot be reached, or did not answer in time.
        """
        async with self._channel(to) as channel:
            try:
                method = channel.unary_unary(f"/{SERVICE}/call")
                reply = await method(encode(message), timeout=timeout)
            except grpc.aio.AioRpcError as error:
                raise Disconnected(f"{to} ({self.addresses[to]}): {_cause(error)}") from None
        return decode(reply, self.most_message).or_raise(to)

    def _channel(self, to: str) -> Any:
        if to not in self.addresses:
            raise PeerError(f"no address of {to} is known")
        key, certificate = self.own.read()
        credentials = grpc.ssl_channel_credentials(
            b"".join(each.pem for each in self.trust.of(to)), key, certificate
        )
        options = [*_options(self.most_message), ("grpc.ssl_target_name_override", to)]
        return grpc.aio.secure_channel(self.addresses[to], credentials, options)

    async def open(self, peer: str, session: str) -> Wire:
        """Open the stream of a session that the peer expects."""
        channel = self._channel(peer)
        call = channel.stream_stream(f"/{SERVICE}/stream")(metadata=((SESSION_KEY, session),))

        async def end() -> None:
            call.cancel()
            await channel.close()

        return _Stream(call, end)

    # -- serving -----------------------------------------------------------------------------------

    def expect(self, peer: str, session: str) -> asyncio.Future[Wire]:
        """Be ready for the stream of a session; the future gets it."""
        coming: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        self._expected[peer, session] = coming
        coming.add_done_callback(lambda _: self._expected.pop((peer, session), None))
        return coming

    @asynccontextmanager
    async def serving(self, listen: str, handle: Handler) -> AsyncIterator[int]:
        """Serve pinned callers with mutual TLS while the block runs; yields the port."""

        async def call(request: bytes, context: Any) -> bytes:
            async with self._caller(context) as peer:
                return encode(await handle(peer, decode(request, self.most_message)))

        server = grpc.aio.server(
            options=_options(self.most_message),
            maximum_concurrent_rpcs=self.most_calls * (len(self.callers) + 1),
        )
        methods = {
            "call": grpc.unary_unary_rpc_method_handler(call),
            "stream": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            port = server.add_secure_port(listen, self._credentials())
        except RuntimeError:
            raise InputError("listen", "must be a free HOST:PORT of this machine", listen) from None
        await server.start()
        watch = asyncio.create_task(self._watch())
        try:
            yield port
        finally:
            watch.cancel()
            await server.stop(1.0)

    async def _stream(self, _: Any, context: Any) -> None:
        """Hand a caller's stream to the session that expects it, until that is over."""
        async with self._caller(context) as peer:
            session = str(dict(context.invocation_metadata()).get(SESSION_KEY, ""))
            over, coming = asyncio.Event(), self._expected.get((peer, session))
            if coming is None or coming.done():
                raise PeerError("no such session is expected")

            async def end() -> None:
                over.set()

            coming.set_result(_Stream(context, end))
            await over.wait()

    def _credentials(self) -> Any:
        """Return our certificate and the pinned ones, read anew for every handshake."""

        def files() -> tuple[bytes, bytes, bytes]:
            key, certificate = self.own.read()
            return key, certificate, self.trust.bundle() or certificate

        def configuration(key: bytes, certificate: bytes, roots: bytes) -> Any:
            return grpc.ssl_server_certificate_configuration([(key, certificate)], roots)

        current = files()

        def changed() -> Any:
            # None keeps those in use. gRPC replaces them without a lock: to hand it the same ones
            # at every handshake crashed the process when many connections came at once.
            nonlocal current
            self._handshakes += 1
            try:
                last, current = current, files()
            except (PrivoteError, OSError) as error:
                log("certificates cannot be read", WARNING, why=printable(str(error)))
                return None
            return None if current == last else configuration(*current)

        return grpc.dynamic_ssl_server_credentials(configuration(*current), changed, True)

    async def _watch(self) -> None:
        """Log handshakes that no call followed; gRPC itself does not tell who they were."""
        while True:
            await asyncio.sleep(_PERIOD)
            handshakes = self._handshakes
            await asyncio.sleep(_PERIOD / 10)  # for the call after the last of them
            if (failed := handshakes - len(self._seen)) > 0:
                why = "no TLS, or a certificate that is not pinned here"
                log("handshakes failed", WARNING, site=self.own.name, count=failed, why=why)
            self._handshakes, self._seen = self._handshakes - handshakes, set()

    @asynccontextmanager
    async def _caller(self, context: Any) -> AsyncIterator[str]:
        """Yield who calls, by the fingerprint of its certificate; or refuse, and log that."""
        self._seen.add(context.peer())
        presented = context.auth_context().get("x509_pem_cert", [b""])[0]
        code, peer, print_ = "INVALID_ARGUMENT", "unknown", "none"
        try:
            print_ = sha256(ssl.PEM_cert_to_DER_cert(presented.decode())).hexdigest()
            peer = self.trust.owner(print_) or "unknown"
            if peer not in self.callers:
                code = "PERMISSION_DENIED"
                raise PeerError(f"{peer} has no part with {self.own.name} in this coalition")
            if self._open[peer] >= self.most_calls:
                code = "RESOURCE_EXHAUSTED"
                raise PeerError(f"{peer} has {self.most_calls} calls open, and may have no more")
            self._open[peer] += 1
            try:
                yield peer
            finally:
                self._open[peer] -= 1
        except PrivoteError as error:
            facts = {"caller": peer, "address": context.peer(), "fingerprint": print_[:16]}
            log("caller rejected", WARNING, why=printable(str(error)), **facts)
            await context.abort(getattr(grpc.StatusCode, code), printable(str(error))[:300])
