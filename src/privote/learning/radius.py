"""How far a neighbour may be: a quantile of distances within the public pool, no private row seen.

Everything here is public: public rows in, a public radius out.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ..errors import InputError
from .nearness import Floats, Places, RowTable, unit

KINDS = ("pool", "query")

#: Up to so many public rows every pair counts; beyond, the pairs of so many rows drawn for all
#: times the same way. The error of a 1 % quantile is then about 2 % of its share.
POOL_ROWS = 4096

_TIES = 1e-9  # relative: pairs exactly at the quantile are in, however their distance was rounded
_CELLS = 1 << 22


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
            raise InputError(f"radius must be finite and not negative, got {radius!r}")
        return np.full((public.rows, 1), float(radius))
    if not isinstance(radius, str) or radius not in KINDS:
        raise InputError(f"radius must be a number or one of {', '.join(KINDS)}, got {radius!r}")
    if public.rows < 2:
        raise InputError("X_public must have 2 rows or more: the radius is a quantile of distances")
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
        raise InputError(f"share must be a number or one per label ({labels}), got {share!r:.60}")
    if not ((given > 0) & (given <= 1)).all():
        raise InputError(f"share must lie in (0, 1], got {share!r:.60}")
    return np.broadcast_to(given.astype(np.float64), (labels,))


def _over_pool(public: RowTable, sample: Places, shares: Floats, metric: str) -> Floats:
    """Return quantiles over the pairs of a sample, each pair once: (shares,)."""
    anchor = _anchor(public, sample, metric)
    found = []
    for start in range(0, len(sample), step := max(1, _CELLS // len(sample))):
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
    for start in range(0, public.rows, step := max(1, _CELLS // len(sample))):
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
