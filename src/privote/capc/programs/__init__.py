"""What two parties compute together: the ballot, the decision and the allowance.

Each program is one definition that runs on numpy (in clear) and on jax.numpy (compiled for the
secure engine). Everything is int64 and wraps modulo 2^64, so both give the same bits. A program is
public: its sizes, tables and flags are known to both sides, its inputs to their owner alone, and
its outputs go to the querier.

Selections are ``where`` on comparisons, never products: a comparison is a Boolean share, and
selecting by it costs one oblivious transfer, whereas a product of two secrets would be a
homomorphic multiplication whose response may span several ciphertexts (see the ballot's module).
Comparisons of order are with 0 only: they are the sign bit, which is exact for every int64.
"""

from collections.abc import Mapping
from typing import Any

from ..messages import IntArray
from .ballot import BallotProgram
from .base import PEER, QUERIER, SIDES, Program
from .decision import AllowanceProgram, DecisionProgram

__all__ = [
    "PEER",
    "PROGRAMS",
    "QUERIER",
    "SIDES",
    "AllowanceProgram",
    "BallotProgram",
    "DecisionProgram",
    "IntArray",
    "Program",
    "program_of",
]

PROGRAMS: dict[str, Any] = {
    kind.name: kind for kind in (BallotProgram, DecisionProgram, AllowanceProgram)
}


def program_of(name: str, parameters: Mapping[str, Any]) -> Program:
    """Make a program again from its name and its public parameters."""
    program: Program = PROGRAMS[name](**parameters)
    return program
