"""The secure engine alone: ballots between two processes on this machine, no network.

For each number of queries and each model: seconds of a whole session (processes started, programs
compiled, keys exchanged), seconds and processor seconds of the same queries once it stands, and
bytes both ways, counted by a relay in a run of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privote.capc.programs import PEER, QUERIER, BallotProgram, Program
from privote.capc.secure import LocalChannel, engine
from privote.capc.secure.base import OTHER, OWN

FEATURES, LABELS = 512, 20
Inputs = list[dict[str, Any]]


@dataclass(frozen=True)
class Timing:
    """Seconds of a session, of its programs after the first pass, and of processors."""

    whole: float
    steady: float
    processor: float


def bare_session(
    programs: list[Program],
    querier: Inputs,
    peer: Inputs,
    *,
    name: str = "spu-cheetah",
    warm: int = 0,
    channels: tuple[Any, Any] | None = None,
    deadline: float = 600.0,
) -> Timing:
    """Run one session between two threads' engines; ``warm`` programs count as the first pass."""
    done: list[float] = []
    failed: list[BaseException] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        ends = channels or LocalChannel.pair(folder)

        def run(side: str, inputs: Inputs, channel: Any) -> None:
            note = (lambda _: done.append(time.perf_counter())) if side == QUERIER else None
            try:
                engine(name).run(programs, side, inputs, channel, deadline=deadline, progress=note)
            except BaseException as error:
                failed.append(error)
                channel.close()

        sides = [
            threading.Thread(target=run, args=(side, inputs, channel))
            for side, inputs, channel in ((QUERIER, querier, ends[0]), (PEER, peer, ends[1]))
        ]
        start = time.perf_counter()
        for side in sides:
            side.start()
        for side in sides:
            side.join()
        whole = time.perf_counter() - start
        for end in ends:
            end.close()
    if failed:
        raise failed[0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(whole, done[-1] - (done[warm - 1] if warm else start), processor)


def ballots(queries: int, hidden: int | None, seed: int = 0) -> tuple[list[Any], Inputs, Inputs]:
    """Return the programs of so many queries in safe chunks, and random inputs of both sides."""
    values = np.random.default_rng(seed)
    most = BallotProgram(rows=1, features=FEATURES, labels=LABELS, hidden=hidden).most_rows
    programs, querier, peer = [], [], []
    for start in range(0, queries, most):
        rows = min(most, queries - start)
        program = BallotProgram(rows=rows, features=FEATURES, labels=LABELS, hidden=hidden)
        programs.append(program)
        querier.append({"x": values.integers(-(2**14), 2**14, (rows, FEATURES))})
        shapes = program.inputs(PEER)
        peer.append({key: values.integers(-(2**12), 2**12, shapes[key]) for key in shapes})
    return programs, querier, peer


class Counter:
    """A local channel through a relay that counts the bytes of the engine."""

    def __init__(self, folder: str) -> None:
        self.channels = LocalChannel.pair(folder)
        self.bytes = 0
        self._open: list[socket.socket] = []
        for mine, other in (self.channels, self.channels[::-1]):
            (mine.folder / OTHER).unlink()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(mine.folder / OTHER))
            listener.listen()
            self._open.append(listener)
            self._start(self._serve, listener, other.folder / OWN)

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _start(self, work: Any, *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _serve(self, listener: socket.socket, target: Path) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = reached(target)
                self._open += [near, far]
                self._start(self._carry, near, far)
                self._start(self._carry, far, near)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                self.bytes += len(data)
                sink.sendall(data)


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


def bytes_of(queries: int, hidden: int | None) -> int:
    """Return the bytes both ways of a whole session, set-up included."""
    programs, querier, peer = ballots(queries, hidden)
    with tempfile.TemporaryDirectory() as folder:
        counter = Counter(folder)
        bare_session(programs, querier, peer, channels=counter.channels)
        counter.close()
    return counter.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--models", nargs="+", choices=["linear", "mlp"], default=["linear", "mlp"])
    parser.add_argument("--bytes", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    print(f"{FEATURES} features, {LABELS} labels; mlp: 64 hidden units")
    print("model   queries chunks  whole, s  steady, s  ms/query  processor, s  MB both ways")
    for model in arguments.models:
        hidden = 64 if model == "mlp" else None
        for queries in arguments.queries:
            programs, querier, peer = ballots(queries, hidden)
            once = bare_session(programs, querier, peer)
            twice = bare_session(programs * 2, querier * 2, peer * 2, warm=len(programs))
            used = max(0.0, twice.processor - once.processor)
            size = f"{bytes_of(queries, hidden) / 1e6:>8.1f}" if arguments.bytes else f"{'-':>8}"
            print(
                f"{model:<7} {queries:>7,} {len(programs):>6} {once.whole:>9.2f} "
                f"{twice.steady:>10.2f} {1000 * twice.steady / queries:>9.1f} {used:>13.2f} {size}",
                flush=True,
            )


if __name__ == "__main__":
    main()
