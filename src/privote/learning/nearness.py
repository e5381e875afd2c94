"""Near or not: one rule for one pair of rows, which no other row and no block size can change.

Matrix products round differently at different places of a block. A record's ballots must not hang
on that, so products only sort pairs into sure and unsure (:mod:`privote.learning.search`), and what
is unsure is settled here: in double precision, elementwise, in an order fixed by the number of
features alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ..errors import InputError

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

METRICS = ("cosine", "euclidean")

_CELLS = 1 << 20  # of double precision: 8 MiB a slab


def distances(left: Floats, right: Floats, metric: str) -> Floats:
    """Return the distance of each pair of rows (pairs,): a function of the two rows alone.

    ``"cosine"``: 1 - cos, and 1 where a row is zero; ``"euclidean"``: the length of the difference.
    """
    if metric == "cosine":
        return 1.0 - fixed_sum(unit(left) * unit(right))
    difference = left - right
    return np.sqrt(fixed_sum(difference * difference))


def fixed_sum(terms: Floats) -> Floats:
    """Sum rows (rows, terms) by folding halves: the order depends on the number of terms only."""
    while terms.shape[1] > 1:
        half = (terms.shape[1] + 1) // 2
        folded = terms[:, :half].copy()
        folded[:, : terms.shape[1] - half] += terms[:, half:]
        terms = folded
    return np.asarray(terms[:, 0])


def unit(rows: Floats) -> Floats:
    """Return rows of length 1, each from itself alone; a zero row stays zero."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(largest > 0, largest, 1.0)  # squares then neither over- nor underflow
    length = np.sqrt(fixed_sum(scaled * scaled))[:, None]
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


class RowTable:
    """Checked rows (rows, features), dense or sparse, read in double precision a slab at a time."""

    def __init__(self, rows: Any, name: str) -> None:
        if sparse.issparse(rows):
            table: Any = rows.tocsr()
        else:
            table = rows if isinstance(rows, np.ndarray) else np.asarray(rows)
        if table.ndim != 2 or 0 in table.shape:
            raise InputError(f"{name} must be (rows, features), none empty, got {table.shape}")
        if table.dtype.kind not in "fiub":
            raise InputError(f"{name} must be numbers, got dtype {table.dtype}")
        self._table, self.name = table, name
        self.rows, self.features = int(table.shape[0]), int(table.shape[1])
        self._check()

    def _check(self) -> None:
        """Refuse what is not finite; the message names the place."""
        bad: Any = None
        if sparse.issparse(self._table):
            wrong = np.flatnonzero(~np.isfinite(self._table.data))[:1]
            if wrong.size:
                row = int(np.searchsorted(self._table.indptr, wrong[0], side="right")) - 1
                bad = (row, int(self._table.indices[wrong[0]]))
        elif self._table.dtype.kind == "f":
            for start, stop in self.slabs():
                wrong = np.argwhere(~np.isfinite(self._table[start:stop]))[:1]
                if wrong.size:
                    bad = (start + int(wrong[0, 0]), int(wrong[0, 1]))
                    break
        if bad is not None:
            raise InputError(
                f"{self.name}[{bad[0]}, {bad[1]}] must be finite: fill in what is missing"
            )

    def slabs(self) -> list[tuple[int, int]]:
        """Return (start, stop) of slabs of a few megabytes, by public sizes only."""
        step = max(1, _CELLS // self.features)
        return [(low, min(low + step, self.rows)) for low in range(0, self.rows, step)]

    def slab(self, start: int, stop: int) -> Floats:
        """Return consecutive rows (stop - start, features)."""
        return self._dense(self._table[start:stop])

    def take(self, places: npt.NDArray[Any]) -> Floats:
        """Return rows by their places: (places, features)."""
        return self._dense(self._table[places])

    def _dense(self, part: Any) -> Floats:
        whole = part.toarray() if sparse.issparse(part) else part
        return np.asarray(whole, dtype=np.float64)
