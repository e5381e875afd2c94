"""Noisy steps on Opacus' gradients. Needs torch and Opacus: import it where it is used.

Opacus computes a gradient for each record. Clipping and adding up are done here in double
precision, because Opacus' single precision lets one gradient that overflows turn the whole sum into
NaN, which would give its record away. Noise and sampling come from :mod:`privote.entropy` instead
of torch's Mersenne Twister (Opacus' secure mode needs torchcsprng, which has no release for current
versions of torch). Adaptive clipping is written out because ``AdaClipDPOptimizer`` of Opacus 1.6
departs from the theorem it cites: it divides by the size of the sampled batch, which is private,
and adds up 0 and 1, which one record more moves by 1 where the theorem allows 1/2.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator

from ...errors import InputError
from ..networks.architectures import last_layer, masked_loss
from .noise import Noise, next_clip, split_for_clipping

_HAIR = 1e-9  # clipped to just inside the ball, so that rounding never leaves it


class PrivateOptimizer(DPOptimizer):
    """Sum clipped gradients over any number of chunks, then release them once, with noise."""

    max_grad_norm: float

    def __init__(
        self,
        optimizer: Any,
        *,
        noise: Noise,
        noise_multiplier: float,
        clip: float,
        batch: float,
        quantile: float | None,
    ) -> None:
        self.noise, self.quantile, self.batch = noise, quantile, batch
        self.below = self.count_noise = 0.0
        if quantile is not None:
            noise_multiplier, self.count_noise = split_for_clipping(noise_multiplier, batch)
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=clip,
            expected_batch_size=batch,
        )

    def clip_and_accumulate(self) -> None:
        """Add the clipped gradients of one chunk to the sum, and ±1/2 for each to the count."""
        parts = [part.reshape(len(part), -1) for part in self.grad_samples]
        lengths = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in parts]
        norms = torch.stack(lengths).norm(dim=0)
        self.below += float((norms <= self.max_grad_norm).sum()) - len(norms) / 2
        factor = self.max_grad_norm * (1 - _HAIR) / norms.clamp(min=self.max_grad_norm)
        lost = ~norms.isfinite()
        factor[lost] = 0.0
        for weight, part in zip(self.params, parts, strict=True):
            part[lost] = 0.0  # 0 times infinity is NaN
            total = (factor @ part.double()).view_as(weight)
            weight.summed_grad = total if weight.summed_grad is None else weight.summed_grad + total
            weight.grad_sample = None

    def release(self) -> None:
        """Add noise to the sum, take the step, and start over."""
        deviation = self.noise_multiplier * self.max_grad_norm
        for weight in self.params:
            total = weight.summed_grad
            total = torch.zeros_like(weight) if total is None else total  # an empty batch
            noisy = self.noise.add(total.detach().double().numpy(), deviation)
            # By the expected batch, which is public, and in units of the clipping norm.
            noisy /= self.batch * self.max_grad_norm
            weight.grad = torch.as_tensor(noisy).to(weight.dtype).view_as(weight)
            weight.summed_grad = None
        self.original_optimizer.step()
        if self.quantile is not None:
            below = float(self.noise.add(np.array([self.below]), self.count_noise)[0])
            self.max_grad_norm = next_clip(
                self.max_grad_norm, below, self.batch, quantile=self.quantile, rate=0.2
            )
        self.below = 0.0


def without_mixing(network: Any) -> Any:
    """Return a network without layers that mix records: group instead of batch normalisation."""
    return ModuleValidator.fix(network)


def private_module(network: Any) -> Any:
    """Return a network, which must not mix records, that keeps one gradient a record."""
    for part in network.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # hooks need the values that it would overwrite
    return GradSampleModule(network)


def check_apart(network: Any, shape: tuple[int, ...]) -> None:
    """Refuse a network whose answer about one row depends on another row of the batch.

    Then clipping a record's gradient would not bound what that record does. Made-up rows are asked
    about; what goes into the last layer counts too, since that layer may start at zero. A slope
    shows what training mixes; values show what is mixed without a slope, as by ``detach``.
    """
    rows = torch.rand((2, *shape), requires_grad=True)
    seen = _asked(network, rows)
    if any(len(values) != 2 for values in seen):
        raise InputError("network", "must give one row of logits for each row of the batch")
    first = sum((values[0] * torch.rand_like(values[0])).sum() for values in seen)
    (slope,) = torch.autograd.grad(first, rows, allow_unused=True)
    training = network.training
    network.eval()  # dropout goes by places in the batch
    with torch.no_grad():
        together, alone = (_asked(network, batch) for batch in (rows, rows[:1]))
    network.train(training)
    if (slope is not None and slope[1].any()) or not all(map(_leads_to, together, alone)):
        raise InputError(
            "network",
            "must answer about each row by itself, but one row of a batch changes what it says "
            "about another: no private training is possible with it",
        )


def _asked(network: Any, rows: Any) -> list[Any]:
    """Return what goes into the last layer, and the logits."""
    seen: list[Any] = []
    hook = last_layer(network).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        return [network(rows), *seen]
    finally:
        hook.remove()


def _leads_to(together: Any, alone: Any) -> bool:
    """Return True if the first of several rows is what it is alone, but for rounding."""
    far = 1e-5 * float(together.abs().max())
    return len(alone) == 1 and bool(torch.allclose(together[:1], alone, rtol=1e-4, atol=far))


def add_gradients(module: Any, optimizer: PrivateOptimizer, batch: Any, truth: Any) -> None:
    """Add one chunk of records to the sum; a record's loss is the sum over its known labels."""
    known = (truth >= 0).float()
    # The module multiplies by the number of records in the chunk, as for a mean over them.
    loss = masked_loss(module(batch), truth.clamp(min=0), known)
    loss = loss * known.sum().clamp(min=1) / len(batch)
    with warnings.catch_warnings():
        # The input needs no gradient: that is as it should be.
        warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
        loss.backward()
    optimizer.clip_and_accumulate()
