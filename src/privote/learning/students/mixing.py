"""What one step of MixMatch computes, for labels that are yes or no each (Berthelot et al. 2019).

Differences from print. Because every label is a question of its own: guesses are sharpened label by
label, and the losses are binary. Because labels are few and noisy: a released label may be missing
(ABSTAIN), is then guessed, and left out of the supervised loss; guesses are aligned with how often
each label was released, are made from weakly changed rows, and the unlabelled loss may be the
cross-entropy (all three as in ReMixMatch, Berthelot et al. 2020); it is the running mean of the
weights that guesses (Tarvainen and Valpola 2017).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..networks.architectures import last_layer, masked_loss, require_torch
from ..networks.classifier import Rows, Scaling
from ..rows import Progress, Targets

History = dict[str, list[float]]

_FORGET = 0.01  # how fast the running mean of guesses follows
UNLABELLED_LOSSES = ("cross-entropy", "l2")
_POINTS = 100  # of the training curves


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
    """How to train: parameters of :class:`privote.learning.MixMatchClassifier`, none left open.

    But for ``augment`` and ``weak``, which are the changes of rows themselves.
    """

    def weight(self, step: int) -> float:
        """Return the weight of the unlabelled loss: 0, then rising evenly, then all of it."""
        done = step / self.steps - self.warmup
        rising = 1.0 if self.ramp == 0 else done / self.ramp
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
        targets, known = labels  # how much each cell counts: 0 where it is unknown
        self.known = self._torch.as_tensor(known).float()
        self.truth = self._torch.as_tensor(targets).clamp(min=0).float()
        # One yes and one no more than were released: no share is 0 or 1.
        self.wanted = (self.truth * self.known).sum(0).add(1) / self.known.sum(0).add(2)
        self.heard = self.known.any(0)  # of a label never released nobody knows how common it is
        self.running: Any = None  # how often each label has been guessed lately
        with self._torch.no_grad():
            last_layer(network).bias.copy_(self._torch.logit(self.wanted))
        self.average = copy.deepcopy(network).eval()
        self.optimizer = self._torch.optim.AdamW(
            network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )

    def run(self, progress: Progress | None) -> tuple[Any, History]:
        """Take all steps; return the averaged network and the curves of training."""
        history: History = {"step": [], "supervised": [], "unlabelled": [], "weight": []}
        steps = self.recipe.steps
        every = max(1, steps // _POINTS)
        self.network.train()
        for step in range(steps):
            figures = self._step(step)
            self._follow(step)
            if step % every == 0 or step == steps - 1:
                history["step"].append(float(step))
                for name, value in figures.items():
                    history[name].append(value)
            if progress is not None:
                progress(step + 1, steps)
        return self.average, history

    def _step(self, step: int) -> Mapping[str, float]:
        recipe = self.recipe
        some = self.rng.integers(len(self.labelled), size=recipe.batch_size)
        batch = self._read(self.labelled, some)
        inputs = [recipe.augment(batch, self.generator)]
        known = self.known[some]
        targets = [self._filled(batch, self.truth[some], known)]
        weight = recipe.weight(step)
        if weight:
            more = self.rng.integers(len(self.unlabelled), size=recipe.batch_size)
            more = self._read(self.unlabelled, more)
            inputs += [recipe.augment(more, self.generator) for _ in range(recipe.augmentations)]
            targets += [self._guess(more)] * recipe.augmentations
        x, y = self._torch.cat(inputs), self._torch.cat(targets)
        if recipe.mixup:
            x, y = mixed(x, y, recipe.mixup, self.rng)
        logits = self.network(x)
        supervised = masked_loss(logits[: len(some)], y[: len(some)], known)
        loss, unlabelled = supervised, supervised.new_zeros(())
        if weight:
            unlabelled = self._unlabelled_loss(logits[len(some) :], y[len(some) :])
            loss = supervised + weight * unlabelled
        self._descend(loss, step)
        return {
            "supervised": supervised.item(),
            "unlabelled": unlabelled.item(),
            "weight": weight,
        }

    def _read(self, rows: Rows, index: npt.NDArray[np.int64]) -> Any:
        return self._torch.as_tensor(self.scaling(rows[index]))

    def _guess(self, batch: Any) -> Any:
        """Return sharpened guesses for some rows: (rows, labels)."""
        chance = self._chance(batch)
        if self.recipe.alignment:
            if self.running is None:
                self.running = chance.mean(0)
            self.running += _FORGET * (chance.mean(0) - self.running)
            evened = aligned(chance, self.wanted, self.running.clamp(1e-4, 1 - 1e-4))
            chance = self._torch.where(self.heard, evened, chance)
        return sharpen(chance, self.recipe.temperature)

    def _chance(self, batch: Any) -> Any:
        """Return probabilities, a mean over weakly changed copies: (rows, labels)."""
        copies = self.recipe.augmentations
        with self._torch.no_grad():
            logits = [self.average(self.recipe.weak(batch, self.generator)) for _ in range(copies)]
            return sum(self._torch.sigmoid(logit) for logit in logits) / copies

    def _filled(self, batch: Any, truth: Any, known: Any) -> Any:
        """Return released labels, with guesses where there is none, for others to mix with."""
        if bool(known.all()):
            return truth
        guess = sharpen(self._chance(batch), self.recipe.temperature)
        return self._torch.where(known > 0, truth, guess)

    def _unlabelled_loss(self, logits: Any, guess: Any) -> Any:
        if self.recipe.unlabelled_loss == "l2":
            return (self._torch.sigmoid(logits) - guess).pow(2).mean()
        return self._torch.nn.functional.binary_cross_entropy_with_logits(logits, guess)

    def _descend(self, loss: Any, step: int) -> None:
        for group in self.optimizer.param_groups:
            share = 7 * step / (16 * self.recipe.steps)
            group["lr"] = self.recipe.learning_rate * float(np.cos(np.pi * share))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def _follow(self, step: int) -> None:
        """Move the average towards the network; faster at first, when there is little to keep."""
        keep = min(self.recipe.ema, (1 + step) / (10 + step)) if self.recipe.ema else 0.0
        with self._torch.no_grad():
            for mean, value in zip(
                self.average.parameters(), self.network.parameters(), strict=True
            ):
                mean.mul_(keep).add_(value, alpha=1 - keep)
            for mean, value in zip(self.average.buffers(), self.network.buffers(), strict=True):
                mean.copy_(value)
