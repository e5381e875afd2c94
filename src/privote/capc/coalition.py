"""A whole coalition on one machine: in one process and in clear, or as real processes.

`Simulation` drives the same roles with the same messages as the network does, each message through
its encoding; in clear text it is fast and hides nothing, and says so. `lay_out` writes for every
site the folder that its administrator would have, an example to copy from; `running` starts
guardian and answering parties as programs of their own.
`simulate` has a batch labelled either way, on scenes that come with privote: only there is the
truth known, so only there are labels judged.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from .._version import written
from ..datasets.embedded import load_scenes
from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError, whole
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..metrics import multilabel
from . import roles as r
from .answering import AnsweringParty
from .certs import make, pin
from .counted import counted, with_grid
from .engine import SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING, decode, encode
from .models import SiteModel
from .programs import PEER, QUERIER, IntArray
from .querying import QueryingParty
from .roles import CLEAR, LabelledBatch, Role, batch_rows
from .site import LISTENING, Site, ask
from .statements import facts_of, write
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
        self._queue: deque[tuple[Seat, r.Event]] = deque()
        self._sessions: dict[str, dict[Seat, r.Compute]] = {}
        self._now = 0.0
        self._end: r.Finish | r.Fail | None = None
        self.start((terms.guardian, GUARDIAN))
        for party in terms.parties:
            self.start((party, ANSWERING))

    def ask(self, querier: str, X: Any) -> LabelledBatch:
        """Ask one batch, and return its answers; the error of the querying party if it fails."""
        seat = (querier, QUERYING)
        role = QueryingParty(
            self.terms,
            querier,
            batch_rows(X, self.terms),
            self._journal(querier),
            self.engine,
            self._entropy(querier),
            abreast=_ABREAST,
        )
        self.roles[seat], self._end = role, None
        self._do(seat, role.start())
        self._run(seat)
        self.roles.pop(seat, None)  # one program, one batch
        end = self._end
        if isinstance(end, r.Finish):
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
                self._queue.extend((seat, r.Tick(self._now)) for seat in self.roles)
                continue
            seat, event = self._queue.popleft()
            if not isinstance(event, r.Tick):
                idle = 0
            self._give(seat, event)

    def _give(self, seat: Seat, event: r.Event) -> None:
        if seat in self.roles:
            self._do(seat, self.roles[seat].on(event))

    def _do(self, seat: Seat, actions: list[r.Action]) -> None:
        for action in actions:
            if isinstance(action, r.Send):
                self._deliver(Letter(seat, (action.to, action.role), encode(action.message)))
            elif isinstance(action, r.Compute):
                self._join(seat, action)
            elif isinstance(action, r.Finish | r.Fail):
                self._end = action

    def _deliver(self, letter: Letter) -> None:
        if letter.to not in self.roles:
            self._queue.append((letter.sender, r.Lost(*letter.to)))
            return
        try:
            message = decode(letter.data, self.terms.most_bytes)
        except PeerError:  # the stream between the two ends
            self._queue.append((letter.to, r.Lost(*letter.sender)))
            self._queue.append((letter.sender, r.Lost(*letter.to)))
            return
        self._queue.append((letter.to, r.Received(letter.sender[0], message)))

    # -- sessions ----------------------------------------------------------------------------------

    def _join(self, seat: Seat, compute: r.Compute) -> None:
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
            self._queue.append((side, r.Computed(compute.session, given)))

    def _computed(self, ours: r.Compute, theirs: r.Compute) -> list[dict[str, IntArray]]:
        """Return what the querier gets of a session."""
        if list(ours.programs) != list(theirs.programs):
            raise PeerError("the two sides run different programs; nothing was computed")
        outputs: list[dict[str, IntArray]] = []
        for program, mine, other in zip(ours.programs, ours.inputs, theirs.inputs, strict=True):
            querier = program.checked(QUERIER, mine, outputs[-1] if outputs else None)
            outputs.append(program.in_clear(querier, program.checked(PEER, other)))
        return outputs

    def _broken(self, sides: Mapping[Seat, r.Compute], name: str, why: str) -> None:
        self._queue.extend((seat, r.Broken(name, why)) for seat in sides)

    def _break_sessions(self) -> None:
        for name, sides in self._sessions.items():
            self._broken(sides, name, "the other side did not come in time")
        self._sessions = {}


_PATIENCE = 120.0  # seconds for a program to come up on a busy machine


def lay_out(
    folder: Path, terms: Terms, models: Mapping[str, SiteModel], *, sessions: int = 2
) -> dict[str, Path]:
    """Write a coalition's files for this machine; returns each site's ``site.toml``.

    Every site gets its own key and certificate, everybody else's pinned, and a free port.
    """
    names = terms.sites
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coalition.toml").write_text(to_toml(terms.to_dict()), encoding="utf-8")
    for name in names:
        make(folder / name, name)
    servers = [terms.guardian, *terms.parties]
    addresses = dict(zip(servers, _free_addresses(len(servers)), strict=True))
    written = {}
    for name in names:
        home = folder / name
        for other in names:
            if other != name:
                pin(home / "trust", folder / other / f"{other}.pem")
        plain: dict[str, Any] = {
            "name": name,
            "coalition": "../coalition.toml",
            "certificate": f"{name}.pem",
            "key": f"{name}.key",
            "trust": "trust",
            "sessions": sessions,
            "listen": addresses.get(name),
            "ledger": "ledger.db" if name == terms.guardian else None,
            "state": "state" if name in terms.queriers else None,
            "model": "model.npz" if name in terms.parties else None,
        }
        if name != terms.guardian:
            plain["addresses"] = {other: at for other, at in addresses.items() if other != name}
        if name in terms.parties:
            models[name].save(home / "model.npz")
        written[name] = home / "site.toml"
        written[name].write_text(to_toml(plain), encoding="utf-8")
    return written


def _free_addresses(count: int) -> list[str]:
    """Return addresses on loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def to_toml(plain: Mapping[str, Any]) -> str:
    """Return texts, numbers, flags, lists and tables as TOML; what is None is left out."""
    return tomli_w.dumps({key: value for key, value in plain.items() if value is not None})


