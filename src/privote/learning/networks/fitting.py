"""Fitting a network with skorch. Imported where it is used: it needs torch and skorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, EarlyStopping, LRScheduler
from skorch.helper import predefined_split
from skorch.utils import noop
from torch import nn
from torch.utils.data import Dataset

from ..rows import Progress, Targets
from .architectures import masked_loss
from .augment import Augmentation
from .classifier import Rows, Scaling

Index = npt.NDArray[np.intp]
History = dict[str, list[float]]


class LabelledRows(Dataset):
    """Some rows and their labels, read a batch at a time.

    ``cells`` are (rows, 2, labels): each label's probability, and how much it counts.
    """

    def __init__(
        self,
        rows: Rows,
        cells: Targets,
        index: Index,
        scaling: Scaling,
        augment: tuple[Augmentation, Any] | None = None,
    ) -> None:
        self.rows, self.cells, self.index = rows, cells, index
        self.scaling, self.augment = scaling, augment

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: list[int]) -> list[tuple[Any, Any]]:
        """Return several rows at once; the name is the one torch looks for."""
        chosen = self.index[places]
        batch = torch.as_tensor(self.scaling(self.rows[chosen]))
        if self.augment is not None:
            change, generator = self.augment
            batch = change(batch, generator)
        truth = torch.as_tensor(self.cells[chosen])
        return list(zip(batch, truth, strict=True))


class MaskedLoss(nn.Module):
    """Binary cross-entropy with logits, weighted cell by cell."""

    def forward(self, logits: Any, cells: Any) -> Any:
        """Return the weighted mean over cells."""
        return masked_loss(logits, *cells.unbind(1))


class _Report(Callback):
    def __init__(self, progress: Progress | None, epochs: int) -> None:
        self.progress, self.epochs = progress, epochs

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        net.history.record("learning_rate", net.optimizer_.param_groups[0]["lr"])

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        if self.progress is not None:
            self.progress(len(net.history), self.epochs)


def fit_network(
    network: Any,
    training: LabelledRows,
    validation: LabelledRows | None,
    settings: Any,
) -> History:
    """Train a network where it stands and return the curves of training.

    ``settings`` is a :class:`privote.learning.ImageNetwork` that leaves nothing open.

    With a validation part the weights of its best epoch are kept, and the learning rate falls when
    its loss does not; without one both look at the training loss.
    """
    monitor = "train_loss" if validation is None else "valid_loss"
    falling = LRScheduler(
        policy=torch.optim.lr_scheduler.ReduceLROnPlateau,
        monitor=monitor,
        patience=settings.plateau,
    )
    callbacks: list[Any] = [("plateau", falling)]
    if validation is not None or settings.patience is not None:
        best = EarlyStopping(
            monitor=monitor,
            patience=settings.patience or settings.n_epochs + 1,
            load_best=validation is not None,
            sink=noop,
        )
        callbacks.append(("best", best))
    callbacks.append(("report", _Report(settings.progress, settings.n_epochs)))
    adam = settings.optimizer == "adam"
    net = NeuralNet(
        network,
        criterion=MaskedLoss,
        optimizer=torch.optim.Adam if adam else torch.optim.SGD,
        lr=settings.learning_rate,
        optimizer__weight_decay=settings.weight_decay,
        **({"optimizer__amsgrad": True} if adam else {}),
        max_epochs=settings.n_epochs,
        batch_size=settings.batch_size,
        iterator_train__shuffle=True,
        # Batch normalisation has nothing to say about one row.
        iterator_train__drop_last=len(training) % settings.batch_size == 1 and len(training) > 1,
        train_split=None if validation is None else predefined_split(validation),
        callbacks=callbacks,
        verbose=0,
    )
    net.fit(training, y=None)
    # The best epoch comes back after the last one: nothing may depend on which was which.
    network.load_state_dict(net.module_.state_dict())
    names = ["learning_rate", "train_loss"] + ([] if validation is None else ["valid_loss"])
    return {name: [float(value) for value in net.history[:, name]] for name in names}
