"""The secure engine: SPU's CHEETAH, semi-honest two-party computation without a third party.

Each session runs in a process of its own (:mod:`privote.capc.secure.worker`), which speaks only
over unix sockets in a folder that nobody else may enter. Both sides compile the programs
themselves and compare digests through the channel before anything is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import InputError, PeerError, missing_extra
from ..programs import PEER
from .base import OWN, Inputs, Outputs, SecureEngine, Session, packed, unpacked

_LONGEST_SOCKET = 100  # characters: the system takes about 107
_GLANCE = 0.2  # seconds between looks at whether the channel still stands
_FAREWELL = 5.0  # seconds for the peer to say that it is done too
_MOST_HEAD, _MOST_BODY = 1 << 26, 1 << 34  # bytes of a message between the two processes
# What the engine's process may inherit; anything of JAX or XLA could dump or change programs.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


class CheetahEngine(SecureEngine):
    """Two-party computation with SPU-CHEETAH: each side's inputs stay with it."""

    name = "spu-cheetah"

    def __init__(self) -> None:
        if find_spec("spu") is None or find_spec("jax") is None:
            raise missing_extra("capc", "the secure engine (spu, Python 3.11 only)")

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
                worker.tell(Frame("job", facts, session.inputs))
                session.agree(bytes.fromhex(worker.heard("compiled").facts["digest"]))
                worker.tell(Frame("go"))
                outputs = [dict(worker.heard("done").arrays[0]) for _ in session.programs]
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
                [sys.executable, "-m", "privote.capc.secure.worker", str(theirs.fileno())],
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


@dataclass(frozen=True)
class Frame:
    """One message: what it is, what goes with it, and arrays by name, for each program."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: Inputs = ()


def send(wire: Connection, frame: Frame) -> None:
    """Send one message."""
    shapes = [{name: array.shape for name, array in one.items()} for one in frame.arrays]
    try:
        wire.send_bytes(json.dumps([frame.kind, frame.facts, shapes]).encode())
        wire.send_bytes(packed(frame.arrays))
    except OSError as error:
        raise Ended from error


def receive(wire: Connection) -> Frame:
    """Return the next message; Ended if there is none."""
    try:
        head, body = wire.recv_bytes(_MOST_HEAD), wire.recv_bytes(_MOST_BODY)
    except (EOFError, OSError) as error:
        raise Ended from error
    kind, facts, shapes = json.loads(head)
    return Frame(kind, facts, unpacked(shapes, body))
