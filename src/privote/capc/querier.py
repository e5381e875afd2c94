"""The querying party: asks, collects masked ballots, decides with the guardian, keeps labels.

A batch is known by the digest of its rows. Whatever becomes of this program, the same rows asked
again go on from where they were, at no further charge: granted, decided (this side's share of the
outcome is on disk) or stored.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from ..errors import BudgetError, ChargedError, InputError, PeerError, PrivoteError
from ..mechanisms import ABSTAIN
from . import messages as m
from .charges import UNKNOWN, Prices
from .journal import GRANTED, REQUESTED, STORED, QuerierJournal, to_words
from .logs import WARNING, log
from .messages import QUERYING
from .parties import LabelledBatch, Party, ballot_programs, decision_programs, session_of, sliced
from .programs import QUERIER, IntArray

Ballots = tuple[IntArray, IntArray | None]  # shares of them, and this side's half of the noise


class QueryingParty(Party):
    """Has batches labelled, one at a time.

    Parameters
    ----------
    journal
        Keeps the labels and this side's half of the running counts.
    """

    role = QUERYING

    def __init__(self, *args: Any, journal: QuerierJournal, **more: Any) -> None:
        super().__init__(*args, **more)
        if self.name not in self.terms.queriers:
            raise InputError("name", "must be a querying party of the coalition", self.name)
        self._journal = journal

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    async def ask(self, rows: IntArray) -> LabelledBatch:
        """Have rows (queries, features) of whole numbers (:func:`.parties.batch_rows`) labelled.

        Raises
        ------
        PeerError, BudgetError
            There are no labels, and nothing was charged for these rows.
        ChargedError
            The batch is charged, or may be, and not finished: ask the same rows again.
        """
        batch = self._journal.digest(rows, self.terms)
        if self._journal.phase(batch) == STORED:
            log("delivered again", site=self.name, batch=batch[:12])
            return self._stored(batch)
        Prices(self.terms).charged(self.name, len(rows))  # may take a while, and nobody waits yet
        try:
            await self._settle()
            if self._journal.phase(batch) != STORED:
                await self._decide(batch, rows)
            return self._stored(batch)
        except (PrivoteError, OSError, asyncio.CancelledError) as error:
            if self._journal.phase(batch) is None:
                raise
            may = "may be" if self._journal.phase(batch) == REQUESTED else "is"
            why = str(error) or "it was stopped"
            raise ChargedError(
                f"the batch {may} charged and is not finished: {why}; run the same command again "
                "to finish it at no further charge"
            ) from error

    async def _decide(self, batch: str, rows: IntArray) -> None:
        """Ask, decide and store; every step is on disk before the next one."""
        terms, guardian = self.terms, self.terms.guardian
        left_out = await self._greet()
        grant = await self._request(batch, len(rows))
        voters = [party for party in terms.voters(self.name) if party not in left_out]
        answers = await asyncio.gather(*(self._ballots(p, grant.run, rows) for p in voters))
        ballots: dict[str, Ballots] = {}
        for party, answer in zip(voters, answers, strict=True):
            if isinstance(answer, str):
                left_out[party] = answer
            else:
                ballots[party] = answer
        self._check_minimum(len(ballots), left_out)
        ask = m.Decide(self.digest, grant.run, tuple(ballots))
        ready = await self.call(guardian, ask, m.DecisionReady)
        if len({*ready.parties} & {*ballots}) < max(len(ready.parties), terms.minimum):
            raise PeerError("the batch would be decided with parties other than agreed")
        programs = decision_programs(terms, self.name, len(rows), ready.parties)
        inputs = sliced(programs, self._inputs(ballots, ready.parties))
        if terms.allowance:
            # At first nothing: the whole allowance is the guardian's half, as it was charged.
            # Later chunks go on from the one before.
            inputs[0]["left"] = to_words(self._journal.halves()[1], ready.parties, {})
        session = session_of(grant.run)
        wire = await self.transport.open(guardian, session)
        outputs = await self.compute(session, wire, QUERIER, programs, inputs)
        half: dict[str, int] = {}
        if terms.allowance:
            half = dict(zip(ready.parties, outputs[-1]["left"].tolist(), strict=True))
        share = np.concatenate([out["share"] for out in outputs])
        facts = self._facts(batch, ready.parties, left_out, resumed=grant.resumed)
        self._journal.decided(batch, (grant.run, ready.version), half, facts, share)
        await self._open(batch, grant.run, share)

    async def _settle(self) -> None:
        """Open whatever was decided; what the guardian does not have is decided anew when asked."""
        for batch, run, share in self._journal.unsettled():
            try:
                await self._open(batch, run, share)
            except m.Undecided:
                self._journal.enter(batch, GRANTED)

    async def _open(self, batch: str, run: str, share: IntArray) -> None:
        """Have a decision committed, put its two shares together, and store the labels."""
        done = m.Done(self.digest, run)
        theirs = await self.call(self.terms.guardian, done, m.OutcomeShare)
        if theirs.share.shape != share.shape:
            raise PeerError(f"the guardian's share must be {share.shape}, got {theirs.share.shape}")
        labels = share + theirs.share  # modulo 2^64
        if not np.isin(labels, (0, 1, ABSTAIN)).all():
            raise PeerError("the decision returned an invalid label")
        self._journal.store(batch, labels.astype(np.int8))

    # -- before the charge -------------------------------------------------------------------------

    async def _greet(self) -> dict[str, str]:
        """Say hello to everybody before anything is charged; returns why whom cannot take part."""

        async def greet(site: str) -> str | None:
            try:
                reply = await self.call(site, self.hello(), m.Hello)
                return None if reply == self.hello() else "it has other terms or another engine"
            except PrivoteError as error:
                log("site left out", WARNING, site=self.name, peer=site, why=str(error))
                if site == self.terms.guardian:
                    raise
                return str(error)

        voters = self.terms.voters(self.name)
        _, *said = await asyncio.gather(*map(greet, (self.terms.guardian, *voters)))
        left_out = {site: why for site, why in zip(voters, said, strict=True) if why is not None}
        self._check_minimum(len(voters) - len(left_out), left_out)
        return left_out

    def _check_minimum(self, present: int, left_out: dict[str, str]) -> None:
        if present < self.terms.minimum:
            reasons = "; ".join(f"{site}: {why}" for site, why in left_out.items())
            raise PeerError(
                f"only {present} of {present + len(left_out)} parties answered, at least "
                f"{self.terms.minimum} are required ({reasons})"
            )

    async def _request(self, batch: str, queries: int) -> m.Grant:
        """Have the batch charged, unless it was; on disk before and after."""
        guardian = self.terms.guardian
        if self._journal.phase(batch) is None:
            self._journal.enter(batch, REQUESTED)
        ask = m.RequestBatch(self.digest, batch, queries, self._journal.halves()[0])
        try:
            grant = await self.call(guardian, ask, m.Grant)
        except BudgetError:
            self._journal.forget(batch)
            raise
        except PrivoteError:  # it may have been charged all the same
            status = m.Status(self.digest, batch)
            if (await self.call(guardian, status, m.BatchStatus)).state == UNKNOWN:
                self._journal.forget(batch)
            raise
        self._journal.enter(batch, GRANTED)
        return grant

    # -- ballots and the decision ------------------------------------------------------------------

    async def _ballots(self, party: str, run: str, rows: IntArray) -> Ballots | str:
        """Return shares of a party's ballots and the half of its noise; or why it is left out."""
        terms, session = self.terms, session_of(run, party)
        try:
            async with self.slots:
                ask = m.RequestBallots(self.digest, run, len(rows))
                ready = await self.call(party, ask, m.BallotsReady)
                wanted = (len(rows), terms.parts * len(terms.labels)) if terms.parts else None
                if wanted != (None if ready.noise is None else ready.noise.shape):
                    raise PeerError("its noise does not match the terms")
                programs = ballot_programs(terms, len(rows))
                inputs = sliced(programs, {"x": rows})
                wire = await self.transport.open(party, session)
                outputs = await self.compute(session, wire, QUERIER, programs, inputs)
        except PeerError as error:
            log("site left out", WARNING, site=self.name, peer=party, why=str(error))
            return str(error)
        return np.concatenate([out["share"] for out in outputs]), ready.noise

    def _inputs(self, ballots: dict[str, Ballots], parties: tuple[str, ...]) -> dict[str, IntArray]:
        """Return this side's inputs of the decision that are cut by queries."""
        terms = self.terms
        shares = np.stack([ballots[party][0] for party in parties], axis=1)
        if not terms.allowance:
            shares = 2 * terms.steps * shares.sum(axis=1)  # modulo 2^64
        if terms.shared is None:
            return {"shares": shares}
        # Of nobody else: a half without its other half would drown the sum.
        halves = [noise for noise in (ballots[party][1] for party in parties) if noise is not None]
        return {"shares": shares, **terms.shared.gathered(halves)}

    # -- what is taken home ------------------------------------------------------------------------

    def _facts(
        self, batch: str, parties: tuple[str, ...], left_out: dict[str, str], *, resumed: bool
    ) -> dict[str, Any]:
        terms = self.terms
        return {
            "batch": batch,
            "parties": parties,
            "voters": len(terms.voters(self.name)),
            "left_out": {
                party: left_out.get(party, "its masks did not reach the guardian")
                for party in terms.voters(self.name)
                if party not in parties
            },
            **{name: getattr(terms, name) for name in ("epsilon", "delta", "guarantee")},
            "resumed": resumed,
            "simulated": self.entropy.simulated,
            "engine": self.engine.name,
        }

    def _stored(self, batch: str) -> LabelledBatch:
        facts, labels = self._journal.stored(batch)
        return LabelledBatch(labels=labels, **{**facts, "parties": tuple(facts["parties"])})
