"""Image networks as scikit-learn classifiers: DenseNet-121, ResNet-50, a small one for tests.

They are teachers, students on true or released labels, and makers of features. Training is not
private: a teacher's privacy comes from the vote.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...errors import InputError, positive
from ..rows import Progress, Targets, check_targets, fraction, padded_blocks, rounded
from ..teachers.votes import METRICS, best_thresholds
from .architectures import (
    Network,
    build_network,
    check_network,
    last_layer,
    load_weights,
    masked_loss,
    one_torch_thread,
    require_torch,
    seeded,
)
from .classifier import Augmentation, Index, NetworkClassifier, Rows, Scaling, check_counts

# What the paper trains with (its appendix "Experimental Details"). It does not give the batch of
# ResNet-50; the small network is ours.
TRAINING: dict[str, dict[str, Any]] = {
    "densenet121": {
        "optimizer": "adam",
        "n_epochs": 100,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "weight_decay": 1e-5,
    },
    "resnet50": {
        "optimizer": "sgd",
        "n_epochs": 1000,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "weight_decay": 1e-4,
    },
    "smallcnn": {
        "optimizer": "adam",
        "n_epochs": 30,
        "batch_size": 64,
        "learning_rate": 2e-3,
        "weight_decay": 1e-5,
    },
}
OPTIMIZERS = ("adam", "sgd")
NORMALISE = ("none", "imagenet")
_BETTER = 1e-4  # by how much, relative, a loss must fall to count as better
_VALUES, _BATCHES = 1 << 22, (32, 256)  # numbers in a batch of features; its fewest and most rows
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
    optimizer, n_epochs, batch_size, learning_rate, weight_decay
        None: as the paper trains this architecture, see ``TRAINING``; Adam is with amsgrad.
    plateau
        Epochs without a better loss after which the learning rate falls to a tenth.
    patience
        Epochs without a better loss after which training stops; None never stops early.
    validation
        Share of the rows kept for choosing the best epoch and the thresholds; 0 keeps none, and so
        do fewer than 10 rows.
    tune
        What each label's threshold makes best on the validation part: ``"BAC"``, ``"F1"``, or None
        for 0.5.
    normalise
        ``"none"`` leaves pixels from 0 to 1; ``"imagenet"`` subtracts and divides by the published
        constants, which weights trained on ImageNet expect.
    augment
        A function (batch, generator) such as :class:`privote.learning.networks.classifier.Augment`.
    random_state
        Seeds weights, order and the validation part.
    progress
        Called as ``progress(epochs done, epochs)``.

    Attributes
    ----------
    network_
        The trained torch module.
    history_
        ``learning_rate``, ``train_loss`` and ``valid_loss``, one number an epoch.
    thresholds_
        (labels,) what ``predict`` uses.
    """

    accepts_soft = True
    _named_by: ClassVar[str] = "architecture"

    architecture: Network = "densenet121"
    _: KW_ONLY
    weights: str | os.PathLike[str] | None = None
    frozen: bool = False
    optimizer: str | None = None
    n_epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    plateau: int = 10
    patience: int | None = None
    validation: float = 0.1
    tune: str | None = "BAC"
    normalise: str = "none"
    augment: Augmentation | None = None
    random_state: Any = None
    progress: Progress | None = None

    def fit(self, X: Any, y: npt.ArrayLike) -> ImageNetwork:
        """Train on images (images, channels, height, width) and (images, labels).

        Labels are 1, 0, probabilities, and -1 (unknown); thresholds are tuned on rounded labels.

        ``X`` may be an array of float32 or uint8, or images on disk
        (:class:`privote.datasets.images.Images`).
        """
        require_torch("an image network")
        rows = Rows(X)
        labels = check_targets(y, len(rows))
        cells = np.stack([np.maximum(labels, 0), labels >= 0], axis=1).astype(np.float32)
        settings = self._settings()
        if len(rows) < 2:
            raise InputError("X", f"must have at least 2 rows, got {len(rows)}")
        scaling = published_constants(self.normalise, rows.shape)
        rng = check_random_state(self.random_state)
        with seeded(int(rng.randint(2**31 - 1))) as generator:
            network = build_network(self.architecture, rows.shape, labels.shape[1])
            if self.weights is not None:
                load_weights(network, self.weights)
            self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))
            order = rng.permutation(len(rows))
            held = round(self.validation * len(rows)) if len(rows) >= 10 else 0
            self._train(rows, cells, (order[held:], order[:held]), settings, generator)
        network.eval()
        if held and self.tune is not None:
            kept = np.sort(order[:held])
            self.thresholds_ = best_thresholds(
                self._answers(Rows(rows[kept])), rounded(labels[kept]), self.tune
            )
        return self

    def features(self, X: Any) -> npt.NDArray[np.float32]:
        """Return what goes into the last layer: (images, features)."""
        check_is_fitted(self, "network_")
        return image_features(self.network_, Rows(X), self.scaling_)

    def _train(
        self,
        rows: Rows,
        cells: Targets,
        parts: tuple[Index, Index],
        settings: Any,
        generator: Any,
    ) -> None:
        part, scaling = self.network_, self.scaling_
        augment = None if self.augment is None else (self.augment, generator)
        if self.frozen:
            rows = Rows(image_features(part, rows, scaling))
            part, scaling, augment = last_layer(part), Scaling.none(rows.shape), None
        training = _LabelledRows(rows, cells, parts[0], scaling, augment)
        held = _LabelledRows(rows, cells, parts[1], scaling) if len(parts[1]) else None
        self.history_ = _fit_network(part, training, held, settings)

    def _settings(self) -> Any:
        """Return a network like this one, of which nothing is left open."""
        check_network(self.architecture)
        fraction("validation", self.validation, "[)")
        if self.tune is not None and self.tune not in METRICS:
            raise InputError("tune", f"must be one of {', '.join(METRICS)} or None", self.tune)
        check_counts(self, "plateau", *([] if self.patience is None else ["patience"]))
        name = self.architecture if isinstance(self.architecture, str) else "densenet121"
        usual = TRAINING.get(name, TRAINING["densenet121"])
        settled = replace(self, **{key: usual[key] for key in usual if getattr(self, key) is None})
        if settled.optimizer not in OPTIMIZERS:
            raise InputError(
                "optimizer", f"must be one of {', '.join(OPTIMIZERS)}", settled.optimizer
            )
        check_counts(settled, "n_epochs", "batch_size")
        positive("learning_rate", settled.learning_rate)
        if settled.weight_decay != 0:
            positive("weight_decay", settled.weight_decay)
        return settled


