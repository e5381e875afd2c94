"""Networks of torch, for teachers, students and private training alike; need the extra [deep].

Torch is imported when a network is asked for, so that the package works without it. Rows are
vectors, images in memory or images on disk: whatever has a ``shape`` (rows, ...) and gives an array
for an array of indices will do, such as :class:`privote.datasets.images.Images`, which reads files
when they are asked for. A trained network is kept as plain arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError, UnavailableError, missing_extra, numbers, positive, whole
from .rows import (
    Floats,
    LabelClassifier,
    Progress,
    Targets,
    check_targets,
    fraction,
    padded_blocks,
    same_anywhere,
)

Arrays = dict[str, npt.NDArray[Any]]
Network = str | Callable[[tuple[int, ...], int], Any]

VECTOR_NETWORKS = ("linear", "mlp")
IMAGE_NETWORKS = ("smallcnn", "densenet121", "resnet50")
_DENSENET_SIDE = 32  # it halves an image five times
_GROUPS = 8  # of the small network's normalisation, which must not mix records: no batch norm


def require_torch(what: str, extra: str = "deep") -> Any:
    """Return the module ``torch``, or say which extra brings it."""
    try:
        import torch
    except ImportError:
        raise missing_extra(extra, what) from None
    return torch


def check_network(network: Any) -> None:
    """Refuse a name that is not known."""
    names = (*VECTOR_NETWORKS, *IMAGE_NETWORKS)
    if callable(network) or network in names:
        return
    raise InputError(
        "network",
        f"must be one of {', '.join(names)}, or a function (shape, outputs) that returns a "
        "torch module",
        network,
    )


def usual_network(shape: tuple[int, ...]) -> str:
    """Return the network to take for rows of this shape if nobody names one."""
    return VECTOR_NETWORKS[1] if len(shape) == 1 else IMAGE_NETWORKS[0]


def build_network(
    network: Network, shape: Sequence[int], outputs: int, *, hidden: int = 256, dropout: float = 0.5
) -> Any:
    """Return an untrained torch module that gives one logit a label.

    Parameters
    ----------
    network
        ``"linear"``, ``"mlp"`` (one hidden layer), ``"smallcnn"``, ``"densenet121"``,
        ``"resnet50"`` (the last two from MONAI), or a function of ``shape`` and ``outputs``.
    shape
        Of one input: (features,) or (channels, height, width).
    outputs
        How many labels.
    hidden, dropout
        Of ``"mlp"``: units of the hidden layer, share of them that is left out while training.
    """
    check_network(network)
    shape = tuple(int(extent) for extent in shape)
    if callable(network):
        module = network(shape, outputs)
        if any(map(require_torch("networks").nn.parameter.is_lazy, module.parameters())):
            raise InputError("network", "must have layers of known sizes, not lazy ones")
        return module
    if network in VECTOR_NETWORKS:
        if len(shape) != 1:
            rule = f"must be one of {', '.join(IMAGE_NETWORKS)} for pictures, got shape {shape}"
            raise InputError("network", rule, network)
        return _dense(network, int(np.prod(shape)), outputs, hidden, dropout)
    if len(shape) != 3:
        raise InputError(f"{network} takes images (channels, height, width), got shape {shape}")
    if network == "densenet121" and min(shape[1:]) < _DENSENET_SIDE:
        raise InputError(f"densenet121 takes images of at least 32 x 32 pixels, got {shape[1:]}")
    if network == "smallcnn":
        return _small_cnn(shape[0], outputs)
    return _from_monai(network, shape[0], outputs)


def _dense(network: str, inputs: int, outputs: int, hidden: int, dropout: float) -> Any:
    nn = require_torch("networks").nn
    if network == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, outputs),
        )
    head = nn.Linear(inputs, outputs)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.Flatten(), head)


def _small_cnn(channels: int, outputs: int) -> Any:
    """Return three convolutions and a maximum over places; about 57,000 weights."""
    nn = require_torch("networks").nn
    layers: list[Any] = []
    for inputs, wide, halve in ((channels, 32, False), (32, 64, True), (64, 64, False)):
        layers += [nn.Conv2d(inputs, wide, 3, padding=1), nn.GroupNorm(_GROUPS, wide), nn.ReLU()]
        if halve:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(
        *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, outputs)
    )


def _from_monai(network: str, channels: int, outputs: int) -> Any:
    require_torch("networks")
    try:
        from monai.networks import nets
    except ImportError:
        raise missing_extra("deep", network) from None
    if network == "densenet121":
        return nets.DenseNet121(spatial_dims=2, in_channels=channels, out_channels=outputs)
    # Stride 2 and no bias where sizes change: as the network is drawn in print, and as weights
    # trained elsewhere expect it.
    return nets.resnet50(
        spatial_dims=2,
        n_input_channels=channels,
        num_classes=outputs,
        conv1_t_stride=2,
        bias_downsample=False,
    )


def last_layer(module: Any) -> Any:
    """Return the linear layer that gives the logits: the last one of the network."""
    nn = require_torch("networks").nn
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise UnavailableError("the network must end in a torch.nn.Linear layer; it has none")
    return layers[-1]


@contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """Seed torch's generator for a while and put it back afterwards; yields a generator."""
    torch = require_torch("training")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def on_device(module: Any, device: str) -> Any:
    """Return a network on a device, or say that torch finds none of that name here."""
    try:
        return module.to(device)
    except (RuntimeError, AssertionError) as error:  # torch's words for a device that is absent
        reason = str(error).splitlines()[0]
        raise InputError("device", f"cannot be used: {reason}", device) from None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread: with more, a row's place in a batch decides how it is rounded."""
    torch = require_torch("networks")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def weights_of(module: Any) -> Arrays:
    """Return a network's weights and buffers as arrays, by their names."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def set_weights(module: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put arrays into a network; names and shapes must be the network's own."""
    torch = require_torch("networks")
    try:
        state = {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}
        module.load_state_dict(state)
    except (RuntimeError, TypeError) as error:  # names, shapes; types
        raise InputError("weights", f"must be those of this network: {error}") from None


