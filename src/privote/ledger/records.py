"""What was drawn from what was charged, and whether a statement is about that.

After every draw an entry of the kind *outcome* records, sealed, the digest of the numbers that were
drawn and what their release states. Sealed, because labels are not for all who see
the published view, and few labels are found again from their digest by trying.

A digest in a file proves nothing: whoever edits a fact makes another. The ledger's does, as far as
its chain holds.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import epsilon_at
from ..errors import InputError
from .chain import Chain
from .store import Row
from .totals import unsealed

# What an outcome records of a release, sealed, besides the digest of what was drawn.
_OF_ONE = ("answered", "abstained", "terms", "so_far", "left", "new", "made")  # of one draw
STATED = ("epsilon", "rule", *_OF_ONE)
STAMPED = ("dataset", "guarantee", "mechanism", "simulated", "protects")
_SIZES = ("voters", "labels")
_UNRECORDED = {"ledger", "digest", "version", "format", "method"}  # or what differs by version
_LONG = 200  # letters
_CLOSE = 1e-8  # relative: how far an epsilon that is worked out again may be from the first

RELEASED, NOT_RECORDED, DIFFERS = "released", "charged, not recorded", "differs"


def digest_of(*numbers: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of drawn numbers in one form, whatever machine or layout holds them.

    Of each array the type, the cells row by row, the shape and its length: int8 for labels,
    little-endian float64 for fractions, int64 for every other kind of integer, such as tallies.
    """
    made = sha256()
    for each in numbers:
        kind = np.dtype({"f": "<f8"}.get(each.dtype.kind, "i1" if each.dtype == "i1" else "<i8"))
        if not np.can_cast(each.dtype, kind, "safe"):
            raise InputError("numbers", "must be below 2**63, or floats", each.dtype)
        made.update(kind.str.encode())
        made.update(np.ascontiguousarray(each, kind).tobytes())
        made.update(np.array([*each.shape, each.ndim], "<i8").tobytes())
    return made.hexdigest()


