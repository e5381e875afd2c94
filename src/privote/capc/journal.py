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
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from .._version import check_written, written
from ..errors import InputError, LedgerError, PeerError, PrivoteError
from ..files import complete, locked
from .programs import IntArray
from .terms import Terms

REQUESTED, GRANTED, DECIDED, STORED = "requested", "granted", "decided", "stored"
_FORMAT = 4
_WORD = 1 << 64
_FACTS, _BATCH = "journal.json", ".batch"
Half = dict[str, int]


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A batch at the guardian: charged, and from ``run`` on with a decision; at last committed."""

    querier: str
    queries: int
    run: str = ""
    version: int = 0  # of the halves that the decision leaves; the next one
    half: Half = {}
    pad: bytes = b""  # the guardian's share of the outcome
    committed: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A batch at the querying party."""

    phase: str
    run: str = ""
    version: int = 0
    half: Half = {}
    facts: dict[str, Any] = {}
    queries: int = 0
    content: bytes = b""  # its share of the outcome, then the labels


Kind = TypeVar("Kind", Reserved, Asked)


class _Journal(Generic[Kind]):
    """A folder that belongs to one promise of one coalition, one site and one process at a time.

    Attributes
    ----------
    key
        A secret that the folder was given when it was made.
    """

    kind: ClassVar[Any]

    def __init__(self, folder: Path | None, terms: Terms, owner: str) -> None:
        self._folder, self._lock = folder, -1
        self._batches: dict[str, Kind] = {}
        self.key = secrets.token_hex(32)
        if folder is None:  # of a simulation
            return
        facts = {"kind": self.kind.__name__, "promise": terms.promise(), "owner": owner}
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            self._lock = locked(folder / "lock", make=True)
            self._begin(folder, facts)
        except (OSError, PrivoteError) as error:
            self.close()
            if isinstance(error, PrivoteError):
                raise
            raise LedgerError(f"journal {str(folder)!r} cannot be opened: {error}") from None

    def _begin(self, folder: Path, facts: dict[str, str]) -> None:
        if not (folder / _FACTS).exists():
            new = {**written(_FORMAT), **facts, "key": self.key}
            self._write(_FACTS, json.dumps(new, indent=1).encode())
        try:
            known = json.loads((folder / _FACTS).read_bytes())
            check_written(f"journal {str(folder)!r}", known, _FORMAT, LedgerError)
            for file in folder.glob(f"*{_BATCH}"):
                self._batches[file.stem] = msgspec.json.decode(file.read_bytes(), type=self.kind)
        except ValueError as error:
            raise LedgerError(f"journal {str(folder)!r} cannot be read: {error}") from None
        for name, value in facts.items():
            if known[name] != value:
                raise InputError(
                    f"journal {str(folder)!r} has another {name} than this coalition and site: "
                    f"{known[name]!r:.40} instead of {value!r:.40}; use another folder for this one"
                )
        self.key = known["key"]

    def _write(self, name: str, data: bytes) -> None:
        assert self._folder is not None
        with complete(self._folder / name, force=True, owner_only=True) as part:
            part.write_bytes(data)

    def _put(self, batch: str, entry: Kind) -> None:
        """Write a batch down, durably; nothing has changed if that fails."""
        if self._folder is not None:
            try:
                self._write(f"{batch}{_BATCH}", msgspec.json.encode(entry))
            except OSError as error:
                raise LedgerError(f"journal {str(self._folder)!r}: {error.strerror}") from None
        self._batches[batch] = entry

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class GuardianJournal(_Journal[Reserved]):
    """The guardian's: decisions, and by querying party its half u of what each party has left.

    The other half, left - u, is at the querying party. Both change together when a decision is
    committed; until then it is as if there had been none.
    """

    kind = Reserved

    def reserve(self, batch: str, querier: str, queries: int) -> None:
        """Enter a batch that was charged."""
        entry = self._batches.get(batch)
        if entry is None:
            self._put(batch, Reserved(querier=querier, queries=queries))
        elif (entry.querier, entry.queries) != (querier, queries):
            raise PeerError("this batch is another querying party's, or of another size")

    def halves(self, querier: str) -> tuple[int, Half]:
        """Return how many decisions were committed, and u by party where that has changed."""
        own = [e for e in self._batches.values() if e.querier == querier and e.committed]
        last = max(own, key=lambda entry: entry.version, default=None)
        return (0, {}) if last is None else (last.version, last.half)

    def decide(self, batch: str, run: str, half: Mapping[str, int], pad: IntArray) -> int:
        """Enter what a decision will leave behind once it is committed; return its version.

        An earlier decision of the batch is forgotten: nothing of it was released, and its masks and
        noise are not used again.
        """
        if self._batches[batch].committed:
            raise PeerError("this batch is decided and released")
        version, before = self.halves(self._batches[batch].querier)
        after = {**before, **{party: u % _WORD for party, u in half.items()}}
        more = {"run": run, "version": version + 1, "half": after, "pad": pad.tobytes()}
        self._put(batch, msgspec.structs.replace(self._batches[batch], **more))
        return version + 1

    def decision(self, querier: str, run: str) -> tuple[str, IntArray] | None:
        """Return batch and this side's share of a decision; None if it is not here to be had.

        Of decisions of one version the first that is committed counts; the others are void.
        """
        version = self.halves(querier)[0] + 1
        for batch, entry in self._batches.items():
            own = (entry.querier, entry.run) == (querier, run)
            if own and (entry.committed or entry.version == version):
                return batch, _table(entry.queries, entry.pad)
        return None

    def commit(self, batch: str) -> None:
        """Enter that a decision is released: its halves are the next ones."""
        entry = self._batches[batch]
        if not entry.committed:
            self._put(batch, msgspec.structs.replace(entry, committed=True))