def load_weights(module: Any, path: str | os.PathLike[str]) -> list[str]:
    """Load a state dictionary from a file, without running code, and return what was left out.

    The file may name the parts of a DenseNet as torchvision does. A first layer for three channels
    is summed for one, which is the same as repeating a grey image. A last layer for another number
    of labels is left out; anything else that does not fit is an error.
    """
    torch = require_torch("networks")
    try:
        loaded = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"weights {str(path)!r} do not exist") from None
    except Exception as error:  # torch raises several kinds, by what is wrong with the file
        raise InputError(f"weights in {str(path)!r} cannot be read safely: {error}") from None
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(map(torch.is_tensor, loaded.values())):
        raise InputError(f"weights in {str(path)!r} must be a state dictionary, got {type(loaded)}")
    state, last = module.state_dict(), last_layer(module)
    renamed = {_our_name(str(name)): value for name, value in loaded.items()}
    values = {name: _fewer_channels(value, state.get(name)) for name, value in renamed.items()}
    fitting = {
        name: value
        for name, value in values.items()
        if name in state and state[name].shape == value.shape
    }
    missing = module.load_state_dict(fitting, strict=False).missing_keys
    head = {name for name, part in module.named_parameters() if part is last.weight}
    head |= {name for name, part in module.named_parameters() if part is last.bias}
    # Counters of batches are not in every file, and nothing is computed from them.
    absent = [
        name for name in missing if name not in head and not name.endswith("num_batches_tracked")
    ]
    if absent:
        raise InputError(
            f"weights in {str(path)!r} do not match this network: {len(absent)} parts are missing "
            f"or have another shape, first {absent[0]}"
        )
    return [name for name in values if name not in fitting]


