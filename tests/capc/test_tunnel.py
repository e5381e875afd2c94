"""The tunnel: the engine's sockets come out at the other side, counted, bounded, and in order."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import pytest
from tests.capc.sessions import tunnels
from tests.capc.sites import until

from privote.capc.streams import Outbox
from privote.capc.tunnel import DATA, OPEN, PIECE, Tunnel
from privote.errors import PeerError


def listening(channel: Tunnel) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.bind(str(channel.folder / "self.sock"))
    end.listen(8)
    end.settimeout(60)
    return end


def connected(channel: Tunnel) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(60)
    end.connect(str(channel.folder / "peer.sock"))
    return end


def read(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = end.recv(count - len(data))
        assert piece
        data += piece
    return data


def both(querier: Tunnel, peer: Tunnel, ours: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    got: list[bytes] = []
    other = threading.Thread(target=lambda: got.append(peer.exchange(theirs, 10.0)))
    other.start()
    mine = querier.exchange(ours, 10.0)
    other.join(60)
    return mine, got[0]


@pytest.mark.parametrize("size", [0, 1, PIECE])
def test_exchange_in_order(size: int) -> None:
    data = os.urandom(size)
    with tunnels() as (querier, peer):
        assert both(querier, peer, data, b"theirs") == (b"theirs", data)
        assert both(querier, peer, b"2", b"3") == (b"3", b"2")
        with pytest.raises(PeerError, match=r"within 0\.1 s"):
            querier.exchange(b"", 0.1)


def test_an_engine_that_listens_late_still_gets_everything() -> None:
    with tunnels() as (querier, peer):
        early = connected(querier)
        early.sendall(b"before anybody listened")
        early.shutdown(socket.SHUT_WR)
        # What goes beside the connection is not held up by it.
        assert both(querier, peer, b"a", b"b") == (b"b", b"a")
        with listening(peer) as at_peer:
            end, _ = at_peer.accept()
            end.settimeout(60)
            assert read(end, 23) == b"before anybody listened"
            assert end.recv(1) == b""
            end.close()
        early.close()


def test_an_engine_may_answer_before_ours_is_scheduled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def busy(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(0.05)  # of a machine with other work: the new thread goes first

    with tunnels() as (querier, peer), listening(peer) as at_peer:
        monkeypatch.setattr(threading.Thread, "start", busy)
        end = connected(querier)
        other, _ = at_peer.accept()
        other.sendall(b"at once")
        assert read(end, 7) == b"at once"
        end.close()
        other.close()


def test_a_slow_peer_holds_the_sender_back() -> None:
    with tunnels() as (querier, peer), listening(peer) as at_peer:
        end = connected(querier)
        other, _ = at_peer.accept()
        end.settimeout(1.0)
        taken = []
        with contextlib.suppress(TimeoutError):  # nobody reads: memory must not take it all
            while len(taken) < 800:
                taken.append(end.send(b"x" * PIECE))
        assert sum(taken) < 40 << 20
        end.close()
        other.close()


def test_too_many_bytes_end_the_session() -> None:
    with tunnels(most_bytes=1000) as (querier, peer):
        with pytest.raises(PeerError, match="more than 1000 bytes"):
            querier.exchange(b"x" * 2000, 10.0)
        assert querier.why == "the session has more than 1000 bytes"
        with pytest.raises(PeerError):
            peer.exchange(b"", 10.0)


def test_an_end_that_leaves_wakes_who_waits() -> None:
    with tunnels() as (querier, peer):
        leaving = threading.Timer(0.1, peer.close)
        leaving.start()
        for _ in range(2):
            with pytest.raises(PeerError, match="ended the session early"):
                querier.exchange(b"", 10.0)
        assert querier.why is None
        leaving.join()


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "ended early"),  # without a word
        ([b""], "a frame must have"),
        ([b"x" * (PIECE + 100)], "a frame must have"),
        ([bytes([9, 0, 0, 0, 0])], "unknown kind"),
        ([bytes([DATA, 0, 0, 0, 8]) + b"x"], "was never opened"),
        ([bytes([OPEN, 0, 0, 0, 0])], "cannot be opened"),  # a number of our own side
        ([bytes([OPEN, 0, 0, 0, 1])] * 2, "cannot be opened"),
        ([bytes([OPEN, 0, 0, 0, n]) for n in range(1, 99, 2)], "at most 32 connections"),
    ],
)
def test_frames_that_no_honest_peer_sends(frames: list[bytes], why: str) -> None:
    channel = Tunnel(Outbox(PIECE), iter(frames), first=True, patience=1.0)
    until(lambda: channel.why is not None)
    assert why in str(channel.why)
    channel.close()


def test_frames_without_bytes_are_counted_and_take_no_memory() -> None:
    """Nothing takes no room in a bounded buffer, so there could be any number of it."""
    with tunnels(most_bytes=10_000) as (querier, peer):
        peer.send(OPEN, 1)
        peer.send(DATA, 1)
        until(lambda: querier.received == 10)
        assert not querier._connections[1]._inward.waiting
        with contextlib.suppress(PeerError):
            for _ in range(3000):
                peer.send(DATA, 1)
        until(lambda: querier.closed)
        assert "more than 10000 bytes" in str(querier.why)
