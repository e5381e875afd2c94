"""What the parties say to each other: small, schema-checked messages; never pickle.

On the wire a message is a length, a JSON head and, for masks and noise, raw little-endian int64 in
the shape that the head has in their place. Everything that a peer may send is checked here for
type, range and size before a role sees it; a field that is not known is refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from ..errors import BudgetError, InputError, LedgerError, PeerError, PrivoteError
from .programs import IntArray

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
_MOST = 1 << 31
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"  # \Z: a $ would let a line break pass

BatchId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, Meta(pattern=_NAME)]
Count = Annotated[int, Meta(ge=1, le=_MOST)]
Version = Annotated[int, Meta(ge=0, le=_MOST)]


def printable(text: str) -> str:
    """Return one line that no terminal obeys and that no statement takes for its own."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def is_name(value: Any) -> bool:
    """Return whether this can name a site: letters, digits, dots and dashes, at most 64."""
    return isinstance(value, str) and re.match(_NAME, value) is not None


class Message(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=lambda name: re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(),
):
    """Something one party says to another; annotations of its fields say what they may be.

    ``sender`` is the role it comes from; None if several roles say it. Defaults are for our own
    code: on the wire every field is there.
    """

    sender: ClassVar[str | None] = None

    @property
    def kind(self) -> str:
        """How it is told apart on the wire."""
        return str(self.__struct_config__.tag)


class Hello(Message, frozen=True):
    """First in both directions: which coalition, which engine, and who is speaking."""

    coalition: Digest
    engine: Name
    role: Annotated[str, Meta(pattern=rf"^({'|'.join(ROLES)})\Z")]


class Ask(Message, frozen=True):
    """Querying party to guardian: a batch of so many queries is wanted.

    ``version`` is the last decision whose outcome the querying party stored; ``resume`` an earlier
    batch that was charged but not decided; ``nonce`` makes a repeated message known as such.
    """

    sender = QUERYING
    queries: Count
    # A decision gets a version above this one: there must be room for it.
    version: Annotated[int, Meta(ge=0, le=_MOST // 2)]
    nonce: BatchId
    resume: BatchId | None = None


class Grant(Message, frozen=True):
    """Guardian to querying party: charged; ``resumed`` if with an earlier batch's charge."""

    sender = GUARDIAN
    batch: BatchId
    nonce: BatchId
    queries: Count
    resumed: bool = False


class Refused(Message, frozen=True):
    """To whoever asked for what it cannot have: why, in words, and which kind of error."""

    batch: BatchId | None
    why: Annotated[str, Meta(max_length=_WHY)]
    code: Annotated[str, Meta(pattern=rf"^({'|'.join(CODES)})\Z")] = "peer"

    def __post_init__(self) -> None:
        if not self.why.isprintable():
            raise ValueError("why must be one printable line")

    @classmethod
    def of(cls, batch: str | None, error: PrivoteError) -> Refused:
        """Return the refusal that tells of an error; troubles with own files stay at home."""
        code = next((c for c, kind in CODES.items() if isinstance(error, kind)), "peer")
        why = "the records of this site cannot be used" if code == "ledger" else str(error)
        return cls(batch, printable(why)[:_WHY], code)

    def error(self, sender: str) -> PrivoteError:
        """Return it as the error it is for the receiver."""
        return CODES[self.code](f"{sender} refused: {self.why}")


class Answer(Message, frozen=True):
    """Querying party to answering party: please answer this batch."""

    sender = QUERYING
    batch: BatchId
    queries: Count


class Confirm(Message, frozen=True):
    """Answering party to guardian: tell me whether this batch was charged, and for whom."""

    sender = ANSWERING
    batch: BatchId
    querier: Name
    queries: Count


class Confirmed(Message, frozen=True):
    """Guardian to answering party: it is; said once per batch and party."""

    sender = GUARDIAN
    batch: BatchId
    querier: Name
    queries: Count


class Willing(Message, frozen=True):
    """Answering party to querying party: ready to compute.

    ``noise`` (queries, parts x labels) is the querying party's half of this party's noise, where
    the sites draw it.
    """

    sender = ANSWERING
    batch: BatchId
    noise: IntArray | None = None


class Masks(Message, frozen=True, eq=False):
    """Answering party to guardian: the masks (queries, labels) of its ballots.

    Where the sites draw the noise, the guardian's half of this party's follows to the right.
    """

    sender = ANSWERING
    batch: BatchId
    masks: IntArray


class _Parties(Message, frozen=True):
    batch: BatchId
    parties: tuple[Name, ...]
    version: Version

    def __post_init__(self) -> None:
        if len({*self.parties}) < len(self.parties):
            raise ValueError("parties must differ")


class Decide(_Parties, frozen=True):
    """Querying party to guardian: I have shares of these parties' ballots."""

    sender = QUERYING


class Ready(_Parties, frozen=True):
    """Guardian to querying party: these parties count; what we compute has this version."""

    sender = GUARDIAN


class Done(Message, frozen=True):
    """Querying party to guardian: the outcome of this version is stored."""

    sender = QUERYING
    batch: BatchId
    version: Version


class Closed(Message, frozen=True):
    """Guardian to querying party: the batch is over on both sides."""

    sender = GUARDIAN
    batch: BatchId


AnyMessage = (Hello | Ask | Grant | Refused | Answer | Confirm | Confirmed | Willing | Masks) | (
    Decide | Ready | Done | Closed
)


def encode(message: Message) -> bytes:
    """Return a message as bytes; PeerError if a peer would refuse it."""
    tail = b""

    def shape(table: IntArray) -> list[int]:
        nonlocal tail
        tail = table.astype("<i8").tobytes()
        return list(table.shape)

    head = msgspec.json.encode(message, enc_hook=shape)
    data = len(head).to_bytes(4, "big") + head + tail
    decode(data)
    return data


def decode(data: bytes, limit: int = MOST_BYTES) -> Message:
    """Return the message in these bytes; PeerError if they are anything but one."""
    if len(data) > limit:
        raise PeerError(f"a message must have at most {limit} bytes, got {len(data)}")
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or not 0 < size <= min(HEAD_BYTES, len(data) - 4):
        raise PeerError("a message must begin with its head, got something else")
    rest = [data[4 + size :]]

    def table(_: Any, shape: Any) -> IntArray:
        rows, columns = msgspec.convert(shape, tuple[Count, Count])
        tail = rest.pop()
        if rows * columns * 8 != len(tail):
            raise ValueError("the shape does not fit the bytes that follow")
        return np.frombuffer(tail, "<i8").astype(np.int64).reshape(rows, columns)

    head = data[4 : 4 + size]
    try:
        message: Message = msgspec.json.decode(head, type=AnyMessage, dec_hook=table)
        if msgspec.json.decode(head).keys() != {"kind", *message.__struct_fields__}:
            raise ValueError("fields are missing")
    except (ValueError, RecursionError) as error:
        why = printable(str(error))[:200]
        raise PeerError(f"a message must be one of those known here: {why}") from None
    if rest and rest[0]:
        raise PeerError(f"{message.kind}: ends with {len(rest[0])} bytes that do not belong to it")
    return message