def _our_name(name: str) -> str:
    name = re.sub(r"^module\.", "", name)
    name = re.sub(r"(denselayer\d+)\.(norm|conv)\.?([12])", r"\1.layers.\2\3", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


def _fewer_channels(value: Any, own: Any) -> Any:
    if own is None or value.ndim != 4 or value.shape[1] != 3 or own.shape[1] != 1:
        return value
    return value.sum(dim=1, keepdim=True)


def masked_loss(logits: Any, targets: Any, known: Any) -> Any:
    """Return the mean binary cross-entropy over the cells, weighted by how well they are known."""
    torch = require_torch("training")
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return (loss * known).sum() / known.sum().clamp(min=1e-6)


# -- what reads rows and answers ------------------------------------------------------------------

Batch = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]

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
        values = self._X.data if sp.issparse(self._X) else self._X
        if bounded and isinstance(values, np.ndarray) and not np.isfinite(values).all():
            raise InputError("X", "must be finite, it holds NaN or infinity")

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __getitem__(self, index: Any) -> Batch:
        part = self._X[index]
        part = part.toarray() if sp.issparse(part) else np.asarray(part)
        with np.errstate(over="ignore", invalid="ignore"):
            batch = part.astype(np.float32)
        if self._bounded:
            batch = np.nan_to_num(batch)
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
        for part in rows:
            count = min(len(part), _MOST_MEASURED, _VALUES * 8 // int(np.prod(part.shape)))
            parts.append(part[np.linspace(0, len(part) - 1, count).astype(int)])
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
        """Return all that was learnt as plain arrays, to be kept in a file that runs no code."""
        check_is_fitted(self, "network_")
        if callable(getattr(self, self._named_by)):
            raise UnavailableError("a network made by a function cannot be kept as plain arrays")
        return {
            "thresholds": self.thresholds_,
            "scale/mean": self.scaling_.mean,
            "scale/deviation": self.scaling_.deviation,
            **{f"weights/{part}": value for part, value in weights_of(self.network_).items()},
        }

    def restored(self, shape: tuple[int, ...], arrays: Arrays) -> Self:
        """Return this model with what :meth:`to_arrays` gave, for rows of this shape.

        Arrays may come from anybody: nothing in them is executed, and no network is made that is
        larger than they are.
        """
        weights = {
            key.removeprefix("weights/"): value
            for key, value in arrays.items()
            if key.startswith("weights/")
        }
        try:
            thresholds = np.asarray(arrays["thresholds"], np.float64)
            scale = Scaling(mean=arrays["scale/mean"], deviation=arrays["scale/deviation"])
            name = getattr(self, self._named_by) or usual_network(shape)
            sizes: dict[str, Any] = {"hidden": self.hidden, "dropout": self.dropout}
            with require_torch("networks").device("meta"):  # where no size takes memory
                network = self._like(build_network(name, shape, len(thresholds), **sizes), weights)
            needed = {key: tuple(value.shape) for key, value in network.state_dict().items()}
        except (KeyError, RuntimeError, TypeError, OverflowError) as error:
            raise InputError("arrays", f"must be those of a saved network: {error}") from None
        if needed != {key: value.shape for key, value in weights.items()}:
            raise InputError("arrays", f"must be those of a network of shape {shape}")
        finite = np.isfinite(scale.mean).all() and np.isfinite(thresholds).all()
        shaped = scale.mean.shape == scale.deviation.shape == shape[:1]
        if not (shaped and finite and (scale.deviation > 0).all()):
            raise InputError("arrays", f"must have {shape[0]} scales and finite thresholds")
        set_weights(network.to_empty(device="cpu"), weights)
        return self._fitted(network, scale, shape, thresholds)

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


# -- images ---------------------------------------------------------------------------------------

NORMALISE = ("none", "imagenet")
_PLATEAU = 10  # epochs without a better loss after which the learning rate falls to a tenth
_BETTER = 1e-4  # by how much, relative, a loss must fall to count as better
_BATCHES = 32, 256  # rows of a batch of features, the fewest and the most
# Published constants of what most pre-trained weights were trained with; they cost no privacy.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(eq=False, repr=False)
class ImageNetwork(NetworkClassifier):
    """A network on images, trained with binary cross-entropy; unknown labels do not count.

    Parameters
    ----------
    architecture
        ``"densenet121"``, ``"resnet50"``, ``"smallcnn"``, or a function of (shape, labels) that
        returns a torch module ending in a linear layer.
    weights
        File with a state dictionary to start from, read without running code; None starts at
        random. Its last layer may be for other labels.
    frozen
        Train the last layer only, on features that are computed once.
    n_epochs, batch_size
        How often each row is seen, and how many rows a step takes.
    learning_rate, weight_decay
        Of Adam with amsgrad: as the paper trains DenseNet-121 (there for 100 epochs).
    validation
        Share of the rows kept for choosing the best epoch; 0 keeps none, and so do fewer than 10
        rows.
    normalise
        ``"none"`` leaves pixels from 0 to 1; ``"imagenet"`` subtracts and divides by the published
        constants, which weights trained on ImageNet expect.
    device
        Where it trains and answers: ``"cpu"``, ``"cuda"`` or ``"mps"``.
    random_state
        Seeds weights, order and the validation part.
    progress
        Called as ``progress(epochs done, epochs)``.

    Attributes
    ----------
    network_
        The trained torch module.
    """

    accepts_soft = True
    _named_by: ClassVar[str] = "architecture"

    architecture: Network = "densenet121"
    _: KW_ONLY
    weights: str | os.PathLike[str] | None = None
    frozen: bool = False
    n_epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    validation: float = 0.1
    normalise: str = "none"
    device: str = "cpu"
    random_state: Any = None
    progress: Progress | None = None

    def fit(self, X: Any, y: npt.ArrayLike) -> ImageNetwork:
        """Train on images (images, channels, height, width) and (images, labels).

        Labels are 1, 0, probabilities, and -1 (unknown).

        ``X`` may be an array of float32 or uint8, or images on disk
        (:class:`privote.datasets.images.Images`).
        """
        rows = Rows(X)
        labels = check_targets(y, len(rows))
        cells = np.stack([np.maximum(labels, 0), labels >= 0], axis=1).astype(np.float32)
        self._check()
        if len(rows) < 2:
            raise InputError("X", f"must have at least 2 rows, got {len(rows)}")
        scaling = published_constants(self.normalise, rows.shape)
        rng = check_random_state(self.random_state)
        with seeded(int(rng.randint(2**31 - 1))):
            network = self._built(rows.shape, labels.shape[1])
            order = rng.permutation(len(rows))
            validation = round(self.validation * len(rows)) if len(rows) >= 10 else 0
            learns, seen, scale = network, rows, scaling
            if self.frozen:
                seen = Rows(image_features(network, rows, scaling, self.device))
                learns, scale = last_layer(network), Scaling.none(seen.shape)
            sides = (order[validation:], order[:validation])
            _fit_network(learns, _Lessons(seen, cells, scale), sides, self)
        return self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))

    def _built(self, shape: tuple[int, ...], labels: int) -> Any:
        """Return the network to start from, where it is to be trained."""
        require_torch("an image network")
        network = build_network(self.architecture, shape, labels)
        if self.weights is not None:
            load_weights(network, self.weights)
        return on_device(network, self.device)

    def _check(self) -> None:
        """Refuse settings that make no sense."""
        check_network(self.architecture)
        fraction("validation", self.validation, "[)")
        whole("n_epochs", self.n_epochs)
        whole("batch_size", self.batch_size)
        positive("learning_rate", self.learning_rate)
        if self.weight_decay != 0:
            positive("weight_decay", self.weight_decay)


