"""Drivers on loopback: messages, sessions, losses and refusals, with tiny roles."""

from __future__ import annotations

import resource
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.sessions import any_inputs
from tests.capc.sites import Running, Scripted, caller_of, trusting, until

from privote.capc import streams
from privote.capc.messages import Answer, Closed, Done, Masks, encode
from privote.capc.programs import DecisionProgram
from privote.capc.roles import (
    Broken,
    Compute,
    Lost,
    Received,
    Send,
)
from privote.capc.streams import TUNNEL, Outbox, limits
from privote.errors import PeerError

BATCH = "0" * 32
SESSION = f"{BATCH}:beta"


def compute(side: str, peer: str, rows: int = 2, seconds: float = 60.0) -> Compute:
    program = DecisionProgram(rows=rows, labels=2)
    return Compute(SESSION, peer, side, [program], [any_inputs(program, side, 0)], seconds)


def open_beta(
    tmp_path: Path, callers: tuple[str, ...] = ("alpha", "mallory"), role: Any = None
) -> tuple[Any, Running]:
    sites = trusting(tmp_path, ["alpha", "beta", "mallory"])
    beta = Running(
        role or Scripted("answering"),
        *sites["beta"],
        listen="127.0.0.1:0",
        callers=frozenset(callers),
        sessions=2,
    )
    return sites, beta


def calling(sites: Any, name: str, beta: Running, to: str = "beta") -> Running:
    role = Scripted("querying", start=[Send(to, "answering", Answer(BATCH, 6))])
    return Running(role, *sites[name], addresses={to: beta.address})


class Talking:
    """A site's stream to beta, without a driver."""

    def __init__(self, sites: Any, beta: Running, **more: Any) -> None:
        self.lost: list[str] = []
        self.caller = caller_of("beta", beta.address, *sites["alpha"], **more)
        self.line = self.caller.talk(
            "beta", "answering", lambda *_: None, lambda _, why: self.lost.append(why)
        )

    def __enter__(self) -> Talking:
        return self

    def __exit__(self, *_: object) -> None:
        self.caller.close()


@pytest.mark.parametrize("wrong", ["caller", "server", "name", "no part"])
def test_whoever_is_not_whom_the_other_pinned_is_not_talked_to(tmp_path: Path, wrong: str) -> None:
    sites, beta = open_beta(tmp_path, callers=("alpha",))
    other = trusting(tmp_path / "other", ["alpha", "beta"])
    name, to = "alpha", "beta"
    if wrong == "caller":
        sites["alpha"] = other["alpha"][0], sites["alpha"][1]
        said = "may not have pinned our certificate"
    elif wrong == "server":
        sites["alpha"] = sites["alpha"][0], other["alpha"][1]
        said = "its certificate is not the pinned one"
    elif wrong == "name":  # beta cannot pass for mallory
        to, said = "mallory", "its certificate is not the pinned one"
    else:
        name, said = "mallory", "messages refused: mallory has no part with beta in this coalition"
    with beta, calling(sites, name, beta, to) as site:
        until(lambda: site.role.saw(Lost))
        assert site.logged(said)
        assert wrong != "no part" or beta.logged(said)
    assert not beta.role.events


