"""The ledger: what was charged, and which process may draw what was paid for.

Reserve, draw, commit. One transaction checks the budget and appends the charge with its holder, and
the run's outbox is allocated. Nothing that depends on a vote or a draw is visible until the commit;
then the outcome is delivered. A process that dies in between has released nothing, so the one that
resumes its run draws afresh: an adversary sees one draw (condition by condition in
``docs/operate.md``).
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import platform
import re
import secrets
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import rounded_up
from ..errors import (
    BudgetError,
    ChargedError,
    ChargedInterruptError,
    CompleteError,
    InputError,
    LedgerError,
    PrivoteError,
    PrivoteWarning,
    StorageError,
)
from ..files import sync_folder
from ..votes.names import folded
from .backup import read_backup, restore, write_backup
from .chain import Anchor, Chain, Location, Verification, canonical, now, verify
from .events import (
    Account,
    AllowanceRequest,
    AllowanceState,
    Budget,
    BudgetScope,
    Charged,
    Closed,
    Committed,
    Counts,
    Delivered,
    Event,
    LedgerState,
    Replaced,
    Request,
    Reserved,
    Restored,
    RunState,
    Standing,
    TakenOver,
    admit,
    after,
    authorise,
    continued,
    decoded,
    packed,
    pays,
    raised,
    seats_of,
    still,
)
from .store import START, CommittedError, Head, LostError, Row, Store, UnsettledError

__all__ = [
    "Account",
    "AllowanceRequest",
    "AllowanceState",
    "Budget",
    "BudgetScope",
    "Finding",
    "Ledger",
    "Location",
    "Outbox",
    "Outcome",
    "Request",
    "Run",
    "Standing",
    "Verification",
    "digest_of",
    "digest_of_text",
]

_PIECE = 1 << 20  # bytes of an outbox that are written at once
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)  # of a system that allocates nothing
_END = b"\n"
_KINDS = {None: "open", True: "data-dependent", False: "unconditional"}


class Finding(NamedTuple):
    """What a ledger says of a digest: which run it belongs to, as what, and the run's status."""

    run: int
    what: str
    status: str


class _KnownBy(NamedTuple):
    """Keyed digests: of a run's terms and output, of its allowance's, and of voters' names."""

    key: str
    scheme: str | None
    roll: list[str] | None


