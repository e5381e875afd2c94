"""The secure engine: SPU's CHEETAH, semi-honest two-party computation without a third party.

Each session runs in a process of its own (:mod:`privote.capc.secure.worker`), which speaks only
over unix sockets in a folder that nobody else may enter. Both sides compile the programs
themselves and compare digests through the link before anything is run.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import InputError, PeerError, missing_extra, positive
from ..programs import PEER, QUERIER, Program
from .base import (
    OWN,
    Clock,
    IntArray,
    Link,
    Outputs,
    Progress,
    check_all,
    exchanged,
    link_closed,
    same_length,
)
from .frames import Ended, Frame, at_place, named, ready, receive, send
from .settings import check_settings

_LONGEST_SOCKET = 100  # characters: the system takes about 107
_GLANCE = 0.2  # seconds between looks at whether the link still stands
_FAREWELL = 5.0  # seconds for the peer to say that it is done too
# What the engine's process may inherit; anything of JAX or XLA could dump or change programs.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


class CheetahEngine:
    """Two-party computation with SPU-CHEETAH: each side's inputs stay with it.

    Parameters
    ----------
    settings
        ``ot``: "softspoken" (default) or "ferret". Anything that costs secrecy is refused.
    """

    name = "spu-cheetah"
    secure = True

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = check_settings(settings or {})
        if find_spec("spu") is None or find_spec("jax") is None:
            raise missing_extra("capc", "the secure engine (spu, Python 3.11 only)")

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
        check_all(programs, side, inputs)
        folder = _private_folder(link.folder)
        job = Frame(
            "job",
            {
                "side": side,
                "programs": [[program.name, program.parameters()] for program in programs],
                "settings": self.settings,
                "folder": str(folder),
                "patience": deadline,
            },
            {k: v for place, given in enumerate(inputs) for k, v in named(given, place).items()},
        )
        try:
            with tempfile.TemporaryFile() as log, _Session(link, clock, log) as session:
                return _followed(session, job, side, len(programs), progress)
        finally:
            (folder / OWN).unlink(missing_ok=True)


def _followed(
    session: _Session, job: Frame, side: str, count: int, progress: Progress | None
) -> Outputs | None:
    """Start the job, compare digests, and collect what is found."""
    session.tell(job)
    digest = bytes.fromhex(session.heard("compiled").facts["digest"])
    if exchanged(session.link, digest, session.clock) != digest:
        raise PeerError(
            "the peer runs other programs, or another engine or version; nothing was computed"
        )
    session.tell(Frame("go"))
    outputs: Outputs = []
    for place in range(count):
        outputs.append(at_place(session.heard("done").arrays, place))
        if progress:
            progress(place + 1)
    try:
        # The peer's process must live until the querier has everything.
        exchanged(session.link, b"done", Clock(_FAREWELL) if side == QUERIER else session.clock)
    except PeerError:
        if side == PEER:
            raise
    return outputs if side == QUERIER else None


class _Session:
    """The process of one session, ended in all cases."""

    def __init__(self, link: Link, clock: Clock, log: BinaryIO) -> None:
        self.link, self.clock, self._log = link, clock, log
        self._channel, theirs = socket.socketpair()
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

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def tell(self, frame: Frame) -> None:
        """Send the process a message."""
        try:
            send(self._channel, frame)
        except Ended:
            raise self._gone() from None

    def heard(self, kind: str) -> Frame:
        """Return the next message, which must be of that kind."""
        while not ready(self._channel, min(_GLANCE, self.clock.left())):
            if link_closed(self.link):
                raise PeerError("the link to the peer was closed during the computation")
        try:
            frame = receive(self._channel)
        except Ended:
            raise self._gone() from None
        if frame.kind == "failed":
            error = InputError if frame.facts["kind"] == "InputError" else PeerError
            raise error(str(frame.facts["why"]))
        if frame.kind != kind:
            raise PeerError(f"the engine must answer {kind}, got {frame.kind!r:.60}")
        return frame

    def _gone(self) -> PeerError:
        return PeerError("the engine ended without a result: the peer is gone or its link broke")


def _private_folder(folder: Path) -> Path:
    """Return the folder for the sockets; nobody else may enter it."""
    place = Path(folder).resolve()
    if not place.is_dir() or stat.S_IMODE(place.stat().st_mode) & 0o077:
        raise InputError(
            f"the folder of a link must be one that only its owner enters, got {place}"
        )
    if len(str(place / OWN)) > _LONGEST_SOCKET:
        raise InputError(
            f"the folder of a link must be at most {_LONGEST_SOCKET} characters long with its "
            f"socket, got {place}"
        )
    return place
