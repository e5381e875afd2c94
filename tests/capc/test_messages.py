"""Messages survive the wire, and nothing else does."""

from __future__ import annotations

import json
import pickle
from typing import Any, get_args

import numpy as np
import pytest
from tests.refusals import refused

from privote.capc import messages as m
from privote.errors import BudgetError, InputError, LedgerError, PeerError, StorageError

RUN, DIGEST = "ab" * 16, "c" * 64
WORDS = np.array([[2**63 - 1, -(2**63)], [0, -1], [5, 6]], np.int64)
EVERY = [
    m.Hello(DIGEST, "spu-cheetah"),
    m.RequestBatch(DIGEST, DIGEST, 7, 0),
    m.Grant(RUN, True),
    m.RequestBallots(DIGEST, RUN, 7),
    m.BallotsReady(None),
    m.BallotsReady(WORDS),
    m.Masks(DIGEST, RUN, "site-1", 7, WORDS),
    m.Confirmed(RUN),
    m.Decide(DIGEST, RUN, ("a", "b.c")),
    m.DecisionReady((), 4),
    m.Done(DIGEST, RUN),
    m.OutcomeShare(WORDS),
    m.Status(DIGEST, DIGEST),
    m.BatchStatus("reserved"),
    m.Refused("no é", "budget"),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda x: x.kind)
def test_a_message_survives_the_wire(message: m.Message) -> None:
    wire = m.encode(message)
    again = m.decode(wire)
    assert type(again) is type(message)
    for name in message.__struct_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(message, name))
    with refused(None, PeerError):
        m.decode(wire[:-1])


def test_every_kind_is_tried() -> None:
    assert {type(message) for message in EVERY} == set(get_args(m.AnyMessage))


def framed(head: Any, tail: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + tail


DONE = {"kind": "done", "terms": DIGEST, "run": RUN}
ASK = {"kind": "request_ballots", "terms": DIGEST, "run": RUN, "queries": 7}
BAD = {
    "nothing": b"",
    "length beyond the end": b"\x00\x00\xff\xff{}",
    "not JSON": framed(b"nothing of the kind"),
    "not ASCII": framed(b'{"kind":"\xff"}'),
    "a list": framed([1]),
    "deep": framed(b"[" * 60000),
    "no kind": framed({"run": RUN}),
    "strange kind": framed({"kind": "exec"}),
    "a field too many": framed({**DONE, "more": 1}),
    "a field too few": framed({"kind": "done"}),
    "a default left out": framed({"kind": "refused", "why": "x"}),
    "bytes after the end": framed(DONE, b"x"),
    "a short run": framed({**DONE, "run": RUN[:-1]}),
    "run with a newline": framed({**DONE, "run": RUN + "\n"}),
    "true is not 1": framed({**ASK, "queries": True}),
    "no queries": framed({**ASK, "queries": 0}),
    "too many": framed({**ASK, "queries": 10**30}),
    "NaN": framed(json.dumps(ASK).replace("7}", "NaN}").encode()),
    "a party that is no name": framed({**DONE, "kind": "decide", "parties": ["../a"]}),
    "unhashable party": framed({**DONE, "kind": "decide", "parties": [["a"]]}),
    "why too long": framed({"kind": "refused", "why": "x" * 501, "code": "peer"}),
    "code": framed({"kind": "refused", "why": "x", "code": "KeyError"}),
    "share too short": framed({"kind": "outcome_share", "share": [2, 2]}, b"\0" * 24),
    "share flat": framed({"kind": "outcome_share", "share": [4]}, b"\0" * 32),
    "share huge": framed({"kind": "outcome_share", "share": [2**31, 2**31]}, b"\0" * 32),
    "pickle": pickle.dumps(DONE),
    **{
        f"why {why!r}": framed({"kind": "refused", "why": why, "code": "peer"})
        for why in ("two\nlines", "\x1b[2J", "a\u2028b", "\x00")
    },
}


@pytest.mark.parametrize("name", BAD)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(PeerError):
        m.decode(BAD[name])


def test_size_is_bounded_before_anything_is_read() -> None:
    wire = m.encode(m.OutcomeShare(np.zeros((10, 10), np.int64)))
    with pytest.raises(PeerError, match="at most 700 bytes"):
        m.decode(wire, 700)
    assert m.decode(wire, len(wire))


def test_a_refusal_is_the_error_it_tells_of() -> None:
    for error in (BudgetError("b"), InputError("i"), PeerError("p"), m.Undecided("r")):
        told = m.Refused.of(error)
        with refused(None, type(error)) as caught:
            told.or_raise("pg")
        assert type(caught.value) is type(error)
    hidden = m.Refused.of(LedgerError("/secret/place is broken"))
    assert "secret" not in hidden.why
    assert hidden.code == "ledger"
    assert m.Refused.of(StorageError("/secret/place is full")).code == "storage"
    assert len(m.Refused.of(PeerError("x" * 9999)).why) <= 500
    assert m.Refused.of(PeerError("two\nlines \x1b[2J")).why.isprintable()


def test_what_a_peer_would_refuse_is_not_sent() -> None:
    for wrong in (m.RequestBallots(DIGEST, "short", 1), m.OutcomeShare(np.zeros(2, np.int64))):
        with pytest.raises(PeerError):
            m.encode(wrong)
