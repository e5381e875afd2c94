"""The engine of two-party computations: SPU's CHEETAH, semi-honest, without a third party.

SPU ends its process by C's ``exit`` when its connection breaks, so each session runs in a process
of its own: this module, run as a program (:func:`main`). It gets its job over a pipe that only the
two share, says what it found there, and speaks with the other side only over unix sockets in a
folder that nobody else may enter. Both sides compile the programs themselves and compare digests
before anything is run. What carries the bytes is a :class:`privote.capc.network.Link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import re
import resource
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import InputError, PeerError, PrivoteError, missing_extra, positive
from .programs import PEER, QUERIER, SIDES, IntArray, Program, program_of, single_response

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
            raise InputError("inputs", "must be one mapping for each program", len(inputs))
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
            error = InputError if frame.facts["input"] else PeerError
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
                *(sys.executable, "-m", "privote.capc.engine", str(theirs.fileno())),
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


# -- the process of one session: SPU as privote runs it --------------------------------------------

VERSION = "0.9.5"  # of spu: its layout of products and its storage types were checked for this one

# What a program may consist of: linear steps, comparisons, selections. Nothing here opens a value.
_ALLOWED = frozenset(
    {
        *("add", "and", "broadcast", "concatenate", "constant", "convert", "dot", "equal", "free"),
        *("iota", "less", "multiply", "negate", "not", "or", "reduce", "reshape", "select"),
        *("slice", "subtract", "transpose"),
    }
)
_OPERATION = re.compile(r"(?:=\s+|^\s*|applies\s+)([a-z_]+)\.([a-z_]+)\b", re.MULTILINE)
_SECRET = "!pphlo.secret<"
_TENSOR = re.compile(r"tensor<(?:([0-9x]+)x)?(?:!pphlo\.secret<)?i\d+>?>")


def runtime_config() -> Any:
    """Return spu's RuntimeConfig: no snapshot, trace or profile, and nothing inexact, is on."""
    from spu import libspu

    wanted = {
        "protocol": "CHEETAH",
        "field": "FM64",
        "cheetah_2pc_config": {"ot_kind": "YACL_Softspoken"},
        "experimental_enable_colocated_optimization": True,
        "experimental_disable_mmul_split": True,
    }
    config = libspu.RuntimeConfig()
    # From JSON: the Python binding of this version cannot set the kind of oblivious transfer.
    if not config.ParseFromJsonString(json.dumps(wanted)):
        raise InputError("settings", "must be what spu understands", wanted)
    return config


def link_description(folder: Path, side_rank: int, timeout: float) -> Any:
    """Return where the two sides listen: unix sockets only."""
    from spu import libspu

    description = libspu.link.Desc()
    description.id = "privote"
    for rank, name in enumerate(SIDES):
        description.add_party(name, f"unix:{folder / (OWN if rank == side_rank else OTHER)}")
    description.recv_timeout_ms = max(1000, int(1000 * timeout))
    description.http_timeout_ms = 20_000
    description.connect_retry_times = 100
    description.connect_retry_interval_ms = 100
    description.retry_opts.max_retry = 1
    description.retry_opts.retry_interval_ms = 50
    return description


def compile_program(program: Program) -> Any:
    """Compile a program on this machine and check the result; never run a peer's.

    The executable's variables are called ``SIDE.NAME`` and ``output.NAME``.
    """
    import jax
    import jax.numpy as jnp
    from spu import libspu
    from spu.utils import frontend

    if not jax.config.jax_enable_x64:  # integers would silently be cut to 32 bits
        raise InputError("JAX_ENABLE_X64 must be set before jax is imported, got 32 bits")
    places = [(side, name) for side in SIDES for name in program.inputs(side)]
    zeros = [np.zeros(program.inputs(side)[name], np.int64) for side, name in places]

    def privote(*values: Any) -> Any:
        sides: dict[str, dict[str, Any]] = {QUERIER: {}, PEER: {}}
        for (side, name), value in zip(places, values, strict=True):
            sides[side][name] = value
        results = program.compute(jnp, program.joined(sides[QUERIER], sides[PEER]))
        return tuple(results[name] for name in program.outputs())

    options = libspu.CompilerOptions()
    # It would turn Boolean shares that are used twice into arithmetic ones, and selections into
    # homomorphic products.
    options.disable_select_optimization = True
    executable, results = frontend.compile(
        frontend.Kind.JAX,
        privote,
        zeros,
        {},
        [f"{side}.{name}" for side, name in places],
        [libspu.Visibility.VIS_SECRET] * len(places),
        lambda _: [f"output.{name}" for name in program.outputs()],
        copts=options,
    )
    shapes = [(tuple(one.shape), np.dtype(one.dtype)) for one in results]
    if shapes != [(shape, np.dtype(np.int64)) for shape in program.outputs().values()]:
        raise InputError(f"outputs of {program.name} must be int64 as declared, got {shapes}")
    check_code(executable.code.decode())
    return executable


