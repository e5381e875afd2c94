"""Small folders in the formats in which the owners distribute their data sets."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a text file below ``tmp_path``, packed if it ends in .gz."""

    def text(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return text


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small picture in one grey or colour."""
    pillow = pytest.importorskip("PIL.Image")

    def save(
        name: str,
        colour: int | Sequence[int] = 128,
        size: tuple[int, int] = (12, 16),
        bits: int = 8,
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = size if isinstance(colour, int) else (*size, len(colour))
        pixels = np.broadcast_to(np.asarray(colour), shape)
        pillow.fromarray(pixels.astype(np.uint16 if bits == 16 else np.uint8)).save(path)
        return path

    return save
