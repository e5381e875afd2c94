"""Files that are whole or absent, and locked; and what may be read.

A file is written beside its place and becomes it, durably, once it is whole; it says its format and
the version that wrote it. What is read is looked at first: a named pipe would wait for ever, and an
open ledger lose its locks.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakValueDictionary

from ._version import __version__
from .errors import InputError, PrivoteError, masked

try:
    import fcntl
except ImportError:  # no locks: two runs that write to one place may then disturb each other
    fcntl = None  # type: ignore[assignment]

# Open ledgers and journals, by device and inode. Closing any other descriptor of such a file drops
# the locks that this process has on it.
DATABASES: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()

PART = ".part"  # in the name of a file that is being written
_UNPACKED = 1 << 30  # bytes that any file may unpack to at once
_SQUEEZED = 200  # beyond that, at most so many times what is stored: more is no data
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]+:/")  # a path that was made of a URL has lost a slash
_HERE = re.compile(r"(file|local)://")  # paths, to fsspec, and judged as paths are


# -- files that are complete or absent ------------------------------------------------------------


def check_new(
    argument: str,
    path: Any,
    suffixes: Sequence[str] = (),
    *,
    force: bool,
    keep: Iterable[Path] = (),
) -> Path:
    """Refuse a place to write to, before the work: the one rule of whatever writes.

    A file is replaced with ``force`` only, and one of ``keep``, which is in use, never.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(argument, "must name a file", path)
    check_here(argument, path)
    file = Path(path)
    if suffixes and file.suffix not in suffixes:
        raise InputError(argument, f"must end in {' or '.join(suffixes)}", file.name)
    try:
        file.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a loop of links, a name too long
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(argument, f"{str(path)!r:.200} cannot be written: {why}") from None
    if file.is_dir():
        raise InputError(argument, f"must be a file, but {str(path)!r} is a folder")
    if not file.parent.is_dir():
        raise InputError(
            argument, f"{str(path)!r} cannot be written: there is no folder {str(file.parent)!r}"
        )
    if os.path.realpath(file) in {os.path.realpath(other) for other in keep}:
        raise InputError(
            argument, f"{str(path)!r} is already used by this command: name another file"
        )
    if file.is_symlink() and not file.exists():
        raise InputError(argument, f"{str(path)!r} is a broken link: name a file")
    if file.exists() and not force:
        rule = f"{str(file)!r} exists; finish its run with `resume=True`, or give `force=True`"
        raise InputError(argument, rule)
    return file


