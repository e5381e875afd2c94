"""A backup: one file with entries, key and anchor, to restore a ledger where these are lost.

It is a SQLite file like the ledger's own, with one table more, so a backup can be verified and read
as it is; of a ledger in PostgreSQL, too. The anchor in it names the last entry and the backup's
time, under the ledger's key: a backup that lacks an entry, or says another time, is refused.

To restore is to put key and anchor first, and then all entries in one transaction. Until then the
key and the anchor say that a ledger is missing, and nobody can charge anything. So a crash leaves a
ledger or none, and the same backup can be restored again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from .._version import __version__
from ..errors import InputError, LedgerError
from ..files import check_file, complete
from .chain import KEY_VARIABLE, Anchor, Chain, Location, Verification, now, verify, warn_if_open
from .events import Event
from .store import START, Row, SQLiteStore, Store


@dataclass(frozen=True)
class Backup:
    """What a backup holds.

    Attributes
    ----------
    rows
        The entries.
    chain, own_key
        The ledger's key, and whether it is inside; otherwise it is in the environment.
    at
        When the backup was written.
    verification
        What is wrong with the entries.
    """

    rows: Sequence[Row]
    chain: Chain
    own_key: bool
    at: str
    verification: Verification


def write_backup(path: Path, store: Store, chain: Chain) -> bool:
    """Write a new file, for its owner only; return whether the key is inside.

    It is not where the environment has it: then it is kept elsewhere on purpose.
    """
    if os.path.lexists(path):
        raise InputError(f"backup {str(path)!r} exists already")
    key = None if KEY_VARIABLE in os.environ else chain.text
    try:
        with (
            complete(path, force=False, owner_only=True) as part,
            closing(sqlite3.connect(part)) as copy,
        ):
            store.copy_to(copy)
            last = "SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1"
            head = copy.execute(last).fetchone() or (0, START)
            copy.execute("CREATE TABLE backup (version TEXT, anchor TEXT NOT NULL, key TEXT)")
            facts = (__version__, Anchor(path, chain).text(head, backup=now()), key)
            copy.execute("INSERT INTO backup VALUES (?, ?, ?)", facts)
            copy.commit()
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{str(path)!r} cannot be written: {error}") from None
    return key is not None


def read_backup(path: str | os.PathLike[str]) -> Backup:
    """Read and verify a backup; raise if it is none, or belongs to another key."""
    file = check_file(path, "backup")
    store = SQLiteStore.loaded(file)
    try:
        ((anchor, key),) = store.run("SELECT anchor, key FROM backup")
    except (LedgerError, ValueError):
        raise LedgerError(f"{str(path)!r} is not a backup of a ledger, or damaged") from None
    named = os.environ.get(KEY_VARIABLE)
    if key is not None:
        warn_if_open(file.name, file.stat().st_mode)
        if named is not None and Chain.parse(named, KEY_VARIABLE).text != str(key):
            raise LedgerError(f"{KEY_VARIABLE} differs from the backup's key")
    elif named is None:
        raise LedgerError(f"the backup contains no key: set {KEY_VARIABLE}")
    chain = Chain.parse(str(key or named), file.name)
    heads, facts = Anchor(file, chain).read(str(anchor).encode(errors="replace"))
    found, head = verify(store, chain, None), store.head()
    if found.ok and heads != [head]:
        text = f"it ends at entry {head[0]}, its anchor at {heads[-1][0]}: rolled back"
        found = replace(found, problems=(text,))
    return Backup(
        store.rows() if found.ok else [], chain, key is not None, str(facts.get("backup")), found
    )


def restore(backup: Backup, location: Location, news: Sequence[Event]) -> None:
    """Put a ledger with a backup's entries, and events that say so, where none is."""
    if not backup.verification.ok:
        raise LedgerError(f"the backup is broken: {'; '.join(backup.verification.problems)}")
    rows = [*backup.rows]
    heads = [(0, START), *((row.number, row.digest) for row in rows)]
    _check_place(backup, location, heads)
    head = heads[-1]
    for event in news:
        rows.append(backup.chain.enter(head, event))
        head = (rows[-1].number, rows[-1].digest)
    with closing(location.store()) as store, store.transaction():
        if store.head() != (0, START):
            raise LedgerError(f"{location.shown!r} has entries: nothing is overwritten")
        if backup.own_key and not location.key.exists():
            backup.chain.keep(location.key)
        Anchor(location.head, backup.chain).write(heads[-1], head, restoring=True)
        for row in rows:
            store.append(row)


def _check_place(backup: Backup, location: Location, heads: Sequence[tuple[int, str]]) -> None:
    """Refuse a place where anything would be replaced, or that knows of later charges."""
    journal = location.file.with_name(location.file.name + "-journal")
    if location.address is None and os.path.lexists(journal):  # of a ledger that is gone
        raise LedgerError(f"{str(journal)!r} exists: move it elsewhere")
    there = Chain.of(location.key) if location.key.exists() else None
    if there is not None and there.text != backup.chain.text:
        name = location.key.name
        raise LedgerError(f"{name!r} is the key of another ledger: move it elsewhere")
    if not location.head.exists():
        return
    anchored, facts = Anchor(location.head, backup.chain).read()
    if facts.get("restoring"):  # and killed: it had announced entries of its own
        anchored = anchored[:1]
    if anchored[-1][0] > heads[-1][0]:
        raise LedgerError(
            f"the anchor {location.head.name!r} records entry {anchored[-1][0]}, but the backup "
            f"ends at entry {heads[-1][0]}: charges would be lost. Restore a later backup; if "
            "there is none, treat the budget of every data set as spent"
        )
    if anchored[0] not in heads:
        raise LedgerError(
            f"the anchor {location.head.name!r} records another entry {anchored[0][0]} than the "
            "backup: it belongs to another ledger"
        )
