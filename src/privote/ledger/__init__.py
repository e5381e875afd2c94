"""The ledger: an append-only, crash-safe, tamper-evident record of charges.

A *budget* is set, a *charge* enters against it, an *answer* continues a charged allowance, an
*outcome* records what was drawn (:mod:`privote.ledger.records`); *restored* says that all before
comes from a backup. What depends on the votes (voters' spending, data-dependent curves, what was
drawn) goes to the sealed table, bound to its entry by a keyed digest; the published view never
reads it.

Beside the entries lie a key and an anchor. What is there and what is missing says whether a ledger
is new, in use, or erased. A new one is made under the store's lock in the order entries, anchor,
key: a crash in between leaves a state that the next opening finishes, and a key without a ledger
can only mean that the ledger was taken away.

A backup is one file, to be put back where entries, key and anchor are lost: a zip of four members
that are stored as they are, so none is larger than the file; nothing is ever unpacked by a name
that stands in it. Putting it back commits all entries at once, after key and anchor. Until then
nobody can charge anything, so a crash leaves a ledger or none, and the same can be done again.
"""

from __future__ import annotations

import datetime
import getpass
import json
import os
import platform
import re
import threading
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import numpy as np

from .._version import check_written, written
from ..accounting.filters import check_charge
from ..errors import BudgetError, InputError, LedgerError, PrivoteWarning
from ..files import check_file, complete
from ..votes.names import folded
from .chain import (
    KEY_VARIABLE,
    Anchor,
    Chain,
    Verification,
    against_anchor,
    canonical,
    check_placed,
    verify,
)
from .postgres import PostgresStore
from .records import Records
from .store import (
    FORMAT,
    START,
    CommittedError,
    Head,
    LostError,
    Row,
    SQLiteStore,
    Store,
    UnsettledError,
)
from .totals import Budget, Totals

__all__ = ["Budget", "Ledger", "Location", "Verification"]

_KINDS = {None: "open", True: "data-dependent", False: "unconditional"}
_REMOTE = re.compile(r"postgres(ql)?(\+\w+)?://", re.IGNORECASE)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
# How libpq also writes an address.
_KEYWORDS = re.compile(
    r"\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*=", re.IGNORECASE
)
# What SQLite may take for a database that is gone with its process, by name or by its own URLs.
_FLEETING = re.compile(r"file:|.*:memory:|.*[?&](mode=memory|vfs=)", re.IGNORECASE | re.DOTALL)
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
        return cls(SQLiteStore(Path(":memory:")), Chain(), None)

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
            return _write_archive(target, self._store.rows(), self._chain)

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
        held = Archive.read(backup)
        copy = cls(SQLiteStore.of(held.rows), held.chain, None)
        with closing(copy):
            with copy.writing():
                copy.append({"kind": "restored", "dataset": None, "backup": held.at})
            held.put(location, copy._store.rows())
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