class Ledger:
    """An append-only record of charges that survives crashes and reveals tampering.

    Open a file, or a PostgreSQL database, with :meth:`open`. Threads may share a ledger. A forked
    process may not, and cannot open a file that was open when it was forked.

    Examples
    --------
    >>> import privote as pv, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = pv.Ledger.open(folder.name + "/ledger.db")
    >>> budget = ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5), dataset="ward 3")
    >>> [(row["dataset"], row["used"]) for row in ledger.standing()]
    [('ward 3', 0.0)]
    """

    def __init__(
        self,
        location: Location | None = None,
        parts: tuple[Store, Chain, Anchor] | None = None,
        *,
        readonly: bool = False,
    ) -> None:
        self.location, self._readonly = location, readonly
        self._store: Store | None = None
        self._anchor: Anchor | None = None
        self._chain = Chain()
        if parts is not None:
            self._store, self._chain, self._anchor = parts
        self._state, self._head = LedgerState(), (0, START)
        self._events: list[tuple[str, Event]] = []  # without a store they are all there is
        self._added: list[Row] | None = None  # in this transaction; None outside of one
        self._process, self._lock, self._closed = os.getpid(), threading.RLock(), False

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
        ``readonly`` nothing is written, so a copy on read-only media will do.
        """
        location = Location.of(path, beside)
        parts = location.open_reader() if readonly else location.open(create=create)
        return cls(location, parts, readonly=readonly)

    @classmethod
    def in_memory(cls) -> Ledger:
        """Return a ledger for the budget of one call: the same rules, nothing outlives it."""
        return cls()

    @classmethod
    def at(cls, place: Any, *, create: bool = True) -> AbstractContextManager[Ledger]:
        """Return a ledger to work with, by its place; or one that its owner will close.

        Without a place it is one in memory.
        """
        if isinstance(place, cls):
            return nullcontext(place)
        return closing(cls.in_memory() if place is None else cls.open(place, create=create))

    @property
    def is_persistent(self) -> bool:
        """Whether it outlives this object."""
        return self.location is not None

    def close(self) -> None:
        """Let go of the file."""
        if os.getpid() == self._process:  # a fork must not hang up for the one that opened it
            if self._store is not None:
                self._store.close()
            self._store, self._closed = None, True

    # A copy would let the same budget be spent twice.
    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a Ledger cannot be copied or pickled: open it again from its file")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    # -- entries -----------------------------------------------------------------------------------

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
        if self._closed:
            raise LedgerError("the ledger is closed")
        return self._lock

    @property
    def state(self) -> LedgerState:
        """What all entries add up to now; takes no lock of the database's."""
        with self._turn:
            for row in () if self._store is None else self._store.rows(after=self._head[0]):
                self._chain.check(self._head, row)
                head = (row.number, row.digest)
                self._state.add(head, row.at, decoded(row.body, row.sealed))
                self._head = head
            return self._state

    @contextmanager
    def transaction(self) -> Iterator[LedgerState]:
        """Hold the ledger's only lock; what is appended inside is on disk when the block ends.

        What was appended is read back before the commit and after it: a trigger or a rule of the
        database's can drop a row without a word. The anchor is written twice around the commit, so
        a crash in between leaves a state that is recognised.
        """
        with self._turn:
            if self._readonly:
                raise LedgerError("the ledger was opened for reading only")
            if self._added is not None:
                raise LedgerError("the ledger is already being written by this thread")
            before, lost, count = self._head, None, len(self._events)
            added: list[Row] = []
            try:
                try:  # an interrupt between two lines of `try` is caught by neither
                    self._added = added
                    if self._store is None or self._anchor is None:
                        yield self._state
                        return
                    with self._store.transaction():
                        before, state = self._store.head(), self.state
                        # A file put in the place of an open one would take charges that nobody
                        # else ever sees.
                        self._anchor.check(self._store, before)
                        if before != self._head:
                            raise LedgerError("the ledger was rolled back while it was open")
                        yield state
                        if added:
                            if self._store.rows(before[0]) != added:
                                raise LedgerError("the database changed what was entered")
                            self._anchor.write(before, self._head)  # announced, then committed
                except UnsettledError as error:
                    lost = error
                if added:
                    self._settle(before, added, lost)
                self._added = None  # here and below: an interrupt may hit either line
            except BaseException:
                self._undo(count)
                raise
            finally:
                self._added = None

    def _undo(self, count: int) -> None:
        """Forget what a transaction added that failed: what is stored is read anew."""
        del self._events[count:]
        self._state, self._head = LedgerState(), (0, START)
        for number, (at, event) in enumerate(self._events, 1):
            self._head = (number, "")
            self._state.add(self._head, at, event)

    def _settle(self, before: Head, added: Sequence[Row], lost: UnsettledError | None) -> None:
        """Read back what was committed, and anchor it; raise unless it is there.

        Where the answer to the commit was lost, this finds out what became of it: under the lock,
        which the broken session held until it had committed or was undone. Nothing is tried twice,
        so nothing is charged twice. Where others have anchored more by now, that stays.
        """
        store, anchor, after = self._store, self._anchor, (added[-1].number, added[-1].digest)
        assert store is not None
        assert anchor is not None
        try:
            if lost is not None:
                store.reconnect()
            with store.transaction():
                there = store.rows(before[0], after[0]) == added
                if there and anchor.check(store, store.head()) == [before, after]:
                    anchor.write(after)
        except LedgerError as error:
            raise CommittedError(
                f"entry {after[0]} was being committed, and then: {error}. If it is in the ledger, "
                "it counts"
            ) from None
        if not there and lost is not None:
            raise LostError(
                f"the connection broke ({lost}) before the entry was committed: nothing was "
                "charged or released"
            )
        if not there:
            raise CommittedError(f"the database changed entry {after[0]}: run verify")

    def append(self, event: Event) -> int:
        """Add an event, inside a transaction; return its entry."""
        if self._added is None:
            raise LedgerError("append outside a transaction")
        if not (self._state.replaced or isinstance(event, Replaced)):
            raise LedgerError(
                "this ledger was restored from a backup, and its original may still be charged: "
                "read it, or say that the original is gone (`privote ledger restore --replace`)"
            )
        if self._store is None:
            at = now()
            self._events.append((at, event))
            self._head = (len(self._events), "")
        else:
            row = self._chain.enter(self._head, event)
            self._store.append(row)
            self._added.append(row)
            self._head, at = (row.number, row.digest), row.at
        self._state.add(self._head, at, event)
        return self._head[0]

    # -- budgets -----------------------------------------------------------------------------------

    def set_budget(self, budget: Budget, *, dataset: str) -> Budget:
        """Set what a data set may cost in all, or raise it; return the budget with its order.

        Once set, only its epsilon may rise: its order and delta stay, so that what was charged
        counts as before. Nothing can be raised that one run took as a whole.
        """
        if not isinstance(budget, Budget):
            raise InputError("budget", "must be a privote.Budget", budget)
        with self.transaction() as state:
            self.append(raised(state, budget, state.known(dataset)))
            return state.scopes[state.known(dataset)].budget

    def quote(self, request: Request) -> BudgetScope:
        """Return a data set as it would be once a run is charged; raise if it would be refused."""
        return after(self.state, request)

    def charge(
        self, state: LedgerState, request: Request, known: _KnownBy | None = None, **facts: Any
    ) -> int:
        """Append the charge of a run, inside a transaction; return its entry."""
        *budget, charge = admit(state, request)
        for event in budget:
            if self.is_persistent and request.price and event.epsilon == request.cost.epsilon:
                warnings.warn(
                    f"data set {event.dataset!r} is new, and no budget was set: it is this run's "
                    f"epsilon {rounded_up(event.epsilon)}, and nothing will be left for other "
                    "runs. To leave some, set a larger budget first (`privote ledger budget`)",
                    PrivoteWarning,
                    stacklevel=2,
                )
            self.append(event)
        allowance = request.allowance
        if allowance is not None:
            limits = [] if allowance.wanted is None else allowance.wanted.tolist()
            known = known or self._known_by(request)
            facts = {
                "account": known.scheme if allowance.lasts else f"{known.scheme}, for one run",
                "voters": allowance.voters,
                "allowance": limits[0] if len({*limits}) == 1 else limits or None,
                "planned": allowance.planned,
                "roll": known.roll,
                **facts,
            }
        return self.append(replace(charge, **facts))

    # -- runs --------------------------------------------------------------------------------------

    def _known_by(self, request: Request) -> _KnownBy:
        """Return keyed digests of what a run and its allowance are known by."""
        allowance, cost = request.allowance, request.cost
        dataset = folded(self._state.known(request.dataset))
        terms = [dataset, cost.epsilon, cost.delta, request.guarantee, request.simulated]
        limits = scheme = roll = None
        if allowance is not None:
            if allowance.wanted is not None:
                limits = allowance.wanted.tolist()
            if allowance.names is not None:
                roll = [self._name_voter(name) for name in allowance.names]
            whom = allowance.voters if roll is None else "by name"
            scheme = self._chain.seal(canonical([*terms, allowance.terms, whom]))[:32]
        terms += [request.protects, request.terms, request.output, limits, roll]
        return _KnownBy(self._chain.seal(canonical(terms))[:32], scheme, roll)

    def find(self, request: Request) -> RunState | None:
        """Return the last run with these public terms and this output."""
        return self.state.latest(self._known_by(request).key)

    def outboxes(self, run: int | None = None) -> list[Outbox]:
        """Return the outboxes of all runs, or of one; never those of another ledger."""
        if self.location is None:
            return []
        file = self.location.file
        name = re.compile(rf"{re.escape(file.name)}\.(\d+)-([0-9a-f]{{16}})\.outbox")
        matches = filter(None, (name.fullmatch(path.name) for path in file.parent.iterdir()))
        boxes = [Outbox(file, int(match[1]), match[2]) for match in matches]
        return [box for box in boxes if run in (None, box.run)]

    def reserve(self, request: Request, *, resume: bool = False) -> Run:
        """Charge a run, or go on with its allowance, and hold it; with ``resume`` take it over.

        The run is a context: what fails inside it before the commit closes the reservation.

        Raises
        ------
        BudgetError
            If the budget does not admit the run; nothing is charged.
        StorageError
            If the disk is full or the database does not answer; nothing is charged.
        ChargedError
            If the run to be resumed can be neither drawn nor delivered any more.
        CompleteError
            If the run to be resumed was delivered, and its output is there.
        """
        if resume and not self.is_persistent:
            raise InputError("resume", "needs a `ledger`: without one nothing outlives a call")
        holder, outcome = secrets.token_hex(8), None
        outbox: Outbox | None = None
        try:
            with self.transaction() as state:
                for box in self.outboxes():
                    left = state.runs.get(box.run)
                    if left is None or left.finished:  # finished, or never reserved
                        box.remove()
                known = self._known_by(request)
                run = state.latest(known.key)
                if run is None or (not resume and run.finished):
                    number = self._reserve(state, request, known, holder)
                elif resume:
                    number, outcome = run.number, self._take_over(run, request, holder)
                else:
                    raise BudgetError(
                        f"run {run.number} with these terms is not finished: finish it with "
                        f"`resume=True`, or end it with `privote ledger abandon {run.number}`"
                    )
                if self.location is not None and outcome is None:
                    outbox = Outbox(self.location.file, number, holder)
                    outbox.allocate(request.size)
        except BaseException as error:
            if outbox is not None and not isinstance(error, CommittedError):
                outbox.remove()
            raise
        return Run(self, number, holder, request.size, outcome)

    def _reserve(self, state: LedgerState, request: Request, known: _KnownBy, holder: str) -> int:
        """Append the charge, unless an allowance pays, and the reservation; return its entry."""
        charge, last = self.allowance_for(state, request, known), 0
        if charge is None:
            charge = self.charge(state, request, known)
        else:
            authorise(state, request)
            account, last = state.accounts[charge], state.accounts[charge].last
            assert request.allowance is not None
            continued(account, request.allowance)
        operator = _operator(request.output)
        return self.append(
            Reserved(key=known.key, holder=holder, charge=charge, state=last, operator=operator)
        )

    def _take_over(self, run: RunState, request: Request, holder: str) -> Outcome | None:
        """Hold a run that another process began; return what it committed, if anything."""
        outcome, where = None, f"run {run.number} of {run.at[:16].replace('T', ' ')} UTC"
        if run.finished:
            raise _not_resumable(run, where)
        boxes = self.outboxes(run.number)
        if run.commit is None:
            for outbox in boxes:
                outbox.remove()
        else:
            committed = (run.commit.drawn, run.commit.statement, run.commit.facts)
            outcomes = filter(None, (outbox.read() for outbox in boxes))
            same = [
                each
                for each in outcomes
                if (each.drawn, each.statement_digest, each.facts_digest) == committed
            ]
            if not same:
                raise ChargedError(
                    f"{where} is charged and drawn, and what was drawn lies with the ledger's key "
                    f"on host {run.operator.get('host')!r}: resume it there. It is never drawn "
                    "again",
                    code="elsewhere",
                )
            outcome = same[0]
        # Durable before anything is delivered: what leaves is in the ledger by now.
        self.append(TakenOver(run=run.number, holder=holder, operator=_operator(request.output)))
        return outcome

    def abandon(self, run: int) -> None:
        """End a run that is open, without a draw; it stays charged."""
        with self.transaction() as state:
            status = state.runs[run].status if run in state.runs else "unknown"
            if status != "open":
                raise InputError("run", f"must be an open reservation; run {run} is {status}", run)
            self.append(Closed(run=run))

    # -- allowances --------------------------------------------------------------------------------

    def allowance_for(
        self, state: LedgerState, request: Request, known: _KnownBy | None = None
    ) -> int | None:
        """Return the charge whose allowance pays for a run; None where it needs one of its own.

        Voters are found by their names, or else all by their places. An allowance that is learnt
        for one call pays for later ones as long as so many queries are left in it.
        """
        wanted = request.allowance
        if wanted is None or not wanted.lasts or not state.accounts:
            return None
        known = known or self._known_by(request)
        for charge, account in reversed(state.accounts.items()):
            if account.charge.account == known.scheme and pays(account, wanted, known.roll):
                return charge
        return None

    def seats(self, account: AllowanceState, names: Sequence[str] | None) -> Counts | None:
        """Return the seat of each named voter; None if they come as they were registered."""
        if names is None or account.seats is None:
            return None
        seats = seats_of(account, names, [self._name_voter(name) for name in names])
        if seats is None or len({*seats.tolist()}) < len(seats):
            raise InputError("voter_ids", "must name each registered voter only once")
        same = len(seats) == len(account.seats) and (seats == range(len(seats))).all()
        return None if same else seats

    # -- names and secrets -------------------------------------------------------------------------

    def _name_voter(self, name: str) -> str:
        """Return the keyed digest of a voter's name, folded: found again, never read off."""
        return self._chain.seal(canonical(["voter", folded(name)]))[:32]

    def secret(self, purpose: str, dataset: str | None = None) -> bytes:
        """Return 32 bytes that follow from the ledger's key alone: the same for a data set, always.

        For what must stay the same over runs and known to nobody, such as a partition's key; or of
        the ledger as a whole, such as the key that signs exports.
        """
        whose = [] if dataset is None else [self.state.known(dataset)]
        return bytes.fromhex(self._chain.seal(canonical(["secret", purpose, *whose])))

    # -- reading -----------------------------------------------------------------------------------

    def published(self) -> list[dict[str, Any]]:
        """Return the entries as they may be shown: nothing that depends on votes."""
        with self._turn:
            if self._store is None:
                return [
                    {"number": number, "at": at, "digest": "", **event.encoded()[0]}
                    for number, (at, event) in enumerate(self._events, 1)
                ]
            rows = self._store.rows()
        entries = []
        for row in rows:
            body = json.loads(row.body)
            body.pop("seal", None)
            entries.append({"number": row.number, "at": row.at, "digest": row.digest, **body})
        return entries

    def standing(self) -> list[dict[str, Any]]:
        """Return every budget with what unconditional charges have used of it, and left."""
        return [
            {
                "dataset": scope.name,
                "kind": _KINDS[scope.conditional],
                "epsilon": scope.budget.epsilon,
                "delta": scope.budget.delta,
                "order": scope.budget.filter.order,
                "used": scope.total,
                "share": scope.share,
                "runs": len(scope.epsilons),
                "fits": None if scope.conditional else scope.largest(),
                "still": None
                if scope.conditional or scope.whole or not scope.largest()
                else still(scope, scope.largest()),
            }
            for scope in self.state.scopes.values()
        ]

    def check(self, *digests: str) -> list[Finding]:
        """Return which runs released something with one of these digests, and as what.

        Of a statement, of what was drawn, or of a file that was delivered.
        """
        return [
            Finding(run.number, run.released[digest], run.status)
            for run in self.state.runs.values()
            for digest in digests
            if digest in run.released
        ]

    def verify(self) -> Verification:
        """Find any entry that was changed, removed, reordered, inserted or rolled back."""
        with self._turn:
            if self._store is None:
                return Verification(entries=len(self._events), head="", problems=())
            return verify(self._store, self._chain, self._anchor)

    # -- backups -----------------------------------------------------------------------------------

    def backup(self, path: str | os.PathLike[str]) -> bool:
        """Write entries, key and anchor to one new file while the ledger is in use.

        It is readable by its owner only. Returns whether the key is inside: not where the
        environment has it. A ledger that :meth:`verify` finds broken is not copied.
        """
        with self._turn:
            if self._store is None:
                raise LedgerError("a ledger without a file has no backup")
            found = self.verify()
            if not found.ok:
                raise LedgerError(f"the ledger is broken: {'; '.join(found.problems)}")
            return write_backup(Path(path), self._store, self._chain)

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        path: Location | str | os.PathLike[str],
        *,
        beside: str | os.PathLike[str] | None = None,
        replace: bool = False,
    ) -> Verification:
        """Put back what :meth:`backup` wrote, where no ledger is, and verify it.

        An entry says that it was restored. Nothing can be charged to it until its owner says, with
        ``replace``, that the original is gone: two live copies would spend one budget twice.
        """
        location, operator = Location.of(path, beside), _operator(None)
        source = read_backup(backup)
        news: list[Event] = [Restored(backup=source.at, operator=operator)]
        restore(source, location, [*news, *[Replaced(operator=operator)] * replace])
        with closing(cls.open(location, readonly=True)) as ledger:
            return ledger.verify()

    def replace(self) -> None:
        """Say that the original of a restored ledger is gone: it can be charged from now on."""
        with self.transaction() as state:
            if state.replaced:
                raise LedgerError("this ledger is no restored copy: there is nothing to replace")
            self.append(Replaced(operator=_operator(None)))


