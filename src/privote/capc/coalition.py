"""A coalition in one process: all its roles, and the world around them.

The simulation drives the same roles with the same messages as the network does, each message
through its encoding. In clear text it is fast and hides nothing, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError
from ..ledger import Ledger
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING, decode, encode
from .models import SiteModel
from .programs import PEER, QUERIER, IntArray
from .roles.answering import AnsweringParty
from .roles.base import (
    Action,
    Broken,
    Compute,
    Computed,
    Event,
    Fail,
    Finish,
    Garbled,
    Lost,
    Received,
    Role,
    Send,
    Tick,
)
from .roles.batches import LabelledBatch, batch_rows
from .roles.guardian import PrivacyGuardian
from .roles.querying import QueryingParty
from .secure.base import CLEAR
from .terms import Terms

Seat = tuple[str, str]  # a site, and the role one of its programs acts in
_ABREAST = 64  # parties that a querying party computes with at a time


@dataclass(frozen=True)
class Letter:
    """A message on its way."""

    sender: Seat
    to: Seat
    data: bytes


class Simulation:
    """All roles of a coalition in one process, with journals in memory.

    Parameters
    ----------
    terms
        What the coalition agreed on.
    models
        Of the answering parties.
    ledger
        The guardian's; in memory by default.
    seed
        None: cryptographic. An integer: a simulation that can be repeated and protects nobody;
        sites draw apart, by their place among the sorted names.
    """

    engine = CLEAR

    def __init__(
        self,
        terms: Terms,
        models: Mapping[str, SiteModel],
        *,
        ledger: Ledger | None = None,
        seed: int | None = None,
    ) -> None:
        if set(models) != set(terms.parties):
            raise InputError("models", "must be those of the parties", sorted(models))
        self.terms, self.models, self.seed = terms, models, seed
        self.ledger = Ledger.in_memory() if ledger is None else ledger
        self.roles: dict[Seat, Role] = {}
        self._journals: dict[str, Any] = {}
        self._queue: deque[tuple[Seat, Event]] = deque()
        self._sessions: dict[str, dict[Seat, Compute]] = {}
        self._now = 0.0
        self._end: Finish | Fail | None = None
        self.start((terms.guardian, GUARDIAN))
        for party in terms.parties:
            self.start((party, ANSWERING))

    def ask(self, querier: str, X: Any, *, baseline: npt.ArrayLike | None = None) -> LabelledBatch:
        """Ask one batch, and return its answers; the error of the querying party if it fails."""
        seat = (querier, QUERYING)
        role = QueryingParty(
            self.terms,
            querier,
            batch_rows(X, self.terms),
            self._journal(querier),
            self.engine,
            self._entropy(querier),
            baseline=baseline,
            abreast=_ABREAST,
        )
        self.roles[seat], self._end = role, None
        self._do(seat, role.start())
        self._run(seat)
        self.roles.pop(seat, None)  # one program, one batch
        end = self._end
        if isinstance(end, Finish):
            labelled: LabelledBatch = end.result
            return labelled
        raise end.error if end is not None else PeerError(f"{querier} stopped before its batch did")

    def start(self, seat: Seat) -> None:
        """Start the guardian or an answering party: memory empty, disk as it is."""
        terms, (name, kind), engine = self.terms, seat, self.engine
        entropy = self._entropy(name)
        if kind == GUARDIAN:
            journal = self._journal(name)
            self.roles[seat] = PrivacyGuardian(terms, self.ledger, journal, engine, entropy)
        else:
            self.roles[seat] = AnsweringParty(terms, name, self.models[name], engine, entropy)

    def _journal(self, name: str) -> Any:
        """Return a site's journal, which outlasts its programs."""
        if name not in self._journals:
            kind = GuardianJournal if name == self.terms.guardian else QuerierJournal
            self._journals[name] = kind(":memory:", self.terms.promise(), name)
        return self._journals[name]

    def _entropy(self, name: str) -> Entropy:
        if self.seed is None:
            return Entropy()
        return Entropy(self.seed + self.terms.sites.index(name))

    # -- the world around the roles ----------------------------------------------------------------

    def _run(self, asking: Seat) -> None:
        """Deliver until the querying party is done, and what is on its way is delivered."""
        idle = 0
        while self._queue or (self._end is None and asking in self.roles and idle < 8):
            if not self._queue:
                # Nobody has anything to say: time passes.
                idle += 1
                self._now += self.terms.timeout + 1
                self._break_sessions()
                self._queue.extend((seat, Tick(self._now)) for seat in self.roles)
                continue
            seat, event = self._queue.popleft()
            if not isinstance(event, Tick):
                idle = 0
            self._give(seat, event)

    def _give(self, seat: Seat, event: Event) -> None:
        if seat in self.roles:
            self._do(seat, self.roles[seat].on(event))

    def _do(self, seat: Seat, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._deliver(Letter(seat, (action.to, action.role), encode(action.message)))
            elif isinstance(action, Compute):
                self._join(seat, action)
            elif isinstance(action, Finish | Fail):
                self._end = action

    def _deliver(self, letter: Letter) -> None:
        if letter.to not in self.roles:
            self._queue.append((letter.sender, Lost(*letter.to)))
            return
        name, role = letter.sender
        event: Event
        try:
            event = Received(name, decode(letter.data, self.terms.most_bytes))
        except PeerError as error:
            event = Garbled(name, role, str(error))
        self._queue.append((letter.to, event))

    # -- sessions ----------------------------------------------------------------------------------

    def _join(self, seat: Seat, compute: Compute) -> None:
        sides = self._sessions.setdefault(compute.session, {})
        sides[seat] = compute
        if len(sides) < 2:
            return
        del self._sessions[compute.session]
        (one, here), (two, there) = sides.items()
        if (here.peer, there.peer) != (two[0], one[0]) or here.side == there.side:
            self._broken(sides, compute.session, "the two sides do not belong together")
            return
        ours, theirs = (here, there) if here.side == QUERIER else (there, here)
        try:
            outputs = self._computed(ours, theirs)
        except PrivoteError as error:
            self._broken(sides, compute.session, str(error))
            return
        for side, work in sides.items():
            given = outputs if work is ours else None
            self._queue.append((side, Computed(compute.session, given)))

    def _computed(self, ours: Compute, theirs: Compute) -> list[dict[str, IntArray]]:
        """Return what the querier gets of a session."""
        if list(ours.programs) != list(theirs.programs):
            raise PeerError("the two sides run different programs; nothing was computed")
        outputs: list[dict[str, IntArray]] = []
        for program, mine, other in zip(ours.programs, ours.inputs, theirs.inputs, strict=True):
            querier = program.checked(QUERIER, mine, outputs[-1] if outputs else None)
            outputs.append(program.in_clear(querier, program.checked(PEER, other)))
        return outputs

    def _broken(self, sides: Mapping[Seat, Compute], name: str, why: str) -> None:
        self._queue.extend((seat, Broken(name, why)) for seat in sides)

    def _break_sessions(self) -> None:
        for name, sides in self._sessions.items():
            self._broken(sides, name, "the other side did not come in time")
        self._sessions = {}
