"""What every engine offers, the link between two of them, and their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import InputError, PeerError
from ..inputs import checked
from ..programs import QUERIER, Program

IntArray = npt.NDArray[np.int64]
Outputs = list[dict[str, IntArray]]
Progress = Callable[[int], None]  # called with how many programs are done

OWN, OTHER = "self.sock", "peer.sock"


class Link(Protocol):
    """How the two sides of one session reach each other.

    Attributes
    ----------
    folder
        A folder only this user may enter. The engine listens on ``self.sock`` in it; whoever
        connects to ``peer.sock`` in it reaches the other side's ``self.sock``.
    closed
        Optional: whether the link was closed. An engine that sees it ends at once instead of at
        its deadline.
    """

    @property
    def folder(self) -> Path:
        """The folder of the two sockets."""

    def exchange(self, data: bytes) -> bytes:
        """Send ``data`` and return what the other side gave to its own call; PeerError if not."""

    def close(self) -> None:
        """End the link; a waiting exchange of either side fails."""


class SecureEngine(Protocol):
    """Runs programs between two sides.

    Attributes
    ----------
    name
        What :func:`engine` knows it by; both sides must use the same.
    secure
        False for one that hides nothing.
    """

    @property
    def name(self) -> str:
        """The name of the engine."""

    @property
    def secure(self) -> bool:
        """Whether the inputs stay with their owners."""

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
        """Run the programs one after the other on one link.

        Parameters
        ----------
        programs
            The same on both sides; compared before anything is run.
        side
            "querier" or "peer".
        inputs
            This side's inputs, one mapping for each program. What a program lets a side leave out
            is taken from the outputs of the program before.
        link
            To the other side. The engine does not close it.
        deadline
            Seconds for all of it.
        progress
            Called with the number of programs done.

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


def engine(name: str) -> SecureEngine:
    """Return the engine of that name: "spu-cheetah" (or "spu"), or "clear", which is insecure."""
    if name == "clear":
        from .clear import ClearEngine

        return ClearEngine()
    if name in ("spu-cheetah", "spu"):
        from .cheetah import CheetahEngine

        return CheetahEngine()
    raise InputError(f"engine must be spu-cheetah or clear, got {name!r:.60}")


class Clock:
    """The seconds that are left of a deadline."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.seconds = seconds

    def left(self) -> float:
        """Return the seconds left; PeerError if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise PeerError(f"the computation did not end within {self.seconds:g} s")
        return left


def session_digest(programs: Sequence[Program], *parts: Any) -> bytes:
    """Return a SHA-256 of the programs, in order, and of whatever else must agree."""
    import hashlib
    import json

    text = json.dumps(
        [[program.name, program.parameters()] for program in programs] + [list(parts)],
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).digest()


def same_length(programs: Sequence[Program], inputs: Sequence[Any]) -> None:
    """Refuse a session without programs, or with inputs for another number of them."""
    if not programs or len(programs) != len(inputs):
        raise InputError(
            "inputs",
            f"must be one mapping for each of at least one program, got {len(inputs)} for "
            f"{len(programs)} programs",
        )


def check_all(
    programs: Sequence[Program], side: str, inputs: Sequence[Mapping[str, IntArray]]
) -> list[dict[str, IntArray]]:
    """Check all inputs of a side before anything is sent; what is carried counts as given."""
    own, carried = [], None
    for program, given in zip(programs, inputs, strict=True):
        own.append(checked(program, side, given, carried))
        shapes = program.outputs() if side == QUERIER else {}
        carried = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
    return own


def exchanged(link: Link, data: bytes, clock: Clock) -> bytes:
    """Exchange over the link, but wait no longer than the clock allows."""
    answer: list[bytes | BaseException] = []

    def wait() -> None:
        try:
            answer.append(link.exchange(data))
        except BaseException as error:
            answer.append(error)

    # A thread, because a link need not know of deadlines; it ends when the link is closed.
    waiting = threading.Thread(target=wait, name="privote-exchange", daemon=True)
    waiting.start()
    waiting.join(clock.left())
    if not answer:
        raise PeerError(f"the peer sent nothing within {clock.seconds:g} s")
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


def link_closed(link: Link) -> bool:
    """Say whether a link that can tell (an attribute ``closed``) has been closed."""
    return bool(getattr(link, "closed", False))
