"""Array files, ``.npy`` and ``.npz``, whoever wrote them: checked before anything is unpacked.

Nothing in a file is believed that can be checked: its kind, its header, its sizes, its checksums.
No object is unpickled, nothing is allocated on the word of a header alone, and whatever a damaged
file leads to is an :class:`InputError` of one sentence.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .errors import InputError, masked

Array = npt.NDArray[Any]

_UNPACKED = 1 << 30  # bytes that any file may unpack to at once
_SQUEEZED = 200  # beyond that, at most so many times what is stored: more is no data
_KINDS = "biufUS"  # plain values; everything else has code or structure behind it
_HEADER = 1 << 16
_EMPTY = 1 << 24  # rows of an array without cells: sizes that nothing in the file backs
_STEP = 1 << 20


def check_file(path: str | os.PathLike[str], what: str = "file") -> Path:
    """Return a path that leads to a regular file; refuse others before they are opened.

    A named pipe would wait for ever, a device never end.
    """
    file, mode = _status(path, what)
    if not stat.S_ISREG(mode):
        raise InputError(what, f"{str(path)!r} must be a regular file, and is {_kind(mode)}")
    return file


def check_tree(path: str | os.PathLike[str], what: str = "folder") -> int:
    """Return how many bytes a folder of files holds; refuse one that holds anything else."""
    folder, mode = _status(path, what)
    if not stat.S_ISDIR(mode):
        raise InputError(what, f"{str(path)!r} must be a folder, and is {_kind(mode)}")
    held = 0
    for place, _, files in os.walk(folder, onerror=_refuse):
        for name in files:
            file, mode = _status(Path(place, name), what)
            if not stat.S_ISREG(mode):
                raise InputError(
                    what,
                    f"{str(path)!r} must hold regular files only, and {name!r} is {_kind(mode)}",
                )
            held += file.stat().st_size
    return held


def check_unpacked(what: str, stored: int, unpacked: int, squeezed: int = _SQUEEZED) -> None:
    """Refuse what would unpack to far more than its bytes can tell."""
    if unpacked > max(_UNPACKED, squeezed * stored):
        raise InputError(
            what, f"would unpack to {unpacked:.3g} bytes from {stored}, which no data needs"
        )


def why(error: Exception, place: str = "") -> str:
    """Return what a library says of a damaged file: one short line, without the file's bytes.

    Only what kind of error it is, where that repeats what the URL of its place keeps secret.
    """
    said = " ".join(str(error).partition(" and header ")[0].split())
    return masked(said, place)[:200] or type(error).__name__


def read_npy(path: str | os.PathLike[str]) -> Array:
    """Return the array of an ``.npy`` file, memory-mapped."""
    file = check_file(path)
    try:
        with file.open("rb") as stream:
            shape, order, dtype, start = _header(stream, file.stat().st_size)
        return _mapped(file, shape, order, dtype, start)
    except Exception as error:  # whatever a damaged header leads to
        raise InputError(f"{file.name} is not a readable .npy file: {why(error)}") from None


class NpyStream:
    """The array of an ``.npy`` file that can only be read as a stream: rows when asked for."""

    def __init__(self, opened: Callable[[], IO[bytes]], name: str, place: str = "") -> None:
        self._opened, self._name, self._place = opened, name, place
        try:
            with opened() as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(0)
                self.shape, order, self.dtype, self._start = _header(stream, size)
                if order == "F" and len(self.shape) > 1:
                    raise ValueError("its rows do not lie together: save it in C order")
        except InputError:  # it could not be opened
            raise
        except Exception as error:
            raise InputError(f"{name} is not a readable .npy file: {why(error, place)}") from None

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            with self._opened() as stream:
                stream.seek(self._start + start * width)
                data = stream.read((stop - start) * width)
        except (InputError, MemoryError):
            raise
        except Exception as error:  # a connection that breaks off has errors of its own
            rule = f"cannot be read at rows {start} to {stop - 1}: {why(error, self._place)}"
            raise InputError(self._name, rule) from None
        if len(data) < (stop - start) * width:
            raise InputError(f"{self._name} changed while it was read")
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])


class ArrayFile:
    """The arrays of an ``.npz`` file by name, each read when it is asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = check_file(path)
        try:
            with zipfile.ZipFile(self._file) as archive:
                names = [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
            if len(set(names)) < len(names):
                raise ValueError("two of its arrays have one name")
        except Exception as error:
            raise self._unreadable(error) from None
        self.names = tuple(names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Array:
        return self.read(name)

    def read(self, name: str, *, mapped: bool = False) -> Array:
        """Return an array, its checksum verified; memory-mapped if it lies there as it is."""
        try:
            with zipfile.ZipFile(self._file) as archive:
                entry = archive.getinfo(f"{name}.npy")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"array {name!r} is packed in a way that numpy never does")
                if entry.compress_type == zipfile.ZIP_DEFLATED or not mapped:
                    check_unpacked(f"array {name!r}", entry.compress_size, entry.file_size)
                with archive.open(entry) as stream:
                    shape, order, dtype, start = _header(stream, entry.file_size)
                    if not mapped or entry.compress_type != zipfile.ZIP_STORED:
                        return _filled(stream, shape, order, dtype)
                    while stream.read(_STEP):
                        pass  # the end of the stream is where the checksum is compared
            return _mapped(self._file, shape, order, dtype, self._offset(entry) + start)
        except Exception as error:
            raise self._unreadable(error) from None

    def _offset(self, entry: zipfile.ZipInfo) -> int:
        """Return where a member's bytes begin."""
        with self._file.open("rb") as stream:
            # The local header's name and extra field may be longer than the central directory's.
            stream.seek(entry.header_offset + 26)
            name, extra = struct.unpack("<HH", stream.read(4))
        return int(entry.header_offset + 30 + name + extra)

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self._file.name} is not a readable .npz file: {why(error)}")


