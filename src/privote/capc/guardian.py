"""The privacy guardian: charges first, adds the noise, decides once; sees masks, never ballots."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np

from ..entropy import Entropy
from ..errors import PeerError, PrivoteError
from ..ledger import Ledger
from . import messages as m
from . import roles as r
from .charges import Charges
from .journal import CHARGED, DONE, GuardianJournal, to_words
from .messages import ANSWERING, GUARDIAN, QUERYING
from .noise import gate_noise, vote_noise
from .programs import PEER, IntArray
from .roles import CLEAR, Role, decision_programs, offset, session_of, sliced, words
from .terms import Terms


@dataclass
class _Batch:
    querier: str
    queries: int
    confirmed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    masks: dict[str, IntArray] = field(default_factory=dict)
    asked: tuple[str, ...] | None = None  # whose ballots the querying party has shares of
    decided: bool = False


class PrivacyGuardian(Role):
    """Keeps the ledger of a coalition and the noise of its decisions.

    Masks and open batches are in memory only: after a restart a batch that was charged and not
    decided may be resumed, one that was being decided is settled when its querying party asks
    again, and nothing is ever decided twice.

    Parameters
    ----------
    ledger, journal
        The durable parts.
    """

    role = GUARDIAN

    def __init__(
        self,
        terms: Terms,
        ledger: Ledger,
        journal: GuardianJournal,
        engine: str,
        entropy: Entropy | None = None,
    ) -> None:
        super().__init__(terms, terms.guardian, engine, entropy)
        self._journal = journal
        self._charges = Charges(
            terms,
            ledger,
            simulated=self.entropy.simulated,
            insecure=engine == CLEAR,
            journal=journal.identity,
        )

    def start(self) -> list[r.Action]:
        """Work out the prices, which may take a while, before anybody asks."""
        for querier in self.terms.queriers:
            self._charges.prices.charged(querier, 1)
        return []

    def _greeted_by(self, sender: str, hello: m.Hello) -> list[r.Action]:
        return [r.Send(sender, hello.role, self._hello())]

    # -- a batch is charged ------------------------------------------------------------------------

    def _hear_ask(self, sender: str, ask: m.Ask) -> list[r.Action]:
        terms, journal = self.terms, self._journal
        self._check_queries(ask.queries)
        if journal.known(sender, ask.nonce):
            raise m.RepeatedError("this request was made before; it was not charged again")
        journal.settle(sender, ask.version, counted=terms.allowance)
        batch = secrets.token_hex(16)
        still = journal.open_batch(sender)
        resumed = still is not None and (still.batch, still.queries) == (ask.resume, ask.queries)
        if not resumed:
            self._charges.take(sender, ask.queries, batch)
        journal.open(
            batch,
            sender,
            ask.nonce,
            ask.queries,
            resumed=ask.resume if resumed else None,
            allowances=self._charges.prices.allowances(sender),
        )
        self._forget_all_of(sender)
        self._batches[batch] = _Batch(sender, ask.queries)
        return [r.Send(sender, QUERYING, m.Grant(batch, ask.nonce, ask.queries, resumed))]

    # -- answering parties -------------------------------------------------------------------------

    def _hear_confirm(self, sender: str, confirm: m.Confirm) -> list[r.Action]:
        held = self._held(confirm.batch)
        if (confirm.querier, confirm.queries) != (held.querier, held.queries):
            raise PeerError(
                f"batch {confirm.batch} is not {confirm.queries} queries of {confirm.querier}"
            )
        if sender == held.querier or held.asked is not None:
            raise PeerError(f"batch {confirm.batch} is not for {sender} to answer")
        if sender in held.confirmed:
            raise m.RepeatedError(f"batch {confirm.batch} was already confirmed to {sender}")
        held.confirmed.add(sender)
        message = m.Confirmed(confirm.batch, held.querier, held.queries)
        return [r.Send(sender, ANSWERING, message)]

    def _hear_masks(self, sender: str, message: m.Masks) -> list[r.Action]:
        held = self._held(message.batch)
        if sender not in held.confirmed:
            raise PeerError(f"batch {message.batch} was not confirmed to {sender}")
        if sender in held.masks:
            raise m.RepeatedError(f"{sender} already sent its masks for batch {message.batch}")
        if held.decided or sender in held.gone:
            raise PeerError(f"the masks of {sender} for batch {message.batch} came too late")
        wanted = (held.queries, len(self.terms.labels) * (1 + self.terms.parts))
        if message.masks.shape != wanted:
            held.gone.add(sender)
            raise PeerError(f"masks must be {wanted}, got {message.masks.shape}")
        held.masks[sender] = message.masks
        return self._decide_if_ready(message.batch, held)

    def _hear_refused(self, sender: str, refused: m.Refused) -> list[r.Action]:
        actions: list[r.Action] = [r.Complain(refused.error(sender))]
        held = self._batches.get(refused.batch or "")
        if held is not None and sender in held.confirmed - set(held.masks):
            held.gone.add(sender)
            actions += self._decide_if_ready(refused.batch or "", held)
        return actions

    # -- the decision ------------------------------------------------------------------------------

    def _hear_decide(self, sender: str, decide: m.Decide) -> list[r.Action]:
        held = self._held(decide.batch)
        if sender != held.querier:
            raise PeerError(f"batch {decide.batch} is not {sender}'s")
        if held.asked is not None:
            raise m.RepeatedError(f"batch {decide.batch} was already submitted for a decision")
        if decide.version != self._journal.version(sender) and self.terms.allowance:
            raise PeerError(f"{sender} holds version {decide.version} of the running counts")
        strange = sorted(set(decide.parties) - set(self.terms.voters(sender)))
        if strange:
            raise PeerError(f"{strange[0]!r} does not answer {sender} in this coalition")
        held.asked = decide.parties
        self.timers.set(decide.batch, self.terms.timeout)
        return self._decide_if_ready(decide.batch, held)

    def _decide_if_ready(self, batch: str, held: _Batch) -> list[r.Action]:
        if held.asked is None or held.decided:
            return []
        waiting = set(held.asked) & held.confirmed - set(held.masks) - held.gone
        return [] if waiting else self._decide(batch, held)

    def _decide(self, batch: str, held: _Batch) -> list[r.Action]:
        """Fix who counts, write it down, and only then compute. Once."""
        self.timers.drop(batch)
        asked = held.asked or ()
        parties = tuple(
            p for p in self.terms.voters(held.querier) if p in asked and p in held.masks
        )
        if len(parties) < self.terms.minimum:
            error = PeerError(
                f"only {len(parties)} parties take part, and at least {self.terms.minimum} are "
                "required; the charge remains"
            )
            return self._refused_batch(held.querier, batch, error)
        held.decided = True
        counting = parties if self.terms.allowance else ()
        fresh = words(self.entropy, len(counting))
        try:
            before = self._journal.half(held.querier)
            version = self._journal.deciding(
                batch,
                dict(zip(counting, fresh.tolist(), strict=True)),
                self._most(counting, held.queries),
            )
            ready = m.Ready(batch, parties, version)
            m.encode(ready)  # a version that cannot be said is refused
        except PrivoteError as error:
            return self._refused_batch(held.querier, batch, error)
        compute = self._compute(batch, held, parties, to_words(before, counting, 0), fresh)
        held.masks = {}
        return [r.Send(held.querier, QUERYING, ready), compute]

    def _most(self, parties: tuple[str, ...], queries: int) -> dict[str, int]:
        """Return how many contributions each party can spend in a batch at most."""
        each = 1 if self.terms.by_ballot else len(self.terms.labels)
        return dict.fromkeys(parties, queries * each)

    def _noise(self, held: _Batch, parties: tuple[str, ...]) -> dict[str, IntArray]:
        """Return this side's noise of the vote and, with a gate, of the gate."""
        terms, shape = self.terms, (held.queries, len(self.terms.labels))
        voters, noise, gate = len(terms.voters(held.querier)), terms.shared, terms.mechanism.gate
        if noise is not None:
            halves = [held.masks[party][:, shape[1] :] for party in parties]
            # It was charged before it was known who takes part: no share may be missing.
            missing = range(voters - len(parties))
            halves += [noise.draw(voters, *shape, self.entropy) for _ in missing]
            both = zip(noise.gathered(halves).items(), noise.bars(voters), strict=True)
            return {name: part - bar for (name, part), bar in both}
        link, unit = terms.counted.vote, terms.counted.unit
        drawn = {"vote": vote_noise(link, voters, shape, self.entropy, unit)}
        if gate is not None:
            drawn["gate"] = gate_noise(gate, voters, shape, self.entropy, unit)
        return drawn

    def _compute(
        self, batch: str, held: _Batch, parties: tuple[str, ...], left: IntArray, fresh: IntArray
    ) -> r.Compute:
        terms, labels = self.terms, len(self.terms.labels)
        masks = np.stack([held.masks[party][:, :labels] for party in parties], axis=1)
        if not terms.allowance:  # sums modulo 2^64
            bar = offset(terms, held.querier, parties)
            masks = terms.steps * (2 * masks.sum(axis=1) - bar)
        programs = decision_programs(terms, held.querier, held.queries, parties)
        inputs = sliced(programs, {"masks": masks, **self._noise(held, parties)})
        if terms.allowance:
            # Between chunks the halves are of this session only; the last one is the journal's.
            halves = [left, *(words(self.entropy, len(parties)) for _ in programs[1:]), fresh]
            for each, before, after in zip(inputs, halves, halves[1:], strict=False):
                each |= {"left": before, "fresh": after}
        session = session_of(batch)
        return r.Compute(session, held.querier, PEER, programs, inputs, terms.timeout)

    # -- the end -----------------------------------------------------------------------------------

    def _on_computed(self, event: r.Computed) -> list[r.Action]:
        return []  # the querying party says when the outcome is stored

    def _on_broken(self, event: r.Broken) -> list[r.Action]:
        batch = event.session.partition(":")[0]
        self._forget(batch)
        return [r.Complain(PeerError(f"the decision of batch {batch} broke: {event.why}"))]

    def _hear_done(self, sender: str, done: m.Done) -> list[r.Action]:
        still = self._journal.open_batch(sender)
        if still is None or still.batch != done.batch:
            if self._journal.phase(done.batch) == DONE:
                raise m.RepeatedError(f"batch {done.batch} is already finished")
            raise PeerError(f"batch {done.batch} of {sender} is not being decided")
        self._journal.done(done.batch, done.version)
        self._forget(done.batch)
        return [r.Send(sender, QUERYING, m.Closed(done.batch))]

    def _on_lost(self, event: r.Lost) -> list[r.Action]:
        if event.role != ANSWERING:
            return []
        actions: list[r.Action] = []
        for batch, held in list(self._batches.items()):
            if event.peer in held.confirmed - set(held.masks):
                held.gone.add(event.peer)
                actions += self._decide_if_ready(batch, held)
        return actions

    def _late(self, timer: str) -> list[r.Action]:
        held = self._batches.get(timer)
        return [] if held is None or held.decided else self._decide(timer, held)

    def _held(self, batch: str) -> _Batch:
        if batch not in self._batches:
            phase = self._journal.phase(batch)
            known = "unknown" if phase is None else f"no longer open ({phase})"
            if phase == CHARGED:
                known = "charged, but closed by a restart: run the query again"
            raise PeerError(f"batch {batch} is {known}")
        held: _Batch = self._batches[batch]
        return held
