"""Whoever reaches the port of a guardian or an answering site cannot stop it, pinned or not.

Both run as processes of their own, from their files, as an administrator starts them.
"""

from __future__ import annotations

import os
import queue
import random
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("spu")

from tests.attacks.conftest import Outcome, scaled
from tests.attacks.test_messages import WIRES, changed, headed
from tests.capc.coalitions import random_models
from tests.capc.sites import caller_of
from tests.capc.test_messages import framed
from tests.capc.test_network import small_terms

from privote.capc import messages as m
from privote.capc.certs import Own, Trust, make
from privote.capc.coalition import lay_out, running
from privote.capc.site import Site
from privote.capc.streams import Caller, Outbox
from privote.capc.terms import Terms
from privote.capc.tunnel import FRAME, Tunnel
from privote.errors import PeerError

SERVERS = ("guardian", "north")
ROLES = {"guardian": m.GUARDIAN, "north": m.ANSWERING, "south": m.ANSWERING, "west": m.ANSWERING}
ENGINE = "spu-cheetah"


class Town:
    """A guardian and an answering site that run, and somebody who talks to them."""

    def __init__(self, files: dict[str, Path], terms: Terms, programs: dict[str, Any]) -> None:
        self.files, self.terms, self.programs = files, terms, programs
        self.sites = {
            name: Site.read(file, ROLES.get(name, m.QUERYING)) for name, file in files.items()
        }

    def caller(self, name: str, to: str, role: str) -> Caller:
        site = self.sites[name]
        own, trust = Own(name, site.certificate, site.key), Trust(site.trust)
        return caller_of(to, site.addresses[to], own, trust, role, most_message=1 << 24)

    def where(self, server: str) -> tuple[str, int]:
        host, port = str(self.sites[server].listen).split(":")
        return host, int(port)

    def answered(self, to: str, patience: float = 30.0) -> bool:
        """Return whether an honest site that calls and greets is greeted back."""
        with closing(Hostile(self, "east", to, m.QUERYING)) as honest:
            return honest.heard(m.Hello, patience) is not None

    def harmed(self) -> int:
        """Return how many of the two programs have ended, or do not answer any more."""
        return sum(
            self.programs[server].poll() is not None or not self.answered(server)
            for server in SERVERS
        )


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    terms = small_terms(timeout=2.0, epsilon=1e5)
    files = lay_out(tmp_path, terms, random_models(terms))
    with running(files, terms) as programs:
        for name in ("south", "west"):  # the attackers have their certificates
            programs[name].kill()
            programs[name].wait()
        yield Town(files, terms, programs)


class Crowd:
    """Connections to a server that say the same, and are opened again when it closes them."""

    def __init__(self, where: tuple[str, int], count: int, opening: bytes) -> None:
        self.where, self.count, self.opening = where, count, opening
        self.opened, self._ends = 0, selectors.DefaultSelector()

    def keep(self, seconds: float) -> None:
        """Hold them all open for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in self._ends.select(0.0 if self.more() else 0.2):
                self._ends.unregister(key.fileobj)  # all that it can say is that it closes
                key.fileobj.close()  # type: ignore[union-attr]

    def more(self) -> bool:
        """Open one more, if some are missing and the server takes it."""
        if len(self._ends.get_map()) == self.count:
            return False
        with suppress(OSError):
            each = socket.create_connection(self.where, timeout=2.0)
            self._ends.register(each, selectors.EVENT_READ)
            self.opened += 1
            each.sendall(self.opening)
            return True
        return False

    def close(self) -> None:
        for key in self._ends.get_map().values():
            key.fileobj.close()  # type: ignore[union-attr]
        self._ends.close()


@pytest.mark.parametrize("opening", ["nothing", "half a hello"])
def test_silent_connections_stop_nobody(town: Town, outcome: Outcome, opening: str) -> None:
    """Handshakes that never end, many at a time, for longer than a server waits for one."""
    count, rounds, seconds = scaled(60, 1000), scaled(2, 6), scaled(1, 10)
    said = b"" if opening == "nothing" else hello_of_tls()[:100]
    harmed = 0
    with ExitStack() as stack:
        present = [
            stack.enter_context(closing(Crowd(town.where(server), count, said)))
            for server in SERVERS
        ]
        for _ in range(rounds):
            for crowd in present:
                crowd.keep(seconds / 2)
            harmed += town.harmed()
    time.sleep(1.0)  # all of them end at once
    harmed += town.harmed()
    outcome(
        f"silent connections ({opening}) end or block a guardian or an answering site",
        sum(crowd.opened for crowd in present),
        harmed,
    )


def hello_of_tls() -> bytes:
    """Return the first bytes of an honest handshake."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = ssl.create_default_context().wrap_bio(inward, outward, server_hostname="guardian")
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    return outward.read()


def test_strangers_who_talk_stop_nobody(town: Town, outcome: Outcome, tmp_path: Path) -> None:
    """Garbage, halves of handshakes, HTTP, and TLS with a certificate that nobody pinned."""
    make(tmp_path / "eve", "east")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tmp_path / "eve" / "east.pem", tmp_path / "eve" / "east.key")
    context.set_alpn_protocols(["h2"])
    hello = hello_of_tls()
    tried = 0
    for turn in range(scaled(20, 1000)):
        for server in SERVERS:
            said = (
                os.urandom(1 + turn % 2000),
                hello + os.urandom(500),
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
                b"\x16\x03\x01\xff\xff" + bytes(20000),
            )[turn % 4]
            with suppress(OSError), ExitStack() as stack:
                raw = stack.enter_context(socket.create_connection(town.where(server), 5.0))
                if turn % 5 == 4:
                    raw = stack.enter_context(context.wrap_socket(raw))
                raw.sendall(said)
            tried += 1
    outcome("strangers' bytes end a guardian or an answering site", tried, town.harmed())


