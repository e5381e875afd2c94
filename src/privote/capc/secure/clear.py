"""The reference engine: computes in clear and hides nothing.

It exists to say what the secure engine must give, bit for bit, and for large studies on one
machine. The peer sends its inputs to the querier, who computes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import PeerError, positive
from ..inputs import checked
from ..programs import PEER, QUERIER, Program, joined
from .base import (
    Clock,
    IntArray,
    Link,
    Outputs,
    Progress,
    check_all,
    exchanged,
    same_length,
    session_digest,
)


class ClearEngine:
    """Computes in clear: INSECURE, the querier sees the peer's inputs."""

    name = "clear"
    secure = False

    def run(
        self,
        programs: Sequence[Program],
        side: str,
        inputs: Sequence[Mapping[str, IntArray]],
        link: Link,
        *,
        deadline: float,
        progress: Progress | None = None,
    ) -> Outputs | None:
        """Run the programs; see :class:`privote.capc.secure.base.SecureEngine`."""
        same_length(programs, inputs)
        clock = Clock(positive("deadline", deadline))
        own = check_all(programs, side, inputs)
        digest = session_digest(programs, self.name)
        if exchanged(link, digest, clock) != digest:
            raise PeerError(
                "the peer runs other programs, or another engine or version; nothing was computed"
            )
        outputs: Outputs = []
        carried: dict[str, IntArray] | None = None
        for place, program in enumerate(programs):
            if side == PEER:
                exchanged(link, _packed(own[place]), clock)
            else:
                peer = _unpacked(program.inputs(PEER), exchanged(link, b"", clock))
                querier = checked(program, QUERIER, inputs[place], carried)
                result = program.compute(np, joined(program, querier, peer))
                carried = {name: np.asarray(value, np.int64) for name, value in result.items()}
                outputs.append(carried)
            if progress:
                progress(place + 1)
        return outputs if side == QUERIER else None


def _packed(values: Mapping[str, IntArray]) -> bytes:
    return b"".join(value.astype("<i8").tobytes() for value in values.values())


def _unpacked(shapes: Mapping[str, tuple[int, ...]], data: bytes) -> dict[str, IntArray]:
    wanted = 8 * sum(int(np.prod(shape)) for shape in shapes.values())
    if len(data) != wanted:
        raise PeerError(f"the peer must send {wanted} bytes of inputs, got {len(data)}")
    values, start = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        values[name] = np.frombuffer(data, "<i8", size, start).astype(np.int64).reshape(shape)
        start += 8 * size
    return values
