"""A backup: one file with entries, key and anchor, to restore a ledger where these are lost.

It is a SQLite database like the ledger's own, with one table more, so a backup can be verified and
read as it is. A ledger in PostgreSQL is copied into the same kind of file. The anchor in it names
the last entry and the backup's time, under the ledger's key: a backup that lacks an entry, or says
another time, is refused. Nothing in it is run: tables and triggers must be exactly as made here.

To restore is to put key and anchor first, and then all entries at once: a new file that appears
whole, or one transaction of a database. Until then the key and the anchor say that a ledger is
missing, and nobody can charge anything. So a crash leaves a ledger or none, and the same backup can
be restored again.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from .._version import __version__
from ..errors import InputError, LedgerError
from ..files import check_file, complete
from .chain import KEY_VARIABLE, Anchor, Chain, Verification, verify, warn_if_open
from .location import Location
from .store import FORMAT, START, Format, MemoryStore, Row, SQLiteStore

_FORM = replace(
    FORMAT,
    name="backup",
    tables={
        **FORMAT.tables,
        "backup": "CREATE TABLE backup (version TEXT NOT NULL, anchor TEXT NOT NULL, key TEXT)",
    },
    writer="SELECT version FROM backup",
)


@dataclass(frozen=True)
class Backup:
    """What a backup holds, checked: entries that end where its anchor says, under its key.

    Attributes
    ----------
    rows
        The entries.
    chain
        The ledger's key.
    own_key
        Whether the key is inside; otherwise it is in the environment.
    at
        When the backup was written.
    """

    rows: Sequence[Row]
    chain: Chain
    own_key: bool
    at: str


def write_backup(path: Path, rows: Sequence[Row], chain: Chain) -> bool:
    """Write a new file, for its owner only; return whether the key is inside.

    It is not where the environment has it: then it is kept elsewhere on purpose. Broken entries are
    not copied.
    """
    if os.path.lexists(path):
        raise InputError(f"backup {str(path)!r} exists already")
    verification = verify(MemoryStore(rows), chain, None)
    if not verification.ok:
        raise LedgerError(f"the ledger is broken: {'; '.join(verification.problems)}")
    own_key = Chain.from_environment() is None
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    anchor = Anchor(path, chain).text((verification.entries, verification.head), backup=at)
    key = chain.text.decode() if own_key else None
    _write(path, _FORM, rows, (__version__, anchor.decode(), key))
    return own_key


def read_backup(path: str | os.PathLike[str]) -> Backup:
    """Read a backup; raise if it is broken or belongs to another key."""
    backup, verification = _read(path)
    if not verification.ok:
        raise LedgerError(f"backup {str(path)!r}: {'; '.join(verification.problems)}")
    return backup


def verify_backup(path: str | os.PathLike[str]) -> Verification:
    """Verify a backup without restoring it."""
    return _read(path)[1]


def restore(backup: Backup, location: Location, rows: Sequence[Row]) -> None:
    """Put a ledger with these rows, which are the backup's and what says so, where none is."""
    _check_place(backup, location)
    if location.address is None:
        _put_beside(backup, location, rows)
        _write(location.file, FORMAT, rows)
        return
    with closing(location.store()) as store, store.transaction():
        if store.head() != (0, START):
            raise LedgerError(f"{location.shown!r} has entries: nothing is overwritten")
        _put_beside(backup, location, rows)
        for row in rows:
            store.append(row)


def _write(
    path: Path, form: Format, rows: Sequence[Row], facts: tuple[str | None, ...] = ()
) -> None:
    """Write a database as one new file, which is whole or absent.

    It is moved there, not linked: a ledger must not have two names, even after a crash.
    """
    with closing(SQLiteStore(":memory:", form)) as store:
        with store.transaction():
            for row in rows:
                store.append(row)
            if facts:
                store.run("INSERT INTO backup VALUES (?, ?, ?)", *facts)
        content = store.content()
    try:
        with complete(path, force=True, owner_only=True) as part:
            part.write_bytes(content)
    except OSError as error:
        raise LedgerError(f"{str(path)!r} cannot be written: {error}") from None


def _read(path: str | os.PathLike[str]) -> tuple[Backup, Verification]:
    """Return what a backup holds, and what is wrong with its entries."""
    file, chain = check_file(path, "backup"), Chain.from_environment()
    content = file.read_bytes() or b"empty"  # SQLite takes no bytes for a lack of memory
    with closing(SQLiteStore(file, _FORM, create=False, content=content)) as store:
        problems = store.problems()
        facts = [] if problems else store.run("SELECT anchor, key FROM backup")
        if len(facts) != 1:
            raise LedgerError(f"backup {str(path)!r} is damaged: {'; '.join(problems)}")
        (anchor, key), own_key = facts[0], facts[0][1] is not None
        if own_key:
            warn_if_open(file.name, file.stat().st_mode)
            inside = Chain.parse(str(key).encode(), file.name)
            if chain is not None and chain.text != inside.text:
                raise LedgerError(f"{KEY_VARIABLE} differs from the backup's key")
            chain = inside
        if chain is None:
            raise LedgerError(f"the backup contains no key: set {KEY_VARIABLE}")
        record = Anchor(file, chain).parse(str(anchor).encode(errors="replace"))
        found, head = verify(store, chain, None), store.head()
        if found.ok and Anchor.heads(record) != [head]:
            wrong = Anchor.rolled_back(head, Anchor.heads(record))
            found = replace(found, problems=(wrong,))
        return Backup(store.rows(), chain, own_key, str(record.get("backup"))), found


def _put_beside(backup: Backup, location: Location, rows: Sequence[Row]) -> None:
    """Put key and anchor; until the entries are there, these say that a ledger is missing."""
    if backup.own_key and not location.key.exists():
        backup.chain.keep(location.key)
    head = [(0, START), *((row.number, row.digest) for row in backup.rows)][-1]
    added = (rows[-1].number, rows[-1].digest)
    Anchor(location.head, backup.chain).write(head, added, restoring=True)


def _check_place(backup: Backup, location: Location) -> None:
    """Refuse a place where anything would be replaced, or that knows of later charges."""
    if location.address is None:
        for end in ("", "-wal", "-journal"):  # a log has charges of a ledger that is gone
            file = location.file.with_name(location.file.name + end)
            if os.path.lexists(file):
                raise LedgerError(f"{str(file)!r} exists and is not overwritten: move it elsewhere")
    if location.key.exists() and Chain.read(location.key).text != backup.chain.text:
        name = location.key.name
        raise LedgerError(f"{name!r} is the key of another ledger: move it elsewhere")
    record = Anchor(location.head, backup.chain).record()
    # A restore that was killed had announced its own entry, which counts for nothing.
    anchored = Anchor.heads(record)[: 1 if record.get("restoring") else 2]
    heads = [(0, START), *((row.number, row.digest) for row in backup.rows)]
    if anchored and max(anchored)[0] > heads[-1][0]:
        raise LedgerError(
            f"the anchor {location.head.name!r} records entry {max(anchored)[0]}, but the backup "
            f"ends at entry {heads[-1][0]}: charges would be lost. Restore a later backup; if "
            "there is none, treat the budget of every data set as spent"
        )
    if anchored and anchored[0] not in heads:
        raise LedgerError(
            f"the anchor {location.head.name!r} records another entry {anchored[0][0]} than the "
            "backup: it belongs to another ledger"
        )
