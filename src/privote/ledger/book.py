"""An append-only book of entries, chained and anchored; what is appended is on disk, or is not.

Every transaction reads back what it appended, before the commit and after it: a trigger or rule of
the database's can drop a row without a word. The anchor beside the key is written twice around each
commit, so a crash in between leaves a state that is recognised.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from .._version import __version__
from ..errors import LedgerError
from .chain import Anchor, Chain, canonical, check_placed
from .events import Event, LedgerState, decoded
from .store import START, CommittedError, Head, LostError, Row, Store, UnsettledError


class Book:
    """Entries in a store, and what they add up to. Threads share it; a fork may not.

    Parameters
    ----------
    store, chain, anchor
        Where entries lie, the key that chains them, and the file that knows the last one; a book in
        memory has no anchor.
    """

    def __init__(
        self, store: Store, chain: Chain, anchor: Anchor | None, *, readonly: bool = False
    ) -> None:
        self._store, self._chain, self._anchor, self._readonly = store, chain, anchor, readonly
        self._state = LedgerState()
        self._head: Head = (0, START)
        self._process, self._lock = os.getpid(), threading.RLock()
        self._added: list[Row] | None = None  # in this transaction; None outside of one

    # A copy would let the same budget be spent twice.
    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a Ledger cannot be copied or pickled: open it again from its file")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    @property
    def state(self) -> LedgerState:
        """What all entries add up to now; takes no lock of the database's."""
        with self._turn:
            return self._catch_up()

    @contextmanager
    def transaction(self) -> Iterator[LedgerState]:
        """Hold the ledger's only lock; what is appended inside is on disk when the block ends."""
        with self._turn:
            if self._readonly:
                raise LedgerError("the ledger was opened for reading only")
            if self._added is not None:
                raise LedgerError("the ledger is already being written by this thread")
            added: list[Row] = []
            try:
                try:  # an interrupt between two lines of `try` is caught by neither
                    self._added = added
                    with self._store.transaction():
                        before = self._store.head()
                        state = self._catch_up()
                        # A file put in the place of an open one would take charges that nobody
                        # else ever sees.
                        if self._anchor is not None:
                            check_placed(self._store, self._anchor, before)
                        if before != self._head:
                            raise LedgerError(Anchor.rolled_back(before, [self._head]))
                        yield state
                        after = self._head
                        self._check_stored(before, added, after)
                        if self._anchor is not None and added:
                            self._anchor.write(before, after)  # announced, then committed
                except UnsettledError as lost:
                    self._settle(before, added, lost)
                if added:
                    self._anchor_commit(before, added, after)
                self._added = None  # here and below: an interrupt may hit either line
            except BaseException:
                self._state, self._head = LedgerState(), (0, START)  # undone: read it anew
                raise
            finally:
                self._added = None

    def append(self, event: Event) -> int:
        """Add an event, inside a transaction; return its entry."""
        if self._added is None:
            raise LedgerError("append outside a transaction")
        body, sealed = event.encoded()
        hidden = None if sealed is None else canonical(sealed)
        body["version"] = __version__
        if hidden is not None:
            body["seal"] = self._chain.seal(hidden)
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        row = self._chain.row(self._head, at, canonical(body), hidden)
        self._store.append(row)
        self._added.append(row)
        self._count(row)
        return row.number

    @property
    def _turn(self) -> threading.RLock:
        """The lock that lets in one thread at a time, of the process that opened the ledger.

        A fork copies what is in memory, so it would be spent twice, and two processes would talk
        over one connection.
        """
        if os.getpid() != self._process:  # before the lock: another thread's may be copied, held
            raise LedgerError(
                "the ledger was open when this process was forked: open it in a new process. A "
                "ledger without a file belongs to the process that made it"
            )
        return self._lock

    def _catch_up(self) -> LedgerState:
        for row in self._store.rows(after=self._head[0]):
            number, digest = self._head
            expected = self._chain.digest(digest, row.number, row.at, row.body)
            if row.number != number + 1 or row.digest != expected:
                raise LedgerError(f"entry {row.number} does not match the chain: run verify")
            self._count(row)
        return self._state

    def _count(self, row: Row) -> None:
        if row.sealed is not None and f'"seal":"{self._chain.seal(row.sealed)}"' not in row.body:
            raise LedgerError(f"the sealed part of entry {row.number} does not match: run verify")
        self._state.add(row.number, row.at, decoded(row.body, row.sealed))
        self._head = (row.number, row.digest)

    def _settle(self, before: Head, added: list[Row], lost: UnsettledError) -> None:
        """Find out what became of a commit whose answer was lost; raise unless it happened.

        Under the lock, which the broken session held until it had committed or was undone: what is
        read then is the outcome. Nothing is tried twice, so nothing is charged twice.
        """
        try:
            self._store.reconnect()
            with self._store.transaction():
                there = self._store.rows(before[0], before[0] + len(added))
        except LedgerError as error:
            raise CommittedError(
                f"the connection broke ({lost}) while entry {before[0] + 1} was being committed, "
                f"and afterwards: {error}. If that entry is in the ledger, it counts"
            ) from None
        if there != added:
            raise LostError(
                f"the connection broke ({lost}) before the entry was committed: nothing was "
                "charged or released"
            )

    def _check_stored(self, before: Head, added: list[Row], after: Head) -> None:
        """Raise unless the rows just added, and no others, are where they belong."""
        if self._store.rows(before[0], after[0]) != added:
            raise LedgerError(
                f"the database changed entry {before[0] + 1}: nothing is released; run verify"
            )

    def _anchor_commit(self, before: Head, added: list[Row], after: Head) -> None:
        """Read back what was committed and anchor it; once more if the line breaks meanwhile.

        Where others, who share the store, have anchored more by now, that stays.
        """
        for again in (False, True):
            try:
                if again:
                    self._store.reconnect()
                with self._store.transaction():
                    self._check_stored(before, added, after)
                    if self._anchor is not None:
                        check_placed(self._store, self._anchor, self._store.head())
                        if self._anchor.read() == [before, after]:
                            self._anchor.write(after)
                return
            except LostError as error:
                if again:
                    raise CommittedError(
                        f"entry {after[0]} is in the ledger, but the connection broke before it "
                        f"was read back: {error}"
                    ) from None
            except LedgerError as error:
                raise CommittedError(str(error)) from None
