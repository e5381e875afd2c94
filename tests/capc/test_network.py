"""Coalitions over gRPC with pinned certificates, and the stream of a session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

from tests.capc.coalitions import random_models, terms_of
from tests.capc.sessions import links, wires
from tests.refusals import refused

from privote.capc import messages as m
from privote.capc.answerer import AnsweringParty
from privote.capc.certs import Own, Trust, make, pin
from privote.capc.coalition import Simulation
from privote.capc.engine import OTHER, OWN, ClearEngine
from privote.capc.guardian import PrivacyGuardian
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.network import EXCHANGE, SESSION_KEY, Link, Network
from privote.capc.parties import Party, batch_rows
from privote.capc.querier import QueryingParty
from privote.capc.terms import Terms
from privote.entropy import Entropy
from privote.errors import PeerError
from privote.ledger import Ledger

SEED = 11
ROWS = np.random.default_rng(6).uniform(-1, 1, (7, 4))


def small_terms(**changes: Any) -> Terms:
    chosen: dict[str, Any] = {
        "bound": 1.0,
        "bits": 12,
        "epsilon": 100.0,
        "guardian": "guardian",
        "parties": ("north", "south", "west"),
        "queriers": ("east", "north"),
        "most_queries": 50,
        "timeout": 20.0,
    }
    return replace(terms_of(labels=3), **{**chosen, **changes})


def trusting(folder: Path, names: Sequence[str]) -> dict[str, tuple[Own, Trust]]:
    """Return key, certificate and trust of each site; everybody pinned everybody else."""
    for name in names:
        make(folder / name, name)
    made = {}
    for name in names:
        for other in set(names) - {name}:
            pin(folder / name / "trust", folder / other / f"{other}.pem")
        own = Own(name, folder / name / f"{name}.pem", folder / name / f"{name}.key")
        made[name] = own, Trust(folder / name / "trust")
    return made


class Town:
    """A coalition whose parties reach each other by gRPC, compute in clear and draw from seeds."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        self.terms, self.folder = terms, folder
        self.keys = trusting(folder, terms.sites)
        self.addresses: dict[str, str] = {}
        self.parties: dict[str, Party] = {}

    def network(self, name: str) -> Network:
        own, trust = self.keys[name]
        callers = frozenset(self.terms.sites) - {name}
        return Network(own=own, trust=trust, addresses=self.addresses, callers=callers)

    def party(self, kind: Callable[..., Any], name: str, **more: Any) -> Any:
        entropy = Entropy(SEED + self.terms.sites.index(name))
        return kind(self.terms, name, self.network(name), ClearEngine(), entropy, **more)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        """Serve; yields what asks a batch as east."""
        terms, models = self.terms, random_models(self.terms)
        journal = GuardianJournal(None, terms, terms.guardian)
        more = {"ledger": Ledger.in_memory(), "journal": journal}
        self.parties[terms.guardian] = self.party(PrivacyGuardian, terms.guardian, **more)
        for name in terms.parties:
            self.parties[name] = self.party(AnsweringParty, name, model=models[name])
        own = QuerierJournal(None, terms, "east")
        async with AsyncExitStack() as stack:
            for name, party in self.parties.items():
                assert isinstance(party.transport, Network)
                serving = party.transport.serving("127.0.0.1:0", party.handle)
                self.addresses[name] = f"127.0.0.1:{await stack.enter_async_context(serving)}"
            yield self.party(QueryingParty, "east", journal=own)
            for party in self.parties.values():
                await party.stop()


