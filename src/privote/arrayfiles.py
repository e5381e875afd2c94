"""Array files, ``.npy`` and ``.npz``, whoever wrote them: checked before anything is unpacked.

Nothing in a file is believed that can be checked: its kind, its header, its sizes, its checksums.
No object is unpickled, nothing is allocated on the word of a header alone, and whatever a damaged
file leads to is an :class:`InputError` of one sentence.
"""

from __future__ import annotations

import math
import os
import stat
import struct
import weakref
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


def check_tree(path: str | os.PathLike[str], what: str = "folder") -> dict[str, int]:
    """Return the size of every file in a folder, by its path there; refuse anything but files."""
    folder, mode = _status(path, what)
    if not stat.S_ISDIR(mode):
        raise InputError(what, f"{str(path)!r} must be a folder, and is {_kind(mode)}")
    sizes: dict[str, int] = {}
    for place, _, files in os.walk(folder, onerror=_refuse):
        for name in files:
            file, mode = _status(Path(place, name), what)
            if not stat.S_ISREG(mode):
                raise InputError(
                    what,
                    f"{str(path)!r} must hold regular files only, and {name!r} is {_kind(mode)}",
                )
            sizes[file.relative_to(folder).as_posix()] = file.stat().st_size
    return sizes


def check_unpacked(what: str, stored: int, unpacked: int, squeezed: int = _SQUEEZED) -> None:
    """Refuse what would unpack to far more than its bytes can tell."""
    if unpacked > max(_UNPACKED, squeezed * stored):
        raise InputError(
            what, f"would unpack to {unpacked:.3g} bytes from {stored}, which no data needs"
        )


def why(error: Exception) -> str:
    """Return what a library says of a damaged file: one short line, without the file's bytes."""
    text = " ".join(str(error).partition(" and header ")[0].split())
    return masked(text)[:200] or type(error).__name__


def read_npy(path: str | os.PathLike[str]) -> Array:
    """Return the array of an ``.npy`` file, in memory."""
    array = open_npy(path, whole=True)
    assert isinstance(array, np.ndarray)
    return array


def open_npy(path: str | os.PathLike[str], *, whole: bool = False) -> Array | StoredArray:
    """Return the array of an ``.npy`` file: read where it is sliced, or as a whole, in memory.

    In memory too, where it is in Fortran order: its rows do not lie together.
    """
    file = check_file(path)
    try:
        held = _Held(file)
        with held.stream() as stream:
            shape, order, dtype, start = _header(stream, os.fstat(stream.fileno()).st_size)
            if whole or order == "F":
                return _filled(stream, shape, order, dtype)
        return StoredArray(held.read, shape, dtype, start, file.name)
    except Exception as error:  # whatever a damaged header leads to
        raise InputError(f"{file.name} is not a readable .npy file: {why(error)}") from None


class StoredArray:
    """An array that stays in its file: rows are read when they are asked for.

    Read, not mapped: a process that maps a file dies when somebody else makes the file shorter.

    Parameters
    ----------
    read
        Returns bytes of the file, from a place on; fewer only at its end.
    start
        Where the array begins in the file.
    name
        What errors call the file.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        start: int,
        name: str,
    ) -> None:
        self.shape, self.dtype, self.ndim, self.size = shape, dtype, len(shape), math.prod(shape)
        self._read, self._start, self._name = read, start, name

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        count, width = max(0, stop - start), math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            data = self._read(self._start + start * width, count * width)
        except (InputError, MemoryError):
            raise
        except Exception as error:  # a connection that breaks off has errors of its own
            rule = f"cannot be read at rows {start} to {stop - 1}: {why(error)}"
            raise InputError(self._name, rule) from None
        if len(data) < count * width:
            raise InputError(f"{self._name} changed while it was read")
        return np.ndarray((count, *self.shape[1:]), self.dtype, data)


class _Held:
    """A file that stays open, the same one whatever its name leads to by then."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._file)

    def stream(self) -> IO[bytes]:
        """Return the file as a stream of its own."""
        return os.fdopen(os.dup(self._file), "rb")

    def read(self, start: int, size: int) -> bytes:
        """Return bytes from a place on."""
        parts: list[bytes] = []  # the system gives at most two gigabytes at once
        while size and (part := os.pread(self._file, size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


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

    def read(self, name: str) -> Array:
        """Return an array, its checksum verified."""
        array = self.open(name, whole=True)
        assert isinstance(array, np.ndarray)
        return array

    def open(self, name: str, *, whole: bool = False) -> Array | StoredArray:
        """Return an array, its checksum verified: read where it is sliced if it is not packed."""
        try:
            held = _Held(self._file)
            with held.stream() as source, zipfile.ZipFile(source) as archive:
                entry = archive.getinfo(f"{name}.npy")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"array {name!r} is packed in a way that numpy never does")
                whole = whole or entry.compress_type == zipfile.ZIP_DEFLATED
                if whole:
                    check_unpacked(f"array {name!r}", entry.compress_size, entry.file_size)
                with archive.open(entry) as stream:
                    shape, order, dtype, start = _header(stream, entry.file_size)
                    if whole or order == "F":
                        return _filled(stream, shape, order, dtype)
                    while stream.read(_STEP):
                        pass  # the end of the stream is where the checksum is compared
                # The local header's name and extra field may be longer than the directory's.
                lengths = struct.unpack("<HH", held.read(entry.header_offset + 26, 4))
                start += entry.header_offset + 30 + sum(lengths)
            return StoredArray(held.read, shape, dtype, start, self._file.name)
        except Exception as error:
            raise self._unreadable(error) from None

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
