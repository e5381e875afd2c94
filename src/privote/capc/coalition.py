"""A whole coalition in one process, in clear or with the secure engine.

A :class:`Simulation` runs the same parties with the same messages as the network does: a call is
the handler itself, through encode and decode. In clear it is fast and hides nothing, and says so.
`simulate` has a batch labelled, on scenes that come with privote: only there is the truth known, so
only there are labels judged. ``examples/coalition`` runs sites as processes of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.embedded import load_scenes
from ..entropy import Entropy
from ..errors import InputError, whole
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..metrics import multilabel
from .answerer import AnsweringParty
from .engine import ClearEngine, SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .labelled import LabelledBatch
from .messages import Disconnected, Message, decode, encode
from .models import Labels, SiteModel
from .network import Wire
from .noise import counted, with_grid
from .parties import Party, batch_rows
from .querier import QueryingParty
from .terms import Terms, longest_message


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
        self._expected: dict[tuple[str, str], asyncio.Future[Wire]] = {}

    async def call(self, to: str, message: Message, timeout: float) -> Message:
        """Return the reply of a site."""
        del timeout  # nothing is slow here
        data = await self._simulation.carry(Envelope(self._name, to, encode(message)))
        return decode(data, longest_message(self._simulation.terms)).or_raise(to)

    async def open(self, peer: str, session: str) -> Wire:
        """Open the stream of a session that the peer expects."""
        program = self._simulation.programs.get(peer)
        coming = None
        if program is not None and isinstance(program.transport, Local):
            coming = program.transport._expected.pop((self._name, session), None)
        if coming is None or coming.done():
            raise Disconnected(f"{peer} is not running, or expects no such session")
        there: asyncio.Queue[Any] = asyncio.Queue(8)
        back: asyncio.Queue[Any] = asyncio.Queue(8)
        coming.set_result(_Pipe(there, back))
        return _Pipe(back, there)

    def expect(self, peer: str, session: str) -> asyncio.Future[Wire]:
        """Be ready for the stream of a session."""
        coming = self._expected[peer, session] = asyncio.get_running_loop().create_future()
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
        party = QueryingParty(*self._common(querier), journal=self.journal(querier))

        async def run() -> LabelledBatch:
            try:
                return await party.ask(rows)
            finally:
                for program in self.programs.values():
                    await program.stop()

        return self._runner.run(run())

    def start(self, site: str) -> None:
        """Start the guardian or an answering party: memory empty, disk as it is."""
        common = self._common(site)
        if site == self.terms.guardian:
            more: Any = {"ledger": self.ledger, "journal": self.journal(site)}
            self.programs[site] = PrivacyGuardian(*common, **more)
        else:
            self.programs[site] = AnsweringParty(*common, model=self.models[site])

    def _common(self, site: str) -> tuple[Any, ...]:
        """Return what every party is made of."""
        seed = None if self.seed is None else self.seed + self.terms.sites.index(site)
        # Sessions at a time: of real ones, one, as there are few cores.
        slots = 64 if self.engine.name == ClearEngine.name else 1
        return self.terms, site, Local(self, site), self.engine, Entropy(seed), slots

    def journal(self, site: str) -> Any:
        """Return a site's journal, which outlasts its programs."""
        if site not in self._journals:
            kind = GuardianJournal if site == self.terms.guardian else QuerierJournal
            self._journals[site] = kind(None, self.terms, site)
        return self._journals[site]

    async def carry(self, envelope: Envelope) -> bytes:
        """Return the reply to a call; what tests of faults override."""
        if envelope.to not in self.programs:
            raise Disconnected(f"{envelope.to} is not running")
        request = decode(envelope.data, longest_message(self.terms))
        return encode(await self.programs[envelope.to].handle(envelope.sender, request))


QUERIER_NAME, GUARDIAN_NAME = "querier", "guardian"  # the two sites that do not answer
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
    """Run a batch of a whole coalition on scenes; returns facts, with metrics against the truth.

    Answers go into the folder. ``progress`` says what comes next while it lasts.
    """
    from ..learning.students import LinearStudent

    engine = ClearEngine() if clear else SecureEngine()  # say what is missing before training
    sites, models = len(terms.parties), {}
    with progress("training the sites' models", None):
        sizes = {"private": _SCENES * sites, "public": terms.most_queries, "test": 1}
        data = load_scenes(**sizes, seed=seed or 0)
        for place, party in enumerate(terms.parties):
            part = slice(_SCENES * place, _SCENES * (place + 1))
            student = LinearStudent(Cs=(0.1,)).fit(data.X_private[part], data.Y_private[part])
            models[party] = SiteModel.of(student, labels=terms.labels)
    began, X = time.monotonic(), data.X_public.astype(np.float64)
    with progress(f"asking {sites} sites", None):
        run = Simulation(terms, models, seed=seed if clear else None, engine=engine)
        answers = run.ask(QUERIER_NAME, X)
    seconds = round(time.monotonic() - began, 2)
    votes = np.stack([model.votes(X) for model in models.values()])
    tables = {
        "released": [answers.labels],
        "majority, no noise": [(2 * votes.sum(axis=0) >= sites).astype(np.int8)],
        "one site alone, mean": [*votes],
    }
    scores = [{"labels": name, **_scores(data.Y_public, each)} for name, each in tables.items()]
    facts = {**answers.facts(), "seconds": seconds, "metrics": scores}
    (folder / "answers").mkdir()
    answers.write(folder / "answers", facts)
    return facts


def _scores(truth: Labels, tables: Sequence[Labels]) -> dict[str, float]:
    """Return mean metrics of tables of labels; an abstention counts as 0."""
    clean = [np.maximum(table, 0) for table in tables]
    metrics = [multilabel(truth, each.astype(float), each) for each in clean]
    means = {key: float(np.mean([each[key] for each in metrics])) for key in ("ACC", "BAC")}
    return {**means, "answered": float(np.mean([table >= 0 for table in tables]))}
