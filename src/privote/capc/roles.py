"""What the three roles share: events in, actions out, a greeting first, timers, batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError
from . import messages as m
from .charges import Prices
from .messages import ANSWERING, DECISION, GUARDIAN, QUERYING
from .models import quantise_rows
from .programs import AllowanceProgram, BallotProgram, DecisionProgram, IntArray, Program
from .terms import Terms

Values = Mapping[str, IntArray]
CLEAR = "clear"  # the engine of a simulation: it hides nothing

# -- events -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """A message came; ``sender`` is who its certificate says, never what a message says."""

    sender: str
    message: m.Message


@dataclass(frozen=True)
class Computed:
    """A session ended well; outputs for the querier, None for the peer."""

    session: str
    outputs: Sequence[Values] | None


@dataclass(frozen=True)
class Broken:
    """A session failed; every Compute ends in exactly one of Computed and Broken."""

    session: str
    why: str


@dataclass(frozen=True)
class Lost:
    """A peer cannot be reached, or its connection in this role ended."""

    peer: str
    role: str


@dataclass(frozen=True)
class Tick:
    """Time passes; ``now`` in seconds of any steady clock."""

    now: float


Event = Received | Computed | Broken | Lost | Tick

# -- actions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to the program of site ``to`` that acts in ``role``."""

    to: str
    role: str
    message: m.Message


@dataclass(frozen=True)
class Compute:
    """Run programs with a peer; both sides ask for it with the same session and programs.

    ``seconds`` is how long the whole session may take, waiting for the peer included.
    """

    session: str
    peer: str
    side: str
    programs: Sequence[Program]
    inputs: Sequence[Values]
    seconds: float


@dataclass(frozen=True)
class Finish:
    """The role reached what it was started for."""

    result: Any


@dataclass(frozen=True)
class Fail:
    """The role cannot go on."""

    error: PrivoteError


@dataclass(frozen=True)
class Complain:
    """Something went wrong with a peer or a batch; the role goes on. For the log."""

    error: PrivoteError


Action = Send | Compute | Finish | Fail | Complain


@dataclass
class Timers:
    """What to do if something has not happened in time; the clock is whatever Tick says."""

    _waiting: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    _now: float | None = None

    def set(self, name: str, seconds: float) -> None:
        """Start, or start again, a timer; before the first Tick it waits for that."""
        self._waiting[name] = (seconds, None if self._now is None else self._now + seconds)

    def drop(self, name: str) -> None:
        """Forget a timer."""
        self._waiting.pop(name, None)

    def __contains__(self, name: str) -> bool:
        """Return whether a timer runs."""
        return name in self._waiting

    def tick(self, now: float) -> list[str]:
        """Return, and forget, the timers that ran out."""
        self._now = now
        self._waiting = {
            name: (seconds, now + seconds if until is None else until)
            for name, (seconds, until) in self._waiting.items()
        }
        over = [name for name, (_, until) in self._waiting.items() if until is None or until <= now]
        for name in over:
            self.drop(name)
        return over