def test_a_server_has_bounds_for_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((1024, 512), (1 << 20, 4096), (resource.RLIM_INFINITY, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert dict(limits())["grpc.max_allowed_incoming_connections"] == most
    assert dict(limits())["grpc.server_handshake_timeout_ms"] <= 10_000


def test_a_session_nobody_expects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privote.capc.driver._EARLY", 0.2)
    sites, beta = open_beta(tmp_path)
    with beta:
        beta.driver.sessions.expect(compute("peer", "mallory"))
        role = Scripted("querying", start=[compute("querier", "beta")])
        with Running(role, *sites["alpha"], addresses={"beta": beta.address}) as alpha:
            until(lambda: role.saw(Broken))
            # It is mallory's session: alpha cannot take it.
            assert "no such session is expected from alpha" in role.saw(Broken)[0].why
            assert beta.logged("no such session is expected from alpha")
            assert alpha.logged("no such session is expected from alpha")


@pytest.mark.parametrize("end", ["never comes", "dies", "other programs"])
def test_a_session_without_its_peer_is_broken_once(tmp_path: Path, end: str) -> None:
    sites, beta = open_beta(tmp_path)
    seconds = 0.5 if end == "never comes" else 60.0
    with beta:
        beta.driver.sessions.expect(compute("peer", "alpha", seconds=seconds))
        if end == "other programs":
            role = Scripted("querying", start=[compute("querier", "beta", rows=3)])
            with Running(role, *sites["alpha"], addresses={"beta": beta.address}):
                until(lambda: role.saw(Broken))
                until(lambda: beta.role.saw(Broken))
        elif end != "never comes":
            caller = caller_of("beta", beta.address, *sites["alpha"])
            tunnel = caller.tunnel("beta", SESSION, patience=10)
            caller.close()
            until(lambda: tunnel.why is not None)
            tunnel.close()
        until(lambda: beta.role.saw(Broken))
    assert len(beta.role.saw(Broken)) == 1


def test_a_role_that_fails_at_a_message_goes_on_serving(tmp_path: Path) -> None:
    def on(event: Any) -> list[Any]:
        if isinstance(event, Received) and isinstance(event.message, Done):
            raise KeyError("what nobody should see in a log")
        return []

    sites, beta = open_beta(tmp_path, role=Scripted("answering", on))
    with beta:
        with Talking(sites, beta) as alpha:
            alpha.line.send(encode(Done(BATCH, 1)))
            until(lambda: alpha.lost)
        assert beta.logged("failed at received: KeyError")
        assert not beta.logged("what nobody should see")
        with calling(sites, "alpha", beta):
            until(lambda: Received("alpha", Answer(BATCH, 6)) in beta.role.events)


def test_a_peer_has_one_message_waiting(tmp_path: Path) -> None:
    """Whoever sends faster than the role deals with it fills its own stream, not our memory."""
    go = threading.Event()
    role = Scripted("answering", lambda event: [][: go.wait(30)])
    sites, beta = open_beta(tmp_path, role=role)
    with beta, ExitStack() as stack:
        for count in (1, 2, 3):  # each takes the place of the one before
            alpha = stack.enter_context(Talking(sites, beta))
            until(lambda count=count: beta.log.count("alpha (querying) connected") == count)
            for version in range(100):
                alpha.line.send(encode(Done(BATCH, version)))
        time.sleep(0.5)
        events, taken = beta.driver._events, []
        while not events.empty():
            taken.append(events.get())
        for each in taken:
            events.put(each)
        found = [each for each in taken if isinstance(getattr(each, "event", None), Received)]
        assert len(found) <= 3, "one for each stream"
        go.set()
        until(lambda: Received("alpha", Done(BATCH, 99)) in role.events)


def test_a_packed_message_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may unpack to gigabytes."""
    most = "grpc.compression_enabled_algorithms_bitset"
    gzip = [("grpc.default_compression_algorithm", 2), (most, 7)]
    sites, beta = open_beta(tmp_path)
    with beta:
        monkeypatch.setattr(streams, "bounds", lambda _: gzip)
        with Talking(sites, beta) as alpha:
            with suppress(PeerError):  # the server may have ended the stream before
                alpha.line.send(encode(Masks(BATCH, np.zeros((99, 9), np.int64))))
            until(lambda: alpha.lost or beta.role.saw(Received))
    assert not beta.role.saw(Received)
    assert "gzip" in alpha.lost[0]


def test_a_site_may_answer_and_query_with_one_certificate(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    as_other = Scripted("answering", start=[Send("beta", "guardian", Done(BATCH, 1))])
    with beta, calling(sites, "alpha", beta) as querying:
        with Running(as_other, *sites["alpha"], addresses={"beta": beta.address}):
            until(lambda: len(beta.role.saw(Received)) == 2)
            beta.driver._act([Send("alpha", "answering", Closed(BATCH))])
            until(lambda: as_other.saw(Received))
        until(lambda: beta.role.saw(Lost))
        assert beta.role.saw(Lost) == [Lost("alpha", "answering")]
        assert not querying.role.saw(Received)
        # Whoever comes back in the same role is not lost.
        with calling(sites, "alpha", beta):
            until(lambda: len(beta.role.saw(Received)) == 3)
            assert beta.logged("it connected anew")
            assert len(beta.role.saw(Lost)) == 1


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path, callers=("alpha",))
    most = 2 * 2 + 4
    with beta, ExitStack() as stack:
        caller = caller_of("beta", beta.address, *sites["alpha"])
        for number in range(most):
            stack.callback(caller._call("beta", TUNNEL, Outbox(9), f"{number}").end)
        until(lambda: len(beta.driver.server._open) == most)  # type: ignore[union-attr]
        alpha = stack.enter_context(Talking(sites, beta))
        until(lambda: alpha.lost)
        assert f"alpha has {most} open, and may have no more" in alpha.lost[0]
        assert beta.logged(f"alpha has {most} open, and may have no more")
