"""The chain: every entry is bound to all before it by a keyed digest, its head is kept outside.

An unkeyed chain can be recomputed by whoever edits the file, so the digest is an HMAC under a key
that lies beside the ledger (owner-readable only) or comes from the environment. A keyed chain still
cannot show that its *end* is missing, so the head is written to an anchor file as well, in two
steps around each commit: a crash between them leaves a state that is recognised, not an alarm.

What is at a :class:`Location`, and what is missing, says whether a ledger is new, in use, or
erased. A new one is made under the store's lock in the order entries, anchor, key: a crash in
between leaves a state that the next opening finishes, and a key without a ledger can only mean that
the ledger was taken away.

Verification takes no lock and writes nothing, so it may run while others write, and on read-only
media.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .._version import __version__
from ..errors import InputError, LedgerError, PrivoteWarning
from ..files import check_written, complete, written
from .events import Event
from .postgres import PostgresStore
from .store import START, Head, Row, SQLiteStore, Store

KEY_VARIABLE = "PRIVOTE_LEDGER_KEY"
_SHORTEST = 16  # bytes of a key
_FORMAT = 1  # of an anchor
_LONGEST = 4096  # bytes of a key, or of an anchor
_REMOTE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)
# Other addresses, and how libpq also writes one.
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]+:/"
    r"|\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*=",
    re.IGNORECASE,
)
# What SQLite may take for a database that is gone with its process, by name or by its own URLs.
_FLEETING = re.compile(r"file:|.*:memory:|.*[?&](mode=memory|vfs=)", re.IGNORECASE | re.DOTALL)

#: Returns the one JSON text of a value: sorted keys, no spaces, no NaN.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def now() -> str:
    """Return the time as entries have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Chain:
    """A key, by default a new one that is stored nowhere yet, and the digests made with it."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key

    @classmethod
    def of(cls, path: Path) -> Chain | None:
        """Return the chain whose key the environment has, or else a file; None without a key."""
        text, name = os.environ.get(KEY_VARIABLE), KEY_VARIABLE
        if text is None:
            found = _read(path, "the ledger's key")
            if found is None:
                return None
            content, mode = found
            warn_if_open(path.name, mode)
            text, name = content.decode(errors="replace"), path.name
        return cls.parse(text, name)

    @classmethod
    def parse(cls, text: str, name: str) -> Chain:
        """Return the chain of a key as its file holds it."""
        try:
            key = bytes.fromhex(text.strip())
        except ValueError as error:
            raise LedgerError(f"the ledger's key {name!r} cannot be read: {error}") from None
        if len(key) < _SHORTEST:
            rule = "must have at least 32 hexadecimal digits"
            raise LedgerError(f"the ledger's key {name!r} {rule}: restore it")
        return cls(key)

    @property
    def text(self) -> str:
        """The key as its file holds it: secret."""
        return self._key.hex()

    def keep(self, path: Path) -> None:
        """Write the key to a new file, readable by its owner only."""
        try:
            with complete(path, force=False, owner_only=True) as part:
                part.write_text(self.text)
        except (OSError, InputError) as error:
            raise LedgerError(f"the key {path.name!r} cannot be written: {error}") from None

    def seal(self, text: str) -> str:
        """Return a keyed digest of a text: it says nothing to anyone without the key."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def row(self, previous: Head, at: str, body: str, sealed: str | None = None) -> Row:
        """Return the row that follows ``previous``; a sealed part is named in the body's "seal"."""
        number = previous[0] + 1
        digest = self.seal(canonical([previous[1], number, at, body]))
        return Row(number, at, body, digest, sealed)

    def enter(self, previous: Head, event: Event) -> Row:
        """Return the row of an event that happens now, after ``previous``."""
        body, sealed = event.encoded()
        hidden = None if sealed is None else canonical(sealed)
        seal = {} if hidden is None else {"seal": self.seal(hidden)}
        text = canonical({**body, **seal, "version": __version__})
        return self.row(previous, now(), text, hidden)

    def check(self, previous: Head, row: Row) -> None:
        """Raise unless a row, with its sealed part, is as it was written after ``previous``."""
        if row.number != previous[0] + 1:
            raise LedgerError(f"entry {previous[0] + 1} is missing")
        if row != self.row(previous, row.at, row.body, row.sealed):
            raise LedgerError(f"entry {row.number} was edited: it does not match the chain")
        seal = None if row.sealed is None else self.seal(row.sealed)
        if seal != json.loads(row.body).get("seal"):
            raise LedgerError(f"the sealed part of entry {row.number} was edited")


def warn_if_open(name: str, mode: int) -> None:
    """Warn of a file with the ledger's key that others can read."""
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"{name!r} contains the ledger's key and is open to others (mode {mode & 0o777:o}), "
            "who could edit the ledger unnoticed; run chmod 600 on it",
            PrivoteWarning,
            stacklevel=1,
        )


