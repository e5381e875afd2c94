"""The answering party: lends its model to runs that were charged, and learns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError, PeerError
from . import messages as m
from .messages import ANSWERING
from .models import SiteModel, quantise_model
from .parties import Party, ballot_programs, session_of, sliced, words
from .programs import IntArray


class AnsweringParty(Party):
    """Answers runs: confirmed by the guardian, computed with the querying party, masked.

    It sees who asks and how many queries. Ballots leave it only under masks that go to the
    guardian, and it does not learn them either.

    Parameters
    ----------
    model
        As its site trained it; what a ballot program takes of it are whole numbers.
    """

    role = ANSWERING

    def __init__(self, *args: Any, model: SiteModel, **more: Any) -> None:
        super().__init__(*args, **more)
        terms = self.terms
        if self.name not in terms.parties:
            raise InputError("name", "must be an answering party of the coalition", self.name)
        if model.labels != terms.labels:
            rule = f"must have the labels of the terms, in order: {', '.join(terms.labels)}"
            raise InputError("model", rule, ", ".join(model.labels))
        if model.features != terms.inputs:
            raise InputError("model", f"must have {terms.inputs} features", model.features)
        self._model = quantise_model(model, bound=terms.bound, bits=terms.bits)

    async def handle_request_ballots(self, caller: str, ask: m.RequestBallots) -> m.Message:
        """Have the guardian confirm a run, then be ready to compute its ballots.

        The masks, and the guardian's half of the noise, go to the guardian first: it takes them
        once for a run that was charged, so no run is answered twice.
        """
        self.check_asker(caller, ask.queries)
        terms, labels = self.terms, len(self.terms.labels)
        # Masks do not depend on anything, so they may leave before it is known who asks.
        masks = words(self.entropy, ask.queries, labels * (1 + terms.counted.parts))
        deposit = m.Masks(self.hello.terms, ask.run, caller, ask.queries, masks)
        reply = await self.call(terms.guardian, deposit, m.Confirmed)
        if reply.run != ask.run:
            raise PeerError(f"{terms.guardian} confirmed another run")
        programs = ballot_programs(terms, ask.queries)
        inputs = [{**self._model, **part} for part in sliced(programs, {"mask": masks[:, :labels]})]
        noise = self._noise(caller, masks[:, labels:])
        await self.serve(caller, session_of(ask.run, self.name), programs, inputs)
        return m.BallotsReady(noise)

    def _noise(self, querier: str, half: IntArray) -> IntArray | None:
        """Draw this party's share of the noise, and return what the other half leaves of it."""
        noise, voters = self.terms.counted.shared, len(self.terms.voters(querier))
        if noise is None:
            return None
        share = noise.draw(voters, len(half), len(self.terms.labels), self.entropy)
        return np.asarray(share - half)  # modulo 2^64: either half alone is uniform
