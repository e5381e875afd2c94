"""What the parties say to each other: small, schema-checked messages; never pickle.

Six calls: hello, request a batch, ballots, decide, done, status. Each is a request and its reply;
any of them may be answered by :class:`Refused`. On the wire a message is a length, a JSON head and,
for masks, noise and shares, raw little-endian int64 in the shape that the head has in their place.
Everything that a peer may send is checked here for type, range and size before a party sees it; an
unknown field is refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..errors import BudgetError, InputError, LedgerError, PeerError, PrivoteError, StorageError
from .programs import IntArray

QUERYING, ANSWERING, GUARDIAN = "query", "answer", "guardian"  # roles, and their programs


class Disconnected(PeerError):  # noqa: N818 - an event
    """The peer cannot be reached, or the connection broke: a call may or may not have arrived."""


class SessionFailed(PeerError):  # noqa: N818
    """A secure session ended without a result."""


class Undecided(PeerError):  # noqa: N818
    """The guardian holds no decision of this run: the batch must be decided anew."""


#: Codes of a refusal, and the error each stands for at the receiver.
CODES: dict[str, type[PrivoteError]] = {
    "input": InputError,
    "budget": BudgetError,
    "storage": StorageError,
    "ledger": LedgerError,
    "undecided": Undecided,
    "peer": PeerError,
}
HEAD_BYTES = 1 << 16  # of the JSON head: names of a few thousand parties
MOST_BYTES = 1 << 28  # of any message, where the terms do not set a smaller bound
DECISION = "decision"  # in a session's name, where that of a ballot has the answering party's
_WHY = 500
_MOST = 1 << 31
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"  # \Z: a $ would let a line break pass

Run = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, Meta(pattern=_NAME)]
Count = Annotated[int, Meta(ge=1, le=_MOST)]
Version = Annotated[int, Meta(ge=0, le=_MOST)]
Parties = tuple[Name, ...]


def printable(text: str) -> str:
    """Return one line that no terminal obeys and that no statement takes for its own."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


class Message(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=lambda name: re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(),
):
    """Something one party says to another; annotations of its fields say what they may be."""

    @property
    def kind(self) -> str:
        """How it is told apart on the wire."""
        return str(self.__struct_config__.tag)

    def or_raise(self, sender: str) -> Message:
        """Return it; raise the error that it stands for if the sender refuses with it."""
        if isinstance(self, Refused):
            raise CODES[self.code](f"{sender} refused: {self.why}")
        return self


class Request(Message, frozen=True):
    """What is asked under these terms."""

    terms: Digest


class Hello(Message, frozen=True):
    """The first call to every site, and its reply: the terms and the engine must be the same."""

    terms: Digest
    engine: Name


class RequestBatch(Request, frozen=True):
    """Querying party to guardian: charge a batch, unless that was done before.

    ``batch`` is a keyed digest of the rows; ``version`` counts the decisions whose outcome the
    querying party has stored.
    """

    batch: Digest
    queries: Count
    version: Annotated[int, Meta(ge=0, le=_MOST // 2)]  # a decision gets the next one


class Grant(Message, frozen=True):
    """The batch is charged; ``run`` names this attempt, ``resumed`` one that was charged before."""

    run: Run
    resumed: bool


class RequestBallots(Request, frozen=True):
    """Querying party to answering party: please answer this run."""

    run: Run
    queries: Count


class BallotsReady(Message, frozen=True, eq=False):
    """The reply: ready to compute.

    ``noise`` (queries, parts x labels) is the querying party's half of this party's noise, where
    the sites draw it.
    """

    noise: IntArray | None


class Masks(Request, frozen=True, eq=False):
    """Answering party to guardian: the masks (queries, labels) of the ballots it will compute.

    Where the sites draw the noise, the guardian's half of this party's follows to the right.
    """

    run: Run
    querier: Name
    queries: Count
    masks: IntArray


class Confirmed(Message, frozen=True):
    """The reply: the run is charged, for this querying party and so many queries."""

    run: Run


class Decide(Request, frozen=True):
    """Querying party to guardian: I have shares of these parties' ballots."""

    run: Run
    parties: Parties


class DecisionReady(Message, frozen=True):
    """The reply: these parties count; the decision to compute has this version."""

    parties: Parties
    version: Version


class Done(Request, frozen=True):
    """Querying party to guardian: my share of the outcome is stored."""

    run: Run


class OutcomeShare(Message, frozen=True, eq=False):
    """The reply: the decision is committed, and this is the guardian's share (queries, labels)."""

    share: IntArray


class Status(Request, frozen=True):
    """Querying party to guardian, which says what became of this batch."""

    batch: Digest


class BatchStatus(Message, frozen=True):
    """The reply: "unknown" (nothing is charged), "reserved" or "committed"."""

    state: Annotated[str, Meta(pattern=r"^(unknown|reserved|committed)\Z")]


class Refused(Message, frozen=True):
    """The reply to whoever cannot have what it asked for: why, and which kind of error."""

    why: Annotated[str, Meta(max_length=_WHY)]
    code: Annotated[str, Meta(pattern=rf"^({'|'.join(CODES)})\Z")] = "peer"

    def __post_init__(self) -> None:
        if not self.why.isprintable():
            raise ValueError("why must be one printable line")

    @classmethod
    def of(cls, error: PrivoteError) -> Refused:
        """Return the refusal that tells of an error; troubles with own files stay at home."""
        code = next((c for c, kind in CODES.items() if isinstance(error, kind)), "peer")
        hidden = {
            "ledger": "the records of this site cannot be used",
            "storage": "this site cannot write: its disk is full or its database stopped",
        }
        why = hidden.get(code, str(error))
        return cls(printable(why)[:_WHY], code)


AnyMessage = (
    (Hello | RequestBatch | Grant | RequestBallots | BallotsReady | Masks | Confirmed | Decide)
    | (DecisionReady | Done | OutcomeShare | Status | BatchStatus | Refused)
)  # fmt: skip


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
