"""A whole coalition in one process, in clear or with the secure engine.

A :class:`Simulation` runs the same parties with the same messages as the network does: a call is
the handler itself, through encode and decode. In clear it is fast and hides nothing, and says so.
`simulate` has a batch labelled, on scenes that come with privote: only there is the truth known, so
only there are labels judged. ``examples/coalition`` runs sites as processes of their own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import written
from ..datasets.embedded import load_scenes
from ..entropy import Entropy
from ..errors import InputError, whole
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..metrics import multilabel
from .answerer import AnsweringParty
from .counted import counted, with_grid
from .engine import ClearEngine, SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .messages import Disconnected, Message, Refused, decode, encode
from .models import SiteModel
from .network import Wire
from .parties import LabelledBatch, Party, batch_rows
from .querier import QueryingParty
from .statements import facts_of, write
from .terms import Terms


@dataclass(frozen=True)
class Envelope:
    """A call on its way, or the reply to it."""

    sender: str
    to: str
    data: bytes


class _Pipe:
    """One end of a stream between two parties of one process."""

    def __init__(self, inward: asyncio.Queue[Any], outward: asyncio.Queue[Any]) -> None:
        self._inward, self._outward = inward, outward

    async def read(self) -> bytes | None:
        frame: bytes | None = await self._inward.get()
        return frame

    async def write(self, frame: bytes) -> None:
        await self._outward.put(frame)

    async def close(self) -> None:
        if not self._outward.full():
            self._outward.put_nowait(None)


class Local:
    """How one party of a simulation reaches the others."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation, self._name = simulation, name
        self.expected: dict[tuple[str, str], asyncio.Future[Wire]] = {}

    async def call(self, to: str, message: Message, timeout: float) -> Message:
        """Return the reply of a site."""
        del timeout  # nothing is slow here
        data = await self._simulation.carry(Envelope(self._name, to, encode(message)))
        reply = decode(data, self._simulation.terms.most_bytes)
        if isinstance(reply, Refused):
            raise reply.error(to)
        return reply

    async def open(self, peer: str, session: str) -> Wire:
        """Open the stream of a session that the peer expects."""
        coming = self._simulation.local(peer).expected.pop((self._name, session), None)
        if coming is None or coming.done():
            raise Disconnected(f"{peer} expects no such session")
        there: asyncio.Queue[Any] = asyncio.Queue(8)
        back: asyncio.Queue[Any] = asyncio.Queue(8)
        coming.set_result(_Pipe(there, back))
        return _Pipe(back, there)

    def expect(self, peer: str, session: str) -> asyncio.Future[Wire]:
        """Be ready for the stream of a session."""
        coming: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        self.expected[peer, session] = coming
        return coming


class Simulation:
    """All parties of a coalition in one process, with journals in memory.

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
    engine
        What computes sessions; in clear by default.
    """

    def __init__(
        self,
        terms: Terms,
        models: Mapping[str, SiteModel],
        *,
        ledger: Ledger | None = None,
        seed: int | None = None,
        engine: SecureEngine | None = None,
    ) -> None:
        if set(models) != set(terms.parties):
            raise InputError("models", "must be those of the parties", sorted(models))
        self.terms, self.models, self.seed = terms, models, seed
        self.ledger = Ledger.in_memory() if ledger is None else ledger
        self.engine = engine or ClearEngine()
        self.programs: dict[str, Party] = {}  # those that can be called, by site
        self._journals: dict[str, Any] = {}
        self._runner = asyncio.Runner()  # one loop for all batches
        for site in (terms.guardian, *terms.parties):
            self.start(site)

    def ask(self, querier: str, X: Any) -> LabelledBatch:
        """Ask one batch, and return its answers; the error of the querying party if it fails."""
        rows = batch_rows(X, self.terms)
        party = QueryingParty(
            *(self.terms, querier, Local(self, querier), self.engine, self._entropy(querier)),
            journal=self.journal(querier),
            max_concurrent=self._sessions,
        )
        return self._runner.run(self._asked(party, rows))

    async def _asked(self, party: QueryingParty, rows: Any) -> LabelledBatch:
        try:
            return await party.ask(rows)
        finally:
            for program in self.programs.values():
                await program.stop()

    def start(self, site: str) -> None:
        """Start the guardian or an answering party: memory empty, disk as it is."""
        common = (self.terms, site, Local(self, site), self.engine, self._entropy(site))
        more: dict[str, Any] = {"max_concurrent": self._sessions}
        if site == self.terms.guardian:
            more |= {"ledger": self.ledger, "journal": self.journal(site)}
            self.programs[site] = PrivacyGuardian(*common, **more)
        else:
            self.programs[site] = AnsweringParty(*common, model=self.models[site], **more)

    def journal(self, site: str) -> Any:
        """Return a site's journal, which outlasts its programs."""
        if site not in self._journals:
            kind = GuardianJournal if site == self.terms.guardian else QuerierJournal
            self._journals[site] = kind(None, self.terms, site)
        return self._journals[site]

    @property
    def _sessions(self) -> int:
        """How many sessions run at a time: of real ones, as many as there are cores."""
        return 64 if self.engine.name == ClearEngine.name else 1

    def _entropy(self, site: str) -> Entropy:
        if self.seed is None:
            return Entropy()
        return Entropy(self.seed + self.terms.sites.index(site))

    # -- between the parties -----------------------------------------------------------------------

    async def carry(self, envelope: Envelope) -> bytes:
        """Return the reply to a call; what tests of faults override."""
        if envelope.to not in self.programs:
            raise Disconnected(f"{envelope.to} is not running")
        request = decode(envelope.data, self.terms.most_bytes)
        return encode(await self.programs[envelope.to].handle(envelope.sender, request))

    def local(self, site: str) -> Local:
        """Return the transport of a running site."""
        if site not in self.programs:
            raise Disconnected(f"{site} is not running")
        transport = self.programs[site].transport
        assert isinstance(transport, Local)
        return transport


