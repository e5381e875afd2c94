"""The chain: every entry is bound to all before it by a keyed digest, its head is kept outside.

An unkeyed chain can be recomputed by whoever edits the file, so the digest is an HMAC under a key
that lies beside the ledger (owner-readable only) or comes from the environment. A keyed chain still
cannot show that its *end* is missing, so the head is written to an anchor file as well, in two
steps around each commit: a crash between them leaves a state that is recognised, not an alarm.

Verification takes no lock and writes nothing, so it may run while others write, and on read-only
media.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import check_written, written
from ..errors import InputError, LedgerError, PrivoteWarning
from ..files import complete
from .store import START, Head, Row, Store

KEY_VARIABLE = "PRIVOTE_LEDGER_KEY"
_SHORTEST = 16  # bytes of a key
_FORMAT = 1  # of an anchor
_LONGEST = 4096  # bytes of a key, or of an anchor


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Chain:
    """A key, by default a new one that is stored nowhere yet, and the digests made with it."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key

    @classmethod
    def from_environment(cls) -> Chain | None:
        """Return the chain whose key the environment names; None if it names none."""
        text = os.environ.get(KEY_VARIABLE)
        return None if text is None else cls.parse(text.encode(errors="replace"), KEY_VARIABLE)

    @classmethod
    def read(cls, path: Path) -> Chain:
        """Read the key's file."""
        content, mode = _read(path, "the ledger's key") or (None, 0)
        if content is None:
            raise LedgerError(f"the ledger's key {path.name!r} is gone")
        warn_if_open(path.name, mode)
        return cls.parse(content, path.name)

    @classmethod
    def parse(cls, text: bytes, name: str) -> Chain:
        """Return the chain of a key as its file holds it."""
        try:
            key = bytes.fromhex(text.decode().strip())
        except ValueError as error:
            raise LedgerError(f"the ledger's key {name!r} cannot be read: {error}") from None
        if len(key) < _SHORTEST:
            rule = "must have at least 32 hexadecimal digits"
            raise LedgerError(f"the ledger's key {name!r} {rule}: restore it")
        return cls(key)

    @property
    def text(self) -> bytes:
        """The key as its file holds it: secret."""
        return self._key.hex().encode()

    def keep(self, path: Path) -> None:
        """Write the key to a new file, readable by its owner only."""
        _write(path, self.text, "the ledger's key", force=False)

    def seal(self, text: str) -> str:
        """Return a keyed digest of a text: it says nothing to anyone without the key."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def digest(self, previous: str, number: int, at: str, body: str) -> str:
        """Return the digest that binds an entry to its predecessor."""
        return self.seal(canonical([previous, number, at, body]))

    def row(self, previous: Head, at: str, body: str, sealed: str | None = None) -> Row:
        """Return the row that follows ``previous``; a sealed part is named in the body's "seal"."""
        number = previous[0] + 1
        return Row(number, at, body, self.digest(previous[1], number, at, body), sealed)


def warn_if_open(name: str, mode: int) -> None:
    """Warn of a file with the ledger's key that others can read."""
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"{name!r} contains the ledger's key and is open to others (mode {mode & 0o777:o}), "
            "who could edit the ledger unnoticed; run chmod 600 on it",
            PrivoteWarning,
            stacklevel=1,
        )


