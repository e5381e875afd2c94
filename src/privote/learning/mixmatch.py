"""MixMatch for many labels: a student of few released labels and many public rows without any.

Berthelot et al. 2019, for labels that are yes or no each. Differences from print. Because every
label is a question of its own: guesses are sharpened label by label, and the losses are binary.
Because labels are few and noisy: a released label may be missing (ABSTAIN), is then guessed, and
left out of the supervised loss; guesses are aligned with how often each label was released, are
made from weakly changed rows, and the unlabelled loss is the cross-entropy (all three as in
ReMixMatch, Berthelot et al. 2020); it is the running mean of the weights that guesses (Tarvainen
and Valpola 2017).
"""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ..errors import InputError, positive, whole
from .networks import (
    Network,
    NetworkClassifier,
    Rows,
    Scaling,
    build_network,
    check_network,
    last_layer,
    masked_loss,
    require_torch,
    seeded,
    usual_network,
)
from .rows import Progress, Targets, check_targets, count_rows, fraction, matching, take_rows

# What a MixMatchClassifier takes where its settings are None, and what is no setting.
_VECTORS = {"weight_decay": 1.0, "mixup": 0.75, "unlabelled_weight": 5.0, "feature_dropout": 0.5}
_VECTORS |= {"warmup": 0.0, "noise": 0.1}
_IMAGES = {"weight_decay": 0.05, "mixup": 0.0, "unlabelled_weight": 1.0, "feature_dropout": 0.0}
_IMAGES |= {"warmup": 0.4, "noise": 0.05}

_BATCH = 64  # labelled rows of a step, and as many unlabelled ones
_RATE = 2e-3  # of AdamW, at first
_COPIES = 2  # K: over how many changed copies of a row a guess is averaged
_TEMPERATURE = 0.7  # T: guesses are sharpened with it
_RAMP = 0.5  # share of the steps over which the unlabelled loss rises
_EMA = 0.995  # share kept by the running mean of weights that predicts in the end
_WEAK = 0.4  # rows to guess about are changed by this share of noise and dropout only


@dataclass(eq=False, repr=False)
class MixMatchClassifier(NetworkClassifier):
    """A network that learns from labelled rows and from its own guesses about unlabelled ones.

    Parameters
    ----------
    network
        ``"linear"`` or ``"mlp"``; on images ``"smallcnn"``, ``"densenet121"`` or ``"resnet50"``; or
        a function of (shape of a row, labels) that returns a torch module ending in a linear layer.
        None: ``"mlp"``, on images ``"smallcnn"``.
    hidden
        Of ``"mlp"``: units, half of which are left out while training.
    steps
        Of the optimiser (AdamW, cosine schedule), each of 64 labelled rows and as many unlabelled
        ones.
    mixup
        α of the Beta distribution of shares; 0 mixes nothing.
    unlabelled_weight
        λ_u. None means 5 for vectors; 1 for images, after 0.4 of the steps: there a network has to
        learn to see before it can guess. A weight of 0 trains on the labelled rows only.
    feature_dropout
        The share of values that are set to 0 where rows are changed. None means 0.5 for vectors, 0
        for images.
    random_state
        Seeds everything. A student learns from published labels: nothing here must be secret.
    progress
        Called as ``progress(done, steps)``.

    Attributes
    ----------
    network_
        The trained torch module.
    thresholds_
        (labels,) with which ``predict`` says 1 on the unlabelled rows as often as was released.
    """

    accepts_soft = True
    dropout = 0.5

    network: Network | None = None
    _: KW_ONLY
    hidden: int = 256
    steps: int = 1000
    mixup: float | None = None
    unlabelled_weight: float | None = None
    feature_dropout: float | None = None
    random_state: Any = None
    progress: Progress | None = None

    def fit(self, X: Any, y: npt.ArrayLike, X_unlabelled: Any = None) -> MixMatchClassifier:
        """Learn from released labels and from public rows without labels.

        Parameters
        ----------
        X
            (rows, features), dense or sparse, or (images, channels, height, width), in memory or on
            disk (:class:`privote.datasets.images.Images`).
        y
            (rows, labels) of 1, 0, probabilities and -1 (ABSTAIN).
        X_unlabelled
            Further rows of the same kind; without any, guesses are about ``X`` itself.
        """
        require_torch("MixMatch")
        rows = Rows(X)
        labels = check_targets(y, len(rows))
        weights = labels >= 0
        pool = self._pool(rows, X_unlabelled)
        answered = np.flatnonzero((labels >= 0).any(axis=1))
        if not len(answered):
            raise InputError("y", "must have at least one known label, got only -1")
        recipe = self._recipe(len(rows.shape) == 3)
        if len(answered) < len(labels):
            rows = Rows(take_rows(X, answered))
            labels, weights = labels[answered], weights[answered]
        scaling = Scaling.of([rows, pool])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with seeded(seed) as generator:
            network = build_network(
                self.network or usual_network(rows.shape),
                rows.shape,
                labels.shape[1],
                hidden=self.hidden,
                dropout=self.dropout,
            )
            training = Training(
                network,
                recipe,
                (rows, pool),
                (labels, weights),
                scaling,
                (np.random.default_rng(seed), generator),
            )
            average = training.run(self.progress)
        self._fitted(average, scaling, rows.shape, np.full(labels.shape[1], 0.5))
        self.thresholds_ = matching(self._answers(pool), training.wanted.numpy())
        return self

    def _pool(self, rows: Rows, X_unlabelled: Any) -> Rows:
        if X_unlabelled is None or count_rows(X_unlabelled) == 0:
            return rows
        pool = Rows(X_unlabelled)
        if pool.shape != rows.shape:
            raise InputError(
                "X_unlabelled", f"must have rows like `X`, of shape {rows.shape}, got {pool.shape}"
            )
        return pool

    def _recipe(self, images: bool) -> Recipe:
        if self.network is not None:
            check_network(self.network)
        whole("steps", self.steps)
        whole("hidden", self.hidden)
        asked = {name: value for name, value in self.get_params().items() if value is not None}
        recipe = Recipe(**(_IMAGES if images else _VECTORS) | asked)
        for name in ("mixup", "unlabelled_weight"):
            if getattr(recipe, name) != 0:
                positive(name, getattr(recipe, name))
        fraction("feature_dropout", recipe.feature_dropout, "[)")
        return recipe