# -- where it lies ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Location:
    """A ledger's address: a file, or a PostgreSQL database with a local name for key and anchor.

    Make one with :meth:`of`, which makes paths absolute: a process may go elsewhere while the
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
                raise InputError(
                    "beside",
                    "must name a local file for a ledger in PostgreSQL: its key and anchor are "
                    "kept there, as NAME.key and NAME.head",
                )
            return cls(_shown(text), Path(_text("beside", beside)).absolute(), text)
        scheme = _SCHEME.match(text)
        if scheme is not None:  # the text may hold a password: it is not repeated
            raise InputError(
                "ledger",
                f"must be a file or the text of a postgresql:// address, got a {scheme[1]!r} "
                f"address{(' as a path' if scheme[1].startswith('postgres') else '')}",
            )
        if _KEYWORDS.match(text):  # not repeated, either; as a file name it would be on disk
            raise InputError("ledger", "must be a file, or an address written as postgresql://...")
        if beside is not None:
            raise InputError(
                "beside", "needs a ledger in PostgreSQL: key and anchor of a file are beside it"
            )
        if _FLEETING.match(text):
            raise InputError(
                "ledger",
                "must be a file on disk: one in memory forgets what was spent. Leave it out for a "
                "budget of one call",
                text,
            )
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

    def open_store(self, *, create: bool) -> Store:
        """Open the entries; refuse a place that cannot be a ledger, or was one and is erased."""
        if self.file.is_dir():
            raise InputError("ledger", f"must be a file, and {str(self.file)!r} is a folder")
        if not self.file.parent.is_dir():
            raise LedgerError(
                f"ledger {str(self.file)!r}: there is no folder {str(self.file.parent)!r}"
            )
        if self.address is not None:
            if self.key.exists() and not self.head.exists():
                raise self._erased("its anchor is gone, but its key is there", self.key)
            if not create and not self.head.exists():
                raise LedgerError(f"ledger {str(self.file)!r} does not exist: it has no anchor")
            return self.store(create=create)
        # Looked for before the entries, which are made first: so nothing is misread meanwhile.
        left = [file for file in (self.head, self.key) if file.exists()]
        if left and not self.file.exists():
            what = "anchor" if left[0] == self.head else "key"
            raise self._erased(f"it is gone, but its {what} is there", *left)
        return self.store(create=create)

    def store(self, *, create: bool = True, readonly: bool = False) -> Store:
        """Open the entries, whatever else is there."""
        if self.address is None:
            return SQLiteStore(self.file, create=create, readonly=readonly)
        return PostgresStore(self.address, create=create, readonly=readonly)

    def open_reader(self) -> tuple[Store, Chain, Anchor]:
        """Open entries, key and anchor without writing anything, also on read-only media."""
        if self.address is None and not self.file.exists():
            raise LedgerError(f"ledger {str(self.file)!r} does not exist")
        chain = Chain.from_environment()
        if chain is None and not self.key.exists():
            # Without an entry it is being made, or a crash left it so: the next run ends that.
            anchored = self.head.exists() and Anchor.peek(self.head) > 0
            if self.address is None and not anchored:
                with closing(SQLiteStore(self.file, readonly=True)) as entries:
                    if entries.head() == (0, START):
                        raise LedgerError(f"ledger {str(self.file)!r} does not exist: no key yet")
            raise self._no_key()
        chain = chain or Chain.read(self.key)
        return self.store(create=False, readonly=True), chain, Anchor(self.head, chain)

    def unlock(self, store: Store, *, new: bool, create: bool) -> tuple[Chain, Anchor]:
        """Return key and anchor, made if the ledger is new; only under the store's lock."""
        chain, head = Chain.from_environment(), store.head()
        if chain is None and not self.key.exists():  # without entries, it is new
            if head[0] > 0 or (self.head.exists() and Anchor.peek(self.head) > 0):
                raise self._no_key()
            if not create:
                raise LedgerError(f"ledger {str(self.file)!r} does not exist: no key, no entry")
            chain = Chain()
            anchor = Anchor(self.head, chain)
            anchor.write((0, START))
            chain.keep(self.key)
            return chain, anchor
        named = chain is not None
        chain = chain or Chain.read(self.key)
        anchor = Anchor(self.head, chain)
        if not self.head.exists() and head[0] == 0:
            # A key from the environment does not tell a new ledger from an emptied one: then the
            # entries' file must have been absent.
            if not (named and new and create):
                left = self.file if named else self.key
                raise self._erased("it is empty, and its anchor is missing", left)
            anchor.write(head)
        check_placed(store, anchor, head)
        if head in anchor.read():  # what others added is anchored once the chain was checked
            anchor.write(head)
        return chain, anchor

    def _no_key(self) -> LedgerError:
        return LedgerError(
            f"the ledger's key {self.key.name!r} is missing: restore it, or set {KEY_VARIABLE}"
            + ("" if self.address is None else "; give the place of the key as beside")
        )

    def _erased(self, found: str, *left: Path) -> LedgerError:
        names = " and ".join(repr(file.name) for file in left)
        return LedgerError(
            f"ledger {self.shown!r} was erased: {found}. It records what was spent, so restore it "
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
        shown = [
            f"{host.hostname or ''}{'' if host.port is None else f':{host.port}'}" for host in hosts
        ]
    except ValueError:
        raise InputError("ledger", "must be a postgresql:// address that can be read") from None
    return f"postgresql://{','.join(shown)}{parts.path}"


# -- backups ---------------------------------------------------------------------------------------


def _write_archive(path: Path, rows: Sequence[Row], chain: Chain) -> bool:
    """Write entries, key and anchor to a new file, for its owner only; say if the key is inside.

    It is not where the environment has it: then it is kept elsewhere on purpose.
    """
    own_key = Chain.from_environment() is None
    with closing(SQLiteStore.of(rows)) as copy:
        _check_whole(copy, chain)
        head, entries = copy.head(), copy.packed()
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    manifest = {**written(_ARCHIVE), "at": at, "entries": head[0], "head": head[1]}
    manifest["note"] = _SECRET if own_key else f"the key is not included: it is in {KEY_VARIABLE}"
    members = {
        _MANIFEST: json.dumps(manifest, indent=2).encode(),
        _ENTRIES: entries,
        _ANCHOR: Anchor(Path(_ANCHOR), chain).text(head, backup=at),
    }
    if own_key:
        members[_KEY] = chain.text
    if os.path.lexists(path):
        raise InputError(f"backup {str(path)!r} exists already")
    try:
        with (
            complete(path, force=False, owner_only=True) as part,
            zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name, content in members.items():
                archive.writestr(name, content)
    except OSError as error:
        raise LedgerError(f"backup {str(path)!r} cannot be written: {error}") from None
    return own_key


def _check_whole(store: SQLiteStore, chain: Chain) -> None:
    """Raise unless the entries are whole and under this key."""
    problems = store.problems() or verify(store, chain, None).problems
    if problems:
        raise LedgerError(f"its entries are broken or belong to another key: {'; '.join(problems)}")


@dataclass(frozen=True)
class Archive:
    """What an archive holds, checked: entries that end where its anchor says, under its key."""

    rows: Sequence[Row]
    chain: Chain
    own_key: bool
    at: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Archive:
        """Read what :meth:`Ledger.backup` wrote. Nothing in it is run or unpacked."""
        file = check_file(path, "backup")
        try:
            members = _members(file)
        except InputError:
            raise
        except Exception as error:  # whatever a damaged or hostile file leads to
            why = f"{str(path)!r} was not written by `privote ledger backup`: {error!s:.200}"
            raise InputError("backup", why) from None
        own_key, chain = _KEY in members, Chain.from_environment()
        if own_key:
            inside = Chain.parse(members[_KEY], _KEY)
            if chain is not None and chain.text != inside.text:
                raise LedgerError(f"{KEY_VARIABLE} differs from the archive's key")
            chain = inside
            if os.name == "posix" and file.stat().st_mode & 0o077:
                warnings.warn(
                    f"{file.name!r} {_SECRET}, and other users can read it: run chmod 600 on it",
                    PrivoteWarning,
                    stacklevel=1,
                )
        if chain is None:
            raise LedgerError(f"the archive contains no key: set {KEY_VARIABLE}")
        with closing(SQLiteStore.unpacked(members[_ENTRIES])) as copy:
            _check_whole(copy, chain)
            rows, head = copy.rows(), copy.head()
        record, known = Anchor(Path(_ANCHOR), chain).parse(members[_ANCHOR])
        if known != [head]:
            raise LedgerError(f"in the archive {Anchor.rolled_back(head, known)}")
        return cls(rows, chain, own_key, str(record["backup"]))

    def put(self, place: Location, rows: Sequence[Row]) -> None:
        """Put a ledger with these rows, which go on from the archive's, where none is."""
        if not place.file.parent.is_dir():
            raise InputError("ledger", f"needs its folder {str(place.file.parent)!r}")
        self._check_place(place)
        if place.address is None and not place.file.exists():
            self._put_beside(place, rows)  # an empty file alone would be taken for a new ledger
        with closing(place.store()) as store:
            with store.transaction():
                if store.head() != (0, START):
                    raise LedgerError(f"{place.shown!r} has entries: nothing is overwritten")
                self._put_beside(place, rows)
                for row in rows:
                    store.append(row)
            if isinstance(store, SQLiteStore):  # who only reads would leave a log beside it
                store.run("PRAGMA journal_mode=DELETE")

    def _put_beside(self, place: Location, rows: Sequence[Row]) -> None:
        """Put key and anchor; until the entries are there, these say that a ledger is missing."""
        if self.own_key and not place.key.exists():
            self.chain.keep(place.key)
        *_, last, added = [(0, START), *((row.number, row.digest) for row in rows)]
        Anchor(place.head, self.chain).write(last, added, restoring=True)

    def _check_place(self, place: Location) -> None:
        """Refuse a place where anything would be replaced, or that knows of later charges."""
        if place.key.exists() and Chain.read(place.key).text != self.chain.text:
            raise LedgerError(f"{place.key.name!r} is the key of another ledger: move it elsewhere")
        anchor = Anchor(place.head, self.chain)
        known = anchor.read()[: 1 if anchor.restoring else 2]  # killed, it had announced its own
        heads = [(0, START), *((row.number, row.digest) for row in self.rows)]
        if known and max(known)[0] > heads[-1][0]:
            raise LedgerError(
                f"the anchor {place.head.name!r} records entry {max(known)[0]}, but the archive "
                f"ends at entry {heads[-1][0]}: charges would be lost. Restore a later backup; if "
                "there is none, treat the budget of every data set as spent"
            )
        if known and known[0] not in heads:
            raise LedgerError(
                f"the anchor {place.head.name!r} records another entry {known[0][0]} than the "
                "archive: it belongs to another ledger"
            )
        logs = (place.file.with_name(place.file.name + end) for end in ("-wal", "-journal"))
        for log in logs if not place.file.exists() else ():
            if os.path.lexists(log):  # with charges of a ledger that is gone
                raise LedgerError(f"{str(log)!r} exists and is not overwritten: move it elsewhere")


def _members(path: Path) -> dict[str, bytes]:
    """Return what is in an archive, by name; refuse any member that does not belong there."""
    with zipfile.ZipFile(path) as file:
        listed = file.infolist()
        names = sorted(info.filename for info in listed)
        if names.count(_MANIFEST) != 1:
            raise ValueError("it has no manifest")

        def content(name: str) -> bytes:
            info = file.getinfo(name)
            most = path.stat().st_size if name == _ENTRIES else _FEW
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > most:
                raise ValueError(f"{name!r} is compressed, or larger than allowed")
            return file.read(info)

        check_written(f"backup {path.name!r}", dict(json.loads(content(_MANIFEST))), _ARCHIVE)
        whole = [_ENTRIES, _ANCHOR, _KEY, _MANIFEST]
        if names not in (sorted(whole), sorted({*whole} - {_KEY})):
            raise ValueError(f"it contains unexpected files: {names!r:.100}")
        return {name: content(name) for name in names}
