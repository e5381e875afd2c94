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
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..accounting.renyi import rounded_up
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
    seats_of,
    set_budget,
    still,
)
from .backup import read_backup, restore, write_backup
from .book import Book
from .chain import Chain, Verification, against_anchor, canonical, verify
from .events import (
    AllowanceState,
    Budget,
    BudgetScope,
    BudgetSet,
    Charged,
    Closed,
    Committed,
    Counts,
    Delivered,
    Event,
    LedgerState,
    Replaced,
    Reserved,
    Restored,
    RunState,
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


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a data set had cost when a run was reserved, this run included.

    Attributes
    ----------
    dataset, budget, raised
        Its name, what it may cost in all, and whether that was raised after its first charge.
    total, share, runs
        Epsilon of all that was charged, which share of the budget that is, and how many runs it
        were; None where it depends on the votes.
    whole, order
        Whether one run took the whole budget; else the order at which charges add up.
    new
        Whether nothing was charged before.
    entry, digest
        The reservation in the ledger.
    """

    dataset: str
    budget: float
    raised: bool
    total: float | None
    share: float | None
    runs: int
    whole: bool
    order: float
    new: bool
    entry: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a ledger says of a digest: which run it belongs to, and as what; or nothing."""

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
        if not readonly:
            Chain.from_environment()  # a bad key is found before anything is made
        new = location.address is not None or not location.file.exists()
        if readonly:
            store, chain, anchor = location.open_reader()
        else:
            store = location.open_store(create=create)
        try:
            if readonly:
                problem = against_anchor(store, anchor, anchor.read())
                if problem:
                    raise LedgerError(problem)
            else:  # under the lock: also finishes what a crash between commit and anchor left
                with store.transaction():
                    chain, anchor = location.unlock(store, new=new, create=create)
            ledger = cls(store, chain, anchor, readonly=readonly)
            ledger.location = location
            return ledger
        except BaseException:
            store.close()
            raise

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
            name = state.known(dataset)
            scope = state.scopes.get(name)
            if scope is None:
                event = set_budget(BudgetScope(name, budget))
            else:
                if scope.whole:
                    raise BudgetError(f"one run took the whole budget of data set {name!r}")
                if budget.delta != scope.budget.delta or budget.epsilon < scope.budget.epsilon:
                    raise BudgetError(
                        f"the budget of data set {name!r} is {scope.budget}: only its epsilon can "
                        f"be raised; you asked for {budget}"
                    )
                raised = replace(scope.budget, epsilon=budget.epsilon)
                event = set_budget(replace(scope, budget=raised))
            self.append(event)
            return state.scopes[name].budget

    def quote(self, request: Request) -> BudgetScope:
        """Return a data set as it would be once a run is charged; raise if it would be refused."""
        return after(self.state, request)

    def charge(self, state: LedgerState, request: Request, **account: Any) -> int:
        """Append the charge of a run, inside a transaction; return its entry."""
        self._check_original(state)
        events = admit(state, request)
        if self.is_persistent and isinstance(events[0], BudgetSet):
            self._say_new(request, events[0])
        *_, entry = [
            self.append(replace(event, **account) if isinstance(event, Charged) else event)
            for event in events
        ]
        return entry

    def _say_new(self, request: Request, event: BudgetSet) -> None:
        """Say, before the charge, that a run without a budget leaves nothing for others."""
        if request.price is not None and event.epsilon == request.cost.epsilon:
            text = (
                f"data set {event.dataset!r} is new, and no budget was set: it is this run's "
                f"epsilon {rounded_up(event.epsilon)}, and nothing will be left for other runs. "
                "To leave some, set a larger budget first (`privote ledger budget`)"
            )
            warnings.warn(text, PrivoteWarning, stacklevel=2)

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
        allowance = request.allowance
        limits = None if allowance is None else allowance.wanted
        terms = {
            "dataset": folded(self.state.known(request.dataset)),
            "cost": [request.cost.epsilon, request.cost.delta],
            "guarantee": request.guarantee,
            "protects": request.protects,
            "simulated": request.simulated,
            "terms": request.terms,
            "names": None if allowance is None else self._digests(allowance),
            "allowance": None if limits is None else limits.tolist(),
            "output": request.output,
        }
        return self._chain.seal(canonical(terms))[:32]

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
        key, holder = self.key_of(request), secrets.token_hex(8)
        outboxes = list[Outbox]()
        try:
            with self.transaction() as state:
                run = state.latest(key) if resume else state.unfinished(key)
                if run is not None and not resume:
                    raise BudgetError(
                        f"run {run.number} with these terms is not finished: finish it with "
                        f"`resume=True`, or end it with `privote ledger abandon {run.number}`"
                    )
                if run is None:
                    new = state.known(request.dataset) not in {
                        charge.dataset for charge in state.charges.values()
                    }
                    number = self._reserve(state, request, key, holder)
                    outcome = None
                else:
                    number, new = (
                        run.number,
                        run.reserved.charge
                        == min(
                            entry
                            for entry, charge in state.charges.items()
                            if charge.dataset == run.reserved.dataset
                        ),
                    )
                    outcome = self._take_over(run, request, holder)
                if self.location is not None and outcome is None:
                    self._sweep(state)
                    outboxes = [Outbox.of(self.location.file, number, holder)]
                    outboxes[0].allocate(request.size)
        except CommittedError:
            raise
        except BaseException:
            for outbox in outboxes:
                outbox.remove()
            raise
        return Run(self, number, holder, request, outcome=outcome, new=new)

    def _reserve(self, state: LedgerState, request: Request, key: str, holder: str) -> int:
        """Append the charge, unless an allowance pays, and the reservation; return its entry."""
        account, found = None, None
        if request.allowance is not None:
            account, found = self.allowance_of(state, request)
        if found is not None and request.allowance is not None:
            self._check_original(state)
            continued(found, request.allowance)
            scope = authorise(state, request)
            charge = max(e for e, each in state.charges.items() if each.account == account)
        else:
            charge = self.open_allowance(state, request, account)
            scope = state.scopes[state.charges[charge].dataset]
        return self.append(
            Reserved(
                key=key,
                holder=holder,
                dataset=scope.name,
                charge=charge,
                account=account,
                state=0 if account is None else state.accounts[account].last,
                operator=_operator(request.output),
            )
        )

    def open_allowance(self, state: LedgerState, request: Request, account: str | None) -> int:
        """Append a charge, with the allowance that it pays for; return its entry."""
        wanted = request.allowance
        if wanted is None:
            return self.charge(state, request)
        each = None if wanted.wanted is None else wanted.wanted.tolist()
        return self.charge(
            state,
            request,
            account=account,
            voters=wanted.voters,
            allowance=each[0] if each and len({*each}) == 1 else each,
            planned=wanted.planned,
            roll=self._digests(wanted),
        )

    def _take_over(self, run: RunState, request: Request, holder: str) -> Outcome | None:
        """Hold a run that another process began; return what it committed, if anything."""
        where = f"run {run.number} of {run.at[:16].replace('T', ' ')} UTC"
        if run.status == "delivered":
            output = run.operator.get("output")
            if output is None or Path(output).exists():
                raise CompleteError(f"{where} is complete: it was delivered. Nothing is left to do")
            raise InputError(
                "resume",
                f"cannot bring back {output!r}: {where} was delivered there. Nothing was charged "
                "or drawn",
            )
        if run.finished:
            raise ChargedError(
                f"{where} was closed: it is charged, nothing of it was released, and it cannot be "
                "resumed",
                code="closed",
            )
        outcome = None if run.commit is None else self._committed(run)
        if run.commit is not None and outcome is None:
            raise ChargedError(
                f"{where} is charged and drawn, and what was drawn lies with the ledger's key on "
                f"host {run.operator.get('host')!r}: resume it there. It is never drawn again",
                code="elsewhere",
            )
        if outcome is None and self.location is not None:
            for outbox in Outbox.beside(self.location.file, run.number):
                outbox.remove()
        # Durable before anything is delivered: what leaves is in the ledger by now.
        self.append(TakenOver(run=run.number, holder=holder, operator=_operator(request.output)))
        return outcome

    def _committed(self, run: RunState) -> Outcome | None:
        """Return what a run committed, from an outbox that matches; None if there is none."""
        assert run.commit is not None
        if self.location is None:
            return None
        committed = (run.commit.drawn, run.commit.statement)
        for outbox in Outbox.beside(self.location.file, run.number):
            outcome = outbox.read()
            if outcome and (outcome.drawn, digest_of_text(outcome.statement)) == committed:
                return outcome
        return None

    def _sweep(self, state: LedgerState) -> None:
        """Remove outboxes of runs that are finished, or were never reserved; under the lock."""
        assert self.location is not None
        for outbox in Outbox.beside(self.location.file):
            run = state.runs.get(outbox.owner[0])
            if run is None or run.finished:
                with suppress(OSError):
                    outbox.remove()

    def abandon(self, run: int) -> None:
        """End a run that is open, without a draw; it stays charged."""
        with self.transaction() as state:
            status = state.runs[run].status if run in state.runs else "unknown"
            if status != "open":
                raise InputError("run", f"must be an open reservation; run {run} is {status}", run)
            self.append(Closed(run=run))

    # -- allowances --------------------------------------------------------------------------------

    def _digests(self, wanted: AllowanceRequest) -> list[str] | None:
        return None if wanted.names is None else [self.name_voter(name) for name in wanted.names]

    def allowance_of(
        self, state: LedgerState, request: Request
    ) -> tuple[str, AllowanceState | None]:
        """Return the keyed name of an electorate's allowance, and its state if it is charged.

        An allowance that is learnt for one call pays for later ones as long as so many queries are
        left in it; a run for more opens one of its own.
        """
        wanted = request.allowance
        assert wanted is not None
        cost, digests = request.cost, self._digests(wanted)
        scheme = {
            "dataset": state.known(request.dataset),
            "cost": [cost.epsilon, cost.delta],
            "guarantee": request.guarantee,
            "simulated": request.simulated,
            "terms": wanted.terms,
        }
        prefix = self._chain.seal(canonical(scheme))[:16]
        name = f"{prefix}-{self._chain.seal(canonical([wanted.voters, digests]))[:16]}"
        if digests is not None and wanted.names is not None:
            for known in [known for known in state.accounts if known.startswith(prefix)]:
                if seats_of(state.accounts[known], wanted.names, digests) is not None:
                    name = known
        if not wanted.lasts:
            return f"{name[:33]}-{len(state.charges)}", None
        account = state.accounts.get(name)
        if account is None or account.charge.planned is None or wanted.plans:
            return name, account
        if account.lost or (account.remaining or 0) < (wanted.queries or 0):
            return f"{name[:33]}-{len(state.charges)}", None
        return name, account

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

    def standing_at(self, run: RunState | Run, dataset: str, *, new: bool) -> Standing:
        """Return what a data set has cost by now, for the statement of a run."""
        scope = self.state.scopes[dataset]
        rows = self._store.rows(run.number - 1, run.number)
        return Standing(
            dataset=dataset,
            budget=scope.budget.epsilon,
            raised=scope.raised,
            total=scope.total,
            share=scope.share,
            runs=len(scope.epsilons),
            whole=scope.whole,
            order=scope.budget.filter.order,
            new=new,
            entry=run.number,
            digest=rows[0].digest,
        )

    def check(self, *digests: str) -> list[Finding]:
        """Return which runs released something with one of these digests, and as what.

        Of a statement, of what was drawn, or of a file that was delivered.
        """
        findings = []
        for run in self.state.runs.values():
            names = {file: f"file {name!r}" for name, file in run.files.items()}
            if run.commit is not None:
                names |= {
                    run.commit.statement or "": "statement",
                    run.commit.drawn or "": "outcome",
                }
            for digest in digests:
                if digest and digest in names:
                    finding = Finding(run=run.number, what=names[digest], status=run.status)
                    findings.append(finding)
        return findings

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
        copy = cls(MemoryStore(), source.chain, None)
        with copy.transaction():
            for row in source.rows:
                copy._store.append(row)
                copy._count(row)
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
        self,
        ledger: Ledger,
        number: int,
        holder: str,
        request: Request,
        *,
        outcome: Outcome | None,
        new: bool,
    ) -> None:
        self.ledger, self.number, self.outcome = ledger, number, outcome
        self._holder, self._size, self._delivered = holder, request.size, False
        self._reserved = ledger.state.runs[number].reserved
        self.standing: Standing | None = None
        if ledger.is_persistent:
            self.standing = ledger.standing_at(self, self._reserved.dataset, new=new)

    @property
    def account(self) -> AllowanceState | None:
        """The allowance that pays, as it is now; None without one."""
        account = self._reserved.account
        return None if account is None else self.ledger.state.accounts[account]

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
            statement=digest_of_text(outcome.statement),
            spent=spent,
            clipped=clipped,
            curve=None if curve is None else [*map(float, curve)],
        )
        try:
            if self.ledger.location is not None:
                outbox = Outbox.of(self.ledger.location.file, self.number, self._holder)
                outbox.write(outcome, self._size)
            with self.ledger.transaction() as state:
                self._check_holder(state, event)
                self.ledger.append(event)
        except (OSError, LedgerError) as error:
            raise self._unfinished(error) from None
        self.outcome = outcome

    def _check_holder(self, state: LedgerState, event: Event) -> None:
        """Refuse a commit of a run that is committed, closed or held by another process."""
        run, reserved = state.runs[self.number], self._reserved
        last = 0 if reserved.account is None else state.accounts[reserved.account].last
        if run.status != "open" or run.holder != self._holder or last != reserved.state:
            raise ChargedError(
                f"run {self.number} was taken over by another process, which finishes it: nothing "
                "is released here",
                code="taken",
            )

    def deliver(self, files: Mapping[str, str] | None = None) -> None:
        """Record that the outcome is where it belongs, and let go of the outbox.

        Parameters
        ----------
        files
            Digests of the files that were written, by name.
        """
        self._delivered = True
        if not self.ledger.is_persistent:
            return
        with self.ledger.transaction() as state:
            run = state.runs[self.number]
            if run.status != "committed" or run.holder != self._holder:
                return  # whoever took it over delivers the same
            self.ledger.append(
                Delivered(run=self.number, holder=self._holder, files=dict(files or {}) or None)
            )
        assert self.ledger.location is not None
        for outbox in Outbox.beside(self.ledger.location.file, self.number):
            with suppress(OSError):
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
        if self.ledger.location is not None:
            for outbox in Outbox.beside(self.ledger.location.file, self.number):
                with suppress(OSError):
                    outbox.remove()
        text = str(error) or type(error).__name__
        raise ChargedError(
            f"run {self.number} failed after it was charged, and is closed: {text.rstrip('.')}. "
            "Nothing was released, and it cannot be resumed",
            code="closed",
        ) from error