# -- one step of it --------------------------------------------------------------------------------

_FORGET = 0.01  # how fast the running mean of guesses follows


def sharpen(chance: Any, temperature: float) -> Any:
    """Return p^(1/T) / (p^(1/T) + (1−p)^(1/T)): towards 0 and 1 for T < 1."""
    torch = require_torch("MixMatch")
    tiny = torch.finfo(chance.dtype).tiny
    odds = torch.log(chance.clamp(min=tiny)) - torch.log1p(-chance)
    return torch.sigmoid(odds / temperature)


def aligned(chance: Any, wanted: Any, running: Any) -> Any:
    """Return guesses whose odds are scaled by those of ``wanted`` over those of ``running``."""
    yes = chance * wanted / running
    no = (1 - chance) * (1 - wanted) / (1 - running)
    return yes / (yes + no)


def mixed(inputs: Any, targets: Any, alpha: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Mix each row with another; the row itself has the larger share, max(λ, 1−λ)."""
    torch = require_torch("MixMatch")
    share = rng.beta(alpha, alpha, size=len(inputs))
    share = torch.as_tensor(np.maximum(share, 1 - share), dtype=inputs.dtype)
    partner = torch.as_tensor(rng.permutation(len(inputs)))
    wide = share.reshape(-1, *[1] * (inputs.ndim - 1))
    tall = share[:, None]
    return (
        wide * inputs + (1 - wide) * inputs[partner],
        tall * targets + (1 - tall) * targets[partner],
    )


class Recipe(SimpleNamespace):
    """How to train: parameters of :class:`privote.learning.MixMatchClassifier`, none left open."""

    def changed(self, batch: Any, generator: Any, by: float = 1.0) -> Any:
        """Return a copy of a batch with noise and missing features, which leave labels alone.

        The features that are left grow so that sums stay as they are. ``by`` scales the change.
        """
        torch, dropped = require_torch("MixMatch"), by * self.feature_dropout
        if self.noise:
            batch = batch + by * self.noise * torch.randn(batch.shape, generator=generator)
        if dropped:
            mask = torch.rand(batch.shape, generator=generator) >= dropped
            batch = batch * mask / (1 - dropped)
        return batch

    def weight(self, step: int) -> float:
        """Return the weight of the unlabelled loss: 0, then rising evenly, then all of it."""
        done = step / self.steps - self.warmup
        rising = done / _RAMP
        return float(self.unlabelled_weight * min(1.0, max(0.0, rising))) if done >= 0 else 0.0


class Training:
    """A network in training: what it sees, what it guesses, and its running mean."""

    def __init__(
        self,
        network: Any,
        recipe: Recipe,
        rows: tuple[Rows, Rows],
        labels: tuple[Targets, npt.NDArray[Any]],
        scaling: Scaling,
        generators: tuple[np.random.Generator, Any],
    ) -> None:
        self._torch = require_torch("MixMatch")
        self.network, self.recipe, self.scaling = network, recipe, scaling
        self.labelled, self.unlabelled = rows
        self.rng, self.generator = generators
        targets, weights = labels  # how much each cell counts: 0 where it is unknown
        self.known = self._torch.as_tensor(weights).float()
        self.truth = self._torch.as_tensor(targets).clamp(min=0).float()
        # One yes and one no more than were released: no share is 0 or 1.
        self.wanted = (self.truth * self.known).sum(0).add(1) / self.known.sum(0).add(2)
        self.heard = self.known.any(0)  # of a label never released nobody knows how common it is
        self.running: Any = None  # how often each label has been guessed lately
        with self._torch.no_grad():
            last_layer(network).bias.copy_(self._torch.logit(self.wanted))
        self.average = copy.deepcopy(network).eval()
        self.optimizer = self._torch.optim.AdamW(
            network.parameters(), lr=_RATE, weight_decay=recipe.weight_decay
        )

    def run(self, progress: Progress | None) -> Any:
        """Take all steps; return the averaged network."""
        steps = self.recipe.steps
        self.network.train()
        for step in range(steps):
            self._step(step)
            self._follow(step)
            if progress is not None:
                progress(step + 1, steps)
        return self.average

    def _step(self, step: int) -> None:
        recipe = self.recipe
        chosen = self.rng.integers(len(self.labelled), size=_BATCH)
        batch = self._read(self.labelled, chosen)
        inputs = [recipe.changed(batch, self.generator)]
        weights = self.known[chosen]
        targets = [self._filled(batch, self.truth[chosen], weights)]
        weight = recipe.weight(step)
        if weight:
            unlabelled = self.rng.integers(len(self.unlabelled), size=_BATCH)
            unlabelled = self._read(self.unlabelled, unlabelled)
            inputs += [recipe.changed(unlabelled, self.generator) for _ in range(_COPIES)]
            targets += [self._guess(unlabelled)] * _COPIES
        x, y = self._torch.cat(inputs), self._torch.cat(targets)
        if recipe.mixup:
            x, y = mixed(x, y, recipe.mixup, self.rng)
        logits = self.network(x)
        loss = masked_loss(logits[: len(chosen)], y[: len(chosen)], weights)
        if weight:
            entropy = self._torch.nn.functional.binary_cross_entropy_with_logits
            loss = loss + weight * entropy(logits[len(chosen) :], y[len(chosen) :])
        self._descend(loss, step)

    def _read(self, rows: Rows, index: npt.NDArray[np.int64]) -> Any:
        return self._torch.as_tensor(self.scaling(rows[index]))

    def _guess(self, batch: Any) -> Any:
        """Return sharpened guesses for some rows: (rows, labels)."""
        chance = self._chance(batch)
        if self.running is None:
            self.running = chance.mean(0)
        self.running += _FORGET * (chance.mean(0) - self.running)
        evened = aligned(chance, self.wanted, self.running.clamp(1e-4, 1 - 1e-4))
        return sharpen(self._torch.where(self.heard, evened, chance), _TEMPERATURE)

    def _chance(self, batch: Any) -> Any:
        """Return probabilities, a mean over weakly changed copies: (rows, labels)."""
        changed = self.recipe.changed
        with self._torch.no_grad():
            logits = [self.average(changed(batch, self.generator, _WEAK)) for _ in range(_COPIES)]
            return sum(self._torch.sigmoid(logit) for logit in logits) / _COPIES

    def _filled(self, batch: Any, truth: Any, known: Any) -> Any:
        """Return released labels, with guesses where there is none, for others to mix with."""
        if bool(known.all()):
            return truth
        guess = sharpen(self._chance(batch), _TEMPERATURE)
        return self._torch.where(known > 0, truth, guess)

    def _descend(self, loss: Any, step: int) -> None:
        for group in self.optimizer.param_groups:
            share = 7 * step / (16 * self.recipe.steps)
            group["lr"] = _RATE * float(np.cos(np.pi * share))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def _follow(self, step: int) -> None:
        """Move the average towards the network; faster at first, when there is little to keep."""
        keep = min(_EMA, (1 + step) / (10 + step))
        with self._torch.no_grad():
            for mean, value in zip(
                self.average.parameters(), self.network.parameters(), strict=True
            ):
                mean.mul_(keep).add_(value, alpha=1 - keep)
            for mean, value in zip(self.average.buffers(), self.network.buffers(), strict=True):
                mean.copy_(value)
