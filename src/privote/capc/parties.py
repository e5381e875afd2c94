"""What the parties share: how they call and compute, and what both sides of a session build.

A party is a set of coroutines: ``handle_KIND`` answers a call, ``call`` makes one. What carries
calls and sessions is a :class:`Transport`: the network (:class:`privote.capc.network.Network`) or,
in one process, the handlers themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError
from . import messages as m
from .charges import Prices
from .engine import SecureEngine
from .logs import WARNING, log
from .messages import DECISION
from .models import quantise_rows
from .network import Link, Wire
from .programs import (
    PEER,
    QUERIER,
    AllowanceProgram,
    BallotProgram,
    DecisionProgram,
    IntArray,
    Program,
)
from .terms import Terms

Reply = TypeVar("Reply", bound=m.Message)
Inputs = Sequence[Mapping[str, IntArray]]


class Transport(Protocol):
    """How a party reaches the others."""

    async def call(self, to: str, message: m.Message, timeout: float) -> m.Message:
        """Return the reply of a site; its refusal is raised as the error that it stands for."""

    async def open(self, peer: str, session: str) -> Wire:
        """Open the stream of a session that the peer expects."""

    def expect(self, peer: str, session: str) -> asyncio.Future[Wire]:
        """Be ready for the stream of a session; the future gets it."""


class Party:
    """A site in one role.

    Parameters
    ----------
    name
        Of the site; the guardian's is in the terms.
    transport
        How it reaches the others.
    engine
        What computes secure sessions; everybody must use the same.
    entropy
        Where masks and noise come from; with a seed everything is stamped simulated.
    max_concurrent
        Secure sessions at a time on this machine.
    """

    role: str

    def __init__(
        self,
        terms: Terms,
        name: str,
        transport: Transport,
        engine: SecureEngine,
        entropy: Entropy | None = None,
        max_concurrent: int = 2,
    ) -> None:
        self.terms, self.name, self.transport, self.engine = terms, name, transport, engine
        self.entropy = Entropy() if entropy is None else entropy
        self.bytes = 0  # of all secure sessions, both ways
        self.hello = m.Hello(terms.digest(), engine.name)
        # A querier takes a slot before it asks, whoever serves it before the reply, and both then
        # compute at once: so nobody waits in a ring.
        self.slots = asyncio.Semaphore(max_concurrent)
        self._tasks: set[asyncio.Task[None]] = set()

    # -- calls -------------------------------------------------------------------------------------

    async def call(self, to: str, message: m.Message, kind: type[Reply]) -> Reply:
        """Return the reply of a site, which must be of that kind."""
        reply = await self.transport.call(to, message, self.terms.timeout)
        if not isinstance(reply, kind):
            raise PeerError(f"{to} must reply with {kind.__name__}, it sent {reply.kind!r}")
        return reply

    async def handle(self, caller: str, message: m.Message) -> m.Message:
        """Return the reply to a call; never raises what a peer could cause."""
        facts: dict[str, Any] = {"site": self.name, "caller": caller, "call": message.kind}
        try:
            handler = getattr(self, f"handle_{message.kind}", None)
            if handler is None:
                raise PeerError(f"the {self.role} party takes no call of kind {message.kind!r}")
            if isinstance(message, m.Request | m.Hello) and message.terms != self.hello.terms:
                digests = (
                    f"{message.terms[:12]} of {caller}, {self.hello.terms[:12]} of {self.name}"
                )
                raise PeerError(f"the terms differ (digests: {digests}): all sites need the same")
            reply: m.Message = await handler(caller, message)
        except PrivoteError as error:
            log("call refused", WARNING, **facts, why=m.printable(str(error)))
            return m.Refused.of(error)
        except Exception as error:  # its text may hold what nobody should see in a log
            log("call failed", WARNING, **facts, why=type(error).__name__)
            return m.Refused(f"{self.name} failed at {message.kind}")
        log("call answered", **facts)
        return reply

    async def handle_hello(self, caller: str, hello: m.Hello) -> m.Message:
        """Compare the engine, as the terms were."""
        if hello != self.hello:
            raise PeerError(f"{caller} must use engine {self.engine.name!r}, as {self.name} does")
        return self.hello

    def check_asker(self, querier: str, queries: int) -> None:
        """Refuse who may not ask, and batches that are too long."""
        if querier not in self.terms.queriers or querier == self.name:
            raise PeerError(f"{querier!r} is not registered as querying in this coalition")
        most = self.terms.most_queries
        if queries > most:
            raise PeerError(f"a batch must have at most {most} queries, got {queries}")

    # -- secure sessions ---------------------------------------------------------------------------

    async def compute(
        self, session: str, wire: Wire, side: str, programs: Sequence[Program], inputs: Inputs
    ) -> list[dict[str, IntArray]]:
        """Run programs with a peer; outputs for the querier, nothing for the peer.

        Raises
        ------
        SessionFailed
            The session ended without a result.
        """
        facts: dict[str, Any] = {"site": self.name, "session": session}
        clock, deadline = asyncio.get_running_loop().time, self.terms.timeout
        began = clock()
        try:
            async with Link(wire, first=side == QUERIER) as link:
                outputs = await self.engine.run(programs, side, inputs, link, deadline=deadline)
        except Exception as error:  # the text of other errors may hold what nobody should see
            why = str(error) if isinstance(error, PrivoteError) else type(error).__name__
            log("session failed", WARNING, **facts, why=m.printable(why))
            raise m.SessionFailed(why) from None
        self.bytes += link.bytes
        log("session computed", **facts, seconds=round(clock() - began, 2), bytes=link.bytes)
        return outputs or []

    async def serve(
        self, peer: str, session: str, programs: Sequence[Program], inputs: Inputs
    ) -> None:
        """Take a slot, and compute as the peer when the querier's stream comes; returns at once."""
        async with asyncio.timeout(self.terms.timeout):
            await self.slots.acquire()
        coming = self.transport.expect(peer, session)

        async def work() -> None:
            try:
                wire = await asyncio.wait_for(coming, self.terms.timeout)
                await self.compute(session, wire, PEER, programs, inputs)
            except TimeoutError:
                log("session never began", WARNING, site=self.name, session=session)
            except m.SessionFailed:
                pass  # it is logged; the querier knows
            finally:
                self.slots.release()

        task = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End all secure sessions."""
        for task in (tasks := [*self._tasks]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- what both sides of a session build from public numbers ----------------------------------------


def batch_rows(X: Any, terms: Terms) -> IntArray:
    """Return a batch's rows (queries, features) as the whole numbers that programs take."""
    rows = quantise_rows(X, features=terms.inputs, bound=terms.bound, bits=terms.bits)
    if not 1 <= len(rows) <= terms.most_queries:
        rule = f"must have 1 to {terms.most_queries} rows (most_queries of the terms)"
        raise InputError("X", rule, len(rows))
    return rows


