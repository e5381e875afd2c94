"""Image networks as scikit-learn classifiers: DenseNet-121, ResNet-50, a small one for tests.

They are teachers, and students on true or released labels. Training is not private: a teacher's
privacy comes from the vote. Pictures are read a batch at a time, and never all in memory.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ...errors import InputError, positive
from ..rows import (
    Progress,
    Targets,
    check_targets,
    fraction,
    padded_blocks,
    rounded,
    same_anywhere,
)
from ..teachers.votes import METRICS, best_thresholds
from .architectures import (
    Network,
    build_network,
    check_network,
    last_layer,
    load_weights,
    masked_loss,
    on_device,
    one_torch_thread,
    require_torch,
    seeded,
)
from .classifier import Index, NetworkClassifier, Rows, Scaling, check_counts

NORMALISE = ("none", "imagenet")
_PLATEAU = 10  # epochs without a better loss after which the learning rate falls to a tenth
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
    n_epochs, batch_size
        How often each row is seen, and how many rows a step takes.
    learning_rate, weight_decay
        Of Adam with amsgrad: as the paper trains DenseNet-121 (there for 100 epochs).
    validation
        Share of the rows kept for choosing the best epoch and the thresholds; 0 keeps none, and so
        do fewer than 10 rows.
    tune
        What each label's threshold makes best on the validation part: ``"BAC"``, ``"F1"``, or None
        for 0.5.
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
    n_epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    validation: float = 0.1
    tune: str | None = "BAC"
    normalise: str = "none"
    device: str = "cpu"
    random_state: Any = None
    progress: Progress | None = None

    def fit(self, X: Any, y: npt.ArrayLike) -> ImageNetwork:
        """Train on images (images, channels, height, width) and (images, labels).

        Labels are 1, 0, probabilities, and -1 (unknown); thresholds are tuned on rounded labels.

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
            held = round(self.validation * len(rows)) if len(rows) >= 10 else 0
            learns, seen, scale = network, rows, scaling
            if self.frozen:
                seen = Rows(image_features(network, rows, scaling, self.device))
                learns, scale = last_layer(network), Scaling.none(seen.shape)
            sides = (order[held:], order[:held])
            self.history_ = _fit_network(learns, _Lessons(seen, cells, scale), sides, self)
        self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))
        if held and self.tune is not None:
            kept = np.sort(order[:held])
            self.thresholds_ = best_thresholds(
                self._answers(Rows(rows[kept])), rounded(labels[kept]), self.tune
            )
        return self

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
        if self.tune is not None and self.tune not in METRICS:
            raise InputError("tune", f"must be one of {', '.join(METRICS)} or None", self.tune)
        check_counts(self, "n_epochs", "batch_size")
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
            some = index[start : start + settings.batch_size]
            if optimizer is not None and len(some) == 1 < len(index):
                continue  # one row says nothing to batch normalisation
            batch = torch.as_tensor(self.scaling(self.rows[some])).to(settings.device)
            cells = torch.as_tensor(self.cells[some]).to(settings.device)
            with torch.set_grad_enabled(optimizer is not None):
                loss = masked_loss(network(batch), *cells.unbind(1))
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
            sizes.append(len(some))
        return float(np.average(losses, weights=sizes))


def _fit_network(
    network: Any, lessons: _Lessons, sides: tuple[Index, Index], settings: Any
) -> dict[str, list[float]]:
    """Train a network where it stands and return the curves of training.

    ``settings`` is the :class:`ImageNetwork`. With a validation part the
    weights of its best epoch are kept, and the learning rate falls when its loss does not; without
    one both look at the training loss.
    """
    torch = require_torch("training")
    how = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    optimizer = torch.optim.Adam(network.parameters(), **how, amsgrad=True)
    falling = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=_PLATEAU)
    learnt, held = sides
    judge = "valid_loss" if len(held) else "train_loss"
    history: dict[str, list[float]] = {"learning_rate": [], "train_loss": [], judge: []}
    best, bar = None, np.inf
    for epoch in range(settings.n_epochs):
        history["learning_rate"].append(optimizer.param_groups[0]["lr"])
        order = learnt[torch.randperm(len(learnt)).numpy()]
        history["train_loss"].append(lessons.epoch(network, order, settings, optimizer))
        if len(held):
            history[judge].append(lessons.epoch(network, held, settings, None))
        loss = history[judge][-1]
        falling.step(loss)
        if loss < bar:
            best, bar = deepcopy(network.state_dict()), loss * (1 - _BETTER)
        if settings.progress is not None:
            settings.progress(epoch + 1, settings.n_epochs)
    if len(held) and best is not None:
        network.load_state_dict(best)
    return history


def image_features(
    network: Any, rows: Rows, scaling: Scaling, device: str = "cpu"
) -> npt.NDArray[np.float32]:
    """Return what goes into a network's last layer: (rows, features).

    Each row is seen as if it were alone: in batches of one fixed, padded shape, each by one thread
    (see :func:`privote.learning.rows.padded_blocks`) and by a copy that is thrown away; one by one
    where places in a batch round differently.
    """
    torch = require_torch("image features")
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

    def mapped(block: tuple[Any, slice]) -> npt.NDArray[np.float32]:
        some, place = block
        return features(rows[some])[: place.stop - place.start]

    threads = torch.get_num_threads() if device == "cpu" else 1
    with one_torch_thread(), ThreadPoolExecutor(threads) as pool:
        size = size if same_anywhere(features, (size, *rows.shape), np.float32) else 1
        return np.concatenate([*pool.map(mapped, padded_blocks(np.arange(len(rows)), size))])


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
