"""What survives a crash: what was decided, and each side's half of the running counts.

Every method is one transaction of one SQLite file, on disk when it returns.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .._version import __version__, check_written
from ..errors import InputError, LedgerError, PeerError
from .charges import COMMITTED, RESERVED, UNKNOWN
from .programs import IntArray
from .terms import Terms

REQUESTED, GRANTED, DECIDED, STORED = "requested", "granted", "decided", "stored"
_FORMAT = 4
_WORD = 1 << 64


class _Journal:
    """A file that belongs to one promise of one coalition and to one site."""

    name: ClassVar[str]
    tables: ClassVar[tuple[str, ...]]

    def __init__(self, path: str | os.PathLike[str], terms: Terms, owner: str) -> None:
        self.path = str(path)
        if self.path != ":memory:":
            with suppress(OSError):  # then it cannot be opened either
                Path(path).parent.mkdir(0o700, parents=True, exist_ok=True)
        try:
            self._file = sqlite3.connect(self.path, isolation_level=None, timeout=30.0)
            if self.path != ":memory:":
                Path(path).chmod(0o600)
            self._file.execute("PRAGMA synchronous = EXTRA")
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self.name} {self.path!r} cannot be opened: {error}") from None
        try:
            self._begin({"promise": terms.promise(), "owner": owner})
        except BaseException:
            self.close()
            raise

    def _begin(self, facts: Mapping[str, str]) -> None:
        """Make the tables of a new file; refuse another kind of file, format or coalition."""
        with self._transaction():
            tables = {name for (name,) in self._run("SELECT name FROM sqlite_master")}
            if not tables:
                for statement in ("facts (name TEXT PRIMARY KEY, value TEXT)", *self.tables):
                    self._run(f"CREATE TABLE {statement}")
                new = {**facts, "kind": self.name, "key": secrets.token_hex(32)}
                for item in {**new, "format": str(_FORMAT)}.items():
                    self._run("INSERT INTO facts VALUES (?, ?)", *item)
            known = dict(self._run("SELECT name, value FROM facts")) if "facts" in tables else {}
            if tables:
                number = known.get("format", "0")
                written = {**known, "format": int(number) if number.isdigit() else number}
                check_written(f"{self.name} {self.path!r}", written, _FORMAT, LedgerError)
            for name, value in {**facts, "kind": self.name}.items():
                if known.get(name, value) != value:
                    raise InputError(
                        f"{self.name} {self.path!r} has another {name} than this coalition and "
                        f"site: {known[name]!r:.40} instead of {value!r:.40}; keep it for that "
                        "coalition, and use another file for this one"
                    )
            self._run("INSERT OR REPLACE INTO facts VALUES ('version', ?)", __version__)
            self.key = str(self._row("SELECT value FROM facts WHERE name = 'key'")[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Hold the only write lock until the block ends; commit durably, or undo everything."""
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise LedgerError(f"{self.name} {self.path!r} cannot be written: {error}") from None

    def _run(self, statement: str, *values: Any) -> list[Any]:
        return self._file.execute(statement, values).fetchall()

    def _row(self, statement: str, *values: Any) -> Any:
        """Return the first row of a statement; None if there is none."""
        return next(iter(self._run(statement, *values)), None)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class GuardianJournal(_Journal):
    """The guardian's: decisions, and by querying party its half u of what each party has left.

    The other half, left - u, is at the querying party. Both change together when a decision is
    committed; until then it is as if there had been none.

    Attributes
    ----------
    key
        A random name that the file was given when it was made.
    """

    name = "the guardian's journal"
    tables = (
        "batches (batch TEXT PRIMARY KEY, querier TEXT NOT NULL, queries INTEGER NOT NULL)",
        "decisions (run TEXT PRIMARY KEY, batch TEXT NOT NULL, querier TEXT NOT NULL, half TEXT "
        "NOT NULL, queries INTEGER NOT NULL, pad BLOB NOT NULL, committed INTEGER NOT NULL)",
        "halves (querier TEXT PRIMARY KEY, version INTEGER NOT NULL, half TEXT NOT NULL)",
    )

    def state(self, batch: str) -> str:
        """Return whether a batch is unknown, reserved or committed."""
        if self._row("SELECT 1 FROM decisions WHERE batch = ? AND committed", batch):
            return COMMITTED
        known = self._row("SELECT 1 FROM batches WHERE batch = ?", batch)
        return UNKNOWN if known is None else RESERVED

    def reserve(
        self, batch: str, querier: str, queries: int, allowances: Mapping[str, int]
    ) -> None:
        """Enter a batch that was charged, and at the first one what was charged by party."""
        with self._transaction():
            self._run("INSERT OR IGNORE INTO batches VALUES (?, ?, ?)", batch, querier, queries)
            row = self._row("SELECT querier, queries FROM batches WHERE batch = ?", batch)
            if row != (querier, queries):
                raise PeerError("this batch is another querying party's, or of another size")
            half = json.dumps(dict(allowances))
            self._run("INSERT OR IGNORE INTO halves VALUES (?, 0, ?)", querier, half)

    def check_version(self, querier: str, version: int) -> None:
        """Refuse a querying party that has not stored what was committed, or stored more."""
        own = self._version(querier)[0]
        if version != own:
            raise PeerError(
                f"{querier} holds version {version} of the running counts, the guardian version "
                f"{own}: one of the two journals was lost or replaced by an older one"
            )

    def half(self, querier: str) -> dict[str, int]:
        """Return u by party; at first what was charged, all of it."""
        return self._version(querier)[1]

    def _version(self, querier: str) -> tuple[int, dict[str, int]]:
        row = self._row("SELECT version, half FROM halves WHERE querier = ?", querier)
        return (0, {}) if row is None else (row[0], json.loads(row[1]))

    def decide(self, batch: str, run: str, half: Mapping[str, int], pad: IntArray) -> int:
        """Enter what a decision will leave behind once it is committed; return its version.

        A decision of the same querying party that was not committed is forgotten: nothing of it
        was released, and its masks and noise are not used again.
        """
        with self._transaction():
            if self.state(batch) != RESERVED:
                raise PeerError(f"a batch must be reserved, it is {self.state(batch)}")
            (querier,) = self._row("SELECT querier FROM batches WHERE batch = ?", batch)
            version, before = self._version(querier)
            after = {**before, **{party: int(u) % _WORD for party, u in half.items()}}
            self._run("DELETE FROM decisions WHERE querier = ? AND NOT committed", querier)
            self._run(
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, 0)",
                *(run, batch, querier, json.dumps(after), len(pad), pad.astype("<i8").tobytes()),
            )
            return version + 1

    def decision(self, querier: str, run: str) -> IntArray | None:
        """Return this side's share of a decision, committed or not; None if it is not here."""
        row = self._row(
            "SELECT queries, pad FROM decisions WHERE run = ? AND querier = ?", run, querier
        )
        return None if row is None else _table(*row)

    def commit(self, querier: str, run: str) -> None:
        """Enter that a decision is released: its halves are the next ones. Once, or no change."""
        with self._transaction():
            row = self._row("SELECT half FROM decisions WHERE run = ? AND NOT committed", run)
            if row is not None:
                self._run("UPDATE decisions SET committed = 1 WHERE run = ?", run)
                self._run(
                    "UPDATE halves SET version = version + 1, half = ? WHERE querier = ?",
                    *(row[0], querier),
                )


