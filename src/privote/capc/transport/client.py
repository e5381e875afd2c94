"""The side that calls: one channel a peer, trusted only with exactly its pinned certificate."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from privote.errors import PeerError, PrivoteError

from .server import Settings
from .streams import (
    ROLE_KEY,
    SERVICE,
    SESSION_KEY,
    TALK,
    TUNNEL,
    Line,
    Log,
    Outbox,
    bounds,
    cause,
    grpc_module,
)
from .tunnel import FRAME, MOST_EXCHANGE, Tunnel

_LINGER = 5.0  # seconds for the peer to end its side of a session


class Client:
    """Calls one peer.

    Parameters
    ----------
    peer
        Its name, which its certificate must bear.
    settings
        As whom we call, whom we trust, and where the peer listens.
    role
        As what we call.
    log
        Gets one line for each stream that fails.
    """

    def __init__(self, peer: str, settings: Settings, *, role: str, log: Log) -> None:
        self.peer, self._role, self._log = peer, role, log
        self._grpc, self._trust = grpc_module(), settings.trust
        self._tunnels: set[Any] = set()
        key, certificate, _ = settings.own.read()
        pinned = self._trust.of(peer)
        self.fingerprints = {each.fingerprint for each in pinned}
        credentials = self._grpc.ssl_channel_credentials(
            root_certificates=b"".join(each.pem for each in pinned),
            private_key=key,
            certificate_chain=certificate,
        )
        self._channel = self._grpc.secure_channel(
            settings.addresses[peer],
            credentials,
            [*bounds(settings.most_frame), ("grpc.ssl_target_name_override", peer)],
        )

    @property
    def trusted(self) -> bool:
        """True while none of the certificates this channel accepts was revoked."""
        return all(self._trust.owner(each) == self.peer for each in self.fingerprints)

    @property
    def busy(self) -> bool:
        """True while a session goes through this channel."""
        return bool(self._tunnels)

    def close(self) -> None:
        """End all streams of this channel."""
        self._channel.close()

    def talk(
        self, role: str, take: Callable[[Line, bytes], None], lost: Callable[[Line, str], None]
    ) -> Line:
        """Open the stream of messages.

        Parameters
        ----------
        role
            As what the peer is called.
        take
            Gets every message of the peer; PrivoteError ends the stream.
        lost
            Called once when the stream has ended, with the reason.
        """
        line = Line(
            self.peer, role, next(iter(self.fingerprints)), lambda why: self._cut(call, why)
        )
        call = self._channel.stream_stream(f"/{SERVICE}/{TALK}")(
            line.outbox, metadata=((ROLE_KEY, self._role),)
        )

        def listen() -> None:
            why = "it ended the stream"
            try:
                for data in call:
                    take(line, data)
            except PrivoteError as error:
                why = f"what it sent was refused: {error}"
                call.cancel()
            except self._grpc.RpcError as error:
                why = cause(error)
            except Exception as error:  # whoever waits for this peer must hear that it is gone
                why = f"what it sent could not be read: {type(error).__name__}"
                call.cancel()
            line.outbox.drop()
            lost(line, why)

        threading.Thread(target=listen, daemon=True, name=f"talk-{self.peer}").start()
        return line

    def _cut(self, call: Any, why: str) -> None:
        self._log(f"messages with {self.peer} ended: {why}")
        call.cancel()

    def tunnel(self, session: str, patience: float, most_exchange: int = MOST_EXCHANGE) -> Tunnel:
        """Open a session's tunnel, and wait until the peer is ready for it."""
        outbox = Outbox(4 * FRAME)
        call = self._channel.stream_stream(f"/{SERVICE}/{TUNNEL}")(
            outbox, metadata=((SESSION_KEY, session), (ROLE_KEY, self._role))
        )
        ready = threading.Timer(patience, call.cancel)  # reading has no time limit of its own
        ready.daemon = True
        ready.start()
        try:
            if next(call, None) != b"":
                raise PeerError(f"{self.peer} did not open session {session!r}")
        except self._grpc.RpcError as error:
            late = error.code() == self._grpc.StatusCode.CANCELLED
            why = f"not ready after {patience:g} s" if late else cause(error)
            raise PeerError(f"session {session} with {self.peer}: {why}") from None
        finally:
            ready.cancel()
        self._tunnels.add(call)
        call.add_done_callback(lambda _: self._tunnels.discard(call))
        return _CallersTunnel(call, outbox, patience, most_exchange)


class _CallersTunnel(Tunnel):
    """A tunnel that ends its call when both sides are done."""

    def __init__(self, call: Any, outbox: Outbox, patience: float, most_exchange: int) -> None:
        self._call, self._over = call, threading.Event()
        call.add_done_callback(lambda _: self._over.set())
        super().__init__(outbox, call, first=True, patience=patience, most_exchange=most_exchange)

    def close(self) -> None:
        super().close()
        # What we sent last must arrive; a peer that does not end its side is cut off.
        if not self._over.wait(_LINGER):
            self._call.cancel()

    def fail(self, why: str) -> None:
        super().fail(why)
        self._call.cancel()
