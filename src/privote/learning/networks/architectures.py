"""Networks by name, and their weights as plain arrays.

Torch is imported when a network is asked for, so that the package works without it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError, UnavailableError, missing_extra

Arrays = dict[str, npt.NDArray[Any]]
Network = str | Callable[[tuple[int, ...], int], Any]

VECTOR_NETWORKS = ("linear", "mlp")
IMAGE_NETWORKS = ("smallcnn", "densenet121", "resnet50")
_DENSENET_SIDE = 32  # it halves an image five times
_GROUPS = 8  # of the small network's normalisation, which must not mix records: no batch norm


def require_torch(what: str, extra: str = "deep") -> Any:
    """Return the module ``torch``, or say which extra brings it."""
    try:
        import torch
    except ImportError:
        raise missing_extra(extra, what) from None
    return torch


def check_network(network: Any) -> None:
    """Refuse a name that is not known."""
    names = (*VECTOR_NETWORKS, *IMAGE_NETWORKS)
    if callable(network) or network in names:
        return
    raise InputError(
        "network",
        f"must be one of {', '.join(names)}, or a function (shape, outputs) that returns a "
        "torch module",
        network,
    )


def usual_network(shape: tuple[int, ...]) -> str:
    """Return the network to take for rows of this shape if nobody names one."""
    return VECTOR_NETWORKS[1] if len(shape) == 1 else IMAGE_NETWORKS[0]


def build_network(
    network: Network, shape: Sequence[int], outputs: int, *, hidden: int = 256, dropout: float = 0.5
) -> Any:
    """Return an untrained torch module that gives one logit a label.

    Parameters
    ----------
    network
        ``"linear"``, ``"mlp"`` (one hidden layer), ``"smallcnn"``, ``"densenet121"``,
        ``"resnet50"`` (the last two from MONAI), or a function of ``shape`` and ``outputs``.
    shape
        Of one input: (features,) or (channels, height, width).
    outputs
        How many labels.
    hidden, dropout
        Of ``"mlp"``: units of the hidden layer, share of them that is left out while training.
    """
    check_network(network)
    shape = tuple(int(extent) for extent in shape)
    if callable(network):
        module = network(shape, outputs)
        if any(map(require_torch("networks").nn.parameter.is_lazy, module.parameters())):
            raise InputError("network", "must have layers of known sizes, not lazy ones")
        return module
    if network in VECTOR_NETWORKS:
        if len(shape) != 1:
            rule = f"must be one of {', '.join(IMAGE_NETWORKS)} for pictures, got shape {shape}"
            raise InputError("network", rule, network)
        return _dense(network, int(np.prod(shape)), outputs, hidden, dropout)
    if len(shape) != 3:
        raise InputError(f"{network} takes images (channels, height, width), got shape {shape}")
    if network == "densenet121" and min(shape[1:]) < _DENSENET_SIDE:
        raise InputError(f"densenet121 takes images of at least 32 x 32 pixels, got {shape[1:]}")
    if network == "smallcnn":
        return _small_cnn(shape[0], outputs)
    return _from_monai(network, shape[0], outputs)


def _dense(network: str, inputs: int, outputs: int, hidden: int, dropout: float) -> Any:
    nn = require_torch("networks").nn
    if network == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, outputs),
        )
    head = nn.Linear(inputs, outputs)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.Flatten(), head)


def _small_cnn(channels: int, outputs: int) -> Any:
    """Return three convolutions and a maximum over places; about 57,000 weights."""
    nn = require_torch("networks").nn
    layers: list[Any] = []
    for inputs, wide, halve in ((channels, 32, False), (32, 64, True), (64, 64, False)):
        layers += [nn.Conv2d(inputs, wide, 3, padding=1), nn.GroupNorm(_GROUPS, wide), nn.ReLU()]
        if halve:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(
        *layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, outputs)
    )


def _from_monai(network: str, channels: int, outputs: int) -> Any:
    require_torch("networks")
    try:
        from monai.networks import nets
    except ImportError:
        raise missing_extra("deep", network) from None
    if network == "densenet121":
        return nets.DenseNet121(spatial_dims=2, in_channels=channels, out_channels=outputs)
    # Stride 2 and no bias where sizes change: as the network is drawn in print, and as weights
    # trained elsewhere expect it.
    return nets.resnet50(
        spatial_dims=2,
        n_input_channels=channels,
        num_classes=outputs,
        conv1_t_stride=2,
        bias_downsample=False,
    )


def last_layer(module: Any) -> Any:
    """Return the linear layer that gives the logits: the last one of the network."""
    nn = require_torch("networks").nn
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise UnavailableError("the network must end in a torch.nn.Linear layer; it has none")
    return layers[-1]


@contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """Seed torch's generator for a while and put it back afterwards; yields a generator."""
    torch = require_torch("training")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def on_device(module: Any, device: str) -> Any:
    """Return a network on a device, or say that torch finds none of that name here."""
    try:
        return module.to(device)
    except (RuntimeError, AssertionError) as error:  # torch's words for a device that is absent
        reason = str(error).splitlines()[0]
        raise InputError("device", f"cannot be used: {reason}", device) from None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread: with more, a row's place in a batch decides how it is rounded."""
    torch = require_torch("networks")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def weights_of(module: Any) -> Arrays:
    """Return a network's weights and buffers as arrays, by their names."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def set_weights(module: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put arrays into a network; names and shapes must be the network's own."""
    torch = require_torch("networks")
    state = module.state_dict()
    if set(state) != set(arrays):
        raise InputError(
            f"weights must match this network: missing {sorted(set(state) - set(arrays))[:3]}, "
            f"unknown {sorted(set(arrays) - set(state))[:3]}"
        )
    for name, value in state.items():
        if tuple(value.shape) != arrays[name].shape or arrays[name].dtype.kind not in "fiu":
            raise InputError(
                f"weights {name} must have the shape {tuple(value.shape)}, got "
                f"{arrays[name].shape} of type {arrays[name].dtype}"
            )
    module.load_state_dict(
        {name: torch.as_tensor(np.array(arrays[name])).to(state[name].dtype) for name in state}
    )


