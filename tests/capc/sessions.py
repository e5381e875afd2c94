"""Run both sides of a session in one process, as a driver does."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privote.capc.engine import OTHER, OWN, Frame, SecureEngine, _array, packed
from privote.capc.programs import PEER, QUERIER, Program
from privote.errors import PeerError

Inputs = Sequence[Mapping[str, Any]]


class ClearEngine(SecureEngine):
    """Hides nothing: the peer sends its inputs to the querier, who computes alone."""

    name = "clear"

    def __init__(self) -> None:
        pass

    def _computed(self, session: Any) -> Any:
        session.agree(repr(session.programs).encode())
        outputs: list[Any] = []
        for program, given in zip(session.programs, session.inputs, strict=True):
            if session.side == PEER:
                session.exchange(packed(Frame("inputs", {}, [dict(given)])))
                continue
            sent = msgspec.msgpack.decode(session.exchange(b""), type=Frame, dec_hook=_array)
            querier = program.checked(QUERIER, given, outputs[-1] if outputs else None)
            outputs.append(program.in_clear(querier, program.checked(PEER, sent.arrays[0])))
        return outputs


class LocalChannel:
    """A channel between two threads of one process; the sockets are symbolic links.

    Make both ends with :meth:`pair`.
    """

    def __init__(
        self,
        folder: Path,
        outbox: queue.Queue[bytes | None],
        inbox: queue.Queue[bytes | None],
        gone: threading.Event,
    ) -> None:
        self.folder, self._gone = folder, gone
        self._outbox, self._inbox = outbox, inbox

    @classmethod
    def pair(cls, folder: str | Path) -> tuple[LocalChannel, LocalChannel]:
        """Return the querier's and the peer's end, with folders of their own inside ``folder``."""
        folders = [Path(folder) / name for name in ("querier", "peer")]
        for each in folders:
            each.mkdir(mode=0o700)
        for mine, other in (folders, folders[::-1]):
            (mine / OTHER).symlink_to((other / OWN).resolve())
        there: queue.Queue[bytes | None] = queue.Queue()
        back: queue.Queue[bytes | None] = queue.Queue()
        gone = threading.Event()
        return cls(folders[0], there, back, gone), cls(folders[1], back, there, gone)

    def exchange(self, data: bytes, seconds: float) -> bytes:
        """Send ``data``, return the other side's; PeerError if it closed or stays silent."""
        self._outbox.put(data)
        try:
            got = self._inbox.get(timeout=seconds)
        except queue.Empty:
            raise PeerError(f"the peer sent nothing within {seconds:g} s") from None
        if got is None:
            self._inbox.put(None)
            raise PeerError("the peer closed the channel")
        return got

    def close(self) -> None:
        """End both directions and remove this end's folder."""
        self._gone.set()
        self._outbox.put(None)
        self._inbox.put(None)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def closed(self) -> bool:
        """Whether either end was closed."""
        return self._gone.is_set()


def both_sides(
    engine: SecureEngine,
    programs: Sequence[Program],
    querier: Inputs,
    peer: Inputs,
    *,
    others: Sequence[Program] | None = None,
    deadline: float = 120.0,
    channels: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Return what each side got: outputs, None, or the error it raised.

    ``others`` are the peer's programs if they differ. Whoever fails closes the channel.
    """
    with tempfile.TemporaryDirectory() as folder:
        ends = channels or LocalChannel.pair(folder)
        results: dict[str, Any] = {}

        def run(side: str, mine: Sequence[Program], inputs: Inputs, channel: Any) -> None:
            try:
                results[side] = engine.run(mine, side, inputs, channel, deadline=deadline)
            except Exception as error:
                results[side] = error
                channel.close()

        sides = [
            threading.Thread(target=run, args=(QUERIER, programs, querier, ends[0])),
            threading.Thread(target=run, args=(PEER, others or programs, peer, ends[1])),
        ]
        for side in sides:
            side.start()
        for side in sides:
            side.join()
        for end in ends:
            end.close()
        if channels is None:
            assert not list(Path(folder).iterdir()), "the channel's folders must be gone"
    return results


def any_inputs(program: Program, side: str, seed: int, *, extreme: bool = False) -> dict[str, Any]:
    """Return inputs from the whole of int64; ``extreme`` ones are at its ends and about 0."""
    values = np.random.default_rng(seed)
    ends = np.array([-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 2**63 - 2, 2**63 - 1], np.int64)
    return {
        name: values.choice(ends, shape)
        if extreme
        else values.integers(-(2**63), 2**63 - 1, shape, endpoint=True)
        for name, shape in program.inputs(side).items()
    }
