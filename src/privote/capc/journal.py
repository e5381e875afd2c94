"""What survives a crash: what was decided, and each side's half of the running counts.

A journal is a folder with one small file a batch. Each step replaces one file, whole and durably.
Halves are in the files of the batches that left them: those of the latest one count. So labels and
counts are stored both or neither.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ..errors import InputError, LedgerError, PeerError, PrivoteError, StorageError
from ..files import check_written, complete, locked, written
from .programs import IntArray
from .terms import MEANING, PROMISE, Terms

REQUESTED, GRANTED, DECIDED, STORED = "requested", "granted", "decided", "stored"
_FORMAT = 5
_WORD = 1 << 64
_FACTS, _BATCH = "journal.json", ".batch"
Half = dict[str, int]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, at either side.

    Attributes
    ----------
    phase
        Of the querying party: requested, granted, decided or stored; of the guardian: granted,
        decided, and stored once the decision is committed.
    querier, queries
        Who asked, and how many rows.
    run, version, half
        The decision: its run, which one of this querying party's it is, and the halves it leaves.
    content
        This side's share of the outcome; at last, at the querying party, the labels.
    facts
        What else the querying party is told.
    """

    phase: str
    querier: str = ""
    queries: int = 0
    run: str = ""
    version: int = 0
    half: Half = {}
    content: bytes = b""
    facts: dict[str, Any] = {}

    def share(self) -> IntArray:
        """Return this side's share of the outcome: (queries, labels)."""
        return np.frombuffer(self.content, "<i8").astype(np.int64).reshape(self.queries, -1)


class _Journal:
    """A folder that belongs to one promise of one coalition, one site and one process at a time.

    Attributes
    ----------
    key
        A secret that the folder was given when it was made.
    """

    def __init__(self, folder: Path | None, terms: Terms, owner: str) -> None:
        self._folder, self._lock, self.key = folder, -1, secrets.token_hex(32)
        self._batches: dict[str, Entry] = {}
        if folder is None:  # of a simulation
            return
        facts = {"kind": type(self).__name__, "promise": terms.digest(PROMISE), "owner": owner}
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            self._lock = locked(folder / "lock", make=True)
            if not (folder / _FACTS).exists():
                new = {**written(_FORMAT), **facts, "key": self.key}
                self._write(_FACTS, json.dumps(new, indent=1).encode())
            known = json.loads((folder / _FACTS).read_bytes())
            check_written(f"journal {str(folder)!r}", known, _FORMAT, LedgerError)
            for name, value in facts.items():
                if known[name] != value:
                    rule = f"must have the {name} of this coalition and site, {value!r:.40}"
                    raise InputError("journal", f"{str(folder)!r} {rule}", known[name])
            self.key = known["key"]
            for file in folder.glob(f"*{_BATCH}"):
                self._batches[file.stem] = msgspec.json.decode(file.read_bytes(), type=Entry)
        except (OSError, ValueError, PrivoteError) as error:
            self.close()
            if isinstance(error, PrivoteError):
                raise
            raise LedgerError(f"journal {str(folder)!r} cannot be opened: {error}") from None

    def _write(self, name: str, data: bytes) -> None:
        assert self._folder is not None
        with complete(self._folder / name, force=True, owner_only=True) as part:
            part.write_bytes(data)

    def _put(self, batch: str, entry: Entry) -> None:
        """Write a batch down, durably; nothing has changed if that fails."""
        if self._folder is not None:
            try:
                self._write(f"{batch}{_BATCH}", msgspec.json.encode(entry))
            except OSError as error:
                raise StorageError(f"journal {str(self._folder)!r}: {error.strerror}") from None
        self._batches[batch] = entry

    def halves(self, querier: str = "") -> tuple[int, Half]:
        """Return how many decisions were stored, and this side's half by party where it changed."""
        own = (each for each in self._batches.values() if each.querier == querier)
        stored = [each for each in own if each.phase == STORED]
        last = max(stored, key=lambda each: each.version, default=Entry(phase=STORED))
        return last.version, last.half

    def phase(self, batch: str) -> str | None:
        """Return how far a batch has come; None if it was never asked."""
        return self._batches[batch].phase if batch in self._batches else None

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class GuardianJournal(_Journal):
    """The guardian's: decisions, and by querying party its half u of what each party has left.

    The other half, left - u, is at the querying party. Both change together when a decision is
    committed; until then it is as if there had been none.
    """

    def reserve(self, batch: str, querier: str, queries: int) -> None:
        """Enter a batch that was charged."""
        entry = self._batches.get(batch)
        if entry is None:
            self._put(batch, Entry(phase=GRANTED, querier=querier, queries=queries))
        elif (entry.querier, entry.queries) != (querier, queries):
            raise PeerError("this batch is another querying party's, or of another size")

    def decide(self, batch: str, run: str, half: Half, pad: IntArray) -> int:
        """Enter what a decision will leave behind once it is committed; return its version.

        An earlier decision of the batch is forgotten: nothing of it was released, and its masks and
        noise are not used again.
        """
        entry = self._batches[batch]
        if entry.phase == STORED:
            raise PeerError("this batch is decided and released")
        version, before = self.halves(entry.querier)
        outcome: Any = {"run": run, "version": version + 1, "content": pad.tobytes()}
        after = {**before, **{party: u % _WORD for party, u in half.items()}}
        self._put(batch, replace(entry, phase=DECIDED, half=after, **outcome))
        return version + 1

    def decision(self, querier: str, run: str) -> tuple[str, IntArray] | None:
        """Return batch and this side's share of a decision; None if it is not here to be had.

        Of decisions of one version the first that is committed counts; the others are void.
        """
        version = self.halves(querier)[0] + 1
        for batch, entry in self._batches.items():
            own = (entry.querier, entry.run) == (querier, run)
            if own and (entry.phase == STORED or entry.version == version):
                return batch, entry.share()
        return None

    def commit(self, batch: str) -> None:
        """Enter that a decision is released: its halves are the next ones."""
        entry = self._batches[batch]
        if entry.phase != STORED:
            self._put(batch, replace(entry, phase=STORED))


