"""What the parties say to each other: small, schema-checked messages; never pickle.

On the wire a message is a length, a JSON head and, for masks, raw little-endian int64. Everything
that a peer may send is checked here for type, range and size before a role sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

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


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


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


_batch = _matches("[0-9a-f]{32}")
_digest = _matches("[0-9a-f]{64}")


@dataclass(frozen=True)
class Message:
    """Something one party says to another; ``schema`` says what each field may be."""

    kind: ClassVar[str]
    schema: ClassVar[dict[str, Check]]

    def __post_init__(self) -> None:
        for name, check in self.schema.items():
            value = getattr(self, name)
            if not check(value):
                shown = f"{value!r:.60}" if not isinstance(value, np.ndarray) else value.dtype
                raise PeerError(f"{self.kind}: {name} is not what it must be, got {shown}")


@dataclass(frozen=True)
class Hello(Message):
    """First in both directions: which coalition, which engine, and who is speaking.

    ``simulated`` says that the speaker's randomness has a seed, so that it protects nobody.
    """

    kind = "hello"
    schema = {  # noqa: RUF012
        "coalition": _digest,
        "engine": is_name,
        "role": _one_of(*ROLES),
        "simulated": _flag,
    }
    coalition: str
    engine: str
    role: str
    simulated: bool = False


@dataclass(frozen=True)
class Ask(Message):
    """Querying party to guardian: a batch of so many queries is wanted.

    ``version`` is the last decision whose outcome the querying party stored; ``resume`` an earlier
    batch that was charged but not decided; ``nonce`` makes a repeated message known as such.
    """

    kind = "ask"
    schema = {  # noqa: RUF012
        "queries": _int(1),
        "version": _int(0, _ASKED),
        "nonce": _batch,
        "baseline": _flag,
        "resume": _maybe(_batch),
    }
    queries: int
    version: int
    nonce: str
    baseline: bool = False
    resume: str | None = None


@dataclass(frozen=True)
class Grant(Message):
    """Guardian to querying party: charged; ``resumed`` if with an earlier batch's charge."""

    kind = "grant"
    schema = {"batch": _batch, "nonce": _batch, "queries": _int(1), "resumed": _flag}  # noqa: RUF012
    batch: str
    nonce: str
    queries: int
    resumed: bool = False


@dataclass(frozen=True)
class Refused(Message):
    """To whoever asked for what it cannot have: why, in words, and which kind of error."""

    kind = "refused"
    schema = {"batch": _maybe(_batch), "why": _text, "code": _one_of(*CODES)}  # noqa: RUF012
    batch: str | None
    why: str
    code: str = "peer"

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
class Answer(Message):
    """Querying party to answering party: please answer this batch."""

    kind = "answer"
    schema = {"batch": _batch, "queries": _int(1)}  # noqa: RUF012
    batch: str
    queries: int


@dataclass(frozen=True)
class Confirm(Message):
    """Answering party to guardian: tell me whether this batch was charged, and for whom."""

    kind = "confirm"
    schema = {"batch": _batch, "querier": is_name, "queries": _int(1)}  # noqa: RUF012
    batch: str
    querier: str
    queries: int


@dataclass(frozen=True)
class Confirmed(Message):
    """Guardian to answering party: it is; said once per batch and party."""

    kind = "confirmed"
    schema = Confirm.schema
    batch: str
    querier: str
    queries: int


@dataclass(frozen=True)
class Willing(Message):
    """Answering party to querying party: ready to compute; ``hidden`` units of its model.

    ``noise`` (queries, parts x labels) is the querying party's half of this party's noise, where
    the sites draw it.
    """

    kind = "willing"
    schema = {  # noqa: RUF012
        "batch": _batch,
        "hidden": _maybe(_int(1, 1 << 20)),
        "noise": _maybe(_table),
    }
    batch: str
    hidden: int | None = None
    noise: IntArray | None = None


@dataclass(frozen=True, eq=False)
class Masks(Message):
    """Answering party to guardian: the masks (queries, labels) of its ballots.

    Where the sites draw the noise, the guardian's half of this party's follows to the right.
    """

    kind = "masks"
    schema = {"batch": _batch, "masks": _table}  # noqa: RUF012
    batch: str
    masks: IntArray


@dataclass(frozen=True)
class MasksTaken(Message):
    """Guardian to answering party: there is nothing more to do for this batch."""

    kind = "masks_taken"
    schema = {"batch": _batch}  # noqa: RUF012
    batch: str


@dataclass(frozen=True)
class Decide(Message):
    """Querying party to guardian: I have shares of these parties' ballots."""

    kind = "decide"
    schema = {"batch": _batch, "parties": _names, "version": _int(0)}  # noqa: RUF012
    batch: str
    parties: tuple[str, ...]
    version: int


@dataclass(frozen=True)
class Ready(Message):
    """Guardian to querying party: these parties count; what we compute has this version."""

    kind = "ready"
    schema = Decide.schema
    batch: str
    parties: tuple[str, ...]
    version: int


@dataclass(frozen=True)
class Done(Message):
    """Querying party to guardian: the outcome of this version is stored."""

    kind = "done"
    schema = {"batch": _batch, "version": _int(0)}  # noqa: RUF012
    batch: str
    version: int


@dataclass(frozen=True)
class Closed(Message):
    """Guardian to querying party: the batch is over on both sides."""

    kind = "closed"
    schema = {"batch": _batch}  # noqa: RUF012
    batch: str


MESSAGES: dict[str, type[Message]] = {
    kind.kind: kind
    for kind in (
        *(Hello, Ask, Grant, Refused, Answer, Confirm, Confirmed),
        *(Willing, Masks, MasksTaken, Decide, Ready, Done, Closed),
    )
}


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