def test_frames_at_random_leave_nothing_behind(outcome: Outcome) -> None:
    """A session's tunnel takes any bytes: it breaks off or goes on, and is gone when closed."""
    chance, found = random.Random(4), []
    before = threading.active_count()
    for _ in range(scaled(30, 1000)):
        frames = [frame(chance) for _ in range(chance.randrange(60))]
        channel = Tunnel(Outbox(FRAME), iter(frames), first=True, patience=0.1)
        with suppress(PeerError):
            channel.exchange(b"ours", 0.1)
        channel.close()
        found.append(channel.folder.exists() or not channel.closed)
    end = time.monotonic() + 60.0
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.05)
    found.append(threading.active_count() > before)
    outcome.of("frames of a tunnel at random leave threads or folders", found)


def frame(chance: random.Random) -> bytes:
    """Return a frame, or bytes that are none."""
    kind = bytes([chance.randrange(7)])
    return chance.choice(
        [
            kind + chance.choice([0, 1, 2, 3, 2**32 - 1]).to_bytes(4, "big"),
            kind + bytes(4) + chance.randbytes(chance.randrange(3000)),
            chance.randbytes(chance.randrange(20)),
            kind + bytes(FRAME),
        ]
    )


class Hostile:
    """A pinned site's stream to a server, opened again whenever it is cut off."""

    def __init__(self, town: Town, name: str, to: str, role: str) -> None:
        self.got: queue.Queue[m.Message] = queue.Queue()
        self._to, self._caller = to, town.caller(name, to, role)
        self._hello = m.encode(m.Hello(town.terms.digest(), ENGINE, role))
        self._begin()

    def _begin(self) -> None:
        self._line = self._caller.talk(
            self._to,
            ROLES[self._to],
            lambda _, data: self.got.put(m.decode(data)),
            lambda *_: None,
        )
        self._line.send(self._hello)

    def close(self) -> None:
        self._caller.close()

    def say(self, data: bytes) -> None:
        """Send it, over a new stream if the last one has ended."""
        try:
            self._line.send(data)
        except PeerError:
            self._begin()
            self._line.send(data)

    def heard(self, kind: type[m.Message], seconds: float = 60.0) -> Any:
        """Wait for a message of a kind, a while; None if it does not come."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                found = self.got.get(timeout=left)
                if isinstance(found, kind):
                    return found
        return None


def raw(message: m.Message, **fields: Any) -> bytes:
    """Return a message with fields that it could not be made with."""
    head, tail = headed(m.encode(message))
    return framed({**head, **fields}, tail)


def test_a_version_without_a_successor_stops_nobody(town: Town, outcome: Outcome) -> None:
    """Asked with the highest version, then masks withheld: decided when time is up."""
    tried = harmed = 0
    for turn, version in enumerate((2**31, 2**31 - 1, 2**30)):
        with ExitStack() as stack:
            east, north, south, west = (
                stack.enter_context(closing(Hostile(town, name, "guardian", role)))
                for name, role in (
                    ("east", m.QUERYING),
                    *((party, m.ANSWERING) for party in ("north", "south", "west")),
                )
            )
            east.say(raw(m.Ask(3, 0, f"{turn:032x}"), version=version))
            # What cannot be said is no message: the stream ends, and no answer comes.
            patience = 60.0 if version <= 2**30 else 3.0
            answer = east.heard(m.Grant | m.Refused, patience)  # type: ignore[arg-type]
            if isinstance(answer, m.Grant):
                for party in (north, south, west):
                    party.say(m.encode(m.Confirm(answer.batch, "east", 3)))
                    assert party.heard(m.Confirmed)
                for party in (south, west):
                    party.say(m.encode(m.Masks(answer.batch, np.ones((3, 3), np.int64))))
                east.say(m.encode(m.Decide(answer.batch, ("north", "south", "west"), 0)))
                assert east.heard(m.Ready | m.Refused) or version > 2**30  # type: ignore[arg-type]
                time.sleep(1.0)
            tried += 1
            harmed += town.harmed()
    outcome("a version without a successor ends the guardian", tried, harmed)


def test_messages_of_pinned_sites_stop_nobody(town: Town, outcome: Outcome) -> None:
    """Messages at random, over real streams: no server ends, and the honest are answered."""
    chance = random.Random(3)
    tried = harmed = 0
    with ExitStack() as stack:
        sites = [
            stack.enter_context(closing(Hostile(town, name, to, role)))
            for name, to, role in (
                ("north", "guardian", m.QUERYING),
                ("south", "guardian", m.ANSWERING),
                ("east", "north", m.QUERYING),
            )
        ]
        while tried < scaled(300, 10_000):
            for site in sites:
                site.say(changed(chance.choice(WIRES), chance))
                tried += 1
            if tried % scaled(150, 1500) < len(sites):
                harmed += town.harmed()
    harmed += town.harmed()
    outcome("messages of pinned sites end a guardian or an answering site", tried, harmed)
