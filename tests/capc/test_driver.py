"""Drivers on loopback: messages, sessions, losses and refusals, with tiny roles."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.sites import Running, Scripted, client_of, free_port, trusting, until

from privote.capc.certs import make, pin, renew, revoke
from privote.capc.messages import Answer, Closed, Done, encode
from privote.capc.programs import BallotProgram
from privote.capc.roles import (
    Broken,
    Compute,
    Computed,
    Fail,
    Finish,
    Lost,
    Received,
    Send,
)
from privote.capc.streams import ROLE_KEY, TALK, limits
from privote.errors import PeerError

BATCH = "0" * 32
SESSION = f"{BATCH}:beta"


@contextmanager
def running(*sites: Running) -> Iterator[None]:
    with ExitStack() as stack:
        for site in sites:
            stack.callback(site.stop)
        yield


def ballots(rows: int = 6) -> tuple[BallotProgram, dict[str, Any], dict[str, Any]]:
    """Return a program, the querier's inputs and the peer's."""
    rng = np.random.default_rng(1)
    program = BallotProgram(rows=rows, features=5, labels=3)
    peer = {
        "weights": rng.integers(-9, 9, (5, 3)),
        "bias": rng.integers(-9, 9, 3),
        "mask": rng.integers(-(2**62), 2**62, (rows, 3)),
    }
    return program, {"x": rng.integers(-9, 9, (rows, 5))}, peer


def compute(
    side: str, peer: str, inputs: Any, program: BallotProgram, seconds: float = 60.0
) -> Compute:
    return Compute(SESSION, peer, side, [program], [inputs], seconds)


def server_side(inputs: Any, program: BallotProgram) -> Scripted:
    def on(event: Any) -> list[Any]:
        if isinstance(event, Received):
            return [
                compute("peer", event.sender, inputs, program),
                Send(event.sender, "querying", Closed(BATCH)),
            ]
        return []

    return Scripted("answering", on)


def client_side(inputs: Any, program: BallotProgram) -> Scripted:
    def on(event: Any) -> list[Any]:
        if isinstance(event, Received):
            return [compute("querier", "beta", inputs, program)]
        if isinstance(event, Computed):
            return [Finish(event.outputs)]
        if isinstance(event, Broken):
            return [Fail(PeerError(event.why))]
        return [Fail(PeerError("lost"))] if isinstance(event, Lost) else []

    return Scripted("querying", on, [Send("beta", "answering", Answer(BATCH, 6))])


@pytest.mark.parametrize("engine", ["clear", "spu"])
def test_messages_and_a_session(tmp_path: Path, engine: str) -> None:
    if engine == "spu":
        pytest.importorskip("spu")
    sites = trusting(tmp_path, ["alpha", "beta"])
    program, asked, held = ballots()
    beta = Running(
        server_side(held, program),
        *sites["beta"],
        name=engine,
        listen="127.0.0.1:0",
        callers=frozenset(["alpha"]),
    )
    with running(beta):
        alpha = Running(
            client_side(asked, program),
            *sites["alpha"],
            name=engine,
            addresses={"beta": beta.address},
        )
        alpha.join(120)
        ballot = (asked["x"] @ held["weights"] + held["bias"] >= 0).astype(np.int64)
        np.testing.assert_array_equal(alpha.result[0]["share"] + held["mask"], ballot)
        until(lambda: beta.role.saw(Computed))
        assert beta.role.saw(Computed)[0].outputs is None
        assert alpha.driver.sessions.bytes > 0
        until(lambda: beta.role.saw(Lost))  # alpha is done and has left
    assert beta.role.saw(Received) == [Received("alpha", Answer(BATCH, 6))]
    text = "\n".join(alpha.log + beta.log)
    assert "answer" in text
    assert str(held["mask"].reshape(-1)[0]) not in text


def test_nobody_listens(tmp_path: Path) -> None:
    sites = trusting(tmp_path, ["alpha", "beta"])
    program, asked, _ = ballots()
    alpha = Running(
        client_side(asked, program),
        *sites["alpha"],
        addresses={"beta": f"127.0.0.1:{free_port()}"},
    )
    with refused(None, PeerError):
        alpha.join()
    assert alpha.logged("lost beta (answering): nobody listens there")


def open_beta(
    tmp_path: Path, callers: tuple[str, ...] = ("alpha", "mallory")
) -> tuple[Any, Running]:
    sites = trusting(tmp_path, ["alpha", "beta", "mallory"])
    role = Scripted("answering")
    beta = Running(
        role, *sites["beta"], listen="127.0.0.1:0", callers=frozenset(callers), sessions=2
    )
    return sites, beta


def caller(sites: Any, name: str, beta: Running, **more: Any) -> Running:
    role = Scripted("querying", start=[Send("beta", "answering", Answer(BATCH, 6))])
    return Running(role, *sites[name], addresses={"beta": beta.address}, **more)


def test_a_certificate_that_is_not_pinned_is_turned_away(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    stranger = trusting(tmp_path / "other", ["alpha", "beta"])["alpha"][0]
    with running(beta):
        sites["alpha"] = stranger, sites["alpha"][1]
        alpha = caller(sites, "alpha", beta)
        with running(alpha):
            until(lambda: alpha.role.saw(Lost))
            assert alpha.logged("it may not have pinned our certificate")
    assert not beta.role.events


def test_a_server_with_another_certificate_is_not_talked_to(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    other = trusting(tmp_path / "other", ["alpha", "beta"])
    pin(tmp_path / "alpha" / "trust", tmp_path / "other" / "beta" / "beta.pem", alone=True)
    assert other
    with running(beta), running(alpha := caller(sites, "alpha", beta)):
        until(lambda: alpha.role.saw(Lost))
        assert alpha.logged("it presents another certificate than the pinned one")
    assert not beta.role.events


def test_the_name_in_the_certificate_must_be_the_one_called(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    role = Scripted("querying", start=[Send("mallory", "answering", Answer(BATCH, 6))])
    # Pinned under mallory's name is mallory's certificate; beta cannot pass for it.
    with running(beta):
        alpha = Running(role, *sites["alpha"], addresses={"mallory": beta.address})
        with running(alpha):
            until(lambda: alpha.role.saw(Lost))
            assert alpha.logged("another certificate than the pinned one")
    assert not beta.role.events


def test_who_has_no_part_is_refused_in_both_logs(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path, callers=("alpha",))
    with running(beta), running(mallory := caller(sites, "mallory", beta)):
        until(lambda: mallory.role.saw(Lost))
        said = "messages refused: mallory has no part with beta in this coalition"
        assert mallory.logged(said)
        assert beta.logged(said)
    assert not beta.role.events


def test_revoking_ends_an_open_stream(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    with running(beta), running(alpha := caller(sites, "alpha", beta)):
        until(lambda: beta.role.saw(Received))
        revoke(tmp_path / "beta" / "trust", "alpha")
        until(lambda: beta.role.saw(Lost))
        assert beta.logged("the certificate of alpha was revoked")
        until(lambda: alpha.role.saw(Lost))
        with running(again := caller(sites, "alpha", beta)):
            until(lambda: again.role.saw(Lost))
    assert len(beta.role.saw(Received)) == 1


def test_revoking_the_server_ends_our_stream(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    with running(beta), running(alpha := caller(sites, "alpha", beta)):
        until(lambda: beta.role.saw(Received))
        revoke(tmp_path / "alpha" / "trust", "beta")
        until(lambda: alpha.role.saw(Lost))
        assert alpha.logged("beta: its certificate was revoked")


def test_certificates_are_given_to_grpc_only_when_they_changed(tmp_path: Path) -> None:
    """A new configuration for every handshake ends the process as soon as there are many."""
    _, beta = open_beta(tmp_path)
    with running(beta):
        server = beta.driver.server
        assert server is not None
        assert [server._fetch() for _ in range(3)] == [None] * 3
        make(tmp_path / "new", "gamma")
        pin(tmp_path / "beta" / "trust", tmp_path / "new" / "gamma.pem")
        assert server._fetch() is not None
        assert server._fetch() is None
        renew(tmp_path / "beta", "beta")
        assert server._fetch() is None
        (tmp_path / "beta" / "beta.next.key").replace(tmp_path / "beta" / "beta.key")
        assert [server._fetch() for _ in range(3)] == [None] * 3, "the key is not the certificate's"
        assert sum("cannot be read anew" in line for line in beta.log) == 1
        (tmp_path / "beta" / "beta.next.pem").replace(tmp_path / "beta" / "beta.pem")
        assert server._fetch() is not None
        assert server._fetch() is None


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
    program, asked, held = ballots()
    with running(beta):
        beta.driver.sessions.expect(compute("peer", "mallory", held, program))
        role = Scripted("querying", start=[compute("querier", "beta", asked, program)])
        with running(alpha := Running(role, *sites["alpha"], addresses={"beta": beta.address})):
            until(lambda: role.saw(Broken))
            # It is mallory's session: alpha cannot take it.
            assert "no such session is expected from alpha" in role.saw(Broken)[0].why
            assert beta.logged("no such session is expected from alpha")
            assert alpha.logged("no such session is expected from alpha")


def test_a_tunnel_that_never_comes_breaks_the_session(tmp_path: Path) -> None:
    _, beta = open_beta(tmp_path)
    program, _, held = ballots()
    with running(beta):
        beta.driver.sessions.expect(compute("peer", "alpha", held, program, seconds=0.5))
        until(lambda: beta.role.saw(Broken))
        assert "tunnel did not come" in beta.role.saw(Broken)[0].why


def test_a_peer_that_dies_in_a_session_breaks_it(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    program, _, held = ballots()
    with running(beta):
        beta.driver.sessions.expect(compute("peer", "alpha", held, program))
        client = client_of(
            "beta", beta.address, *sites["alpha"], role="querying", log=print, most_message=1 << 20
        )
        channel = client.tunnel(SESSION, patience=10)
        client.close()
        until(lambda: beta.role.saw(Broken))
        channel.close()
    assert len(beta.role.saw(Broken)) == 1


def test_other_programs_are_noticed(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    program, asked, held = ballots()
    with running(beta):
        beta.driver.sessions.expect(compute("peer", "alpha", held, program))
        other = replace(program, rows=3)
        work = compute("querier", "beta", {"x": asked["x"][:3]}, other)
        role = Scripted("querying", start=[work])
        with running(Running(role, *sites["alpha"], addresses={"beta": beta.address})):
            until(lambda: role.saw(Broken))
            until(lambda: beta.role.saw(Broken))


def test_garbage_ends_its_stream(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    with running(beta):
        client = client_of(
            "beta", beta.address, *sites["alpha"], role="querying", log=print, most_message=1 << 20
        )
        lost: list[str] = []
        line = client.talk("answering", lambda *_: None, lambda _, why: lost.append(why))
        line.send(b"garbage")
        until(lambda: lost)
        assert "a message must begin with its head" in lost[0]
        until(lambda: beta.role.saw(Lost))
        assert beta.role.saw(Lost)[0].peer == "alpha"
        assert not beta.role.saw(Received)
        client.close()


def test_a_role_that_fails_at_a_message_goes_on_serving(tmp_path: Path) -> None:
    sites = trusting(tmp_path, ["alpha", "beta"])

    def on(event: Any) -> list[Any]:
        if isinstance(event, Received) and isinstance(event.message, Done):
            raise KeyError("what nobody should see in a log")
        return []

    beta = Running(
        Scripted("answering", on),
        *sites["beta"],
        listen="127.0.0.1:0",
        callers=frozenset(["alpha"]),
    )
    with running(beta):
        client = client_of(
            "beta", beta.address, *sites["alpha"], role="querying", log=print, most_message=1 << 20
        )
        lost: list[str] = []
        line = client.talk("answering", lambda *_: None, lambda _, why: lost.append(why))
        line.send(encode(Done(BATCH, 1)))
        until(lambda: lost)
        assert beta.logged("failed at received: KeyError")
        assert not beta.logged("what nobody should see")
        client.close()
        with running(caller(sites, "alpha", beta)):
            until(lambda: Received("alpha", Answer(BATCH, 6)) in beta.role.events)


def test_a_peer_has_one_message_waiting(tmp_path: Path) -> None:
    """Whoever sends faster than the role deals with it fills its own stream, not our memory."""
    sites = trusting(tmp_path, ["alpha", "beta"])
    go = threading.Event()
    role = Scripted("answering", lambda event: [][: go.wait(30)])
    beta = Running(role, *sites["beta"], listen="127.0.0.1:0", callers=frozenset(["alpha"]))
    with running(beta):
        clients = [
            client_of("beta", beta.address, *sites["alpha"], role="querying", log=print,
                   most_message=1 << 20)
            for _ in range(3)
        ]  # fmt: skip
        for client in clients:  # each takes the place of the one before
            line = client.talk("answering", lambda *_: None, lambda *_: None)
            for version in range(100):
                line.send(encode(Done(BATCH, version)))
        until(lambda: beta.log.count("alpha (querying) connected") == 3)
        time.sleep(0.5)
        waiting = [each for each in _waiting(beta.driver) if isinstance(each, Received)]
        assert len(waiting) <= 3, "one for each stream"
        go.set()
        until(lambda: Received("alpha", Done(BATCH, 99)) in role.events)
        for client in clients:
            client.close()


def _waiting(driver: Any) -> list[Any]:
    """Return the events that wait for a role, and put them back."""
    taken = []
    while not driver._events.empty():
        taken.append(driver._events.get())
    for each in taken:
        driver._events.put(each)
    return [getattr(each, "event", each) for each in taken]


def test_a_message_that_is_too_long_ends_the_stream(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    with running(beta):
        client = client_of(
            "beta", beta.address, *sites["alpha"], role="querying", log=print, most_message=1 << 28
        )
        lost: list[str] = []
        line = client.talk("answering", lambda *_: None, lambda _, why: lost.append(why))
        line.send(b"x" * (17 << 20))
        until(lambda: lost)
        assert not beta.role.saw(Received)
        client.close()


def test_a_packed_message_is_not_unpacked(tmp_path: Path) -> None:
    """A few bytes may unpack to gigabytes."""
    import grpc

    sites, beta = open_beta(tmp_path)
    with running(beta):
        options = (("grpc.compression_enabled_algorithms_bitset", 7),)
        own, trust = sites["alpha"]
        key, certificate, _ = own.read()
        pinned = b"".join(each.pem for each in trust.of("beta"))
        credentials = grpc.ssl_channel_credentials(pinned, key, certificate)
        with grpc.secure_channel(
            beta.address, credentials, [("grpc.ssl_target_name_override", "beta"), *options]
        ) as channel:
            call = channel.stream_stream(TALK)(
                iter([encode(Done(BATCH, 1)) * 1000]),
                metadata=((ROLE_KEY, "querying"),),
                compression=grpc.Compression.Gzip,
            )
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert not beta.role.saw(Received)


def test_a_site_may_answer_and_query_with_one_certificate(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    as_other = Scripted("answering", start=[Send("beta", "guardian", Done(BATCH, 1))])
    with running(beta), running(querying := caller(sites, "alpha", beta)):
        with running(Running(as_other, *sites["alpha"], addresses={"beta": beta.address})):
            until(lambda: len(beta.role.saw(Received)) == 2)
            beta.driver._act([Send("alpha", "answering", Closed(BATCH))])
            until(lambda: as_other.saw(Received))
        until(lambda: beta.role.saw(Lost))
        assert beta.role.saw(Lost) == [Lost("alpha", "answering")]
        assert not querying.role.saw(Received)


def test_a_caller_that_comes_back_is_not_lost(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path)
    with running(beta), running(caller(sites, "alpha", beta)):
        until(lambda: beta.role.saw(Received))
        with running(caller(sites, "alpha", beta)):
            until(lambda: len(beta.role.saw(Received)) == 2)
            assert beta.logged("it connected anew")
            assert not beta.role.saw(Lost)


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    sites, beta = open_beta(tmp_path, callers=("alpha",))
    with running(beta):
        client = client_of(
            "beta", beta.address, *sites["alpha"], role="querying", log=print, most_message=1 << 20
        )
        beta.driver._lines.clear()
        lost: list[str] = []
        most = 2 * 2 + 4
        calls = [
            client._channel.stream_stream("/privote.Capc/Tunnel")(
                iter(lambda: b"", None),
                metadata=(("privote-session", f"{n}"), ("privote-role", "querying")),
            )
            for n in range(most)
        ]
        until(lambda: len(beta.driver.server._open) == most)  # type: ignore[union-attr]
        client.talk("answering", lambda *_: None, lambda _, why: lost.append(why))
        until(lambda: lost)
        assert f"alpha has {most} open, and may have no more" in lost[0]
        assert beta.logged(f"alpha has {most} open, and may have no more")
        for call in calls:
            call.cancel()
        client.close()