def _read(path: Path, what: str) -> tuple[bytes, int] | None:
    """Return the content and the mode of a small file; None if there is none."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LONGEST:
            raise OSError("it must be a small regular file, not a pipe, a device or a folder")
        return path.read_bytes(), status.st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{what} {path.name!r} cannot be read: {error}") from None


class Anchor:
    """The head of the chain, outside the ledger: the last entry, and the one being added.

    Without a chain it can be read, and not checked: for a ledger whose key is gone.
    """

    def __init__(self, path: Path, chain: Chain | None) -> None:
        self._path, self._chain = path, chain

    def read(self, content: bytes | None = None) -> tuple[list[Head], dict[str, Any]]:
        """Return the heads that the file, or its content, names, and all it says.

        They are the anchored one and, if one is announced, the pending one; none if never set. What
        is not marked with the key is refused.
        """
        name, chain = self._path.name, self._chain
        if content is None:
            found = _read(self._path, "the anchor")
            if found is None:
                return [], {}
            content = found[0]
        try:
            record = dict(json.loads(content))
            mark = str(record.pop("mark")).encode()
            named = filter(None, (record["head"], record.get("pending")))
            heads = [(int(number), str(digest)) for number, digest in named]
            seal = mark if chain is None else chain.seal(canonical(record)).encode()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise LedgerError(f"the anchor {name!r} cannot be read: {error}") from None
        check_written(f"the anchor {name!r}", record, _FORMAT, LedgerError)
        if not heads or not hmac.compare_digest(mark, seal):
            raise LedgerError(f"the anchor {name!r} was edited: its code does not match")
        return heads, record

    def text(self, head: Head, pending: Head | None = None, **facts: Any) -> str:
        """Return the content of an anchor's file."""
        assert self._chain is not None
        record = {**written(_FORMAT), "head": head, "pending": pending, **facts}
        return canonical({**record, "mark": self._chain.seal(canonical(record))})

    def write(self, head: Head, pending: Head | None = None, **facts: Any) -> None:
        """Replace the anchor as a whole, durably; only under the store's lock."""
        try:
            with complete(self._path, force=True, owner_only=True) as part:
                part.write_text(self.text(head, pending, **facts))
        except (OSError, InputError) as error:
            name = self._path.name
            raise LedgerError(f"the anchor {name!r} cannot be written: {error}") from None

    def check(self, store: Store, head: Head, *, first: list[Head] | None = None) -> list[Head]:
        """Raise unless the entries end where it lets them; return the heads it names.

        They end where it says, or at what it announces; in a shared store others, who anchor
        elsewhere, may have gone on beyond. Without the store's lock others write meanwhile: then
        what the anchor said ``first``, before anything was read, must be among the entries, and
        these must end where it said so, or where it says so now.
        """
        heads = self.read()[0] if first is None else first
        if not heads:
            raise LedgerError(f"the anchor {self._path.name!r} is missing")
        allowed = head in heads
        if not allowed or first is not None:
            number, digest = heads[0]
            rows = store.rows(number - 1, number)
            there = number == 0 or [row.digest for row in rows] == [digest]
            beyond = store.shared or (
                first is not None and any(later[0] >= head[0] for later in self.read()[0])
            )
            allowed = there and (allowed or beyond)
        if not allowed:
            raise LedgerError(
                f"the ledger ends at entry {head[0]}, the anchor at {heads[-1][0]}: rolled back"
            )
        return heads


# -- where a ledger lies ---------------------------------------------------------------------------


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
        if self.address is None and not os.path.exists(self.file):
            raise LedgerError(f"ledger {str(self.file)!r} does not exist")
        chain = Chain.of(self.key)
        if chain is None:
            raise self._no_key()
        anchor = Anchor(self.head, chain)
        store = self.store(create=False, readonly=True)
        try:
            first = anchor.read()[0]
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
        new = self.address is not None or not os.path.exists(self.file)
        # Before the entries, which another process may be making right now, and makes first.
        left = [file for file in (self.key, self.head) if os.path.exists(file)]
        if left and self.address is None and not os.path.exists(self.file):
            raise self._erased("its entries are gone", left)
        if self.address is not None and left == [self.key]:
            raise self._erased("its anchor is gone", left)
        if self.address is not None and not left and not create:
            raise LedgerError(f"ledger {self.shown!r} does not exist: {self.head.name!r} is gone")
        store = self.store(create=create)
        try:
            with store.transaction():
                head = store.head()
                chain = chain or Chain.of(self.key)
                if chain is None:  # without entries, it is new
                    if {head, *Anchor(self.head, None).read()[0]} != {(0, START)}:
                        raise self._no_key()
                    chain = Chain()
                    Anchor(self.head, chain).write(head)
                    chain.keep(self.key)
                anchor = Anchor(self.head, chain)
                if head == (0, START) and not os.path.exists(self.head):
                    # A key from the environment does not tell a new ledger from an emptied one:
                    # then the entries' file must have been absent.
                    if os.path.exists(self.key) or not (new and create):
                        gone, left = "its entries and its anchor are gone", [self.file, self.key]
                        raise self._erased(gone, left)
                    anchor.write(head)
                # A crash between commit and anchor left it open; what others added is anchored
                # elsewhere.
                if head in anchor.check(store, head)[1:]:
                    anchor.write(head)
                return store, chain, anchor
        except BaseException:
            store.close()
            raise

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


# -- verification ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :meth:`privote.Ledger.verify` returns.

    Attributes
    ----------
    entries, head
        How many entries there are, and the digest of the last one.
    problems
        What is broken: none may be trusted from there on.
    notes
        What is odd and may be right, such as entries dated by different clocks.
    """

    entries: int
    head: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every entry is as it was written, and none is missing."""
        return not self.problems


def verify(store: Store, chain: Chain, anchor: Anchor | None) -> Verification:
    """Find any entry that was changed, removed, reordered, inserted or rolled back."""
    last, before, problems, notes = (0, START), "", list[str](), list[str]()
    try:
        first = [] if anchor is None else anchor.read()[0]
        problems += store.problems()
        for row in store.rows():
            chain.check(last, row)
            if row.at < before:
                notes.append(f"entry {row.number} is dated before entry {last[0]}: another clock")
            last, before = (row.number, row.digest), row.at
        if anchor is not None and not problems:
            anchor.check(store, store.head(), first=first)
    except LedgerError as error:
        problems.append(str(error))
    return Verification(entries=last[0], head=last[1], problems=tuple(problems), notes=tuple(notes))