@contextlib.contextmanager
def running(
    sites: Mapping[str, Path], terms: Terms
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run guardian and answering parties as processes; each logs to ``log.txt`` in its folder.

    Parameters
    ----------
    sites
        What `lay_out` returned.
    terms
        The coalition's.

    Raises
    ------
    PeerError
        A program did not start.
    """
    programs: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in (terms.guardian, *terms.parties):
            verb = "guardian" if name == terms.guardian else "answer"
            with sites[name].with_name("log.txt").open("ab") as log:
                programs[name] = subprocess.Popen(
                    [sys.executable, "-m", "privote", "capc", verb, sites[name]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,  # a Ctrl-C is for us to pass on, in order
                )
        for name, program in programs.items():
            _await(name, sites[name].with_name("log.txt"), program)
        yield programs
    finally:
        for program in programs.values():
            program.terminate()
        for program in programs.values():
            try:
                program.wait(15)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def _await(name: str, log: Path, program: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while LISTENING not in (said := log.read_text(encoding="utf-8", errors="replace")):
        if program.poll() is not None:
            why = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise PeerError(f"{name} did not start: {why}")
        if time.monotonic() > end:
            raise PeerError(f"{name} did not start within {_PATIENCE:g} s")
        time.sleep(0.05)


ASKS, KEEPS = "querier", "guardian"  # names of the two sites beside those that answer
_SCENES = 300  # private scenes of each site
_GRID = 1 << 16  # steps of a whole vote where ballots are clipped
# Says what comes next, and of how many steps, while it lasts; yields who is told how many are done.
Telling = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


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
        features=256,
        bound=1.0,
        bits=16,
        mechanism=rounded,
        **budget,
        guardian=KEEPS,
        parties=tuple(f"site-{n}" for n in range(1, parties + 1)),
        queriers=(ASKS,),
        minimum=max(2, parties // 2 + 1),
        most_queries=queries,
        noise="sites" if shareable else "guardian",
        timeout=300.0,
    )


def simulate(
    folder: Path, terms: Terms, *, clear: bool, seed: int | None, telling: Telling
) -> dict[str, Any]:
    """Run a batch of a whole coalition; returns its facts, with figures against the truth.

    Everything goes into the folder: answers, a summary and, unless ``clear``, each site's files.
    ``telling`` says what comes next while it lasts.
    """
    if not clear:  # say what is missing before anything is trained
        SecureEngine()
    with telling("training the sites' models", None):
        scenes = made(terms, seed or 0)
    run = _in_clear if clear else _in_processes
    facts, answers = run(folder, terms, scenes, seed, telling)
    (folder / "answers").mkdir()
    write(folder / "answers", facts, terms, answers)
    facts = {**facts, "figures": scenes.figures(answers.labels)}
    summary = json.dumps({**written(1), **facts}, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return facts


def _in_processes(
    folder: Path, terms: Terms, scenes: Scenery, seed: int | None, telling: Telling
) -> tuple[dict[str, Any], LabelledBatch]:
    """Ask, with every other site a process of its own."""
    del seed  # masks and noise of programs that are secure have none
    sites, many, began = lay_out(folder, terms, scenes.models), len(terms.parties), time.monotonic()
    with contextlib.ExitStack() as stack:
        with telling(f"starting {many + 1} programs", None):
            stack.enter_context(running(sites, terms))
        started = time.monotonic()
        site, heard = Site.read(sites[ASKS], QUERYING), 0
        log = stack.enter_context(sites[ASKS].with_name("log.txt").open("w", encoding="utf-8"))
        tick = stack.enter_context(
            telling(f"asking {many} sites in secure sessions, some seconds each", many)
        )

        def tell(line: str) -> None:
            nonlocal heard
            log.write(f"{line}\n")
            heard += line.startswith("session ")
            tick(min(heard, many))

        facts, answers = ask(site, scenes.X, tell)
    return {**facts, "start_seconds": round(started - began, 2)}, answers


def _in_clear(
    folder: Path, terms: Terms, scenes: Scenery, seed: int | None, telling: Telling
) -> tuple[dict[str, Any], LabelledBatch]:
    """Run all roles in this process, in clear text."""
    began = time.monotonic()
    with telling(f"asking {len(terms.parties)} sites", None):
        answers = Simulation(terms, scenes.models, seed=seed).ask(ASKS, scenes.X)
    facts = facts_of(terms, ASKS, answers)
    return {**facts, "seconds": round(time.monotonic() - began, 2)}, answers


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenery:
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

    def figures(self, labels: npt.NDArray[np.int8]) -> list[dict[str, Any]]:
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

    def _mean(self, figure: str, tables: list[npt.NDArray[np.int8]]) -> float:
        said = [np.maximum(table, 0) for table in tables]
        return float(np.mean([multilabel(self.Y, one.astype(float), one)[figure] for one in said]))


def made(terms: Terms, seed: int) -> Scenery:
    """Train a model for each site on scenes of its own, and compose scenes to ask."""
    from ..learning.students.classifiers import LinearStudent

    private, public = _SCENES * len(terms.parties), terms.most_queries
    data = load_scenes(private=private, public=public, test=1, seed=seed)
    models = {}
    for place, party in enumerate(terms.parties):
        part = slice(_SCENES * place, _SCENES * (place + 1))
        student = LinearStudent(Cs=(0.1,)).fit(data.X_private[part], data.Y_private[part])
        models[party] = SiteModel.of(student, labels=terms.labels)
    return Scenery(X=data.X_public.astype(np.float64), Y=data.Y_public, models=models)
