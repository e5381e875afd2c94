"""Scenes: small images with several handwritten digits, made from what scikit-learn ships.

The digits are the 1,797 real 8x8 images of ``sklearn.datasets.load_digits``. A scene is a grid of
slots, 2x2 unless told otherwise; one to four slots hold a digit, the others are empty, and every
pixel gets a little noise. The label vector says which of the ten digits are present.

Every digit belongs to exactly one of three pools: private, public or test. The pools depend on
nothing, not even on the seed, so a digit seen in a public scene is never in a private one.

The *record* is the scene. There are more private scenes than private digits, so a digit appears in
several of them: a guarantee for scenes is not one for the people who wrote the digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError

Pixels = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int8]
Sources = npt.NDArray[np.int16]

EMPTY = -1
SIDE = 8  # a digit, and so a slot, is 8x8 pixels
MOST_DIGITS = 4
_NOISE = 0.1
_POOL_SHARES = (2 / 3, 1 / 6, 1 / 6)  # private, public, test


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenes:
    """Private, public and test scenes with no digit in common.

    Attributes
    ----------
    X_private, X_public, X_test
        float32 (scenes, pixels) in [0, 1], row by row; ``images`` puts them back into shape.
    Y_private, Y_public, Y_test
        int8 (scenes, 10), 1 where the digit is present. ``Y_public`` is the truth and is there for
        evaluation only: whoever labels the public scenes must not read it.
    sources_private, sources_public, sources_test
        int16 (scenes, slots): the index in ``load_digits`` of the digit in each slot, or -1 if the
        slot is empty.
    ids_private
        (scenes,) the name of each private record, for the partition and the ledger.
    label_names
        The ten labels.
    grid
        Rows and columns of slots.
    seed
        What the scenes were drawn with.
    """

    X_private: Pixels
    Y_private: Labels
    X_public: Pixels
    Y_public: Labels
    X_test: Pixels
    Y_test: Labels
    sources_private: Sources
    sources_public: Sources
    sources_test: Sources
    ids_private: npt.NDArray[np.str_]
    label_names: tuple[str, ...]
    grid: tuple[int, int]
    seed: int

    def __repr__(self) -> str:
        sizes = f"private={len(self.X_private)}, public={len(self.X_public)}"
        return f"Scenes({sizes}, test={len(self.X_test)}, grid={self.grid}, seed={self.seed})"

    def images(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return rows of pixels (scenes, pixels) as images (scenes, height, width)."""
        return X.reshape(len(X), SIDE * self.grid[0], SIDE * self.grid[1])

    def slots(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return rows of pixels (scenes, pixels) cut into slots (scenes, slots, 64)."""
        rows, columns = self.grid
        cut = X.reshape(len(X), rows, SIDE, columns, SIDE).transpose(0, 1, 3, 2, 4)
        return cut.reshape(len(X), rows * columns, SIDE * SIDE)


def load_scenes(
    *,
    private: int = 10_000,
    public: int = 2_000,
    test: int = 1_000,
    grid: tuple[int, int] = (2, 2),
    seed: int = 0,
) -> Scenes:
    """Compose scenes from the digits that scikit-learn ships; nothing is downloaded.

    Parameters
    ----------
    private, public, test
        How many scenes of each kind. Asking for more of one kind leaves the others as they are.
    grid
        Rows and columns of slots. A scene holds one to four digits, or as many as there are slots.
    seed
        Draws the scenes. The noise of a private release never comes from here.

    Returns
    -------
    Scenes
        With the default grid 256 pixels and ten labels, each present in about 0.23 of the scenes.
    """
    sizes = {"private": private, "public": public, "test": test}
    for name, size in sizes.items():
        _check_count(name, size, least=1)
    _check_count("seed", seed, least=0)
    if not isinstance(grid, (tuple, list)) or len(grid) != 2:
        raise InputError("grid", "must be two numbers, rows and columns of slots", grid)
    for extent in grid:
        _check_count("grid", extent, least=1)
    shape = (int(grid[0]), int(grid[1]))
    # One stream for each kind, so that the size of one does not change another.
    streams = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3))
    made: dict[str, Any] = {}
    for (name, size), pool, rng in zip(sizes.items(), digit_pools(), streams, strict=True):
        X, Y, sources = _compose(pool, int(size), shape, rng)
        made |= {f"X_{name}": X, f"Y_{name}": Y, f"sources_{name}": sources}
    return Scenes(
        **made,
        ids_private=np.array([f"private-{i:06d}" for i in range(private)]),
        label_names=tuple(f"digit {d}" for d in range(10)),
        grid=shape,
        seed=int(seed),
    )


def digit_pools() -> tuple[Sources, Sources, Sources]:
    """Return the indices in ``load_digits`` of the private, public and test digits."""
    count = len(_digits()[1])
    # Order by a hash of the index: the same on every machine and for every seed, and unrelated to
    # the order of the file, in which one writer's digits stand together.
    order = sorted(range(count), key=lambda i: blake2b(str(i).encode(), digest_size=16).digest())
    ends = np.round(np.cumsum(_POOL_SHARES) * count).astype(int)
    private, public, test = np.split(np.array(order, dtype=np.int16), ends[:-1])
    return private, public, test


def _compose(
    pool: Sources, scenes: int, grid: tuple[int, int], rng: np.random.Generator
) -> tuple[Pixels, Labels, Sources]:
    """Draw scenes from one pool of digits: pixels, labels and source digits."""
    pixels, targets = _digits()
    slots = grid[0] * grid[1]
    digits = rng.integers(1, min(slots, MOST_DIGITS) + 1, size=scenes)
    place_in_line = rng.random((scenes, slots)).argsort(axis=1).argsort(axis=1)
    filled = place_in_line < digits[:, None]
    row, slot = np.nonzero(filled)
    # First which digit, then whose: else a label would be more common in one pool than in another.
    digit = rng.integers(0, 10, size=len(row))
    by_digit = [pool[targets[pool] == d] for d in range(10)]
    which = np.floor(rng.random(len(row)) * np.array([len(d) for d in by_digit])[digit])
    sources = np.full((scenes, slots), EMPTY, dtype=np.int16)
    for d, choices in enumerate(by_digit):
        here = digit == d
        sources[row[here], slot[here]] = choices[which[here].astype(int)]

    labels = np.zeros((scenes, 10), dtype=np.int8)
    labels[row, digit] = 1

    canvas = np.zeros((scenes, grid[0], SIDE, grid[1], SIDE), dtype=np.float32)
    canvas[row, slot // grid[1], :, slot % grid[1], :] = pixels[sources[row, slot]]
    flat = canvas.reshape(scenes, slots * SIDE * SIDE)
    for part in _slabs(scenes):
        noise = rng.standard_normal(flat[part].shape, dtype=np.float32)
        flat[part] = np.clip(flat[part] + _NOISE * noise, 0.0, 1.0)
    return flat, labels, sources


def _slabs(scenes: int, step: int = 4096) -> Iterator[slice]:
    """Yield slices of scenes, so that the noise never needs as much memory as the data."""
    return (slice(start, start + step) for start in range(0, scenes, step))


@lru_cache(maxsize=1)
def _digits() -> tuple[Pixels, npt.NDArray[np.int64]]:
    """Return the digits (1797, 8, 8) in [0, 1] and what they are (1797,)."""
    # Imported here because it takes a second that other uses of the package should not pay.
    from sklearn.datasets import load_digits

    digits = load_digits()
    return (digits.images / 16.0).astype(np.float32), digits.target.astype(np.int64)


def _check_count(name: str, value: Any, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(name, f"must be a whole number of at least {least}", value)
