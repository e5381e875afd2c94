"""A public embedding: fitted on public rows only, then applied to private ones row by row.

Whatever decides about a record besides the record itself must be public. So a transformer is cloned
and fitted on the public pool, and a function is taken as it is and must be public already.

A function that looked at the rows that come with a row would let one record move others. Comparing
a few rows cannot rule that out, so a function gets one row at a time and never two private rows
together; only what is known to map each row by itself gets more, in blocks of one fixed shape (see
:func:`privote.learning.rows.padded_blocks`). What a comparison of public rows does show (rows that
are mixed, a memory of earlier rows) is refused, because it would be of no use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone

from ..errors import InputError
from .rows import BLOCK, Floats, deviations, padded_blocks
from .workers import one_thread

Map = Callable[[Any], Any]

_DENSE_FEATURES = 2000  # up to here principal components come from the covariance
# Dimensions of an embedding that public numbers choose; tried on five public data sets.
_PACE, _LEAST, _MOST = 0.9, 5, 200
_DWARFED = 10  # times the usual deviation of a feature
_COMPARED = 64  # public rows on which a map is tried
_NAMES = "'tfidf', or 'pca:K', 'std:K' or 'lsa:K'"
# scikit-learn's transformers that are known to map each row by itself, once they are fitted.
_ROW_BY_ROW = (
    "Binarizer",
    "FrozenEstimator",
    "GaussianRandomProjection",
    "MaxAbsScaler",
    "MinMaxScaler",
    "Normalizer",
    "PCA",
    "Pipeline",
    "PowerTransformer",
    "QuantileTransformer",
    "RobustScaler",
    "SparseRandomProjection",
    "StandardScaler",
    "TfidfTransformer",
    "TruncatedSVD",
    "VarianceThreshold",
)


@dataclass(frozen=True)
class Embedding:
    """A public map from rows to rows.

    Attributes
    ----------
    by
        A fitted transformer, or a function.
    apart
        Whether it is asked about one row at a time.
    """

    by: Any
    apart: bool

    def __call__(self, X: Any) -> Any:
        """Return rows in the embedding."""
        return _one_by_one(self._map, X) if self.apart else self._map(X)

    @property
    def _map(self) -> Map:
        return self.by.transform if hasattr(self.by, "transform") else self.by  # type: ignore[no-any-return]


def fit_embedding(embedding: Any, X_public: Any) -> Embedding | None:
    """Return a public map from rows to rows; None for rows as they are.

    Parameters
    ----------
    embedding
        ``None``; ``"pca:64"``: principal components of the pool, ``"std:64"``: of its features in
        units of their deviation; for words, ``"tfidf"``: TF-IDF less the pool's mean, or
        ``"lsa:64"``: principal components of TF-IDF; a scikit-learn
        transformer, which is cloned and fitted on ``X_public``; or a function, which must be public
        and map each row by itself. Functions, and transformers that are not known to do so, get one
        row at a time.
    X_public
        The pool (rows, features).
    """
    if embedding is None:
        return None
    chosen = _named(embedding, X_public.shape) if isinstance(embedding, str) else embedding
    known = False
    if hasattr(chosen, "fit") and hasattr(chosen, "transform"):
        chosen = clone(chosen).fit(X_public)
        known = _is_row_by_row(chosen)
    elif not callable(chosen):
        raise InputError(
            "embedding",
            f"must be None, {_NAMES}, a transformer or a function",
            embedding,
        )
    _check_rowwise(Embedding(chosen, apart=False), Embedding(chosen, apart=True), X_public)
    return Embedding(chosen, apart=not known)


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
    if mapping.apart:
        return mapping(X)
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


def _some(X: Any, start: int, stop: int | None) -> Any:
    """Return some rows by themselves: a view would lead to all the others."""
    rows = X[start:stop]
    return rows.copy() if isinstance(rows, np.ndarray) else rows


def _one_by_one(mapping: Map, X: Any) -> Any:
    """Return rows in the embedding, each asked for alone."""
    found = [_single(mapping(_some(X, row, row + 1))) for row in range(X.shape[0])]
    shapes = {rows.shape for rows in found}
    if any(len(shape) != 2 or shape[0] != 1 for shape in shapes) or len(shapes) != 1:
        raise InputError(
            "embedding",
            "must map one row to one row, and all to the same number of features, got shapes "
            f"{', '.join(map(str, sorted(shapes)))}",
        )
    return _stacked(found)


def _stacked(parts: list[Any]) -> Any:
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)


def _is_row_by_row(fitted: Any) -> bool:
    """Return True if a fitted transformer is known to map each row by itself."""
    kind = type(fitted)
    if kind is Centre:
        return True
    if kind.__module__.split(".")[0] != "sklearn" or kind.__name__ not in _ROW_BY_ROW:
        return False
    if kind.__name__ == "Pipeline":
        return all(step == "passthrough" or _is_row_by_row(step) for _, step in fitted.steps)
    return _is_row_by_row(fitted.estimator) if kind.__name__ == "FrozenEstimator" else True


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


def _check_rowwise(mapping: Map, apart: Map, X_public: Any) -> None:
    """Refuse a map that is seen to mix rows, or to remember them: by public rows alone."""
    few = X_public[:: max(1, -(-X_public.shape[0] // _COMPARED))]
    together = _dense(mapping(_some(few, 0, few.shape[0])))
    if together.ndim != 2 or len(together) != few.shape[0]:
        raise InputError(
            "embedding", f"must map {few.shape[0]} rows to as many, got shape {together.shape}"
        )
    alone, again = _dense(apart(few)), _dense(apart(few[::-1]))[::-1]
    far = 1e-4 * np.abs(together).max(initial=0)
    for other, when in ((alone, "others come with it"), (again, "others went before it")):
        same = np.isclose(together, other, rtol=1e-3, atol=far, equal_nan=True).all(axis=1)
        if not same.all():
            raise InputError(
                "embedding",
                f"must map each row by itself: public row {int(np.argmin(same))} of "
                f"{len(same)} goes elsewhere when {when}",
            )


def _dense(rows: Any) -> Floats:
    whole = rows.toarray() if sparse.issparse(rows) else rows
    return np.asarray(whole, dtype=np.float64)
