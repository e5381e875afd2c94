"""Neighbours as voters: every private record near a query casts its own true labels.

No teacher is trained, and the guarantee is for the record. Who is near is decided by the record's
own row and by public numbers (the pool, its embedding, a radius taken from the pool), which is what
the allowance theorem needs (:mod:`privote.accounting.allowance`): then a record's ballots are its
own business, and its allowance bounds what they can give away.

Who is near is one rule for one pair of rows, which no other row and no block size can change. How
far a neighbour may be is a quantile of distances within the public pool: public rows in, a public
radius out, no private row seen.

Matrix products round differently at different places of a block, and a record's ballots must not
hang on that. For rows scaled to length at most 1, a product in single precision is within a known
margin of the true one, in whatever order it was summed (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1). Pairs that far inside the bar are near, pairs that far outside are
not, and the few in between are settled by :func:`distances`: in double precision, elementwise, in
an order fixed by the number of features alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csr_array, issparse
from threadpoolctl import threadpool_info, threadpool_limits

from ...errors import InputError, whole
from ...votes.cube import SparseBlock
from ..embedding import embed, fit_embedding
from ..rows import Floats, check_groups, check_labels

_BLOCK_BYTES = 1 << 27  # of the ballots expected in a block
_BALLOT_BYTES = 64  # of one ballot besides its votes, while blocks are made
_FEWEST, _MOST = 16, 1024  # queries of a block


@dataclass(frozen=True, kw_only=True, eq=False)
class Circles:
    """Which public rows stand for the private records near each query; public.

    Attributes
    ----------
    near
        For each radius the rows of the pool within it: (queries, rows), sparse.
    radius_of
        (labels,) which of them a label has.
    voters
        Registered voters: each public row stands for voters / rows of them.
    """

    near: tuple[sparse.csr_array, ...]
    radius_of: npt.NDArray[np.int64]
    voters: int

    @property
    def queries(self) -> int:
        """Queries of the batch."""
        return int(self.near[0].shape[0])


class NeighbourBallots:
    """Sparse ballots of private records on public rows: a source for :func:`privote.label`.

    Parameters
    ----------
    X_private, Y_private
        Private rows (records, features), dense or sparse, and their labels (records, labels) of 1,
        0 or -1. An unknown label (-1) is a vote that is missing, and counts as the baseline.
    X_public
        Public rows (queries, features): the queries, and the pool that the radius comes from.
    share
        The share of the pool within the radius; of n records about ``share * n`` speak on a query.
        One for all labels, or one per label: a record then votes on a label only within that
        label's radius, so that a rare label can be asked of many records and a common one of few.
    metric
        ``"cosine"`` or ``"euclidean"``.
    radius
        ``"pool"``: one radius, the ``share``-quantile of the distances between rows of the pool.
        ``"query"``: for each query the ``share``-quantile of its own distances to the pool. Or a
        number, which must be public. Never taken from private rows.
    embedding
        Where distances are measured, see :mod:`privote.learning.embedding`:
        ``None``, ``"pca:64"``, for words ``"tfidf"`` or ``"lsa:64"``, fitted on ``X_public`` only.
    groups
        (records,) whose each record is, where a person has several: then the person is the voter,
        and says yes to what any record of it near the query says yes to.

    Attributes
    ----------
    queries, voters, labels
        Public rows, private records (or persons), labels.
    voter_names
        (voters,) the persons, sorted, if ``groups`` were given; else None.

    Notes
    -----
    The quantile is exact up to 4,096 public rows; beyond, it is that of so many public rows, drawn
    once and for all by a fixed seed.

    Ballots are found while they are read, block by block: besides the rows (and a copy of them in
    single precision) nothing grows with the number of queries. Blocks follow public sizes only.
    """

    sparse = True
    missing = True

    def __init__(
        self,
        X_private: Any,
        Y_private: Any,
        X_public: Any,
        share: float | npt.ArrayLike = 0.01,
        metric: str = "cosine",
        *,
        radius: float | str = "pool",
        embedding: str | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> None:
        if metric not in METRICS:
            raise InputError("metric", f"must be one of {', '.join(METRICS)}", metric)
        private, public = _given(X_private), _given(X_public)
        self._yes = check_labels(Y_private, private.shape[0], "Y_private") == 1
        self.voters, self.labels = self._yes.shape
        self.voter_names, self._person = check_groups(groups, self.voters)
        if self.voter_names is not None:
            self.voters = len(self.voter_names)
        self.share, self.metric = check_share(share, self.labels), metric
        if embedding is None and private.shape[1:] != public.shape[1:]:
            raise InputError(
                "`X_private` and `X_public` must have the same features, got "
                f"{private.shape[1:]} and {public.shape[1:]}"
            )
        mapping = fit_embedding(embedding, public)
        self._pool = RowTable(embed(mapping, public), "X_public")
        self._records = RowTable(embed(mapping, private), "X_private")
        self._places: Places = np.arange(self._pool.rows)
        self.queries = self._pool.rows
        self._draw_circles(radius)

    def _draw_circles(self, radius: float | str) -> None:
        """Settle from public rows how far a neighbour may be."""
        shares, ring = np.unique(self.share, return_inverse=True)
        self._kind = radius
        self._radii = radii(self._pool, shares=shares, radius=radius, metric=self.metric)
        self._ring = np.minimum(ring.astype(np.int64), self._radii.shape[1] - 1)
        # Which labels a record within a ring votes on: (rings, labels).
        self._reaches = np.arange(self._radii.shape[1])[:, None] <= self._ring[None, :]
        self._search = RadiusSearch(self._records, self._pool, self.metric, self._radii)

    @property
    def near(self) -> Floats | None:
        """The share of the voters to be expected near a query, by label; None if nobody said."""
        return self.share if isinstance(self._kind, str) else None

    @property
    def radius(self) -> float | Floats:
        """How far a neighbour may be, public: one number, or (queries, labels) if they differ."""
        each = self._radii[self._places][:, self._ring]
        return float(each[0, 0]) if (each == each[0, 0]).all() else each

    def __repr__(self) -> str:
        each = np.atleast_1d(self.radius)
        reach = f"{each.min():.4g}" + (f" to {each.max():.4g}" if each.size > 1 else "")
        return (
            f"NeighbourBallots({self.queries} queries, {self.voters} voters, {self.labels} labels, "
            f"{self.metric} radius {reach})"
        )

    def blocks(self) -> Iterator[SparseBlock]:
        """Yield the ballots in blocks of consecutive queries."""
        # By public sizes only: how many are near is private, and blocks leave traces in a ledger.
        # How many records persons have is private, too.
        expected = max(1.0, self.share.max() * self.voters) * (self.labels + _BALLOT_BYTES)
        step = int(min(max(_BLOCK_BYTES / expected, _FEWEST), _MOST))
        for start in range(0, self.queries, step):
            places = self._places[start : start + step]
            pairs = self._search.find(places)
            cast = self._yes[pairs.record] & self._reaches[pairs.ring]
            query, voter = pairs.query, pairs.record
            if self._person is not None:
                query, voter, cast = _together(query, self._person[voter], cast)
            yield SparseBlock(
                query, voter, cast, queries=len(places), voters=self.voters, start=start
            )

    def head(self, queries: int) -> NeighbourBallots:
        """Return the first ``queries`` queries."""
        return self._at(np.arange(whole("queries", queries, 1, self.queries)))

    def take(self, rows: npt.ArrayLike) -> NeighbourBallots:
        """Return the ballots on some queries, in this order, with the radius and embedding as is.

        For batches: ``electorate.answer(votes.take(rows))``.
        """
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or not chosen.size or chosen.dtype.kind not in "iu":
            raise InputError(
                "rows", f"must be one or more integers, got {chosen.dtype} of shape {chosen.shape}"
            )
        outside = chosen[(chosen < 0) | (chosen >= self.queries)]
        if outside.size:
            raise InputError("rows", f"must lie in 0..{self.queries - 1}, got {outside[0]}")
        return self._at(chosen.astype(np.int64))

    def circles(self) -> Circles:
        """Return which public rows are near each query: public, no private row is looked at.

        For :class:`privote.learning.NeighbourStudent`, which they help to read released labels.
        """
        pairs = RadiusSearch(self._pool, self._pool, self.metric, self._radii).find(self._places)
        shape = (self.queries, self._pool.rows)
        near = []
        for ring in range(len(self._reaches)):
            within = pairs.ring <= ring
            places = (pairs.query[within], pairs.record[within])
            near.append(csr_array((np.ones(len(places[0]), np.float32), places), shape=shape))
        return Circles(near=tuple(near), radius_of=self._ring, voters=self.voters)

    def with_share(self, share: float | npt.ArrayLike) -> NeighbourBallots:
        """Return the same ballots with another share, e.g. from :func:`balanced_shares`."""
        if not isinstance(self._kind, str):
            raise InputError("share", f"has no say here: the radius was given as {self._kind!r}")
        other = copy.copy(self)
        other.share = check_share(share, self.labels)
        other._draw_circles(self._kind)
        return other

    def _at(self, rows: Places) -> NeighbourBallots:
        part = copy.copy(self)
        part._places, part.queries = self._places[rows], len(rows)
        return part


def _given(rows: Any) -> Any:
    """Return rows as something with a shape that can be sliced."""
    if issparse(rows):
        return rows.tocsr()
    return rows if hasattr(rows, "shape") and hasattr(rows, "dtype") else np.asarray(rows)


def _together(
    query: Places, voter: Places, cast: npt.NDArray[np.bool_]
) -> tuple[Places, Places, npt.NDArray[np.bool_]]:
    """Return one ballot a person and query: yes where any of its records says yes."""
    if not len(query):
        return query, voter, cast
    order = np.lexsort((voter, query))
    query, voter = query[order], voter[order]
    other = (np.diff(query, prepend=-1) != 0) | (np.diff(voter, prepend=-1) != 0)
    first = np.flatnonzero(other)
    return query[first], voter[first], np.logical_or.reduceat(cast[order], first, axis=0)


# -- who is near -----------------------------------------------------------------------------------

Places = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]

METRICS = ("cosine", "euclidean")
KINDS = ("pool", "query")

#: Up to so many public rows every pair counts; beyond, the pairs of so many rows drawn for all
#: times the same way. The error of a 1 % quantile is then about 2 % of its share.
POOL_ROWS = 4096

_CELLS = 1 << 20  # of double precision: 8 MiB a slab
_TIES = 1e-9  # relative: pairs exactly at the quantile are in, however their distance was rounded
_TABLE_CELLS = 1 << 22  # of a table of distances between public rows
_BLOCK_CELLS = 1 << 21  # products held at once by each thread: 8 MiB
_KEEP_BYTES = 1 << 31  # a single-precision copy of the private rows up to this size is kept
_UNSURE_CELLS = 1 << 20
_ROUNDING = 2.0**-24  # of single precision
_NEVER = -4.0  # a score below every bar: euclidean bars lie in [-1/2, 1/2]


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
            raise InputError(name, f"must be (rows, features), none empty, got {table.shape}")
        if table.dtype.kind not in "fiub":
            raise InputError(name, f"must be numbers, got dtype {table.dtype}")
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


def public_sample(rows: int) -> Places:
    """Return the places of the public rows that stand for the pool: all, or ``POOL_ROWS``."""
    if rows <= POOL_ROWS:
        return np.arange(rows)
    drawn = np.random.Generator(np.random.PCG64(0)).choice(rows, POOL_ROWS, replace=False)
    return np.sort(drawn.astype(np.int64))


def radii(public: RowTable, *, shares: Floats, radius: Any, metric: str) -> Floats:
    """Return the radii of every query (queries, shares); one where the radius is given.

    Parameters
    ----------
    public
        The pool; each of its rows is a query.
    shares
        Ascending, in (0, 1]: the shares of the pool's pairs (or of a query's) within the radii.
    radius
        ``"pool"``: the quantile over all pairs of the pool. ``"query"``: for each query the
        quantile of its own distances to the rest of the pool, so that about as many records speak
        in a thin region as in a dense one. Or a number.
    """
    if isinstance(radius, Real) and not isinstance(radius, bool):
        if not 0 <= float(radius) < np.inf:
            raise InputError("radius", "must be finite and not negative", radius)
        return np.full((public.rows, 1), float(radius))
    if not isinstance(radius, str) or radius not in KINDS:
        raise InputError("radius", f"must be a number or one of {', '.join(KINDS)}", radius)
    if public.rows < 2:
        raise InputError(
            "X_public", "must have 2 rows or more: the radius is a quantile of distances"
        )
    sample = public_sample(public.rows)
    if radius == "pool":
        found = np.tile(_over_pool(public, sample, shares, metric), (public.rows, 1))
    else:
        found = _by_query(public, sample, shares, metric)
    return np.asarray(found * (1 + _TIES) + _TIES * found.max(axis=0))


def check_share(share: Any, labels: int) -> Floats:
    """Return the share of every label (labels,); one for all of them, or one each."""
    given = np.asarray(share)
    if given.dtype.kind not in "fiu" or given.shape not in ((), (labels,)):
        raise InputError("share", f"must be a number or one per label ({labels})", share)
    if not ((given > 0) & (given <= 1)).all():
        raise InputError("share", "must lie in (0, 1]", share)
    return np.broadcast_to(given.astype(np.float64), (labels,))


def _over_pool(public: RowTable, sample: Places, shares: Floats, metric: str) -> Floats:
    """Return quantiles over the pairs of a sample, each pair once: (shares,)."""
    anchor = _anchor(public, sample, metric)
    found = []
    for start in range(0, len(sample), step := max(1, _TABLE_CELLS // len(sample))):
        away = _table(anchor[start : start + step], anchor, metric)
        above = np.arange(len(sample))[None, :] > np.arange(start, start + len(away))[:, None]
        found.append(away[above])
    pairs = np.concatenate(found)
    return np.asarray(_quantiles(pairs[None, :], shares, pairs.size)[0])


def _by_query(public: RowTable, sample: Places, shares: Floats, metric: str) -> Floats:
    """Return for each query quantiles of its distances to the sample, itself left out."""
    anchor = _anchor(public, sample, metric)
    place = np.full(public.rows, -1)
    place[sample] = np.arange(len(sample))
    found = np.empty((public.rows, len(shares)))
    for start in range(0, public.rows, step := max(1, _TABLE_CELLS // len(sample))):
        rows = np.arange(start, min(start + step, public.rows))
        away = _table(_anchor(public, rows, metric), anchor, metric)
        own = place[rows] >= 0
        away[own, place[rows[own]]] = np.inf
        found[rows[own]] = _quantiles(away[own], shares, len(sample) - 1)
        found[rows[~own]] = _quantiles(away[~own], shares, len(sample))
    return found


def _quantiles(away: Floats, shares: Floats, count: int) -> Floats:
    """Return in each row the distances within which shares of ``count`` entries lie."""
    last = np.clip(np.ceil(shares * count).astype(np.int64), 1, count) - 1
    return np.asarray(np.partition(away, last, axis=1)[:, last])


def _anchor(public: RowTable, places: Places, metric: str) -> Floats:
    rows = public.take(places)
    return unit(rows) if metric == "cosine" else rows - public.take(np.arange(1))


def _table(left: Floats, right: Floats, metric: str) -> Floats:
    """Return all distances (left, right); of public rows only, so rounding may be what it is."""
    if metric == "cosine":
        return np.asarray(1.0 - left @ right.T)
    square = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * left @ right.T
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


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