def stated(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an outcome records of a poll, or of a training without votes: all but its place.

    What is long is recorded by its digest.
    """
    told = {}
    for name in facts.keys() - _UNRECORDED:
        text = json.dumps(facts[name], sort_keys=True)
        told[name] = json.loads(text) if len(text) < _LONG else sha256(text.encode()).hexdigest()
    return told


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact that a statement and a ledger do not agree on."""

    fact: str
    stated: Any
    ledger: Any


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a ledger says of a statement.

    Attributes
    ----------
    status
        :data:`RELEASED` if this ledger charged and released exactly that; :data:`NOT_RECORDED` if
        it charged it, and a crash came before what was drawn was recorded; else :data:`DIFFERS`.
    entries
        Numbers of the outcomes that record it.
    differences
        What differs.
    """

    status: str
    entries: tuple[int, ...] = ()
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry with what is sealed in it."""

    number: int
    digest: str
    body: Mapping[str, Any]
    hidden: Mapping[str, Any] = field(repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """Its number and digest, as a release names it."""
        return {"entry": self.number, "digest": self.digest}

    @property
    def terms(self) -> str:
        """Whose it is and what for: a charge, and what was drawn from it, have the same."""
        if "account" in self.body:
            return str(self.body["account"])
        own = (*STAMPED, *_SIZES, "owner")
        return json.dumps([self.body.get(name) for name in own], sort_keys=True)


class Records:
    """Charges, and what was drawn from each.

    Parameters
    ----------
    rows, chain
        All entries, and the chain that sealed them.
    """

    def __init__(self, rows: Iterable[Row], chain: Chain) -> None:
        self.entries: list[Entry] = []
        learning: dict[str, dict[str, Any]] = {}  # charges whose settings come later, by account
        for row in rows:
            body = json.loads(row.body)
            outcome = body["kind"] == "outcome"
            hidden = unsealed(row, body, chain) if outcome else {}
            if "learnt" in body:
                learning[body["account"]] = body
            charge = learning.get(body.get("account", ""))
            if charge is not None and body["kind"] == "learnt":
                charge |= {name: body[name] for name in ("mechanism", "allowance")}
            elif charge is not None:
                body["mechanism"] = charge["mechanism"]
            entry = Entry(number=row.number, digest=row.digest, body=body, hidden=hidden)
            self.entries.append(entry)
        self.charges = self._of("charge")
        self._budgets = {e.body["dataset"]: e.body for e in self._of("budget")}
        self.outcomes = [entry for entry in self._of("outcome") if "drawn" in entry.hidden]

    def _of(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.body["kind"] == kind]

    def holds(self, place: Mapping[str, Any]) -> bool:
        """Return whether an entry that a release names is here."""
        number = place["entry"]
        there = type(number) is int and 0 < number <= len(self.entries)
        return there and self.entries[number - 1].place == dict(place)

    # -- charges of which nothing is recorded ------------------------------------------------------

    def pending(self, facts: Mapping[str, Any]) -> Entry | None:
        """Return the charge that such a release was drawn from and that has more than is recorded.

        Of an allowance, queries were answered that no outcome counts; of any other charge, there
        is one more than outcomes.
        """
        for charge in reversed(self.charges):
            if self._misstated(charge, facts, (*STAMPED, *_SIZES)):
                continue
            cost = charge.body.get("epsilon")
            if charge.body.get("rdp") is not None:
                cost = _epsilon([charge], facts)
            if cost is not None and not _same_epsilon(facts, cost):
                continue
            if self._open(charge) >= facts["answered"]:
                return charge
        return None

    def _open(self, charge: Entry) -> int:
        """Return how many queries of a charge were answered, or may have been, without a record."""
        made = [entry for entry in self.outcomes if entry.terms == charge.terms]
        if "account" in charge.body:
            answers = [entry for entry in self._of("answer") if entry.terms == charge.terms]
            return _queries(answers) - sum(int(e.hidden["stated"]["answered"]) for e in made)
        alike = [entry for entry in self.charges if entry.terms == charge.terms]
        counts = [Counter(entry.body.get("queries") for entry in group) for group in (alike, made)]
        queries = charge.body.get("queries")
        return int(queries or 0) if counts[0][queries] > counts[1][queries] else -1

    def charge_of(self, outcome: Entry) -> Entry | None:
        """Return the charge that paid for what was drawn; None if there is none."""
        alike = [e for e in self.charges if e.terms == outcome.terms and e.number < outcome.number]
        if "account" not in outcome.body:
            queries = outcome.body.get("queries")
            alike = [entry for entry in alike if entry.body.get("queries") == queries]
        return alike[-1] if alike else None

    # -- statements --------------------------------------------------------------------------------

    def check(self, facts: Mapping[str, Any], numbers: npt.NDArray[Any] | None = None) -> Finding:
        """Return whether this ledger charged and released what :meth:`Release.facts` says.

        ``numbers``, tallies or labels, are compared with what was drawn, unless they say that they
        were made of it.
        """
        place, wrong = facts["ledger"], list[Difference]()
        if place is None:
            return _differs([Difference(fact="ledger", stated=None, ledger=len(self.entries))])
        if not self.holds(place):
            there = self.entries[place["entry"] - 1 : place["entry"]] or self.entries[-1:]
            own = there[0].place if there else None
            wrong.append(Difference(fact="ledger", stated=dict(place), ledger=own))
        if "sha256" not in facts:
            return self._check_stated(facts, wrong)
        outcomes = [self._recorded(digest, facts) for digest in facts["drawn"]]
        known = [outcome for outcome in outcomes if outcome is not None]
        if not outcomes or len(known) < len(outcomes):
            if not wrong and outcomes and self.pending(facts) is not None:
                return Finding(status=NOT_RECORDED)
            named = [entry for entry in self.outcomes if entry.place == place]
            drawn = named[0].hidden["drawn"] if named else None
            wrong.append(Difference(fact="drawn", stated=facts["drawn"], ledger=drawn))
            return _differs([*wrong, *(self._compared(named, facts) if named else ())])
        wrong += self._compared(known, facts)
        kind = "labels" if facts["sha256"].get("tallies") is None else "tallies"
        made, changed = facts["sha256"][kind], kind == "labels" and facts["processed"]
        if numbers is not None and not changed:
            wrong += _drawn(known, kind, numbers)
        elif len(known) == 1 and not changed and [made] != facts["drawn"]:
            wrong.append(Difference(fact=kind, stated=made, ledger=facts["drawn"]))
        entries = tuple(outcome.number for outcome in known)
        return Finding(
            status=DIFFERS if wrong else RELEASED, entries=entries, differences=tuple(wrong)
        )

    def _check_stated(self, facts: Mapping[str, Any], wrong: list[Difference]) -> Finding:
        """Check what a poll states, or a training without votes: all of it was recorded."""
        own, place = stated(facts), facts["ledger"]["entry"]

        def differing(entry: Entry) -> list[Difference]:
            there = entry.hidden["stated"]
            return [
                Difference(fact=name, stated=own.get(name), ledger=there.get(name))
                for name in {**there, **own}
                if own.get(name) != there.get(name)
            ]

        same = [entry for entry in self.outcomes if [entry.hidden["drawn"]] == own["drawn"]]
        if not same:
            whose = (facts.get("people", facts.get("dataset")), facts["simulated"])
            paid = [e for e in self.charges if (e.body["dataset"], e.body["simulated"]) == whose]
            if not wrong and any(self._open(charge) == 0 for charge in paid):
                return Finding(status=NOT_RECORDED)
            same = [entry for entry in self.outcomes if entry.number == place]
            wrong.append(Difference(fact="drawn", stated=own["drawn"], ledger=None))
        if not same:
            return _differs(wrong)
        best = min(same, key=lambda entry: (len(differing(entry)), abs(entry.number - place)))
        wrong += [each for each in differing(best) if each.fact != "drawn"]
        if self.charge_of(best) is None:
            wrong.append(Difference(fact="charge", stated=facts["ledger"], ledger=None))
        status = DIFFERS if wrong else RELEASED
        return Finding(status=status, entries=(best.number,), differences=tuple(wrong))

    def _recorded(self, digest: str, facts: Mapping[str, Any]) -> Entry | None:
        """Return the outcome with this digest that a statement agrees with best."""
        same = [entry for entry in self.outcomes if entry.hidden["drawn"] == digest]
        place = facts["ledger"]["entry"]
        return min(
            same,
            key=lambda e: (len(self._misstated(e, facts, STAMPED)), abs(e.number - place)),
            default=None,
        )

    def _compared(self, outcomes: list[Entry], facts: Mapping[str, Any]) -> list[Difference]:
        """Return what a statement says otherwise than outcomes, and the charges they rest on."""
        # Labels that were made of what was drawn have a shape of their own.
        derived, one = bool(facts["processed"]), len(outcomes) == len(facts["drawn"]) == 1
        sizes = _SIZES[:1] if derived else _SIZES
        sealed = ["rule", *(_OF_ONE if one and not derived else ())]
        wrong = {
            each.fact: each
            for outcome in outcomes
            for each in self._misstated(outcome, facts, (*STAMPED, *sizes), sealed)
        }
        charges = [self.charge_of(outcome) for outcome in outcomes]
        paid = {charge.number: charge for charge in charges if charge is not None}
        costs = [charge.body.get("allowance") for charge in paid.values()]
        if any(allowance != facts["allowance"] for allowance in costs):
            wrong["allowance"] = Difference(
                fact="allowance", stated=facts["allowance"], ledger=costs[0]
            )
        counted = [*paid.values()] if "account" in outcomes[0].body else charges
        each = [charge for charge in counted if charge is not None]
        if None in charges:
            wrong["charge"] = Difference(fact="charge", stated=facts["ledger"], ledger=None)
        elif any(charge.body.get("rdp") is None for charge in each):
            cost = outcomes[-1].hidden["stated"]["epsilon"]  # drawn itself, or of a whole budget
            if facts["epsilon"] != cost:
                wrong["epsilon"] = Difference(fact="epsilon", stated=facts["epsilon"], ledger=cost)
        elif len(outcomes) == len(facts["drawn"]):
            cost = _epsilon(each, facts)
            if derived and len(outcomes) > 1 and facts["allowance"] is None:
                cost = facts["budget"]  # when to stop may have followed from what was drawn
            if not _same_epsilon(facts, cost):
                wrong["epsilon"] = Difference(fact="epsilon", stated=facts["epsilon"], ledger=cost)
        return [*wrong.values()]

    def _misstated(
        self,
        entry: Entry,
        facts: Mapping[str, Any],
        shown: Iterable[str],
        sealed: Iterable[str] = (),
    ) -> list[Difference]:
        """Return which facts an entry, or the budget it counts against, has otherwise."""
        there = {name: entry.body.get(name) for name in shown}
        there |= {name: entry.hidden["stated"][name] for name in sealed}
        there["protects"] = there["protects"] or "a voter"
        budget = self._budgets[entry.body["dataset"]]
        there |= {"budget": budget["epsilon"], "delta": budget["delta"]}
        return [
            Difference(fact=name, stated=facts[name], ledger=value)
            for name, value in there.items()
            if facts[name] != value
        ]


def _drawn(outcomes: list[Entry], kind: str, numbers: npt.NDArray[Any]) -> list[Difference]:
    """Return a difference unless numbers are what was drawn, one draw after the other."""
    start = 0
    for outcome in outcomes:
        stop = start + outcome.hidden["stated"]["answered"]
        made = digest_of(numbers[start:stop])
        if made != outcome.hidden["drawn"]:
            return [Difference(fact=kind, stated=made, ledger=outcome.hidden["drawn"])]
        start = stop
    if start != len(numbers):
        return [Difference(fact=kind, stated=len(numbers), ledger=start)]
    return []


def _differs(differences: list[Difference]) -> Finding:
    return Finding(status=DIFFERS, differences=tuple(differences))


def _epsilon(charges: list[Entry], facts: Mapping[str, Any]) -> float:
    """Return what charges cost together, at the delta of a statement."""
    curve = np.sum([charge.body["rdp"] for charge in charges], axis=0)
    return epsilon_at(curve, np.array(charges[0].body["orders"]), facts["delta"])[0]


def _same_epsilon(facts: Mapping[str, Any], cost: float) -> bool:
    """Return whether an epsilon is what was charged, or the budget, which is never exceeded."""
    stated = facts["epsilon"]
    if stated is None:
        return False
    return math.isclose(stated, cost, rel_tol=_CLOSE) or cost <= stated == facts["budget"]


def _queries(entries: Iterable[Entry]) -> int:
    return sum(int(entry.body["queries"]) for entry in entries)
