"""A local channel whose sockets lead through a relay that keeps what passes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path

import numpy as np
from tests.capc.sessions import LocalChannel

from privote.capc.engine import OTHER, OWN

_SEALED = b"\x5e\xa1\x10\x04\x01\x02"  # how the engine marks what it packs: by zstd


class Wiretap:
    """Two ends of a channel, and the bytes each side received from the other's engine."""

    def __init__(self, folder: Path) -> None:
        self.querier, self.peer = LocalChannel.pair(folder)
        self.received: dict[str, list[bytes]] = {"querier": [], "peer": []}
        self._open: list[socket.socket] = []
        ends = {"querier": self.querier.folder, "peer": self.peer.folder}
        for own, other in (("querier", "peer"), ("peer", "querier")):
            (ends[own] / OTHER).unlink()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(ends[own] / OTHER))
            listener.listen()
            self._open.append(listener)
            self._start(self._serve, listener, own, other, ends[other] / OWN)

    def close(self) -> None:
        """End the relay and the channel."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.querier.close()
        self.peer.close()

    def messages(self, side: str) -> list[bytes]:
        """Return the long messages a side received, without the engine's short receipts."""
        return [one for data in self.received[side] for one in split(data) if len(one) > 200]

    def _start(self, work: object, *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _serve(self, listener: socket.socket, own: str, other: str, target: Path) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = reached(target)
                self._open += [near, far]
                self._start(self._carry, near, far, other)
                self._start(self._carry, far, near, own)

    def _carry(self, source: socket.socket, sink: socket.socket, receiver: str) -> None:
        kept = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                sink.sendall(data)
        self.received[receiver].append(bytes(kept))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def reached(target: Path) -> socket.socket:
    """Connect to an engine that may not listen yet."""
    for _ in range(300):
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(str(target))
        except OSError:
            one.close()
            time.sleep(0.1)
        else:
            return one
    raise TimeoutError(f"nobody listens on {target}")


def split(data: bytes) -> list[bytes]:
    """Return the messages of a stream: the engine marks each with PRPC and its length."""
    found, start = [], 0
    while start < len(data):
        if data[start : start + 4] != b"PRPC":
            raise ValueError(f"no message starts at {start}: {data[start : start + 8]!r}")
        size = 12 + int.from_bytes(data[start + 4 : start + 8], "big")
        found.append(data[start : start + size])
        start += size
    return found


def ciphertexts(messages: list[bytes]) -> list[bytes]:
    """Return the ciphertexts (and keys) among messages, unpacked."""
    import pyarrow as pa

    found = []
    for one in messages:
        start = one.find(_SEALED, 0, 200)
        size = int.from_bytes(one[start + 8 : start + 16], "little")
        if 0 <= start and start + size <= len(one):  # keys come in several messages: left out
            packed = pa.BufferReader(one[start + len(_SEALED) + 10 :])
            with pa.CompressedInputStream(packed, "zstd") as stream:
                found.append(stream.read())
    return found


def repeated(messages: list[bytes]) -> int:
    """Return how many coefficients of the ciphertexts occur more than once.

    Ciphertexts are pseudorandom: two that share a half repeat thousands.
    """
    words = [
        np.frombuffer(one, np.uint64, (len(one) - start) // 8, start)
        for one in ciphertexts(messages)
        for start in range(8)
    ]
    if not words:
        return 0
    values, counts = np.unique(np.concatenate(words), return_counts=True)
    return int(counts[(values > 2**32) & (counts > 1)].sum())
