"""A public embedding of scenes: how similar their slots are to slots of public scenes.

Pixels of a scene add up badly: a digit may stand in any slot. So each slot is compared with a few
hundred *landmarks*, slots of public scenes, and the similarities are added up over the slots. The
landmarks come from the rows that ``fit`` is given, which must be public ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from privote.errors import InputError

from .scenes import SIDE

Floats = npt.NDArray[np.float32]
# A slot's ink says whether it is filled: an empty slot has only noise, at most 5 in total, and the
# faintest digit has 11.
_INK = 8.0


class Landmarks(TransformerMixin, BaseEstimator):
    """Similarities of scenes to landmarks, summed over slots: (scenes, landmarks).

    Parameters
    ----------
    landmarks
        How many, evenly spread over the filled slots of the public scenes.
    width
        Of the kernel exp(-width |a - b|^2) between two slots with pixels in [0, 1].
    grid
        Rows and columns of slots.
    """

    def __init__(
        self, landmarks: int = 300, *, width: float = 0.4, grid: tuple[int, int] = (2, 2)
    ) -> None:
        self.landmarks = landmarks
        self.width = width
        self.grid = grid

    def fit(self, X: Any, y: Any = None) -> Landmarks:
        """Choose landmarks from public scenes (scenes, pixels)."""
        slots = self._slots(validate_data(self, X, dtype=np.float32)).reshape(-1, SIDE * SIDE)
        filled = slots[slots.sum(axis=1) > _INK]
        if not len(filled):
            raise InputError("X", "must have scenes with a digit in them, got empty slots only")
        chosen = np.linspace(0, len(filled) - 1, min(self.landmarks, len(filled))).astype(int)
        self.slots_ = filled[chosen]
        self._n_features_out = len(self.slots_)
        return self

    def transform(self, X: Any) -> Floats:
        """Return (scenes, landmarks)."""
        check_is_fitted(self)
        cut = self._slots(validate_data(self, X, dtype=np.float32, reset=False))
        norms = (self.slots_**2).sum(axis=1)
        total = np.zeros((len(cut), len(self.slots_)), np.float32)
        for slot in range(cut.shape[1]):
            content = np.ascontiguousarray(cut[:, slot])
            square = (content**2).sum(axis=1)[:, None] + norms - 2.0 * content @ self.slots_.T
            total += np.exp(-self.width * square)
        return total

    def _slots(self, X: Floats) -> Floats:
        rows, columns = self.grid
        if X.shape[1] != rows * columns * SIDE * SIDE:
            raise InputError(
                "X",
                f"must have {rows * columns * SIDE * SIDE} pixels for grid {self.grid}, got "
                f"{X.shape[1]}",
            )
        cut = X.reshape(len(X), rows, SIDE, columns, SIDE).transpose(0, 1, 3, 2, 4)
        return np.asarray(cut.reshape(len(X), rows * columns, SIDE * SIDE))
