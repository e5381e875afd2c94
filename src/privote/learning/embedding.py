"""A public embedding: fitted on public rows only, then applied to private ones row by row.

Whatever decides about a record besides the record itself must be public. A map that looked at the
rows that come with a row would let one record move others, and comparing a few rows cannot rule
that out. So there are only maps that are known to take each row by itself, and they get rows in
blocks of one fixed shape (see :func:`privote.learning.rows.padded_blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from ..errors import InputError
from .rows import BLOCK, Floats, deviations, padded_blocks
from .workers import one_thread

_DENSE_FEATURES = 2000  # up to here principal components come from the covariance
# Dimensions of an embedding that public numbers choose; tried on five public data sets.
_PACE, _LEAST, _MOST = 0.9, 5, 200
_DWARFED = 10  # times the usual deviation of a feature
_NAMES = "'tfidf', or 'pca:K', 'std:K' or 'lsa:K'"


@dataclass(frozen=True)
class Embedding:
    """A public map from rows to rows, each by itself; ``by`` is a fitted transformer."""

    by: Any

    def __call__(self, X: Any) -> Any:
        """Return rows in the embedding."""
        return self.by.transform(X)


def fit_embedding(embedding: str | None, X_public: Any) -> Embedding | None:
    """Return a public map from rows to rows; None for rows as they are.

    Parameters
    ----------
    embedding
        ``None``; ``"pca:64"``: principal components of the pool, ``"std:64"``: of its features in
        units of their deviation; for words, ``"tfidf"``: TF-IDF less the pool's mean, or
        ``"lsa:64"``: principal components of TF-IDF.
    X_public
        The pool (rows, features).
    """
    if embedding is None:
        return None
    if not isinstance(embedding, str):
        rule = f"must be None, {_NAMES}; apply any other public map to all rows beforehand"
        raise InputError("embedding", rule, embedding)
    return Embedding(_named(embedding, X_public.shape).fit(X_public))


def embedding_for(
    X_public: Any, records: int, labels: int, epsilon: float, *, scaled: bool = False
) -> str | None:
    """Return which embedding suits a linear model with noise: public numbers decide.

    Rows of unit length share what they can say among all dimensions, and noise comes with each. So
    there are fewer of them the stronger the noise is beside the records, and never more than a
    quarter of the public rows, which have to tell what they are. Sparse rows are taken for counts
    of words. Features are put in units of their deviation where they differ in kind, as ages and
    words do, and so some dwarf the rest. Of the same kind, such as pixels, those that hardly vary
    say little, and only noise would rise with them.

    Parameters
    ----------
    X_public
        The pool (rows, features).
    records, labels, epsilon
        Private records (or persons), labels, and the promise.
    scaled
        Put features in units of their deviation whatever they are: columns of a table, and rows
        that voters look at, who add no noise to them.
    """
    size = _PACE * np.sqrt(records * epsilon / np.sqrt(labels))
    size = int(min(max(size, _LEAST), _MOST, X_public.shape[0] // 4))
    if not 0 < size < X_public.shape[1]:  # so few features need none
        return None
    if sparse.issparse(X_public):
        return f"lsa:{size}"
    if scaled:
        return f"std:{size}"
    spread = deviations(X_public)[1]
    varying = spread[spread > 0]
    dwarfed = len(varying) and varying.max() > _DWARFED * np.median(varying)
    return f"std:{size}" if dwarfed else f"pca:{size}"


def embed(mapping: Embedding | None, X: Any) -> Any:
    """Return rows in the embedding, in single precision: (rows, features)."""
    if mapping is None:
        return X
    with one_thread():
        size = BLOCK if sparse.issparse(X) or _same_anywhere(mapping, X.shape[1]) else 1
        return _stacked(
            [
                _single(mapping(_double(block)))[: place.stop - place.start]
                for block, place in padded_blocks(X, size)
            ]
        )


def _same_anywhere(mapping: Embedding, features: int) -> bool:
    """Return whether a block maps a row to the same bits wherever it stands in the block.

    Some processors' matrix products take the rows of a block in groups that round differently. One
    more private row would then move others to a place where their last bits change. Tried on
    made-up rows: what is tried is the order of operations, which goes by the shape of a block.
    """
    rows = np.random.default_rng(0).normal(size=(BLOCK, features))
    here, there = (_dense(mapping(block)) for block in (rows, np.roll(rows, 1, axis=0)))
    return here.tobytes() == np.roll(there, -1, axis=0).tobytes()


def _double(rows: Any) -> Any:
    """Return rows in double precision, by themselves: products of it round alike more often."""
    return rows if sparse.issparse(rows) else np.array(rows, np.float64)


def _stacked(parts: list[Any]) -> Any:
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)


class Centre(TransformerMixin, BaseEstimator):
    """Takes off the mean of the rows it was fitted on; the result is dense."""

    def fit(self, X: Any, y: Any = None) -> Centre:
        """Find the mean."""
        del y
        self.mean_ = np.asarray(X.mean(axis=0)).reshape(1, -1)
        return self

    def transform(self, X: Any) -> Any:
        """Return rows less the mean."""
        return _dense(X) - self.mean_


def _named(name: str, shape: tuple[int, int]) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "tfidf":
        return make_pipeline(TfidfTransformer(), Centre())
    kind, _, size = name.partition(":")
    first = {"pca": [], "std": [StandardScaler(with_mean=False)], "lsa": [TfidfTransformer()]}
    if kind not in first or not size.isdecimal() or not 0 < int(size) < min(shape):
        raise InputError("embedding", f"must be {_NAMES} with 0 < K < {min(shape)}", name)
    solver = "covariance_eigh" if shape[1] <= _DENSE_FEATURES else "arpack"
    return make_pipeline(*first[kind], PCA(int(size), svd_solver=solver, random_state=0))


def _single(rows: Any) -> Any:
    if sparse.issparse(rows):
        return rows.tocsr().astype(np.float32)
    return np.asarray(rows, dtype=np.float32)


def _dense(rows: Any) -> Floats:
    whole = rows.toarray() if sparse.issparse(rows) else rows
    return np.asarray(whole, dtype=np.float64)
