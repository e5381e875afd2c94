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
from ..errors import LedgerError, PrivoteWarning
from ..files import sync_folder
from .store import START, Head, Store

KEY_VARIABLE = "PRIVOTE_LEDGER_KEY"
_SHORTEST = 16  # bytes of a key
_FORMAT = 1  # of an anchor
_LONGEST = 4096  # bytes of a key, or of an anchor
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a named pipe in the place of a file would wait for ever


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Chain:
    """A key, by default a new one that is kept nowhere yet, and what it says of entries."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key

    @classmethod
    def from_environment(cls) -> Chain | None:
        """Return the chain whose key the environment names; None if it names none."""
        given = os.environ.get(KEY_VARIABLE)
        return None if given is None else cls.parse(given.encode(errors="replace"), KEY_VARIABLE)

    @classmethod
    def read(cls, path: Path) -> Chain:
        """Take the key from its file."""
        found = _content(path, "the ledger's key")
        if found is None:
            raise LedgerError(f"the ledger's key {path.name!r} is gone")
        text, mode = found
        chain = cls.parse(text, path.name)
        if os.name == "posix" and mode & 0o077:
            warnings.warn(
                f"the ledger's key {path.name!r} is open to others (mode {mode & 0o777:o}), who "
                "could edit the ledger unnoticed; run chmod 600 on it",
                PrivoteWarning,
                stacklevel=1,
            )
        return chain

    @classmethod
    def parse(cls, text: bytes, name: str) -> Chain:
        """Take the key from what its file holds."""
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
        """Write the key to a file that is not there yet, readable by its owner only."""
        try:
            draft = _durable(path, self.text)
            try:
                os.link(draft, path)  # whole from the first moment it is there
            finally:
                os.unlink(draft)
        except OSError as error:
            raise LedgerError(f"cannot write {path.name!r}: {error}") from None

    def digest(self, previous: str, number: int, at: str, body: str) -> str:
        """Return the digest that binds an entry to its predecessor."""
        return self.seal(canonical([previous, number, at, body]))

    def seal(self, text: str) -> str:
        """Return a keyed digest of a sealed text: says nothing to whoever lacks the key."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _durable(path: Path, content: bytes) -> Path:
    """Write a draft beside a file, for its owner only, and return it.

    Only under the store's lock: one writer at a time, so the draft has one name, and what a killed
    writer left is overwritten by the next.
    """
    draft = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | _AT_ONCE
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return draft


def _content(path: Path, what: str) -> tuple[bytes, int] | None:
    """Return what a small file holds, and its mode; None if there is none.

    What is no file is refused, without waiting.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _AT_ONCE), "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise OSError("it must be a regular file, not a pipe, a device or a folder")
            return stream.read(_LONGEST), mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{what} {path.name!r} cannot be read: {error}") from None


class Anchor:
    """The head of the chain, outside the ledger: what is on record, and what is being added."""

    def __init__(self, path: Path, chain: Chain) -> None:
        self._path, self._chain = path, chain

    def read(self) -> list[Head]:
        """Return the anchored head and, if one is announced, the pending one; none if never set."""
        found = _content(self._path, "the anchor")
        return [] if found is None else self.parse(found[0])[1]

    def parse(self, content: bytes, *, marked: bool = True) -> tuple[dict[str, Any], list[Head]]:
        """Return the record of an anchor and the heads in it, if this key has marked it."""
        name = self._path.name
        try:
            record = json.loads(content)
            if not isinstance(record, dict):
                raise ValueError("it contains no record")
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"the anchor {name!r} cannot be read: {error}") from None
        # The first anchors had this format, and did not say so.
        check_written(f"the anchor {name!r}", {"format": _FORMAT, **record}, _FORMAT, LedgerError)
        heads = [head for head in (record.get("head"), record.get("pending")) if head is not None]
        if not heads or not all(
            isinstance(head, list) and [*map(type, head)] == [int, str] for head in heads
        ):
            raise LedgerError(f"the anchor {name!r} cannot be read: it names no entry")
        mark = record.pop("mark", None)
        if marked and not (
            isinstance(mark, str)
            and hmac.compare_digest(mark.encode(), self._chain.seal(canonical(record)).encode())
        ):
            raise LedgerError(f"the anchor {name!r} was edited: its code does not match")
        return record, [(number, digest) for number, digest in heads]

    @property
    def restoring(self) -> bool:
        """Whether it was written ahead of a database that is being restored."""
        found = _content(self._path, "the anchor")
        return found is not None and bool(self.parse(found[0])[0].get("restoring"))

    def text(self, head: Head, pending: Head | None = None, **more: Any) -> bytes:
        """Return what the file of an anchor holds."""
        record = {**written(_FORMAT), "head": list(head), "pending": pending and list(pending)}
        record |= more
        return canonical({**record, "mark": self._chain.seal(canonical(record))}).encode()

    def write(self, head: Head, pending: Head | None = None, **more: Any) -> None:
        """Replace the anchor as a whole, durably."""
        try:
            os.replace(_durable(self._path, self.text(head, pending, **more)), self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise LedgerError(
                f"the anchor {self._path.name!r} cannot be written: {error}"
            ) from None

    @staticmethod
    def peek(path: Path) -> int:
        """Return the last number an anchor names, unchecked: for when its key is gone."""
        content, _ = _content(path, "the anchor") or (b"", 0)
        return max(Anchor(path, Chain(b"")).parse(content, marked=False)[1])[0]

    @property
    def missing(self) -> str:
        """What to say if there is no anchor."""
        return f"the anchor {self._path.name!r} is missing"

    @staticmethod
    def rolled_back(head: Head, known: list[Head]) -> str:
        """What to say if the entries end elsewhere."""
        return f"the ledger ends at entry {head[0]}, the anchor at {known[-1][0]}: rolled back"


# -- verification ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :meth:`privote.Ledger.verify` found."""

    entries: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if every entry is as it was written, and none is missing."""
        return not self.problems


def check_placed(store: Store, anchor: Anchor, head: Head) -> None:
    """Raise unless the entries end where an anchor lets them; under the lock.

    They end where it says, or at what it announces. In a shared store others may have gone on who
    anchor elsewhere: there it is enough that what it says is among the entries.
    """
    known = anchor.read()
    if not known:
        raise LedgerError(anchor.missing)
    if head not in known and not (store.shared and _holds(store, known[0])):
        raise LedgerError(anchor.rolled_back(head, known))


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
    number = head[0]
    return number == 0 or [(row.number, row.digest) for row in store.rows(number - 1, number)] == [
        head
    ]


def verify(store: Store, chain: Chain, anchor: Anchor | None) -> Verification:
    """Find any entry that was changed, removed, reordered, inserted or rolled back."""
    previous, count, problems = START, 0, list[str]()
    try:
        first = [] if anchor is None else anchor.read()
        problems += store.problems()
        for row in store.rows():
            count += 1
            if row.number != count:
                problems.append(f"entry {count} is missing")
                break
            if row.digest != chain.digest(previous, row.number, row.at, row.body):
                problems.append(f"entry {row.number} was edited")
                break
            seal = json.loads(row.body).get("seal")
            if (row.sealed is None) != (seal is None) or (
                row.sealed is not None and chain.seal(row.sealed) != seal
            ):
                problems.append(f"the sealed part of entry {row.number} was edited")
            previous = row.digest
        wrong = None
        if anchor is not None and not problems:
            wrong = against_anchor(store, anchor, first)
        problems += [wrong] if wrong else []
    except LedgerError as error:
        problems.append(str(error))
    return Verification(entries=count, head=previous, problems=tuple(problems))
