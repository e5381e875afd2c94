"""What survives a crash: the phases of batches, and each side's half of the running counts.

Every method is one transaction of one SQLite file, on disk when it returns.
What was written and what a process believed are compared inside it, so that two processes on one
file, or an old one that wakes up late, cannot both go on.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .._version import __version__
from ..errors import InputError, PeerError, PrivoteError
from ..ledger.store import Format, SQLiteFile
from .programs import IntArray

CHARGED, DECIDING, DONE, ABANDONED = "charged", "posterior", "done", "abandoned"
_WORD = 1 << 64


def _form(name: str, tables: Mapping[str, str]) -> Format:
    facts = "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT)"
    return Format(
        name=name,
        number=3,
        tables={"facts": facts, **tables},
        writer="SELECT value FROM facts WHERE name = 'version'",
        earlier="keep it as a record",
    )


class _Journal:
    """A file that belongs to one promise of one coalition and to one site.

    Attributes
    ----------
    identity
        A random name that the file was given when it was made.
    """

    identity: str
    form: ClassVar[Format]
    rows: tuple[str, ...] = ()  # statements that enter what a new one begins with

    def __init__(self, path: str | os.PathLike[str], promise: str, owner: str) -> None:
        self.path = str(path)
        if self.path != ":memory:":
            with suppress(OSError):  # then it cannot be opened either
                Path(path).parent.mkdir(0o700, parents=True, exist_ok=True)
        self._file = SQLiteFile(path, self.form, patience=30.0)
        self._run, self._transaction = self._file.run, self._file.transaction
        try:
            self._own({"promise": promise, "owner": owner})
        except PrivoteError:
            self.close()
            raise

    def _own(self, facts: Mapping[str, str]) -> None:
        with self._transaction():
            for statement in self.rows:
                self._run(statement)
            known = dict(self._run("SELECT name, value FROM facts"))
            for name, value in facts.items():
                if known.setdefault(name, value) != value:
                    raise InputError(
                        f"journal {self.path!r} has another {name} than this coalition and site: "
                        f"{known[name]!r:.40} instead of {value!r:.40}; keep it for that "
                        "coalition, and use another file for this one"
                    )
                self._run("INSERT OR IGNORE INTO facts VALUES (?, ?)", name, value)
            self.identity = str(known.get("identity") or secrets.token_hex(8))
            self._run("INSERT OR IGNORE INTO facts VALUES ('identity', ?)", self.identity)
            self._run("INSERT OR REPLACE INTO facts VALUES ('version', ?)", __version__)

    def _row(self, statement: str, *values: Any) -> Any:
        """Return the one row of a statement; None if there is none."""
        found = self._run(statement, *values)
        return found[0] if found else None

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


@dataclass(frozen=True)
class Open:
    """A batch at the guardian that is not over."""

    batch: str
    queries: int
    phase: str


class GuardianJournal(_Journal):
    """The guardian's: batches, and its half u of what each party has left for each querying party.

    The other half, left - u, is at the querying party, with the version of the decision it came
    from. A decision writes the next version and the next half before it is computed; which of the
    two the querying party holds after a crash settles what happened (:meth:`settle`).
    """

    form = _form(
        "guardian's journal",
        {
            "batches": "CREATE TABLE batches (batch TEXT PRIMARY KEY, querier TEXT NOT NULL, "
            "nonce TEXT NOT NULL, queries INTEGER NOT NULL, phase TEXT NOT NULL, version INTEGER, "
            "next TEXT, fallback TEXT, UNIQUE (querier, nonce))",
            "halves": "CREATE TABLE halves (querier TEXT PRIMARY KEY, version INTEGER NOT NULL, "
            "issued INTEGER NOT NULL, half TEXT NOT NULL)",
        },
    )

    def known(self, querier: str, nonce: str) -> bool:
        """Return whether this querying party has used a nonce before."""
        found = self._row("SELECT 1 FROM batches WHERE querier = ? AND nonce = ?", querier, nonce)
        return found is not None

    def phase(self, batch: str) -> str | None:
        """Return the phase of a batch; None if it is not known."""
        found = self._row("SELECT phase FROM batches WHERE batch = ?", batch)
        return None if found is None else str(found[0])

    def open_batch(self, querier: str) -> Open | None:
        """Return the batch of a querying party that is neither done nor abandoned."""
        found = self._row(
            "SELECT batch, queries, phase FROM batches WHERE querier = ? AND phase IN (?, ?)",
            *(querier, CHARGED, DECIDING),
        )
        return None if found is None else Open(*found)

    def version(self, querier: str) -> int:
        """Return the version of the outcome whose other half the querying party should hold."""
        return self._half(querier)[0]

    def half(self, querier: str) -> dict[str, int]:
        """Return u by party; at first what was charged, all of it."""
        return self._half(querier)[2]

    def _half(self, querier: str) -> tuple[int, int, dict[str, int]]:
        found = self._row("SELECT version, issued, half FROM halves WHERE querier = ?", querier)
        return (0, 0, {}) if found is None else (found[0], found[1], json.loads(found[2]))

    def open(
        self,
        batch: str,
        querier: str,
        nonce: str,
        queries: int,
        *,
        resumed: str | None = None,
        allowances: Mapping[str, int] | None = None,
    ) -> None:
        """Enter a batch that was charged, in the place of any the querying party has open.

        That one is abandoned in the same transaction; if its charge is what the batch goes on
        with, it can thus never pay for both.

        Parameters
        ----------
        resumed
            The batch whose charge pays for this one; it must still be the open one.
        allowances
            What was charged by party: the count begins there at the first batch.
        """
        with self._transaction():
            still = self.open_batch(querier)
            if resumed is not None and (still is None or still.batch != resumed):
                raise PeerError(f"batch {resumed} of {querier} is no longer open: ask again")
            if allowances:
                self._run(
                    "INSERT OR IGNORE INTO halves VALUES (?, 0, 0, ?)",
                    *(querier, json.dumps(dict(allowances))),
                )
            if still is not None and still.phase == DECIDING:
                raise PeerError(f"batch {still.batch} of {querier} is being decided: settle first")
            self._run(
                "UPDATE batches SET phase = ? WHERE querier = ? AND phase = ?",
                *(ABANDONED, querier, CHARGED),
            )
            self._run(
                "INSERT INTO batches (batch, querier, nonce, queries, phase) "
                "VALUES (?, ?, ?, ?, ?)",
                *(batch, querier, nonce, queries, CHARGED),
            )

    def deciding(self, batch: str, next_half: Mapping[str, int], most: Mapping[str, int]) -> int:
        """Enter that a charged batch is about to be decided; return the decision's version.

        Parameters
        ----------
        next_half
            The fresh halves of the parties that take part.
        most
            How many contributions each of them may spend in it: a public number.
        """
        with self._transaction():
            querier = self._expect(batch, CHARGED)
            version, issued, half = self._half(querier)
            after = {**half, **{party: int(u) % _WORD for party, u in next_half.items()}}
            fallback = {
                **half,
                **{party: (half.get(party, 0) - int(m)) % _WORD for party, m in most.items()},
            }
            self._run(
                "UPDATE batches SET phase = ?, version = ?, next = ?, fallback = ? WHERE batch = ?",
                *(DECIDING, issued + 1, json.dumps(after), json.dumps(fallback), batch),
            )
            self._write(querier, version, issued + 1, half)
            return issued + 1

    def done(self, batch: str, version: int) -> None:
        """Enter that the querying party stored the outcome: its half is the next one."""
        with self._transaction():
            querier = self._expect(batch, DECIDING)
            row = self._row("SELECT version, next FROM batches WHERE batch = ?", batch)
            if row[0] != version:
                raise PeerError(f"batch {batch} has version {row[0]}, not {version}")
            self._adopt(querier, batch, version, row[1])

    def settle(self, querier: str, version: int, *, counted: bool = True) -> None:
        """Settle a decision that nobody finished, by the version the querying party holds.

        Has it the next one, its outcome was stored. Has it the one before, the outcome may have got
        out and been lost: as many contributions as the batch could spend are taken from everybody.
        Has it neither, it is refused, unless nothing is counted (``counted``: there is an
        allowance).
        """
        with self._transaction():
            held, issued, half = self._half(querier)
            row = self._row(
                "SELECT batch, version, next, fallback FROM batches "
                "WHERE querier = ? AND phase = ?",
                *(querier, DECIDING),
            )
            if row is not None and version == row[1]:
                self._adopt(querier, row[0], version, row[2])
            elif version != held and counted:
                raise PeerError(
                    f"{querier} holds version {version} of the running counts, the guardian "
                    f"version {held}: one of the two journals was lost or replaced by an older one"
                )
            elif row is not None:
                self._run("UPDATE batches SET phase = ? WHERE batch = ?", ABANDONED, row[0])
                self._write(querier, held, issued, json.loads(row[3]))
            elif version > issued:
                # Nothing is counted, and a version must be above all the other side has seen.
                self._write(querier, held, version, half)

    def _adopt(self, querier: str, batch: str, version: int, half: str) -> None:
        self._run("UPDATE batches SET phase = ? WHERE batch = ?", DONE, batch)
        self._write(querier, version, version, json.loads(half))

    def _write(self, querier: str, version: int, issued: int, half: Mapping[str, int]) -> None:
        self._run(
            "INSERT INTO halves VALUES (?, ?, ?, ?) ON CONFLICT (querier) DO UPDATE SET "
            "version = excluded.version, issued = excluded.issued, half = excluded.half",
            *(querier, version, issued, json.dumps(half)),
        )

    def _expect(self, batch: str, phase: str) -> str:
        row = self._row("SELECT querier, phase FROM batches WHERE batch = ?", batch)
        if row is None or row[1] != phase:
            found = "not known" if row is None else row[1]
            raise PeerError(f"batch {batch} must be {phase}, it is {found}")
        return str(row[0])


class QuerierJournal(_Journal):
    """The querying party's: its half of what each party has left, and the labels it received."""

    form = _form(
        "querying party's journal",
        {
            "state": "CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER "
            "NOT NULL, half TEXT NOT NULL, batch TEXT, queries INTEGER, offered INTEGER NOT NULL)",
            "answers": "CREATE TABLE answers (batch TEXT PRIMARY KEY, version INTEGER NOT NULL, "
            "facts TEXT NOT NULL, rows INTEGER NOT NULL, labels BLOB NOT NULL)",
        },
    )
    rows = ("INSERT OR IGNORE INTO state VALUES (1, 0, '{}', NULL, NULL, 0)",)

    def version(self) -> int:
        """Return the version of the last outcome that was stored."""
        return int(self._row("SELECT version FROM state")[0])

    def half(self) -> dict[str, int]:
        """Return left - u by party; of a party that is not in it the guardian holds all."""
        half: dict[str, int] = json.loads(self._row("SELECT half FROM state")[0])
        return half

    def pending(self) -> tuple[str, int] | None:
        """Return the batch that was granted and not yet decided, with its number of queries."""
        batch, queries = self._row("SELECT batch, queries FROM state")
        return None if queries is None else (str(batch), int(queries))

    def begin(self, batch: str | None, queries: int | None) -> None:
        """Enter the batch that is asked now; the outcome of an earlier one is not stored after."""
        with self._transaction():
            self._run("UPDATE state SET batch = ?, queries = ?", batch, queries)

    def deciding(self, batch: str, version: int) -> None:
        """Enter that a batch is about to be decided: it is never resumed after this.

        A guardian gives every version once. One that offers a version again has forgotten a
        decision: its journal was replaced by an older one, and is not gone on with.
        """
        with self._transaction():
            now, offered = self._row("SELECT batch, offered FROM state")
            if now != batch:
                raise PeerError(f"batch {batch} is not the one being asked: nothing was decided")
            if version <= offered:
                raise PeerError(
                    f"version {version} of the running counts was offered before: the guardian's "
                    "journal was lost or replaced by an older one"
                )
            self._run("UPDATE state SET queries = NULL, offered = ?", version)

    def store(
        self,
        batch: str,
        version: int,
        labels: npt.NDArray[np.int8],
        half: Mapping[str, int],
        facts: Mapping[str, Any],
    ) -> None:
        """Store the labels of a batch and the new halves, both or neither, once."""
        with self._transaction():
            now, held, known = self._row("SELECT batch, version, half FROM state")
            if now != batch or version <= held:
                raise PeerError(f"batch {batch} is not the one being asked: nothing was stored")
            after = {**json.loads(known), **{party: int(u) % _WORD for party, u in half.items()}}
            self._run(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
                *(batch, version, json.dumps(dict(facts)), len(labels)),
                np.ascontiguousarray(labels, np.int8).tobytes(),
            )
            self._run(
                "UPDATE state SET version = ?, half = ?, batch = NULL, queries = NULL",
                *(version, json.dumps(after)),
            )

    def batches(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the stored batches with their facts, in order."""
        rows = self._run("SELECT batch, facts FROM answers ORDER BY version")
        return [(batch, json.loads(facts)) for batch, facts in rows]

    def labels(self, batch: str) -> npt.NDArray[np.int8]:
        """Return the labels (queries, labels) of a stored batch."""
        row = self._row("SELECT rows, labels FROM answers WHERE batch = ?", batch)
        if row is None:
            raise InputError("batch", "must be one that was stored", batch)
        return np.frombuffer(row[1], np.int8).reshape(row[0], -1).copy()


def to_words(values: Mapping[str, int], parties: tuple[str, ...], default: int) -> IntArray:
    """Return halves by party as int64 words, in order; ``default`` for who has none."""
    words = [values.get(party, default) % _WORD for party in parties]
    return np.array(words, np.uint64).view(np.int64)
