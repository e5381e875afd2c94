"""What the parties say to each other: small, schema-checked messages; never pickle.

On the wire a message is a length, a JSON head and, for masks, raw little-endian int64. Everything
that a peer may send is checked here for type, range and size before a role sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from ..errors import BudgetError, InputError, LedgerError, PeerError, PrivoteError

IntArray = npt.NDArray[np.int64]

QUERYING, ANSWERING, GUARDIAN = "querying", "answering", "guardian"
ROLES = (QUERYING, ANSWERING, GUARDIAN)


class RepeatedError(PeerError):
    """A message that was dealt with before; refused, and what it asked for goes on as it is."""


#: Codes of a refusal, and the error each stands for at the receiver.
CODES: dict[str, type[PrivoteError]] = {
    "input": InputError,
    "budget": BudgetError,
    "ledger": LedgerError,
    "repeated": RepeatedError,
    "peer": PeerError,
}
HEAD_BYTES = 1 << 16  # of the JSON head: names of a few thousand parties
MOST_BYTES = 1 << 28  # of any message, where the terms do not set a smaller bound
DECISION = "decision"  # where a session's name has an answering party's otherwise
_WHY = 500
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST = 1 << 31
# A decision gets a version above the one that was asked with: there must be room for it.
_ASKED = _MOST // 2

Check = Callable[[Any], bool]


def _matches(pattern: str) -> Check:
    known = re.compile(pattern)
    return lambda value: isinstance(value, str) and known.fullmatch(value) is not None


def _int(least: int, most: int = _MOST) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _one_of(*known: str) -> Check:
    return lambda value: isinstance(value, str) and value in known


def _flag(value: Any) -> bool:
    return type(value) is bool


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _WHY and value.isprintable()


def printable(text: str) -> str:
    """Return one line that no terminal obeys and that no statement takes for its own."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def is_name(value: Any) -> bool:
    """Return whether this can name a site: letters, digits, dots and dashes, at most 64."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _names(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_name, value)) and len({*value}) == len(value)


def _table(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 2


#: By kind: how a message is told apart on the wire.
MESSAGES: dict[str, type[Message]] = {}

# What a field may be: its type, and what is checked of it.
BatchId = Annotated[str, _matches("[0-9a-f]{32}")]
Digest = Annotated[str, _matches("[0-9a-f]{64}")]
Name = Annotated[str, is_name]
Names = Annotated[tuple[str, ...], _names]
Flag = Annotated[bool, _flag]
Count = Annotated[int, _int(1)]
Version = Annotated[int, _int(0)]
Table = Annotated[IntArray, _table]


@dataclass(frozen=True)
class Message:
    """Something one party says to another; annotations of its fields say what they may be.

    ``sender`` is the role it comes from; None if several roles say it.
    """

    kind: ClassVar[str]
    sender: ClassVar[str | None]
    checks: ClassVar[dict[str, Check]]

    def __init_subclass__(cls, sender: str | None = None) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls.checks = {name: _check_of(hints[name]) for name in cls.__annotations__}
        cls.kind = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        cls.sender = sender
        MESSAGES[cls.kind] = cls

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            value = getattr(self, name)
            if not check(value):
                shown = f"{value!r:.60}" if not isinstance(value, np.ndarray) else value.dtype
                raise PeerError(f"{self.kind}: {name} is not what it must be, got {shown}")


def _check_of(hint: Any) -> Check:
    """Return the check in an annotation; where None is also allowed, it is not looked at."""
    if hasattr(hint, "__metadata__"):
        check: Check = hint.__metadata__[0]
        return check
    inner = _check_of(get_args(hint)[0])  # X | None
    return lambda value: value is None or inner(value)


@dataclass(frozen=True)
class Hello(Message):
    """First in both directions: which coalition, which engine, and who is speaking.

    ``simulated`` says that the speaker's randomness has a seed, so that it protects nobody.
    """

    coalition: Digest
    engine: Name
    role: Annotated[str, _one_of(*ROLES)]
    simulated: Flag = False


@dataclass(frozen=True)
class Ask(Message, sender=QUERYING):
    """Querying party to guardian: a batch of so many queries is wanted.

    ``version`` is the last decision whose outcome the querying party stored; ``resume`` an earlier
    batch that was charged but not decided; ``nonce`` makes a repeated message known as such.
    """

    queries: Count
    version: Annotated[int, _int(0, _ASKED)]
    nonce: BatchId
    baseline: Flag = False
    resume: BatchId | None = None


@dataclass(frozen=True)
class Grant(Message, sender=GUARDIAN):
    """Guardian to querying party: charged; ``resumed`` if with an earlier batch's charge."""

    batch: BatchId
    nonce: BatchId
    queries: Count
    resumed: Flag = False


