"""A program compiled for the secure engine, and what must hold of it before it is run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ..layout import single_response
from ..programs import PEER, QUERIER, SIDES, Program, joined
from .settings import VERSION

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
        results = program.compute(jnp, joined(program, sides[QUERIER], sides[PEER]))
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
    check_code(_text(executable.code))
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


def _text(code: str | bytes) -> str:
    return code.decode() if isinstance(code, bytes) else code
