"""Small changes that leave the labels alone: of feature vectors and of images.

An augmentation is a function (batch, generator) of torch tensors; anything of that kind may be
given to the estimators that take ``augment``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, positive, whole
from ..rows import fraction
from .architectures import require_torch

Augmentation = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Noise and missing features; for images also mirroring and shifting.

    Attributes
    ----------
    noise
        Standard deviation of Gaussian noise on every value.
    feature_dropout
        Share of values set to 0, while the others grow so that sums stay as they are.
    flip
        Mirror half of the images, left to right. Not for writing, nor for organs on one side.
    shift
        Move each image by up to this many pixels in either direction; what moves in is 0.
    """

    noise: float = 0.0
    feature_dropout: float = 0.0
    flip: bool = False
    shift: int = 0

    def __post_init__(self) -> None:
        if self.noise != 0:
            positive("noise", self.noise)
        fraction("feature_dropout", self.feature_dropout, "[)")
        if not isinstance(self.flip, bool):
            raise InputError("flip", "must be True or False", self.flip)
        whole("shift", self.shift, 0)

    def __call__(self, batch: Any, generator: Any) -> Any:
        """Return a changed copy of a batch (rows, features) or (rows, channels, height, width)."""
        torch = require_torch("augmentation")
        if batch.ndim == 4 and self.flip:
            batch = _flipped(batch, generator)
        if batch.ndim == 4 and self.shift:
            batch = shifted(batch, self.shift, generator)
        if self.noise:
            batch = batch + self.noise * torch.randn(batch.shape, generator=generator)
        if self.feature_dropout:
            kept = torch.rand(batch.shape, generator=generator) >= self.feature_dropout
            batch = batch * kept / (1 - self.feature_dropout)
        return batch


def _flipped(batch: Any, generator: Any) -> Any:
    torch = require_torch("augmentation")
    chosen = torch.rand((len(batch), 1, 1, 1), generator=generator) < 0.5
    return torch.where(chosen, batch.flip(-1), batch)


def shifted(batch: Any, most: int, generator: Any) -> Any:
    """Move each image by its own number of pixels, at most ``most`` up, down, left or right."""
    torch = require_torch("augmentation")
    rows, _, height, width = batch.shape
    padded = torch.nn.functional.pad(batch, (most, most, most, most))
    down, right = torch.randint(0, 2 * most + 1, (2, rows, 1), generator=generator)
    lines = (down + torch.arange(height))[:, None, :, None]
    columns = (right + torch.arange(width))[:, None, None, :]
    image = torch.arange(rows)[:, None, None, None]
    channel = torch.arange(batch.shape[1])[None, :, None, None]
    return padded[image, channel, lines, columns]
