"""The engine of two-party computations: SPU's CHEETAH, semi-honest, without a third party.

Each session runs in a process of its own (:mod:`privote.capc.cheetah`), which speaks only over unix
sockets in a folder that nobody else may enter. Both sides compile the programs themselves and
compare digests before anything is run. What carries the bytes is a
:class:`privote.capc.network.Link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import InputError, PeerError, missing_extra, positive
from .programs import PEER, QUERIER, IntArray, Program

if TYPE_CHECKING:
    from .network import Link

Inputs = Sequence[Mapping[str, IntArray]]
Outputs = list[dict[str, IntArray]]

OWN, OTHER = "self.sock", "peer.sock"


_FAREWELL = 5.0  # seconds for the peer to say that it is done too
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

    async def run(
        self,
        programs: Sequence[Program],
        side: str,
        inputs: Inputs,
        channel: Link,
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
            rule = f"must be one mapping for each of at least one program, of {len(programs)}"
            raise InputError("inputs", rule, len(inputs))
        seconds = positive("deadline", deadline)
        _check(programs, side, inputs)
        try:
            async with asyncio.timeout(seconds):
                work = self._computed(programs, side, inputs, channel, seconds)
                outputs = await channel.guard(work)
        except TimeoutError:
            raise PeerError(f"the computation did not finish within {seconds:g} s") from None
        return outputs if side == QUERIER else None

    async def _computed(
        self, programs: Sequence[Program], side: str, inputs: Inputs, channel: Link, seconds: float
    ) -> Outputs:
        async with channel.sockets() as folder, _worker() as worker:
            facts = {
                "side": side,
                "programs": [[program.name, program.parameters()] for program in programs],
                "folder": str(folder),
                "timeout": seconds,
            }
            await worker.send(Frame("job", facts, [dict(one) for one in inputs]))
            compiled = await worker.receive("compiled")
            await _agree(channel, bytes.fromhex(compiled.facts["digest"]))
            await worker.send(Frame("go"))
            outputs = [(await worker.receive("done")).arrays[0] for _ in programs]
            # The peer's process must live until the querier has everything.
            farewell = channel.exchange(b"done")
            if side == PEER:
                await farewell
            else:
                with contextlib.suppress(PeerError, TimeoutError):
                    await asyncio.wait_for(farewell, _FAREWELL)
            return outputs


class ClearEngine(SecureEngine):
    """Hides nothing: the peer sends its inputs to the querier, who computes alone in numpy."""

    name = "clear"

    def __init__(self) -> None:
        pass

    async def _computed(
        self, programs: Sequence[Program], side: str, inputs: Inputs, channel: Link, seconds: float
    ) -> Outputs:
        await _agree(channel, repr(list(programs)).encode())
        if side == PEER:
            await channel.exchange(packed(Frame("inputs", {}, [dict(one) for one in inputs])))
            return []
        theirs, outputs = unpacked(await channel.exchange(b"")).arrays, Outputs()
        for program, own, other in zip(programs, inputs, theirs, strict=True):
            querier = program.checked(QUERIER, own, outputs[-1] if outputs else None)
            outputs.append(program.in_clear(querier, program.checked(PEER, other)))
        return outputs


def _check(programs: Sequence[Program], side: str, inputs: Inputs) -> None:
    """Check all inputs before anything is sent; outputs that are carried on count as present."""
    carried = None
    for program, values in zip(programs, inputs, strict=True):
        program.checked(side, values, carried)
        shapes = program.outputs() if side == QUERIER else {}
        carried = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


async def _agree(channel: Link, digest: bytes) -> None:
    """Compare a digest of all that must be the same on both sides, before anything is run."""
    if await channel.exchange(digest) != digest:
        raise PeerError("the peer runs another program, engine or version; nothing was computed")


class _Worker:
    """The process of one session, as the one that started it sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, frame: Frame) -> None:
        """Send the process a message."""
        data = packed(frame)
        try:
            self._writer.write(len(data).to_bytes(8, "big") + data)
            await self._writer.drain()
        except OSError:
            raise self._gone() from None

    async def receive(self, kind: str) -> Frame:
        """Return the next message, which must be of that kind."""
        try:
            size = int.from_bytes(await self._reader.readexactly(8), "big")
            frame = unpacked(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            raise self._gone() from None
        if frame.kind == "failed":
            error = InputError if frame.facts["kind"] == "InputError" else PeerError
            raise error(str(frame.facts["why"]))
        if frame.kind != kind:
            raise PeerError(f"the engine must answer {kind}, got {frame.kind!r:.60}")
        return frame

    def _gone(self) -> PeerError:
        return PeerError("the engine ended without a result: the peer is gone or its channel broke")


@contextlib.asynccontextmanager
async def _worker() -> AsyncIterator[_Worker]:
    """Start the process of one session; it is ended in all cases."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment.update(
        JAX_ENABLE_X64="1",
        JAX_PLATFORMS="cpu",
        PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
    )
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as log:
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "privote.capc.cheetah", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                yield _Worker(reader, writer)
            finally:
                writer.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


# -- messages between an engine's process and the one that started it -----------------------------


class Frame(msgspec.Struct, frozen=True):
    """One message: what it is, what goes with it, and arrays by name, for each program."""

    kind: str
    facts: dict[str, Any] = {}
    arrays: Sequence[dict[str, IntArray]] = ()


def packed(frame: Frame) -> bytes:
    """Return a message as bytes; its arrays are of int64."""
    return msgspec.msgpack.encode(frame, enc_hook=lambda a: (a.shape, a.astype("<i8").tobytes()))


def unpacked(data: bytes) -> Frame:
    """Return the message in these bytes."""
    return msgspec.msgpack.decode(data, type=Frame, dec_hook=_array)


def _array(_: Any, parts: Any) -> IntArray:
    shape, data = msgspec.convert(parts, tuple[tuple[int, ...], bytes])
    return np.frombuffer(data, "<i8").astype(np.int64).reshape(shape)