def check_code(code: str) -> None:
    """Refuse compiled code that opens a value, calls outside, or multiplies two secrets.

    Two secret matrices may be multiplied if a single ciphertext answers.
    """
    seen = {f"{family}.{name}" for family, name in _OPERATION.findall(code)}
    strange = sorted(seen - {f"pphlo.{name}" for name in _ALLOWED} - {"func.func"})
    if strange or "custom_call" in code:
        raise InputError(f"a program must have allowed operations only, got {strange}")
    for line in code.splitlines():
        if "func.func" in line and "->" in line:
            results = line.rsplit("->", 1)[1]
            if results.count("tensor<") != results.count(_SECRET):
                raise InputError(f"all results of a program must be secret, got {results.strip()}")
        found = re.search(r"pphlo\.(multiply|dot)\b.* : (.*)$", line)
        if found:
            _check_product(found.group(1), found.group(2))


def _check_product(kind: str, types: str) -> None:
    operands = types.split("->", maxsplit=1)[0]
    tensors = operands.count("tensor<")
    if operands.count(_SECRET) < tensors:
        return  # one of them is public
    shapes = [_sizes(found) for found in _TENSOR.findall(operands)]
    if kind == "dot" and len(shapes) == 2:
        (rows, inner), (_, outputs) = shapes
        if single_response(rows, inner, outputs):
            return
    raise InputError(f"a product of secrets must need one ciphertext, got {kind}: {types}")


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x")) if text else ()


def digest(compiled: Sequence[tuple[Program, Any]], config: Any) -> str:
    """Return the SHA-256 of all that must be equal on both sides: programs with executables."""
    parts: list[Any] = [VERSION, config.SerializeToString()]
    for program, executable in compiled:
        shapes = [program.inputs(QUERIER), program.inputs(PEER), program.outputs()]
        parts += [program.name, program.parameters(), shapes, executable.SerializeToString()]
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="sorted")).hexdigest()


_ARITHMETIC = "cheetah.AShr<FM64>"
_PRIVATE = ("Priv2k<FM64,0>", "Priv2k<FM64,1>")  # by the rank of the owner
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


class _Pipe:
    """The process's end of what it shares with the one that started it."""

    def __init__(self, descriptor: int) -> None:
        self._file = socket.socket(fileno=descriptor).makefile("rwb")

    def send(self, frame: Frame) -> None:
        data = packed(frame)
        self._file.write(len(data).to_bytes(8, "big") + data)
        self._file.flush()

    def receive(self) -> Frame:
        """Return the next message; EOFError if there will be none."""
        head = self._file.read(8)
        data = self._file.read(int.from_bytes(head, "big"))
        if not data:
            raise EOFError
        return unpacked(data)


def main(descriptor: int) -> None:
    """Do the one job that arrives, then wait to be ended."""
    with contextlib.suppress(OSError, AttributeError):  # to end with the thread that started it
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold rows and masks
    pipe = _Pipe(descriptor)
    with contextlib.suppress(EOFError, OSError):
        try:
            _work(pipe, pipe.receive())
            pipe.receive()  # until the other end closes: the peer may still need this process
        except (EOFError, OSError):
            raise
        except Exception as error:
            why = str(error)
            if not isinstance(error, PrivoteError):
                why = f"the engine failed: {why.splitlines()[:1]}"
            pipe.send(Frame("failed", {"input": isinstance(error, InputError), "why": why}))
    os._exit(0)  # the engine's own teardown waits for a peer that may be gone