@dataclass(frozen=True)
class _LabelledRows:
    """Some rows and their labels, which torch reads a batch at a time.

    ``cells`` are (rows, 2, labels): each label's probability, and how much it counts.
    """

    rows: Rows
    cells: Targets
    index: Index
    scaling: Scaling
    augment: tuple[Augmentation, Any] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __getitems__(self, places: list[int]) -> list[tuple[Any, Any]]:
        """Return several rows at once; the name is the one torch looks for."""
        torch = require_torch("training")
        chosen = self.index[places]
        batch = torch.as_tensor(self.scaling(self.rows[chosen]))
        if self.augment is not None:
            change, generator = self.augment
            batch = change(batch, generator)
        return list(zip(batch, torch.as_tensor(self.cells[chosen]), strict=True))


def _fit_network(
    network: Any, training: _LabelledRows, held: _LabelledRows | None, settings: Any
) -> dict[str, list[float]]:
    """Train a network where it stands and return the curves of training.

    ``settings`` is an :class:`ImageNetwork` that leaves nothing open. With a validation part the
    weights of its best epoch are kept, and the learning rate falls when its loss does not; without
    one both look at the training loss.
    """
    torch = require_torch("training")
    kind, more = torch.optim.SGD, {}
    if settings.optimizer == "adam":
        kind, more = torch.optim.Adam, {"amsgrad": True}
    weights, rate, decay = network.parameters(), settings.learning_rate, settings.weight_decay
    optimizer = kind(weights, lr=rate, weight_decay=decay, **more)
    falling = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=settings.plateau)
    size, loader = settings.batch_size, torch.utils.data.DataLoader
    alone = len(training) > 1 and len(training) % size == 1  # says nothing to batch normalisation
    parts = {"train_loss": loader(training, size, shuffle=True, drop_last=alone)}
    if held is not None:
        parts["valid_loss"] = loader(held, size)
    history: dict[str, list[float]] = {"learning_rate": [], **{name: [] for name in parts}}
    best, bar, missed = None, np.inf, 0
    for epoch in range(settings.n_epochs):
        history["learning_rate"].append(optimizer.param_groups[0]["lr"])
        for name, batches in parts.items():
            steps = optimizer if name == "train_loss" else None
            history[name].append(_epoch(network, batches, steps))
        loss = history["train_loss" if held is None else "valid_loss"][-1]
        falling.step(loss)
        missed += 1
        if loss < bar:
            best, bar, missed = deepcopy(network.state_dict()), loss * (1 - _BETTER), 0
        if settings.progress is not None:
            settings.progress(epoch + 1, settings.n_epochs)
        if missed == settings.patience:
            break
    if held is not None and best is not None:
        network.load_state_dict(best)
    return history