QUERIER_NAME, GUARDIAN_NAME = (
    "querier",
    "guardian",
)  # names of the two sites beside those that answer
_SCENES = 300  # private scenes of each site
_GRID = 1 << 16  # steps of a whole vote where ballots are clipped
# Says what comes next, and of how many steps, while it lasts; yields who is told how many are done.
Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


def terms_of(mechanism: Mechanism, parties: int, queries: int, **budget: Any) -> Terms:
    """Return the terms of a simulated coalition: more than half of its sites must take part.

    ``budget`` is the guarantee, epsilon and delta.
    """
    whole("parties", parties, 2)
    whole("queries", queries)
    rounded, labels = with_grid(mechanism, _GRID), tuple(f"digit {d}" for d in range(10))
    shareable = counted(rounded, len(labels)).weights is None
    return Terms(
        name="rehearsal",
        labels=labels,
        features=tuple(f"pixel {n}" for n in range(256)),
        bound=1.0,
        bits=16,
        mechanism=rounded,
        **budget,
        guardian=GUARDIAN_NAME,
        parties=tuple(f"site-{n}" for n in range(1, parties + 1)),
        queriers=(QUERIER_NAME,),
        minimum=max(2, parties // 2 + 1),
        most_queries=queries,
        noise="sites" if shareable else "guardian",
        timeout=300.0,
    )


def simulate(
    folder: Path, terms: Terms, *, clear: bool, seed: int | None, progress: Progress
) -> dict[str, Any]:
    """Run a batch of a whole coalition; returns its facts, with metrics against the truth.

    Answers and a summary go into the folder. ``progress`` says what comes next while it lasts.
    """
    engine = ClearEngine() if clear else SecureEngine()  # say what is missing before training
    with progress("training the sites' models", None):
        data = simulated_data(terms, seed or 0)
    began = time.monotonic()
    with progress(f"asking {len(terms.parties)} sites", None):
        run = Simulation(terms, data.models, seed=seed if clear else None, engine=engine)
        answers = run.ask(QUERIER_NAME, data.X)
    facts = facts_of(terms, QUERIER_NAME, answers)
    facts["seconds"] = round(time.monotonic() - began, 2)
    (folder / "answers").mkdir()
    write(folder / "answers", facts, terms, answers)
    facts["metrics"] = data.metrics(answers.labels)
    summary = json.dumps({**written(1), **facts}, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return facts


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedData:
    """What a simulation knows and a real coalition does not.

    Attributes
    ----------
    X, Y
        Rows to ask, and their true labels.
    models
        Each answering site's.
    """

    X: npt.NDArray[np.float64]
    Y: npt.NDArray[np.int8]
    models: dict[str, SiteModel]

    def metrics(self, labels: npt.NDArray[np.int8]) -> list[dict[str, Any]]:
        """Return how good released labels are, beside the majority and a site alone."""
        votes = np.stack([model.votes(self.X) for model in self.models.values()])
        majority = (2 * votes.sum(axis=0) >= len(votes)).astype(np.int8)
        rows = {
            "released": [labels],
            "majority, no noise": [majority],
            "one site alone, mean": list(votes),
        }
        return [
            {
                "labels": name,
                **{key: self._mean(key, tables) for key in ("ACC", "BAC")},
                "answered": float(np.mean([table >= 0 for table in tables])),
            }
            for name, tables in rows.items()
        ]

    def _mean(self, metric: str, tables: list[npt.NDArray[np.int8]]) -> float:
        clean = [np.maximum(table, 0) for table in tables]
        return float(np.mean([multilabel(self.Y, one.astype(float), one)[metric] for one in clean]))


def simulated_data(terms: Terms, seed: int) -> SimulatedData:
    """Train a model for each site on scenes of its own, and compose scenes to ask."""
    from ..learning.students import LinearStudent

    private, public = _SCENES * len(terms.parties), terms.most_queries
    data = load_scenes(private=private, public=public, test=1, seed=seed)
    models = {}
    for place, party in enumerate(terms.parties):
        part = slice(_SCENES * place, _SCENES * (place + 1))
        student = LinearStudent(Cs=(0.1,)).fit(data.X_private[part], data.Y_private[part])
        models[party] = SiteModel.of(student, labels=terms.labels)
    return SimulatedData(X=data.X_public.astype(np.float64), Y=data.Y_public, models=models)
