"""What every network here reads, and what it can do once it is trained: answer, and be kept.

Rows are vectors, images in memory or images on disk. Whatever has a ``shape`` (rows, ...) and gives
an array for an array of indices will do, such as :class:`privote.datasets.images.Images`, which
reads files when they are asked for. A trained network is kept as plain arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from ...errors import InputError, UnavailableError, numbers, positive, whole
from ..rows import Floats, LabelClassifier, fraction
from .architectures import (
    IMAGE_NETWORKS,
    build_network,
    check_network,
    on_device,
    require_torch,
    set_weights,
    usual_network,
    weights_of,
)

Batch = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]
Augmentation = Callable[[Any, Any], Any]
Arrays = dict[str, npt.NDArray[Any]]

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
        if isinstance(X, np.ndarray) or hasattr(X, "iloc") or not hasattr(X, "shape"):
            X = numbers("X", X)
        if len(X.shape) not in (2, 4) or min(X.shape[1:]) < 1:
            raise InputError(
                "X",
                "must have the shape (rows, features) or (images, channels, height, width), "
                f"got {tuple(X.shape)}",
            )
        self._X = X.tocsr() if sp.issparse(X) else X
        self.shape: tuple[int, ...] = tuple(int(extent) for extent in X.shape[1:])
        self._bounded = bounded
        held = self._X.data if sp.issparse(self._X) else self._X
        if bounded and isinstance(held, np.ndarray) and not np.isfinite(held).all():
            raise InputError("X", "must be finite, it holds NaN or infinity")

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
            raise InputError("X", "must be finite, it holds NaN or infinity")
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
            count = min(len(some), _MOST_MEASURED, _VALUES * 8 // int(np.prod(some.shape)))
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


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Small changes that leave the labels alone: noise, and missing features.

    Attributes
    ----------
    noise
        Standard deviation of Gaussian noise on every value.
    feature_dropout
        Share of values set to 0, while the others grow so that sums stay as they are.
    """

    noise: float = 0.0
    feature_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.noise != 0:
            positive("noise", self.noise)
        fraction("feature_dropout", self.feature_dropout, "[)")

    def __call__(self, batch: Any, generator: Any) -> Any:
        """Return a changed copy of a batch (rows, features) or (rows, channels, height, width)."""
        torch = require_torch("augmentation")
        if self.noise:
            batch = batch + self.noise * torch.randn(batch.shape, generator=generator)
        if self.feature_dropout:
            kept = torch.rand(batch.shape, generator=generator) >= self.feature_dropout
            batch = batch * kept / (1 - self.feature_dropout)
        return batch