@pytest.mark.parametrize(
    ("guarantee", "noise"), [("worst-case", "sites"), ("allowance", "guardian")]
)
def test_the_network_gives_the_labels_of_the_simulation(
    tmp_path: Path, guarantee: str, noise: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    terms = small_terms(guarantee=guarantee, noise=noise)
    expected = Simulation(terms, random_models(terms), seed=SEED).ask("east", ROWS)
    rows = batch_rows(ROWS, terms)

    async def run() -> Any:
        async with Town(tmp_path, terms).open() as east:
            return await east.ask(rows)

    answers = asyncio.run(run())
    np.testing.assert_array_equal(answers.labels, expected.labels)
    assert answers.parties == ("north", "south", "west")
    log = "\n".join(
        f"{record.getMessage()} {vars(record).get('fields')}" for record in caplog.records
    )
    assert "'call': 'masks'" in log  # said that they came, not what they are
    assert str(answers.labels.tolist()) not in log
    assert not any(str(row.tolist())[1:-1] in log for row in rows)


def test_trust_is_read_anew_and_rejected_callers_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.capc.network._PERIOD", 0.1)
    there = Town(tmp_path, small_terms())

    async def run() -> Any:
        async with there.open() as east:
            (tmp_path / "west" / "trust" / "east.pem").unlink()
            first = await east.ask(batch_rows(ROWS, there.terms))
            hello = m.Hello(there.terms.digest(), "clear")
            with refused(None, m.Disconnected):
                await east.transport.call("west", hello, 5.0)
            pin(tmp_path / "west" / "trust", tmp_path / "east" / "east.pem")
            assert await east.transport.call("west", hello, 5.0) == hello
            there.parties["south"].transport.callers = frozenset()  # type: ignore[attr-defined]
            with refused(None, m.Disconnected):
                await east.transport.call("south", hello, 5.0)
            await asyncio.sleep(0.3)
            return first

    answers = asyncio.run(run())
    assert answers.parties == ("north", "south")
    assert "west" in answers.left_out
    assert {"caller rejected", "handshakes failed"} <= {one.getMessage() for one in caplog.records}


@pytest.mark.parametrize("wrong", ["certificate", "name"])
def test_only_the_pinned_peer_is_called(tmp_path: Path, wrong: str) -> None:
    there = Town(tmp_path, small_terms())

    async def run() -> None:
        async with there.open() as east:
            if wrong == "name":
                there.addresses["west"] = there.addresses["south"]
            else:
                (tmp_path / "east" / "trust" / "west.pem").unlink()
                make(tmp_path / "eve", "west")
                pin(tmp_path / "east" / "trust", tmp_path / "eve" / "west.pem")
            with refused(None, PeerError):
                await east.transport.call("west", east.hello, 5.0)

    asyncio.run(run())


def test_a_caller_has_so_many_calls_and_no_unexpected_session(tmp_path: Path) -> None:
    there = Town(tmp_path, small_terms())

    async def run() -> None:
        async with there.open() as east:
            west = there.parties["west"].transport
            assert isinstance(west, Network)
            wire = await east.transport.open("west", "nobody expects it")
            with refused(None, PeerError):
                while await wire.read() is not None:
                    pass
                raise PeerError("it ended")
            west.most_calls = 1
            coming = west.expect("east", "some")
            await east.transport.open("west", "some")
            end = await coming
            with refused(None, m.Disconnected):
                await east.transport.call("west", east.hello, 5.0)
            await end.close()

    asyncio.run(run())
    assert SESSION_KEY


# -- the stream of a session -----------------------------------------------------------------------


def test_what_one_engine_writes_comes_out_at_the_other() -> None:
    data = np.random.default_rng(0).bytes(3_000_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(-1))
        writer.write_eof()

    async def run() -> bytes:
        async with links() as (one, other), one.sockets() as here, other.sockets() as there:
            assert (here.stat().st_mode & 0o777, (here / OTHER).exists()) == (0o700, True)
            server = await asyncio.start_unix_server(echo, there / OWN)
            reader, writer = await asyncio.open_unix_connection(here / OTHER)
            writer.write(data)
            writer.write_eof()
            back = await reader.read(-1)
            server.close()
            assert await asyncio.gather(one.exchange(b"a"), other.exchange(b"b")) == [b"b", b"a"]
        assert not here.exists()
        return back

    assert asyncio.run(run()) == data


BAD_FRAMES = {
    "short": b"\x00",
    "strange": (-9).to_bytes(4, "big", signed=True),
    "of our numbers": bytes([0, 0, 0, 2]),
    "before the engine": bytes([0, 0, 0, 1]),
    "many": EXCHANGE.to_bytes(4, "big", signed=True),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_is_none_breaks_the_session_off(name: str) -> None:
    async def run() -> None:
        ours, theirs = wires()
        async with Link(ours, first=True) as link:
            for _ in range(20):
                with suppress(asyncio.QueueFull):
                    theirs._outward.put_nowait(BAD_FRAMES[name])  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            await link.guard(asyncio.sleep(5))

    with refused(None, PeerError):
        asyncio.run(run())


def test_who_fails_is_not_waited_for() -> None:
    async def run() -> None:
        one, other = wires()
        async with Link(other, first=False) as peer:
            with suppress(ValueError):
                async with Link(one, first=True):
                    raise ValueError
            await peer.guard(asyncio.sleep(60))

    with refused(None, PeerError):
        asyncio.run(asyncio.wait_for(run(), 5))


def test_bytes_are_counted_and_bounded() -> None:
    async def run() -> None:
        async with links(most_bytes=1000) as (one, _):
            with pytest.raises(PeerError, match="more than 1000 bytes"):
                await one.exchange(bytes(1001))

    asyncio.run(run())
