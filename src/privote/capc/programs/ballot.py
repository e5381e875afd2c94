"""A site's ballots, and how many ciphertexts the secure engine answers its matrix products with.

The engine (SPU 0.9.5, CHEETAH, 64-bit ring) computes a product (rows, inner) x (inner, outputs) of
two private matrices on polynomials of 8192 coefficients. It cuts the product into blocks by a cost
model of its own, and returns one or several ciphertexts. Several of them are re-randomised with
the *same* encryption of zero, so that whoever receives them can subtract it away and learns of the
other's matrix: only products answered with a single ciphertext may be run.

Keeping rows x outputs within one polynomial is not enough. Where the engine needs no packing it
plans the blocks again without, counts their responses as if they were packed, and may choose two:
so happens for 5 rows of 294 features and 6 labels. :func:`responses` follows its plan exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import InputError
from .base import HEAVIEST, QUERIER, Array, Program, Shapes

SLOTS = 8192  # coefficients of one polynomial
_BANDWIDTH, _PACKING, _PRODUCT = 1000.0, 1.0, 0.1  # what the engine counts a ciphertext, ... for


@dataclass(frozen=True, kw_only=True)
class BallotProgram(Program):
    """A site's ballots on the querier's rows, hidden from both by the site's mask.

    Parameters
    ----------
    rows, features, labels
        Sizes; ``rows`` is at most ``most_rows``.
    hidden
        None for a linear model, or the units of its one hidden ReLU layer.
    weights
        None: a ballot cell is 0 or 1. Otherwise (labels + 1) integers: what a yes counts by the
        number of yeses of its ballot (tau voting).

    Notes
    -----
    Querier: x (rows, features). Peer: weights (features, labels) and bias (labels,), or with
    ``hidden`` weights1 (features, hidden), bias1, weights2 (hidden, labels), bias2; and mask
    (rows, labels), fresh and uniform. Output: share (rows, labels) = ballot - mask. A score of
    exactly 0 is a yes.
    """

    name: ClassVar[str] = "ballot"
    beyond: ClassVar[str] = "would be answered in more than one ciphertext, which leaks"

    features: int
    labels: int
    hidden: int | None = None
    weights: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._put("weights", (self.labels + 1,), HEAVIEST)

    @property
    def most_rows(self) -> int:
        """The largest power of two for which one ciphertext answers each product.

        With more of them the engine would use one encryption of zero several times, and their
        differences would tell the rows (see the head of this module).
        """
        return single_response_rows(self._products())

    def _products(self) -> tuple[tuple[int, int], ...]:
        """Return (inner, outputs) of each matrix product."""
        if self.hidden is None:
            return ((self.features, self.labels),)
        return (self.features, self.hidden), (self.hidden, self.labels)

    def inputs(self, side: str) -> Shapes:
        """Return the shapes of a side's inputs."""
        if side == QUERIER:
            return {"x": (self.rows, self.features)}
        mask = {"mask": (self.rows, self.labels)}
        if self.hidden is None:
            return {"weights": (self.features, self.labels), "bias": (self.labels,), **mask}
        return {
            "weights1": (self.features, self.hidden),
            "bias1": (self.hidden,),
            "weights2": (self.hidden, self.labels),
            "bias2": (self.labels,),
            **mask,
        }

    def padded(self) -> Self:
        """Return the program the engine runs: as many rows as give one response ciphertext."""
        most, rows, step = self.most_rows, self.rows, 1
        # Each look takes a while, and safe numbers may be hundreds apart: longer steps each time.
        while not all(single_response(rows, *product) for product in self._products()):
            rows, step = min(rows + step, most), 2 * step
        return replace(self, rows=rows)

    def outputs(self) -> Shapes:
        """Return the shape of the querier's share."""
        return {"share": (self.rows, self.labels)}

    def compute(self, xp: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the share: ballot - mask, modulo 2^64."""
        if self.hidden is None:
            score = values["x"] @ values["weights"] + values["bias"]
        else:
            inner = values["x"] @ values["weights1"] + values["bias1"]
            active = xp.where(inner >= 0, inner, 0)
            score = active @ values["weights2"] + values["bias2"]
        yes = score >= 0
        votes = xp.where(yes, 1, 0)
        if self.weights is None:
            return {"share": votes - values["mask"]}
        # By a comparison with every count: a look-up at a secret place is far slower.
        count = votes.sum(axis=1)
        table = np.array(self.weights, np.int64)
        places = np.arange(self.labels + 1, dtype=np.int64)
        weight = xp.where(count[:, None] == places, table, 0).sum(axis=1)
        return {"share": xp.where(yes, weight[:, None], 0) - values["mask"]}


@lru_cache(maxsize=4096)
def responses(rows: int, inner: int, outputs: int) -> int:
    """Return how many ciphertexts answer the product (rows, inner) x (inner, outputs)."""
    block = _block(rows, inner, outputs, packed=True)
    answers = _up(rows, block[0]) * _up(outputs, block[2])
    if answers > 1:
        # Packed by interleaving polynomials, or, if that is dearer, coefficient by coefficient.
        interleaved = block[1] < rows * outputs
        return _up(answers, block[1]) if interleaved else _up(rows * outputs, SLOTS)
    block = _block(rows, inner, outputs, packed=False)
    return _up(rows, block[0]) * _up(outputs, block[2])


def single_response(rows: int, inner: int, outputs: int) -> bool:
    """Say whether a product is safe to run: a single ciphertext answers it."""
    return rows * outputs <= SLOTS and responses(rows, inner, outputs) == 1


@lru_cache(maxsize=4096)
def single_response_rows(products: tuple[tuple[int, int], ...]) -> int:
    """Return the largest power of two of rows that is safe for all products (inner, outputs)."""
    widest = max(outputs for _, outputs in products)
    rows = 1 << (SLOTS // widest).bit_length() >> 1
    while rows:
        if all(single_response(rows, *product) for product in products):
            return rows
        rows //= 2
    raise InputError(f"labels and hidden units must fit one ciphertext ({SLOTS}), got {widest}")


def _block(rows: int, inner: int, outputs: int, *, packed: bool) -> tuple[int, int, int]:
    """Return the cheapest block (rows, inner, outputs) by the engine's own reckoning.

    Of equally cheap ones it takes the one it tries last: longer in rows, then in inner.
    """
    best, least = (0, 0, 0), np.inf
    for high in range(1, min(SLOTS, rows) + 1):
        most = min(inner, SLOTS // high)
        if packed:
            deep = 2 ** np.arange(most.bit_length(), dtype=np.int64)
        else:
            deep = np.arange(1, most + 1, dtype=np.int64)
        wide = np.minimum(outputs, SLOTS // high // deep)
        down, across, through = _up(rows, high), -(-outputs // wide), -(-inner // deep)
        ciphertexts = np.minimum(down, across) * through - (-(down * across) // deep)
        packing = _up(rows * outputs, SLOTS) * deep if packed else 0
        cost = ciphertexts * _BANDWIDTH + packing * _PACKING + down * across * through * _PRODUCT
        at = len(cost) - 1 - int(np.argmin(cost[::-1]))
        if cost[at] <= least:
            least, best = float(cost[at]), (high, int(deep[at]), int(wide[at]))
    return best


def _up(number: int, by: int) -> int:
    return -(-number // by)