class NetworkClassifier(LabelClassifier):
    """A classifier of many labels whose answers come from a torch module.

    A subclass trains ``network_`` and sets ``scaling_``, ``shape_`` (of one row), ``n_labels_`` and
    ``thresholds_`` (labels,).
    """

    _named_by: ClassVar[str] = "network"  # the parameter that names the network
    # Of networks that have no such parameter.
    hidden: int = 1
    dropout: float = 0.0
    device: str = "cpu"

    network_: Any
    scaling_: Scaling
    shape_: tuple[int, ...]
    n_labels_: int
    thresholds_: Floats

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        check_is_fitted(self, "network_")
        rows = Rows(X)
        if rows.shape != self.shape_:
            raise InputError("X", f"must have rows of shape {self.shape_}, got {rows.shape}")
        return self._answers(rows)

    def to_arrays(self) -> Arrays:
        """Return the fitted model as plain arrays, to be kept in a file that runs no code."""
        check_is_fitted(self, "network_")
        name = getattr(self, self._named_by) or usual_network(self.shape_)
        if callable(name):
            raise UnavailableError("a network made by a function cannot be kept as plain arrays")
        config = {
            "network": name,
            **self._sizes(),
            "shape": list(self.shape_),
            "labels": self.n_labels_,
        }
        return {
            "config": np.array(json.dumps(config)),
            "thresholds": self.thresholds_,
            **self.scaling_.to_arrays(),
            **{f"weights/{part}": value for part, value in weights_of(self.network_).items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the model that :meth:`to_arrays` described; nothing in it is executed."""
        try:
            config = json.loads(str(arrays["config"][()]))
            name, labels = str(config["network"]), int(config["labels"])
            shape = tuple(int(extent) for extent in config["shape"])
            sizes = {"hidden": int(config["hidden"]), "dropout": float(config["dropout"])}
            thresholds = np.asarray(arrays["thresholds"], np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("arrays", f"must be those of a saved network: {error}") from None
        weights = {
            key.removeprefix("weights/"): np.asarray(value)
            for key, value in arrays.items()
            if key.startswith("weights/")
        }
        _check_sizes(name, shape, labels, int(sizes["hidden"]), weights)
        if thresholds.shape != (labels,) or not np.isfinite(thresholds).all():
            raise InputError(
                "thresholds", f"must be {labels} finite numbers, got {thresholds.shape}"
            )
        known = cls._get_param_names()
        model = cls(**{cls._named_by: name}, **{key: v for key, v in sizes.items() if key in known})
        network = build_network(
            name, shape, labels, hidden=int(sizes["hidden"]), dropout=sizes["dropout"]
        )
        network = cls._like(network, weights)
        set_weights(network, weights)
        return model._fitted(network, Scaling.from_arrays(arrays, shape[0]), shape, thresholds)

    @classmethod
    def _like(cls, network: Any, weights: Arrays) -> Any:
        """Return the network as training would have changed it, to fit these weights."""
        return network

    def _fitted(
        self, network: Any, scaling: Scaling, shape: tuple[int, ...], thresholds: Floats
    ) -> Self:
        network.eval()
        self.network_, self.scaling_, self.shape_ = network, scaling, shape
        self.thresholds_, self.n_labels_ = thresholds, len(thresholds)
        self.n_features_in_ = shape[0]
        return self

    def _sizes(self) -> dict[str, Any]:
        """Return what else a network of this name is made with."""
        return {
            "hidden": int(self.hidden),
            "dropout": float(self.dropout),
        }

    def _answers(self, rows: Rows) -> Floats:
        torch, device = require_torch("a network's prediction"), self.device
        network = on_device(self.network_.eval(), device)
        with torch.no_grad():
            parts = [
                torch.sigmoid(network(torch.as_tensor(self.scaling_(batch)).to(device)))
                .cpu()
                .numpy()
                for batch in rows.batches()
            ]
        return np.concatenate([np.zeros((0, self.n_labels_)), *parts])


def check_counts(model: Any, *names: str) -> None:
    """Refuse parameters that are not whole numbers of at least 1."""
    for name in names:
        whole(name, getattr(model, name))


def check_shares(model: Any, *names: str) -> None:
    """Refuse parameters that are not numbers from 0 to 1."""
    for name in names:
        fraction(name, getattr(model, name))


def _check_sizes(
    name: str, shape: tuple[int, ...], labels: int, hidden: int, weights: Arrays
) -> None:
    """Refuse sizes that the arrays do not have, before a network of that size is built."""
    check_network(name)
    if len(shape) not in (1, 3) or min((*shape, labels, hidden)) < 1:
        raise InputError(f"arrays must be those of a saved network, got sizes {shape}, {labels}")
    held = sum(value.size for value in weights.values())
    inputs = int(np.prod(np.array(shape, dtype=object)))
    if name in IMAGE_NETWORKS:
        needed = labels + shape[0]
    elif name == "mlp":
        needed = (inputs + 1) * hidden + (hidden + 1) * labels
    else:
        needed = (inputs + 1) * labels
    if needed > held:
        raise InputError(f"arrays contain {held} weights; a network of these sizes has {needed}")