def _write(path: Path, content: bytes, what: str, *, force: bool) -> None:
    """Write a file whole, durably and for its owner only; only under the store's lock."""
    try:
        with complete(path, force=force, owner_only=True) as part:
            part.write_bytes(content)
    except (OSError, InputError) as error:
        raise LedgerError(f"{what} {path.name!r} cannot be written: {error}") from None


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

    def read(self) -> list[Head]:
        """Return the anchored head and, if one is announced, the pending one; [] if never set."""
        return self.heads(self.record())

    @staticmethod
    def heads(record: dict[str, Any]) -> list[Head]:
        """Return the heads in a record."""
        heads = (record.get("head"), record.get("pending"))
        return [(int(number), str(digest)) for number, digest in filter(None, heads)]

    def record(self) -> dict[str, Any]:
        """Return the anchor's record; empty if it was never set."""
        content, _ = _read(self._path, "the anchor") or (None, 0)
        return {} if content is None else self.parse(content)

    def parse(self, content: bytes) -> dict[str, Any]:
        """Return the record in an anchor's file; refuse what this key did not mark."""
        name, chain = self._path.name, self._chain
        try:
            record = dict(json.loads(content))
            mark = str(record.pop("mark")).encode()
            if not self.heads(record):
                raise ValueError("it names no entry")
            seal = mark if chain is None else chain.seal(canonical(record)).encode()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise LedgerError(f"the anchor {name!r} cannot be read: {error}") from None
        check_written(f"the anchor {name!r}", record, _FORMAT, LedgerError)
        if not hmac.compare_digest(mark, seal):
            raise LedgerError(f"the anchor {name!r} was edited: its code does not match")
        return record

    def text(self, head: Head, pending: Head | None = None, **facts: Any) -> bytes:
        """Return the content of an anchor's file."""
        if self._chain is None:
            raise LedgerError("an anchor cannot be written without the ledger's key")
        record = {**written(_FORMAT), "head": head, "pending": pending, **facts}
        return canonical({**record, "mark": self._chain.seal(canonical(record))}).encode()

    def write(self, head: Head, pending: Head | None = None, **facts: Any) -> None:
        """Replace the anchor as a whole, durably."""
        _write(self._path, self.text(head, pending, **facts), "the anchor", force=True)

    @property
    def missing(self) -> str:
        """What to say if there is no anchor."""
        return f"the anchor {self._path.name!r} is missing"

    @staticmethod
    def rolled_back(head: Head, anchored: list[Head]) -> str:
        """What to say if the entries end elsewhere."""
        return f"the ledger ends at entry {head[0]}, the anchor at {anchored[-1][0]}: rolled back"


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


def check_placed(store: Store, anchor: Anchor, head: Head) -> None:
    """Raise unless the entries end where an anchor lets them; under the lock.

    They end where it says, or at what it announces. In a shared store others may have gone on who
    anchor elsewhere: there it is enough that what it says is among the entries.
    """
    anchored = anchor.read()
    if not anchored:
        raise LedgerError(anchor.missing)
    if head not in anchored and not (store.shared and _holds(store, anchored[0])):
        raise LedgerError(anchor.rolled_back(head, anchored))


def against_anchor(store: Store, anchor: Anchor, first: list[Head]) -> str | None:
    """Say what is wrong with the end of the chain, also while others write.

    An entry is announced in the anchor before it is committed and settled there after. So what the
    anchor said *first*, before anything else was read, must be among the entries, and these must
    end where it said so, or where it says so now; in a shared store they may go on beyond.
    """
    if not first:
        return anchor.missing
    head = store.head()
    if not _holds(store, first[0]):
        return anchor.rolled_back(head, first)
    if head in first or store.shared or any(later[0] >= head[0] for later in anchor.read()):
        return None
    return anchor.rolled_back(head, first)


def _holds(store: Store, head: Head) -> bool:
    rows = store.rows(head[0] - 1, head[0])
    return head[0] == 0 or [(row.number, row.digest) for row in rows] == [head]


def verify(store: Store, chain: Chain, anchor: Anchor | None) -> Verification:
    """Find any entry that was changed, removed, reordered, inserted or rolled back."""
    last, before, problems, notes = (0, START), "", list[str](), list[str]()
    try:
        first = [] if anchor is None else anchor.read()
        problems += store.problems()
        for row in store.rows():
            if row.number != last[0] + 1:
                problems.append(f"entry {last[0] + 1} is missing")
                break
            if row != chain.row(last, row.at, row.body, row.sealed):
                problems.append(f"entry {row.number} was edited")
                break
            seal = None if row.sealed is None else chain.seal(row.sealed)
            if seal != json.loads(row.body).get("seal"):
                problems.append(f"the sealed part of entry {row.number} was edited")
            if row.at < before:
                notes.append(f"entry {row.number} is dated before entry {last[0]}: another clock")
            last, before = (row.number, row.digest), row.at
        wrong = None if anchor is None or problems else against_anchor(store, anchor, first)
        problems += [] if wrong is None else [wrong]
    except LedgerError as error:
        problems.append(str(error))
    return Verification(entries=last[0], head=last[1], problems=tuple(problems), notes=tuple(notes))
