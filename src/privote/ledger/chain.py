"""The chain: every entry is bound to all before it by a keyed digest, its head is kept outside.

An unkeyed chain can be recomputed by whoever edits the file, so the digest is an HMAC under a key
that lies beside the ledger (owner-readable only) or comes from the environment. A keyed chain still
cannot show that its *end* is missing, so the head is written to an anchor file as well, in two
steps around each commit: a crash between them leaves a state that is recognised, not an alarm.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from ..errors import LedgerError

KEY_VARIABLE = "PRIVOTE_LEDGER_KEY"
START = "0" * 64
Head = tuple[int, str]  # number and digest of the last entry
_SHORTEST = 16  # bytes of a key


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Chain:
    """A key, and what it says of entries."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_environment(cls) -> Chain | None:
        """Return the chain whose key the environment names; None if it names none."""
        given = os.environ.get(KEY_VARIABLE)
        if given is None:
            return None
        try:
            key = bytes.fromhex(given)
        except ValueError:
            key = b""
        if len(key) < _SHORTEST:
            raise LedgerError(f"{KEY_VARIABLE} must be at least 32 hexadecimal digits")
        return cls(key)

    @classmethod
    def read(cls, path: Path) -> Chain:
        """Take the key from its file."""
        try:
            key = bytes.fromhex(path.read_text().strip())
        except (ValueError, OSError) as error:
            raise LedgerError(f"the ledger's key {path.name!r} cannot be read: {error}") from None
        if len(key) < _SHORTEST:
            raise LedgerError(f"the ledger's key {path.name!r} is too short: restore it")
        return cls(key)

    @classmethod
    def new(cls) -> Chain:
        """Return a chain with a key of its own, not yet kept anywhere."""
        return cls(secrets.token_bytes(32))

    def keep(self, path: Path) -> None:
        """Write the key to a file that is not there yet, readable by its owner only."""
        _write_new(path, self._key.hex().encode())

    def digest(self, previous: str, number: int, at: str, body: str) -> str:
        """Return the digest that binds an entry to its predecessor."""
        return self.seal(canonical([previous, number, at, body]))

    def seal(self, text: str) -> str:
        """Return a keyed digest of a sealed text: says nothing to whoever lacks the key."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _write_new(path: Path, content: bytes) -> None:
    """Make a file that is whole from the first moment it is there."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(name, path)
        finally:
            os.unlink(name)
    except OSError as error:
        raise LedgerError(f"cannot write {path.name!r}: {error}") from None


class Anchor:
    """The head of the chain, outside the ledger: what is on record, and what is being added."""

    def __init__(self, path: Path, chain: Chain) -> None:
        self._path, self._chain = path, chain

    def read(self) -> dict[str, Any] | None:
        """Return the anchored heads; None if there never was one."""
        if not self._path.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(self._path.read_text())
            mark = record.pop("mark")
        except (ValueError, KeyError, OSError, AttributeError) as error:
            raise LedgerError(f"the anchor {self._path.name!r} cannot be read: {error}") from None
        if not hmac.compare_digest(mark, self._chain.seal(canonical(record))):
            raise LedgerError(f"the anchor {self._path.name!r} was edited: its mark does not fit")
        return record

    def write(self, head: Head, pending: Head | None = None) -> None:
        """Replace the anchor as a whole, durably."""
        record: dict[str, Any] = {"head": list(head), "pending": pending and list(pending)}
        text = canonical({**record, "mark": self._chain.seal(canonical(record))})
        try:
            self._replace(text)
        except OSError as error:
            raise LedgerError(
                f"the anchor {self._path.name!r} cannot be written: {error}"
            ) from None

    def _replace(self, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @staticmethod
    def peek(path: Path) -> int:
        """Return the last number an anchor names, unchecked: for when its key is gone."""
        try:
            record = json.loads(path.read_text()) if path.exists() else {"head": (0, START)}
            return max(int(head[0]) for head in (record["head"], record.get("pending")) if head)
        except (ValueError, TypeError, KeyError, IndexError, OSError, AttributeError) as error:
            raise LedgerError(f"the anchor {path.name!r} cannot be read: {error}") from None

    def problem(self, head: Head) -> str | None:
        """Say what is wrong if the ledger's head is neither the anchored nor the pending one."""
        record = self.read()
        if record is None:
            return f"the anchor {self._path.name!r} is missing"
        known = [tuple(record["head"])]
        if record["pending"]:
            known.append(tuple(record["pending"]))
        if head in known:
            return None
        return f"the ledger ends at entry {head[0]}, the anchor says {known[-1][0]}: rolled back"
