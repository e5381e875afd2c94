"""A coalition: its public terms, and all its roles in one process.

The simulation drives the same roles with the same messages as the network does, each message
through its encoding. With the clear engine it is fast and hides nothing, and says so.
"""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError
from ..ledger import Ledger
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING, IntArray, decode, encode
from .models import SiteModel
from .quantise import quantise_rows
from .roles.answering import AnsweringParty
from .roles.base import (
    Action,
    Broken,
    Complain,
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
from .roles.batches import LabelledBatch
from .roles.guardian import PrivacyGuardian
from .roles.querying import QueryingParty
from .secure.base import LocalChannel, SecureEngine
from .secure.base import engine as engine_named
from .terms import Terms

__all__ = ["Letter", "Simulation", "Terms"]

Kept = TypeVar("Kept", GuardianJournal, QuerierJournal)
Seat = tuple[str, str]  # a site, and the role one of its programs acts in


@dataclass(frozen=True)
class Letter:
    """A message on its way."""

    sender: Seat
    to: Seat
    data: bytes


class Simulation:
    """All roles of a coalition in one process.

    Parameters
    ----------
    terms
        What the coalition agreed on.
    models
        Of the answering parties: site models, or the integers of a ballot program.
    engine
        "clear" (insecure, fast) or a secure one.
    ledger, folder
        The guardian's ledger, in memory by default; where journals are kept, None for memory.
    seed
        None: cryptographic. An integer: a simulation that can be repeated and protects nobody;
        sites draw apart, by their place among the sorted names.
    post
        Called with every letter; returns the letters to deliver instead (none, several, others).
    abreast
        With how many parties a querying party computes at a time.

    Attributes
    ----------
    letters
        Everything that was sent, in order.
    seen
        By seat, every event that its role was given: its whole view.
    complaints
        By seat, what its role complained of.
    dead
        Seats that do not react: letters to them are lost, and their senders notice.
    """

    def __init__(
        self,
        terms: Terms,
        models: Mapping[str, SiteModel | Mapping[str, IntArray]],
        *,
        engine: str = "clear",
        ledger: Ledger | None = None,
        folder: Path | None = None,
        seed: int | None = None,
        post: Callable[[Letter], list[Letter]] | None = None,
        abreast: int = 64,
    ) -> None:
        if set(models) != set(terms.parties):
            raise InputError("models", "must be those of the parties", sorted(models))
        self.terms, self.models, self.folder = terms, models, folder
        self.engine, self.seed = engine_named(engine), seed
        self.post, self.abreast = post, abreast
        self.ledger = Ledger.in_memory() if ledger is None else ledger
        self.letters: list[Letter] = []
        self.seen: dict[Seat, list[Event]] = {}
        self.complaints: dict[Seat, list[PrivoteError]] = {}
        self.dead: set[Seat] = set()
        self.roles: dict[Seat, Role] = {}
        self._journals: dict[str, GuardianJournal | QuerierJournal] = {}
        self._queue: deque[tuple[Seat, Event]] = deque()
        self._sessions: dict[str, dict[Seat, Compute]] = {}
        self._now = 0.0
        self._end: Finish | Fail | None = None
        self.start((terms.guardian, GUARDIAN))
        for party in terms.parties:
            self.start((party, ANSWERING))

    # -- what a user calls -------------------------------------------------------------------------

    def ask(self, querier: str, X: Any, *, baseline: npt.ArrayLike | None = None) -> LabelledBatch:
        """Ask one batch, and return its answers; the error of the querying party if it fails."""
        rows = quantise_rows(
            X, features=self.terms.features, bound=self.terms.bound, bits=self.terms.bits
        )
        return self.ask_rows(querier, rows, baseline=baseline)

    def ask_rows(
        self, querier: str, rows: IntArray, *, baseline: npt.ArrayLike | None = None
    ) -> LabelledBatch:
        """Ask a batch of quantised rows."""
        seat = (querier, QUERYING)
        role = QueryingParty(
            self.terms,
            querier,
            rows,
            self.querier_journal(querier),
            self.engine.name,
            self._entropy(querier),
            baseline=baseline,
            abreast=self.abreast,
        )
        self.dead.discard(seat)
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
        """Start the guardian or an answering party (again): memory empty, disk as it is."""
        name, kind = seat
        self.dead.discard(seat)
        entropy = self._entropy(name)
        if kind == GUARDIAN:
            self.roles[seat] = PrivacyGuardian(
                self.terms, self.ledger, self.guardian_journal(), self.engine.name, entropy
            )
        else:
            model = self.models[name]
            make = AnsweringParty.serving if isinstance(model, SiteModel) else AnsweringParty
            self.roles[seat] = make(self.terms, name, model, self.engine.name, entropy)  # type: ignore[arg-type]

    def kill(self, seat: Seat) -> None:
        """End a program: what it had in memory is gone, and whoever is connected notices."""
        self.roles.pop(seat, None)
        self.dead.add(seat)
        self._queue = deque(item for item in self._queue if item[0] != seat)
        for sides in self._sessions.values():
            sides.pop(seat, None)
        for other in list(self.roles):
            self._queue.append((other, Lost(*seat)))

    def guardian_journal(self) -> GuardianJournal:
        """Return the guardian's journal."""
        return self._journal(GuardianJournal, self.terms.guardian)

    def querier_journal(self, querier: str) -> QuerierJournal:
        """Return a querying party's journal."""
        return self._journal(QuerierJournal, querier)

    def _journal(self, kind: type[Kept], name: str) -> Kept:
        if name not in self._journals:
            path = ":memory:" if self.folder is None else self.folder / f"{name}.journal"
            self._journals[name] = kind(path, self.terms.promise(), name)
        kept = self._journals[name]
        assert isinstance(kept, kind)
        return kept

    def _entropy(self, name: str) -> Entropy:
        if self.seed is None:
            return Entropy()
        sites = sorted({self.terms.guardian, *self.terms.parties, *self.terms.queriers})
        return Entropy(self.seed + sites.index(name))

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
        role = self.roles.get(seat)
        if role is None:
            return
        if not isinstance(event, Tick):
            self.seen.setdefault(seat, []).append(event)
        self._do(seat, role.on(event))

    def _do(self, seat: Seat, actions: list[Action]) -> None:
        for action in actions:
            if seat not in self.roles:
                return  # killed between two actions
            if isinstance(action, Send):
                letter = Letter(seat, (action.to, action.role), encode(action.message))
                self.letters.append(letter)
                for sent in [letter] if self.post is None else self.post(letter):
                    self._deliver(sent)
            elif isinstance(action, Compute):
                self._join(seat, action)
            elif isinstance(action, Complain):
                self.complaints.setdefault(seat, []).append(action.error)
            else:
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
        try:
            outputs = _computed(self.engine, here, there)
        except PrivoteError as error:
            self._broken(sides, compute.session, str(error))
            return
        for side, work in sides.items():
            self._queue.append((side, Computed(compute.session, outputs[work.side])))

    def _broken(self, sides: Mapping[Seat, Compute], name: str, why: str) -> None:
        self._queue.extend((seat, Broken(name, why)) for seat in sides)

    def _break_sessions(self) -> None:
        for name, sides in self._sessions.items():
            self._broken(sides, name, "the other side did not come in time")
        self._sessions = {}


def _computed(engine: SecureEngine, *sides: Compute) -> dict[str, Any]:
    """Run both sides of a session, each in a thread of its own; return the outputs by side."""
    outputs: dict[str, Any] = {}
    errors: list[PrivoteError] = []
    with tempfile.TemporaryDirectory(prefix="privote-") as folder:
        ends = dict(zip(("querier", "peer"), LocalChannel.pair(folder), strict=True))

        def run(compute: Compute) -> None:
            try:
                outputs[compute.side] = engine.run(
                    compute.programs,
                    compute.side,
                    compute.inputs,
                    ends[compute.side],
                    deadline=compute.seconds,
                )
            except PrivoteError as error:
                errors.append(error)
                ends[compute.side].close()

        threads = [threading.Thread(target=run, args=(side,), daemon=True) for side in sides]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for end in ends.values():
            end.close()
    if errors:
        raise errors[0]
    return outputs
