"""Messages survive the wire, and nothing else does."""

from __future__ import annotations

import json
import pickle
from typing import Any, get_args

import numpy as np
import pytest
from tests.refusals import refused

from privote.capc import messages as m
from privote.errors import BudgetError, InputError, LedgerError, PeerError

BATCH, OTHER, DIGEST = "ab" * 16, "0" * 32, "c" * 64
EVERY = [
    m.Hello(DIGEST, "spu-cheetah", m.QUERYING),
    m.Ask(7, 0, OTHER),
    m.Ask(7, 3, OTHER, BATCH),
    m.Grant(BATCH, OTHER, 7, True),
    m.Refused(None, "no", "budget"),
    m.Refused(BATCH, "no é", "peer"),
    m.Answer(BATCH, 7),
    m.Confirm(BATCH, "site-1", 7),
    m.Confirmed(BATCH, "site-1", 7),
    m.Willing(BATCH),
    m.Decide(BATCH, ("a", "b.c"), 4),
    m.Ready(BATCH, (), 4),
    m.Done(BATCH, 4),
    m.Closed(BATCH),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda x: x.kind)
def test_a_message_survives_the_wire(message: m.Message) -> None:
    assert m.decode(m.encode(message)) == message


@pytest.mark.parametrize("kind", [m.Masks, m.Willing])
def test_words_survive_the_wire(kind: Any) -> None:
    words = np.array([[2**63 - 1, -(2**63)], [0, -1], [5, 6]], np.int64)
    wire = m.encode(kind(BATCH, words))
    again = m.decode(wire)
    found = again.masks if isinstance(again, m.Masks) else again.noise  # type: ignore[attr-defined]
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, words)
    found[0, 0] = 1  # its own memory
    with refused(None, PeerError):
        m.decode(wire[:-1])


def test_every_kind_is_tried() -> None:
    known = {each.__struct_config__.tag for each in get_args(m.AnyMessage)}
    assert {message.kind for message in EVERY} | {"masks"} == known


def framed(head: Any, tail: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + tail


BAD = {
    "nothing": b"",
    "length beyond the end": b"\x00\x00\xff\xff{}",
    "not JSON": framed(b"nothing of the kind"),
    "not ASCII": framed(b'{"kind":"\xff"}'),
    "a list": framed([1]),
    "deep": framed(b"[" * 60000),
    "no kind": framed({"batch": BATCH}),
    "strange kind": framed({"kind": "exec"}),
    "a field too many": framed({"kind": "closed", "batch": BATCH, "more": 1}),
    "a field too few": framed({"kind": "closed"}),
    "a default left out": framed({"kind": "refused", "batch": None, "why": "x"}),
    "bytes after the end": framed({"kind": "closed", "batch": BATCH}, b"x"),
    "a short batch": framed({"kind": "closed", "batch": BATCH[:-1]}),
    "batch with a newline": framed({"kind": "closed", "batch": BATCH + "\n"}),
    "true is not 1": framed({"kind": "answer", "batch": BATCH, "queries": True}),
    "no queries": framed({"kind": "answer", "batch": BATCH, "queries": 0}),
    "too many": framed({"kind": "answer", "batch": BATCH, "queries": 10**30}),
    "NaN": framed(b'{"kind":"answer","batch":"' + BATCH.encode() + b'","queries":NaN}'),
    "the same party twice": framed(
        {"kind": "decide", "batch": BATCH, "parties": ["a", "a"], "version": 0}
    ),
    "a party that is no name": framed(
        {"kind": "decide", "batch": BATCH, "parties": ["../a"], "version": 0}
    ),
    "unhashable party": framed(
        {"kind": "decide", "batch": BATCH, "parties": [["a"]], "version": 0}
    ),
    "why too long": framed({"kind": "refused", "batch": None, "why": "x" * 501, "code": "peer"}),
    "code": framed({"kind": "refused", "batch": None, "why": "x", "code": "KeyError"}),
    "masks too short": framed({"kind": "masks", "batch": BATCH, "masks": [2, 2]}, b"\0" * 24),
    "masks flat": framed({"kind": "masks", "batch": BATCH, "masks": [4]}, b"\0" * 32),
    "masks huge": framed({"kind": "masks", "batch": BATCH, "masks": [2**31, 2**31]}, b"\0" * 32),
    "pickle": pickle.dumps({"kind": "closed"}),
}


@pytest.mark.parametrize("name", BAD)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(PeerError):
        m.decode(BAD[name])


def test_size_is_bounded_before_anything_is_read() -> None:
    wire = m.encode(m.Masks(BATCH, np.zeros((10, 10), np.int64)))
    with pytest.raises(PeerError, match="at most 700 bytes"):
        m.decode(wire, 700)
    assert m.decode(wire, len(wire))


def test_a_refusal_is_the_error_it_tells_of() -> None:
    for error in (BudgetError("b"), InputError("i"), PeerError("p"), m.RepeatedError("r")):
        told = m.Refused.of(None, error)
        assert type(told.error("pg")) is type(error)
        assert str(error) in str(told.error("pg"))
    hidden = m.Refused.of(None, LedgerError("/secret/place is broken"))
    assert "secret" not in hidden.why
    assert isinstance(hidden.error("pg"), LedgerError)
    assert len(m.Refused.of(None, PeerError("x" * 9999)).why) <= 500


def test_what_a_peer_would_refuse_is_not_sent() -> None:
    for wrong in (m.Answer("short", 1), m.Answer(BATCH, 0), m.Masks(BATCH, np.zeros(2, np.int64))):
        with pytest.raises(PeerError):
            m.encode(wrong)


@pytest.mark.parametrize("why", ["two\nlines", "\x1b[2J", "a\u2028b", "\x00"])
def test_a_refusal_is_one_line_that_no_terminal_obeys(why: str) -> None:
    """It ends in logs, on terminals and in statements: nobody may write other lines there."""
    assert m.Refused.of(None, PeerError(why)).why.isprintable()
    with pytest.raises(ValueError, match="why"):
        m.Refused(None, why, "peer")
    with refused(None, PeerError):
        m.decode(framed({"kind": "refused", "batch": None, "why": why, "code": "peer"}))
