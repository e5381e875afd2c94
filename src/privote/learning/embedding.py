"""A public embedding: fitted on public rows only, then applied to private ones row by row.

Whatever decides about a record besides the record itself must be public. A map that looked at the
rows that come with a row would let one record move others, and comparing a few rows cannot rule
that out. So there are only maps that are known to take each row by itself, and they get rows in
blocks of one fixed shape (see :func:`privote.learning.rows.padded_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from ..datasets.embedded import SIDE, slots_of
from ..errors import InputError
from .rows import BLOCK, Floats, check_rows, deviations, padded_blocks, same_anywhere
from .workers import one_thread

_DENSE_FEATURES = 2000  # up to here principal components come from the covariance
# Dimensions of an embedding that public numbers choose; tried on five public data sets.
_PACE, _LEAST, _MOST = 0.9, 5, 200
_DWARFED = 10  # times the usual deviation of a feature
# A slot's ink says whether it is filled: an empty slot has only noise, at most 5 in total, and the
# faintest digit has 11.
_INK = 8.0
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


def embed(mapping: Callable[[Any], Any] | None, X: Any) -> Any:
    """Return rows in the embedding, in single precision: (rows, features)."""
    if mapping is None:
        return X
    with one_thread():
        shape = BLOCK, X.shape[1]
        alike = sparse.issparse(X) or same_anywhere(lambda rows: _dense(mapping(rows)), shape)
        return _stacked(
            [
                _single(mapping(_double(block)))[: span.stop - span.start]
                for block, span in padded_blocks(X, BLOCK if alike else 1)
            ]
        )


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


@dataclass(kw_only=True)
class Landmarks:
    """Similarities of scenes (:func:`privote.datasets.load_scenes`) to slots of public ones.

    Pixels of a scene add up badly: a digit may stand in any slot. So each slot is compared with
    landmarks, and the similarities are added up over the slots: (scenes, landmarks).

    Parameters
    ----------
    count
        How many landmarks, evenly spread over the filled slots of the public scenes.
    width
        Of the kernel exp(-width |a - b|^2) between two slots with pixels in [0, 1].
    """

    count: int = 300
    width: float = 0.4

    def fit(self, X: Any) -> Landmarks:
        """Choose landmarks from public scenes (scenes, pixels)."""
        slots = slots_of(X).reshape(-1, SIDE**2)
        filled = slots[slots.sum(axis=1) > _INK]
        if not len(filled):
            raise InputError("X", "must have scenes with a digit in them, got empty slots only")
        chosen = np.linspace(0, len(filled) - 1, min(self.count, len(filled))).astype(int)
        self.slots_ = filled[chosen]
        return self

    def transform(self, X: Any) -> Any:
        """Return (scenes, landmarks), each scene's from itself alone."""
        return embed(self._similarities, check_rows(X))

    def _similarities(self, scenes: Floats) -> Floats:
        norms = (self.slots_**2).sum(axis=1)
        contents = map(np.ascontiguousarray, slots_of(scenes).swapaxes(0, 1))
        squares = [(c**2).sum(axis=1)[:, None] + norms - 2.0 * c @ self.slots_.T for c in contents]
        return np.asarray(sum(np.exp(-self.width * square) for square in squares))


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