@dataclass(frozen=True)
class _Lessons:
    """Rows and what is said of them; ``cells`` (rows, 2, labels): probability, and weight."""

    rows: Rows
    cells: Targets
    scaling: Scaling

    def epoch(self, network: Any, index: Index, settings: Any, optimizer: Any) -> float:
        """Return the mean loss over these rows, in batches; with an optimizer, each is a step."""
        torch = require_torch("training")
        losses, sizes = [], []
        network.train(optimizer is not None)
        for start in range(0, len(index), settings.batch_size):
            chunk = index[start : start + settings.batch_size]
            if optimizer is not None and len(chunk) == 1 < len(index):
                continue  # one row says nothing to batch normalisation
            batch = torch.as_tensor(self.scaling(self.rows[chunk])).to(settings.device)
            cells = torch.as_tensor(self.cells[chunk]).to(settings.device)
            with torch.set_grad_enabled(optimizer is not None):
                loss = masked_loss(network(batch), *cells.unbind(1))
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
            sizes.append(len(chunk))
        return float(np.average(losses, weights=sizes))


def _fit_network(
    network: Any, lessons: _Lessons, sides: tuple[Index, Index], settings: Any
) -> None:
    """Train a network where it stands.

    ``settings`` is the :class:`ImageNetwork`. With a validation part the weights of its best epoch
    are kept, and the learning rate falls when its loss does not; without one it falls by the
    training loss.
    """
    torch = require_torch("training")
    how = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    optimizer = torch.optim.Adam(network.parameters(), **how, amsgrad=True)
    falling = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=_PLATEAU)
    learnt, judged = sides
    best, bar = None, np.inf
    for epoch in range(settings.n_epochs):
        order = learnt[torch.randperm(len(learnt)).numpy()]
        loss = lessons.epoch(network, order, settings, optimizer)
        if len(judged):
            loss = lessons.epoch(network, judged, settings, None)
        falling.step(loss)
        if len(judged) and loss < bar:
            best, bar = deepcopy(network.state_dict()), loss * (1 - _BETTER)
        if settings.progress is not None:
            settings.progress(epoch + 1, settings.n_epochs)
    if best is not None:
        network.load_state_dict(best)