class QuerierJournal(_Journal):
    """The querying party's: its half of what each party has left, and the labels it received."""

    def digest(self, rows: IntArray, terms: Terms) -> str:
        """Return by what a batch is known: a digest of its rows and of what they mean.

        It is keyed, so that whoever suspects certain rows cannot check.
        """
        about = json.dumps([terms.digest(MEANING), rows.shape]).encode()
        data = about + np.ascontiguousarray(rows, "<i8").tobytes()
        return hmac.new(bytes.fromhex(self.key), data, sha256).hexdigest()

    def enter(self, batch: str, phase: str) -> None:
        """Enter that a batch is being requested, or granted: what it had before is dropped."""
        self._put(batch, Entry(phase=phase))

    def forget(self, batch: str) -> None:
        """Enter that nothing was charged for a batch."""
        if self._folder is not None:
            (self._folder / f"{batch}{_BATCH}").unlink(missing_ok=True)
        self._batches.pop(batch, None)

    def decided(
        self, batch: str, ready: tuple[str, int], half: Half, facts: Any, share: IntArray
    ) -> None:
        """Store this side's share of an outcome, and what its halves become with it.

        ``ready`` is the run and its version.
        """
        outcome: Any = {"facts": facts, "queries": len(share), "content": share.tobytes()}
        after = {**self.halves()[1], **{party: u % _WORD for party, u in half.items()}}
        run, version = ready
        self._put(batch, Entry(phase=DECIDED, run=run, version=version, half=after, **outcome))

    def unsettled(self) -> list[tuple[str, str, IntArray]]:
        """Return batch, run and share of what was decided and not yet opened."""
        entries = [item for item in self._batches.items() if item[1].phase == DECIDED]
        return [(batch, entry.run, entry.share()) for batch, entry in entries]

    def store(self, batch: str, labels: npt.NDArray[np.int8]) -> None:
        """Store the labels of a decided batch, and take over its halves."""
        self._put(batch, replace(self._batches[batch], phase=STORED, content=labels.tobytes()))

    def stored(self, batch: str) -> tuple[dict[str, Any], npt.NDArray[np.int8]]:
        """Return facts and labels (queries, labels) of a stored batch."""
        entry = self._batches[batch]
        return entry.facts, np.frombuffer(entry.content, np.int8).reshape(entry.queries, -1).copy()


def to_words(
    values: Mapping[str, int], parties: tuple[str, ...], whole: Mapping[str, int]
) -> IntArray:
    """Return halves by party as int64 words, in order; ``whole`` or 0 for who has none yet."""
    words = [values.get(party, whole.get(party, 0)) % _WORD for party in parties]
    return np.array(words, np.uint64).view(np.int64)
