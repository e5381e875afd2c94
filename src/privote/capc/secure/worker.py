"""The process of one session of the secure engine.

The engine ends its process by C's ``exit`` when its connection breaks, so every session has a
process of its own, started by :mod:`privote.capc.secure.cheetah`. It gets its job over a pipe
that only the two share, and says what it found there; whatever the engine prints goes elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import secrets
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, PeerError, PrivoteError
from ..programs import PEER, QUERIER, SIDES, IntArray, Program, program_of
from .base import OTHER, OWN
from .cheetah import Ended, Frame, receive, send
from .compiled import VERSION, Compiled, compile_program, digest, link_description, runtime_config

_ARITHMETIC = "cheetah.AShr<FM64>"
_PRIVATE = ("Priv2k<FM64,0>", "Priv2k<FM64,1>")  # by the rank of the owner
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


def main(descriptor: int) -> None:
    """Do the one job that arrives, then wait to be ended."""
    _end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold rows and masks
    wire = Connection(descriptor)
    try:
        work(wire, receive(wire))
        receive(wire)  # until the other end closes: the peer may still need this process
    except Ended:
        pass
    except PrivoteError as error:
        _report(wire, type(error).__name__, str(error))
    except Exception as error:
        _report(wire, "PeerError", f"the engine failed: {str(error).splitlines()[:1]}")
    finally:
        os._exit(0)  # the engine's own teardown waits for a peer that may be gone


def work(wire: Connection, job: Frame) -> None:
    """Compile, let the other side's digest be compared, run program after program."""
    side = str(job.facts["side"])
    programs = [program_of(name, parameters) for name, parameters in job.facts["programs"]]
    import spu

    if spu.__version__ != VERSION:
        raise InputError(f"spu must be version {VERSION}, got {spu.__version__}")
    config = runtime_config()
    ready: dict[Program, Compiled] = {}
    for program in programs:
        form = program.padded()
        if form not in ready:
            ready[form] = compile_program(form)
    session = [ready[program.padded()] for program in programs]
    send(wire, Frame("compiled", {"digest": digest(session, config)}))
    if receive(wire).kind != "go":
        return
    folder = Path(job.facts["folder"])
    runner = Runner(side, config, folder, float(job.facts["patience"]))
    carried: dict[str, IntArray] | None = None
    for program, given in zip(programs, job.arrays, strict=True):
        inputs = program.checked(side, given, carried)
        outputs = runner.run(ready[program.padded()], _padded(program, side, inputs))
        if outputs is not None:
            carried = {
                name: np.ascontiguousarray(outputs[name][tuple(slice(size) for size in shape)])
                for name, shape in program.outputs().items()
            }
        send(wire, Frame("done", {}, [carried or {}]))