@contextmanager
def complete(
    output: Path, *, force: bool, owner_only: bool = False, shared: bool = False
) -> Iterator[Path]:
    """Yield a file to write beside ``output``, which becomes it, durably, when the block ends well.

    Without ``force`` no other file is replaced, not even one that was made meanwhile; one with the
    same content is what was wanted. What a dead process left is used again; ``shared`` lets several
    processes write the same at once, each beside the others.
    """
    own = f".{secrets.token_hex(8)}" if shared else ""
    part = output.with_name(f".{output.stem}{own}{PART}{output.suffix}")
    file = locked(part, make=True)
    try:
        os.ftruncate(file, 0)
        yield part
        if not owner_only:
            os.umask(mask := os.umask(0))  # the one way to read it is to set it
            part.chmod(0o666 & ~mask)
        os.fsync(file)
        _move(part, output, force=force)
        sync_folder(output.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        os.close(file)


def write_statement(text: str, facts: Mapping[str, Any], path: Path, *, force: bool = True) -> None:
    """Write a guarantee in plain words, and the same for machines beside it, as ``.json``."""
    values = json.dumps({**written(1), **facts}, indent=2, default=str)
    for file, content in ((path, text), (path.with_suffix(".json"), values)):
        with complete(file, force=force) as part:
            part.write_text(content + "\n", encoding="utf-8")


def digests_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files, by name."""
    digests = {}
    for path in files:
        with path.open("rb") as stream:
            digests[path.name] = file_digest(stream, "sha256").hexdigest()
    return digests


def locked(path: Path, *, make: bool) -> int:
    """Open a file of one's own, for its owner only, that no living process is writing."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | (os.O_CREAT if make else 0)
    while True:
        try:
            file = os.open(path, flags, 0o600)
        except FileNotFoundError:
            if make:
                raise InputError(
                    "output", f"must be in an existing folder, and there is no {str(path.parent)!r}"
                ) from None
            raise InputError("output", f"needs {str(path)!r}, which does not exist") from None
        except OSError as error:
            raise InputError(
                "output",
                f"must be in a writable folder, and {str(path.parent)!r} is not: "
                f"{error.strerror or error}",
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise InputError("output", f"needs {str(path)!r}, which is not a regular file")
            if lock(file) is False:
                rule = f"must be used by one run at a time, and another run has {str(path)!r} open"
                raise InputError("output", rule)
            now = os.stat(path, follow_symlinks=False)
            if os.path.samestat(now, os.fstat(file)):
                return file
        except FileNotFoundError:
            pass  # it was moved away by whoever held it: that one is done
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def lock(file: int) -> bool | None:
    """Take the lock of an open file; False if a living process has it, None without locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _move(part: Path, output: Path, *, force: bool) -> None:
    if not force:
        try:
            os.link(part, output)  # unlike a rename, this never replaces a file
            return
        except FileExistsError:
            if output.is_file() and output.read_bytes() == part.read_bytes():
                return
            raise InputError(
                "output",
                f"must be new, and {str(output)!r} was created meanwhile; give `force=True` to "
                "overwrite it",
            ) from None
        except OSError:
            pass  # a file system without links
    part.replace(output)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable; a disk that fails raises."""
    try:
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise
        # Not every system lets one open a folder, or sync it.


# -- which format a file has -----------------------------------------------------------------------


def written(number: int) -> dict[str, Any]:
    """Return what every file says of itself: its format, and the version that wrote it."""
    return {"format": number, "version": __version__}


def check_written(
    what: str,
    facts: Mapping[str, Any],
    number: int,
    error: type[PrivoteError] = InputError,
    hint: str = "",
) -> None:
    """Refuse a file of another format than ``number``, in one sentence that says who wrote it."""
    if facts.get("format") != number:
        version = facts.get("version")
        writer = f"privote {version!s:.20}" if version else "an unknown version of privote"
        raise error(
            f"{what} has format {facts.get('format')!r:.20}, written by {writer}; this is privote "
            f"{__version__}, which reads format {number}{hint and f': {hint}'}"
        )


# -- what may be read ------------------------------------------------------------------------------


def check_file(path: str | os.PathLike[str], what: str = "file") -> Path:
    """Return a path that leads to a regular file; refuse others before they are opened.

    A named pipe would wait for ever, a device never end, and an open ledger lose its locks.
    """
    file, status = _status(path, what)
    if not stat.S_ISREG(status.st_mode):
        rule = f"must be a regular file, but is {_kind(status.st_mode)}"
        raise InputError(what, f"{str(path)!r} {rule}")
    if (status.st_dev, status.st_ino) in DATABASES:
        raise InputError(what, f"{str(path)!r} must not be a ledger or journal that is open")
    return file


def check_tree(path: str | os.PathLike[str], what: str = "folder") -> dict[str, int]:
    """Return the size of every file in a folder, by its path there; refuse anything but files."""
    folder, status = _status(path, what)
    if not stat.S_ISDIR(status.st_mode):
        rule = f"must be a folder, but is {_kind(status.st_mode)}"
        raise InputError(what, f"{str(path)!r} {rule}")
    sizes: dict[str, int] = {}
    for place, _, files in os.walk(folder, onerror=_refuse):
        for name in files:
            file, status = _status(Path(place, name), what)
            if not stat.S_ISREG(status.st_mode):
                rule = f"must contain only regular files, but {name!r} is {_kind(status.st_mode)}"
                raise InputError(what, f"{str(path)!r} {rule}")
            sizes[file.relative_to(folder).as_posix()] = status.st_size
    return sizes


def check_unpacked(what: str, stored: int, unpacked: int, squeezed: int = _SQUEEZED) -> None:
    """Refuse what would unpack to far more than its bytes can tell."""
    if unpacked > max(_UNPACKED, squeezed * stored):
        raise InputError(
            what,
            f"would unpack from {stored} to {unpacked:.3g} bytes, which is too many",
        )


def why(error: Exception) -> str:
    """Return what a library says of a damaged file: one short line, without the file's bytes."""
    text = " ".join(str(error).partition(" and header ")[0].split())
    return masked(text)[:200] or type(error).__name__


def _status(path: Any, what: str) -> tuple[Path, os.stat_result]:
    try:
        file = Path(path)
        return file, file.stat()
    except TypeError:
        raise InputError(what, "must name a file", path) from None
    except FileNotFoundError:
        raise InputError(what, f"{str(path)!r} does not exist") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(what, f"{str(path)!r:.200} cannot be read: {why}") from None


def _refuse(error: OSError) -> None:
    raise InputError(f"{str(error.filename)!r} cannot be read: {error.strerror or error}")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a named pipe"}
    return kinds.get(stat.S_IFMT(mode), "a device or socket")


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
        raise InputError(argument, "must be a local path, not a URL: copy the file first")


def name_of(place: str, what: str = "votes file") -> str:
    """Return what a file or a folder is called: the last part of its path or URL."""
    return PurePosixPath(as_place(place, what) if is_url(place) else place).name