@dataclass(frozen=True)
class Refused(Message):
    """To whoever asked for what it cannot have: why, in words, and which kind of error."""

    batch: BatchId | None
    why: Annotated[str, _text]
    code: Annotated[str, _one_of(*CODES)] = "peer"

    @classmethod
    def of(cls, batch: str | None, error: PrivoteError) -> Refused:
        """Return the refusal that tells of an error; troubles with own files stay at home."""
        code = next((c for c, kind in CODES.items() if isinstance(error, kind)), "peer")
        why = "the records of this site cannot be used" if code == "ledger" else str(error)
        return cls(batch, printable(why)[:_WHY], code)

    def error(self, sender: str) -> PrivoteError:
        """Return it as the error it is for the receiver."""
        return CODES[self.code](f"{sender} refused: {self.why}")


@dataclass(frozen=True)
class Answer(Message, sender=QUERYING):
    """Querying party to answering party: please answer this batch."""

    batch: BatchId
    queries: Count


@dataclass(frozen=True)
class Confirm(Message, sender=ANSWERING):
    """Answering party to guardian: tell me whether this batch was charged, and for whom."""

    batch: BatchId
    querier: Name
    queries: Count


@dataclass(frozen=True)
class Confirmed(Message, sender=GUARDIAN):
    """Guardian to answering party: it is; said once per batch and party."""

    batch: BatchId
    querier: Name
    queries: Count


@dataclass(frozen=True)
class Willing(Message, sender=ANSWERING):
    """Answering party to querying party: ready to compute; ``hidden`` units of its model.

    ``noise`` (queries, parts x labels) is the querying party's half of this party's noise, where
    the sites draw it.
    """

    batch: BatchId
    hidden: Annotated[int, _int(1, 1 << 20)] | None = None
    noise: Table | None = None


@dataclass(frozen=True, eq=False)
class Masks(Message, sender=ANSWERING):
    """Answering party to guardian: the masks (queries, labels) of its ballots.

    Where the sites draw the noise, the guardian's half of this party's follows to the right.
    """

    batch: BatchId
    masks: Table


@dataclass(frozen=True)
class MasksTaken(Message, sender=GUARDIAN):
    """Guardian to answering party: there is nothing more to do for this batch."""

    batch: BatchId


@dataclass(frozen=True)
class Decide(Message, sender=QUERYING):
    """Querying party to guardian: I have shares of these parties' ballots."""

    batch: BatchId
    parties: Names
    version: Version


@dataclass(frozen=True)
class Ready(Message, sender=GUARDIAN):
    """Guardian to querying party: these parties count; what we compute has this version."""

    batch: BatchId
    parties: Names
    version: Version


@dataclass(frozen=True)
class Done(Message, sender=QUERYING):
    """Querying party to guardian: the outcome of this version is stored."""

    batch: BatchId
    version: Version


@dataclass(frozen=True)
class Closed(Message, sender=GUARDIAN):
    """Guardian to querying party: the batch is over on both sides."""

    batch: BatchId


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    head: dict[str, Any] = {"kind": message.kind}
    tail = b""
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray):
            head[field.name], tail = list(value.shape), value.astype("<i8").tobytes()
        else:
            head[field.name] = value
    text = json.dumps(head, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text + tail


def decode(data: bytes, limit: int = MOST_BYTES) -> Message:
    """Return the message in these bytes; PeerError if they are anything but one."""
    if len(data) > limit:
        raise PeerError(f"a message must have at most {limit} bytes, got {len(data)}")
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or not 0 < size <= min(HEAD_BYTES, len(data) - 4):
        raise PeerError("a message must begin with its head, got something else")
    head, tail = _head(data[4 : 4 + size]), data[4 + size :]
    kind = MESSAGES.get(head.pop("kind", None) or "")
    if kind is None:
        raise PeerError("a message must be of a known kind, got another")
    names = {field.name for field in fields(kind)}
    if set(head) != names:
        raise PeerError(f"{kind.kind}: its fields must be {sorted(names)}, got others")
    array = next((name for name in ("masks", "noise") if head.get(name) is not None), None)
    if array is not None:
        head[array] = _words(array, head[array], tail)
    elif tail:
        raise PeerError(f"{kind.kind}: ends with {len(tail)} bytes that do not belong to it")
    if isinstance(head.get("parties"), list):
        head["parties"] = tuple(head["parties"])
    return kind(**head)


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        raise PeerError("a message's head must be JSON, got something else") from None
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise PeerError("a message's head must be an object with a kind, got something else")
    return head


def _words(name: str, shape: Any, tail: bytes) -> IntArray:
    whole = isinstance(shape, list) and len(shape) == 2 and all(map(_int(1), shape))
    if not whole or shape[0] * shape[1] * 8 != len(tail):
        raise PeerError(f"{name}: the shape does not fit the bytes that follow")
    return np.frombuffer(tail, "<i8").astype(np.int64).reshape(shape)
