"""The privacy guardian: charges first, adds the noise, decides once; sees masks, never ballots.

An outcome is in two shares. The querying party's is uniform without the guardian's, and the
guardian's leaves only when the decision is committed, after the querying party has stored its own
(:meth:`PrivacyGuardian.handle_done`). So whatever dies before that has released nothing, and the
batch is decided anew: with other masks and other noise, at no further charge.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from ..errors import PeerError
from ..ledger import Ledger
from . import messages as m
from .charges import COMMITTED, UNKNOWN, Charges
from .engine import ClearEngine
from .journal import GuardianJournal, to_words
from .messages import GUARDIAN
from .noise import gate_noise, vote_noise
from .parties import Party, decision_programs, offset, session_of, sliced, words
from .programs import IntArray


@dataclass
class _Run:
    """An attempt to answer a batch; in memory only: after a restart there is another one."""

    batch: str
    querier: str
    queries: int
    masks: dict[str, IntArray] = field(default_factory=dict)
    decided: bool = False


class PrivacyGuardian(Party):
    """Keeps the ledger of a coalition and the noise of its decisions.

    Parameters
    ----------
    ledger, journal
        The durable parts.
    """

    role = GUARDIAN

    def __init__(self, *args: Any, ledger: Ledger, journal: GuardianJournal, **more: Any) -> None:
        super().__init__(*args, **more)
        self._journal = journal
        marks = {"simulated": self.entropy.simulated}
        marks["insecure"] = self.engine.name == ClearEngine.name  # it hides nothing
        self._charges = Charges(self.terms, ledger, **marks, journal=journal.key[:16])
        self._runs: dict[str, _Run] = {}
        for querier in self.terms.queriers:  # prices take a while, and nobody is waiting yet
            self._charges.prices.each(querier)
            self._charges.prices.allowances(querier)

    # -- a batch is charged ------------------------------------------------------------------------

    async def handle_request_batch(self, caller: str, ask: m.RequestBatch) -> m.Message:
        """Charge a batch, or find that it was charged, and begin a run of it."""
        self.check_asker(caller, ask.queries)
        own = self._journal.halves(caller)[0]
        if self.terms.allowance and ask.version != own:
            lost = "one of the two journals was lost or replaced by an older one"
            raise PeerError(f"{caller} has counts {ask.version}, the guardian {own}: {lost}")
        state = self._charges.state(ask.batch)
        if state == COMMITTED:
            raise PeerError("this batch was released: the querying party lost its state")
        self._charges.reserve(caller, ask.queries, ask.batch)
        self._journal.reserve(ask.batch, caller, ask.queries)
        run = secrets.token_hex(16)
        # Whoever asks for another run gave up the one before.
        self._runs = {name: old for name, old in self._runs.items() if old.querier != caller}
        self._runs[run] = _Run(ask.batch, caller, ask.queries)
        return m.Grant(run, resumed=state != UNKNOWN)

    async def handle_status(self, caller: str, ask: m.Status) -> m.Message:
        """Say what became of a batch."""
        self.check_asker(caller, 0)
        return m.BatchStatus(self._charges.state(ask.batch))

    # -- ballots -----------------------------------------------------------------------------------

    async def handle_masks(self, caller: str, message: m.Masks) -> m.Message:
        """Take an answering party's masks, once; that confirms the run to it."""
        run = self._find(message.run)
        if (message.querier, message.queries) != (run.querier, run.queries):
            raise PeerError(f"run {message.run} has another querying party or size")
        if caller not in self.terms.voters(run.querier) or run.decided:
            raise PeerError(f"run {message.run} is not for {caller} to answer")
        if caller in run.masks:
            raise PeerError(f"run {message.run} was already confirmed to {caller}")
        wanted = (run.queries, len(self.terms.labels) * (1 + self.terms.counted.parts))
        if message.masks.shape != wanted:
            raise PeerError(f"masks must be {wanted}, got {message.masks.shape}")
        run.masks[caller] = message.masks
        return m.Confirmed(message.run)

    # -- the decision ------------------------------------------------------------------------------

    async def handle_decide(self, caller: str, ask: m.Decide) -> m.Message:
        """Fix who counts and this side's share of the outcome; then be ready to compute."""
        terms, run = self.terms, self._find(ask.run)
        if caller != run.querier or run.decided:
            raise PeerError(f"run {ask.run} is not {caller}'s to decide")
        parties = tuple(p for p in terms.voters(caller) if p in ask.parties and p in run.masks)
        if len(parties) < terms.minimum:
            raise PeerError(f"at least {terms.minimum} parties must take part, got {len(parties)}")
        run.decided = True  # whatever happens: these masks and halves of noise are used once
        counting = parties if terms.allowance else ()
        before, fresh = self._journal.halves(caller)[1], words(self.entropy, len(counting))
        inputs = self._inputs(run, parties)
        programs = decision_programs(terms, caller, run.queries, parties)
        pieces = sliced(programs, inputs)
        if terms.allowance:
            # Between chunks the halves are of this session only; the last one is the journal's.
            # At first it is all that was charged.
            first = to_words(before, counting, self._charges.prices.allowances(caller))
            halves = [first, *(words(self.entropy, len(parties)) for _ in programs[1:]), fresh]
            for piece, left, after in zip(pieces, halves, halves[1:], strict=False):
                piece |= {"left": left, "fresh": after}
        half = dict(zip(counting, fresh.tolist(), strict=True))
        version = self._journal.decide(run.batch, ask.run, half, inputs["pad"])
        run.masks = {}
        await self.serve(caller, session_of(ask.run), programs, pieces)
        return m.DecisionReady(parties, version)

    def _inputs(self, run: _Run, parties: tuple[str, ...]) -> dict[str, IntArray]:
        """Return this side's inputs that are cut by queries: masks, noise and the pad."""
        terms, labels = self.terms, len(self.terms.labels)
        masks = np.stack([run.masks[party][:, :labels] for party in parties], axis=1)
        if not terms.allowance:  # sums modulo 2^64
            less = offset(terms, run.querier, parties)
            masks = terms.counted.steps * (2 * masks.sum(axis=1) - less)
        # Nothing depends on the pad: it cancels, so no seed need repeat it.
        pad = np.frombuffer(secrets.token_bytes(8 * run.queries * labels), np.int64)
        noise = self._noise(run, parties)
        return {"masks": masks, "pad": pad.reshape(run.queries, labels), **noise}

    def _noise(self, run: _Run, parties: tuple[str, ...]) -> dict[str, IntArray]:
        """Return this side's noise of the vote and, with a gate, of the gate."""
        counted, shape = self.terms.counted, (run.queries, len(self.terms.labels))
        voters, gate = len(self.terms.voters(run.querier)), self.terms.mechanism.gate
        if counted.shared is not None:
            noise, halves = counted.shared, [run.masks[party][:, shape[1] :] for party in parties]
            # It was charged before it was known who takes part: no share may be missing.
            missing = range(voters - len(parties))
            halves += [noise.draw(voters, *shape, self.entropy) for _ in missing]
            both = zip(noise.gathered(halves).items(), noise.bars(voters), strict=True)
            return {name: part - bar for (name, part), bar in both}
        drawn = {"vote": vote_noise(counted.vote, voters, shape, self.entropy, counted.unit)}
        if gate is not None:
            drawn["gate"] = gate_noise(gate, voters, shape, self.entropy, counted.unit)
        return drawn

    # -- the end -----------------------------------------------------------------------------------

    async def handle_done(self, caller: str, done: m.Done) -> m.Message:
        """Commit a decision and return this side's share; asked again, it is the same share."""
        decision = self._journal.decision(caller, done.run)
        if decision is None:
            raise m.Undecided(f"run {done.run} is not decided here: the batch is decided anew")
        batch, pad = decision
        if not self._charges.commit(batch, sha256(pad.tobytes()).hexdigest()):
            raise m.Undecided(f"run {done.run} was abandoned here: nothing of it is released")
        self._journal.commit(batch)
        self._runs.pop(done.run, None)
        return m.OutcomeShare(pad)

    def _find(self, name: str) -> _Run:
        if name not in self._runs:
            raise PeerError(f"run {name} is not open here: run the query again")
        return self._runs[name]
