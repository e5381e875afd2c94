"""The ledger: what was charged, and which process may draw what was paid for.

Reserve, draw, commit. One transaction checks the budget and appends the charge with its holder, and
the run's outbox is allocated. Nothing that depends on a vote or a draw is visible until the commit;
then the outcome is delivered. A process that dies in between has released nothing, so the one that
resumes its run draws afresh: an adversary sees one draw (condition by condition in
``docs/operate.md``).
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import secrets
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ..errors import (
    BudgetError,
    ChargedError,
    ChargedInterruptError,
    CompleteError,
    InputError,
    LedgerError,
    PrivoteWarning,
)
from ..votes.names import folded
from .admission import (
    Account,
    AllowanceRequest,
    Request,
    admit,
    after,
    authorise,
    continued,
    nothing_left,
    pays,
    raised,
    seats_of,
    still,
)
from .backup import read_backup, restore, write_backup
from .book import Book
from .chain import Chain, Verification, canonical, verify
from .events import (
    AllowanceState,
    Budget,
    BudgetScope,
    Charged,
    Closed,
    Committed,
    Counts,
    Delivered,
    LedgerState,
    Replaced,
    Reserved,
    Restored,
    RunState,
    Standing,
    TakenOver,
    packed,
)
from .location import Location
from .outbox import Outbox, Outcome, digest_of, digest_of_text
from .store import CommittedError, MemoryStore

__all__ = [
    "Account",
    "AllowanceRequest",
    "AllowanceState",
    "Budget",
    "BudgetScope",
    "Finding",
    "Ledger",
    "Location",
    "Outcome",
    "Request",
    "Run",
    "Standing",
    "Verification",
    "digest_of",
    "digest_of_text",
]

_KINDS = {None: "open", True: "data-dependent", False: "unconditional"}


class Finding(NamedTuple):
    """What a ledger says of a digest: which run it belongs to, as what, and the run's status."""

    run: int
    what: str
    status: str


