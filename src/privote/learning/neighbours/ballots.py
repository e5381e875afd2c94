"""Neighbours as voters: every private record near a query casts its own true labels.

No teacher is trained, and the guarantee is for the record. Who is near is decided by the record's
own row and by public numbers (the pool, its embedding, a radius taken from the pool), which is what
the allowance theorem needs (:mod:`privote.accounting.allowance`): then a record's ballots are its
own business, and its allowance bounds what they can give away.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from ...errors import InputError
from ...votes.cube import SparseBlock, check_head
from ..embedding import embed, fit_embedding
from ..rows import Floats, check_groups, check_labels
from .nearness import METRICS, Places, RadiusSearch, RowTable, check_share, radii
from .student import Circles

_BLOCK_BYTES = 1 << 27  # of the ballots expected in a block
_BALLOT_BYTES = 64  # of one ballot besides its votes, while blocks are made
_FEWEST, _MOST = 16, 1024  # queries of a block


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
        ``None``, ``"pca:64"``, for words ``"tfidf"`` or ``"lsa:64"``, a transformer (fitted on
        ``X_public`` only) or a public function.
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
        embedding: Any = None,
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
        return self._at(np.arange(check_head(queries, self.queries)))

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
