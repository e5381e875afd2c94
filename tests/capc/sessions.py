"""Run both sides of a session in one process, as a driver does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import numpy as np

from privote.capc.engine import Frame, SecureEngine, _array, packed
from privote.capc.programs import PEER, QUERIER, Program
from privote.capc.tunnel import MOST_BYTES, PIECE, Outbox, Tunnel

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


@contextmanager
def tunnels(
    most_bytes: int = MOST_BYTES, wires: tuple[Outbox, Outbox] | None = None
) -> Iterator[tuple[Tunnel, Tunnel]]:
    """Yield both ends of a session, the querier's first; ``wires`` lead from it and to it."""
    there, back = wires or (Outbox(4 * PIECE), Outbox(4 * PIECE))
    querier = Tunnel(there, back, first=True, patience=60.0, most_bytes=most_bytes)
    peer = Tunnel(back, there, first=False, patience=60.0)
    with closing(querier), closing(peer):
        yield querier, peer
    assert not querier.folder.exists()
    assert not peer.folder.exists()


def both_sides(
    engine: SecureEngine,
    programs: Sequence[Program],
    querier: Inputs,
    peer: Inputs,
    *,
    others: Sequence[Program] | None = None,
    deadline: float = 120.0,
    wires: tuple[Outbox, Outbox] | None = None,
) -> dict[str, Any]:
    """Return what each side got: outputs, None, or the error it raised.

    ``others`` are the peer's programs if they differ. Whoever fails breaks it off.
    """
    results: dict[str, Any] = {}

    def run(side: str, mine: Sequence[Program], inputs: Inputs, end: Tunnel) -> None:
        try:
            results[side] = engine.run(mine, side, inputs, end, deadline=deadline)
        except Exception as error:
            results[side] = error
            end.fail(str(error))

    with tunnels(wires=wires) as ends:
        sides = [
            threading.Thread(target=run, args=(QUERIER, programs, querier, ends[0])),
            threading.Thread(target=run, args=(PEER, others or programs, peer, ends[1])),
        ]
        for side in sides:
            side.start()
        for side in sides:
            side.join()
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
