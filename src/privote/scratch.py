"""Folders for unfinished work: gone with their process, or when the next one starts.

Whoever makes one holds a lock inside it for as long as it lives. A process that is killed leaves
its folder behind, but not the lock: that is how the next process knows what is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .errors import InputError

_LOCK = "privote.lock"


class Scratch:
    """A new folder that only its owner may enter; those of dead processes beside it are removed.

    Parameters
    ----------
    parent
        Where to make it; None: the system's folder for temporary files.
    prefix
        How its name begins. Folders with other beginnings are left alone.
    """

    def __init__(self, parent: Path | None, prefix: str) -> None:
        sweep(parent, prefix)
        place = Path(tempfile.gettempdir()) if parent is None else parent
        try:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            draft = self.path / f"{_LOCK}.new"
            self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise InputError(
                f"{str(place)!r} cannot be written: {error.strerror or error}"
            ) from None
        with contextlib.suppress(OSError):  # without locks nobody takes it for a dead one's
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.rename(self.path / _LOCK)  # never there without being locked

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def sweep(parent: Path | None, prefix: str) -> None:
    """Remove the folders of this user's dead processes; never one whose process lives."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    with contextlib.suppress(OSError):
        for folder in place.iterdir():
            # Beyond the prefix a name has what `mkdtemp` chose, eight letters.
            if folder.name.startswith(prefix) and len(folder.name) == len(prefix) + 8:
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.geteuid() and not folder.is_symlink():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its process lives
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
