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
from .labelled import LabelledBatch
from .logs import WARNING, log
from .messages import QUERYING
from .parties import Party, ballot_programs, decision_programs, session_of, sliced
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
        self.journal = journal

    async def ask(self, rows: IntArray) -> LabelledBatch:
        """Have rows (queries, features) of whole numbers (:func:`.parties.batch_rows`) labelled.

        Raises
        ------
        PeerError, BudgetError
            There are no labels, and nothing was charged for these rows.
        ChargedError
            The batch is charged, or may be, and not finished: ask the same rows again.
        """
        journal, batch = self.journal, self.journal.digest(rows, self.terms)
        try:
            if journal.phase(batch) == STORED:
                log("delivered again", site=self.name, batch=batch[:12])
            else:
                await self._settle()
                if journal.phase(batch) != STORED:
                    await self._decide(batch, rows)
        except (PrivoteError, OSError, asyncio.CancelledError) as error:
            if journal.phase(batch) is None:
                if isinstance(error, asyncio.CancelledError):
                    raise PeerError("stopped before anything was charged") from None
                raise
            may = "may be" if journal.phase(batch) == REQUESTED else "is"
            raise ChargedError(
                f"the batch {may} charged and is not finished: {str(error) or 'it was stopped'}; "
                "run the same command again to finish it at no further charge"
            ) from error
        facts, labels = journal.stored(batch)
        own: dict[str, Any] = {"terms": self.terms, "querier": self.name, "batch": batch}
        return LabelledBatch(**own, **{**facts, "parties": tuple(facts["parties"])}, labels=labels)

    async def _decide(self, batch: str, rows: IntArray) -> None:
        """Ask, decide and store; every step is on disk before the next one."""
        terms, guardian = self.terms, self.terms.guardian
        Prices(terms).allowances(self.name)  # may take a while, and nobody waits yet
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
        ask = m.Decide(self.hello.terms, grant.run, tuple(ballots))
        ready = await self.call(guardian, ask, m.DecisionReady)
        parties = ready.parties
        if len({*parties} & {*ballots}) < max(len(parties), terms.minimum):
            raise PeerError("the batch would be decided with parties other than agreed")
        programs = decision_programs(terms, self.name, len(rows), parties)
        inputs = sliced(programs, self._inputs(ballots, parties))
        if terms.allowance:
            # At first nothing: the whole allowance is the guardian's half, as it was charged.
            # Later chunks go on from the one before.
            inputs[0]["left"] = to_words(self.journal.halves()[1], parties, {})
        session = session_of(grant.run)
        wire = await self.transport.open(guardian, session)
        outputs = await self.compute(session, wire, QUERIER, programs, inputs)
        share = np.concatenate([out["share"] for out in outputs])
        left = outputs[-1]["left"].tolist() if terms.allowance else []
        missing = [party for party in terms.voters(self.name) if party not in parties]
        facts = {
            "parties": parties,
            "left_out": {p: left_out.get(p, "its masks did not arrive") for p in missing},
            "resumed": grant.resumed,
            "simulated": self.entropy.simulated,
            "engine": self.engine.name,
        }
        half = dict(zip(parties, left, strict=False))
        self.journal.decided(batch, (grant.run, ready.version), half, facts, share)
        await self._open(batch, grant.run, share)

    async def _settle(self) -> None:
        """Open whatever was decided; what the guardian does not have is decided anew when asked."""
        for batch, run, share in self.journal.unsettled():
            try:
                await self._open(batch, run, share)
            except m.Undecided:
                self.journal.enter(batch, GRANTED)

    async def _open(self, batch: str, run: str, share: IntArray) -> None:
        """Have a decision committed, put its two shares together, and store the labels."""
        done = m.Done(self.hello.terms, run)
        theirs = await self.call(self.terms.guardian, done, m.OutcomeShare)
        if theirs.share.shape != share.shape:
            raise PeerError(f"the guardian's share must be {share.shape}, got {theirs.share.shape}")
        labels = share + theirs.share  # modulo 2^64
        if not np.isin(labels, (0, 1, ABSTAIN)).all():
            raise PeerError("the decision returned an invalid label")
        self.journal.store(batch, labels.astype(np.int8))

    # -- before the charge -------------------------------------------------------------------------

    async def _greet(self) -> dict[str, str]:
        """Say hello to everybody before anything is charged; returns why whom cannot take part."""

        async def greet(site: str) -> str | None:
            try:
                reply = await self.call(site, self.hello, m.Hello)
                return None if reply == self.hello else "it has other terms or another engine"
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
            rule = f"at least {self.terms.minimum} parties must answer"
            raise PeerError(f"{rule}, only {present} did ({reasons})")

    async def _request(self, batch: str, queries: int) -> m.Grant:
        """Have the batch charged, unless it was; on disk before and after."""
        guardian, terms = self.terms.guardian, self.hello.terms
        if self.journal.phase(batch) is None:
            self.journal.enter(batch, REQUESTED)
        ask = m.RequestBatch(terms, batch, queries, self.journal.halves()[0])
        try:
            grant = await self.call(guardian, ask, m.Grant)
        except BudgetError:
            self.journal.forget(batch)
            raise
        except PrivoteError:  # it may have been charged all the same
            status = await self.call(guardian, m.Status(terms, batch), m.BatchStatus)
            if status.state == UNKNOWN:
                self.journal.forget(batch)
            raise
        self.journal.enter(batch, GRANTED)
        return grant

    # -- ballots and the decision ------------------------------------------------------------------

    async def _ballots(self, party: str, run: str, rows: IntArray) -> Ballots | str:
        """Return shares of a party's ballots and the half of its noise; or why it is left out."""
        terms, session = self.terms, session_of(run, party)
        parts = terms.counted.parts
        try:
            async with self.slots:
                ask = m.RequestBallots(self.hello.terms, run, len(rows))
                ready = await self.call(party, ask, m.BallotsReady)
                shape = None if ready.noise is None else ready.noise.shape
                if shape != ((len(rows), parts * len(terms.labels)) if parts else None):
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
        counted = self.terms.counted
        shares = np.stack([ballots[party][0] for party in parties], axis=1)
        if not self.terms.allowance:
            shares = 2 * counted.steps * shares.sum(axis=1)  # modulo 2^64
        if counted.shared is None:
            return {"shares": shares}
        # Of nobody else: a half without its other half would drown the sum.
        halves = [noise for noise in (ballots[party][1] for party in parties) if noise is not None]
        return {"shares": shares, **counted.shared.gathered(halves)}
