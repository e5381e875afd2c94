"""True labels and probabilities from files, for what compares and tunes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.arrayfiles import ArrayFile, check_file, read_npy
from privote.errors import InputError

Array = npt.NDArray[Any]
_FILES = (".npy", ".npz", ".csv")


def read_truth(votes: Path, truth: Path | None, queries: int, labels: int) -> Array | None:
    """Return true labels (queries, labels): from their own file, or beside the votes.

    Without a file of their own, those are taken that an ``.npz`` of votes holds under ``truth``;
    None if it holds none. Bits packed by ``np.packbits(truth)`` are unpacked.
    """
    if truth is not None:
        array = read_array(truth, "--truth", "truth")
    elif votes.suffix == ".npz" and "truth" in _names(votes):
        array = read_array(votes, "VOTES", "truth")
    else:
        return None
    if array.ndim == 1 and array.dtype == np.uint8 and array.size == -(-queries * labels // 8):
        array = np.unpackbits(array, count=queries * labels).reshape(queries, labels)
    if array.ndim == 1 and labels == 1:
        array = array[:, None]
    return array


def read_array(path: Path, option: str, *names: str) -> Array:
    """Read one array: ``.npy``, ``.npz`` (the first of ``names`` in it), or a table as ``.csv``.

    A CSV file may have the header ``query,...``, as written by ``privote label``; its first column
    is then left out.
    """
    if path.suffix not in _FILES:
        raise InputError(f"{option} must end in one of {', '.join(_FILES)}, got {path.name!r}")
    check_file(path, option)
    try:
        if path.suffix == ".csv":
            return read_table(path)
        if path.suffix == ".npy":
            return read_npy(path)
        data = ArrayFile(path)
        name = next((name for name in names if name in data), None)
        if name is not None:
            return data[name]
        held = ", ".join(data.names)
    except (OSError, ValueError) as error:
        raise InputError(f"{option} {str(path)!r} cannot be read: {error}") from None
    wanted = " or ".join(map(repr, names))
    raise InputError(f"{option} {str(path)!r} has no array {wanted}; it has: {held}")


def _names(path: Path) -> list[str]:
    try:
        return list(ArrayFile(path).names)
    except InputError:
        return []  # whoever reads the votes says what is wrong


def read_table(path: Path) -> Array:
    """Read a CSV file; under the header ``query,...`` without its first column."""
    with check_file(path).open(encoding="utf-8") as stream:
        first = stream.readline().split(",")
    if first == [""]:
        raise ValueError("it is empty")
    named = first[0].strip().strip('"') == "query"
    table = np.loadtxt(path, delimiter=",", skiprows=int(named), ndmin=2)
    return table[:, 1:] if named else table