def _epoch(network: Any, batches: Any, optimizer: Any) -> float:
    """Return the mean loss over batches; with an optimizer, each is a step."""
    torch = require_torch("training")
    losses, sizes = [], []
    network.train(optimizer is not None)
    for rows, cells in batches:
        with torch.set_grad_enabled(optimizer is not None):
            loss = masked_loss(network(rows), *cells.unbind(1))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        sizes.append(len(rows))
    return float(np.average(losses, weights=sizes))


@dataclass(eq=False, repr=False)
class ImageFeatures(TransformerMixin, BaseEstimator):
    """What a frozen network sees in images: (images, features), to train linear teachers on.

    The same network for everybody, from a public file or a public seed, so it costs no privacy.

    Parameters
    ----------
    architecture, weights, normalise
        As for :class:`ImageNetwork`.
    random_state
        Seeds the weights if there is no file; features at random are rarely worth having.
    """

    architecture: Network = "densenet121"
    _: KW_ONLY
    weights: str | os.PathLike[str] | None = None
    normalise: str = "none"
    random_state: int = 0

    def fit(self, X: Any, y: Any = None) -> ImageFeatures:
        """Build the network; nothing is learnt from ``X``, only the shape of an image."""
        require_torch("image features")
        shape = Rows(X).shape
        self.scaling_ = published_constants(self.normalise, shape)
        with seeded(int(self.random_state)):
            self.network_ = build_network(self.architecture, shape, 1)
        if self.weights is not None:
            load_weights(self.network_, self.weights)
        self.network_.eval()
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the features of images."""
        check_is_fitted(self, "network_")
        return image_features(self.network_, Rows(X), self.scaling_)


def image_features(network: Any, rows: Rows, scaling: Scaling) -> npt.NDArray[np.float32]:
    """Return what goes into a network's last layer: (rows, features).

    Each row is seen as if it were alone: in batches of one fixed, padded shape, each by one thread
    (see :func:`privote.learning.rows.padded_blocks`), and by a copy that is thrown away. A caller
    who gives one row at a time gets it in a batch of one, from the network itself.
    """
    torch = require_torch("image features")
    size = min(max(_BATCHES[0], _VALUES // int(np.prod(rows.shape))), _BATCHES[1]) // 32 * 32
    size = size if len(rows) > 1 else 1

    def batch(block: tuple[Any, slice]) -> Any:
        some, place = block
        seen: list[Any] = []
        copy = (network if size == 1 else deepcopy(network)).eval()
        hook = last_layer(copy).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            with torch.no_grad():
                copy(torch.tensor(scaling(rows[some])))
        finally:
            hook.remove()
        return seen[0][: place.stop - place.start]

    threads = torch.get_num_threads()
    with one_torch_thread(), ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(batch, padded_blocks(np.arange(len(rows)), size)))
    return np.asarray(torch.cat(parts).numpy(), np.float32)


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