def session_of(run: str, other: str = DECISION) -> str:
    """Return the id of the session in which a party's ballots are computed, or labels decided."""
    return f"{run}:{other}"


def sliced(
    programs: Sequence[Program], values: Mapping[str, IntArray]
) -> list[dict[str, IntArray]]:
    """Return the values of each program: those of the queries it takes."""
    ends = np.cumsum([program.rows for program in programs])
    return [
        {name: value[end - program.rows : end] for name, value in values.items()}
        for program, end in zip(programs, ends, strict=True)
    ]


def ballot_programs(terms: Terms, queries: int) -> list[BallotProgram]:
    """Return the programs of one party's ballots on a batch."""
    return BallotProgram(
        rows=1, features=terms.inputs, labels=len(terms.labels), weights=terms.counted.weights
    ).split(queries)


def decision_programs(
    terms: Terms, querier: str, queries: int, parties: tuple[str, ...]
) -> list[DecisionProgram] | list[AllowanceProgram]:
    """Return the programs that decide a batch; with allowances, what is left goes from one on."""
    labels, gated = len(terms.labels), terms.mechanism.gate is not None
    shared = terms.counted.shared is not None
    if not terms.allowance:
        return DecisionProgram(rows=1, labels=labels, gated=gated, shared=shared).split(queries)
    return AllowanceProgram(
        rows=1,
        parties=len(parties),
        voters=len(terms.voters(querier)),
        labels=labels,
        gated=gated,
        steps=terms.counted.steps if shared else None,
        grid=terms.counted.unit,
        by_ballot=terms.counted.by_ballot,
        charged=tuple(Prices(terms).allowance(party) for party in parties),
    ).split(queries)


def offset(terms: Terms, querier: str, parties: tuple[str, ...]) -> int:
    """Return what twice the yes-votes (or weights) of a label stand against.

    As the mechanisms tally: a missing vote is neither side for binary voting, and not a yes where
    a bar was placed, and for tau voting.
    """
    counting = parties if terms.counted.neutral else terms.voters(querier)
    return terms.counted.unit * len(counting)


def words(entropy: Entropy, *shape: int) -> IntArray:
    """Return uniform 64-bit words."""
    count = int(np.prod(shape))
    return np.frombuffer(entropy.bytes(8 * count), np.int64).reshape(shape).copy()
