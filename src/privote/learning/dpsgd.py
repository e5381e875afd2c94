"""DPSGD, also with a schedule of noise: the baselines of the paper, for any network.

Opacus computes a gradient for each record. Clipping and adding up are done here in double
precision, because Opacus' single precision lets one gradient that overflows turn the whole sum into
NaN, which would give its record away. Noise and sampling come from :mod:`privote.entropy` instead
of torch's Mersenne Twister (Opacus' secure mode needs torchcsprng, which has no release for current
versions of torch).

A network may remember what it is shown: running statistics, the last batch. So the network that is
released never sees a private row. Every chunk is shown to a copy, which is thrown away with
everything it remembers. Chunks have one fixed shape and are worked out by one thread, because a
record's gradient is rounded by the shape of its chunk, which depends on who else was sampled.

Memory is bounded whatever the data: pictures are read a chunk at a time, and a chunk has as many
rows as leave the values kept for their gradients below a gigabyte, or one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit
from sklearn.utils import check_random_state

from ..errors import InputError, missing_extra, positive, whole
from .networks import (
    Network,
    NetworkClassifier,
    Rows,
    Scaling,
    build_network,
    check_network,
    image_features,
    last_layer,
    load_weights,
    on_device,
    one_torch_thread,
    published_constants,
    require_torch,
    seeded,
    set_weights,
    weights_of,
)
from .noise import CLIP_MARGIN, Noise, Priced, TrainingPlan, affordable_rate, scheduled
from .rows import Labels, Progress, fraction, padded_blocks, take_rows
from .training import (
    Arrays,
    Layout,
    Persons,
    PrivateTraining,
    Sizes,
    by_person,
    check_descent,
    rows_of,
)

BATCH, EPOCHS = 256, (5.0, 2.5, 40.0)  # records of a step; passes, for each epsilon, at most
_MEMORY = 1 << 30  # bytes that are kept for the gradients of a chunk
_EVEN = 32  # torch computes so many numbers at once, and rounds the rest of a chunk otherwise
_MIXES = (
    "must treat each row separately, but one row of a batch changes the output for another: it "
    "cannot be trained privately"
)


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
        For a linear model :class:`privote.learning.DPLinear` does the same in a
        fraction of the time.
    epochs, steps, sample_rate
        How often a record takes part on average, how many gradients there are, and with which
        probability a record takes part in each; any two give the third. By default a step takes
        256 records (all, if there are fewer), and epochs follow from the budget: 5 and 2.5 for each
        unit of epsilon, at most 40.
    schedule
        The noise of the last steps in units of the first, or that and the clipping norm's:
        ``(0.5, 0.8)``. Both move in ten stages; every step is priced at its own noise. Less noise
        in the end is the adaptive DPSGD ("decaying noise") of the WACV 2021 study of CheXpert.
    clip
        Largest norm of one record's gradient, in the first step.
    learning_rate, momentum
        Of the mean gradient in units of ``clip``. Without a rate: as large as the noise allows,
        from public numbers: at most 3 for one layer, a third of that where the layers before it
        learn, too. The model answers with the mean of the weights over the second half of the
        steps.
    hidden, dropout
        Of ``"mlp"``. What is left out is drawn in secret, like the noise.
    weights, frozen, normalise
        Public weights to start from, whether to train the last layer only, and published constants:
        as for :class:`privote.learning.networks.ImageNetwork`.
    initial_share
        Public guess at how often a label is present.
    chunk
        Records whose gradients are in memory at once, at most, rounded down to a multiple of 32;
        below that, and for a network that rounds differently at different places of a batch, one
        at a time.
    device
        Where gradients are computed: ``"cpu"``, ``"cuda"`` or ``"mps"``.
    random_state
        Seeds the first weights, not the noise; ``seed`` does where it is None.
    seed
        ``None``: cryptographic noise and sampling. A number makes the model *simulated*.
    progress
        Called as ``progress(done, steps)``.

    Attributes
    ----------
    network_, thresholds_, learning_rate_
        The trained torch module; 0.5 for every label; the rate that was used.
    guarantee_
        The :class:`privote.guarantees.Guarantee` of the weights.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    _: KW_ONLY
    network: Network = "linear"
    epochs: float | None = None
    steps: int | None = None
    sample_rate: float | None = None
    schedule: Any = 1.0
    clip: float = 1.0
    learning_rate: float | None = None
    momentum: float = 0.9
    hidden: int = 128
    dropout: float = 0.0
    weights: str | os.PathLike[str] | None = None
    frozen: bool = False
    normalise: str = "none"
    initial_share: float = 0.1
    chunk: int = 64
    device: str = "cpu"
    random_state: Any = None
    seed: int | None = None
    progress: Progress | None = None

    def _read(self, X: Any) -> Any:
        Rows(X, bounded=True)  # of the whole: what is sampled decides about no error
        if hasattr(X, "unreadable") and len(broken := X.unreadable()):
            X[broken[:1]]  # which says what is wrong with the file
        return X

    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, priced: Priced) -> Any:
        order, sizes = by_person(unit)
        if order is not None:
            rows, Y = take_rows(rows, order), Y[order]
        seen = Rows(rows, bounded=True)
        scaling = published_constants(self.normalise, seen.shape)
        if X_public is not None and self.normalise == "none":
            scaling = Scaling.of([Rows(X_public)])
        start = self.seed if self.random_state is None else self.random_state
        with seeded(int(check_random_state(start).randint(2**31 - 1))):
            network, chunk = self._start(seen.shape, Y.shape[1])
        usual = min(3.0, affordable_rate(priced, self.momentum))
        if not self.frozen and _layers(network) > 1:
            # Noise in one layer is multiplied by the next: at the rate of a linear model training
            # may end where all rows are answered alike.
            usual /= 3
        self.learning_rate_ = float(self.learning_rate or usual)
        return network, chunk, seen, Y, sizes, scaling

    def _layout(self, prepared: Any) -> Layout:
        weights = weights_of(prepared[0])
        return {name: (array.dtype, array.shape) for name, array in weights.items()}

    def _draw(self, prepared: Any, priced: Priced, noise: Noise) -> Arrays:
        network, chunk, rows, labels, sizes, scaling = prepared
        # Dropout goes by places in the batch, and these by who else was sampled: whoever knew the
        # masks would see more than the price of sampling allows for.
        with seeded(noise.secret()), one_torch_thread():
            learns, seen, scale = network, rows, scaling
            if self.frozen:
                # A network of the user's own may mix rows: it is asked about each by itself.
                alone = callable(self.network)
                features = image_features(network, rows, scaling, self.device, alone=alone)
                seen = Rows(np.nan_to_num(features))
                learns, scale = last_layer(network), Scaling.none(seen.shape)
            data = (chunk, seen, labels, sizes, scale)
            trained = self._descend(learns, data, priced, noise)
            learns.load_state_dict(trained.state_dict())
        return weights_of(network)

    def _finish(self, drawn: Arrays, prepared: Any, priced: Priced) -> None:
        network, _, rows, labels, _, scaling = prepared
        set_weights(network, drawn)
        self._fitted(network, scaling, rows.shape, np.full(labels.shape[1], 0.5))

    @classmethod
    def _like(cls, network: Any, weights: dict[str, npt.NDArray[Any]]) -> Any:
        if any(name not in weights for name in network.state_dict()):
            return without_mixing(network)
        return network

    def _start(self, shape: tuple[int, ...], labels: int) -> tuple[Any, int]:
        """Return a network that keeps nothing of a row and mixes none, and the size of chunks."""
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
        on_device(deepcopy(last_layer(network)), self.device)
        check_buffers(network, shape)
        learns, seen = network, shape
        if self.frozen:
            learns = last_layer(network)
            seen = (learns.in_features,)
        with one_torch_thread():
            return network, chunk_size(learns, seen, labels, self.chunk, self.device)

    def _descend(self, network: Any, held: Any, priced: Priced, noise: Noise) -> Any:
        torch = require_torch("DPSGD")
        chunk, rows, labels, sizes, scaling = held
        plan, records = priced.plan, priced.records
        mean = torch.optim.swa_utils.AveragedModel(network.train())
        optimizer = torch.optim.SGD(network.parameters(), self.learning_rate_, self.momentum)
        clips = self.clip * scheduled(_schedule(self.schedule)[1], plan.steps)
        deviations = priced.noise_multiplier * scheduled(plan.decay, plan.steps) * clips
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        for step in range(plan.steps):
            total = ClippedSum(weights, float(clips[step]))
            persons = noise.sample(records, plan.sample_rate)
            owners = None if sizes is None else np.repeat(persons, sizes[persons])
            for chosen, span in padded_blocks(rows_of(persons, sizes), chunk):
                batch = torch.tensor(scaling(rows[chosen]))  # a copy: aligned the same every time
                truth = torch.tensor(labels[chosen]).float()
                parts = gradients(network, batch, truth, self.device)
                if owners is None:
                    total.add(parts, span.stop - span.start)
                else:
                    total.add_means(parts, owners[span], sizes)
            total.close()
            # The expected size of a batch is public; the sampled one is not.
            unit = plan.sample_rate * records * float(clips[step])
            for weight, part in zip(weights, total.sums, strict=True):
                noisy = noise.add(part.numpy(), float(deviations[step])) / unit
                weight.grad = torch.as_tensor(noisy).to(weight.dtype).view_as(weight)
            optimizer.step()
            if step >= plan.steps // 2:
                mean.update_parameters(network)
            if self.progress is not None:
                self.progress(step + 1, plan.steps)
        return mean.module

    def _sampling(self, records: int) -> tuple[int, float]:
        """Return how many steps there are, and how likely a record takes part in each.

        Tried on 4,000 scenes (AUC of a small network, one draw). At epsilon 8: steps of 256 and 5,
        10, 20, 40 epochs .915, .938, .941, .943; steps of 128, 512 and 1,000 no better at 10. At
        epsilon 2: 5, 10, 20, 40 epochs .814, .825, .788, .791.
        """
        rate = self.sample_rate
        if rate is None and self.epochs is not None and self.steps is not None:
            rate = min(1.0, positive("epochs", self.epochs) / whole("steps", self.steps))
        rate = min(1.0, BATCH / records) if rate is None else rate
        if self.steps is not None:
            return self.steps, rate
        epochs = self.epochs
        if epochs is None:
            epochs = min(EPOCHS[0] + EPOCHS[1] * self.epsilon, EPOCHS[2])
        return max(1, round(positive("epochs", epochs) / fraction("sample_rate", rate, "(]"))), rate

    def _plan(self, records: int) -> TrainingPlan:
        require_torch("DPSGD")
        try:
            import opacus  # noqa: F401
        except ImportError:
            raise missing_extra("deep", "DPSGD") from None
        check_network(self.network)
        whole("hidden", self.hidden)
        whole("chunk", self.chunk)
        fraction("dropout", self.dropout)
        check_descent(self)
        positive("epsilon", self.epsilon)
        if None not in (self.epochs, self.steps, self.sample_rate):
            raise InputError("epochs", "follow from `steps` and `sample_rate`: give two of three")
        steps, rate = self._sampling(records)
        decay = _schedule(self.schedule)[0]
        return TrainingPlan(steps=steps, sample_rate=rate, decay=decay)


def _schedule(given: Any) -> tuple[float, float]:
    """Return the noise and the clipping norm of the last steps in units of the first."""
    values = given.split(",") if isinstance(given, str) else np.atleast_1d(given)
    try:
        noise, clip, *rest = (*map(float, values), 1.0)
    except (TypeError, ValueError):
        rest = [0.0, 0.0]
    if rest not in ([], [1.0]):
        raise InputError("schedule", "must be one number, or two: noise and clip", given)
    return positive("schedule", noise), positive("schedule", clip)


def _layers(network: Any) -> int:
    """Return how many parts of a network have weights of their own."""
    return sum(any(True for _ in part.parameters(recurse=False)) for part in network.modules())


# -- gradients -------------------------------------------------------------------------------------


class ClippedSum:
    """The sum of clipped gradients over any number of chunks, in double precision.

    Attributes
    ----------
    sums
        One tensor for each weight that learns.
    """

    def __init__(self, weights: list[Any], clip: float) -> None:
        double = require_torch("DPSGD").float64
        self.most = clip * (1 - CLIP_MARGIN)
        self.sums = [weight.detach().new_zeros(weight.shape, dtype=double) for weight in weights]
        self._open: tuple[int, list[Any]] | None = None  # a person whose rows may go on

    def add(self, gradients: list[Any], records: int) -> None:
        """Add the clipped gradients of a chunk's first records.

        ``gradients`` has one tensor (chunk, ...) for each weight.
        """
        torch = require_torch("DPSGD")
        parts = [part.reshape(len(part), -1) for part in gradients]
        lengths = [torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in parts]
        # Added up one by one: a norm over weights is rounded by how many records there are.
        norms = sum(length * length for length in lengths).sqrt()
        factor = self.most / norms.clamp(min=self.most)
        lost = ~norms.isfinite()
        lost[records:] = True
        factor[lost] = 0.0
        for total, part in zip(self.sums, parts, strict=True):
            part[lost] = 0.0  # 0 times infinity is NaN
            total += (factor @ part.double()).view_as(total)

    def add_means(self, gradients: list[Any], owners: npt.NDArray[np.intp], sizes: Sizes) -> None:
        """Add the clipped means of persons, from chunks in which rows stand person by person.

        ``owners`` (rows,) says whose the chunk's first rows are; the last of them may go on in the
        next chunk. Rows are added one after the other, wherever chunks end and whoever else is in
        them: no bit of a person's mean depends on others.
        """
        torch = require_torch("DPSGD")
        assert sizes is not None
        persons, owner = np.unique(owners, return_inverse=True)
        parts = [part.reshape(len(part), -1)[: len(owners)] for part in gradients]
        means = [part.new_zeros((len(persons), part.shape[1])).double() for part in parts]
        if self._open is not None and self._open[0] == persons[0]:
            for mean, before in zip(means, self._open[1], strict=True):
                mean[:1] = before
        else:
            self.close()
        share, where = torch.as_tensor(1.0 / sizes[owners])[:, None], torch.as_tensor(owner)
        for mean, part in zip(means, parts, strict=True):
            mean.index_add_(0, where, part * share)
        self._open = int(persons[-1]), [mean[-1:].clone() for mean in means]
        if len(persons) > 1:
            self.add([mean[:-1] for mean in means], len(persons) - 1)

    def close(self) -> None:
        """Add the person whose rows may have gone on."""
        if self._open is not None:
            self.add(self._open[1], 1)
        self._open = None


def gradients(network: Any, rows: Any, truth: Any, device: str = "cpu") -> list[Any]:
    """Return the gradient of each row, for each weight that learns: (rows, ...) each.

    A row's loss is the sum over its known labels. A copy of the network is asked, so that nothing
    of the rows stays with it.
    """
    import torch
    from opacus import GradSampleModule

    copy = on_device(_without_overwriting(deepcopy(network)), device)
    rows, truth = rows.to(device), truth.to(device)
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
    samples = [
        torch.zeros((len(rows), *weight.shape)) if part is None else part.cpu()
        for weight, part in zip(learnt, parts, strict=True)
    ]
    module.remove_hooks()
    for weight in copy.parameters():  # what hooks leave behind is never collected
        weight.grad = weight.grad_sample = None
        weight.data = weight.data.new_empty(0)
    return samples


def _without_overwriting(network: Any) -> Any:
    """Return a network in which no layer, and no ``out += ...``, overwrites what hooks need.

    Torch forbids to overwrite the answer of a layer with a hook, as residual networks do. So
    convolutions and normalisations hand on a copy of theirs.
    """
    nn = require_torch("DPSGD").nn

    class Copied(nn.Sequential):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return self[0](x).clone()

    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.GroupNorm, nn.LayerNorm)
    for name, part in [*network.named_modules()]:
        if getattr(part, "inplace", False):
            part.inplace = False
        if name and isinstance(part, kinds):
            network.set_submodule(name, Copied(part))
    return network


# -- trials of a network, before anything is charged -----------------------------------------------


def without_mixing(network: Any) -> Any:
    """Return a network without layers that mix records: group instead of batch normalisation."""
    from opacus.validators import ModuleValidator

    with _tried():  # it copies the network, which not every network allows
        return ModuleValidator.fix(network)


@contextmanager
def _tried() -> Iterator[None]:
    """Turn whatever a network of the user's own raises into one sentence."""
    try:
        yield
    except Exception as error:  # also layers that Opacus does not know
        why = f"{type(error).__name__}: {error}"
        raise InputError("network", f"cannot be trained privately: {why}") from error