def _work(pipe: _Pipe, job: Frame) -> None:
    """Compile, let the other side's digest be compared, run program after program."""
    side = str(job.facts["side"])
    programs = [program_of(name, parameters) for name, parameters in job.facts["programs"]]
    import spu

    if spu.__version__ != VERSION:
        raise InputError(f"spu must be version {VERSION}, got {spu.__version__}")
    config = runtime_config()
    forms = [program.padded() for program in programs]
    ready = {form: compile_program(form) for form in dict.fromkeys(forms)}
    session = [(form, ready[form]) for form in forms]
    pipe.send(Frame("compiled", {"digest": digest(session, config)}))
    if pipe.receive().kind != "go":
        return
    folder = Path(job.facts["folder"])
    runner = Runner(side, config, folder, float(job.facts["timeout"]))
    carried: dict[str, IntArray] | None = None
    for program, form, values in zip(programs, forms, job.arrays, strict=True):
        inputs = program.checked(side, values, carried)
        outputs = runner.run(form, ready[form], _padded(form, side, inputs))
        if outputs is not None:
            carried = {
                name: np.ascontiguousarray(outputs[name][tuple(slice(size) for size in shape)])
                for name, shape in program.outputs().items()
            }
        pipe.send(Frame("done", {}, [carried or {}]))


class Runner:
    """One connection and one runtime, for program after program."""

    def __init__(self, side: str, config: Any, folder: Path, timeout: float) -> None:
        import spu
        from spu import libspu

        self.side, self.rank = side, SIDES.index(side)
        description = link_description(folder, self.rank, timeout)
        self._connection = libspu.link.create_brpc(description, self.rank)
        self._runtime = spu.Runtime(self._connection, config)
        self._io = spu.Io(2, config)

    def run(
        self, program: Program, executable: Any, inputs: dict[str, IntArray]
    ) -> dict[str, IntArray] | None:
        """Run one program; the querier gets its outputs, the peer None."""
        runtime = self._runtime
        for owner, side in enumerate(SIDES):
            for name, shape in program.inputs(side).items():
                value = inputs[name] if side == self.side else np.zeros(shape, np.int64)
                runtime.set_var(f"{side}.{name}", self._own(value, shape, owner))
        runtime.run(executable)
        outputs = {}
        for name, shape in program.outputs().items():
            opened = self._opened(runtime.get_var(f"output.{name}"), shape)
            if opened is not None:
                outputs[name] = opened
        for variable in (*executable.input_names, *executable.output_names):
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
            self._connection.send(SIDES.index(QUERIER), b"".join(map(bytes, share.share_chunks)))
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


def _share_like(own: Any, data: bytes) -> Any:
    """Return the peer's share; its form must be that of the querier's own."""
    from spu import libspu

    sizes = [len(chunk) for chunk in own.share_chunks]
    if len(data) != sum(sizes):
        raise PeerError("the peer's share of an output has another form than the querier's")
    share, ends = libspu.Share(), np.cumsum(sizes)
    share.meta = own.meta
    share.share_chunks = [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    return share


def _padded(form: Program, side: str, inputs: dict[str, IntArray]) -> dict[str, IntArray]:
    """Return inputs for the rows the engine runs: zeros from the querier, random from the peer.

    Random, because a mask of zeros would open the ballot of the querier's empty row.
    """
    padded = {}
    for name, shape in form.inputs(side).items():
        value = inputs[name]
        if value.shape != shape:
            size = int(np.prod(shape))
            fill = bytes(8 * size) if side == QUERIER else secrets.token_bytes(8 * size)
            whole = np.frombuffer(fill, np.int64).reshape(shape).copy()
            whole[tuple(slice(length) for length in value.shape)] = value
            value = whole
        padded[name] = value
    return padded


if __name__ == "__main__":
    main(int(sys.argv[1]))