class Runner:
    """One connection and one runtime, for program after program."""

    def __init__(self, side: str, config: Any, folder: Path, patience: float) -> None:
        import spu
        from spu import libspu

        self.side, self.rank = side, SIDES.index(side)
        description = link_description(str(folder / OWN), str(folder / OTHER), self.rank, patience)
        self._connection = libspu.link.create_brpc(description, self.rank)
        self._runtime = spu.Runtime(self._connection, config)
        self._io = spu.Io(2, config)

    def run(self, compiled: Compiled, inputs: dict[str, IntArray]) -> dict[str, IntArray] | None:
        """Run one program; the querier gets its outputs, the peer None."""
        program, runtime = compiled.program, self._runtime
        for owner, side in enumerate(SIDES):
            for name, shape in program.inputs(side).items():
                value = inputs[name] if side == self.side else np.zeros(shape, np.int64)
                runtime.set_var(Compiled.variable(side, name), self._own(value, shape, owner))
        runtime.run(compiled.executable)
        outputs = {}
        for name, shape in program.outputs().items():
            opened = self._opened(runtime.get_var(Compiled.result(name)), shape)
            if opened is not None:
                outputs[name] = opened
        for variable in (*compiled.executable.input_names, *compiled.executable.output_names):
            runtime.del_var(variable)
        return outputs if self.side == QUERIER else None

    def _own(self, value: IntArray, shape: tuple[int, ...], owner: int) -> Any:
        """Return this side's share of an input that its owner keeps: nothing is sent.

        The engine takes whatever it is given: dtype, shape and storage are checked here.
        """
        from spu import libspu

        if value.dtype != np.int64 or value.shape != shape:
            raise InputError(f"an input must be int64 of shape {shape}, got {value.shape}")
        share = self._io.make_shares(value, libspu.Visibility.VIS_SECRET, owner)[self.rank]
        meta = _meta(share)
        wanted = (libspu.DataType.DT_I64, libspu.Visibility.VIS_PRIVATE, list(shape))
        found = (meta.data_type, meta.visibility, list(meta.shape.dims))
        if found != wanted or meta.storage_type != _PRIVATE[owner]:
            raise InputError(f"an input must stay with its owner {owner}, got {meta}")
        return share

    def _opened(self, share: Any, shape: tuple[int, ...]) -> IntArray | None:
        """Send the peer's share of an output to the querier, who alone puts them together."""
        from spu import libspu

        meta = _meta(share)
        wanted = (libspu.DataType.DT_I64, libspu.Visibility.VIS_SECRET, list(shape))
        if (meta.data_type, meta.visibility, list(meta.shape.dims)) != wanted:
            raise InputError(f"an output must be a secret int64 of shape {shape}, got {meta}")
        if meta.storage_type != _ARITHMETIC:
            raise InputError(f"an output must be an arithmetic share, got {meta.storage_type}")
        if self.side == PEER:
            self._connection.send(SIDES.index(QUERIER), _share_bytes(share))
            return None
        theirs = _share_like(share, self._connection.recv(SIDES.index(PEER)))
        value = self._io.reconstruct([share, theirs])
        if value.dtype != np.int64 or value.shape != shape:
            raise PeerError(f"an output must be int64 of shape {shape}, got {value.shape}")
        return np.asarray(value)


def _meta(share: Any) -> Any:
    from spu import libspu

    meta = libspu.ValueMeta()
    meta.ParseFromString(share.meta)
    return meta


def _share_bytes(share: Any) -> bytes:
    """Return a share as bytes: sizes first, then what it is made of."""
    parts = [bytes(share.meta), *(bytes(chunk) for chunk in share.share_chunks)]
    head = json.dumps([len(part) for part in parts]).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


def _share_like(own: Any, data: bytes) -> Any:
    """Return the peer's share; its form must be that of the querier's own."""
    from spu import libspu

    mine = _share_bytes(own)
    start = 4 + int.from_bytes(mine[:4], "little")
    start += len(own.meta)
    if len(data) != len(mine) or data[:start] != mine[:start]:
        raise PeerError("the peer's share of an output has another form than the querier's")
    share = libspu.Share()
    share.meta = own.meta
    chunks = []
    for chunk in own.share_chunks:
        chunks.append(data[start : start + len(chunk)])
        start += len(chunk)
    share.share_chunks = chunks
    return share


def _padded(program: Program, side: str, inputs: dict[str, IntArray]) -> dict[str, IntArray]:
    """Return inputs for the rows the engine runs: zeros from the querier, random from the peer.

    Random, because a mask of zeros would open the ballot of the querier's empty row.
    """
    padded = {}
    for name, shape in program.padded().inputs(side).items():
        value = inputs[name]
        if value.shape != shape:
            size = int(np.prod(shape))
            fill = bytes(8 * size) if side == QUERIER else secrets.token_bytes(8 * size)
            whole = np.frombuffer(fill, np.int64).reshape(shape).copy()
            whole[tuple(slice(length) for length in value.shape)] = value
            value = whole
        padded[name] = value
    return padded


def _report(wire: Connection, kind: str, why: str) -> None:
    with contextlib.suppress(Ended):
        send(wire, Frame("failed", {"kind": kind, "why": why}))


def _end_with_parent() -> None:
    """Ask Linux to end this process with the thread that started it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
