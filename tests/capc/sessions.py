"""Run both sides of a session in one process, as the parties do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from privote.capc.coalition import _Pipe
from privote.capc.engine import SecureEngine
from privote.capc.network import MOST_BYTES, Link, Wire
from privote.capc.programs import PEER, QUERIER, Program

Inputs = Sequence[Mapping[str, Any]]


def wires() -> tuple[Wire, Wire]:
    """Return the two ends of a stream."""
    there, back = asyncio.Queue[Any](8), asyncio.Queue[Any](8)
    return _Pipe(back, there), _Pipe(there, back)


@asynccontextmanager
async def links(
    most_bytes: int = MOST_BYTES, ends: tuple[Wire, Wire] | None = None
) -> AsyncIterator[tuple[Link, Link]]:
    """Yield both ends of a session, the querier's first."""
    one, other = ends or wires()
    querier, peer = Link(one, first=True, most_bytes=most_bytes), Link(other, first=False)
    await querier.__aenter__()
    await peer.__aenter__()
    try:
        yield querier, peer
    finally:
        await asyncio.gather(querier.__aexit__(None), peer.__aexit__(None))


def both_sides(
    engine: SecureEngine,
    programs: Sequence[Program],
    querier: Inputs,
    peer: Inputs,
    *,
    others: Sequence[Program] | None = None,
    deadline: float = 120.0,
    ends: Any = None,
) -> dict[str, Any]:
    """Return what each side got: outputs, None, or the error it raised.

    ``others`` are the peer's programs if they differ; ``ends`` makes the two ends of the stream.
    """
    results: dict[str, Any] = {}

    async def run(side: str, mine: Sequence[Program], inputs: Inputs, link: Link) -> None:
        try:
            async with link:
                results[side] = await engine.run(mine, side, inputs, link, deadline=deadline)
        except Exception as error:
            results[side] = error

    async def both() -> None:
        one, other = (ends or wires)()
        await asyncio.gather(
            run(QUERIER, programs, querier, Link(one, first=True)),
            run(PEER, others or programs, peer, Link(other, first=False)),
        )

    asyncio.run(both())
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