class Ledger(Book):
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

    location: Location | None = None

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
        store, chain, anchor = location.open(create=create, readonly=readonly)
        ledger = cls(store, chain, anchor, readonly=readonly)
        ledger.location = location
        return ledger

    @classmethod
    def in_memory(cls) -> Ledger:
        """Return a ledger for the budget of one call: the same rules, nothing outlives it."""
        return cls(MemoryStore(), Chain(), None)

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
        return self._anchor is not None

    def close(self) -> None:
        """Let go of the file."""
        if os.getpid() == self._process:  # a fork must not hang up for the one that opened it
            self._store.close()

    # -- budgets -----------------------------------------------------------------------------------

    def set_budget(self, budget: Budget, *, dataset: str) -> Budget:
        """Set what a data set may cost in all, or raise it; return the budget with its order.

        Once set, only its epsilon may rise: its order and delta stay, so that what was charged
        counts as before. Nothing can be raised that one run took as a whole.
        """
        if not isinstance(budget, Budget):
            raise InputError("budget", "must be a privote.Budget", budget)
        with self.transaction() as state:
            self._check_original(state)
            self.append(raised(state, budget, state.known(dataset)))
            return state.scopes[state.known(dataset)].budget

    def quote(self, request: Request) -> BudgetScope:
        """Return a data set as it would be once a run is charged; raise if it would be refused."""
        return after(self.state, request)

    def charge(self, state: LedgerState, request: Request, **facts: Any) -> int:
        """Append the charge of a run, inside a transaction; return its entry."""
        self._check_original(state)
        *budget, charge = admit(state, request)
        for event in budget:
            if self.is_persistent and request.price and event.epsilon == request.cost.epsilon:
                warnings.warn(nothing_left(event), PrivoteWarning, stacklevel=2)
            self.append(event)
        return self.append(replace(charge, **facts))

    @staticmethod
    def _check_original(state: LedgerState) -> None:
        if not state.replaced:
            raise LedgerError(
                "this ledger was restored from a backup, and its original may still be charged: "
                "read it, or say that the original is gone (`privote ledger restore --replace`)"
            )

    # -- runs --------------------------------------------------------------------------------------

    def key_of(self, request: Request) -> str:
        """Return what a run is known by: a keyed digest of its public terms and its output."""
        allowance, limits = request.allowance, None
        if allowance is not None and allowance.wanted is not None:
            limits = allowance.wanted.tolist()
        terms = [*self._terms(request), request.protects, request.terms, request.output, limits]
        return self._chain.seal(canonical([*terms, self._digests(allowance)]))[:32]

    def _terms(self, request: Request) -> list[Any]:
        cost, dataset = request.cost, folded(self.state.known(request.dataset))
        return [dataset, cost.epsilon, cost.delta, request.guarantee, request.simulated]

    def find(self, request: Request) -> RunState | None:
        """Return the last run with these public terms and this output."""
        return self.state.latest(self.key_of(request))

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
        key, holder, outcome = self.key_of(request), secrets.token_hex(8), None
        outbox: Outbox | None = None
        try:
            with self.transaction() as state:
                self._sweep(state)
                run = state.latest(key)
                if run is None or (not resume and run.finished):
                    number = self._reserve(state, request, key, holder)
                elif resume:
                    self._check_original(state)
                    number, outcome = run.number, self._take_over(run, request, holder)
                else:
                    raise BudgetError(
                        f"run {run.number} with these terms is not finished: finish it with "
                        f"`resume=True`, or end it with `privote ledger abandon {run.number}`"
                    )
                if self.location is not None and outcome is None:
                    outbox = Outbox.of(self.location.file, number, holder)
                    outbox.allocate(request.size)
        except BaseException as error:
            if outbox is not None and not isinstance(error, CommittedError):
                outbox.remove()
            raise
        return Run(self, number, holder, request.size, outcome)

    def _reserve(self, state: LedgerState, request: Request, key: str, holder: str) -> int:
        """Append the charge, unless an allowance pays, and the reservation; return its entry."""
        charge = self.allowance_for(state, request)
        account = None if charge is None else state.accounts[charge]
        if charge is None or account is None:
            charge = self.charge(state, request, **self.allowance_facts(request))
        else:
            self._check_original(state)
            authorise(state, request)
            assert request.allowance is not None
            continued(account, request.allowance)
        return self.append(
            Reserved(
                key=key,
                holder=holder,
                charge=charge,
                state=0 if account is None else account.last,
                operator=_operator(request.output),
            )
        )

    def _take_over(self, run: RunState, request: Request, holder: str) -> Outcome | None:
        """Hold a run that another process began; return what it committed, if anything."""
        outcome, where = None, f"run {run.number} of {run.at[:16].replace('T', ' ')} UTC"
        if run.finished:
            raise _not_resumable(run, where)
        boxes = [] if self.location is None else [*Outbox.beside(self.location.file, run.number)]
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

    def _sweep(self, state: LedgerState) -> None:
        """Remove outboxes of runs that are finished, or were never reserved; under the lock."""
        for outbox in () if self.location is None else Outbox.beside(self.location.file):
            run = state.runs.get(outbox.run)
            if run is None or run.finished:
                outbox.remove()

    def abandon(self, run: int) -> None:
        """End a run that is open, without a draw; it stays charged."""
        with self.transaction() as state:
            status = state.runs[run].status if run in state.runs else "unknown"
            if status != "open":
                raise InputError("run", f"must be an open reservation; run {run} is {status}", run)
            self.append(Closed(run=run))

    # -- allowances --------------------------------------------------------------------------------

    def _digests(self, wanted: AllowanceRequest | None) -> list[str] | None:
        if wanted is None or wanted.names is None:
            return None
        return [self.name_voter(name) for name in wanted.names]

    def _scheme(self, request: Request, wanted: AllowanceRequest) -> str:
        """Return a keyed digest of what an allowance is for."""
        named = wanted.voters if wanted.names is None else "by name"
        return self._chain.seal(canonical([*self._terms(request), wanted.terms, named]))[:32]

    def allowance_facts(self, request: Request) -> dict[str, Any]:
        """Return what the charge of a new allowance says."""
        wanted = request.allowance
        if wanted is None:
            return {}
        limits = [] if wanted.wanted is None else wanted.wanted.tolist()
        scheme = self._scheme(request, wanted)
        return {
            "account": scheme if wanted.lasts else f"{scheme}, for one run",
            "voters": wanted.voters,
            "allowance": limits[0] if len({*limits}) == 1 else limits or None,
            "planned": wanted.planned,
            "roll": self._digests(wanted),
        }

    def allowance_for(self, state: LedgerState, request: Request) -> int | None:
        """Return the charge whose allowance pays for a run; None where it needs one of its own.

        Voters are found by their names, or else all by their places. An allowance that is learnt
        for one call pays for later ones as long as so many queries are left in it.
        """
        wanted = request.allowance
        if wanted is None or not wanted.lasts:
            return None
        scheme, digests = self._scheme(request, wanted), self._digests(wanted)
        for charge, account in reversed(state.accounts.items()):
            if account.charge.account == scheme and pays(account, wanted, digests):
                return charge
        return None

    def seats(self, account: AllowanceState, names: Sequence[str] | None) -> Counts | None:
        """Return the seat of each named voter; None if they come as they were registered."""
        if names is None or account.seats is None:
            return None
        seats = seats_of(account, names, [self.name_voter(name) for name in names])
        if seats is None or len({*seats.tolist()}) < len(seats):
            raise InputError("voter_ids", "must name each registered voter only once")
        same = len(seats) == len(account.seats) and (seats == range(len(seats))).all()
        return None if same else seats

    # -- names and secrets -------------------------------------------------------------------------

    def name_voter(self, name: str) -> str:
        """Return the keyed digest of a voter's name, folded: found again, never read off."""
        return self._chain.seal(canonical(["voter", folded(name)]))[:32]

    def secret(self, purpose: str, dataset: str) -> bytes:
        """Return 32 bytes that follow from the ledger's key alone: the same for a data set, always.

        For what must stay the same over runs and known to nobody, such as a partition's key.
        """
        named = canonical(["secret", purpose, self.state.known(dataset)])
        return bytes.fromhex(self._chain.seal(named))

    def signing_seed(self) -> bytes:
        """Return the 32 secret bytes behind the key that signs exports: of a ledger, the same."""
        return bytes.fromhex(self._chain.seal(canonical(["secret", "signature"])))

    # -- reading -----------------------------------------------------------------------------------

    def published(self) -> list[dict[str, Any]]:
        """Return the entries as they may be shown: nothing that depends on votes."""
        with self._turn:
            rows = self._store.rows()
        return [
            {
                "number": row.number,
                "at": row.at,
                "digest": row.digest,
                **{name: value for name, value in json.loads(row.body).items() if name != "seal"},
            }
            for row in rows
        ]

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
            return verify(self._store, self._chain, self._anchor)

    # -- backups -----------------------------------------------------------------------------------

    def backup(self, path: str | os.PathLike[str]) -> bool:
        """Write entries, key and anchor to one new file while the ledger is in use.

        It is readable by its owner only. Returns whether the key is inside: not where the
        environment has it. A ledger that :meth:`verify` finds broken is not copied.
        """
        with self._turn:
            result = self.verify()
            if not result.ok:
                raise LedgerError(f"the ledger is broken: {'; '.join(result.problems)}")
            return write_backup(Path(path), self._store.rows(), self._chain)

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
        location, source = Location.of(path, beside), read_backup(backup)
        copy = cls(MemoryStore(source.rows), source.chain, None)
        with copy.transaction():
            operator = _operator(None)
            copy.append(Restored(backup=source.at, operator=operator))
            if replace:
                copy.append(Replaced(operator=operator))
        restore(source, location, copy._store.rows())
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
            (row,) = ledger._store.rows(number - 1, number)
            self.standing = Standing.of(ledger.state, number, row.digest)

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
                outbox = Outbox.of(self.ledger.location.file, self.number, self._holder)
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
        self._clear()

    def _clear(self) -> None:
        """Remove the outbox; whoever comes next sweeps what cannot be removed."""
        location = self.ledger.location
        for outbox in () if location is None else Outbox.beside(location.file, self.number):
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
        self._clear()
        text = str(error) or type(error).__name__
        raise ChargedError(
            f"run {self.number} failed after it was charged, and is closed: {text.rstrip('.')}. "
            "Nothing was released, and it cannot be resumed",
            code="closed",
        ) from error
