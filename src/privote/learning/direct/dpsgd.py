"""DPSGD and adaptive DPSGD: the baselines of the paper, for any network."""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit
from sklearn.utils import check_random_state

from ...errors import InputError, missing_extra, positive
from ..networks.architectures import (
    Network,
    build_network,
    check_network,
    last_layer,
    load_weights,
    require_torch,
    seeded,
)
from ..networks.classifier import NetworkClassifier, Rows, Scaling, check_counts, check_shares
from ..networks.image import image_features, published_constants
from ..rows import check_labels
from .account import begin, one_each
from .noise import Noise, TrainingPlan, affordable_rate

Labels = npt.NDArray[np.int8]
Progress = Callable[[int, int], None]

OPTIMIZERS = ("sgd", "adam")


class DPSGDClassifier(NetworkClassifier):
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
        a network that mixes them in another way is refused.
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
        0.01, else as large as the noise allows, at most 3, from public numbers.
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
        Records whose gradients are in memory at once.
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

    def __init__(
        self,
        epsilon: float = 8.0,
        delta: float = 1e-5,
        *,
        network: Network = "linear",
        adaptive: bool = False,
        adjacency: str = "replace",
        steps: int = 200,
        sample_rate: float = 0.1,
        clip: float = 1.0,
        quantile: float = 0.5,
        optimizer: str = "sgd",
        learning_rate: float | None = None,
        momentum: float = 0.9,
        average: bool = True,
        hidden: int = 128,
        dropout: float = 0.0,
        weights: str | os.PathLike[str] | None = None,
        frozen: bool = False,
        normalise: str = "none",
        initial_share: float = 0.1,
        chunk: int = 256,
        random_state: Any = None,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.network = network
        self.adaptive = adaptive
        self.adjacency = adjacency
        self.steps = steps
        self.sample_rate = sample_rate
        self.clip = clip
        self.quantile = quantile
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.hidden = hidden
        self.dropout = dropout
        self.weights = weights
        self.frozen = frozen
        self.normalise = normalise
        self.initial_share = initial_share
        self.chunk = chunk
        self.random_state = random_state
        self.seed = seed
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        X_public: Any = None,
        *,
        groups: Any = None,
        ledger: Any = None,
        dataset: str = "default",
        consumer: str | None = None,
    ) -> DPSGDClassifier:
        """Train on private rows and labels (rows, labels) of 1, 0 and -1 (unknown).

        ``X_public`` are rows of the same kind that need no protection: they tell the scale of
        features. With ``groups`` (rows,) the first row of every person takes part, and the promise
        is for persons. With a ``ledger`` the budget is kept there, and charged before training
        starts.
        """
        plan = TrainingPlan(
            steps=self.steps, sample_rate=self.sample_rate, adjacency=self.adjacency
        )
        self._check()
        rows = Rows(X, bounded=True)
        labels = check_labels(y, len(rows))
        if groups is not None:
            X, labels = one_each(X, labels, groups)
            rows = Rows(X, bounded=True)
        noise = Noise(self.seed)
        scaling = published_constants(self.normalise, rows.shape)
        if X_public is not None and self.normalise == "none":
            scaling = Scaling.of([Rows(X_public)])
        with seeded(int(check_random_state(self.random_state).randint(2**31 - 1))):
            network = self._start(rows.shape, labels.shape[1])  # refuses before anything is charged
            self.privacy_ = begin(
                plan,
                self.epsilon,
                self.delta,
                records=len(rows),
                labels=labels.shape[1],
                simulated=noise.simulated,
                persons=groups is not None,
                ledger=ledger,
                dataset=dataset,
                consumer=consumer,
            )
            multiplier = self.privacy_.noise_multiplier
            fastest = min(3.0, affordable_rate(plan, multiplier, len(rows), self.momentum))
            usual = 0.01 if self.optimizer == "adam" else fastest
            self.learning_rate_ = float(self.learning_rate or usual)
            if self.frozen:
                seen = Rows(np.nan_to_num(image_features(network, rows, scaling)))
                head = last_layer(network)
                trained = self._train(
                    head, seen, labels, Scaling.none(seen.shape), multiplier, noise
                )
                head.load_state_dict(trained.state_dict())
            else:
                network = self._train(network, rows, labels, scaling, multiplier, noise)
        return self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))

    @classmethod
    def _like(cls, network: Any, weights: dict[str, npt.NDArray[Any]]) -> Any:
        if any(name not in weights for name in network.state_dict()):
            from .private_optimizer import without_mixing

            return without_mixing(network)
        return network

    def _start(self, shape: tuple[int, ...], labels: int) -> Any:
        """Return a network of which no layer that is trained, or trained on, mixes records."""
        from .private_optimizer import check_apart, without_mixing

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
        check_apart(network, shape)
        return network

    def _train(
        self,
        network: Any,
        rows: Rows,
        labels: Labels,
        scaling: Scaling,
        multiplier: float,
        noise: Noise,
    ) -> Any:
        from .private_optimizer import PrivateOptimizer, add_gradients, private_module

        torch = require_torch("DPSGD")
        mean = torch.optim.swa_utils.AveragedModel(network)
        module = private_module(network.train())
        # Dropout goes by places in the batch, and these by who else was sampled: whoever knew the
        # masks would see more than the price of sampling allows for.
        torch.manual_seed(noise.secret())
        optimizer = PrivateOptimizer(
            self._steps_of(torch, module.parameters()),
            noise=noise,
            noise_multiplier=multiplier,
            clip=self.clip,
            batch=self.sample_rate * len(rows),
            quantile=self.quantile if self.adaptive else None,
        )
        self.history_: dict[str, list[float]] = {"clip": []}
        for step in range(self.steps):
            self.history_["clip"].append(optimizer.max_grad_norm)
            chosen = noise.sample(len(rows), self.sample_rate)
            for start in range(0, len(chosen), self.chunk):
                some = chosen[start : start + self.chunk]
                batch = torch.as_tensor(scaling(rows[some]))
                add_gradients(module, optimizer, batch, torch.as_tensor(labels[some]).float())
            optimizer.release()
            if step >= self.steps // 2 or not self.average:
                mean.update_parameters(module._module)
            if self.progress is not None:
                self.progress(step + 1, self.steps)
        return mean.module if self.average else module.to_standard_module()

    def _steps_of(self, torch: Any, weights: Any) -> Any:
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr=self.learning_rate_)
        return torch.optim.SGD(weights, lr=self.learning_rate_, momentum=self.momentum)

    def _check(self) -> None:
        require_torch("DPSGD")
        try:
            import opacus  # noqa: F401
        except ImportError:
            raise missing_extra("deep", "DPSGD") from None
        check_network(self.network)
        check_counts(self, "hidden", "chunk")
        check_shares(self, "dropout", "momentum")
        if self.momentum == 1:
            raise InputError("momentum", "must be less than 1, got 1")
        positive("clip", self.clip)
        if self.learning_rate is not None:
            positive("learning_rate", self.learning_rate)
        for name in ("quantile", "initial_share"):
            value: Any = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not 0 < float(value) < 1:
                raise InputError(name, "must lie strictly between 0 and 1", value)
        if self.optimizer not in OPTIMIZERS:
            raise InputError("optimizer", f"must be one of {', '.join(OPTIMIZERS)}", self.optimizer)