class QuerierJournal(_Journal[Asked]):
    """The querying party's: its half of what each party has left, and the labels it received."""

    kind = Asked

    def digest(self, rows: IntArray, terms: Terms) -> str:
        """Return by what a batch is known: a digest of its rows and of what they mean.

        It is keyed, so that whoever suspects certain rows cannot check.
        """
        about = json.dumps([terms.meaning(), rows.shape]).encode()
        data = about + np.ascontiguousarray(rows, "<i8").tobytes()
        return hmac.new(bytes.fromhex(self.key), data, sha256).hexdigest()

    def phase(self, batch: str) -> str | None:
        """Return how far a batch has come; None if it was never asked."""
        return self._batches[batch].phase if batch in self._batches else None

    def halves(self) -> tuple[int, Half]:
        """Return how many decisions were stored, by the guardian's count, and left - u by party."""
        stored = [entry for entry in self._batches.values() if entry.phase == STORED]
        last = max(stored, key=lambda entry: entry.version, default=None)
        return (0, {}) if last is None else (last.version, last.half)

    def enter(self, batch: str, phase: str) -> None:
        """Enter that a batch is being requested, or granted: what it had before is dropped."""
        self._put(batch, Asked(phase=phase))

    def forget(self, batch: str) -> None:
        """Enter that nothing was charged for a batch."""
        if self._folder is not None:
            (self._folder / f"{batch}{_BATCH}").unlink(missing_ok=True)
        self._batches.pop(batch, None)

    def decided(
        self,
        batch: str,
        ready: tuple[str, int],
        half: Mapping[str, int],
        facts: dict[str, Any],
        share: IntArray,
    ) -> None:
        """Store this side's share of an outcome, and what its halves become with it.

        ``ready`` is the run and its version.
        """
        after = {**self.halves()[1], **{party: u % _WORD for party, u in half.items()}}
        run, version = ready
        outcome: dict[str, Any] = {
            "facts": facts,
            "queries": len(share),
            "content": share.tobytes(),
        }
        self._put(batch, Asked(phase=DECIDED, run=run, version=version, half=after, **outcome))

    def unsettled(self) -> list[tuple[str, str, IntArray]]:
        """Return batch, run and share of what was decided and not yet opened."""
        entries = [item for item in self._batches.items() if item[1].phase == DECIDED]
        return [(batch, e.run, _table(e.queries, e.content)) for batch, e in entries]

    def store(self, batch: str, labels: npt.NDArray[np.int8]) -> None:
        """Store the labels of a decided batch, and take over its halves."""
        after = {"phase": STORED, "content": labels.tobytes()}
        self._put(batch, msgspec.structs.replace(self._batches[batch], **after))

    def stored(self, batch: str) -> tuple[dict[str, Any], npt.NDArray[np.int8]]:
        """Return facts and labels (queries, labels) of a stored batch."""
        if self.phase(batch) != STORED:
            raise InputError("batch", "must be one that was stored", batch)
        entry = self._batches[batch]
        return entry.facts, np.frombuffer(entry.content, np.int8).reshape(entry.queries, -1).copy()


def _table(rows: int, data: bytes) -> IntArray:
    return np.frombuffer(data, "<i8").astype(np.int64).reshape(rows, -1)


def to_words(
    values: Mapping[str, int], parties: tuple[str, ...], whole: Mapping[str, int]
) -> IntArray:
    """Return halves by party as int64 words, in order; ``whole`` or 0 for who has none yet."""
    words = [values.get(party, whole.get(party, 0)) % _WORD for party in parties]
    return np.array(words, np.uint64).view(np.int64)
