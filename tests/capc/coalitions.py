"""Small coalitions whose parties cast ballots that a test chose, and that can be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.capc.charges import Charges
from privote.capc.coalition import Envelope, Simulation
from privote.capc.engine import ClearEngine
from privote.capc.journal import GuardianJournal
from privote.capc.messages import Disconnected, Message, decode, encode
from privote.capc.models import SiteModel
from privote.capc.programs import PEER, BallotProgram
from privote.capc.terms import Terms

_FILE = Path(__file__).parents[2] / "examples" / "coalition" / "processes.py"
_SPEC = spec_from_file_location("processes", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
processes: Any = module_from_spec(_SPEC)  # how the example runs sites as processes
_SPEC.loader.exec_module(processes)


class Recorder(ClearEngine):
    """Keeps what each side put into a session."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str, Any, Any]] = []

    async def run(self, programs: Any, side: str, inputs: Any, *args: Any, **more: Any) -> Any:
        self.sessions.append((side, programs, inputs))
        return await super().run(programs, side, inputs, *args, **more)

    def guardian_input(self, name: str) -> npt.NDArray[np.int64]:
        """Return one of the guardian's inputs to the last decision, all chunks of it."""
        peers = [(p, inputs) for side, p, inputs in self.sessions if side == PEER]
        inputs = next(i for p, i in reversed(peers) if not isinstance(p[0], BallotProgram))
        return np.concatenate([values[name] for values in inputs])


class Observed(Simulation):
    """A simulation that can be watched and disturbed, and whose programs can die.

    Parameters
    ----------
    post
        Called with every request and reply; returns what is delivered instead, None if it is lost.

    Attributes
    ----------
    envelopes
        Every request and reply, in order.
    """

    def __init__(
        self, *args: Any, post: Callable[[Envelope], Envelope | None] | None = None, **more: Any
    ) -> None:
        self.post = post
        self.envelopes: list[Envelope] = []
        self.recorder = Recorder()
        super().__init__(*args, **{"engine": self.recorder, **more})

    def kill(self, site: str) -> None:
        """End a program: what it had in memory is gone."""
        program = self.programs.pop(site, None)
        if program is not None:
            for task in program._tasks:
                task.cancel()

    async def carry(self, envelope: Envelope) -> bytes:
        request = self._posted(envelope)
        reply = Envelope(envelope.to, envelope.sender, await super().carry(request))
        return self._posted(reply).data

    def _posted(self, envelope: Envelope) -> Envelope:
        self.envelopes.append(envelope)
        delivered = envelope if self.post is None else self.post(envelope)
        if delivered is None:
            raise Disconnected("the message is lost")
        return delivered

    def said(self, kind: type[Message]) -> list[tuple[str, Any]]:
        """Return sender and content of all messages of a kind."""
        said = [(one.sender, decode(one.data)) for one in self.envelopes]
        return [(sender, message) for sender, message in said if isinstance(message, kind)]

    def call(self, sender: str, to: str, message: Message) -> Message:
        """Return the reply to a call that a test makes in a site's name."""
        data = self._runner.run(self.carry(Envelope(sender, to, encode(message))))
        return decode(data)

    def rest(self) -> None:
        """Let what is under way beside calls come to its end."""
        self._runner.run(asyncio.sleep(0.01))


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
        "features": tuple(f"x{i}" for i in range(features)),
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


def charges_of(terms: Terms, ledger: pv.Ledger | None = None, journal: Any = None) -> Charges:
    """Return what reserves batches of these terms, as a guardian does."""
    journal = journal or GuardianJournal(None, terms, terms.guardian)
    ledger = ledger or pv.Ledger.in_memory()
    return Charges(terms, ledger, simulated=False, insecure=False, journal=journal.key)


def models_for(terms: Terms, ballots: npt.NDArray[Any]) -> dict[str, SiteModel]:
    """Return models that vote ``ballots`` (queries, parties, labels) on the rows of an identity."""
    models = {}
    for place, party in enumerate(terms.parties):
        weights = np.full((terms.inputs, len(terms.labels)), -1.0)
        weights[: len(ballots)] = np.where(ballots[:, place].astype(bool), 1.0, -1.0)
        models[party] = linear(terms, weights)
    return models


def linear(terms: Terms, weights: Any, bias: Any = 0.0) -> SiteModel:
    """Return a model of these weights (features, labels)."""
    return SiteModel(weights=weights, bias=bias, labels=terms.labels, thresholds=0.5)  # type: ignore[arg-type]


def random_models(terms: Terms, seed: int = 5) -> dict[str, SiteModel]:
    """Return models at random."""
    rng, shape = np.random.default_rng(seed), (terms.inputs, len(terms.labels))
    return {
        p: linear(terms, rng.normal(size=shape), rng.normal(size=shape[1])) for p in terms.parties
    }


def identity(queries: int, features: int, turn: int = 0) -> npt.NDArray[np.float64]:
    """Return rows on which :func:`models_for` votes; others in each turn, with the same votes."""
    return np.eye(queries, features) * (1 - turn / 1000)


def simulation(terms: Terms, ballots: npt.NDArray[Any], **more: Any) -> Observed:
    """Return a simulation of these ballots."""
    return Observed(terms, models_for(terms, ballots), **({"seed": 1} | more))


def altered(
    kind: type[Message], sender: str, change: Callable[[Any], Message | None]
) -> Callable[[Envelope], Envelope | None]:
    """Return a post in which messages of a kind from one site are others; None: lost."""

    def post(envelope: Envelope) -> Envelope | None:
        message = decode(envelope.data)
        if not isinstance(message, kind) or envelope.sender != sender:
            return envelope
        other = change(message)
        return None if other is None else Envelope(sender, envelope.to, encode(other))

    return post
