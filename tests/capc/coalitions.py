"""Small coalitions whose parties cast ballots that a test chose, and the votes they amount to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.capc.sessions import both_sides

import privote as pv
from privote.capc.coalition import Letter, Seat, Simulation
from privote.capc.engine import CLEAR
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.models import SiteModel
from privote.capc.programs import QUERIER
from privote.capc.roles import Action, Complain, Compute, Event, Lost, Tick
from privote.capc.terms import Terms
from privote.errors import PrivoteError

IntArray = npt.NDArray[np.int64]


class Observed(Simulation):
    """A simulation that can be watched and disturbed, and whose programs can die.

    Parameters
    ----------
    engine, folder
        What computes; where journals are kept, None for memory.
    post
        Called with every letter; returns the letters to deliver instead (none, several, others).

    Attributes
    ----------
    letters
        Everything that was sent, in order.
    seen
        By seat, every event that its role was given: its whole view.
    complaints
        By seat, what its role complained of.
    """

    def __init__(
        self,
        terms: Terms,
        models: dict[str, SiteModel],
        *,
        engine: str = CLEAR,
        folder: Path | None = None,
        post: Callable[[Letter], list[Letter]] | None = None,
        **more: Any,
    ) -> None:
        self.engine, self.folder, self.post = engine, folder, post
        self.letters: list[Letter] = []
        self.seen: dict[Seat, list[Event]] = {}
        self.complaints: dict[Seat, list[PrivoteError]] = {}
        super().__init__(terms, models, **more)

    def kill(self, seat: Seat) -> None:
        """End a program: what it had in memory is gone, and whoever is connected notices."""
        self.roles.pop(seat, None)
        self._queue = deque(item for item in self._queue if item[0] != seat)
        for sides in self._sessions.values():
            sides.pop(seat, None)
        for other in list(self.roles):
            self._queue.append((other, Lost(*seat)))

    def journal(self, site: str) -> Any:
        """Return a site's journal."""
        return self._journal(site)

    def _journal(self, name: str) -> Any:
        if self.folder is not None and name not in self._journals:
            kind = GuardianJournal if name == self.terms.guardian else QuerierJournal
            path = self.folder / f"{name}.journal"
            self._journals[name] = kind(path, self.terms.promise(), name)
        return super()._journal(name)

    def _give(self, seat: Seat, event: Event) -> None:
        if seat in self.roles and not isinstance(event, Tick):
            self.seen.setdefault(seat, []).append(event)
        super()._give(seat, event)

    def _do(self, seat: Seat, actions: list[Action]) -> None:
        for action in actions:
            if seat not in self.roles:
                return  # killed between two actions
            if isinstance(action, Complain):
                self.complaints.setdefault(seat, []).append(action.error)
            super()._do(seat, [action])

    def _computed(self, ours: Compute, theirs: Compute) -> Any:
        if self.engine == CLEAR:
            return super()._computed(ours, theirs)
        results = both_sides(
            self.engine,
            ours.programs,
            ours.inputs,
            theirs.inputs,
            others=theirs.programs,
            deadline=ours.seconds,
        )
        for found in results.values():
            if isinstance(found, Exception):
                raise found
        return results[QUERIER]

    def _deliver(self, letter: Letter) -> None:
        self.letters.append(letter)
        for sent in [letter] if self.post is None else self.post(letter):
            super()._deliver(sent)


def terms_of(
    mechanism: pv.Mechanism | None = None,
    *,
    parties: int = 3,
    labels: int = 2,
    features: int = 4,
    own: dict[int, tuple[int, ...]] | None = None,
    **more: Any,
) -> Terms:
    """Return terms of ``parties`` parties p0, p1, ...; ``own`` gives some of them fewer labels."""
    names = tuple(f"label{i}" for i in range(labels))
    known = {f"p{i}": None for i in range(parties)} | {
        f"p{i}": tuple(names[j] for j in few) for i, few in (own or {}).items()
    }
    chosen: dict[str, Any] = {
        "name": "test",
        "labels": names,
        "features": features,
        "mechanism": mechanism or pv.BinaryVoting(sigma=2.0),
        "guarantee": "worst-case",
        "epsilon": 1000.0,
        "delta": 1e-5,
        "guardian": "pg",
        "parties": known,
        "queriers": ("q0",),
        "minimum": 2,
        "timeout": 10.0,
    }
    return Terms(**(chosen | more))


def models_for(terms: Terms, ballots: npt.NDArray[Any]) -> dict[str, SiteModel]:
    """Return models that vote ``ballots`` (queries, parties, labels) on the rows of an identity."""
    models = {}
    for place, party in enumerate(terms.parties):
        weights = np.full((terms.features, len(terms.labels)), -1.0)
        weights[: len(ballots)] = np.where(ballots[:, place].astype(bool), 1.0, -1.0)
        whole = SiteModel(
            layers=((weights, np.zeros(len(terms.labels))),),
            labels=terms.labels,
            thresholds=np.full(len(terms.labels), 0.5),
        )
        models[party] = whole.only(terms.labels_of(party))
    return models


def identity(queries: int, features: int) -> IntArray:
    """Return the rows on which :func:`models_for` votes."""
    return np.eye(queries, features, dtype=np.int64)


def simulation(terms: Terms, ballots: npt.NDArray[Any], **more: Any) -> Observed:
    """Return a simulation of these ballots."""
    return Observed(terms, models_for(terms, ballots), **({"seed": 1} | more))


def votes_of(
    terms: Terms, ballots: npt.NDArray[Any], present: tuple[str, ...] | None = None
) -> npt.NDArray[np.int8]:
    """Return the cube the mechanism would be given: -1 for who is missing or lacks a label."""
    names = tuple(terms.parties)
    there = np.array([present is None or name in present for name in names])
    known = terms.has(names).astype(bool) & there[:, None]
    return np.where(known, ballots, -1).astype(np.int8)
