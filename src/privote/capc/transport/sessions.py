"""Secure sessions of one site: who computes with whom, how many at a time, and what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from privote.errors import PeerError, PrivoteError
from privote.files import sweep

from ..roles.base import Broken, Compute, Computed, Event
from ..secure.base import SecureEngine
from .client import Client
from .streams import Log, Outbox
from .tunnel import FRAME, MOST_EXCHANGE, SOCKETS, Tunnel

_GRACE = 5.0  # seconds for sessions to end when the program stops
_DIGESTS = 4096  # bytes that a secure engine exchanges beside its sockets, and more
_EARLY = 10.0  # seconds that a tunnel may come before our own side is ready for it


class Sessions:
    """Runs the Compute actions of a role.

    The querier takes a slot, then opens the tunnel; the other side takes a slot when the tunnel
    has come. Whoever holds a slot of the second kind computes at once, so nobody waits in a ring.

    Parameters
    ----------
    engine
        What computes.
    at_a_time
        Sessions computing at the same time on this machine.
    report
        Gets the outcome of every session.
    """

    def __init__(
        self, engine: SecureEngine, *, at_a_time: int, report: Callable[[Event], None], log: Log
    ) -> None:
        self._engine = engine
        self._most_exchange = _DIGESTS if engine.secure else MOST_EXCHANGE
        self._report, self._log = report, log
        self._slots = threading.Semaphore(at_a_time)
        self._changed = threading.Condition()
        # Sessions that our role is ready for and whose tunnel has not come: work, and until when.
        self._expected: dict[str, tuple[Compute, float]] = {}
        self._tunnels: set[Tunnel] = set()
        self._stopped = False
        self.bytes = 0  # of all sessions, both ways
        sweep(None, SOCKETS)

    def call(self, client: Callable[[str], Client], work: Compute) -> None:
        """Compute as the querier: open a tunnel to the peer and run, in a thread."""

        def run() -> None:
            with self._slots:
                try:
                    if self._stopped:
                        raise PeerError("this program is stopping")
                    tunnel = client(work.peer).tunnel(
                        work.session, work.seconds, self._most_exchange
                    )
                except PrivoteError as error:
                    self._broken(work.session, work.peer, str(error))
                    return
                self._compute(work, tunnel)

        threading.Thread(target=run, daemon=True, name=f"session-{work.session}").start()

    def expect(self, work: Compute) -> None:
        """Be ready to compute as the peer, when the querier's tunnel comes."""
        with self._changed:
            self._expected[work.session] = (work, time.monotonic() + work.seconds)
            self._changed.notify_all()

    def serve(self, peer: str, session: str, incoming: Iterator[bytes]) -> Iterator[bytes]:
        """Serve a tunnel that came: yields our frames; PeerError refuses it."""
        work = self._claim(peer, session)
        if not self._slots.acquire(timeout=work.seconds):
            self._broken(session, peer, "no slot became free")
            raise PeerError("too many sessions at a time")
        outbox = Outbox(4 * FRAME)
        try:
            yield b""  # ready
            tunnel = Tunnel(
                outbox,
                incoming,
                first=False,
                patience=work.seconds,
                most_exchange=self._most_exchange,
            )
        except BaseException:
            self._slots.release()
            self._broken(session, peer, "the tunnel ended before anything was computed")
            raise

        def run() -> None:
            try:
                self._compute(work, tunnel)
            finally:
                self._slots.release()

        threading.Thread(target=run, daemon=True, name=f"session-{session}").start()
        try:
            yield from outbox
        finally:  # the peer is gone: no more frames are wanted
            tunnel.fail("the peer's stream ended early")

    def _claim(self, peer: str, session: str) -> Compute:
        """Return the work of an expected session; waits a little for our own side to be ready."""

        def there() -> bool:
            found = self._expected.get(session)
            return self._stopped or (found is not None and found[0].peer == peer)

        with self._changed:
            if not self._changed.wait_for(there, timeout=_EARLY):
                raise PeerError(f"no such session is expected from {peer}")
            if self._stopped:
                raise PeerError("this program is stopping")
            return self._expected.pop(session)[0]

    def _compute(self, work: Compute, tunnel: Tunnel) -> None:
        began, why = time.monotonic(), None
        with self._changed:
            self._tunnels.add(tunnel)
        try:
            outputs = self._engine.run(
                work.programs, work.side, work.inputs, tunnel, deadline=work.seconds
            )
        except PrivoteError as error:
            why = tunnel.why or str(error)
        except Exception as error:  # its text may hold what nobody should see in a log
            why = f"the engine failed: {type(error).__name__}"
        finally:
            tunnel.close()  # before the report: what was sent last has then arrived
            with self._changed:
                self._tunnels.discard(tunnel)
                self._changed.notify_all()
        if why is not None:
            self._broken(work.session, work.peer, why)
            return
        spent, moved = time.monotonic() - began, tunnel.sent + tunnel.received
        with self._changed:
            self.bytes += moved
        self._log(f"session {work.session} with {work.peer}: {spent:.1f} s, {moved:,} bytes")
        self._report(Computed(work.session, outputs))

    def _broken(self, session: str, peer: str, why: str) -> None:
        self._log(f"session {session} with {peer} broke: {why}")
        self._report(Broken(session, why))

    def tick(self) -> None:
        """Give up on sessions whose tunnel never came."""
        with self._changed:
            now = time.monotonic()
            late = [work for work, until in self._expected.values() if now > until]
            for work in late:
                del self._expected[work.session]
        for work in late:
            self._broken(work.session, work.peer, "its tunnel did not come in time")

    def stop(self) -> None:
        """End every session."""
        with self._changed:
            self._stopped = True
            tunnels = list(self._tunnels)
            self._changed.notify_all()
        for tunnel in tunnels:
            tunnel.fail("this program is stopping")
        with self._changed:  # engines end their processes, tunnels remove their folders
            self._changed.wait_for(lambda: not self._tunnels, timeout=_GRACE)
