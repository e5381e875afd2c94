"""Places by path or URL, and folders of files there, as zarr finds them.

Only Zarr and Parquet lie behind a URL, and credentials in the environment: a URL that could hold
some is refused. A file that is written is whole or absent.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from .arrayfiles import check_tree, why
from .errors import InputError, MissingExtraError, missing_extra

PART = ".part"
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]+:/")  # a path that was made of a URL has lost a slash
_HERE = re.compile(r"(file|local)://")  # paths, to fsspec, and judged as paths are


def is_url(place: Any) -> bool:
    """Return whether this names a place on another machine."""
    return isinstance(place, str) and "://" in place and _HERE.match(place) is None


def as_place(place: Any, what: str = "path") -> str:
    """Return a path or a URL as text; a path from the root, so that every process finds it.

    A URL with user info or a query string is refused, and not repeated.
    """
    if is_url(place):
        if "@" in place or "?" in place:
            rule = "must be a URL without '@' and '?': credentials belong in the environment"
            raise InputError(what, rule)
        return str(place).rstrip("/")
    try:
        return str(Path(_HERE.sub("", place) if isinstance(place, str) else place).absolute())
    except TypeError:
        raise InputError(what, "must be a path or a URL", place) from None


def check_here(argument: str, path: Any) -> None:
    """Refuse a URL, or a path that was made of one, where only a file of this machine will do."""
    if _SCHEME.match(str(path)) and not Path(Path(path).parts[0]).exists():
        raise InputError(argument, "must be a path on this machine, and no URL: copy the file")


def name_of(place: str, what: str = "votes file") -> str:
    """Return what a file or a folder is called: the last part of its path or URL."""
    return PurePosixPath(as_place(place, what) if is_url(place) else place).name


@dataclass(frozen=True)
class Folder:
    """A folder by its path or URL, reached through fsspec; nothing is made before it is written to.

    ``what`` it is to whoever named it, for messages.
    """

    place: str
    what: str = "folder"

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.place}/{name}", self.what)

    def files(self) -> dict[str, int]:
        """Return the size of every file in the folder, by its path there; none without a folder."""
        with reached(self.place, self.what):
            if not is_url(self.place):
                return check_tree(self.place, self.what) if os.path.lexists(self.place) else {}
            system, path = _system(self.place)
            system.invalidate_cache()
            found = system.find(path, detail=True)
        sizes = {name.removeprefix(path): facts.get("size") for name, facts in found.items()}
        return {name.lstrip("/"): int(size or 0) for name, size in sizes.items() if name}

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return what is in a file: all of it, or so many bytes at most."""
        with reached(self.place, self.what):
            system, path = _system(self.place)
            return bytes(system.cat_file(f"{path}/{name}", None if most is None else 0, most))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, durably: it is there as a whole, or as it was before."""
        with reached(self.place, self.what):
            system, path = _system(self.place)
            system.makedirs(path, exist_ok=True)
            if is_url(self.place):  # an object is whole or absent by itself
                system.pipe_file(f"{path}/{name}", data)
                return
            part = f"{path}/.{name}.{uuid.uuid4().hex}{PART}"
            try:
                with open(part, "xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(part, f"{path}/{name}")
            except BaseException:
                Path(part).unlink(missing_ok=True)
                raise

    def remove(self, name: str = "") -> None:
        """Remove a file, or the folder with all that is in it; nothing if it is not there."""
        with reached(self.place, self.what), suppress(FileNotFoundError):
            system, path = _system(self.place)
            system.rm(f"{path}/{name}" if name else path, recursive=not name)


@lru_cache(maxsize=256)
def _system(place: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise missing_extra("files", "Zarr") from None
    if not is_url(place):
        return fsspec.filesystem("file"), place
    system, path = fsspec.core.url_to_fs(place)
    return system, str(path)


@contextmanager
def reached(place: str, what: str) -> Iterator[None]:
    """Turn whatever keeps somebody from a place into one sentence."""
    try:
        yield
    except (InputError, MissingExtraError, MemoryError):
        raise
    except ImportError as error:  # the library of a protocol is absent
        lacks = getattr(error.__cause__ or error, "name", None)
        text = f"pip install {lacks.partition('.')[0]}" if lacks else why(error)
        raise MissingExtraError(f"{what} {place!r:.200} needs a library: {text}") from None
    except Exception as error:  # an OSError here, anything at all behind a URL
        text = "access is denied" if isinstance(error, PermissionError) else why(error)
        rule = f"{place!r:.200} cannot be reached: {getattr(error, 'strerror', None) or text}"
        raise InputError(what, rule) from None
