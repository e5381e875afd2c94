"""Where a ledger lies: a file or a database, with its key and its anchor beside it.

What is there and what is missing says whether a ledger is new, in use, or erased. A new one is made
under the store's lock in the order entries, anchor, key: a crash in between leaves a state that the
next opening finishes, and a key without a ledger can only mean that the ledger was taken away.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import InputError, LedgerError
from .chain import KEY_VARIABLE, Anchor, Chain
from .postgres import PostgresStore
from .store import START, SQLiteStore, Store

_REMOTE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)
# Other addresses, and how libpq also writes one.
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]+:/"
    r"|\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*=",
    re.IGNORECASE,
)
# What SQLite may take for a database that is gone with its process, by name or by its own URLs.
_FLEETING = re.compile(r"file:|.*:memory:|.*[?&](mode=memory|vfs=)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Location:
    """A ledger's address: a file, or a PostgreSQL database with a local name for key and anchor.

    Make one with :meth:`of`, which makes paths absolute: a process may change its folder while the
    ledger is open. Its ``repr`` and :attr:`shown` hold no password.
    """

    shown: str
    file: Path
    address: str | None = None

    @classmethod
    def of(
        cls,
        path: Location | str | os.PathLike[str],
        beside: str | os.PathLike[str] | None = None,
    ) -> Location:
        """Return the place at a path, or at a ``postgresql://`` address with ``beside``."""
        if isinstance(path, Location):
            return path
        text = _text("ledger", path)
        if _REMOTE.match(text):
            if beside is None:
                rule = "must name a local file for a ledger in PostgreSQL: its key and anchor are "
                raise InputError("beside", f"{rule}kept there, as NAME.key and NAME.head")
            return cls(_shown(text), Path(_text("beside", beside)).absolute(), text)
        if _ADDRESS.match(text):  # it may hold a password: it is not repeated
            raise InputError("ledger", "must be a file, or the text of a postgresql:// address")
        if beside is not None:
            rule = "needs a ledger in PostgreSQL: key and anchor of a file are beside it"
            raise InputError("beside", rule)
        if _FLEETING.match(text):
            rule = "must be a file on disk: one in memory forgets what was spent. Leave it out for "
            raise InputError("ledger", f"{rule}a budget of one call", text)
        return cls(Path(text).name, Path(text).absolute())

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"

    @property
    def key(self) -> Path:
        """The key's file."""
        return self.file.with_name(self.file.name + ".key")

    @property
    def head(self) -> Path:
        """The anchor's file."""
        return self.file.with_name(self.file.name + ".head")

    def store(self, *, create: bool = True, readonly: bool = False) -> Store:
        """Open the entries, whatever else is there."""
        if self.address is None:
            return SQLiteStore.open(self.file, create=create, readonly=readonly)
        return PostgresStore(self.address, create=create, readonly=readonly)

    def open_reader(self) -> tuple[Store, Chain, Anchor]:
        """Open entries, key and anchor without writing anything, also on read-only media."""
        if self.address is None and not self.file.exists():
            raise LedgerError(f"ledger {str(self.file)!r} does not exist")
        chain = Chain.of(self.key)
        if chain is None:
            raise self._no_key()
        anchor = Anchor(self.head, chain)
        store = self.store(create=False, readonly=True)
        try:
            first = anchor.read()
            anchor.check(store, store.head(), first=first)
        except LedgerError:
            store.close()
            raise
        return store, chain, anchor

    def open(self, *, create: bool) -> tuple[Store, Chain, Anchor]:
        """Open entries, key and anchor; make them if there are none, and ``create`` says so.

        Refuse a place where a ledger was, and is erased: they are made in the order entries,
        anchor, key, so that a crash in between leaves a state that the next opening finishes, and a
        key without a ledger can only mean that the ledger was taken away.
        """
        chain = Chain.of(self.key)  # a bad key is found before anything is made
        new = self.address is not None or not self.file.exists()
        # Before the entries, which another process may be making right now, and makes first.
        left = [file for file in (self.key, self.head) if file.exists()]
        if left and self.address is None and not self.file.exists():
            raise self._erased("its entries are gone", left)
        if self.address is not None and left == [self.key]:
            raise self._erased("its anchor is gone", left)
        if self.address is not None and not left and not create:
            raise LedgerError(f"ledger {self.shown!r} does not exist: {self.head.name!r} is gone")
        store = self.store(create=create)
        try:
            with store.transaction():
                return store, *self._unlock(store, chain or Chain.of(self.key), new and create)
        except BaseException:
            store.close()
            raise

    def _unlock(self, store: Store, chain: Chain | None, new: bool) -> tuple[Chain, Anchor]:
        """Return key and anchor, made if the ledger is new; only under the store's lock.

        ``new`` says that no file was there before this process opened it, or that nobody can tell.
        """
        head = store.head()
        if chain is None:  # without entries, it is new
            if {head, *Anchor(self.head, None).read()} != {(0, START)}:
                raise self._no_key()
            chain = Chain()
            Anchor(self.head, chain).write(head)
            chain.keep(self.key)
        anchor = Anchor(self.head, chain)
        if head == (0, START) and not self.head.exists():
            # A key from the environment does not tell a new ledger from an emptied one: then the
            # entries' file must have been absent.
            if self.key.exists() or not new:
                raise self._erased("its entries and its anchor are gone", [self.file, self.key])
            anchor.write(head)
        # A crash between commit and anchor left it open; what others added is anchored elsewhere.
        if head in anchor.check(store, head)[1:]:
            anchor.write(head)
        return chain, anchor

    def _no_key(self) -> LedgerError:
        return LedgerError(
            f"the ledger's key {self.key.name!r} is missing: restore it, or set {KEY_VARIABLE}"
            + ("" if self.address is None else "; give the place of the key as beside")
        )

    def _erased(self, loss: str, left: list[Path]) -> LedgerError:
        names = " and ".join(repr(file.name) for file in left)
        return LedgerError(
            f"ledger {self.shown!r} was erased: {loss}. It records what was spent, so restore it "
            f"from a backup. Only if nothing was ever released with it, remove {names} and start "
            "again"
        )


def _text(argument: str, value: Any) -> str:
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(argument, "must be a path or an address", value)
    return text


def _shown(address: str) -> str:
    """Return hosts, ports and database: no user, no password, no options."""
    try:
        parts = urlsplit(address)
        hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
        ports = ["" if host.port is None else f":{host.port}" for host in hosts]
    except ValueError:
        raise InputError("ledger", "must be a postgresql:// address that can be read") from None
    names = [(host.hostname or "") + port for host, port in zip(hosts, ports, strict=True)]
    return f"postgresql://{','.join(names)}{parts.path}"
