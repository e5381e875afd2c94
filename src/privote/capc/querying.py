"""The querying party: asks, collects masked ballots, decides with the guardian, keeps labels."""

from __future__ import annotations

import secrets
from collections import deque

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, LedgerError, PeerError, PrivoteError
from ..mechanisms import ABSTAIN
from . import messages as m
from . import roles as r
from .charges import Prices
from .journal import QuerierJournal, to_words
from .messages import ANSWERING, DECISION, GUARDIAN, QUERYING
from .programs import QUERIER, IntArray
from .roles import LabelledBatch, Role, ballot_programs, decision_programs, session_of, sliced
from .terms import Terms

_WAITING, _ASKING, _CHOSEN, _STORED, _OVER = "waiting", "asking", "chosen", "stored", "over"


class QueryingParty(Role):
    """Asks one batch, and ends with its labels (Finish) or an error (Fail).

    Parameters
    ----------
    rows
        (queries, features) of whole numbers (:func:`.batches.batch_rows`).
    journal
        Keeps the labels and this side's half of the running counts.
    abreast
        With how many answering parties to compute at a time.
    """

    role = QUERYING

    def __init__(
        self,
        terms: Terms,
        name: str,
        rows: IntArray,
        journal: QuerierJournal,
        engine: str,
        entropy: Entropy | None = None,
        *,
        abreast: int = 2,
    ) -> None:
        super().__init__(terms, name, engine, entropy)
        if name not in terms.queriers:
            raise InputError("name", "must be a querying party of the coalition", name)
        self.rows = rows
        self._journal, self._abreast = journal, max(1, abreast)
        self._stage, self._nonce = _WAITING, secrets.token_hex(16)
        self._grant: m.Grant | None = None
        self._waiting: deque[str] = deque()
        self._busy: set[str] = set()
        self._shares: dict[str, IntArray] = {}
        self._noise: dict[str, IntArray] = {}  # this side's halves
        self._out: dict[str, str] = {}
        self._ready: m.Ready | None = None
        self._labelled: LabelledBatch | None = None

    @property
    def _batch(self) -> str:
        assert self._grant is not None
        return self._grant.batch

    def start(self) -> list[r.Action]:
        """Greet the guardian."""
        # Prices may take a while, and nobody is waiting yet.
        Prices(self.terms).charged(self.name, len(self.rows))
        self.timers.set(GUARDIAN, self.terms.timeout)
        return [r.Send(self.terms.guardian, GUARDIAN, self._hello())]

    def on(self, event: r.Event) -> list[r.Action]:
        """Return what to do about an event; nothing once the batch is over."""
        return [] if self._stage == _OVER else super().on(event)

    def _greeted_by(self, sender: str, hello: m.Hello) -> list[r.Action]:
        if hello.role == ANSWERING:
            if sender not in self._busy or self._stage != _ASKING:
                raise PeerError(f"{sender} was not greeted")
            return [r.Send(sender, ANSWERING, m.Answer(self._batch, len(self.rows)))]
        if self._stage != _WAITING or self._grant is not None:
            return []
        pending = self._journal.pending()
        resume = pending[0] if pending is not None and pending[1] == len(self.rows) else None
        self.timers.set(GUARDIAN, self.terms.timeout)
        version = self._journal.version()
        ask = m.Ask(len(self.rows), version, self._nonce, resume)
        return [r.Send(self.terms.guardian, GUARDIAN, ask)]

    # -- ballots -----------------------------------------------------------------------------------

    def _hear_grant(self, sender: str, grant: m.Grant) -> list[r.Action]:
        if self._stage != _WAITING or grant.nonce != self._nonce:
            raise PeerError(f"batch {grant.batch} was not asked for")
        if grant.queries != len(self.rows):
            raise PeerError(f"{grant.queries} queries were granted, {len(self.rows)} asked for")
        # Before anything else happens for it: a crash from here on can be resumed.
        self._journal.begin(grant.batch, grant.queries)
        self.timers.drop(GUARDIAN)
        self._grant, self._stage = grant, _ASKING
        self._waiting.extend(self.terms.voters(self.name))
        return self._next()

    def _next(self) -> list[r.Action]:
        """Turn to the next parties; with all of them heard, to the decision."""
        actions: list[r.Action] = []
        while self._waiting and len(self._busy) < self._abreast:
            party = self._waiting.popleft()
            self._busy.add(party)
            self.timers.set(party, self.terms.timeout)
            actions.append(r.Send(party, ANSWERING, self._hello()))
        if actions or self._busy:
            return actions
        minimum = self.terms.minimum
        if len(self._shares) < minimum:
            return self._fail(
                PeerError(
                    f"only {len(self._shares)} of {len(self._out) + len(self._shares)} parties "
                    f"answered, at least {minimum} are required; the charge remains; resume the "
                    "batch"
                )
            )
        self._stage = _CHOSEN
        # The guardian may wait once as long for masks that are on their way.
        self.timers.set(GUARDIAN, 2 * self.terms.timeout)
        parties = tuple(p for p in self.terms.voters(self.name) if p in self._shares)
        decide = m.Decide(self._batch, parties, self._journal.version())
        return [r.Send(self.terms.guardian, GUARDIAN, decide)]

    def _hear_willing(self, sender: str, willing: m.Willing) -> list[r.Action]:
        self._check_batch(willing.batch)
        if self._stage != _ASKING or sender not in self._busy:
            raise PeerError(f"{sender} was not asked for batch {willing.batch}")
        if sender not in self.timers:
            raise m.RepeatedError(f"{sender} was willing to answer batch {willing.batch} before")
        wanted = (len(self.rows), self.terms.parts * len(self.terms.labels))
        if (wanted if self.terms.parts else None) != getattr(willing.noise, "shape", None):
            return self._leave_out(sender, "its noise does not match the terms")
        if willing.noise is not None:
            self._noise[sender] = willing.noise
        self.timers.drop(sender)
        programs = ballot_programs(self.terms, len(self.rows))
        inputs = sliced(programs, {"x": self.rows})
        session = session_of(self._batch, sender)
        return [r.Compute(session, sender, QUERIER, programs, inputs, self.terms.timeout)]

    def _leave_out(self, party: str, why: str) -> list[r.Action]:
        if party not in self._busy:
            return []
        self._busy.discard(party)
        self.timers.drop(party)
        self._out[party] = why
        return [r.Complain(PeerError(f"{party} is left out: {why}")), *self._next()]

    # -- sessions ----------------------------------------------------------------------------------

    def _on_computed(self, event: r.Computed) -> list[r.Action]:
        batch, _, other = event.session.partition(":")
        if self._grant is None or batch != self._batch or event.outputs is None:
            return []
        if other == DECISION:
            return self._store(event) if self._ready is not None else []
        if other not in self._busy:
            return []
        self._busy.discard(other)
        self._shares[other] = np.concatenate([out["share"] for out in event.outputs])
        return self._next()

    def _on_broken(self, event: r.Broken) -> list[r.Action]:
        other = event.session.partition(":")[2]
        if event.session == session_of(self._batch):
            return self._fail(
                PeerError(
                    f"the decision with {self.terms.guardian} failed: {event.why}; the charge "
                    "remains, and this batch cannot be decided again"
                )
            )
        return self._leave_out(other, event.why)

    # -- the decision ------------------------------------------------------------------------------

    def _hear_ready(self, sender: str, ready: m.Ready) -> list[r.Action]:
        self._check_batch(ready.batch)
        if self._stage != _CHOSEN or self._ready is not None:
            raise PeerError(f"batch {ready.batch} was not submitted for a decision")
        if set(ready.parties) - set(self._shares) or len(ready.parties) < self.terms.minimum:
            raise PeerError(f"batch {ready.batch} would be decided with parties other than agreed")
        try:
            self._journal.deciding(ready.batch, ready.version)
        except PrivoteError as error:
            return self._fail(error)
        self.timers.drop(GUARDIAN)
        self._ready = ready
        return [self._decision(ready)]

    def _decision(self, ready: m.Ready) -> r.Compute:
        terms = self.terms
        shares = np.stack([self._shares[party] for party in ready.parties], axis=1)
        if not terms.allowance:
            shares = 2 * terms.steps * shares.sum(axis=1)  # modulo 2^64
        values = {"shares": shares}
        if terms.shared is not None:
            # Of nobody else: a half without its other half would drown the sum.
            values |= terms.shared.gathered(self._noise[party] for party in ready.parties)
        programs = decision_programs(terms, self.name, len(self.rows), ready.parties)
        inputs = sliced(programs, values)
        if terms.allowance:
            # At first nothing: the whole allowance is the guardian's half, as it was charged.
            # Later chunks go on from the one before.
            inputs[0]["left"] = to_words(self._journal.half(), ready.parties, 0)
        session = session_of(self._batch)
        return r.Compute(session, terms.guardian, QUERIER, programs, inputs, terms.timeout)

    def _store(self, event: r.Computed) -> list[r.Action]:
        """Keep labels and counts on disk, both or neither, before anybody is told."""
        assert event.outputs is not None
        assert self._ready is not None
        ready = self._ready
        labels = np.concatenate([out["label"] for out in event.outputs])
        if not np.isin(labels, (0, 1, ABSTAIN)).all():
            return self._fail(PeerError("the decision returned an invalid label"))
        half: dict[str, int] = {}
        if self.terms.allowance:
            last = np.asarray(event.outputs[-1]["left"], np.int64).tolist()
            half = dict(zip(ready.parties, last, strict=True))
        labelled = self._result(labels.astype(np.int8), ready)
        try:
            self._journal.store(ready.batch, ready.version, labelled.labels, half, labelled.facts())
        except PrivoteError as error:
            return self._fail(error)
        self._labelled, self._stage = labelled, _STORED
        self.timers.set(GUARDIAN, self.terms.timeout)
        return [r.Send(self.terms.guardian, GUARDIAN, m.Done(ready.batch, ready.version))]

    def _result(self, labels: npt.NDArray[np.int8], ready: m.Ready) -> LabelledBatch:
        assert self._grant is not None
        others = {
            party: self._out.get(party, "its masks did not reach the guardian")
            for party in self.terms.voters(self.name)
            if party not in ready.parties
        }
        return LabelledBatch(
            batch=ready.batch,
            labels=labels,
            parties=ready.parties,
            voters=len(self.terms.voters(self.name)),
            left_out=others,
            epsilon=self.terms.epsilon,
            delta=self.terms.delta,
            guarantee=self.terms.guarantee,
            resumed=self._grant.resumed,
            simulated=self.entropy.simulated,
            engine=self.engine,
        )

    def _hear_closed(self, sender: str, closed: m.Closed) -> list[r.Action]:
        self._check_batch(closed.batch)
        if self._stage != _STORED:
            raise PeerError(f"batch {closed.batch} was closed too early")
        return self._finish()

    def _finish(self) -> list[r.Action]:
        self._stage = _OVER
        self.timers.drop(GUARDIAN)
        return [r.Finish(self._labelled)]

    # -- what goes wrong ---------------------------------------------------------------------------

    def _hear_refused(self, sender: str, refused: m.Refused) -> list[r.Action]:
        if sender != self.terms.guardian:
            return self._leave_out(sender, refused.why)
        error = refused.error(sender)
        told: list[r.Action] = [r.Complain(error)] if self._stage == _STORED else []
        return [*told, *self._without_guardian(error)]

    def _on_failed(self, sender: str, message: m.Message, error: PrivoteError) -> list[r.Action]:
        actions = super()._on_failed(sender, message, error)
        if isinstance(error, m.RepeatedError):
            return actions
        if isinstance(message, m.Hello | m.Willing) and sender != self.terms.guardian:
            # Greeted as it should not be, or with other terms: it cannot take part.
            return [*actions, *self._leave_out(sender, str(error))]
        broken = isinstance(error, LedgerError)  # our own journal
        if broken or (isinstance(message, m.Hello) and message.role == GUARDIAN):
            return [*actions, *self._fail(error)]
        return actions

    def _on_trouble(self, error: PrivoteError) -> list[r.Action]:
        return self._fail(error)  # nobody else would end it

    def _on_lost(self, event: r.Lost) -> list[r.Action]:
        if event.role == ANSWERING:
            self._greeted.pop((event.peer, event.role), None)
            # A session under way ends by itself, well or not.
            asked = event.peer in self.timers
            return self._leave_out(event.peer, "it cannot be reached") if asked else []
        return self._late(GUARDIAN) if event.peer == self.terms.guardian else []

    def _late(self, timer: str) -> list[r.Action]:
        if timer != GUARDIAN:
            return self._leave_out(timer, f"it did not answer within {self.terms.timeout:g} s")
        error = PeerError(f"{self.terms.guardian} cannot be reached or did not answer")
        return self._without_guardian(error)

    def _without_guardian(self, error: PrivoteError) -> list[r.Action]:
        """Once stored, the labels are ours; the guardian settles the rest at the next batch."""
        return self._finish() if self._stage == _STORED else self._fail(error)

    def _fail(self, error: PrivoteError) -> list[r.Action]:
        self._stage = _OVER
        return [r.Fail(error)]

    def _check_batch(self, batch: str) -> None:
        if self._grant is None or batch != self._batch:
            raise PeerError(f"batch {batch} is not the one being asked")
