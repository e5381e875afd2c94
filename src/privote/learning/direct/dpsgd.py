"""DPSGD and adaptive DPSGD: the baselines of the paper, for any network."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit
from sklearn.utils import check_random_state

from ...errors import InputError, missing_extra
from ...files import Draft
from ..networks.architectures import (
    Network,
    build_network,
    check_network,
    last_layer,
    load_weights,
    one_torch_thread,
    require_torch,
    seeded,
    weights_of,
)
from ..networks.classifier import NetworkClassifier, Rows, Scaling, check_counts, check_shares
from ..networks.image import image_features, published_constants
from ..rows import Floats, Labels, Progress, padded_blocks
from .account import Paid
from .base import Checkpoints, Persons, PrivateTraining, check_descent, one_each
from .noise import Noise, TrainingPlan, affordable_rate

OPTIMIZERS = ("sgd", "adam")


@dataclass(eq=False, repr=False)
class DPSGDClassifier(PrivateTraining, NetworkClassifier):
    """A network trained by noisy gradients of clipped norm (Abadi et al. 2016).

    Nothing about the private rows leaves but the weights: no loss is recorded, and nothing is
    standardised by them. Scale features by public rows before. How many rows there are is public.
    NaN and infinity are refused before training, and a value beyond single precision is cut to the
    largest there is: whether a row was sampled never decides about an error.

    Parameters
    ----------
    epsilon, delta
        The promise for the whole training.
    network
        ``"linear"``, ``"mlp"``, ``"smallcnn"``, ``"densenet121"``, ``"resnet50"``, or a function of
        (shape, labels). Batch normalisation mixes records and is replaced by group normalisation;
        a network that mixes them in another way is refused, and so is one that keeps something of
        what it is shown, such as running statistics.
        For a linear model :class:`privote.learning.direct.gradients.DPLinear` does the same in a
        fraction of the time.
    adaptive
        Steer the clipping norm to ``quantile`` of the gradients' norms by a noisy count (Andrew et
        al. 2021), which is part of the same promise.
    adjacency
        ``"replace"``: one record changes, privote's promise. ``"add-remove"``: one record more or
        fewer, which most of the literature quotes.
    steps, sample_rate
        How many gradients, and with which probability a record takes part in each.
    clip
        Largest norm of one record's gradient (the first one, if adaptive).
    optimizer, learning_rate, momentum
        ``"sgd"`` or ``"adam"`` on the mean gradient in units of ``clip``. Without a rate: for Adam
        0.01, else as large as the noise allows, from public numbers: at most 3 for one layer, a
        third of that where the layers before it learn, too.
    average
        Answer with the mean of the weights over the second half of the steps.
    hidden, dropout
        Of ``"mlp"``. What is left out is drawn in secret, like the noise.
    weights, frozen, normalise
        Public weights to start from, whether to train the last layer only, and published constants:
        as for :class:`privote.learning.networks.image.ImageNetwork`.
    initial_share
        Public guess at how often a label is present.
    chunk
        Records whose gradients are in memory at once, rounded down to a multiple of 32; below that,
        and for a network that rounds differently at different places of a batch, one at a time.
    random_state
        Seeds the first weights. Not the noise.
    seed
        ``None``: cryptographic noise and sampling. A number makes the model *simulated*.
    progress
        Called as ``progress(done, steps)``.

    Attributes
    ----------
    network_, thresholds_, learning_rate_
        The trained torch module; 0.5 for every label; the rate that was used.
    privacy_
        :class:`~privote.learning.direct.account.TrainingPrivacy`: what may be published.
    history_
        ``clip``: the clipping norm of every step, which is public.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    _: KW_ONLY
    network: Network = "linear"
    adaptive: bool = False
    adjacency: str = "replace"
    steps: int = 200
    sample_rate: float = 0.1
    clip: float = 1.0
    quantile: float = 0.5
    optimizer: str = "sgd"
    learning_rate: float | None = None
    momentum: float = 0.9
    average: bool = True
    hidden: int = 128
    dropout: float = 0.0
    weights: str | os.PathLike[str] | None = None
    frozen: bool = False
    normalise: str = "none"
    initial_share: float = 0.1
    chunk: int = 64
    random_state: Any = None
    seed: int | None = None
    progress: Progress | None = None

    def _read(self, X: Any) -> Any:
        Rows(X, bounded=True)  # of the whole: what is sampled decides about no error
        return X

    def _restore(self, draft: Draft | None) -> None:
        note = None if draft is None else draft.read()
        self._first = int(check_random_state(self.random_state).randint(2**31 - 1))
        if note is not None:
            self._first = int(note)
        elif draft is not None:
            draft.note(b"%d" % self._first)

    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, records: int) -> Any:
        X, Y = one_each(rows, Y, unit)
        seen = Rows(X, bounded=True)
        scaling = published_constants(self.normalise, seen.shape)
        if X_public is not None and self.normalise == "none":
            scaling = Scaling.of([Rows(X_public)])
        with seeded(self._first):
            return *self._start(seen.shape, Y.shape[1]), seen, Y, scaling

    def _train(self, given: Any, plan: TrainingPlan, noise: Noise, paid: Paid) -> list[Floats]:
        kept = Checkpoints(paid, self.steps)
        network, chunk, rows, labels, scaling = given
        rate = affordable_rate(plan, self.privacy_.noise_multiplier, len(rows), self.momentum)
        usual = 0.01 if self.optimizer == "adam" else min(3.0, rate)
        if self.optimizer == "sgd" and not self.frozen and _layers(network) > 1:
            # Noise in one layer is multiplied by the next: at the rate of a linear model training
            # may end where all rows are answered alike.
            usual /= 3
        self.learning_rate_ = float(self.learning_rate or usual)
        # Dropout goes by places in the batch, and these by who else was sampled: whoever knew the
        # masks would see more than the price of sampling allows for.
        with seeded(noise.secret()), one_torch_thread():
            if self.frozen:
                seen = Rows(np.nan_to_num(image_features(network, rows, scaling)))
                head = last_layer(network)
                plain = Scaling.none(seen.shape)
                trained = self._descend(head, chunk, seen, labels, plain, noise, kept)
                head.load_state_dict(trained.state_dict())
            else:
                network = self._descend(network, chunk, rows, labels, scaling, noise, kept)
        self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))
        return self.drawn_()

    def drawn_(self) -> list[Floats]:
        """Return the weights, which were drawn."""
        return [*weights_of(self.network_).values()]

    @classmethod
    def _like(cls, network: Any, weights: dict[str, npt.NDArray[Any]]) -> Any:
        if any(name not in weights for name in network.state_dict()):
            from .private_optimizer import without_mixing

            return without_mixing(network)
        return network

    def _start(self, shape: tuple[int, ...], labels: int) -> tuple[Any, int]:
        """Return a network that keeps nothing of a row and mixes none, and the size of chunks."""
        from .private_optimizer import check_memory, chunk_size, without_mixing

        torch = require_torch("DPSGD")
        network = build_network(
            self.network, shape, labels, hidden=self.hidden, dropout=self.dropout
        )
        if self.weights is not None:
            load_weights(network, self.weights)
        with torch.no_grad():
            last_layer(network).bias.fill_(float(logit(self.initial_share)))
        # In use, batch normalisation goes by numbers of old: only training has to replace it.
        network = network.eval() if self.frozen else without_mixing(network).train()
        check_memory(network, shape)
        learns = last_layer(network) if self.frozen else network
        seen = (learns.in_features,) if self.frozen else shape
        with one_torch_thread():
            return network, chunk_size(learns, seen, labels, self.chunk)

    def _descend(
        self,
        network: Any,
        chunk: int,
        rows: Rows,
        labels: Labels,
        scaling: Scaling,
        noise: Noise,
        checkpoints: Checkpoints,
    ) -> Any:
        from .private_optimizer import PrivateOptimizer, gradients

        torch = require_torch("DPSGD")
        mean = torch.optim.swa_utils.AveragedModel(network.train())
        optimizer = PrivateOptimizer(
            self._steps_of(torch, network.parameters()),
            noise=noise,
            noise_multiplier=self.privacy_.noise_multiplier,
            clip=self.clip,
            batch=self.sample_rate * len(rows),
            quantile=self.quantile if self.adaptive else None,
        )
        self.history_: dict[str, list[float]] = {"clip": []}
        weights = [weight for weight in network.parameters() if weight.requires_grad]

        def state() -> bytes:
            held = {"weights": [weight.detach() for weight in weights], "mean": mean.state_dict()}
            held |= {"norm": optimizer.max_grad_norm, "clips": self.history_["clip"]}
            held["steps"] = optimizer.optimizer.state_dict()
            torch.save(held, data := BytesIO())
            return data.getvalue()

        if checkpoints.state is not None:
            held = torch.load(BytesIO(checkpoints.state), weights_only=True)
            with torch.no_grad():
                for weight, value in zip(weights, held["weights"], strict=True):
                    weight.copy_(value)
            mean.load_state_dict(held["mean"])
            optimizer.optimizer.load_state_dict(held["steps"])
            optimizer.max_grad_norm, self.history_["clip"] = held["norm"], held["clips"]
        for step in checkpoints.rest(len(self.history_["clip"])):
            self.history_["clip"].append(optimizer.max_grad_norm)
            chosen = noise.sample(len(rows), self.sample_rate)
            for some, place in padded_blocks(chosen, chunk):
                batch = torch.tensor(scaling(rows[some]))  # a copy: aligned the same every time
                truth = torch.tensor(labels[some]).float()
                optimizer.add(gradients(network, batch, truth), place.stop - place.start)
            optimizer.release()
            if step >= self.steps // 2 or not self.average:
                mean.update_parameters(network)
            checkpoints.keep(step + 1, state)
            if self.progress is not None:
                self.progress(step + 1, self.steps)
        return mean.module if self.average else network

    def _steps_of(self, torch: Any, weights: Any) -> Any:
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr=self.learning_rate_)
        return torch.optim.SGD(weights, lr=self.learning_rate_, momentum=self.momentum)

    def _plan(self) -> TrainingPlan:
        require_torch("DPSGD")
        try:
            import opacus  # noqa: F401
        except ImportError:
            raise missing_extra("deep", "DPSGD") from None
        check_network(self.network)
        check_counts(self, "hidden", "chunk")
        check_shares(self, "dropout")
        check_descent(self, "quantile")
        if self.optimizer not in OPTIMIZERS:
            raise InputError("optimizer", f"must be one of {', '.join(OPTIMIZERS)}", self.optimizer)
        return TrainingPlan(
            steps=self.steps, sample_rate=self.sample_rate, adjacency=self.adjacency
        )


def _layers(network: Any) -> int:
    """Return how many parts of a network have weights of their own."""
    return sum(any(True for _ in part.parameters(recurse=False)) for part in network.modules())
