"""What every program is: public sizes, inputs of two sides, outputs for one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import InputError, whole
from ..messages import IntArray

Array = Any  # of numpy or jax.numpy
Shapes = dict[str, tuple[int, ...]]

QUERIER, PEER = "querier", "peer"
SIDES = (QUERIER, PEER)

HEAVIEST = 1 << 40  # of what a yes counts, and of an allowance: sums stay within 64 bits
_LARGEST = 1 << 20  # of any size: what a peer announces must not exhaust memory


@dataclass(frozen=True, kw_only=True)
class Program(ABC):
    """A public computation between a querier and a peer; all its fields are public.

    Parameters
    ----------
    rows
        How many queries it takes.
    """

    name: ClassVar[str]
    #: What more rows than ``most_rows`` would do.
    beyond: ClassVar[str] = "would exhaust memory"

    rows: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if str(field.type) == "bool":
                if not isinstance(value, bool):
                    raise InputError(field.name, "must be True or False", value)
            elif str(field.type) == "int" or (
                str(field.type) == "int | None" and value is not None
            ):
                whole(field.name, value, most=HEAVIEST if field.name == "grid" else _LARGEST)
        most = self.most_rows
        if self.rows > most:
            raise InputError(
                "rows", f"must be at most {most} for these sizes: more {self.beyond}", self.rows
            )

    @property
    @abstractmethod
    def most_rows(self) -> int:
        """How many rows one program of these sizes may have."""

    @abstractmethod
    def inputs(self, side: str) -> Shapes:
        """Return the shapes of the inputs of "querier" or "peer"."""

    @abstractmethod
    def outputs(self) -> Shapes:
        """Return the shapes of what the querier gets; the peer gets nothing."""

    @abstractmethod
    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs for the joined inputs; ``xp`` is numpy or jax.numpy."""

    def padded(self) -> Self:
        """Return the program with as many rows as the secure engine needs to run it safely."""
        return self

    def split(self, queries: int) -> list[Self]:
        """Return such programs for a batch of queries, one after the other."""
        full, rest = divmod(queries, self.most_rows)
        rows = [self.most_rows] * full + ([rest] if rest else [])
        return [replace(self, rows=each) for each in rows]

    def parameters(self) -> dict[str, Any]:
        """Return the fields; :func:`program_of` makes the program again from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def joined(self, querier: Mapping[str, Array], peer: Mapping[str, Array]) -> dict[str, Array]:
        """Return the values to compute on: a name that both sides have is the sum of its parts."""
        both = {**querier, **peer}
        for name in set(self.inputs(QUERIER)) & set(self.inputs(PEER)):
            both[name] = querier[name] + peer[name]
        return both

    def in_clear(
        self, querier: Mapping[str, IntArray], peer: Mapping[str, IntArray]
    ) -> dict[str, IntArray]:
        """Return the outputs for the checked inputs of both sides, computed by numpy."""
        outputs = self.compute(np, self.joined(querier, peer))
        return {name: np.asarray(value, np.int64) for name, value in outputs.items()}

    def checked(
        self, side: str, given: Mapping[str, Any], carried: Mapping[str, IntArray] | None = None
    ) -> dict[str, IntArray]:
        """Return a side's inputs: exactly the wanted names, int64, of the wanted shapes.

        The engine itself would take anything. What is left out is taken from ``carried``, the
        querier's outputs of the program before.
        """
        wanted = self.inputs(side)
        strange = sorted(set(given) - set(wanted))
        if strange:
            raise InputError(
                f"inputs of {self.name} ({side}) must be {sorted(wanted)}, got {strange}"
            )
        values = {}
        for name, shape in wanted.items():
            value = given.get(name, (carried or {}).get(name))
            what = f"input {name} of {self.name} ({side})"
            if value is None:
                raise InputError(f"{what} must be given, got nothing")
            if not isinstance(value, np.ndarray) or value.dtype != np.int64:
                kind = getattr(value, "dtype", type(value).__name__)
                raise InputError(f"{what} must be an array of int64, got {kind}")
            if value.shape != shape:
                raise InputError(f"{what} must have the shape {shape}, got {value.shape}")
            values[name] = np.ascontiguousarray(value).reshape(shape)
        return values

    def _put(self, name: str, shape: tuple[int, ...], most: int) -> None:
        """Check a table of whole numbers from 0 to ``most``, and keep it as tuples."""
        value = getattr(self, name)
        if value is not None:
            object.__setattr__(self, name, _table(name, value, shape, most))


def _table(name: str, value: Any, shape: tuple[int, ...], most: int) -> Any:
    if not shape:
        return whole(name, value, 0, most)
    if not isinstance(value, list | tuple) or len(value) != shape[0]:
        raise InputError(name, f"must be a table of {shape[0]}", value)
    return tuple(_table(name, one, shape[1:], most) for one in value)
