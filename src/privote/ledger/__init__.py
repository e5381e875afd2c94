"""The ledger: an append-only, crash-safe, tamper-evident record of charges.

A *budget* is set, a *charge* enters against it, an *answer* continues a charged allowance, an
*outcome* records what was drawn (:mod:`privote.ledger.records`); *restored* says that all before
comes from a backup. What depends on the votes (voters' spending, data-dependent curves, what was
drawn) goes to the sealed table, bound to its entry by a keyed digest; the published view never
reads it.
"""

from __future__ import annotations

import datetime
import getpass
import json
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from .._version import written
from ..accounting.filters import check_charge
from ..errors import BudgetError, InputError, LedgerError
from ..votes.names import folded
from .backup import read_backup, write_backup
from .backup import restore as put_back
from .chain import (
    Anchor,
    Chain,
    Verification,
    against_anchor,
    canonical,
    check_placed,
    verify,
)
from .location import Location
from .records import Records
from .store import (
    FORMAT,
    CommittedError,
    Head,
    LostError,
    MemoryStore,
    Row,
    Store,
    UnsettledError,
)
from .totals import Budget, Totals

__all__ = ["Budget", "Ledger", "Location", "Verification"]

_KINDS = {None: "open", True: "data-dependent", False: "unconditional"}
_ARCHIVE = 1  # format of a backup
_MANIFEST, _ENTRIES, _KEY, _ANCHOR = "manifest.json", "ledger.db", "ledger.db.key", "ledger.db.head"
_FEW = 1 << 16  # bytes of every member but the entries
_SECRET = "contains the ledger's key and sealed entries: its holder can read and forge the ledger"