def _operator(output: str | None) -> dict[str, str]:
    """Return who runs this, where, and into which file: for the record, and no proof."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user without a name, as in a container
        user = str(os.getuid())
    place = {} if output is None else {"output": output}
    return {"user": user, "host": platform.node(), **place}


def _not_resumable(run: RunState, where: str) -> Exception:
    """Return why a run that is finished cannot be resumed."""
    output = run.operator.get("output")
    if run.status != "delivered":
        rule = "it is charged, nothing of it was released, and it cannot be resumed"
        return ChargedError(f"{where} was closed: {rule}", code="closed")
    if output is None or Path(output).exists():
        return CompleteError(f"{where} is complete: it was delivered. Nothing is left to do")
    return InputError(
        "resume",
        f"cannot bring back {output!r}: {where} was delivered there. Nothing was charged or drawn",
    )


# -- runs and what they drew -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What was drawn, and what is said of it.

    Attributes
    ----------
    arrays
        By name, in the order that the digest has.
    facts, statement
        Plain values that a delivery needs besides, and the statement's own text.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    statement: str = ""

    @property
    def drawn(self) -> str:
        """The digest of what was drawn."""
        return digest_of(*self.arrays.values())

    @property
    def statement_digest(self) -> str:
        """The digest of the statement's own text."""
        return digest_of_text(self.statement)

    @property
    def facts_digest(self) -> str:
        """The digest of the plain values, in whatever order."""
        return digest_of_text(json.dumps(self.facts, sort_keys=True))


