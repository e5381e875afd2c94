"""The answering party: has a model, lends it to batches that were charged, learns nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..entropy import Entropy
from ..errors import InputError, PeerError
from . import messages as m
from . import roles as r
from .messages import ANSWERING, GUARDIAN, QUERYING
from .models import SiteModel, quantise_model
from .programs import PEER, IntArray
from .roles import Role, ballot_programs, session_of, sliced, words
from .terms import Terms


@dataclass
class _Batch:
    querier: str
    queries: int
    masks: IntArray | None = None  # of ballots; to the right of them the guardian's half of noise


class AnsweringParty(Role):
    """Answers batches: confirmed by the guardian, computed with the querying party, masked.

    It sees who asks and how many queries. Ballots leave it only under masks that go to the
    guardian, and it does not learn them either.

    Parameters
    ----------
    model
        As its site trained it; what a ballot program takes of it are whole numbers.
    """

    role = ANSWERING

    def __init__(
        self, terms: Terms, name: str, model: SiteModel, engine: str, entropy: Entropy | None = None
    ) -> None:
        super().__init__(terms, name, engine, entropy)
        if name not in terms.parties:
            raise InputError("name", "must be an answering party of the coalition", name)
        if model.labels != terms.labels:
            rule = f"must have the labels of the terms, in order: {', '.join(terms.labels)}"
            raise InputError("model", rule, ", ".join(model.labels))
        if model.features != terms.features:
            raise InputError("model", f"must have {terms.features} features", model.features)
        self._model = quantise_model(model, bound=terms.bound, bits=terms.bits)
        # Confirmed ones only: others cost whoever names them nothing, and there may be many.
        self._seen: set[str] = set()

    def _greeted_by(self, sender: str, hello: m.Hello) -> list[r.Action]:
        if hello.role == QUERYING:
            return [r.Send(sender, QUERYING, self._hello())]
        if hello.role != GUARDIAN:
            raise PeerError(f"{sender} must not connect to {self.name} as {hello.role}")
        return [self._confirm(batch) for batch, held in self._batches.items() if held.masks is None]

    def _hear_answer(self, sender: str, answer: m.Answer) -> list[r.Action]:
        terms = self.terms
        if sender == self.name:
            raise PeerError(f"{sender} cannot ask itself")
        self._check_queries(answer.queries)
        if answer.batch in self._seen or answer.batch in self._batches:
            raise m.RepeatedError(f"batch {answer.batch} was already asked")
        self._forget_all_of(sender)
        self._batches[answer.batch] = _Batch(sender, answer.queries)
        self.timers.set(answer.batch, terms.timeout)
        if (terms.guardian, GUARDIAN) in self._greeted:
            return [self._confirm(answer.batch)]
        return [r.Send(terms.guardian, GUARDIAN, self._hello())]

    def _confirm(self, batch: str) -> r.Send:
        held = self._batches[batch]
        message = m.Confirm(batch, held.querier, held.queries)
        return r.Send(self.terms.guardian, GUARDIAN, message)

    def _hear_confirmed(self, sender: str, confirmed: m.Confirmed) -> list[r.Action]:
        held = self._held(confirmed.batch)
        if (confirmed.querier, confirmed.queries) != (held.querier, held.queries):
            raise PeerError(f"batch {confirmed.batch} was confirmed for somebody else's queries")
        if held.masks is not None:
            raise m.RepeatedError(f"batch {confirmed.batch} was already confirmed")
        self._seen.add(confirmed.batch)
        self.timers.drop(confirmed.batch)
        labels = len(self.terms.labels)
        held.masks = words(self.entropy, held.queries, labels * (1 + self.terms.parts))
        programs = ballot_programs(self.terms, held.queries)
        mask = {"mask": held.masks[:, :labels]}
        willing = m.Willing(confirmed.batch, self._noise(held, held.masks[:, labels:]))
        return [
            r.Send(held.querier, QUERYING, willing),
            r.Compute(
                session_of(confirmed.batch, self.name),
                held.querier,
                PEER,
                programs,
                [{**self._model, **mask} for mask in sliced(programs, mask)],
                self.terms.timeout,
            ),
        ]

    def _noise(self, held: _Batch, half: IntArray) -> IntArray | None:
        """Draw this party's share of the noise, and return what the given half leaves of it."""
        noise, voters = self.terms.shared, len(self.terms.voters(held.querier))
        if noise is None:
            return None
        share = noise.draw(voters, held.queries, len(self.terms.labels), self.entropy)
        return np.asarray(share - half)  # modulo 2^64: either half alone is uniform

    def _on_computed(self, event: r.Computed) -> list[r.Action]:
        batch = event.session.partition(":")[0]
        held = self._batches.get(batch)
        if held is None or held.masks is None:
            return []  # given up in the meantime
        self._forget(batch)  # if they do not arrive, the guardian decides without this party
        return [r.Send(self.terms.guardian, GUARDIAN, m.Masks(batch, held.masks))]

    def _on_broken(self, event: r.Broken) -> list[r.Action]:
        batch = event.session.partition(":")[0]
        held = self._batches.get(batch)
        if held is None:
            return []
        self._forget(batch)
        error = PeerError(f"the computation with {held.querier} broke: {event.why}")
        return [
            r.Send(self.terms.guardian, GUARDIAN, m.Refused.of(batch, error)),
            r.Complain(error),
        ]

    def _hear_refused(self, sender: str, refused: m.Refused) -> list[r.Action]:
        error = refused.error(sender)
        if sender != self.terms.guardian:
            return [r.Complain(error)]
        # Without a batch the greeting itself was refused: nothing can be confirmed.
        batches = list(self._batches) if refused.batch is None else [refused.batch]
        return [r.Complain(error), *self._give_up(batches, f"{sender} refused: {refused.why}")]

    def _on_lost(self, event: r.Lost) -> list[r.Action]:
        self._greeted.pop((event.peer, event.role), None)
        if event.role == GUARDIAN:
            return self._give_up(list(self._batches), f"{event.peer} cannot be reached")
        for batch in [b for b, held in self._batches.items() if held.querier == event.peer]:
            if self._batches[batch].masks is None:
                self._forget(batch)
        return []

    def _late(self, timer: str) -> list[r.Action]:
        return self._give_up([timer], f"{self.terms.guardian} did not respond in time")

    def _give_up(self, batches: list[str], why: str) -> list[r.Action]:
        actions: list[r.Action] = []
        for batch in batches:
            held = self._batches.get(batch)
            if held is not None:
                error = PeerError(f"{self.name} cannot answer: {why}")
                actions += self._refused_batch(held.querier, batch, error)
        return actions

    def _held(self, batch: str) -> _Batch:
        if batch not in self._batches:
            raise PeerError(f"batch {batch} is not known here")
        held: _Batch = self._batches[batch]
        return held
