"""Folders to write to, here or behind a URL: a file in one is complete or absent.

A URL (``s3://bucket/votes``, ``gs://``, ``file://``) is whatever fsspec knows. Here a file is
written beside its place and moved there, durably; an object store does the same by itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from .errors import InputError, missing_extra

_PART = ".part"


def is_url(place: Any) -> bool:
    """Return whether this names a place that fsspec has to find."""
    return isinstance(place, str) and "://" in place


def as_place(place: Any, what: str = "path") -> str:
    """Return a path or a URL as text; a path from the root, so that every process finds it."""
    if is_url(place):
        return str(place).rstrip("/")
    try:
        return str(Path(place).absolute())
    except TypeError:
        raise InputError(what, "must be a path or a URL", place) from None


@dataclass(frozen=True)
class Folder:
    """A folder by its path or URL; nothing is made before something is written."""

    place: str

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.place}/{name}")

    def exists(self, name: str = "") -> bool:
        """Return whether there is such a file; without a name, whether there is the folder."""
        place = self._at(name)
        if is_url(self.place):
            with _reachable(self.place):
                return bool(_system(self.place)[0].exists(place))
        return Path(place).exists()

    def read(self, name: str) -> bytes:
        """Return all that is in a file."""
        with open_binary(f"{self.place}/{name}" if name else self.place) as stream:
            return stream.read()

    def mark(self, name: str) -> None:
        """Write an empty file. It need not outlast a power cut: what it marks can be done again."""
        if is_url(self.place):
            self.write(name, b"")
            return
        with _reachable(self.place):
            Path(self.place).mkdir(parents=True, exist_ok=True)
            Path(self.place, name).touch()

    def write(self, name: str, data: bytes) -> None:
        """Write a file: it is there as a whole, or as it was before."""
        place = self._at(name)
        if is_url(self.place):
            with _reachable(self.place):
                system = _system(self.place)[0]
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                system.pipe_file(place, data)
            return
        file = Path(place)
        part = file.with_name(f".{file.name}.{uuid.uuid4().hex}{_PART}")
        with _reachable(self.place):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                part.replace(file)
            except BaseException:
                part.unlink(missing_ok=True)
                raise

    def sizes(self) -> dict[str, int]:
        """Return how many bytes each file right in this folder has; nothing without a folder."""
        found: dict[str, int] = {}
        if is_url(self.place):
            with _reachable(self.place):
                system, path = _system(self.place)
                system.invalidate_cache()
                with contextlib.suppress(FileNotFoundError):
                    for entry in system.ls(path, detail=True):
                        if entry["type"] == "file":
                            found[entry["name"].rpartition("/")[2]] = int(entry["size"] or 0)
            return found
        with _reachable(self.place), contextlib.suppress(FileNotFoundError):
            for each in os.scandir(self.place):
                if each.is_file():
                    found[each.name] = each.stat().st_size
        return found

    def sweep(self) -> None:
        """Remove what a process that was killed had not finished writing."""
        for name in self.sizes():
            if name.startswith(".") and name.endswith(_PART):
                self.remove(name)

    def remove(self, name: str = "") -> None:
        """Remove a file, or the folder with all that is in it; nothing if it is not there."""
        place = self._at(name)
        if is_url(self.place):
            with _reachable(self.place), contextlib.suppress(FileNotFoundError):
                _system(self.place)[0].rm(place, recursive=not name)
        elif name:
            with _reachable(self.place):
                Path(place).unlink(missing_ok=True)
        else:
            shutil.rmtree(place, ignore_errors=True)

    def take(self, file: Path, name: str) -> None:
        """Put a finished file of this machine here, under this name."""
        place = self._at(name)
        with _reachable(self.place):
            if is_url(self.place):
                _system(self.place)[0].put_file(str(file), place)
                return
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
            file.replace(place)

    def _at(self, name: str) -> str:
        base = _system(self.place)[1] if is_url(self.place) else self.place
        return f"{base}/{name}" if name else base


def open_binary(place: str) -> IO[bytes]:
    """Open a file by its path or URL, to read bytes from anywhere in it."""
    with _reachable(place):
        if is_url(place):
            system, path = _system(place)
            stream: IO[bytes] = system.open(path, "rb")
            return stream
        return open(place, "rb")


@lru_cache(maxsize=256)
def _system(place: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise missing_extra("files", "a place behind a URL") from None
    try:
        system, path = url_to_fs(place)
    except Exception as error:  # an unknown protocol, or one whose library is absent
        raise InputError(f"{place!r:.200} cannot be reached: {error}") from None
    return system, str(path)


@contextmanager
def _reachable(place: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # an OSError here, anything at all behind a URL
        why = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise InputError(
            f"{place!r:.200} cannot be reached: {why or type(error).__name__}"
        ) from None