def image_features(
    network: Any, rows: Rows, scaling: Scaling, device: str = "cpu", *, alone: bool = False
) -> npt.NDArray[np.float32]:
    """Return what goes into a network's last layer: (rows, features).

    Each row is seen as if it were alone: in batches of one fixed, padded shape, each by one thread
    (see :func:`privote.learning.rows.padded_blocks`) and by a copy that is thrown away; one by one
    where places in a batch round differently, and where ``alone`` asks for it.
    """
    torch = require_torch("image features")
    index = np.arange(len(rows))
    size = min(max(_BATCHES[0], _VALUES // int(np.prod(rows.shape))), _BATCHES[1]) // 32 * 32

    def features(batch: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        seen: list[Any] = []
        copy = on_device(deepcopy(network).eval(), device)
        hook = last_layer(copy).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            with torch.no_grad():
                copy(torch.tensor(scaling(batch)).to(device))
        finally:
            hook.remove()
        return np.asarray(seen[0].cpu().numpy(), np.float32)

    shape = 1 if alone else size, *rows.shape
    parts = by_themselves(features, lambda places: rows[places], index, shape, device)
    return np.concatenate([part for _, part in parts])


def by_themselves(
    features: Callable[[Any], Batch],
    read: Callable[[Index], Any],
    places: Index,
    shape: tuple[int, ...],
    device: str,
) -> Iterator[tuple[Index, Batch]]:
    """Yield places of rows and the features of what is read there, each row as if it were alone.

    ``shape`` is that of a batch, which is padded; where places in a batch round differently, rows
    are mapped one by one. A batch is mapped by one thread.
    """
    torch = require_torch("features")
    threads = torch.get_num_threads() if device == "cpu" else 1

    def mapped(block: tuple[Index, slice]) -> tuple[Index, Batch]:
        some, span = block
        return places[span], features(read(some))[: span.stop - span.start]

    with one_torch_thread():
        size = shape[0] if same_anywhere(features, shape, np.float32) else 1
        pool = ThreadPoolExecutor(threads)
        try:
            yield from pool.map(mapped, padded_blocks(places, size))
        finally:
            pool.shutdown(cancel_futures=True)


def published_constants(normalise: str, shape: tuple[int, ...]) -> Scaling:
    """Return the scaling of this name for rows of this shape; nothing is measured."""
    if normalise not in NORMALISE:
        raise InputError("normalise", f"must be one of {', '.join(NORMALISE)}", normalise)
    if normalise == "none":
        return Scaling.none(shape)
    mean, deviation = (np.array(values, np.float32) for values in _IMAGENET)
    if shape[0] == 1:
        mean, deviation = mean.mean(keepdims=True), deviation.mean(keepdims=True)
    if len(mean) != shape[0]:
        raise InputError(f"`normalise='imagenet'` needs 1 or 3 channels, got {shape[0]}")
    return Scaling(mean=mean, deviation=deviation)
