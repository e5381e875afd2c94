"""Neighbours as voters: every private record near a query casts its own true labels.

No teacher is trained, and the guarantee is for the record. Who is near is decided by the record's
own row and by public numbers (the pool, its embedding, a radius taken from the pool), which is what
the allowance theorem needs (:mod:`privote.accounting.allowance`): then a record's ballots are its
own business, and its allowance bounds what they can give away.

Who is near is one rule for one pair of rows, which no other row and no block size can change. How
far a neighbour may be is, for each query, a quantile of its distances to the public pool: public
rows in, a public radius out, no private row seen. So about as many records speak in a thin region
as in a dense one.

Matrix products round differently at different places of a block, and a record's ballots must not
hang on that. For rows scaled to length at most 1, a product in single precision is within a known
margin of the true one, in whatever order it was summed (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 3.1). Pairs that far inside the bar are near, pairs that far outside are
not, and the few in between are settled by :func:`distances`: in double precision, elementwise, in
an order fixed by the number of features alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from ..errors import InputError, finite, whole
from ..votes.cube import BallotSource, SparseBlock
from .embedding import embed, fit_embedding
from .rows import Floats, check_groups, check_labels, check_rows, fraction

_BLOCK_BYTES = 1 << 27  # of the ballots expected in a block
_BALLOT_BYTES = 64  # of one ballot besides its votes, while blocks are made
_FEWEST, _MOST = 16, 1024  # queries of a block


class NeighbourBallots(BallotSource):
    """Sparse ballots of private records on public rows: a source for :func:`privote.label`.

    Parameters
    ----------
    X_private, Y_private
        Private rows (records, features), dense or sparse, and their labels (records, labels) of 1,
        0 or -1. An unknown label (-1) is a vote that is missing, and counts as the baseline.
    X_public
        Public rows (queries, features): the queries, and the pool that the radius comes from.
    share
        The share of the public rows within a query's radius; about ``share`` of the records vote on
        it.
    metric
        ``"cosine"`` or ``"euclidean"``.
    radius
        Instead of ``share``: the largest distance of a neighbour, a public number that is never
        taken from private rows.
    embedding
        Where distances are measured, see :mod:`privote.learning.embedding`:
        ``None``, ``"pca:64"``, for words ``"tfidf"`` or ``"lsa:64"``, fitted on ``X_public`` only.
    groups
        (records,): the person of each record. The person is then the voter, and says yes if any of
        their records near the query does.

    Attributes
    ----------
    queries, voters, labels
        Public rows, private records (or persons), labels.
    radius
        (queries,) how far a neighbour of each may be. Public.
    near
        The share of the voters to be expected near a query; None where the radius was given.
    voter_names
        (voters,) the persons, sorted, if ``groups`` were given; else None.

    Notes ----- The quantile is exact up to 4,096 public rows; beyond that, it is estimated from
    4,096 public rows drawn with a fixed seed.

    Ballots are computed while they are read, block by block, so memory does not grow with the
    number of queries. The size of a block depends on public sizes only.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(500, 3)), rng.random((500, 2)) < 0.2
    >>> votes = pv.NeighbourBallots(X, Y, rng.normal(size=(50, 3)), share=0.1)
    >>> votes.queries, votes.voters, votes.labels
    (50, 500, 2)
    """

    sparse = True

    def __init__(
        self,
        X_private: Any,
        Y_private: Any,
        X_public: Any,
        share: float = 0.01,
        metric: str = "cosine",
        *,
        radius: float | None = None,
        embedding: str | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> None:
        if metric not in METRICS:
            raise InputError("metric", f"must be one of {', '.join(METRICS)}", metric)
        private, public = check_rows(X_private, "X_private"), check_rows(X_public, "X_public")
        self._yes = check_labels(Y_private, private.shape[0], "Y_private") == 1
        self.voters, self.labels = self._yes.shape
        persons, self._person = check_groups(groups, self.voters)
        if persons is not None:
            self.voter_names, self.voters = tuple(persons.tolist()), len(persons)
        if private.shape[1] != public.shape[1]:
            raise InputError(
                "`X_private` and `X_public` must have the same features, got "
                f"{private.shape[1]} and {public.shape[1]}"
            )
        self.share, self.metric = fraction("share", share, "(]"), metric
        mapping = fit_embedding(embedding, public)
        pool = RowTable(embed(mapping, public))
        records = RowTable(embed(mapping, private))
        self.active_share = self.share if radius is None else None
        self.radius = _radii(pool, self.share, metric) if radius is None else _given(radius, pool)
        self._search = RadiusSearch(records, pool, metric, self.radius)
        self.queries, self._places = pool.rows, np.arange(pool.rows)

    def __repr__(self) -> str:
        return (
            f"NeighbourBallots({self.queries} queries, {self.voters} voters, {self.labels} labels, "
            f"{self.metric} radius {self.radius.min():.4g} to {self.radius.max():.4g})"
        )

    def blocks(self) -> Iterator[SparseBlock]:
        """Yield the ballots in blocks of consecutive queries."""
        # By public sizes only: how many are near is private, and blocks leave traces in a ledger.
        # How many records persons have is private, too.
        expected = max(1.0, self.share * self.voters) * (self.labels + _BALLOT_BYTES)
        step = int(min(max(_BLOCK_BYTES / expected, _FEWEST), _MOST))
        for start in range(0, self.queries, step):
            places = self._places[start : start + step]
            query, voter = self._search.find(places)
            cast = self._yes[voter]
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

    def _at(self, rows: Places) -> NeighbourBallots:
        part = copy.copy(self)
        part._places, part.queries, part.radius = self._places[rows], len(rows), self.radius[rows]
        return part


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

#: Up to so many public rows every pair counts; beyond, the pairs of so many rows drawn for all
#: times the same way. The error of a 1 % quantile is then about 2 % of its share.
POOL_ROWS = 4096

_CELLS = 1 << 20  # of double precision: 8 MiB a slab
_TIES = 1e-9  # relative: pairs exactly at the quantile are in, however their distance was rounded
_TABLE_CELLS = 1 << 22  # of a table of distances between public rows
_BLOCK_CELLS = 1 << 21  # products held at once: 8 MiB
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

    def __init__(self, rows: Any) -> None:
        self._table = rows
        self.rows, self.features = rows.shape

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
        whole = part.toarray() if issparse(part) else part
        return np.asarray(whole, dtype=np.float64)


def public_sample(rows: int) -> Places:
    """Return the places of the public rows that stand for the pool: all, or ``POOL_ROWS``."""
    if rows <= POOL_ROWS:
        return np.arange(rows)
    drawn = np.random.Generator(np.random.PCG64(0)).choice(rows, POOL_ROWS, replace=False)
    return np.sort(drawn.astype(np.int64))


def _given(radius: Any, public: RowTable) -> Floats:
    """Return a radius that was given, for every query."""
    number = finite("radius", radius)
    if number < 0:
        raise InputError("radius", "must not be negative", radius)
    return np.full(public.rows, number)


def _radii(public: RowTable, share: float, metric: str) -> Floats:
    """Return for each row of the pool the quantile of its distances to the rest of it: (rows,)."""
    if public.rows < 2:
        rule = "must have at least 2 rows: the radius is a quantile of distances"
        raise InputError("X_public", rule)
    sample = public_sample(public.rows)
    anchor = _anchor(public, sample, metric)
    place = np.full(public.rows, -1)
    place[sample] = np.arange(len(sample))
    found = np.empty(public.rows)
    for start in range(0, public.rows, step := max(1, _TABLE_CELLS // len(sample))):
        rows = np.arange(start, min(start + step, public.rows))
        away = _table(_anchor(public, rows, metric), anchor, metric)
        own = place[rows] >= 0  # a row is not its own neighbour
        away[own, place[rows[own]]] = np.inf
        found[rows[own]] = _quantile(away[own], share, len(sample) - 1)
        found[rows[~own]] = _quantile(away[~own], share, len(sample))
    return np.asarray(found * (1 + _TIES) + _TIES * found.max())


def _quantile(away: Floats, share: float, count: int) -> Floats:
    """Return in each row the distance within which a share of ``count`` entries lies."""
    last = min(max(math.ceil(share * count), 1), count) - 1
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


class RadiusSearch:
    """Finds all private rows within a radius of public ones.

    Parameters
    ----------
    private, public
        Rows in the same space. Only ``public`` shapes it: its mean and its extent.
    metric
        ``"cosine"`` or ``"euclidean"``.
    radii
        (public rows,) how far a neighbour of each may be.
    """

    def __init__(self, private: RowTable, public: RowTable, metric: str, radii: Floats) -> None:
        self._private, self._public, self._metric = private, public, metric
        self._radii = radii
        self._centre, self._extent = np.zeros(public.features), 1.0
        if metric == "euclidean":  # the mean at the origin, and whoever may be near within length 1
            slabs = public.slabs()
            self._centre = sum(
                (public.slab(*slab).sum(axis=0) / public.rows for slab in slabs),
                start=self._centre,
            )
            far = max(float(_squares(public.slab(*slab) - self._centre).max()) for slab in slabs)
            self._extent = (np.sqrt(far) + float(radii.max())) * (1 + 1e-6) or 1.0
        columns = private.features + (metric == "euclidean")
        size = 1.0 if metric == "cosine" else 1.5  # of a score's terms together, at the most
        steps = (columns + 16) * _ROUNDING
        self._margin = 1.01 * size * steps / (1 - steps) if steps < 1 else np.inf

    def _factors(self, rows: Floats) -> Singles:
        """Return private rows as they are multiplied: (rows, columns).

        Euclidean: x q - x x / 2 is at least (q q - r r) / 2 where q is at most r from x.
        """
        if self._metric == "cosine":
            return unit(rows).astype(np.float32)
        with np.errstate(over="ignore"):  # too large to square is too far, too
            scaled = (rows - self._centre) / self._extent
            half = _squares(scaled) / 2
        far = ~(half <= 0.5)
        scaled[far] = 0.0
        score = np.where(far, _NEVER, -half)
        return np.asarray(np.concatenate([scaled, score[:, None]], axis=1), np.float32)

    def _questions(self, rows: Floats, radii: Floats) -> tuple[Singles, Floats]:
        """Return public rows as they are multiplied, and the scores from which on one is near."""
        if self._metric == "cosine":
            return unit(rows).astype(np.float32), 1.0 - np.minimum(radii, 3.0)  # none is above 2
        scaled = (rows - self._centre) / self._extent
        factors = np.concatenate([scaled, np.ones((len(rows), 1))], axis=1).astype(np.float32)
        return factors, (_squares(scaled) - (radii / self._extent) ** 2) / 2

    def find(self, places: Places) -> tuple[Places, Places]:
        """Return all pairs of some public rows, by query and then by record: (pairs,) each.

        Queries are numbered from 0 in the order they are given.
        """
        rows, radii = self._public.take(places), self._radii[places]
        factors, bars = self._questions(rows, radii)
        low = (bars - self._margin).astype(np.float32)[:, None]
        step, found = max(64, _BLOCK_CELLS // max(1, len(places))), []
        for start in range(0, self._private.rows, step):
            slab = self._private.slab(start, min(start + step, self._private.rows))
            scores = factors @ self._factors(slab).T
            place = np.flatnonzero(scores >= low)
            query, record = np.divmod(place, len(slab))
            inside = scores.reshape(-1)[place] >= (bars + self._margin)[query]
            unsure = np.flatnonzero(~inside)
            some = max(1, _UNSURE_CELLS // self._private.features)
            for first in range(0, len(unsure), some):
                part = unsure[first : first + some]
                away = distances(slab[record[part]], rows[query[part]], self._metric)
                inside[part] = away <= radii[query[part]]
            found.append((query[inside], record[inside] + start))
        query, record = (np.concatenate(side) for side in zip(*found, strict=True))
        order = np.argsort(query, kind="stable")
        return query[order], record[order]


def _squares(rows: Floats) -> Floats:
    return fixed_sum(rows * rows)