class Role(ABC):
    """A state machine of the protocol: ``_on_EVENT`` for events, ``_hear_KIND`` for messages.

    Parameters
    ----------
    name
        Of the site; the guardian's is in the terms.
    engine
        The secure engine's name; everybody must use the same.
    entropy
        Where masks and noise come from; with a seed everything is stamped simulated.
    """

    role: str

    def __init__(self, terms: Terms, name: str, engine: str, entropy: Entropy | None) -> None:
        self.terms, self.name, self.engine = terms, name, engine
        self.entropy = Entropy() if entropy is None else entropy
        self.timers = Timers()
        self._greeted: dict[tuple[str, str], m.Hello] = {}
        self._batches: dict[str, Any] = {}  # what this role holds of batches that are not over

    def start(self) -> list[Action]:
        """Return what to do first."""
        return []

    def on(self, event: Event) -> list[Action]:
        """Return what to do about an event. Never raises what a peer could cause."""
        react: Callable[[Any], list[Action]] = getattr(self, f"_on_{type(event).__name__.lower()}")
        try:
            return react(event)
        except PrivoteError as error:
            return self._on_trouble(error)

    def _on_tick(self, event: Tick) -> list[Action]:
        return [action for name in self.timers.tick(event.now) for action in self._late(name)]

    # -- what each role defines ------------------------------------------------------------------

    @abstractmethod
    def _late(self, timer: str) -> list[Action]: ...

    @abstractmethod
    def _on_computed(self, event: Computed) -> list[Action]: ...

    @abstractmethod
    def _on_broken(self, event: Broken) -> list[Action]: ...

    @abstractmethod
    def _on_lost(self, event: Lost) -> list[Action]: ...

    @abstractmethod
    def _greeted_by(self, sender: str, hello: m.Hello) -> list[Action]:
        """Go on after a greeting that fits."""

    def _on_trouble(self, error: PrivoteError) -> list[Action]:
        """Go on after something went wrong that no message is refused for."""
        return [Complain(error)]

    def _on_failed(self, sender: str, message: m.Message, error: PrivoteError) -> list[Action]:
        """Refuse a message: the sender is told, and so is this side."""
        refusal = m.Refused.of(getattr(message, "batch", None), error)
        return [Send(sender, self._role_of(sender, message), refusal), Complain(error)]

    # -- shared ----------------------------------------------------------------------------------

    def _on_received(self, event: Received) -> list[Action]:
        sender, message = event.sender, event.message
        if isinstance(message, m.Refused) and message.code == "repeated":
            return [Complain(message.error(sender))]  # the first of the two is under way
        try:
            hear: Callable[[str, m.Message], list[Action]] | None = getattr(
                self, f"_hear_{message.kind}", None
            )
            if hear is None:
                raise PeerError(f"{self.role} role takes no message of kind {message.kind!r}")
            if not isinstance(message, m.Hello | m.Refused):
                self._check_greeted(sender, message)
            return hear(sender, message)
        except PrivoteError as error:
            if isinstance(message, m.Refused):  # two parties must not refuse each other for ever
                return [Complain(error)]
            return self._on_failed(sender, message, error)

    def _hello(self) -> m.Hello:
        return m.Hello(self.terms.digest(), self.engine, self.role)

    def _hear_hello(self, sender: str, hello: m.Hello) -> list[Action]:
        self._greeted.pop((sender, hello.role), None)
        if hello.coalition != self.terms.digest():
            raise PeerError(
                f"{sender} has different terms of the coalition (digest {hello.coalition[:12]}) "
                f"than {self.name} (digest {self.terms.digest()[:12]}): all sites need the same"
            )
        if hello.engine != self.engine:
            raise PeerError(f"{sender} uses engine {hello.engine!r}, {self.name} {self.engine!r}")
        if not self.terms.may_be(sender, hello.role):
            raise PeerError(f"{sender!r} is not registered as {hello.role} in this coalition")
        self._greeted[sender, hello.role] = hello
        return self._greeted_by(sender, hello)

    def _check_greeted(self, sender: str, message: m.Message) -> None:
        """Refuse what is not said in its role; who may act in one is checked at the greeting."""
        role = self._role_of(sender, message)
        if (sender, role) not in self._greeted:
            raise PeerError(f"{sender} must say hello as {role} before {message.kind}")

    def _role_of(self, sender: str, message: m.Message) -> str:
        """Return in which role the sender of a message acts."""
        role = message.role if isinstance(message, m.Hello) else message.sender
        return role or (GUARDIAN if sender == self.terms.guardian else ANSWERING)

    def _check_queries(self, queries: int) -> None:
        most = self.terms.most_queries
        if queries > most:
            raise PeerError(f"a batch must have at most {most} queries, got {queries}")

    def _forget(self, batch: str) -> None:
        self._batches.pop(batch, None)
        self.timers.drop(batch)

    def _forget_all_of(self, querier: str) -> None:
        """Forget a querying party's batches: whoever asks for another gave up the first."""
        for old in [batch for batch, held in self._batches.items() if held.querier == querier]:
            self._forget(old)

    def _refused_batch(self, querier: str, batch: str, error: PrivoteError) -> list[Action]:
        """Forget a batch, and tell its querying party why."""
        self._forget(batch)
        return [Send(querier, QUERYING, m.Refused.of(batch, error)), Complain(error)]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledBatch:
    """What a querying party takes home: released labels, and what may be said about them.

    Attributes
    ----------
    labels
        (queries, labels) int8: 1, 0 or ABSTAIN (-1).
    parties, voters
        Who took part, and how many were registered.
    left_out
        Why, of everybody who did not take part.
    epsilon, delta, guarantee
        For each answering party's data: the whole budget, of all batches of all querying parties
        together. No smaller number is true of one querying party alone, because answering models
        may have learnt from labels that others received.
    resumed
        Whether an earlier batch's charge paid for it.
    simulated, engine
        Whether masks and noise had a seed; which engine ("clear" hides nothing).
    """

    batch: str
    labels: npt.NDArray[np.int8]
    parties: tuple[str, ...]
    voters: int
    left_out: Mapping[str, str]
    epsilon: float
    delta: float
    guarantee: str
    resumed: bool
    simulated: bool
    engine: str

    def facts(self) -> dict[str, Any]:
        """Return all but the labels, as JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if key != "labels"
        }


def batch_rows(X: Any, terms: Terms) -> IntArray:
    """Return a batch's rows (queries, features) as the whole numbers that programs take."""
    rows = quantise_rows(X, features=terms.features, bound=terms.bound, bits=terms.bits)
    if len(rows) > terms.most_queries:
        rule = f"must have at most {terms.most_queries} rows (most_queries of the terms)"
        raise InputError("X", f"{rule}: ask in several batches", len(rows))
    if not len(rows):
        raise InputError("X", "must have at least one row", 0)
    return rows


# -- what both sides of a session build from public numbers ----------------------------------------


def session_of(batch: str, other: str = DECISION) -> str:
    """Return the id of the session in which a party's ballots are computed, or labels decided."""
    return f"{batch}:{other}"


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
        rows=1,
        features=terms.features,
        labels=len(terms.labels),
        weights=terms.counted.weights,
    ).split(queries)


def decision_programs(
    terms: Terms, querier: str, queries: int, parties: tuple[str, ...]
) -> list[DecisionProgram] | list[AllowanceProgram]:
    """Return the programs that decide a batch; with allowances, what is left goes from one on."""
    labels, gated = len(terms.labels), terms.mechanism.gate is not None
    if not terms.allowance:
        shared = terms.shared is not None
        return DecisionProgram(rows=1, labels=labels, gated=gated, shared=shared).split(queries)
    return AllowanceProgram(
        rows=1,
        parties=len(parties),
        voters=len(terms.voters(querier)),
        labels=labels,
        gated=gated,
        steps=None if terms.shared is None else terms.steps,
        grid=terms.counted.unit,
        by_ballot=terms.by_ballot,
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
