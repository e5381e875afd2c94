"""Files that survive: whole or absent, locked, and drafts that a resumed run goes on from.

A charge cannot be taken back, so what it paid for must not get lost. A place to write to is claimed
before anything is charged. A *draft* there is a tape of parts, as bytes: whoever uses it says what
they hold. What is drawn is durable when :meth:`Draft.keep` returns; the draft goes when all that is
made of it is written. If that fails, or the process dies, the draft stays. The same work with
``resume`` then reads what was kept and goes on after it. Every entry that a run makes in a ledger
has a *claim*, the draft's key and how far it had come, so a resumed run finds what it has paid for
already, and pays once.

What was charged and drawn, but not kept, is drawn again, with fresh noise. That costs no privacy:
the first draw never left the process that died, so one draw leaves for one charge. It is the reason
that a part is kept before anything else may happen to it, and that nothing is shown before. A copy
of a draft draws nothing once the ledger knows that another copy has come further.
Nothing sealed is in a draft: only what was released, and public numbers; and, where no ledger
keeps it, how much of its allowance each voter has spent. So a draft is for its owner only.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ._version import check_written, written
from .errors import ChargedError, ChargedInterruptError, DrawnError, InputError, masked

try:
    import fcntl
except ImportError:  # no locks: two runs that write to one place may then disturb each other
    fcntl = None  # type: ignore[assignment]

# Open ledgers and journals, by device and inode. Closing any other descriptor of such a file drops
# the locks that this process has on it.
DATABASES: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()

DRAFT = ".draft"  # of what is written into a folder
_FORMAT = 3
_NOTE, _CHARGE, _PART = b"note", b"charge", b"part"  # kinds of frames
PART = ".part"  # in the name of a file that is being written
_UNPACKED = 1 << 30  # bytes that any file may unpack to at once
_SQUEEZED = 200  # beyond that, at most so many times what is stored: more is no data
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]+:/")  # a path that was made of a URL has lost a slash
_HERE = re.compile(r"(file|local)://")  # paths, to fsspec, and judged as paths are


def beside(output: Path) -> Path:
    """Return where the draft of a file lies: hidden, in the same folder."""
    return output.with_name(f".{output.name}.draft")


def exists(output: Path, draft: Path) -> str:
    """Return what is wrong with a place that is taken, perhaps by a run that has not finished."""
    ways = "finish its run with `resume=True`, or " if draft.exists() else ""
    return f"{str(output)!r} exists; {ways}give `force=True` to overwrite it"


class Draft:
    """A claimed place, and what was released so far. A context: it cleans up behind itself.

    Parameters
    ----------
    path
        Where the draft lies. What a dead process left there is used again, unless it was paid for.
    asked
        What was asked for, as plain values; whoever resumes must ask for the same.
    resume
        Go on from what is in the draft.
    force
        Start anew even if the draft was paid for, and throw that away.

    Attributes
    ----------
    paid
        Whether something in it was charged, is about to be, or was released: then it stays.
    charged
        Whether a ledger that lasts was charged for it, or was about to be.
    last
        The last part, read or not; None if there is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        asked: Mapping[str, Any],
        *,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        self.path = Path(path)
        self._asked = json.loads(json.dumps(asked, default=str))
        self._key, self.paid, self.charged, self._finished = "", False, False, False
        self._unread: deque[bytes] = deque()
        self._notes: list[bytes] = []
        self.last: bytes | None = None
        self._place = self._end = 0  # the next part, and where the file ends
        self._file = locked(self.path, make=not resume)
        try:
            was = self._read(force=force and not resume)
            if resume:
                self._check_resume(was)
            elif self.paid and not force:
                raise InputError(
                    f"{str(self.path)!r} is the draft of a run that was charged but not finished: "
                    "finish it with `resume=True`, or discard it with `force=True`"
                )
            else:
                self._begin()
        except BaseException:
            os.close(self._file)
            raise

    # -- the tape ----------------------------------------------------------------------------------

    @property
    def claim(self) -> str:
        """A name for what is paid for next: the same in a resumed run that has come as far."""
        return f"{self._key}.{self._place}"

    def ahead(self) -> bytes | None:
        """Return what :meth:`read` will return next, and leave it there."""
        return self._unread[0] if self._unread else None

    def read(self) -> bytes | None:
        """Return the next part that an earlier run kept; None when all of them are read."""
        if not self._unread:
            return None
        self._place += 1
        return self._unread.popleft()

    def note(self, part: bytes) -> None:
        """Append a part that nobody paid for: public numbers that a resumed run needs again."""
        self._write(_NOTE, part)

    def charging(self) -> None:
        """Say, durably, that a charge is about to be made under the next claim."""
        if not self.charged:
            self._write(_CHARGE, b"")
        self.paid = self.charged = True

    def keep(self, part: bytes, *, instead: bool = False) -> None:
        """Append what was released, durably; ``instead`` of all but the notes so far."""
        self._write(_PART, part, instead=instead)

    def check_ledger(self, *, lasts: bool) -> None:
        """Refuse to go on without a ledger where one was charged: it would be paid by nobody.

        And with one where none was: it would be paid for again, with other noise, and the sum of
        both stated by nobody.
        """
        if self.charged and not lasts:
            raise InputError("ledger", "must be given: the run that is resumed was charged to it")
        if lasts and self.paid and not self.charged:
            raise InputError("ledger", "must not be given: the run that is resumed had none")

    def reserve(self, room: int) -> None:
        """Take so many bytes on the disk, before anything is charged."""
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, self._end + room)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise self._unwritable(error) from None

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Remove the draft: what was made of it is on disk."""
        self._remove()
        self.paid, self._finished = False, True

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # of a disk that fails by now: an unpaid draft is begun anew anyway
            if not self.paid and not self._finished:  # then the place may be another run's already
                self._remove()
        with suppress(OSError):
            os.close(self._file)
        if error is None or not self.paid:
            return
        if isinstance(error, ChargedError) and error.draft is not None:
            return
        if isinstance(error, DrawnError):
            return  # to resume this copy is of no use
        if isinstance(error, ChargedError) and error.__cause__ is not None:
            error = error.__cause__  # that it is charged is said below
        if isinstance(error, Exception | KeyboardInterrupt):
            raised = ChargedError if isinstance(error, Exception) else ChargedInterruptError
            why = str(error) or type(error).__name__
            raise raised(
                f"the budget is charged but the run did not finish: {why}. What was released so "
                f"far is in {str(self.path)!r}. Repeat with `resume=True`, at no further charge",
                draft=self.path,
            ) from error

    def _remove(self) -> None:
        self._newer.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    # -- the file ----------------------------------------------------------------------------------

    @property
    def _newer(self) -> Path:
        return self.path.with_name(f"{self.path.name}.new")

    def _begin(self) -> None:
        try:
            os.ftruncate(self._file, 0)
            self._unread.clear()
            self._notes.clear()
            self._key = secrets.token_hex(16)
            self.paid, self.charged, self.last, self._end = False, False, None, 0
            self._append(self._file, self._header())
            sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                self.path.unlink()
            raise self._unwritable(error) from None

    def _header(self) -> bytes:
        head = {**written(_FORMAT), "key": self._key, "asked": self._asked}
        return json.dumps(head).encode() + b"\n"

    def _write(self, kind: bytes, part: bytes, *, instead: bool = False) -> None:
        try:
            if instead:
                before = b"".join(_frame(_NOTE, note) for note in self._notes)
                before += _frame(_CHARGE, b"") * self.charged
                self._replace(before + _frame(kind, part))
            else:
                self._append(self._file, _frame(kind, part))
        except OSError as error:
            if not self.paid:
                raise self._unwritable(error) from None
            raise ChargedError(
                f"the budget is charged, but the outcome cannot be written to {str(self.path)!r}: "
                f"{error.strerror or error}. Free some space and repeat with `resume=True`, at no "
                "further charge",
                draft=self.path,
            ) from None
        if kind != _CHARGE:
            self._place, self.last = (len(self._notes) if instead else self._place) + 1, part
        self._notes += [part] * (kind == _NOTE)
        self.paid |= kind != _NOTE

    def _append(self, file: int, data: bytes) -> None:
        place, end = self._end, self._end + len(data)
        while place < end:
            place += os.pwrite(file, data[place - self._end :], place)
        os.fsync(file)
        self._end = end

    def _replace(self, frames: bytes) -> None:
        """Put a new file with these frames in the place of this one; at any moment one is there."""
        file, end = locked(self._newer, make=True), self._end
        try:
            os.ftruncate(file, 0)
            self._end = 0
            self._append(file, self._header() + frames)
            self._newer.replace(self.path)
        except BaseException:
            self._end = end
            os.close(file)
            raise
        os.close(self._file)
        self._file = file
        sync_folder(self.path.parent)

    def _read(self, *, force: bool) -> Mapping[str, Any] | None:
        """Read what is there; a torn end, which was never said to be kept, does not count."""
        with os.fdopen(os.dup(self._file), "rb") as stream:
            stream.seek(0)
            try:
                head = json.loads(line := stream.readline())
                was = dict(head["asked"])
                if not line.endswith(b"\n"):
                    return None
            except (ValueError, LookupError, TypeError, RecursionError):
                return None
            if not force:
                check_written(f"the draft {str(self.path)!r}", head, _FORMAT)
            self._key = str(head.get("key"))
            self._end = stream.tell()
            while (words := stream.readline(200).split()) and len(words) == 3:
                kind, size, digest = words
                part = stream.read(int(size)) if size.isdigit() else b""
                if sha256(part).hexdigest().encode() != digest or stream.read(1) != b"\n":
                    break
                if kind != _CHARGE:
                    self._unread.append(part)
                    self.last = part
                self._notes += [part] * (kind == _NOTE)
                self.paid |= kind != _NOTE
                self.charged |= kind == _CHARGE
                self._end = stream.tell()
        return was

    def _check_resume(self, was: Mapping[str, Any] | None) -> None:
        if was is None:
            raise InputError(
                "resume", f"needs a draft, and {str(self.path)!r} is not one: nothing was charged"
            )
        for name, value in self._asked.items():
            if was.get(name) != value:
                raise InputError(
                    "resume", f"must repeat the same call: {name} was {was.get(name)!r}", value
                )
        os.ftruncate(self._file, self._end)  # gives back what was reserved

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            "output", f"needs free space in {str(self.path.parent)!r}: {error.strerror or error}"
        )


def _frame(kind: bytes, part: bytes) -> bytes:
    return b"%s %d %s\n%s\n" % (kind, len(part), sha256(part).hexdigest().encode(), part)


@contextmanager
def drafted(
    draft: str | os.PathLike[str] | Draft | None,
    asked: Mapping[str, Any],
    *,
    resume: bool,
    force: bool = False,
) -> Iterator[Draft | None]:
    """Yield a draft that somebody opened already, one that is opened here, or none."""
    if draft is None and resume:
        raise InputError("resume", "needs `output`, the file of the earlier call")
    if draft is None or isinstance(draft, Draft):
        yield draft
        return
    with Draft(draft, asked, resume=resume, force=force) as opened:
        yield opened


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
        raise InputError(argument, exists(file, beside(file)))
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


class Promise(Protocol):
    """What states a guarantee: a release of labels, or what private training promises."""

    def statement(self) -> str:
        """Return it in plain words."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""


def write_statement(promise: Promise, path: Path, *, force: bool = True) -> None:
    """Write a guarantee in plain words, and the same for machines beside it, as ``.json``."""
    facts = json.dumps({**written(1), **promise.facts()}, indent=2, default=str)
    for file, text in ((path, promise.statement()), (path.with_suffix(".json"), facts)):
        with complete(file, force=force) as part:
            part.write_text(text + "\n", encoding="utf-8")


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
            raise InputError("resume", f"needs a draft, and there is no {str(path)!r}") from None
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


def sync_files(files: Iterable[Path]) -> None:
    """Make files that were written durable, and their names."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        sync_folder(path.parent)


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
