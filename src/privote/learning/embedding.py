"""A public embedding: fitted on public rows only, then applied to private ones row by row.

Whatever decides about a record besides the record itself must be public. So a transformer is cloned
and fitted on the public pool, and a function is taken as it is and must be public already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone

from ..errors import InputError

Embedding = Callable[[Any], Any]

_ROWS = 4096  # embedded at once: a public size
_DENSE_FEATURES = 2000  # up to here principal components come from the covariance


def fit_embedding(embedding: Any, X_public: Any) -> Embedding | None:
    """Return a public map from rows to rows; None for rows as they are.

    Parameters
    ----------
    embedding
        ``None``; ``"pca:64"``: principal components of the pool; for words, ``"tfidf"``: TF-IDF
        less the pool's mean, or ``"lsa:64"``: principal components of TF-IDF; a scikit-learn
        transformer, which is cloned and fitted on ``X_public``; or a function, which must be public
        and map each row by itself.
    X_public
        The pool (rows, features).
    """
    if embedding is None:
        return None
    chosen = _named(embedding, X_public.shape) if isinstance(embedding, str) else embedding
    if hasattr(chosen, "fit") and hasattr(chosen, "transform"):
        chosen = clone(chosen).fit(X_public).transform
    if not callable(chosen):
        raise InputError(
            "embedding must be None, 'tfidf', 'pca:K', 'lsa:K', a transformer or a function, "
            f"got {embedding!r:.60}"
        )
    _check_rowwise(chosen, X_public)
    return chosen  # type: ignore[no-any-return]


def embed(mapping: Embedding | None, X: Any) -> Any:
    """Return rows in the embedding, in single precision: (rows, features)."""
    if mapping is None:
        return X
    starts = range(0, X.shape[0], _ROWS)
    parts = [_single(mapping(X[start : start + _ROWS])) for start in starts]
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)


class _Centre(TransformerMixin, BaseEstimator):
    """Takes off the mean of the rows it was fitted on; the result is dense."""

    def fit(self, X: Any, y: Any = None) -> _Centre:
        del y
        self.mean_ = np.asarray(X.mean(axis=0)).reshape(1, -1)
        return self

    def transform(self, X: Any) -> Any:
        return _dense(X) - self.mean_


def _named(name: str, shape: tuple[int, int]) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.pipeline import make_pipeline

    if name == "tfidf":
        return make_pipeline(TfidfTransformer(), _Centre())
    kind, _, size = name.partition(":")
    if kind not in ("pca", "lsa") or not size.isdecimal() or not 0 < int(size) < min(shape):
        raise InputError(
            f"embedding must be 'tfidf', or 'pca:K' or 'lsa:K' with 0 < K < {min(shape)}, "
            f"got {name!r}"
        )
    solver = "covariance_eigh" if shape[1] <= _DENSE_FEATURES else "arpack"
    pca = PCA(int(size), svd_solver=solver, random_state=0)
    return make_pipeline(TfidfTransformer(), pca) if kind == "lsa" else pca


def _single(rows: Any) -> Any:
    if sparse.issparse(rows):
        return rows.tocsr().astype(np.float32)
    return np.asarray(rows, dtype=np.float32)


def _check_rowwise(mapping: Embedding, X_public: Any) -> None:
    """Refuse a map under which a row's place depends on the rows that come with it."""
    few = X_public[:8]
    together, alone = (_dense(part) for part in (mapping(few), mapping(few[:1])))
    if together.ndim != 2 or len(together) != few.shape[0]:
        raise InputError(
            f"embedding must map {few.shape[0]} rows to as many, got shape {together.shape}"
        )
    if not np.allclose(together[:1], alone, rtol=1e-3, atol=1e-4 * np.abs(together).max(initial=0)):
        raise InputError(
            "embedding must map each row by itself: the first public row goes elsewhere when "
            "others come with it"
        )


def _dense(rows: Any) -> npt.NDArray[np.float64]:
    whole = rows.toarray() if sparse.issparse(rows) else rows
    return np.asarray(whole, dtype=np.float64)