class QuerierJournal(_Journal):
    """The querying party's: its half of what each party has left, and the labels it received."""

    name = "the querying party's journal"
    tables = (
        "state (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, half TEXT)",
        "batches (batch TEXT PRIMARY KEY, phase TEXT NOT NULL, run TEXT, version INTEGER, "
        "half TEXT, facts TEXT, queries INTEGER, table_ BLOB)",
    )

    def digest(self, rows: IntArray, terms: Terms) -> str:
        """Return by what a batch is known: a digest of its rows and of what they mean.

        It is keyed, so that whoever suspects certain rows cannot check.
        """
        about = json.dumps([terms.meaning(), rows.shape]).encode()
        data = about + np.ascontiguousarray(rows, "<i8").tobytes()
        return hmac.new(bytes.fromhex(self.key), data, sha256).hexdigest()

    def version(self) -> int:
        """Return how many decisions were stored, by the guardian's count."""
        row = self._row("SELECT version FROM state")
        return 0 if row is None else int(row[0])

    def half(self) -> dict[str, int]:
        """Return left - u by party; of a party that is not in it the guardian holds all."""
        row = self._row("SELECT half FROM state")
        half: dict[str, int] = {} if row is None else json.loads(row[0])
        return half

    def phase(self, batch: str) -> str | None:
        """Return how far a batch has come; None if it was never asked."""
        row = self._row("SELECT phase FROM batches WHERE batch = ?", batch)
        return None if row is None else str(row[0])

    def enter(self, batch: str, phase: str) -> None:
        """Enter that a batch is being requested, or granted: what it had before is dropped."""
        with self._transaction():
            self._run("INSERT OR REPLACE INTO batches (batch, phase) VALUES (?, ?)", batch, phase)

    def forget(self, batch: str) -> None:
        """Enter that nothing was charged for a batch."""
        with self._transaction():
            self._run("DELETE FROM batches WHERE batch = ?", batch)

    def decided(
        self,
        batch: str,
        run: str,
        version: int,
        half: Mapping[str, int],
        facts: Mapping[str, Any],
        share: IntArray,
    ) -> None:
        """Store this side's share of an outcome, and what becomes of the halves with it."""
        with self._transaction():
            after = {**self.half(), **{party: int(u) % _WORD for party, u in half.items()}}
            self._run(
                "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(batch, DECIDED, run, version, json.dumps(after), json.dumps(dict(facts))),
                *(len(share), share.astype("<i8").tobytes()),
            )

    def unsettled(self) -> list[tuple[str, str, IntArray]]:
        """Return batch, run and share of what was decided and not yet opened."""
        rows = self._run("SELECT batch, run, queries, table_ FROM batches WHERE phase = ?", DECIDED)
        return [(batch, run, _table(queries, data)) for batch, run, queries, data in rows]

    def store(self, batch: str, labels: npt.NDArray[np.int8]) -> None:
        """Store the labels of a decided batch, and take over its halves: both or neither."""
        with self._transaction():
            self._run(
                "INSERT OR REPLACE INTO state SELECT 1, version, half FROM batches WHERE batch = ?",
                batch,
            )
            self._run(
                "UPDATE batches SET phase = ?, half = NULL, table_ = ? WHERE batch = ?",
                *(STORED, np.ascontiguousarray(labels, np.int8).tobytes(), batch),
            )

    def stored(self, batch: str) -> tuple[dict[str, Any], npt.NDArray[np.int8]]:
        """Return facts and labels (queries, labels) of a stored batch."""
        row = self._row(
            "SELECT facts, queries, table_ FROM batches WHERE batch = ? AND phase = ?",
            *(batch, STORED),
        )
        if row is None:
            raise InputError("batch", "must be one that was stored", batch)
        return json.loads(row[0]), np.frombuffer(row[2], np.int8).reshape(row[1], -1).copy()


def _table(rows: int, data: bytes) -> IntArray:
    return np.frombuffer(data, "<i8").astype(np.int64).reshape(rows, -1)


def to_words(values: Mapping[str, int], parties: tuple[str, ...]) -> IntArray:
    """Return halves by party as int64 words, in order; 0 for who has none."""
    words = [values.get(party, 0) % _WORD for party in parties]
    return np.array(words, np.uint64).view(np.int64)
