"""Neighbours as voters: every private record near a query casts its own true labels.

No teacher is trained, and the guarantee is for the record. Who is near is decided by the record's
own row and by public numbers (the pool, its embedding, a radius taken from the pool), which is what
the allowance theorem needs (:mod:`privote.accounting.allowance`): then a record's ballots are its
own business, and its allowance bounds what they can give away.

Who is near is one rule for one pair of rows, which no other row and no block size can change. How
far a neighbour may be is, for each query, a quantile of its distances to the public pool: public
rows in, a public radius out, no private row seen. So about as many records speak in a thin region
as in a dense one.

Matrix products round by the shape of a block, and on some processors by a row's place in it, and a
record's ballots must not hang on that. So private rows are compared in blocks of one fixed, padded
shape by one thread, in double precision; one by one where places round differently. A pair at the
very radius is near, however its distance was rounded.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.metrics import pairwise_distances

from ..errors import InputError, finite, whole
from ..votes.cube import BallotSource, SparseBlock
from .embedding import embed, fit_embedding
from .rows import (
    BLOCK,
    Floats,
    check_groups,
    check_labels,
    check_rows,
    fraction,
    normalize_rows,
    padded_blocks,
    same_anywhere,
)
from .workers import one_thread

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

    Notes
    -----
    The quantile is exact up to 4,096 public rows; beyond that, it is estimated from
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
        pool, records = embed(mapping, public), embed(mapping, private)
        self.active_share = self.share if radius is None else None
        self.radius = (
            _radii(pool, self.share, metric) if radius is None else _given(radius, pool.shape[0])
        )
        self._search = RadiusSearch(records, pool, metric, self.radius)
        self.queries, self._places = pool.shape[0], np.arange(pool.shape[0])

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

METRICS = ("cosine", "euclidean")

#: Up to so many public rows every pair counts; beyond, the pairs of so many rows drawn for all
#: times the same way. The error of a 1 % quantile is then about 2 % of its share.
POOL_ROWS = 4096

_CELLS = 1 << 22  # numbers of a block of rows, and of a table of distances: 32 MiB
_TIES = 1e-9  # relative: beyond what any distance is rounded by


def _dense(rows: Any) -> Floats:
    return np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)


def _given(radius: Any, public: int) -> Floats:
    """Return a radius that was given, for every query."""
    if finite("radius", radius) < 0:
        raise InputError("radius", "must not be negative", radius)
    return np.full(public, float(radius))


def _radii(public: Any, share: float, metric: str) -> Floats:
    """Return for each row of the pool the quantile of its distances to the rest of it: (rows,)."""
    rows = public.shape[0]
    if rows < 2:
        rule = "must have at least 2 rows: the radius is a quantile of distances"
        raise InputError("X_public", rule)
    sample = np.arange(rows)
    if rows > POOL_ROWS:
        sample = np.sort(np.random.default_rng(0).choice(rows, POOL_ROWS, replace=False))
    anchor, radii = _dense(public[sample]), np.empty(rows)
    step = max(1, _CELLS // len(sample))
    for start in range(0, rows, step):
        span = np.arange(start, min(start + step, rows))
        away = pairwise_distances(_dense(public[span]), anchor, metric=metric)
        itself = span[:, None] == sample  # a row is not its own neighbour
        away[itself] = np.inf
        for sampled in (False, True):
            mine, count = itself.any(axis=1) == sampled, len(sample) - sampled
            last = min(max(math.ceil(share * count), 1), count) - 1
            radii[span[mine]] = np.partition(away[mine], last, axis=1)[:, last]
    return radii


class RadiusSearch:
    """Finds all private rows within a radius of public ones.

    A row x is near a query q where its score reaches the query's bar: by the cosine the product of
    the two, scaled to length 1; else x q - x x / 2, which is at least (q q - r r) / 2 where q is at
    most r from x.

    Parameters
    ----------
    private, public
        Rows in the same space. Only ``public`` says where its origin is.
    metric
        ``"cosine"`` or ``"euclidean"``.
    radii
        (public rows,) how far a neighbour of each may be.
    """

    def __init__(self, private: Any, public: Any, metric: str, radii: Floats) -> None:
        self._private, self._public, self._radii = private, public, radii
        self._cosine = metric == "cosine"
        self._centre = 0.0 if self._cosine else np.asarray(public.mean(axis=0)).ravel()

    def _factors(self, rows: Any) -> Floats:
        """Return rows as they are multiplied: (rows, columns)."""
        rows = _dense(rows) - self._centre
        if self._cosine:
            return np.asarray(normalize_rows(rows))
        return np.hstack([rows, -(rows * rows).sum(axis=1, keepdims=True) / 2])

    def _questions(self, places: Places) -> tuple[Floats, Floats]:
        """Return some public rows as they are multiplied, and the bar of each."""
        rows, radii = _dense(self._public[places]) - self._centre, self._radii[places]
        if self._cosine:
            return np.asarray(normalize_rows(rows)), 1 - radii - _TIES
        squares = (rows * rows).sum(axis=1)
        bars = (squares - radii**2) / 2 - _TIES * (squares + radii**2)
        return np.hstack([rows, np.ones((len(rows), 1))]), bars

    def find(self, places: Places) -> tuple[Places, Places]:
        """Return all pairs of some public rows, by query and then by record: (pairs,) each.

        Queries are numbered from 0 in the order they are given.
        """
        questions, bars = self._questions(places)
        widest = max(len(places), self._private.shape[1])
        size = int(min(BLOCK, max(16, _CELLS // widest)))
        pairs = []
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # too large is too far
            shape = size, questions.shape[1]
            size = size if same_anywhere(lambda rows: rows @ questions.T, shape) else 1
            for block, span in padded_blocks(self._private, size):
                near = self._factors(block) @ questions.T >= bars
                cells = np.flatnonzero(near[: span.stop - span.start])
                record, query = np.divmod(cells, len(places))
                pairs.append((query, record + span.start))
        query, record = (np.concatenate(side) for side in zip(*pairs, strict=True))
        order = np.argsort(query, kind="stable")
        return query[order], record[order]
