"""Drives one role over the network: one queue, one thread that asks the role what to do.

Streams, timers and secure sessions put events into the queue; the role answers with actions. The
role itself knows no sockets, no threads and no clock.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import PeerError, PrivoteError
from . import roles as r
from .engine import SecureEngine
from .messages import Message, decode, encode
from .programs import QUERIER
from .roles import Role
from .streams import Caller, Line, Log, Server, Settings
from .tunnel import FRAME, Outbox, Tunnel

_GRACE = 5.0  # seconds for sessions to end when the program stops
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
        self, engine: SecureEngine, *, at_a_time: int, report: Callable[[r.Event], None], log: Log
    ) -> None:
        self._engine = engine
        self._report, self._log = report, log
        self._slots = threading.Semaphore(at_a_time)
        self._changed = threading.Condition()
        # Sessions that our role is ready for and whose tunnel has not come: work, and until when.
        self._expected: dict[str, tuple[r.Compute, float]] = {}
        self._tunnels: set[Tunnel] = set()
        self._stopped = False
        self.bytes = 0  # of all sessions, both ways

    def call(self, caller: Caller, work: r.Compute) -> None:
        """Compute as the querier: open a tunnel to the peer and run, in a thread."""

        def run() -> None:
            with self._slots:
                try:
                    if self._stopped:
                        raise PeerError("this program is stopping")
                    tunnel = caller.tunnel(work.peer, work.session, work.seconds)
                except PrivoteError as error:
                    self._broken(work.session, work.peer, str(error))
                    return
                self._compute(work, tunnel)

        threading.Thread(target=run, daemon=True, name=f"session-{work.session}").start()

    def expect(self, work: r.Compute) -> None:
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
            tunnel = Tunnel(outbox, incoming, first=False, patience=work.seconds)
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

    def _claim(self, peer: str, session: str) -> r.Compute:
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

    def _compute(self, work: r.Compute, tunnel: Tunnel) -> None:
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
        self._report(r.Computed(work.session, outputs))

    def _broken(self, session: str, peer: str, why: str) -> None:
        self._log(f"session {session} with {peer} broke: {why}")
        self._report(r.Broken(session, why))

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


_TICK = 1.0  # seconds


@dataclass(eq=False)
class _Said:
    """What came on a stream; the next is read when this one has been dealt with."""

    line: Line
    event: r.Event
    dealt: threading.Event = field(default_factory=threading.Event)


class Driver:
    """Runs a role until it finishes or is stopped.

    Parameters
    ----------
    role
        The state machine.
    engine
        What computes its sessions.
    settings
        Certificates, addresses and bounds.
    log
        Gets one line an event; nothing that is secret.
    """

    def __init__(self, role: Role, *, engine: SecureEngine, settings: Settings, log: Log) -> None:
        self.role, self.engine, self.settings, self._log = role, engine, settings, log
        # Without a bound: a stream has at most one event in it, and a session one.
        self._events: queue.SimpleQueue[r.Event | _Said | None] = queue.SimpleQueue()
        self._lines: dict[tuple[str, str], Line] = {}
        self._caller = Caller(settings, role=role.role)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.reasons: dict[str, str] = {}  # why a peer was lost, last heard
        self.sessions = Sessions(
            engine, at_a_time=settings.sessions, report=self._events.put, log=log
        )
        self.server = None if settings.listen is None else Server(settings, self, log)

    def run(self) -> Any:
        """Run the role; returns its result, or None if it was stopped.

        Raises
        ------
        PrivoteError
            What the role failed with.
        """
        clock = threading.Thread(target=self._tick, daemon=True, name="tick")
        clock.start()
        try:
            done, result = self._act(self.role.start())
            while not done:
                event = self._events.get()
                if event is None:
                    return None
                done, result = self._deal(event)
            return result
        finally:
            self.close()

    def _deal(self, waiting: r.Event | _Said) -> tuple[bool, Any]:
        """Ask the role about an event; one that serves others outlives whatever a peer sends."""
        event = waiting.event if isinstance(waiting, _Said) else waiting
        try:
            return self._act(self.role.on(event))
        except PrivoteError:
            raise
        except Exception as error:
            if self.server is None:
                raise
            # Only its kind: the text may hold what nobody should see in a log.
            self._log(f"failed at {type(event).__name__.lower()}: {type(error).__name__}")
            if isinstance(waiting, _Said):
                waiting.line.end("this program failed at what it sent")
            return False, None
        finally:
            if isinstance(waiting, _Said):
                waiting.dealt.set()

    def stop(self) -> None:
        """Make `run` return; may be called from a signal handler."""
        self._stopping.set()
        self._events.put(None)

    def close(self) -> None:
        """End every stream and session; what was said last should still be heard."""
        self._stopping.set()
        self.sessions.stop()
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            line.outbox.close()
        deadline = time.monotonic() + 1.0
        while any(line.outbox.waiting for line in lines) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.server is not None:
            self.server.stop()
        self._caller.close()

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK):
            self.sessions.tick()
            self._events.put(r.Tick(time.monotonic()))

    def _act(self, actions: Sequence[r.Action]) -> tuple[bool, Any]:
        """Do what the role asks for; returns whether it is done, and its result."""
        for action in actions:
            if isinstance(action, r.Send):
                self._send(action)
            elif isinstance(action, r.Compute) and action.side == QUERIER:
                self.sessions.call(self._caller, action)
            elif isinstance(action, r.Compute):
                self.sessions.expect(action)
            elif isinstance(action, r.Complain):
                self._log(f"{action.error}")
            elif isinstance(action, r.Fail):
                raise action.error
            else:
                return True, action.result
        return False, None

    def _send(self, action: r.Send) -> None:
        """Send on the stream with that site in that role; what cannot be sent is a lost peer."""
        try:
            line = self._line(action.to, action.role)
        except PrivoteError as error:
            self._lost(action.to, action.role, str(error))
            return
        try:
            line.send(encode(action.message))
            self._log(f"to {action.to}: {_named(action.message)}")
        except PeerError as error:
            if not line.outbox.closed:  # a stream that has ended tells of its end itself
                line.end(str(error))

    def _line(self, to: str, role: str) -> Line:
        with self._lock:
            found = self._lines.get((to, role))
        if found is not None and not found.outbox.closed:
            return found
        if to not in self.settings.addresses:
            raise PeerError(f"{to} ({role}) is not connected")
        line = self._caller.talk(to, role, self.message, self._hung_up)
        with self._lock:
            self._lines[to, role] = line
        return line

    def _hung_up(self, line: Line, why: str) -> None:
        """A stream that we opened has ended; no loss if it has a successor."""
        with self._lock:
            if self._lines.get((line.peer, line.role), line) is not line:
                return
            self._lines.pop((line.peer, line.role), None)
        self._lost(line.peer, line.role, why)

    def _lost(self, peer: str, role: str, why: str) -> None:
        self.reasons[peer] = why
        if not self._stopping.is_set():
            self._log(f"lost {peer} ({role}): {why}")
            self._events.put(r.Lost(peer, role))

    def _wait_for(self, line: Line, event: r.Event) -> None:
        """Add a stream's event, and wait in its thread until it is dealt with or all is over."""
        said = _Said(line, event)
        self._events.put(said)
        while not said.dealt.wait(_TICK) and not self._stopping.is_set():
            pass

    # -- what streams call, each in a thread of its own --------------------------------------------

    def opened(self, line: Line) -> None:
        """A caller's stream replaces an older one of the same caller in the same role."""
        with self._lock:
            old = self._lines.get((line.peer, line.role))
            self._lines[line.peer, line.role] = line
        self._log(f"{line.peer} ({line.role}) connected")
        if old is not None:
            old.end("it connected anew")

    def closed(self, line: Line) -> None:
        """A caller's stream ended; no loss if it has a successor."""
        with self._lock:
            if self._lines.get((line.peer, line.role)) is not line:
                return
            del self._lines[line.peer, line.role]
        self.reasons[line.peer] = "it ended the stream"
        if not self._stopping.is_set():
            self._log(f"{line.peer} ({line.role}) left")
            self._wait_for(line, r.Lost(line.peer, line.role))

    def message(self, line: Line, data: bytes) -> None:
        """Queue a message and wait until it is dealt with: a peer has one of them in memory.

        PeerError, which ends the stream, if it is no message.
        """
        message = decode(data, self.settings.most_message)
        self._log(f"from {line.peer}: {_named(message)}")
        self._wait_for(line, r.Received(line.peer, message))

    def tunnel(self, peer: str, session: str, incoming: Iterator[bytes]) -> Iterator[bytes]:
        """Serve a session's tunnel."""
        return self.sessions.serve(peer, session, incoming)


def _named(message: Message) -> str:
    """Return a message's kind and batch; nothing else of it belongs in a log."""
    batch, why = getattr(message, "batch", None), getattr(message, "why", None)
    said = message.kind + (f" {batch}" if batch is not None else "")
    return said + (f": {why}" if why is not None else "")
