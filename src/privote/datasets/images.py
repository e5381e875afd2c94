"""Images on disk, read when somebody asks for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, missing_extra
from privote.files import check_file

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.float32]
Look = TypeVar("Look")

FITS = ("stretch", "crop")
_FORMATS = ("JPEG", "PNG")  # whatever a file is called; of others Pillow runs programs to read them
_DEEP = ("I", "I;16", "I;16L", "I;16B")  # Pillow's names for 16-bit grey, by version and byte order


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """JPEG and PNG files as one array (images, channels, height, width) that stays on disk.

    ``images[rows]`` reads those rows as float32 in [0, 1]; ``images.take(rows)`` reads nothing and
    gives fewer images. It has a length and answers to one index, so a PyTorch ``DataLoader`` takes
    it as it is; ``numpy.asarray`` reads everything.

    Attributes
    ----------
    paths
        One file for each image.
    size
        Height and width to scale to; one number for both.
    channels
        1 for grey, 3 for red, green and blue.
    fit
        How a file of another shape gets there: ``"stretch"`` it, or ``"crop"`` its middle.
    """

    paths: Sequence[str]
    size: int | tuple[int, int] = 224
    channels: int = 3
    fit: str = "stretch"

    def __post_init__(self) -> None:
        size: Any = self.size
        pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
        if len(pair) != 2 or not all(isinstance(n, Integral) and int(n) >= 1 for n in pair):
            raise InputError("size", "must be one or two integers of at least 1", size)
        if self.channels not in (1, 3):
            raise InputError("channels", "must be 1 or 3", self.channels)
        if self.fit not in FITS:
            raise InputError("fit", f"must be one of {', '.join(FITS)}", self.fit)
        object.__setattr__(self, "size", (int(pair[0]), int(pair[1])))
        object.__setattr__(self, "paths", np.array([str(p) for p in self.paths], dtype=object))

    def __repr__(self) -> str:
        channels, height, width = self.shape[1:]  # how many a person has is private
        return f"Images({channels} x {height} x {width}, {self.fit})"

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height, width."""
        height, width = self._extent
        return (len(self), self.channels, height, width)

    @property
    def _extent(self) -> tuple[int, int]:
        assert isinstance(self.size, tuple)  # __post_init__ made it one
        return self.size

    def take(self, rows: Any) -> Images:
        """Return some of the images (indices, a slice or a mask), without reading any."""
        chosen = np.asarray(self.paths, dtype=object)[rows]
        return Images(paths=chosen, size=self.size, channels=self.channels, fit=self.fit)

    def __getitem__(self, rows: Any) -> Pixels:
        chosen = np.asarray(self.paths, dtype=object)[rows]
        if isinstance(chosen, str):
            return self._read(chosen)
        batch = np.empty((len(chosen), *self.shape[1:]), dtype=np.float32)
        for index, path in enumerate(chosen):
            batch[index] = self._read(path)
        return batch

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def unreadable(self) -> npt.NDArray[np.intp]:
        """Return the places of the files that are absent or broken; every file is decoded."""

        def broken(path: str) -> bool:
            try:
                self._read(path)
            except InputError:
                return True
            return False

        return np.flatnonzero([broken(path) for path in self.paths])

    def check(self) -> None:
        """Refuse the first file that is absent, or whose header is not that of a picture."""
        for path in self.paths:
            self._opened(path, lambda image: None)

    def _read(self, path: str) -> Pixels:
        """Return one image (channels, height, width)."""
        return self._opened(path, self._scaled)

    def _opened(self, path: str, look: Callable[[Image], Look]) -> Look:
        """Return what ``look`` sees in a file; the name of one that is broken is sealed."""
        try:
            from PIL import Image
        except ImportError:
            raise missing_extra("pictures", "reading images") from None
        # What Pillow warns of, a damaged EXIF or a palette, tells of a private picture. For good: a
        # filter for this call alone would be undone by another thread's.
        warnings.filterwarnings("ignore", module="PIL")
        try:
            check_file(path, "image")  # a named pipe would wait for ever
            with Image.open(path, formats=_FORMATS) as image:
                return look(image)
        except Exception as error:  # Pillow raises many kinds, by what is wrong with a file
            rule = f"the image in row {np.argmax(self.paths == path)} cannot be read"
            raise InputError(rule, sealed=f"it is {path}: {error}") from None

    def _scaled(self, image: Image) -> Pixels:
        from PIL import Image as Pillow
        from PIL import ImageOps

        height, width = self._extent
        deep = image.mode in _DEEP
        mode = "L" if self.channels == 1 else "RGB"
        if not deep:
            # A JPEG can be decoded at a half, a quarter or an eighth of its size, in as much less
            # time; twice the size asked for leaves the scaling something to average over.
            least = 2 * max(height, width)
            image.draft(mode, (least, least) if self.fit == "crop" else (2 * width, 2 * height))
        # By way of "I", because Pillow clips 16 bits to 8 when it goes straight to grey.
        even = image.convert("I").convert("F") if deep else image.convert(mode)
        even = ImageOps.exif_transpose(even)  # as the camera was held
        box = _middle(even.size, width / height) if self.fit == "crop" else None
        small = even.resize((width, height), Pillow.Resampling.BILINEAR, box=box)
        pixels = np.asarray(small, dtype=np.float32) / np.float32(65535 if deep else 255)
        if pixels.ndim == 2:
            return np.array(np.broadcast_to(pixels, (self.channels, height, width)))
        return pixels.transpose(2, 0, 1)


def _middle(size: tuple[int, int], ratio: float) -> tuple[float, float, float, float]:
    """Return the largest box in the middle of ``size`` with this ratio of width to height."""
    width, height = size
    wide, high = min(width, height * ratio), min(height, width / ratio)
    left, top = (width - wide) / 2, (height - high) / 2
    return (left, top, left + wide, top + high)
