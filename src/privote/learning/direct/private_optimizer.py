"""Noisy steps on Opacus' gradients. Needs torch and Opacus: import it where it is used.

Opacus computes a gradient for each record. Clipping and adding up are done here in double
precision, because Opacus' single precision lets one gradient that overflows turn the whole sum into
NaN, which would give its record away. Noise and sampling come from :mod:`privote.entropy` instead
of torch's Mersenne Twister (Opacus' secure mode needs torchcsprng, which has no release for current
versions of torch). Adaptive clipping is written out because ``AdaClipDPOptimizer`` of Opacus 1.6
departs from the theorem it cites: it divides by the size of the sampled batch, which is private,
and adds up 0 and 1, which one record more moves by 1 where the theorem allows 1/2.

A network may remember what it is shown: running statistics, the last batch. So the network that is
released never sees a private row. Every chunk is shown to a copy, which is thrown away with
everything it remembers. Chunks have one fixed shape and are worked out by one thread, because a
record's gradient is rounded by the shape of its chunk, which depends on who else was sampled.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.validators import ModuleValidator

from ...errors import InputError
from ..networks.architectures import last_layer, seeded
from .base import SUM_HAIR
from .noise import Noise, next_clip, split_for_clipping

_EVEN = 32  # torch computes so many numbers at once, and rounds the rest of a chunk otherwise
_PASSES = 3  # after which a network must be what it was
_MIXES = (
    "must answer about each row by itself, but one row of a batch changes what it says about "
    "another: no private training is possible with it"
)


class PrivateOptimizer:
    """Sum clipped gradients over any number of chunks, then release them once, with noise."""

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
        self.optimizer, self.noise, self.quantile, self.batch = optimizer, noise, quantile, batch
        self.max_grad_norm, self.below, self.count_noise = clip, 0.0, 0.0
        if quantile is not None:
            noise_multiplier, self.count_noise = split_for_clipping(noise_multiplier, batch)
        self.noise_multiplier = noise_multiplier
        groups = optimizer.param_groups
        self.params = [each for group in groups for each in group["params"] if each.requires_grad]
        self.sums = self._zeros()

    def _zeros(self) -> list[Any]:
        return [torch.zeros_like(weight, dtype=torch.float64) for weight in self.params]

    def add(self, gradients: list[Any], records: int) -> None:
        """Add the clipped gradients of a chunk's first records, and ±1/2 for each to the count.

        ``gradients`` has one tensor (chunk, ...) for each of ``params``.
        """
        parts = [part.reshape(len(part), -1) for part in gradients]
        lengths = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in parts]
        norms = torch.stack(lengths).norm(dim=0)
        self.below += float((norms[:records] <= self.max_grad_norm).sum()) - records / 2
        most = self.max_grad_norm * (1 - SUM_HAIR)
        factor = most / norms.clamp(min=most)
        lost = ~norms.isfinite()
        lost[records:] = True
        factor[lost] = 0.0
        for total, part in zip(self.sums, parts, strict=True):
            part[lost] = 0.0  # 0 times infinity is NaN
            total += (factor @ part.double()).view_as(total)

    def release(self) -> None:
        """Add noise to the sum, take the step, and start over."""
        deviation = self.noise_multiplier * self.max_grad_norm
        for weight, total in zip(self.params, self.sums, strict=True):
            noisy = self.noise.add(total.numpy(), deviation)
            # By the expected batch, which is public, and in units of the clipping norm.
            noisy /= self.batch * self.max_grad_norm
            weight.grad = torch.as_tensor(noisy).to(weight.dtype).view_as(weight)
        self.optimizer.step()
        if self.quantile is not None:
            below = float(self.noise.add(np.array([self.below]), self.count_noise)[0])
            self.max_grad_norm = next_clip(
                self.max_grad_norm, below, self.batch, quantile=self.quantile, rate=0.2
            )
        self.below, self.sums = 0.0, self._zeros()


def without_mixing(network: Any) -> Any:
    """Return a network without layers that mix records: group instead of batch normalisation."""
    try:
        return ModuleValidator.fix(network)
    except Exception as error:  # it copies the network, which not every network allows
        raise _unfit(error) from error


def gradients(network: Any, rows: Any, truth: Any) -> list[Any]:
    """Return the gradient of each row, for each weight that learns: (rows, ...) each.

    A row's loss is the sum over its known labels. A copy of the network is asked, so that nothing
    of the rows stays with it.
    """
    copy = deepcopy(network)
    for part in copy.modules():
        if getattr(part, "inplace", False):
            part.inplace = False  # hooks need the values that it would overwrite
    module = GradSampleModule(copy, loss_reduction="sum")
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        module(rows), truth.clamp(min=0), weight=(truth >= 0).float(), reduction="sum"
    )
    with warnings.catch_warnings():
        # The input needs no gradient: that is as it should be.
        warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
        loss.backward()
    learnt = [weight for weight in copy.parameters() if weight.requires_grad]
    parts = [getattr(weight, "grad_sample", None) for weight in learnt]
    return [
        torch.zeros((len(rows), *weight.shape)) if part is None else part
        for weight, part in zip(learnt, parts, strict=True)
    ]


def check_memory(network: Any, shape: tuple[int, ...]) -> None:
    """Refuse a network that remembers rows, or whose answer about one depends on another.

    Then clipping a record's gradient would not bound what that record does. Made-up rows are asked
    about; what goes into the last layer counts too, since that layer may start at zero. A slope
    shows what training mixes; values show what is mixed without a slope, as by ``detach``.
    """
    try:
        kept, probe = deepcopy(network), deepcopy(network)
        for _ in range(_PASSES):
            logits = probe(torch.rand((2, *shape)))
            if logits.requires_grad:
                logits.sum().backward()
        change = _difference(kept, probe, "network", set())
    except Exception as error:  # whatever a network of the user's own raises
        raise _unfit(error) from error
    if change is not None:
        raise InputError(
            "network",
            "must keep nothing of the rows it is shown: what it keeps is not covered by any "
            f"epsilon. A forward pass changes {change}; layers with running statistics do that",
        )
    _check_apart(kept, shape)


def chunk_size(network: Any, shape: tuple[int, ...], labels: int, most: int) -> int:
    """Return how many rows to work out together, so that each comes out as any other place would.

    A multiple of 32; or 1, if that does not help, or ``most`` is less. How many records there are
    has no say. A network that mixes the rows of a chunk, or has no gradient for each, is refused.
    Made-up rows are asked about.
    """
    size = max(1, most // _EVEN * _EVEN)
    rows, others = torch.rand((2, size, *shape))
    truth = torch.randint(-1, 2, (size, labels)).float()
    others[0] = rows[0]
    try:
        network = deepcopy(network).train()
        asked = []
        for some in (rows, others):
            with seeded(0):  # the same dropout
                asked.append(gradients(network, some, truth))
        quiet = deepcopy(network).eval()
        for part in quiet.modules():
            part.training = any(True for _ in part.parameters(recurse=False))
        straight, turned = (gradients(quiet, *each) for each in _both_ways(rows, truth))
    except Exception as error:  # as above; also layers that Opacus does not know
        raise _unfit(error) from error
    pairs = list(zip(*asked, strict=True))
    if not all(len(one) == size and torch.equal(one[0], two[0]) for one, two in pairs):
        raise InputError("network", _MIXES)
    alike = all(map(torch.equal, straight, (part.flip(0) for part in turned)))
    return size if alike else 1


def _both_ways(*parts: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return parts, tuple(part.flip(0) for part in parts)


def _unfit(error: Exception) -> InputError:
    return InputError("network", f"cannot be trained privately: {type(error).__name__}: {error}")


def _difference(old: Any, new: Any, name: str, seen: set[int]) -> str | None:
    """Return the name of something in which two copies of a network differ, or None."""
    if old is new or id(new) in seen:
        return None
    seen.add(id(new))
    if type(old) is not type(new):
        return name
    if isinstance(old, torch.Tensor) and not (old.shape == new.shape and torch.equal(old, new)):
        return name
    if isinstance(old, torch.Generator):
        return _difference(old.get_state(), new.get_state(), name, seen)
    if isinstance(old, Mapping):
        inner: tuple[Any, Any] = (old, new)
    elif isinstance(old, list | tuple):
        inner = (dict(enumerate(old)), dict(enumerate(new)))
    elif hasattr(old, "__dict__"):
        inner = (vars(old), vars(new))
    else:
        return None if pickle.dumps(old) == pickle.dumps(new) else name
    for key in {**inner[0], **inner[1]}:
        part = name if str(key).startswith("_") else f"{name}.{key}"
        if key not in inner[0] or key not in inner[1]:
            return part
        change = _difference(inner[0][key], inner[1][key], part, seen)
        if change is not None:
            return change
    return None


def _check_apart(network: Any, shape: tuple[int, ...]) -> None:
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
        raise InputError("network", _MIXES)


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
    far = 1e-5 * float(together.detach().abs().max())
    return len(alone) == 1 and bool(torch.allclose(together[:1], alone, rtol=1e-4, atol=far))
