"""What the roles share: events in, actions out, a greeting before anything else, timers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...entropy import Entropy
from ...errors import PeerError, PrivoteError
from ..messages import ANSWERING, GUARDIAN, QUERYING, Hello, IntArray, Message, Refused
from ..programs import Program
from ..terms import Terms

Values = Mapping[str, IntArray]

# -- events -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """A message came; ``sender`` is who its certificate says, never what a message says."""

    sender: str
    message: Message


@dataclass(frozen=True)
class Garbled:
    """Something came that is no message (:func:`..messages.decode` refused it)."""

    sender: str
    role: str
    why: str


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


Event = Received | Garbled | Computed | Broken | Lost | Tick

# -- actions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to the program of site ``to`` that acts in ``role``."""

    to: str
    role: str
    message: Message


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
        self._greeted: dict[tuple[str, str], Hello] = {}
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
    def _greeted_by(self, sender: str, hello: Hello) -> list[Action]:
        """Go on after a greeting that fits."""

    def _on_trouble(self, error: PrivoteError) -> list[Action]:
        """Go on after something went wrong that no message is refused for."""
        return [Complain(error)]

    def _on_garbled(self, event: Garbled) -> list[Action]:
        error = PeerError(f"{event.sender} sent what is no message: {event.why}")
        return [Send(event.sender, event.role, Refused.of(None, error)), Complain(error)]

    def _on_failed(self, sender: str, message: Message, error: PrivoteError) -> list[Action]:
        """Refuse a message: the sender is told, and so is this side."""
        refusal = Refused.of(getattr(message, "batch", None), error)
        return [Send(sender, self._role_of(sender, message), refusal), Complain(error)]

    # -- shared ----------------------------------------------------------------------------------

    def _on_received(self, event: Received) -> list[Action]:
        sender, message = event.sender, event.message
        if isinstance(message, Refused) and message.code == "repeated":
            return [Complain(message.error(sender))]  # the first of the two is under way
        try:
            hear: Callable[[str, Message], list[Action]] | None = getattr(
                self, f"_hear_{message.kind}", None
            )
            if hear is None:
                raise PeerError(f"{self.role} role takes no message of kind {message.kind!r}")
            if not isinstance(message, Hello | Refused):
                self._check_greeted(sender, message)
            return hear(sender, message)
        except PrivoteError as error:
            if isinstance(message, Refused):  # two parties must not refuse each other for ever
                return [Complain(error)]
            return self._on_failed(sender, message, error)

    def _hello(self) -> Hello:
        return Hello(self.terms.digest(), self.engine, self.role, self.entropy.simulated)

    def _hear_hello(self, sender: str, hello: Hello) -> list[Action]:
        self._greeted.pop((sender, hello.role), None)
        if hello.coalition != self.terms.digest():
            raise PeerError(
                f"{sender} has other terms of the coalition (digest {hello.coalition[:12]}) than "
                f"{self.name} (digest {self.terms.digest()[:12]}): all sites need the same"
            )
        if hello.engine != self.engine:
            raise PeerError(f"{sender} uses engine {hello.engine!r}, {self.name} {self.engine!r}")
        if not self.terms.may_be(sender, hello.role):
            raise PeerError(f"{sender!r} is not registered as {hello.role} in this coalition")
        self._greeted[sender, hello.role] = hello
        return self._greeted_by(sender, hello)

    def _check_greeted(self, sender: str, message: Message) -> None:
        """Refuse what is not said in its role; who may act in one is checked at the greeting."""
        role = self._role_of(sender, message)
        if (sender, role) not in self._greeted:
            raise PeerError(f"{sender} must say hello as {role} before {message.kind}")

    def _role_of(self, sender: str, message: Message) -> str:
        """Return in which role the sender of a message acts."""
        role = message.role if isinstance(message, Hello) else message.sender
        return role or (GUARDIAN if sender == self.terms.guardian else ANSWERING)

    def _check_queries(self, queries: int) -> None:
        most = self.terms.most_queries
        if queries > most:
            raise PeerError(f"a batch has at most {most} queries here, got {queries}")

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
        return [Send(querier, QUERYING, Refused.of(batch, error)), Complain(error)]
