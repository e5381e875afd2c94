"""What every engine does, the channel between its two sides, and the reference engine in clear."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from ...errors import InputError, PeerError, positive
from ..programs import PEER, QUERIER, IntArray, Program

Inputs = Sequence[Mapping[str, IntArray]]
Outputs = list[dict[str, IntArray]]
Shapes = Mapping[str, Sequence[int]]

OWN, OTHER = "self.sock", "peer.sock"
CLEAR = "clear"  # the name of the engine that hides nothing


class Channel(Protocol):
    """How the two sides of one session reach each other.

    Attributes
    ----------
    folder
        A folder only this user may enter. The engine listens on ``self.sock`` in it; whoever
        connects to ``peer.sock`` in it reaches the other side's ``self.sock``.
    closed
        Whether the channel was closed. An engine that sees it ends at once instead of at its
        deadline.
    """

    @property
    def folder(self) -> Path:
        """The folder of the two sockets."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""

    def exchange(self, data: bytes, seconds: float) -> bytes:
        """Send ``data`` and return what the other side gave to its own call.

        PeerError if nothing comes within so many seconds.
        """

    def close(self) -> None:
        """End the channel; a waiting exchange of either side fails."""


class Session:
    """One side of a computation while it lasts: what it runs, with whom, and until when."""

    def __init__(
        self,
        programs: Sequence[Program],
        side: str,
        inputs: Inputs,
        channel: Channel,
        seconds: float,
    ) -> None:
        self.programs, self.side, self.inputs = programs, side, inputs
        self.channel, self.seconds = channel, seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left; PeerError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise PeerError(f"the computation did not end within {self.seconds:g} s")
        return left

    def exchange(self, data: bytes) -> bytes:
        """Send ``data`` and return what the other side gave, within what is left of the time."""
        return self.channel.exchange(data, self.left())

    def agree(self, digest: bytes) -> None:
        """Compare a digest of all that must be the same on both sides, before anything is run."""
        if self.exchange(digest) != digest:
            raise PeerError(
                "the peer runs other programs, or another engine or version; nothing was computed"
            )

    def check(self) -> None:
        """Check all inputs before anything is sent; what is carried counts as given."""
        carried = None
        for program, given in zip(self.programs, self.inputs, strict=True):
            program.checked(self.side, given, carried)
            shapes = program.outputs() if self.side == QUERIER else {}
            carried = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


class SecureEngine(ABC):
    """Runs programs between two sides.

    Attributes
    ----------
    name
        What :func:`engine` knows it by; both sides must use the same.
    secure
        False for one that hides nothing.
    """

    name: ClassVar[str]
    secure: ClassVar[bool] = True

    def run(
        self,
        programs: Sequence[Program],
        side: str,
        inputs: Inputs,
        channel: Channel,
        *,
        deadline: float,
    ) -> Outputs | None:
        """Run the programs one after the other on one channel.

        Parameters
        ----------
        programs
            The same on both sides; compared before anything is run.
        side
            "querier" or "peer".
        inputs
            This side's inputs, one mapping for each program. What the querier leaves out is taken
            from its outputs of the program before.
        channel
            To the other side. The engine does not close it.
        deadline
            Seconds for all of it.

        Returns
        -------
        list of dict or None
            The outputs of each program for the querier, None for the peer.

        Raises
        ------
        InputError
            Inputs are not what the programs take; nothing was sent.
        PeerError
            The other side is gone, stalls, or runs something else; nothing is returned.
        """
        if not programs or len(programs) != len(inputs):
            raise InputError(
                "inputs",
                f"must be one mapping for each of at least one program, got {len(inputs)} for "
                f"{len(programs)} programs",
            )
        session = Session(programs, side, inputs, channel, positive("deadline", deadline))
        session.check()
        outputs = self._computed(session)
        return outputs if side == QUERIER else None

    @abstractmethod
    def _computed(self, session: Session) -> Outputs:
        """Agree with the other side, compute, and return the outputs; the peer's are not read."""


def engine(name: str) -> SecureEngine:
    """Return the engine of that name: "spu-cheetah" (or "spu"), or "clear", which is insecure."""
    if name == CLEAR:
        return ClearEngine()
    if name in ("spu-cheetah", "spu"):
        from .cheetah import CheetahEngine

        return CheetahEngine()
    raise InputError("engine", "must be spu-cheetah or clear", name)


class ClearEngine(SecureEngine):
    """Computes in clear: INSECURE, the peer sends its inputs to the querier, who computes alone.

    It exists to say what the secure engine must give, bit for bit, and for large studies on one
    machine.
    """

    name = CLEAR
    secure = False

    def _computed(self, session: Session) -> Outputs:
        public = [[program.name, program.parameters()] for program in session.programs]
        named = json.dumps([[self.name], *public], sort_keys=True)
        session.agree(hashlib.sha256(named.encode()).digest())
        outputs: Outputs = []
        for program, given in zip(session.programs, session.inputs, strict=True):
            if session.side == PEER:
                session.exchange(packed([program.checked(PEER, given)]))
                continue
            sent = session.exchange(b"")
            shapes = program.inputs(PEER)
            wanted = 8 * sum(int(np.prod(shape)) for shape in shapes.values())
            if len(sent) != wanted:
                raise PeerError(f"the peer must send {wanted} bytes of inputs, got {len(sent)}")
            querier = program.checked(QUERIER, given, outputs[-1] if outputs else None)
            outputs.append(program.in_clear(querier, *unpacked([shapes], sent)))
        return outputs


def packed(arrays: Inputs) -> bytes:
    """Return the numbers of arrays, one after the other."""
    return b"".join(
        np.ascontiguousarray(a, "<i8").tobytes() for one in arrays for a in one.values()
    )


def unpacked(shapes: Sequence[Shapes], data: bytes) -> Outputs:
    """Return the arrays of these shapes that :func:`packed` made bytes of."""
    found: Outputs = []
    start = 0
    for one in shapes:
        found.append({})
        for name, shape in one.items():
            size = int(np.prod(shape))
            array = np.frombuffer(data, "<i8", size, start).astype(np.int64)
            found[-1][name] = array.reshape(shape)
            start += 8 * size
    return found
