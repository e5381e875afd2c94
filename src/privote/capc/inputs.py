"""Checks of what a side gives to a program: the engine itself would take anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from .programs import PEER, IntArray, Program


def checked(
    program: Program,
    side: str,
    given: Mapping[str, Any],
    carried: Mapping[str, IntArray] | None = None,
) -> dict[str, IntArray]:
    """Return a side's inputs: exactly the wanted names, int64, of the wanted shapes.

    What is optional and left out is taken from ``carried``, the outputs of the program before, or
    is zeros (never for what must be carried).
    """
    wanted, may = program.inputs(side), program.optional(side)
    strange = sorted(set(given) - set(wanted))
    if strange:
        raise InputError(
            f"inputs of {program.name} ({side}) must be {sorted(wanted)}, got {strange}"
        )
    values = {}
    for name, shape in wanted.items():
        if name in given:
            value = given[name]
        elif name in may and carried is not None and name in carried:
            value = carried[name]
        elif name in may and side == PEER:
            value = np.zeros(shape, np.int64)
        else:
            raise InputError(f"input {name} of {program.name} ({side}) must be given, got nothing")
        values[name] = _int64(f"input {name} of {program.name} ({side})", value, shape)
    return values


def _int64(what: str, value: Any, shape: tuple[int, ...]) -> IntArray:
    if not isinstance(value, np.ndarray) or value.dtype != np.int64:
        kind = getattr(value, "dtype", type(value).__name__)
        raise InputError(what, f"must be an array of int64, got {kind}")
    if value.shape != shape:
        raise InputError(what, f"must have the shape {shape}, got {value.shape}")
    return np.ascontiguousarray(value).reshape(shape)
