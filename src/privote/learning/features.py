"""Numbers that a public network made of pictures or texts, kept by digest for later runs.

They are as private as what they were made of, so the file is for its owner only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError

Features = npt.NDArray[np.float32]
Place = str | os.PathLike[str] | None
Mapped = Iterable[tuple[Sequence[int], Features]]  # places of rows, and what they became
Progress = Callable[[str, int, int], None]


def embedded(
    count: int,
    mapped: Callable[[Sequence[int]], Mapped],
    *,
    cache: Place,
    name: Callable[[int], bytes],
    stage: str,
    progress: Progress | None,
) -> Features:
    """Return the features of so many rows, (rows, features): those that are kept, and new ones.

    Parameters
    ----------
    mapped
        Yields features of the rows at these places, some at a time.
    cache
        A folder to keep features in; None keeps nothing.
    name
        The digest of a row and of what maps it.
    progress
        Called as ``progress(stage, percent, 100)``, once for each percent: how many rows there are,
        and are kept, is private, and which percents come would tell.
    """
    told = 0
    with _opened(cache) as store:
        names = [name(row) for row in range(count)] if store else []
        rows = [_read(store, digest) for digest in names] if store else [None] * count
        absent = [place for place, row in enumerate(rows) if row is None]
        done = count - len(absent)
        for places, part in mapped(absent) if absent else ():
            for place, features in zip(places, part, strict=True):
                rows[place] = features
            if store:
                new = ((names[place], rows[place].astype("<f4").tobytes()) for place in places)  # type: ignore[union-attr]
                store.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", new)
                store.commit()
            done += len(places)
            told = _tell(progress, stage, told, 100 * done // count)
    _tell(progress, stage, told, 100)
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)  # type: ignore[arg-type]


def _tell(progress: Progress | None, stage: str, told: int, percent: int) -> int:
    """Tell of every percent since the last one; return this one."""
    if progress is not None:
        for step in range(told, percent):
            progress(stage, step + 1, 100)
    return percent


@contextmanager
def _opened(place: Place) -> Iterator[sqlite3.Connection | None]:
    if place is None:
        yield None
        return
    path = Path(place) / "features.sqlite"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
        path.chmod(0o600)
        with closing(sqlite3.connect(path)) as store:
            store.execute("CREATE TABLE IF NOT EXISTS features (name BLOB PRIMARY KEY, row BLOB)")
            yield store
    except (OSError, sqlite3.Error) as error:
        raise InputError("cache", f"{str(place)!r} cannot be used: {error}") from None


def _read(store: sqlite3.Connection, name: bytes) -> Features | None:
    row = store.execute("SELECT row FROM features WHERE name = ?", (name,)).fetchone()
    return None if row is None else np.frombuffer(row[0], "<f4")