class Ledger:
    """An append-only record of charges that survives crashes and reveals tampering.

    Open a file with :meth:`open`, or use :meth:`in_memory` for a single run. Threads may share a
    ledger. A forked process may not, and cannot open a file that was open when it was forked.

    Examples
    --------
    >>> import privote as pv
    >>> ledger = pv.Ledger.in_memory()
    >>> budget = ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset="ward 3")
    >>> [(row["dataset"], row["used"]) for row in ledger.standing()]
    [('ward 3', 0.0)]
    """

    def __init__(
        self, store: Store, chain: Chain, anchor: Anchor | None, *, readonly: bool = False
    ) -> None:
        self._store, self._chain, self._anchor = store, chain, anchor
        self._readonly = readonly
        self._totals = Totals()
        self._process, self._lock = os.getpid(), threading.RLock()
        self._added: list[Row] | None = None  # in this transaction; None outside of one

    @classmethod
    def open(
        cls,
        path: Location | str | os.PathLike[str],
        *,
        create: bool = True,
        beside: str | os.PathLike[str] | None = None,
        readonly: bool = False,
    ) -> Ledger:
        """Open the ledger at a path, or in a PostgreSQL database at a ``postgresql://`` address.

        With ``create``, make it if it is not there. Beside ``name.db`` lie ``name.db.key`` (keep it
        secret) and ``name.db.head`` (the anchor); for a database, ``beside`` says beside what. With
        ``readonly`` nothing is written and no lock is taken, so a copy on read-only media will do.
        """
        location = Location.of(path, beside)
        if readonly:
            store, chain, anchor = location.open_reader()
            try:
                wrong = against_anchor(store, anchor, anchor.read())
                if wrong:
                    raise LedgerError(wrong)
            except BaseException:
                store.close()
                raise
            return cls(store, chain, anchor, readonly=True)
        Chain.from_environment()  # a bad key is found before anything is made
        new = location.address is not None or not location.file.exists()
        store = location.open_store(create=create)
        try:
            # Under the lock: also finishes what a crash between commit and anchor left open.
            with store.transaction():
                chain, anchor = location.unlock(store, new=new, create=create)
        except BaseException:
            store.close()
            raise
        return cls(store, chain, anchor)

    @classmethod
    def in_memory(cls) -> Ledger:
        """Return a ledger that lasts as long as this object: the same rules, no file."""
        return cls(MemoryStore(), Chain(), None)

    @classmethod
    def at(cls, place: Any, *, create: bool = True) -> AbstractContextManager[Ledger]:
        """Return a ledger to work with, by its place; or one that its owner will close."""
        return (
            nullcontext(place)
            if isinstance(place, cls)
            else closing(cls.open(place, create=create))
        )

    # A copy would let the same budget be spent twice.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a Ledger cannot be copied or pickled: open it again from its file")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    # -- writing ----------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[Totals]:
        """Hold the ledger's only lock; what is appended inside is on disk when the block ends.

        A charge is a charge only if its row is in the chain: what was appended is read back before
        the commit and after it. A trigger or rule of the database's can drop a row without a word.
        """
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
                        totals = self._catch_up()
                        # A file put in the place of an open one would take charges that nobody
                        # else ever sees.
                        if self._anchor is not None:
                            check_placed(self._store, self._anchor, before)
                        if before != totals.head:
                            raise LedgerError(Anchor.rolled_back(before, [totals.head]))
                        yield totals
                        after = totals.head
                        self._check_kept(before, added, after)
                        if self._anchor is not None and added:
                            self._anchor.write(before, after)  # announced, then committed
                except UnsettledError as lost:
                    self._settle(before, added, lost)
                if added:
                    self._anchor_commit(before, added, after)
                self._added = None  # here and below: an interrupt may hit either line
            except BaseException:
                self._totals = Totals()  # what was undone must not stay in the sums
                raise
            finally:
                self._added = None

    @property
    def _turn(self) -> threading.RLock:
        """The lock that lets in one thread at a time, of the process that opened the ledger.

        A fork copies what is kept in memory, so it would be spent twice, and two processes would
        talk over one connection.
        """
        if os.getpid() != self._process:  # before the lock: another thread's may be copied, held
            raise LedgerError(
                "the ledger was open when this process was forked: open it in a new process. A "
                "ledger without a file belongs to the process that made it"
            )
        return self._lock

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
                f"and afterwards: {error}. Nothing is released. If that entry is in the ledger, "
                "it is charged"
            ) from None
        if there != added:
            raise LedgerError(
                f"the connection broke ({lost}) before the entry was committed: nothing is "
                "charged or released"
            )

    def _check_kept(self, before: Head, added: list[Row], after: Head) -> None:
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
                    self._check_kept(before, added, after)
                    if self._anchor is not None:
                        check_placed(self._store, self._anchor, self._store.head())
                        if self._anchor.read() == [before, after]:
                            self._anchor.write(after)
                return
            except LostError as error:
                if again:
                    raise CommittedError(
                        f"entry {after[0]} is charged, but the connection broke before it was "
                        f"read back: {error}. Nothing is released"
                    ) from None
            except LedgerError as error:
                raise CommittedError(str(error)) from None

    def reading(self) -> Totals:
        """Return what all entries add up to now; takes no lock of the database's."""
        with self._turn:
            return self._catch_up()

    def _catch_up(self) -> Totals:
        totals = self._totals
        for row in self._store.rows(after=totals.head[0]):
            number, digest = totals.head
            expected = self._chain.digest(digest, row.number, row.at, row.body)
            if row.number != number + 1 or row.digest != expected:
                raise LedgerError(f"entry {row.number} does not match the chain: run verify")
            totals.add(row, self._chain)
        return totals

    def append(self, body: dict[str, Any], sealed: dict[str, Any] | None = None) -> Row:
        """Add an entry; only inside :meth:`writing`. Refuses what cannot be a Rényi curve."""
        if self._added is None:
            raise LedgerError("append outside a transaction")
        if body.get("rdp") is not None:
            curve = check_charge(body["rdp"], body["orders"])
            body = {**body, "rdp": curve.tolist()}
        for name in ("allowance", "queries", "voters", "labels"):
            if np.min(body.get(name) or 0) < 0:
                raise InputError(name, "of an entry must not be negative", body[name])
        if body["kind"] in ("charge", "restored"):
            # Who runs it may be one of the voters: where those have names, these go with them.
            body = {**body, **written(FORMAT.number)}
            if sealed is None:
                body |= _operator()
            else:
                sealed = {**sealed, **_operator()}
        hidden = None if sealed is None else canonical(sealed)
        if hidden is not None:
            body = {**body, "seal": self._chain.seal(hidden)}
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        (last, previous), text = self._totals.head, canonical(body)
        digest = self._chain.digest(previous, last + 1, at, text)
        row = Row(last + 1, at, text, digest, hidden)
        self._store.append(row)
        self._added.append(row)
        self._totals.add(row, self._chain)
        return row

    def set_budget(self, budget: Budget, *, dataset: str) -> Budget:
        """Set what a data set may cost in all, or raise it; return the budget with its order.

        Once set, only its epsilon may rise: its order and delta stay, so that what was charged
        counts as before. Nothing can be raised that one run took as a whole.
        """
        if not isinstance(budget, Budget):
            raise InputError("budget", "must be a privote.Budget", budget)
        with self.writing() as totals:
            name = totals.known(dataset)
            known = totals.budgets.get(name)
            if known is None:
                return self.fix_budget(totals, budget, name)
            if name in totals.spent_whole:
                raise BudgetError(f"one run took the whole budget of data set {name!r}: it stays")
            if replace(budget, epsilon=known.epsilon).differs(known) or (
                budget.epsilon < known.epsilon
            ):
                raise BudgetError(
                    f"the budget of data set {name!r} is {known}: only its epsilon can be raised; "
                    f"you asked for {budget}"
                )
            return self._enter_budget(replace(known, epsilon=budget.epsilon), name)

    def fix_budget(
        self,
        totals: Totals,
        budget: Budget,
        dataset: str,
        conditional: bool | None = None,
    ) -> Budget:
        """Set a data set's budget if it has none, and return it as it stands.

        Refuses to change it, or to mix kinds of promise: a data-dependent release on the same votes
        would void the unconditional promise of all the others, so a data set keeps to one kind.
        """
        known, kind = totals.budgets.get(dataset), totals.conditional.get(dataset)
        if kind is not None and conditional is not None and kind != conditional:
            raise BudgetError(
                f"data set {dataset!r} is for {'data-dependent' if kind else 'unconditional'} "
                "releases only: the two kinds of guarantee cannot be combined on the same votes"
            )
        if known is not None:
            if budget.differs(known):
                raise BudgetError(
                    f"the budget of data set {dataset!r} is {known}; you asked for {budget}. "
                    "Only `privote ledger budget` raises it"
                )
            return known
        if dataset in totals.charged:
            # Whoever sets it now has seen what was released: its order would follow the history.
            raise BudgetError(
                f"the budget of data set {dataset!r} must be set before its first charge"
            )
        name = totals.known(dataset)
        if name != dataset:  # somebody made it since this name was looked up
            raise BudgetError(f"data set {name!r} exists by now: repeat the call")
        return self._enter_budget(budget.shared() if self.lasts else budget, dataset)

    def _enter_budget(self, budget: Budget, dataset: str) -> Budget:
        body: dict[str, Any] = {"kind": "budget", "dataset": dataset}
        body |= {"epsilon": budget.epsilon, "delta": budget.delta}
        rule, orders = ("exclusive", None) if budget.order is None else ("shared", [budget.order])
        self.append({**body, "rule": rule, "orders": orders})
        return budget

    # -- names and secrets -------------------------------------------------------------------------

    def name_account(self, facts: dict[str, Any]) -> str:
        """Return the name of an electorate's account: keyed, so it tells nothing of the voters."""
        return self._chain.seal(canonical(facts))[:32]

    def name_voter(self, name: str) -> tuple[str, str]:
        """Return the keyed digests of a voter's name, folded and as it stands.

        The same name is found again, and none can be read off. The first is what a roll holds; the
        second is what it held before names were folded.
        """
        one, two = (self._chain.seal(canonical(["voter", n]))[:32] for n in (folded(name), name))
        return one, two

    def secret(self, purpose: str, dataset: str) -> bytes:
        """Return 32 bytes that follow from the ledger's key alone: the same for a data set, always.

        For what must stay the same over runs and known to nobody, such as a partition's key.
        """
        named = canonical(["secret", purpose, self.known(dataset)])
        return bytes.fromhex(self._chain.seal(named))

    # -- reading -----------------------------------------------------------------------------------

    def known(self, dataset: str) -> str:
        """Return the name that this ledger has for a data set, if it has one.

        Names are compared folded (:func:`privote.votes.names.folded`); a new one stays as it is.
        """
        return self.reading().known(dataset)

    def published(self) -> list[dict[str, Any]]:
        """Return the entries as they may be shown: nothing that depends on votes."""
        shown = []
        with self._turn:
            rows = self._store.rows()
        for row in rows:
            body = json.loads(row.body)
            body.pop("seal", None)
            shown.append({"number": row.number, "at": row.at, "digest": row.digest, **body})
        return shown

    def standing(self) -> list[dict[str, Any]]:
        """Return every budget with what unconditional charges have used of it, and left."""
        totals = self.reading()
        return [
            {
                "dataset": dataset,
                "kind": _KINDS[totals.conditional.get(dataset)],
                "rule": budget.counted,
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "used": totals.used(dataset),
                "share": totals.share(dataset),
                "fits": totals.fits(dataset),
            }
            for dataset, budget in totals.budgets.items()
        ]

    def allowances(self) -> list[dict[str, Any]]:
        """Return every learnt allowance: for how many queries it is, and how many are answered."""
        return [
            {
                "dataset": json.loads(known.terms)["dataset"],
                "voters": len(known.spent),
                "planned": known.learnt["planned"],
                "answered": known.queries,
                "more": max(0, known.learnt["planned"] - known.queries),
            }
            for known in self.reading().accounts.values()
            if known.learnt is not None
        ]

    @property
    def lasts(self) -> bool:
        """Whether it is kept beyond this object."""
        return self._anchor is not None

    def last_entry(self) -> dict[str, Any] | None:
        """Return the last entry's number and digest, for statements; None in memory."""
        if self._anchor is None:
            return None
        number, digest = self.reading().head
        return {"entry": number, "digest": digest}

    def records(self) -> Records:
        """Return charges and what was drawn from each; for the owner's eyes."""
        with self._turn:
            self._catch_up()  # which checks the chain
            return Records(self._store.rows(), self._chain)

    def verify(self) -> Verification:
        """Find any entry that was changed, removed, reordered, inserted or rolled back."""
        with self._turn:
            return verify(self._store, self._chain, self._anchor)

    def backup(self, path: str | os.PathLike[str]) -> bool:
        """Write entries, key and anchor to one new file while the ledger is in use.

        It is readable by its owner only. Returns whether the key is inside: not where the
        environment has it. A ledger that :meth:`verify` finds broken is not copied.
        """
        target = Location.of(path).file
        if not target.parent.is_dir():
            raise InputError(f"backup {str(path)!r}: there is no folder {str(target.parent)!r}")
        with self._turn:
            found = self.verify()
            if not found.ok:
                raise LedgerError(f"the ledger is broken: {'; '.join(found.problems)}")
            return write_backup(target, self._store.rows(), self._chain)

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        path: Location | str | os.PathLike[str],
        *,
        beside: str | os.PathLike[str] | None = None,
    ) -> Verification:
        """Put back what :meth:`backup` wrote, where no ledger is, and verify it.

        Refused where an anchor knows of entries that the backup lacks. An entry says that it was
        restored: what was charged after the backup is not in it (:attr:`restored`).
        """
        location = Location.of(path, beside)
        held = read_backup(backup)
        copy = cls(MemoryStore(held.rows), held.chain, None)
        with closing(copy):
            with copy.writing():
                copy.append({"kind": "restored", "dataset": None, "backup": held.at})
            put_back(held, location, copy._store.rows())
        with closing(cls.open(location, readonly=True)) as ledger:
            return ledger.verify()

    @property
    def restored(self) -> list[dict[str, Any]]:
        """When it was restored, by which entry, and from a backup of when; mostly never."""
        return list(self.reading().restored)

    def close(self) -> None:
        """Let go of the file."""
        if os.getpid() == self._process:  # a fork must not hang up for the one that opened it
            self._store.close()


def _operator() -> dict[str, str]:
    """Return who runs this, and where: for the record, and no proof."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user without a name, as in a container
        user = str(os.getuid())
    return {"user": user, "host": platform.node()}
