"""How many ciphertexts the secure engine answers a matrix product with.

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

from functools import lru_cache

import numpy as np

from ..errors import InputError

SLOTS = 8192  # coefficients of one polynomial
_BANDWIDTH, _PACKING, _PRODUCT = 1000.0, 1.0, 0.1  # what the engine counts a ciphertext, ... for


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
        place = len(cost) - 1 - int(np.argmin(cost[::-1]))
        if cost[place] <= least:
            least, best = float(cost[place]), (high, int(deep[place]), int(wide[place]))
    return best


def _up(number: int, by: int) -> int:
    return -(-number // by)