def _status(path: Any, what: str) -> tuple[Path, int]:
    try:
        file = Path(path)
        return file, file.stat().st_mode
    except TypeError:
        raise InputError(what, "must name a file", path) from None
    except FileNotFoundError:
        raise InputError(what, f"{str(path)!r} does not exist") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(what, f"{str(path)!r:.200} cannot be read: {why}") from None


def _refuse(error: OSError) -> None:
    raise InputError(f"{str(error.filename)!r} cannot be read: {error.strerror or error}")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a named pipe"}
    return kinds.get(stat.S_IFMT(mode), "a device or socket")


def _header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], str, np.dtype[Any], int]:
    """Return shape, order, type and where the cells begin, if ``size`` bytes are just that."""
    magic = stream.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError("it does not begin as one")
    count = stream.read(2 if magic[6] == 1 else 4)
    length = int.from_bytes(count, "little")
    if length > _HEADER:
        raise ValueError(f"its header claims {length} bytes, and {_HEADER} are plenty")
    npy: Any = np.lib.format
    parse = npy.read_array_header_1_0 if magic[6] == 1 else npy.read_array_header_2_0
    try:
        shape, fortran, dtype = parse(BytesIO(count + stream.read(length)))
    except Exception:  # from the parser of Python literals: syntax, recursion, tokens
        raise ValueError("its header cannot be read") from None
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"its values must be plain numbers or texts, and are {dtype!s:.60}")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"its shape must be whole numbers from 0, and is {str(shape)[:60]}")
    start = 8 + len(count) + length
    cells = math.prod(shape)
    if start + cells * dtype.itemsize != size or (not cells and max(shape) > _EMPTY):
        raise ValueError(
            f"its shape {str(shape)[:60]} of {dtype} does not fit its {size - start} bytes"
        )
    return shape, "F" if fortran else "C", dtype, start


def _mapped(
    file: Path, shape: tuple[int, ...], order: str, dtype: np.dtype[Any], start: int
) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype)
    kind: Any = order
    return np.memmap(file, dtype=dtype, mode="r", offset=start, shape=shape, order=kind)


def _filled(stream: IO[bytes], shape: tuple[int, ...], order: str, dtype: np.dtype[Any]) -> Array:
    kind: Any = order
    array: Array = np.empty(shape, dtype, order=kind)
    flat, place = array.reshape(-1, order=kind).view(np.uint8), 0
    while place < len(flat):
        part = stream.read(min(_STEP, len(flat) - place))
        if not part:
            raise ValueError("it ends early")
        flat[place : place + len(part)] = np.frombuffer(part, np.uint8)
        place += len(part)
    stream.read(1)  # the checksum is compared at the end
    return array


def forget(array: Array) -> None:
    """Let go of the pages of a mapped file that were read; they are read again where needed.

    Else what was read counts as memory in use until there is none left.
    """
    pages = getattr(array, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
