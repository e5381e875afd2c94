"""Drafts: released labels are on disk before anything else happens to them.

A charge cannot be taken back, so what it paid for must not get lost. A place to write to is claimed
before anything is charged; every part of a release is appended to a draft there, and is durable
when :meth:`Draft.keep` returns; the draft goes when all that is made of it is written. If that
fails, or the process dies, the draft stays, and whoever resumes finishes from it: no vote is looked
at, nothing is drawn and nothing is charged again. What a charge paid for and a crash kept from the
draft is lost: it wastes budget, never privacy.

A draft is a text with one JSON object a line: first what was asked for, then each part that was
released. Nothing sealed is in it.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ._version import written
from .errors import ChargedError, ChargedInterruptError, InputError
from .release import Release

try:
    import fcntl
except ImportError:  # no locks: two runs that write to one place may then disturb each other
    fcntl = None  # type: ignore[assignment]

_VERSION = 2
_CELL, _QUERY, _MORE = 3, 24, 1 << 16  # bytes of a label, of a row, and of everything else
Rows = npt.NDArray[np.int64]


def beside(output: Path) -> Path:
    """Return where the draft of a file lies: hidden, in the same folder."""
    return output.with_name(f".{output.name}.draft")


class Draft:
    """A claimed place, and what was released so far. A context: it cleans up behind itself.

    Parameters
    ----------
    path
        Where the draft lies. What a dead process left there is used again, unless it holds labels.
    asked
        What was asked for, as plain values; whoever resumes must ask for the same.
    resume
        Go on from the labels in the draft.
    force
        Start anew even if the draft holds labels, and throw those away.
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
        self._parts: list[tuple[Release, Rows | None]] = []
        self._finished = False
        self._file = locked(self.path, make=not resume)
        try:
            self._end = 0
            self._read()
            if resume:
                self._check_resume()
            elif self._parts and not force:
                raise InputError(
                    f"labels that were released and charged lie in {str(self.path)!r}: finish "
                    "with `resume=True`, or throw them away with `force=True`"
                )
            else:
                self._begin()
        except BaseException:
            os.close(self._file)
            raise

    # -- what was released -------------------------------------------------------------------------

    @property
    def answered(self) -> int:
        """How many queries have their labels in the draft."""
        return sum(part.answered for part, _ in self._parts)

    def reserve(self, queries: int, labels: int, names: int = 0) -> None:
        """Take the room that labels, and so many bytes of names, need: before anything is charged.

        On the disk, so that what is drawn can be kept.
        """
        room = queries * (labels * _CELL + _QUERY) + names + _MORE
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, self._end + room)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise self._unwritable(error) from None

    def keep(self, release: Release, rows: Rows | None = None) -> None:
        """Append a part of a release, durably: ``rows`` says which rows of a pool it is about."""
        labels = np.ascontiguousarray(release.labels, np.int8)
        line = {
            "facts": release.facts(),
            "shape": labels.shape,
            "labels": base64.b64encode(zlib.compress(labels.tobytes(), 1)).decode(),
            "rows": None if rows is None else np.asarray(rows).tolist(),
            "query_names": release.query_names,
        }
        try:
            self._append(line)
        except OSError as error:
            raise ChargedError(
                f"the budget is charged, and {release.answered} more queries were answered, but "
                f"their labels cannot be kept in {str(self.path)!r}: {error.strerror or error}",
                draft=self.path if self._parts else None,
            ) from None
        self._parts.append((release, rows))

    def together(self) -> tuple[Release, Rows]:
        """Return all parts as one release, and which rows of a pool they are about."""
        rows = [
            np.arange(part.answered, dtype=np.int64) if rows is None else np.asarray(rows, np.int64)
            for part, rows in self._parts
        ]
        labels = np.concatenate([part.labels for part, _ in self._parts])
        names = tuple(name for part, _ in self._parts for name in part.query_names or ())
        whole = replace(self._parts[-1][0], labels=labels, query_names=names or None)
        return whole, np.concatenate(rows)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Remove the draft: what was made of it is on disk."""
        self.path.unlink(missing_ok=True)
        self._parts, self._finished = [], True

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kept = self.answered
        if not kept and not self._finished:  # then the place may be another run's already
            self.path.unlink(missing_ok=True)
        os.close(self._file)
        if error is None or not kept or getattr(error, "draft", None) is not None:
            return
        if isinstance(error, ChargedError) and error.__cause__ is not None:
            error = error.__cause__  # that it is charged is said below
        if isinstance(error, Exception | KeyboardInterrupt):
            raised = ChargedError if isinstance(error, Exception) else ChargedInterruptError
            why = str(error) or type(error).__name__
            raise raised(
                f"the budget is charged, and the labels of {kept} queries are safe in "
                f"{str(self.path)!r}, but the work was not finished: {why}. Do the same again with "
                "`resume=True`: it costs nothing more",
                draft=self.path,
            ) from error

    # -- the file ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            os.ftruncate(self._file, 0)
            self._end = 0
            self._parts = []
            self._append({"draft": _VERSION, "asked": self._asked})
            sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                self.path.unlink()
            raise self._unwritable(error) from None

    def _append(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, default=str).encode() + b"\n"
        place, end = self._end, self._end + len(data)
        while place < end:
            place += os.pwrite(self._file, data[place - self._end :], place)
        os.fsync(self._file)
        self._end = end

    def _read(self) -> None:
        """Read what is there; a torn end, which was never said to be kept, does not count."""
        with os.fdopen(os.dup(self._file), "rb") as stream:
            stream.seek(0)
            content = stream.read()
        lines = content.split(b"\0", 1)[0].split(b"\n")[:-1]
        self._was: dict[str, Any] = {}
        for number, line in enumerate(lines):
            try:
                found = json.loads(line)
                if number == 0:
                    self._was = dict(found["asked"]) if found["draft"] == _VERSION else {}
                else:
                    self._parts.append(_part(found))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error):
                break
            self._end += len(line) + 1

    def _check_resume(self) -> None:
        if not self.answered:
            raise InputError(
                "resume",
                f"needs labels, and {str(self.path)!r} has none: nothing was released. If the "
                "ledger has a charge for it, a crash came before the labels were safe",
            )
        for name, value in self._asked.items():
            if self._was.get(name) != value:
                raise InputError(
                    "resume", f"must ask for the same: {name} was {self._was.get(name)!r}", value
                )
        os.ftruncate(self._file, self._end)  # gives back what was reserved

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            "output", f"must have room in {str(self.path.parent)!r}: {error.strerror or error}"
        )


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
        raise InputError("resume", "needs the file that an earlier call was to write")
    if draft is None or isinstance(draft, Draft):
        yield draft
        return
    with Draft(draft, asked, resume=resume, force=force) as opened:
        yield opened


def _part(found: Mapping[str, Any]) -> tuple[Release, Rows | None]:
    data = zlib.decompress(base64.b64decode(found["labels"]))
    labels = np.frombuffer(data, np.int8).reshape(found["shape"])
    release = Release.of_facts(labels, found["facts"], found.get("query_names"))
    if release.digest != found["facts"]["digest"]:
        raise ValueError("the labels are not those of the digest")
    rows = found["rows"]
    return release, None if rows is None else np.asarray(rows, np.int64)


# -- files that are complete or absent ------------------------------------------------------------


@contextmanager
def complete(output: Path, *, force: bool, owner_only: bool = False) -> Iterator[Path]:
    """Yield a file to write beside ``output``, which becomes it, durably, when the block ends well.

    Without ``force`` no other file is replaced, not even one that was made meanwhile; one with the
    same content is what was wanted. What a dead process left is used again.
    """
    part = output.with_name(f".{output.stem}.part{output.suffix}")
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
                    "output", f"must be in a folder, and there is no {str(path.parent)!r}"
                ) from None
            raise InputError("resume", f"needs a draft, and there is no {str(path)!r}") from None
        except OSError as error:
            raise InputError(
                "output",
                f"must be in a folder that can be written to, and {str(path.parent)!r} cannot: "
                f"{error.strerror or error}",
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise InputError("output", f"needs {str(path)!r}, which is no regular file")
            _lock(file, path)
            now = os.stat(path, follow_symlinks=False)
            if os.path.samestat(now, os.fstat(file)):
                return file
        except FileNotFoundError:
            pass  # it was moved away by whoever held it: that one is done
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            "output", f"must be written by one run at a time, and another has {str(path)!r}"
        ) from None
    except OSError:
        pass  # a file system without locks


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
                f"must be new, and {str(output)!r} was made by somebody else meanwhile; with "
                "`force=True` it is replaced",
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
    """Make new names in a folder durable."""
    with suppress(OSError):  # not every system lets one open a folder
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
