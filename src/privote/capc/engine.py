"""The engine of two-party computations: SPU's CHEETAH, semi-honest, without a third party.

Each session runs in a process of its own (:mod:`privote.capc.cheetah`), which speaks only over unix
sockets in a folder that nobody else may enter. Both sides compile the programs themselves and
compare digests through the channel before anything is run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import numpy as np

from ..errors import InputError, PeerError, missing_extra, positive
from .programs import PEER, QUERIER, IntArray, Program

Inputs = Sequence[Mapping[str, IntArray]]
Outputs = list[dict[str, IntArray]]

OWN, OTHER = "self.sock", "peer.sock"


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
            raise PeerError(f"the computation did not finish within {self.seconds:g} s")
        return left

    def exchange(self, data: bytes) -> bytes:
        """Send ``data`` and return what the other side gave, within what is left of the time."""
        return self.channel.exchange(data, self.left())

    def agree(self, digest: bytes) -> None:
        """Compare a digest of all that must be the same on both sides, before anything is run."""
        if self.exchange(digest) != digest:
            raise PeerError(
                "the peer runs another program, engine or version; nothing was computed"
            )

    def check(self) -> None:
        """Check all inputs before anything is sent; what is carried counts as given."""
        carried = None
        for program, given in zip(self.programs, self.inputs, strict=True):
            program.checked(self.side, given, carried)
            shapes = program.outputs() if self.side == QUERIER else {}
            carried = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


_LONGEST_SOCKET = 100  # characters: the system takes about 107
_GLANCE = 0.2  # seconds between looks at whether the channel still stands
_FAREWELL = 5.0  # seconds for the peer to say that it is done too
_MOST_FRAME = 1 << 34  # bytes of a message between the two processes
# What the engine's process may inherit; anything of JAX or XLA could dump or change programs.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


class SecureEngine:
    """Runs programs between two sides with SPU-CHEETAH: each side's inputs stay with it.

    Attributes
    ----------
    name
        Both sides must use the same.
    """

    name = "spu-cheetah"

    def __init__(self) -> None:
        if find_spec("spu") is None or find_spec("jax") is None:
            raise missing_extra("capc", "the secure engine (spu, Python 3.11 only)")

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

    def _computed(self, session: Session) -> Outputs:
        folder = _private_folder(session.channel.folder)
        facts = {
            "side": session.side,
            "programs": [[program.name, program.parameters()] for program in session.programs],
            "folder": str(folder),
            "patience": session.seconds,
        }
        try:
            with tempfile.TemporaryFile() as log, _Worker(session, log) as worker:
                worker.tell(Frame("job", facts, [dict(one) for one in session.inputs]))
                session.agree(bytes.fromhex(worker.heard("compiled").facts["digest"]))
                worker.tell(Frame("go"))
                outputs = [worker.heard("done").arrays[0] for _ in session.programs]
                _part(session)
                return outputs
        finally:
            (folder / OWN).unlink(missing_ok=True)


def _part(session: Session) -> None:
    """Keep the peer's process until the querier has everything; the querier need not wait long."""
    if session.side == PEER:
        session.exchange(b"done")
        return
    with contextlib.suppress(PeerError):
        session.channel.exchange(b"done", _FAREWELL)


class _Worker:
    """The process of one session, ended in all cases."""

    def __init__(self, session: Session, log: BinaryIO) -> None:
        self._session = session
        self._wire, theirs = Pipe()
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment.update(
            JAX_ENABLE_X64="1",
            JAX_PLATFORMS="cpu",
            PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "privote.capc.cheetah", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()
        self._process.kill()
        self._process.wait()

    def tell(self, frame: Frame) -> None:
        """Send the process a message."""
        try:
            send(self._wire, frame)
        except Ended:
            raise self._gone() from None

    def heard(self, kind: str) -> Frame:
        """Return the next message, which must be of that kind."""
        while not self._wire.poll(min(_GLANCE, self._session.left())):
            if self._session.channel.closed:
                raise PeerError("the channel to the peer was closed during the computation")
        try:
            frame = receive(self._wire)
        except Ended:
            raise self._gone() from None
        if frame.kind == "failed":
            error = InputError if frame.facts["kind"] == "InputError" else PeerError
            raise error(str(frame.facts["why"]))
        if frame.kind != kind:
            raise PeerError(f"the engine must answer {kind}, got {frame.kind!r:.60}")
        return frame

    def _gone(self) -> PeerError:
        return PeerError("the engine ended without a result: the peer is gone or its channel broke")


def _private_folder(folder: Path) -> Path:
    """Return the folder for the sockets; nobody else may enter it."""
    home = Path(folder).resolve()
    if not home.is_dir() or stat.S_IMODE(home.stat().st_mode) & 0o077:
        raise InputError(
            f"the folder of a channel must be one that only its owner enters, got {home}"
        )
    if len(str(home / OWN)) > _LONGEST_SOCKET:
        raise InputError(
            f"the folder of a channel must be at most {_LONGEST_SOCKET} characters long with its "
            f"socket, got {home}"
        )
    return home


# -- messages between an engine's process and the one that started it -----------------------------


class Ended(Exception):  # noqa: N818 - it is an event, not a fault
    """The other end of the pipe is gone."""


class Frame(msgspec.Struct, frozen=True):
    """One message: what it is, what goes with it, and arrays by name, for each program."""

    kind: str
    facts: dict[str, Any] = {}
    arrays: Sequence[dict[str, IntArray]] = ()


def packed(value: Any) -> bytes:
    """Return what has arrays of int64 in it as bytes."""
    return msgspec.msgpack.encode(value, enc_hook=lambda a: (a.shape, a.astype("<i8").tobytes()))


def _array(_: Any, parts: Any) -> IntArray:
    shape, data = msgspec.convert(parts, tuple[tuple[int, ...], bytes])
    return np.frombuffer(data, "<i8").astype(np.int64).reshape(shape)


def send(wire: Connection, frame: Frame) -> None:
    """Send one message."""
    try:
        wire.send_bytes(packed(frame))
    except OSError as error:
        raise Ended from error


def receive(wire: Connection) -> Frame:
    """Return the next message; Ended if there is none."""
    try:
        data = wire.recv_bytes(_MOST_FRAME)
    except (EOFError, OSError) as error:
        raise Ended from error
    return msgspec.msgpack.decode(data, type=Frame, dec_hook=_array)