def load_weights(module: Any, path: str | os.PathLike[str]) -> list[str]:
    """Load a state dictionary from a file, without running code, and return what was left out.

    The file may name the parts of a DenseNet as torchvision does. A first layer for three channels
    is summed for one, which is the same as repeating a grey image. A last layer for another number
    of labels is left out; anything else that does not fit is an error.
    """
    torch = require_torch("networks")
    try:
        loaded = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"weights {str(path)!r} do not exist") from None
    except Exception as error:  # torch raises several kinds, by what is wrong with the file
        raise InputError(f"weights in {str(path)!r} cannot be read safely: {error}") from None
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(map(torch.is_tensor, loaded.values())):
        raise InputError(f"weights in {str(path)!r} must be a state dictionary, got {type(loaded)}")
    state = module.state_dict()
    head = _names_of_head(module)
    fitting, surplus = {}, []
    for name, value in loaded.items():
        name = _our_name(str(name))
        value = _fewer_channels(value, state.get(name))
        if name in state and state[name].shape == value.shape:
            fitting[name] = value
        else:
            surplus.append(name)
    # Counters of batches are not in every file, and nothing is computed from them.
    absent = [
        name
        for name in state
        if name not in fitting and name not in head and not name.endswith("num_batches_tracked")
    ]
    if absent:
        raise InputError(
            f"weights in {str(path)!r} do not match this network: {len(absent)} parts are missing "
            f"or have another shape, first {absent[0]}"
        )
    module.load_state_dict({**state, **fitting})
    return surplus


def _names_of_head(module: Any) -> set[str]:
    head = last_layer(module)
    (name,) = [name for name, part in module.named_modules() if part is head]
    return {f"{name}.weight", f"{name}.bias"}


def _our_name(name: str) -> str:
    name = re.sub(r"^module\.", "", name)
    name = re.sub(r"(denselayer\d+)\.(norm|conv)\.?([12])", r"\1.layers.\2\3", name)
    return re.sub(r"^classifier\.", "class_layers.out.", name)


def _fewer_channels(value: Any, own: Any) -> Any:
    if own is None or value.ndim != 4 or value.shape[1] != 3 or own.shape[1] != 1:
        return value
    return value.sum(dim=1, keepdim=True)


def masked_loss(logits: Any, targets: Any, known: Any) -> Any:
    """Return the mean binary cross-entropy over the cells, weighted by how well they are known."""
    torch = require_torch("training")
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return (loss * known).sum() / known.sum().clamp(min=1e-6)
