"""Where a ledger lies: its entries, and beside them its key and its anchor.

What is there and what is missing says whether a ledger is new, in use, or erased. A new one is made
under the store's lock in the order entries, anchor, key: a crash in between leaves a state that the
next opening finishes, and a key without a ledger can only mean that the ledger was taken away.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import InputError, LedgerError
from .chain import KEY_VARIABLE, START, Anchor, Chain, Head
from .postgres import PostgresStore
from .store import SQLiteStore, Store
from .verification import misplaced

_REMOTE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
# What SQLite may take for a database that is gone with its process, by name or by its own URLs.
_FLEETING = re.compile(r"file:|.*:memory:|.*[?&](mode=memory|vfs=)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Location:
    """A ledger's address: a file, or a PostgreSQL database with a local name for key and anchor.

    Make one with :meth:`of`, which makes paths absolute: a process may go elsewhere while the
    ledger is open. Its ``repr`` and :attr:`shown` hold no password.
    """

    shown: str
    file: Path
    address: str | None = None

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        beside: str | os.PathLike[str] | None = None,
    ) -> Location:
        """Return the place at a path, or at a ``postgresql://`` address with ``beside``."""
        text = _text("ledger", path)
        if _REMOTE.match(text):
            if beside is None:
                raise InputError(
                    "beside",
                    "must name a local file for a ledger in PostgreSQL: its key and its anchor "
                    "lie there, as NAME.key and NAME.head",
                )
            return cls(_shown(text), Path(_text("beside", beside)).absolute(), text)
        scheme = _SCHEME.match(text)
        if scheme is not None:  # the text may hold a password: it is not repeated
            raise InputError(
                "ledger",
                f"must be a file or the text of a postgresql:// address, got a {scheme[1]!r} "
                f"address{(' as a path' if scheme[1].startswith('postgres') else '')}",
            )
        if beside is not None:
            raise InputError(
                "beside", "goes with a ledger in PostgreSQL: key and anchor of a file lie beside it"
            )
        if _FLEETING.match(text):
            raise InputError(
                "ledger",
                "must be a file on disk: one in memory forgets what was spent. Leave it out for a "
                "budget of one call",
                text,
            )
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

    def open_store(self, *, create: bool) -> Store:
        """Open the entries; refuse a place that cannot be a ledger, or was one and is erased."""
        if self.file.is_dir():
            raise InputError("ledger", f"must be a file, and {str(self.file)!r} is a folder")
        if not self.file.parent.is_dir():
            raise LedgerError(
                f"ledger {str(self.file)!r}: there is no folder {str(self.file.parent)!r}"
            )
        if self.address is not None:
            if self.key.exists() and not self.head.exists():
                raise self._erased("its anchor is gone, but its key is there", self.key)
            if not create and not self.head.exists():
                raise LedgerError(f"ledger {str(self.file)!r} does not exist: it has no anchor")
            return PostgresStore(self.address, create=create)
        # Looked for before the entries, which are made first: so nothing is misread meanwhile.
        left = [file for file in (self.head, self.key) if file.exists()]
        if left and not self.file.exists():
            what = "anchor" if left[0] == self.head else "key"
            raise self._erased(f"it is gone, but its {what} is there", *left)
        return SQLiteStore(self.file, create=create)

    def open_reader(self) -> tuple[Store, Chain, Anchor]:
        """Open entries, key and anchor without writing anything, also on read-only media."""
        if self.address is None and not self.file.exists():
            raise LedgerError(f"ledger {str(self.file)!r} does not exist")
        chain = Chain.from_environment()
        if chain is None and not self.key.exists():
            # Without an entry it is being made, or a crash left it so: the next run ends that.
            if self.address is None and Anchor.peek(self.head) == 0:
                with closing(SQLiteStore(self.file, readonly=True)) as entries:
                    if entries.head() == (0, START):
                        raise LedgerError(f"ledger {str(self.file)!r} does not exist: no key yet")
            raise self._no_key()
        chain = chain or Chain.read(self.key)
        store: Store = (
            SQLiteStore(self.file, readonly=True)
            if self.address is None
            else PostgresStore(self.address, create=False, readonly=True)
        )
        return store, chain, Anchor(self.head, chain)

    def unlock(self, store: Store, *, new: bool, create: bool) -> tuple[Chain, Anchor]:
        """Return key and anchor, made if the ledger is new; only under the store's lock."""
        chain, head = Chain.from_environment(), store.head()
        if chain is None and not self.key.exists():
            return self._begin(head, create=create)
        named = chain is not None
        chain = chain or Chain.read(self.key)
        anchor = Anchor(self.head, chain)
        if not self.head.exists() and head[0] == 0:
            # A key from the environment does not tell a new ledger from an emptied one: then the
            # entries' file must have been absent.
            if not (named and new and create):
                left = self.file if named else self.key
                raise self._erased("it is empty, and its anchor is gone", left)
            anchor.write(head)
        problem = misplaced(store, anchor, head)
        if problem:
            raise LedgerError(problem)
        if head in anchor.read():  # what others added is anchored once the chain was checked
            anchor.write(head)
        return chain, anchor

    def _begin(self, head: Head, *, create: bool) -> tuple[Chain, Anchor]:
        """Make key and anchor of a ledger without entries."""
        said = Anchor.peek(self.head)
        if head[0] > 0 or said > 0:
            raise self._no_key()
        if not create:
            raise LedgerError(f"ledger {str(self.file)!r} does not exist: it has no key, no entry")
        chain = Chain.new()
        anchor = Anchor(self.head, chain)
        anchor.write((0, START))
        chain.keep(self.key)
        return chain, anchor

    def _no_key(self) -> LedgerError:
        return LedgerError(
            f"the ledger's key {self.key.name!r} is missing: restore it, or set {KEY_VARIABLE}"
            + ("" if self.address is None else "; give as beside the place where it lies")
        )

    def _erased(self, found: str, *left: Path) -> LedgerError:
        names = " and ".join(repr(file.name) for file in left)
        return LedgerError(
            f"ledger {self.shown!r} was erased: {found}. What was spent is in it, so restore it "
            f"from a backup; only if nothing was ever released with it, remove {names} and begin "
            "anew"
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
        shown = [
            f"{host.hostname or ''}{'' if host.port is None else f':{host.port}'}" for host in hosts
        ]
    except ValueError:
        raise InputError("ledger", "must be a postgresql:// address that can be read") from None
    return f"postgresql://{','.join(shown)}{parts.path}"