def _made_up(rows: int, shape: tuple[int, ...]) -> Iterator[Any]:
    """Yield rows to try a network on: as pixels are, and of either sign as features are."""
    import torch

    for kind in (torch.rand, torch.randn):
        yield kind((rows, *shape))


def check_buffers(network: Any, shape: tuple[int, ...]) -> None:
    """Refuse a network that changes when it is shown rows, as running statistics do.

    What private rows change is thrown away with the copy they are shown to; but what such a network
    answers is not what was trained.
    """
    with _tried():
        probe = deepcopy(network)
        for rows in _made_up(2, shape):
            probe(rows)
    before, after = ({**dict(n.named_parameters()), **dict(n.named_buffers())}
                     for n in (network, probe))  # fmt: skip
    if before.keys() != after.keys() or not all(map(_same, before.values(), after.values())):
        rule = "must not store anything about the rows: that is not covered by epsilon and delta"
        raise InputError("network", f"{rule}. A forward pass changes its weights or buffers")


def _same(one: Any, two: Any) -> bool:
    return bool(one.shape == two.shape and (one == two).all())


def chunk_size(
    network: Any, shape: tuple[int, ...], labels: int, most: int, device: str = "cpu"
) -> int:
    """Return how many rows to work out together, so that each comes out as any other place would.

    A multiple of 32; or 1, if that does not help, or ``most`` or memory is less. How many records
    there are has no say. A network that mixes the rows of a chunk, or has no gradient for each, is
    refused. Made-up rows are asked about.
    """
    import torch

    most = min(most, _MEMORY // _kept_bytes(network, shape))
    size = max(1, most // _EVEN * _EVEN)
    truth = torch.randint(-1, 2, (size, labels)).float()
    for pair in _made_up(2 * size, shape):
        rows, others = pair[:size], pair[size:]
        others[0] = rows[0]
        answers = []
        with _tried():
            copy = deepcopy(network).train()
            for batch in (rows, others):
                with seeded(0):  # the same dropout
                    answers.append(gradients(copy, batch, truth, device))
        pairs = list(zip(*answers, strict=True))
        if not all(len(first) == size and torch.equal(first[0], two[0]) for first, two in pairs):
            raise InputError("network", _MIXES)
    with _tried():
        quiet = copy.eval()
        for part in quiet.modules():
            part.training = any(True for _ in part.parameters(recurse=False))
        straight = gradients(quiet, rows, truth, device)
        turned = gradients(quiet, rows.flip(0), truth.flip(0), device)
        return size if all(map(torch.equal, straight, (p.flip(0) for p in turned))) else 1


def _kept_bytes(network: Any, shape: tuple[int, ...]) -> int:
    """Return how many bytes the gradient of a row takes, with all that is kept to compute it."""
    import torch

    sizes = [4 * sum(weight.numel() for weight in network.parameters())]

    def keep(value: Any) -> Any:
        sizes.append(value.numel() * value.element_size())
        return value

    with _tried(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        deepcopy(network)(torch.zeros((1, *shape)))
    return sum(sizes)
