"""Exact radius search in blocks: single-precision products decide what they can, and say so.

For rows scaled to length at most 1, a product in single precision is within a known margin of the
true one, in whatever order it was summed (Higham, Accuracy and Stability of Numerical Algorithms,
2002, section 3.1). Pairs that far inside the bar are near, pairs that far outside are not, and the
few in between go to :func:`privote.learning.nearness.distances`. So the answer on a pair is that of
the one exact rule, whatever the blocks and whoever else is in them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_info, threadpool_limits

from .nearness import Floats, Places, RowTable, distances, fixed_sum, unit

Singles = npt.NDArray[np.float32]

_BLOCK_CELLS = 1 << 21  # products held at once by each thread: 8 MiB
_KEEP_BYTES = 1 << 31  # a single-precision copy of the private rows up to this size is kept
_UNSURE_CELLS = 1 << 20
_ROUNDING = 2.0**-24  # of single precision
_NEVER = -4.0  # a score below every bar: euclidean bars lie in [-1/2, 1/2]


@dataclass(frozen=True)
class Pairs:
    """Who is near: (pairs,) each, ordered by query and then by record.

    ``ring`` is the place of the smallest radius that a record is within.
    """

    query: Places
    record: Places
    ring: Places


@dataclass(frozen=True)
class _Questions:
    """One side of a product: public rows as they are and as they are multiplied, radii and bars.

    Radii and bars are (queries, radii), the smallest radius first.
    """

    rows: Floats
    radii: Floats
    factors: Singles
    bars: Floats


class RadiusSearch:
    """Finds all private rows within a radius of public ones.

    Parameters
    ----------
    private, public
        Rows in the same space. Only ``public`` shapes it: its mean and its extent.
    metric
        ``"cosine"`` or ``"euclidean"``.
    radii
        (public rows, radii) how far a neighbour of each may be; in every row ascending.
    """

    def __init__(self, private: RowTable, public: RowTable, metric: str, radii: Floats) -> None:
        self._private, self._public, self._metric = private, public, metric
        self._radii = radii
        self._centre, self._reach = np.zeros(public.features), 1.0
        if metric == "euclidean":
            self._place()
        self._columns = private.features + (metric == "euclidean")
        size = 1.0 if metric == "cosine" else 1.5  # of a score's terms together, at the most
        steps = (self._columns + 16) * _ROUNDING
        self._margin = 1.01 * size * steps / (1 - steps) if steps < 1 else np.inf
        self._kept: Singles | None = None
        if private.rows * self._columns * 4 <= _KEEP_BYTES:
            kept = np.empty((private.rows, self._columns), np.float32)
            for start, stop in private.slabs():
                kept[start:stop] = self._factors(private.slab(start, stop))
            self._kept = kept

    def _place(self) -> None:
        """Put the public mean at the origin, and whoever could be near within length 1."""
        public, slabs = self._public, self._public.slabs()
        self._centre = sum(
            (public.slab(*slab).sum(axis=0) / public.rows for slab in slabs),
            start=np.zeros(public.features),
        )
        far = max(float(_squares(public.slab(*slab) - self._centre).max()) for slab in slabs)
        self._reach = (np.sqrt(far) + float(self._radii.max())) * (1 + 1e-6) or 1.0

    def _factors(self, rows: Floats) -> Singles:
        """Return private rows as they are multiplied: (rows, columns).

        Euclidean: x q - x x / 2 is at least (q q - r r) / 2 where q is at most r from x.
        """
        if self._metric == "cosine":
            return unit(rows).astype(np.float32)
        with np.errstate(over="ignore"):  # too large to square is too far, too
            scaled = (rows - self._centre) / self._reach
            half = _squares(scaled) / 2
        far = ~(half <= 0.5)
        scaled[far] = 0.0
        score = np.where(far, _NEVER, -half)
        return np.asarray(np.concatenate([scaled, score[:, None]], axis=1), np.float32)

    def _questions(self, places: Places) -> _Questions:
        rows, radii = self._public.take(places), self._radii[places]
        if self._metric == "cosine":
            bars = 1.0 - np.minimum(radii, 3.0)  # no distance is above 2
            return _Questions(rows, radii, unit(rows).astype(np.float32), bars)
        scaled = (rows - self._centre) / self._reach
        factors = np.concatenate([scaled, np.ones((len(rows), 1))], axis=1).astype(np.float32)
        bars = (_squares(scaled)[:, None] - (radii / self._reach) ** 2) / 2
        return _Questions(rows, radii, factors, bars)

    def find(self, places: Places) -> Pairs:
        """Return all pairs of some public rows, numbered from 0 in the order they are given."""
        asked = self._questions(places)
        step = max(64, _BLOCK_CELLS // max(1, len(places)))
        starts = range(0, self._private.rows, step)
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        # One product a thread: comparing and gathering then run side by side, too.
        with (
            threadpool_limits(1, user_api="blas"),
            ThreadPoolExecutor(max(blas, default=1)) as pool,
        ):
            found = list(pool.map(lambda start: self._block(start, step, asked), starts))
        query, record, ring = (
            np.concatenate([getattr(pairs, name) for pairs in found])
            for name in ("query", "record", "ring")
        )
        narrow = query.astype(np.uint16) if len(places) <= 1 << 16 else query  # sorts in one go
        order = np.argsort(narrow, kind="stable")
        return Pairs(query[order], record[order], ring[order])

    def _block(self, start: int, step: int, asked: _Questions) -> Pairs:
        """Return the pairs of one block of private rows."""
        stop = min(start + step, self._private.rows)
        factors = (
            self._factors(self._private.slab(start, stop))
            if self._kept is None
            else self._kept[start:stop]
        )
        scores = asked.factors @ factors.T
        low = (asked.bars[:, -1] - self._margin).astype(np.float32)
        place = np.flatnonzero(scores >= low[:, None])
        query, record = np.divmod(place, stop - start)
        record += start
        inside = self._within(asked, query, record, scores.reshape(-1)[place])
        keep = inside > 0
        return Pairs(query[keep], record[keep], asked.bars.shape[1] - inside[keep])

    def _within(self, asked: _Questions, query: Places, record: Places, scores: Singles) -> Places:
        """Return how many of its query's radii each pair is within: (pairs,)."""
        sure, maybe = np.zeros((2, len(query)), np.int64)
        for bar in asked.bars.T:
            sure += scores >= (bar + self._margin)[query]
            maybe += scores >= (bar - self._margin)[query]
        unsure = np.flatnonzero(sure != maybe)
        step = max(1, _UNSURE_CELLS // self._private.features)
        for start in range(0, len(unsure), step):
            part = unsure[start : start + step]
            rows, radii = asked.rows[query[part]], asked.radii[query[part]]
            away = distances(self._private.take(record[part]), rows, self._metric)
            sure[part] = (away[:, None] <= radii).sum(axis=1)
        return np.asarray(sure)


def _squares(rows: Floats) -> Floats:
    return fixed_sum(rows * rows)
