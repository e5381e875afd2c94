"""Rows for networks: vectors, images in memory or images on disk, as float32 batches.

Whatever has a ``shape`` (rows, ...) and gives an array for an array of indices will do, such as
:class:`privote.datasets.images.Images`, which reads files when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import InputError

Batch = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]

SCALES = ("standard", "none")
_LIMIT = 3.0  # standard deviations beyond which a value says no more
_MOST_MEASURED = 2_000  # rows that are read to measure a scale, at most
_VALUES = 1 << 22  # of a batch in prediction: 16 MiB


class Rows:
    """Rows of ``X`` as float32 batches; bytes (uint8) become numbers from 0 to 1.

    With ``bounded``, for private rows that are sampled: NaN and infinity are looked for in all rows
    at once, and a finite value that float32 cannot hold becomes the nearest that it can. Otherwise
    the rows that happen to be read would decide whether there is an error. Rows on disk are not
    read before; there NaN becomes 0.
    """

    def __init__(self, X: Any, *, bounded: bool = False) -> None:
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        if len(X.shape) not in (2, 4) or min(X.shape[1:]) < 1:
            raise InputError(
                "X must have the shape (rows, features) or (images, channels, height, width), "
                f"got {tuple(X.shape)}"
            )
        if hasattr(X, "iloc"):
            X = X.to_numpy()
        if isinstance(X, np.ndarray) and X.dtype.kind not in "biuf":
            raise InputError(f"X must hold numbers, got an array of type {X.dtype}")
        self._X = X.tocsr() if sp.issparse(X) else X
        self.shape: tuple[int, ...] = tuple(int(extent) for extent in X.shape[1:])
        self._bounded = bounded
        held = self._X.data if sp.issparse(self._X) else self._X
        if bounded and isinstance(held, np.ndarray) and not np.isfinite(held).all():
            raise InputError("X must be finite, it holds NaN or infinity")

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __getitem__(self, index: Any) -> Batch:
        part = self._X[index]
        part = part.toarray() if sp.issparse(part) else np.asarray(part)
        if self._bounded:
            with np.errstate(over="ignore", invalid="ignore"):
                batch = np.nan_to_num(part.astype(np.float32))
        else:
            batch = part.astype(np.float32)
        if part.dtype == np.uint8 and len(self.shape) == 3:
            batch /= np.float32(255)
        if not np.isfinite(batch).all():
            raise InputError("X must be finite, it holds NaN or infinity")
        return batch

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """Yield consecutive rows; by default as many as make a few megabytes."""
        size = size or max(1, _VALUES // int(np.prod(self.shape)))
        for start in range(0, len(self), size):
            yield self[slice(start, start + size)]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Mean and deviation of each feature, or of each channel of images.

    Fitted on public rows only: a student's. It would cost privacy on private ones.
    """

    mean: Batch
    deviation: Batch

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Scaling:
        """Return a scaling that changes nothing."""
        return cls(mean=np.zeros(shape[0], np.float32), deviation=np.ones(shape[0], np.float32))

    @classmethod
    def of(cls, rows: list[Rows]) -> Scaling:
        """Measure public rows, evenly spread, a few thousand at most."""
        parts = []
        for some in rows:
            count = min(len(some), _MOST_MEASURED)
            parts.append(some[np.linspace(0, len(some) - 1, count).astype(int)])
        sample = np.concatenate(parts).astype(np.float64)
        axes = (0, 2, 3) if sample.ndim == 4 else (0,)
        deviation = sample.std(axis=axes).astype(np.float32)
        return cls(
            mean=sample.mean(axis=axes).astype(np.float32),
            # A constant feature says nothing, whatever it is divided by. Too small for single
            # precision counts as constant.
            deviation=np.where(deviation >= np.finfo(np.float32).tiny, deviation, np.float32(1)),
        )

    @property
    def changes(self) -> bool:
        """False if this scaling leaves everything as it is."""
        return bool(self.mean.any() or (self.deviation != 1).any())

    def __call__(self, batch: Batch) -> Batch:
        """Return a batch with every feature, or channel, on the same scale."""
        if not self.changes:
            return batch
        shape = (1, -1, 1, 1) if batch.ndim == 4 else (1, -1)
        with np.errstate(over="ignore"):  # what overflows is clipped
            scaled = (batch - self.mean.reshape(shape)) / self.deviation.reshape(shape)
        return np.asarray(np.clip(scaled, -_LIMIT, _LIMIT) if batch.ndim == 2 else scaled)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what makes this scaling, by name."""
        return {"scale/mean": self.mean, "scale/deviation": self.deviation}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], size: int) -> Scaling:
        """Read what :meth:`to_arrays` gave, for this many features or channels."""
        read = {}
        for name in ("mean", "deviation"):
            array = np.asarray(arrays[f"scale/{name}"], np.float32)
            if array.shape != (size,) or not np.isfinite(array).all():
                raise InputError(f"scale/{name} must be {size} finite numbers, got {array.shape}")
            read[name] = array
        if not (read["deviation"] > 0).all():
            raise InputError("scale/deviation must be positive")
        return cls(**read)
