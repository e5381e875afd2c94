"""How labels go together: co-prevalence, and what is absent together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..release import Release

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def positive(Y: Any) -> Floats:
    """Return how often each label is there where another is: P(column | row), (labels, labels).

    Parameters
    ----------
    Y
        (queries, labels) of 1, 0, or -1 for a missing label or ABSTAIN; or a release. A pair of
        labels is counted where both are known. A row whose label never occurs beside a known
        column is NaN there.
    """
    return _given(cells_of("Y", Y), 1)


def negative(Y: Any) -> Floats:
    """Return how often each label is absent where another is: P(not column | not row).

    As :func:`positive`, for zeros. This is what tells whether a question may be left out: if a
    large share of the labels in a row are absent whenever its label is, :func:`gated` loses little.
    """
    return _given(cells_of("Y", Y), 0)


def _given(cells: Labels, value: int) -> Floats:
    same = (cells == value).astype(np.float64)
    both = same.T @ same
    cases = same.T @ (cells >= 0).astype(np.float64)
    share: Floats = np.full_like(both, np.nan)
    np.divide(both, cases, out=share, where=cases > 0)
    return share


def cells_of(argument: str, Y: Any) -> Labels:
    """Return labels as int8 (queries, labels) if they hold 1, 0 and -1 only."""
    try:
        array = np.asarray(Y.labels if isinstance(Y, Release) else Y)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isin(array, (-1, 0, 1)).all():
        raise InputError(argument, "must be a table (queries, labels) of 1, 0 and -1", Y)
    return array.astype(np.int8)
