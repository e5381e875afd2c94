"""Places to read and to write, here or behind a URL: a file that is written is whole or absent.

A URL (``s3://bucket/votes``, ``gs://``, ``file://``) is whatever fsspec knows. Here a file is
written beside its place and moved there, durably; an object store does the same by itself. No
message repeats what a URL keeps secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any

from .arrayfiles import check_file, check_tree, why
from .errors import InputError, MissingExtraError, masked, masked_url, missing_extra
from .scratch import Scratch

_PART = ".part"
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]+:/")  # a path that was made of a URL has lost a slash
_HERE = re.compile(r"(file|local)://")  # paths, to fsspec, and judged as paths are
_STEP = 1 << 22  # bytes that are copied at once


def is_url(place: Any) -> bool:
    """Return whether this names a place that fsspec has to find."""
    return isinstance(place, str) and "://" in place


def as_place(place: Any, what: str = "path") -> str:
    """Return a path or a URL as text; a path from the root, so that every process finds it."""
    if is_url(place):
        here = _HERE.match(place)
        if here is None:
            return str(place).rstrip("/")
        place = place[here.end() :]
    try:
        return str(Path(place).absolute())
    except TypeError:
        raise InputError(what, "must be a path or a URL", place) from None


def check_here(argument: str, path: Any) -> None:
    """Refuse a URL, or a path that was made of one, where something is written on this machine."""
    if _SCHEME.match(str(path)) and not Path(Path(path).parts[0]).exists():
        raise InputError(
            argument, "must be a path on this machine, and no URL: copy what is written", str(path)
        )


def name_of(place: str) -> str:
    """Return what a file or a folder is called: the last part of its path or URL.

    That may be the store itself, with who asks and a password before it: no name has these.
    """
    return PurePosixPath(masked_url(place).partition("?")[0] if is_url(place) else place).name


@dataclass(frozen=True)
class Folder:
    """A folder by its path or URL; nothing is made before something is written.

    ``what`` it is to whoever named it, for messages.
    """

    place: str
    what: str | None = None

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.place}/{name}", self.what)

    def exists(self, name: str = "") -> bool:
        """Return whether there is such a file; without a name, whether there is the folder."""
        place = f"{self.place}/{name}" if name else self.place
        return _facts(place, self.what) is not None if is_url(place) else Path(place).exists()

    def read(self, name: str, most: int = -1) -> bytes:
        """Return what is in a file: all of it, or so many bytes at most."""
        place = f"{self.place}/{name}" if name else self.place
        with self._reached(), open_binary(place, self.what) as stream:
            return stream.read(most)

    def mark(self, name: str) -> None:
        """Write an empty file. It need not outlast a power cut: what it marks can be done again."""
        if is_url(self.place):
            self.write(name, b"")
            return
        with self._reached():
            Path(self.place).mkdir(parents=True, exist_ok=True)
            Path(self.place, name).touch()

    def write(self, name: str, data: bytes) -> None:
        """Write a file: it is there as a whole, or as it was before."""
        place = self._at(name)
        if is_url(self.place):
            with self._reached():
                system = _system(self.place)[0]
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                system.pipe_file(place, data)
            return
        file = Path(place)
        part = file.with_name(f".{file.name}.{uuid.uuid4().hex}{_PART}")
        with self._reached():
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
        return {name: size for name, size in self._entries().items() if size is not None}

    def folders(self) -> list[str]:
        """Return the names of the folders right in this folder."""
        return sorted(name for name, size in self._entries().items() if size is None)

    def _entries(self) -> dict[str, int | None]:
        """Return all that lies right in this folder, a file with its size."""
        found: dict[str, int | None] = {}
        with self._reached(), contextlib.suppress(FileNotFoundError):
            if not is_url(self.place):
                for each in os.scandir(self.place):
                    if each.is_file():
                        found[each.name] = each.stat().st_size
                    elif each.is_dir():
                        found[each.name] = None
                return found
            system, path = _system(self.place)
            system.invalidate_cache()
            for entry in system.ls(path, detail=True):
                name = entry["name"].rstrip("/").rpartition("/")[2]
                found[name] = int(entry["size"] or 0) if entry["type"] == "file" else None
        return found

    def held(self) -> int:
        """Return how many bytes all files of the folder have; refuse what is no folder of files."""
        what = self.what or "folder"
        if not is_url(self.place):
            return check_tree(self.place, what)
        with self._reached():
            system, path = _system(self.place)
            system.invalidate_cache()
            found = system.find(path, detail=True)
        if not found or list(found) == [path]:
            kind = "is a file" if _told(self.place, what)["type"] == "file" else "shows none"
            raise InputError(
                what, f"{masked_url(self.place)!r:.200} must be a folder of files, and {kind}"
            )
        return sum(int(facts.get("size") or 0) for facts in found.values())

    def sweep(self) -> None:
        """Remove what a process that was killed had not finished writing."""
        for name in self.sizes():
            if name.startswith(".") and name.endswith(_PART):
                self.remove(name)

    def remove(self, name: str = "") -> None:
        """Remove a file, or the folder with all that is in it; nothing if it is not there."""
        place = self._at(name)
        if is_url(self.place):
            with self._reached(), contextlib.suppress(FileNotFoundError):
                _system(self.place)[0].rm(place, recursive=not name)
        elif name:
            with self._reached():
                Path(place).unlink(missing_ok=True)
        else:
            shutil.rmtree(place, ignore_errors=True)

    def take(self, file: Path, name: str) -> None:
        """Put a finished file of this machine here, under this name."""
        place = self._at(name)
        with self._reached():
            if is_url(self.place):
                _system(self.place)[0].put_file(str(file), place)
                return
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
            file.replace(place)

    def _reached(self) -> contextlib.AbstractContextManager[None]:
        return reached(self.place, self.what)

    def _at(self, name: str) -> str:
        with self._reached():
            base = _system(self.place)[1] if is_url(self.place) else self.place
        return f"{base}/{name}" if name else base


def open_binary(place: str, what: str | None = None) -> IO[bytes]:
    """Open a file by its path or URL, to read bytes from anywhere in it."""
    with reached(place, what):
        if is_url(place):
            system, path = _system(place)
            stream: IO[bytes] = system.open(path, "rb")
            return stream
        return open(place, "rb")


def size_of(place: str, what: str = "file") -> int:
    """Return how many bytes a file has; refuse what is no file, before it is opened."""
    if not is_url(place):
        return check_file(place, what).stat().st_size
    facts, shown = _told(place, what), f"{masked_url(place)!r:.200}"
    if facts["type"] != "file":
        raise InputError(what, f"{shown} must be a file, and is a folder")
    if facts.get("size") is None:
        raise InputError(what, f"{shown} must tell its size, and its server does not")
    return int(facts["size"])


@contextmanager
def fetched(place: str, what: str) -> Iterator[Path]:
    """Yield a file of this machine: the one that is named, or a copy of what a URL names.

    The copy is for its owner's eyes, and its name is gone when the block ends, or with the process:
    whoever has opened it by then keeps it.
    """
    if not is_url(place):
        yield check_file(place, what)
        return
    size, scratch = size_of(place, what), Scratch(None, "privote-fetched-")
    try:
        room = shutil.disk_usage(scratch.path).free
        if size > room:
            said = f"of {size} bytes must fit {str(scratch.path.parent)!r}, which has {room} left"
            raise InputError(what, said)
        file = scratch.path / name_of(place)
        with reached(place, what), open_binary(place, what) as source, file.open("xb") as copy:
            left = size
            while left and (block := source.read(min(_STEP, left))):
                copy.write(block)
                left -= len(block)
            if left or source.read(1):
                raise InputError(what, f"{masked_url(place)!r:.200} changed while it was read")
        yield file
    finally:
        scratch.remove()


def _told(place: str, what: str) -> dict[str, Any]:
    """Return what a store says of a file or a folder behind a URL, which must be there."""
    facts = _facts(place, what)
    if facts is None:
        raise InputError(what, f"{masked_url(place)!r:.200} does not exist")
    return facts


def _facts(place: str, what: str | None) -> dict[str, Any] | None:
    """Return what a store says of a file or a folder behind a URL; None if it is not there."""
    with reached(place, what):
        system, path = _system(place)
        system.invalidate_cache()
        try:
            return dict(system.info(path))
        except FileNotFoundError as error:
            # HTTP says so of whatever goes wrong, and only the cause tells what did.
            cause = error.__cause__
            status = getattr(cause, "status", 404)
            if status in (401, 403):
                raise PermissionError from None
            if status != 404 or (isinstance(cause, OSError) and cause.errno is not None):
                raise cause or error from None
            return None


@lru_cache(maxsize=256)
def _system(place: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise missing_extra("files", "a place behind a URL") from None
    system, path = url_to_fs(place)
    return system, str(path)


@contextmanager
def reached(place: str, what: str | None) -> Iterator[None]:
    """Turn whatever keeps somebody from a place into one sentence; on the way to it, or later.

    For whoever reads a stream, too: a line that breaks in the middle is told as one that never was.
    """
    shown = f"{masked_url(place)!r:.200}"
    lead = shown if what is None else f"{what} {shown}"
    try:
        yield
    except (InputError, MissingExtraError, MemoryError):
        raise
    except ImportError as error:  # fsspec knows the protocol, and lacks what speaks it
        lacks = getattr(error.__cause__ or error, "name", None)
        said = f"pip install {lacks.partition('.')[0]}" if lacks else why(error, place)
        raise MissingExtraError(f"{lead} needs a library: {said}") from None
    except Exception as error:  # an OSError here, anything at all behind a URL
        if is_url(place) and isinstance(error, PermissionError):
            said = "access is denied"
        else:
            told = getattr(error, "strerror", None) or ""
            said = masked(told, place) or why(error, place)
        rule = f"{shown} cannot be reached: {said}"
        raise (InputError(rule) if what is None else InputError(what, rule)) from None
