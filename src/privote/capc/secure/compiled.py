"""SPU as privote runs it: its one configuration, compiled programs, and what must hold of both."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..programs import PEER, QUERIER, SIDES, Program
from ..programs.ballot import single_response

VERSION = "0.9.5"  # of spu: its layout of products and its storage types were checked for this one

# Each would cost secrecy or exactness; the reason is part of the refusal.
FORBIDDEN = {
    "enable_runtime_snapshot": "writes the inputs to disk",
    "snapshot_dump_dir": "writes the inputs to disk",
    "enable_action_trace": "logs what is computed",
    "enable_pphlo_trace": "logs what is computed",
    "enable_pphlo_profile": "logs what is computed",
    "enable_hal_profile": "logs what is computed",
    "trunc_allow_msb_error": "makes results wrong at random",
    "enable_mul_lsb_error": "makes results wrong at random",
    "disable_matmul_pack": "answers a product with several ciphertexts, which leaks",
}
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
    """Return spu's RuntimeConfig, checked."""
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
    check_config(config)
    return config


def check_config(config: Any) -> None:
    """Refuse a RuntimeConfig under which the engine would not be secure, or not exact."""
    from spu import libspu

    if config.protocol != libspu.ProtocolKind.CHEETAH:
        raise InputError(f"protocol must be CHEETAH, got {config.protocol}")
    if config.field != libspu.FieldType.FM64:
        raise InputError(f"field must be FM64, got {config.field}")
    for name, why in FORBIDDEN.items():
        owner = config if hasattr(config, name) else config.cheetah_2pc_config
        if getattr(owner, name):
            raise InputError(f"{name} must be off: it {why}")
    if not config.experimental_enable_colocated_optimization:
        raise InputError("experimental_enable_colocated_optimization must be on")


def link_description(own: str, other: str, side_rank: int, patience: float) -> Any:
    """Return where the two sides listen: unix sockets only, this side on ``own``."""
    from spu import libspu

    description = libspu.link.Desc()
    description.id = "privote"
    addresses = [f"unix:{own}", f"unix:{other}"]
    for rank, name in enumerate(("querier", "peer")):
        description.add_party(name, addresses[rank ^ side_rank])
    description.recv_timeout_ms = max(1000, int(1000 * patience))
    description.http_timeout_ms = 20_000
    description.connect_retry_times = 100
    description.connect_retry_interval_ms = 100
    description.retry_opts.max_retry = 1
    description.retry_opts.retry_interval_ms = 50
    return description


@dataclass(frozen=True)
class Compiled:
    """A program ready to run: the executable and the names of its variables."""

    program: Program
    executable: Any

    @staticmethod
    def variable(side: str, name: str) -> str:
        """Return the engine's name of an input."""
        return f"{side}.{name}"

    @staticmethod
    def result(name: str) -> str:
        """Return the engine's name of an output."""
        return f"output.{name}"


def compile_program(program: Program) -> Compiled:
    """Compile a program on this machine and check the result; never run a peer's."""
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
        [Compiled.variable(side, name) for side, name in places],
        [libspu.Visibility.VIS_SECRET] * len(places),
        lambda _: [Compiled.result(name) for name in program.outputs()],
        copts=options,
    )
    shapes = [(tuple(one.shape), np.dtype(one.dtype)) for one in results]
    if shapes != [(shape, np.dtype(np.int64)) for shape in program.outputs().values()]:
        raise InputError(f"outputs of {program.name} must be int64 as declared, got {shapes}")
    check_code(executable.code.decode())
    return Compiled(program, executable)


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
    raise InputError(
        f"a product of secrets must be answered by one ciphertext, got {kind}: {types}"
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x")) if text else ()


def digest(compiled: Sequence[Compiled], config: Any) -> str:
    """Return the SHA-256 of everything that must be equal on both sides before they run."""
    total = hashlib.sha256()

    def add(data: bytes) -> None:
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)

    add(VERSION.encode())
    add(config.SerializeToString())
    for one in compiled:
        shapes = [one.program.inputs(QUERIER), one.program.inputs(PEER), one.program.outputs()]
        public = [one.program.name, one.program.parameters(), shapes]
        add(json.dumps(public, sort_keys=True).encode())
        add(one.executable.SerializeToString())
    return total.hexdigest()
