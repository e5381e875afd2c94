"""Small coalitions whose parties cast ballots that a test chose, and the votes they amount to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.capc.coalition import Letter, Seat, Simulation
from privote.capc.messages import Message, decode
from privote.capc.models import SiteModel
from privote.capc.roles import Action, Complain, Event, Lost, Tick
from privote.capc.terms import Terms
from privote.errors import PrivoteError

IntArray = npt.NDArray[np.int64]


class Observed(Simulation):
    """A simulation that can be watched and disturbed, and whose programs can die.

    Parameters
    ----------
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
        post: Callable[[Letter], list[Letter]] | None = None,
        **more: Any,
    ) -> None:
        self.post = post
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
    **more: Any,
) -> Terms:
    """Return terms of ``parties`` parties p0, p1, ..."""
    chosen: dict[str, Any] = {
        "name": "test",
        "labels": tuple(f"label{i}" for i in range(labels)),
        "features": features,
        "mechanism": mechanism or pv.BinaryVoting(sigma=2.0),
        "guarantee": "worst-case",
        "epsilon": 1000.0,
        "delta": 1e-5,
        "guardian": "pg",
        "parties": tuple(f"p{i}" for i in range(parties)),
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
        models[party] = linear(terms, weights)
    return models


def linear(terms: Terms, weights: Any, bias: Any = 0.0) -> SiteModel:
    """Return a model of these weights (features, labels)."""
    return SiteModel(weights=weights, bias=bias, labels=terms.labels, thresholds=0.5)  # type: ignore[arg-type]


def random_models(terms: Terms, seed: int = 5) -> dict[str, SiteModel]:
    """Return models at random."""
    rng, shape = np.random.default_rng(seed), (terms.features, len(terms.labels))
    return {
        p: linear(terms, rng.normal(size=shape), rng.normal(size=shape[1])) for p in terms.parties
    }


def identity(queries: int, features: int) -> IntArray:
    """Return the rows on which :func:`models_for` votes."""
    return np.eye(queries, features, dtype=np.int64)


def simulation(terms: Terms, ballots: npt.NDArray[Any], **more: Any) -> Observed:
    """Return a simulation of these ballots."""
    return Observed(terms, models_for(terms, ballots), **({"seed": 1} | more))


def altered(
    kind: type[Message], sender: str, change: Callable[[Any], bytes | None]
) -> Callable[[Letter], list[Letter]]:
    """Return a post in which messages of a kind from one site are other bytes; None: lost."""

    def post(letter: Letter) -> list[Letter]:
        message = decode(letter.data)
        if not isinstance(message, kind) or letter.sender[0] != sender:
            return [letter]
        data = change(message)
        return [] if data is None else [replace(letter, data=data)]

    return post