def digest_of(*numbers: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of drawn numbers in one form, whatever machine or layout holds them.

    Of each array the type, the cells row by row, the shape and its length: int8 for labels,
    little-endian float64 for fractions, int64 for every other kind of integer, such as tallies.
    """
    digest = sha256()
    for array in numbers:
        kind = np.dtype({"f": "<f8"}.get(array.dtype.kind, "i1" if array.dtype == "i1" else "<i8"))
        if not np.can_cast(array.dtype, kind, "safe"):
            raise InputError("numbers", "must be below 2**63, or floats", array.dtype)
        digest.update(kind.str.encode())
        digest.update(np.ascontiguousarray(array, kind).tobytes())
        digest.update(np.array([*array.shape, array.ndim], "<i8").tobytes())
    return digest.hexdigest()


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text without the spaces around it, as a file of it may end."""
    return sha256(text.strip().encode()).hexdigest()


class Outbox:
    """The file of one holder of one run: what it drew, from the draw until it is delivered.

    It lies beside the ledger's key and is allocated, as a part of the reservation, at a size that
    public numbers fix: were there no space left only once something is drawn, what was drawn could
    decide whether it leaves. It is for its owner only, and goes when its run is delivered.
    """

    def __init__(self, file: Path, run: int, holder: str) -> None:
        self.path, self.run = file.with_name(f"{file.name}.{run}-{holder}.outbox"), run

    def allocate(self, size: int) -> None:
        """Take a new file of this size on the disk, for its owner only."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                try:
                    os.posix_fallocate(file, 0, size)
                except (AttributeError, OSError) as error:  # not on this system, or here
                    if getattr(error, "errno", None) not in (None, *_UNSUPPORTED):
                        raise
                    for start in range(0, size, _PIECE):
                        os.pwrite(file, bytes(min(_PIECE, size - start)), start)
                os.fsync(file)
            finally:
                os.close(file)
            sync_folder(self.path.parent)
        except OSError as error:
            self.remove()
            raise StorageError(
                f"{size:,} bytes cannot be allocated in {str(self.path.parent)!r}: "
                f"{error.strerror or error}. Nothing was charged"
            ) from None

    def write(self, outcome: Outcome, size: int) -> None:
        """Write an outcome into the space that was allocated, durably."""
        arrays = [np.ascontiguousarray(array) for array in outcome.arrays.values()]
        head = {
            "arrays": [
                [name, array.dtype.str, list(array.shape)]
                for name, array in zip(outcome.arrays, arrays, strict=True)
            ],
            "facts": outcome.facts,
            "statement": outcome.statement,
        }
        text = json.dumps(head).encode() + _END
        room = size - sum(array.nbytes for array in arrays)
        if len(text) > room:
            raise ValueError(f"facts need {len(text)} bytes, and the reservation has {room}")
        with open(self.path, "r+b") as file:
            file.write(text.ljust(room))
            for array in arrays:
                file.write(array.data.cast("B"))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Outcome | None:
        """Return the outcome; None where there is none, or not all of it."""
        try:
            content = self.path.read_bytes()
            head = json.loads(content.partition(_END)[0])
            specs = [(name, np.dtype(kind), tuple(shape)) for name, kind, shape in head["arrays"]]
            sizes = [kind.itemsize * int(np.prod(shape)) for _, kind, shape in specs]
            start, arrays = len(content) - sum(sizes), {}
            for (name, kind, shape), size in zip(specs, sizes, strict=True):
                cells = np.frombuffer(content[start : start + size], kind)
                arrays[name] = cells.reshape(shape)
                start += size
            return Outcome(arrays=arrays, facts=head["facts"], statement=head["statement"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file, if it is there; one that cannot be is swept by whoever comes next."""
        with suppress(OSError):
            self.path.unlink()


class Run:
    """A reservation: draw, :meth:`commit`, :meth:`deliver`, in this order. A context.

    Attributes
    ----------
    number
        The entry of its reservation.
    outcome
        What was drawn, once it is committed: also by the process that was resumed.
    standing
        What the data set costs by now; None where the budget is for one call.
    account
        The allowance that pays, as it was reserved; None without one.
    """

    def __init__(
        self, ledger: Ledger, number: int, holder: str, size: int, outcome: Outcome | None
    ) -> None:
        self.ledger, self.number, self.outcome = ledger, number, outcome
        self._holder, self._size, self._delivered = holder, size, False
        self._reserved = ledger.state.runs[number].reserved
        self.standing = None
        if ledger.is_persistent:
            self.standing = Standing.of(ledger.state, number)

    @property
    def account(self) -> AllowanceState | None:
        """The allowance that pays, as it is now; None without one."""
        return self.ledger.state.accounts.get(self._reserved.charge)

    @property
    def charge(self) -> Charged:
        """The charge that pays."""
        return self.ledger.state.charges[self._reserved.charge]

    def commit(
        self,
        outcome: Outcome,
        *,
        queries: int = 0,
        learnt: tuple[Mapping[str, Any], int] | None = None,
        spending: tuple[Counts, Counts] | None = None,
        curve: Sequence[float] | None = None,
    ) -> None:
        """Make what was drawn durable, and record it: once, and by the run's current holder.

        Parameters
        ----------
        queries
            How many were answered.
        learnt
            Parameters, and the contributions for life that count, where these were learnt.
        spending
            What each voter spent, and how many of its ballots were clipped: (voters,) by seat.
        curve
            Rényi costs that depend on the votes. Sealed.
        """
        mechanism, limit = (None, None) if learnt is None else learnt
        spent, clipped = (None, None) if spending is None else map(packed, spending)
        event = Committed(
            run=self.number,
            holder=self._holder,
            queries=queries,
            mechanism=mechanism,
            limit=limit,
            drawn=outcome.drawn,
            statement=outcome.statement_digest,
            facts=outcome.facts_digest,
            spent=spent,
            clipped=clipped,
            curve=None if curve is None else [*map(float, curve)],
        )
        try:
            if self.ledger.location is not None:
                outbox = Outbox(self.ledger.location.file, self.number, self._holder)
                outbox.write(outcome, self._size)
            with self.ledger.transaction() as state:
                run, account = state.runs[self.number], self.account
                last = 0 if account is None else account.last
                if (run.status, run.holder, last) != ("open", self._holder, self._reserved.state):
                    raise ChargedError(
                        f"run {self.number} was taken over by another process, which finishes it: "
                        "nothing is released here",
                        code="taken",
                    )
                self.ledger.append(event)
        except (OSError, LedgerError) as error:
            raise self._unfinished(error) from None
        self.outcome = outcome

    def deliver(self, files: Mapping[str, str] | None = None) -> None:
        """Record that the outcome is where it belongs, and let go of the outbox.

        Parameters
        ----------
        files
            Digests of the files that were written, by name.
        """
        self._delivered = True
        with self.ledger.transaction() as state:
            run = state.runs[self.number]
            if run.status != "committed" or run.holder != self._holder:
                return  # whoever took it over delivers the same
            self.ledger.append(
                Delivered(run=self.number, holder=self._holder, files=dict(files or {}) or None)
            )
        for outbox in self.ledger.outboxes(self.number):
            outbox.remove()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the reservation if a draw failed; say what a failure means for the budget."""
        if error is None or self._delivered or isinstance(error, ChargedError):
            return
        if not self.ledger.is_persistent:
            if self.outcome is None:  # what failed may depend on votes; an interrupt does not
                with self.ledger.transaction():
                    self.ledger.append(Closed(run=self.number, failed=isinstance(error, Exception)))
            return
        if isinstance(error, Exception) and self.outcome is None:
            self._close(error)
        if isinstance(error, Exception | KeyboardInterrupt):
            raise self._unfinished(error) from error

    def _unfinished(self, error: BaseException) -> ChargedError:
        """Return the error of a run that is charged and can be resumed."""
        kind = ChargedInterruptError if isinstance(error, KeyboardInterrupt) else ChargedError
        text = str(error) or type(error).__name__
        return kind(
            f"the budget is charged, but run {self.number} did not finish: {text.rstrip('.')}. "
            "Repeat it with `resume=True`, at no further charge"
        )

    def _close(self, error: Exception) -> None:
        """Close the reservation, durably, before the error is shown."""
        unavailable = None
        try:
            with self.ledger.transaction() as state:
                if state.runs[self.number].holder == self._holder:
                    self.ledger.append(Closed(run=self.number, failed=True, holder=self._holder))
        except (LedgerError, OSError):
            # Whether it failed may depend on votes: without the entry nothing is said of it.
            unavailable = ChargedError(
                f"the ledger does not answer, and run {self.number} is charged: repeat it with "
                "`resume=True`, at no further charge"
            )
        if unavailable is not None:
            unavailable.__suppress_context__ = True
            try:
                raise unavailable
            finally:
                unavailable.__context__ = None
        for outbox in self.ledger.outboxes(self.number):
            outbox.remove()
        # What another library says may quote a vote, or name a private file.
        text = (isinstance(error, PrivoteError) and str(error)) or type(error).__name__
        raise ChargedError(
            f"run {self.number} failed after it was charged, and is closed: {text.rstrip('.')}. "
            "Nothing was released, and it cannot be resumed",
            code="closed",
        ) from error
