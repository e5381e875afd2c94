"""Rows of whatever holds them: arrays, sparse matrices, data frames, lists, images on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import InputError


def count_rows(X: Any) -> int:
    """Return how many rows there are."""
    if hasattr(X, "shape"):
        if not len(X.shape):
            raise InputError("X must have rows, got one number")
        return int(X.shape[0])
    if hasattr(X, "__len__"):
        return len(X)
    raise InputError(f"X must have rows, got {type(X).__name__}")


def row_size(X: Any) -> int:
    """Return how many values a row has, 1 if it does not say."""
    return max(1, int(np.prod(getattr(X, "shape", (1,))[1:])))


def take_rows(X: Any, rows: npt.NDArray[np.intp] | slice) -> Any:
    """Return some rows, of the same kind as ``X`` where that is possible."""
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return X[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(rows, slice):
        return X[rows]
    if hasattr(X, "take"):  # reads nothing yet, where rows are on disk
        return X.take(rows)
    return [X[row] for row in rows]
