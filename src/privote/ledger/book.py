"""The ledger: who was charged what, within which budget; append-only, keyed, anchored.

Entries are of three kinds: a *budget* is set, a *charge* enters against it, an *answer* continues a
charged allowance. What depends on the votes (voters' spending, data-dependent curves) goes to the
sealed table, bound to its entry by a keyed digest; the published view never reads it.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..accounting.renyi import Floats, epsilon, rounded_up
from ..errors import BudgetError, InputError, LedgerError
from .chain import START, Anchor, Chain, canonical
from .place import Place
from .store import Row, SQLiteStore, Store
from .totals import Budget, Scope, Totals, check_name

_KINDS = {None: "open", True: "data-dependent", False: "unconditional"}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What :meth:`Ledger.verify` found."""

    entries: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if every entry is as it was written, and none is missing."""
        return not self.problems


class Ledger:
    """A record of charges that survives crashes and shows tampering.

    Open one with :meth:`open` (a file), or :meth:`in_memory` for a single run.
    """

    def __init__(self, store: Store, chain: Chain, anchor: Anchor | None) -> None:
        self._store, self._chain, self._anchor = store, chain, anchor
        self._totals = Totals()

    @classmethod
    def open(
        cls,
        path: Place | str | os.PathLike[str],
        *,
        create: bool = True,
        beside: str | os.PathLike[str] | None = None,
    ) -> Ledger:
        """Open the ledger at a path, or in a PostgreSQL database at a ``postgresql://`` address.

        With ``create``, make it if it is not there. Beside ``name.db`` lie ``name.db.key`` (keep it
        secret) and ``name.db.head`` (the anchor); for a database, ``beside`` says beside what.
        """
        place = path if isinstance(path, Place) else Place.of(path, beside)
        Chain.from_environment()  # a bad key is found before anything is made
        new = place.address is not None or not place.file.exists()
        store = place.open_store(create=create)
        try:
            # Under the lock: also finishes what a crash between commit and anchor left open.
            with store.transaction():
                head = store.head() or (0, START)
                chain, anchor = place.unlock(head, new=new, create=create)
        except BaseException:
            store.close()
            raise
        return cls(store, chain, anchor)

    @classmethod
    def in_memory(cls) -> Ledger:
        """Return a ledger that lasts as long as this object: the same rules, no file."""
        return cls(SQLiteStore(Path(":memory:")), Chain.new(), None)

    # A copy would let the same budget be spent twice.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a Ledger cannot be copied or pickled: open it again from its file")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    # -- writing ----------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[Totals]:
        """Hold the ledger's only lock; what is appended inside is on disk when the block ends."""
        try:
            with self._store.transaction():
                before = self._store.head() or (0, START)
                yield self._catch_up()
                after = self._store.head() or (0, START)
                if self._anchor is not None and after != before:
                    self._anchor.write(before, after)  # announced, then committed
        except BaseException:
            self._totals = Totals()  # what was undone must not stay in the sums
            raise
        if self._anchor is not None and after != before:
            self._finish(after)

    def _finish(self, head: tuple[int, str]) -> None:
        """Anchor the committed head, unless another process has already gone on."""
        assert self._anchor is not None
        with self._store.transaction():
            if (self._store.head() or (0, START)) == head:
                self._anchor.write(head)

    def _catch_up(self) -> Totals:
        totals = self._totals
        for row in self._store.rows(after=totals.read):
            expected = self._chain.digest(totals.digest, row.number, row.at, row.body)
            if row.number != totals.read + 1 or row.digest != expected:
                raise LedgerError(f"entry {row.number} does not fit the chain: run verify")
            totals.take(row, self._chain)
        return totals

    def append(self, body: dict[str, Any], sealed: dict[str, Any] | None = None) -> Row:
        """Add an entry; only inside :meth:`writing`."""
        hidden = None if sealed is None else canonical(sealed)
        if hidden is not None:
            body = {**body, "seal": self._chain.seal(hidden)}
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        number, text = self._totals.read + 1, canonical(body)
        row = Row(
            number, at, text, self._chain.digest(self._totals.digest, number, at, text), hidden
        )
        self._store.append(row)
        self._totals.take(row, self._chain)
        return row

    def set_budget(self, budget: Budget, *, dataset: str, consumer: str | None = None) -> None:
        """Fix what a data set, or one consumer of it, may cost. Once set, it stays."""
        if not isinstance(budget, Budget):
            raise InputError(f"budget must be a privote.Budget, got {budget!r:.60}")
        check_name("dataset", dataset)
        if consumer is not None:
            check_name("consumer", consumer)
        with self.writing() as totals:
            self.fix_budget(totals, budget, (dataset, consumer))

    def fix_budget(
        self, totals: Totals, budget: Budget, scope: Scope, conditional: bool | None = None
    ) -> None:
        """Set a scope's budget if it has none; refuse to change it, or to mix kinds of promise.

        A data-dependent release on the same votes would void the unconditional promise of all
        the others, so a data set keeps to one kind.
        """
        known, kind = totals.budgets.get(scope), totals.conditional.get(scope[0])
        if kind is not None and conditional is not None and kind != conditional:
            raise BudgetError(
                f"data set {scope[0]!r} is for {'data-dependent' if kind else 'unconditional'} "
                "releases only: the two kinds of guarantee do not add up on the same votes"
            )
        if known == budget:
            return
        if known is not None:
            raise BudgetError(
                f"the budget of {_name(scope)} is epsilon={rounded_up(known.epsilon)}, "
                f"delta={rounded_up(known.delta)} "
                f"and stays; asked for epsilon={rounded_up(budget.epsilon)}, "
                f"delta={rounded_up(budget.delta)}"
            )
        body: dict[str, Any] = {"kind": "budget", "dataset": scope[0], "consumer": scope[1]}
        body |= {"epsilon": budget.epsilon, "delta": budget.delta}
        self.append(body)

    # -- what is left ------------------------------------------------------------------------------

    def room(self, totals: Totals, each: Floats, orders: Floats, scope: Scope, wanted: int) -> int:
        """Return how many costs ``each``, up to ``wanted``, still fit every budget of a scope."""
        known = totals.orders.get(scope[0])
        if known is not None and not np.array_equal(known, orders):
            raise InputError("orders must be those of the data set's earlier charges")
        if scope[0] in totals.taken:
            return 0
        low, high = 0, wanted
        while low < high:
            middle = (low + high + 1) // 2
            fits = all(
                float(np.max(epsilon(totals.curves.get(s, 0.0) + middle * each, orders, b.delta)))
                <= b.epsilon
                for s, b in totals.budgets.items()
                if s[0] == scope[0] and s[1] in (None, scope[1])
            )
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def name_account(self, facts: dict[str, Any]) -> str:
        """Return the name of an electorate's account: keyed, so it tells nothing of the voters."""
        return self._chain.seal(canonical(facts))[:32]

    def name_voter(self, name: str) -> str:
        """Return a voter's keyed digest: the same name is found again, and none can be read off."""
        return self._chain.seal(canonical(["voter", name]))[:32]

    # -- reading -----------------------------------------------------------------------------------

    def published(self) -> list[dict[str, Any]]:
        """Return the entries as they may be shown: nothing that depends on votes."""
        shown = []
        for row in self._store.rows():
            body = json.loads(row.body)
            body.pop("seal", None)
            shown.append({"number": row.number, "at": row.at, "digest": row.digest, **body})
        return shown

    def standing(self) -> list[dict[str, Any]]:
        """Return every budget with what unconditional charges have used of it."""
        with self.writing() as totals:
            return [
                {
                    "dataset": scope[0],
                    "consumer": scope[1],
                    "kind": _KINDS[totals.conditional.get(scope[0])],
                    "epsilon": budget.epsilon,
                    "delta": budget.delta,
                    "used": _used(totals, scope, budget),
                }
                for scope, budget in totals.budgets.items()
            ]

    def place(self) -> dict[str, Any] | None:
        """Return the last entry's number and digest, for statements; None in memory."""
        if self._anchor is None:
            return None
        number, digest = self._store.head() or (0, START)
        return {"entry": number, "digest": digest}

    def verify(self) -> Verification:
        """Find any entry that was changed, removed, reordered, inserted or rolled back."""
        problems = self._store.problems()
        previous, count = START, 0
        try:
            for row in self._store.rows():
                count += 1
                if row.number != count:
                    problems.append(f"entry {count} is missing")
                    break
                if row.digest != self._chain.digest(previous, row.number, row.at, row.body):
                    problems.append(f"entry {row.number} was edited")
                    break
                seal = json.loads(row.body).get("seal")
                if (row.sealed is None) != (seal is None) or (
                    row.sealed is not None and self._chain.seal(row.sealed) != seal
                ):
                    problems.append(f"the sealed part of entry {row.number} was edited")
                previous = row.digest
            if self._anchor is not None and not problems:
                wrong = self._anchor.problem((count, previous))
                problems += [wrong] if wrong else []
        except LedgerError as error:
            problems.append(str(error))
        return Verification(entries=count, head=previous, problems=tuple(problems))

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy of the entries while the ledger is in use; without the key."""
        target = Place.of(path).file
        if target.exists():
            raise InputError(f"backup {str(path)!r} exists already")
        if not target.parent.is_dir():
            raise InputError(f"backup {str(path)!r}: there is no folder {str(target.parent)!r}")
        self._store.backup(target)

    def close(self) -> None:
        """Let go of the file."""
        self._store.close()


def _used(totals: Totals, scope: Scope, budget: Budget) -> float | None:
    """Return the epsilon of all charges of a scope; None where it is not an unconditional one."""
    if totals.conditional.get(scope[0]):
        return None
    if scope[0] in totals.taken:
        return budget.epsilon
    if scope not in totals.curves:
        return 0.0
    return float(np.max(epsilon(totals.curves[scope], totals.orders[scope[0]], budget.delta)))


def _name(scope: Scope) -> str:
    return f"data set {scope[0]!r}" + (f" for {scope[1]!r}" if scope[1] else "")
