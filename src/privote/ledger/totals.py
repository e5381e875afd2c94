"""What the entries of a ledger add up to, read once and then only continued."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats, check_delta
from ..errors import InputError, LedgerError, positive
from .chain import START, Chain, canonical
from .store import Row

Counts = npt.NDArray[np.int64]
Scope = tuple[str, str | None]  # data set, and consumer or None for all of them

_TERMS = ("dataset", "consumer", "owner", "mechanism", "simulated", "labels")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a data set may cost: all consumers together, or one of them."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))


def check_name(argument: str, value: Any) -> str:
    """Return a name that an entry can carry."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{argument} must be a name (a text that is not empty), got {value!r:.60}")
    return value


def terms_of(body: dict[str, Any]) -> str:
    """Return what an allowance was charged for: only the same terms go on with it."""
    return canonical({key: body.get(key) for key in _TERMS})


@dataclass
class Account:
    """A charged allowance: whose it is, and what was done with it.

    Attributes
    ----------
    terms
        For which data set, consumer, owner, mechanism and labels.
    allowance, spent, refused
        (voters,) by seat: surprises for life, surprises cast, and ballots that counted as the
        baseline because what was left did not pay for them.
    queries
        How many were answered from it; public.
    roll
        The seat of each voter by the keyed digest of its name; None if voters are known by place.
    """

    terms: str
    allowance: Counts
    spent: Counts
    refused: Counts
    roll: dict[str, int] | None
    queries: int = 0

    @classmethod
    def of(cls, body: dict[str, Any], roll: list[str] | None) -> Account:
        """Return the account that a charge opens."""
        voters = body["voters"]
        return cls(
            terms=terms_of(body),
            allowance=np.broadcast_to(np.array(body["allowance"]), (voters,)).astype(np.int64),
            spent=np.zeros(voters, np.int64),
            refused=np.zeros(voters, np.int64),
            roll=None if roll is None else {name: seat for seat, name in enumerate(roll)},
        )


@dataclass
class Totals:
    """The sums over all entries so far."""

    read: int = 0
    digest: str = START
    budgets: dict[Scope, Budget] = field(default_factory=dict)
    conditional: dict[str, bool] = field(default_factory=dict)
    curves: dict[Scope, Floats] = field(default_factory=dict)
    orders: dict[str, Floats] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    accounts: dict[str, Account] = field(default_factory=dict)

    def take(self, row: Row, chain: Chain) -> None:
        """Add one entry."""
        body = json.loads(row.body)
        self.read, self.digest = row.number, row.digest
        scope = (body["dataset"], body.get("consumer"))
        if body["kind"] == "budget":
            self.budgets[scope] = Budget(epsilon=body["epsilon"], delta=body["delta"])
        elif body["kind"] == "charge":
            self._take_charge(scope, body, row, chain)
        else:
            self._take_answer(body, row, chain)

    def _take_charge(self, scope: Scope, body: dict[str, Any], row: Row, chain: Chain) -> None:
        self.conditional.setdefault(scope[0], body["guarantee"] == "data-dependent")
        if body.get("everything"):
            self.taken.add(scope[0])
        if body["rdp"] is None:
            return
        curve = np.array(body["rdp"])
        self.orders[scope[0]] = np.array(body["orders"])
        for place in {scope, (scope[0], None)}:
            self.curves[place] = self.curves.get(place, 0.0) + curve
        if "account" in body:
            hidden = _unsealed(row, body, chain) if "seal" in body else {}
            self.accounts[body["account"]] = Account.of(body, hidden.get("roll"))

    def _take_answer(self, body: dict[str, Any], row: Row, chain: Chain) -> None:
        hidden, account = _unsealed(row, body, chain), self.accounts[body["account"]]
        account.queries += int(body["queries"])
        account.spent += unpacked(hidden["spent"], len(account.spent))
        # Ledgers of earlier versions lack it.
        account.refused += unpacked(hidden.get("refused", []), len(account.refused))


def packed(counts: Counts) -> str:
    """Return small counts (voters,) as text: a few bits a voter, however many voters."""
    narrow = np.dtype(f"<u{1 if counts.max(initial=0) < 256 else 8}")
    body = zlib.compress(counts.astype(narrow).tobytes(), level=1)
    return f"{narrow.itemsize}:{base64.b64encode(body).decode('ascii')}"


def unpacked(text: str | list[list[int]], voters: int) -> Counts:
    """Return what :func:`packed` was given; lists of (voter, count) are of earlier versions."""
    if isinstance(text, list):
        counts = np.zeros(voters, np.int64)
        for voter, count in text:
            counts[voter] += count
        return counts
    width, _, body = text.partition(":")
    return np.frombuffer(zlib.decompress(base64.b64decode(body)), f"<u{width}").astype(np.int64)


def _unsealed(row: Row, body: dict[str, Any], chain: Chain) -> dict[str, Any]:
    """Return the sealed part of an entry, if it is the one that was sealed with it."""
    if row.sealed is None or chain.seal(row.sealed) != body["seal"]:
        raise LedgerError(f"the sealed part of entry {row.number} does not fit: run verify")
    hidden: dict[str, Any] = json.loads(row.sealed)
    return hidden
