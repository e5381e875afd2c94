"""Whoever reaches the port of a guardian or an answering site cannot stop it, pinned or not.

Both run as processes of their own, from their files, as an administrator starts them.
"""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("spu")

import grpc
from tests.attacks.conftest import Outcome, scaled
from tests.attacks.test_messages import WIRES, changed
from tests.capc.coalitions import processes, random_models
from tests.capc.sessions import wires
from tests.capc.test_network import small_terms

from privote.capc import messages as m
from privote.capc.certs import make
from privote.capc.network import SERVICE, Link, Network
from privote.capc.site import Site
from privote.capc.terms import Terms
from privote.errors import PrivoteError

SERVERS = ("guardian", "north")
ENGINE = "spu-cheetah"


class Town:
    """A guardian and an answering site that run, and somebody who talks to them."""

    def __init__(self, files: dict[str, Path], terms: Terms, programs: dict[str, Any]) -> None:
        self.files, self.terms, self.programs = files, terms, programs
        self.sites = {
            name: Site.read(file, "query" if name == "east" else self.role(name))
            for name, file in files.items()
        }

    def role(self, name: str) -> str:
        return "guardian" if name == self.terms.guardian else "answer"

    def network(self, name: str) -> Network:
        """Return how a site calls; north, which asks too, also as such."""
        return self.sites[name].network(m.QUERYING if name == "east" else m.ANSWERING)

    def where(self, server: str) -> tuple[str, int]:
        host, port = str(self.sites[server].listen).split(":")
        return host, int(port)

    def answered(self, to: str) -> bool:
        """Return whether an honest site that calls and greets is greeted back."""
        hello = m.Hello(self.terms.digest(), ENGINE)
        with suppress(PrivoteError):
            return asyncio.run(self.network("east").call(to, hello, 30.0)) == hello
        return False

    def harmed(self) -> int:
        """Return how many of the two programs have ended, or do not answer any more."""
        return sum(
            self.programs[server].poll() is not None or not self.answered(server)
            for server in SERVERS
        )


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    terms = small_terms(timeout=2.0, epsilon=1e5)
    files = processes.write_config(tmp_path, terms, random_models(terms))
    with processes.running(files, terms) as programs:
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
    """A session's stream takes any bytes: it breaks off or goes on, and is gone when closed."""
    chance, found = random.Random(4), []

    async def run() -> bool:
        ours, theirs = wires()
        async with Link(ours, first=True) as link, link.sockets() as folder:
            for _ in range(chance.randrange(8)):
                await asyncio.wait_for(theirs.write(frame(chance)), 1.0)
                await asyncio.sleep(0)
            link.fail("it is over")
        return folder.exists() or len(asyncio.all_tasks()) > 1

    for _ in range(scaled(30, 1000)):
        found.append(asyncio.run(run()))
    outcome.of("frames of a session at random leave tasks or folders", found)


def frame(chance: random.Random) -> bytes:
    """Return a frame, or bytes that are none."""
    number = chance.choice([-3, -2, -1, 0, 1, 2, 3, 2**31 - 1]).to_bytes(4, "big", signed=True)
    return chance.choice(
        [
            number,
            number + chance.randbytes(chance.randrange(3000)),
            chance.randbytes(chance.randrange(20)),
            number + bytes(1 << 18),
        ]
    )


def test_calls_of_pinned_sites_stop_nobody(town: Town, outcome: Outcome) -> None:
    """Messages at random, over real connections: no server ends, and the honest are answered."""
    chance, harmed, total = random.Random(3), 0, scaled(300, 10_000)

    async def flood(name: str, to: str, count: int) -> None:
        async with town.network(name)._channel(to) as channel:
            call = channel.unary_unary(f"/{SERVICE}/call")
            stream = channel.stream_stream(f"/{SERVICE}/stream")
            for _ in range(count):
                data = changed(chance.choice(WIRES), chance)
                with suppress(grpc.aio.AioRpcError):
                    if chance.random() < 0.1:
                        opened = stream(metadata=(("privote-session", "some"),))
                        await opened.write(data)
                        await opened.read()
                    else:
                        await call(data, timeout=10.0)

    for _ in range(2):
        for name, to in (("north", "guardian"), ("south", "guardian"), ("east", "north")):
            asyncio.run(flood(name, to, total // 6))
        harmed += town.harmed()
    outcome("messages of pinned sites end a guardian or an answering site", total, harmed)
