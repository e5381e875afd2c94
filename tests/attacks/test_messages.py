"""No message ends a role, charges twice, or learns what is another's: bytes and fields at random.

The parties run without sockets, in one simulation: between the honest calls of a batch come
hostile ones, from registered sites and from strangers.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from contextlib import suppress
from typing import Any, get_args

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, scaled
from tests.capc.coalitions import Observed, identity, models_for, terms_of
from tests.capc.test_messages import EVERY, framed

from privote.capc import messages as m
from privote.capc.coalition import Envelope, Simulation
from privote.errors import PeerError

WIRES = [m.encode(each) for each in EVERY]
DEPTHS = (5, 300, 450, 490, 700, 900, 980, 5000)
EXTREMES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**30, 2**30 + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**63, -(2**63)),
    *(10**4000, 0.5, float("nan"), float("inf"), -0.0, "", "a", "\x00", "\ud800", "é", "../a"),
    *("0" * 32, "f" * 64, "x" * 60000, "\u2028", [], [0], [1, 1], [2**31, 2**31], [[]], {}),
    *({"a": 1}, ["p0", "p0"], ["p0"] * 5000, list(range(9000)), [f"p{i}" for i in range(6000)]),
]
Q = 4


def headed(wire: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(wire[:4], "big")
    return json.loads(wire[4 : 4 + size]), wire[4 + size :]


def changed(wire: bytes, chance: random.Random) -> bytes:
    """Return a message that went wrong in one of many ways."""
    head, tail = headed(wire)
    name = chance.choice(list(head))
    way = chance.randrange(9)
    if way < 3:
        head[name] = chance.choice(EXTREMES)
    elif way == 3:
        text = json.dumps({**head, name: "HERE"}).replace('"HERE"', deep(chance), 1)
        return framed(text.encode(), tail)
    elif way == 4:
        head[chance.choice(["more", "kind", "run", "parties", ""])] = chance.choice(EXTREMES)
    elif way == 5:
        del head[name]
    elif way == 6:
        return wire[: chance.randrange(len(wire))]
    elif way == 7:
        return wire + bytes(chance.choice([1, 8, 4096, 100_000]))
    else:
        flipped = bytearray(wire)
        for _ in range(chance.randint(1, 8)):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        return bytes(flipped)
    return framed(head, tail)


def deep(chance: random.Random) -> str:
    depth = chance.choice(DEPTHS)
    one, other = chance.choice([("[", "]"), ('{"a":', "}")])
    return one * depth + "1" + other * depth


def test_bytes_are_a_message_or_a_clear_error(outcome: Outcome) -> None:
    chance = random.Random(1)
    tried, other = scaled(40, 10_000) * len(WIRES), 0
    for turn in range(tried):
        try:
            m.decode(changed(WIRES[turn % len(WIRES)], chance))
        except PeerError as error:
            other += len(str(error)) > 500
        except Exception:
            other += 1
    outcome("bytes that decode to something else than a message or a PeerError", tried, other)


def test_bytes_take_memory_in_proportion(outcome: Outcome) -> None:
    chance = random.Random(5)
    tried, other = scaled(10, 100) * len(WIRES), 0
    tracemalloc.start()
    try:
        for turn in range(tried):
            data = changed(WIRES[turn % len(WIRES)], chance)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with suppress(PeerError):
                m.decode(data)
            other += tracemalloc.get_traced_memory()[1] - before > 50 * len(data) + (1 << 20)
    finally:
        tracemalloc.stop()
    outcome("bytes whose decoding takes much more memory than they have", tried, other)


# -- parties ---------------------------------------------------------------------------------------


class Hostile(Observed):
    """Between honest calls come hostile ones, of sites whose program is somebody else's."""

    names: tuple[str, ...] = ()
    each, tried = 6, 0
    chance = random.Random(2)
    quiet = False

    async def carry(self, envelope: Envelope) -> bytes:
        if not self.quiet and envelope.sender not in (*self.names, "stranger"):
            for _ in range(self.each):
                name = self.chance.choice([*self.names, "stranger"])
                to = self.chance.choice(list(self.programs))
                with suppress(PeerError):  # bytes that are no message end at the network
                    hostile = Envelope(name, to, self.data(name))
                    self.heard.append(await Simulation.carry(self, hostile))
                self.tried += 1
        return await super().carry(envelope)

    @property
    def heard(self) -> list[bytes]:
        return self.__dict__.setdefault("replies", [])  # type: ignore[no-any-return]

    def data(self, name: str) -> bytes:
        chance = self.chance
        if chance.random() < 0.2:
            return changed(chance.choice(WIRES), chance)
        honest = [one for one in self.envelopes[-80:] if one.sender in ("q0", "p0", "p1", "pg")]
        heads = [headed(one.data)[0] for one in honest]
        runs = [head["run"] for head in heads if isinstance(head.get("run"), str)][-3:]
        batches = [head["batch"] for head in heads if isinstance(head.get("batch"), str)][-3:]
        kind = chance.choice(get_args(m.AnyMessage))
        table = chance.choice([[Q, 2], [1, 1]])
        fields: dict[str, list[Any]] = {
            "terms": [self.terms.digest()],
            "engine": ["clear", "spu-cheetah"],
            "queries": [Q, 1, self.terms.most_queries, 2**31],
            "version": [0, 1, 2, 2**30, 2**31 - 1],
            "run": [*runs, "0" * 32, f"{chance.getrandbits(128):032x}"],
            "batch": [*batches, "0" * 64, f"{chance.getrandbits(256):064x}"],
            "resumed": [False, True],
            "state": ["unknown", "reserved", "committed"],
            "why": ["", "why", "x" * 500],
            "code": list(m.CODES),
            "querier": ["q0", "q1", name],
            "parties": [["p0", "p1"], ["p2"], [], ["p0", "p1", "p2"], [name]],
            "masks": [table],
            "share": [table],
            "noise": [None, table],
        }
        known = kind.__struct_fields__
        head = {"kind": kind.__struct_config__.tag} | {
            of: chance.choice(fields[of]) for of in known
        }
        has_table = any(isinstance(head.get(of), list) for of in ("masks", "share", "noise"))
        if chance.random() < 0.15:
            head[chance.choice(known)] = chance.choice(EXTREMES)
        return framed(head, bytes(8 * table[0] * table[1]) if has_table else b"")


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
@pytest.mark.parametrize("names", [("q1", "p2"), ("p2",)], ids=["querier and party", "party"])
def test_hostile_messages_between_honest_ones(
    guarantee: str, names: tuple[str, ...], outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    terms = terms_of(
        features=Q, queriers=("q0", "q1"), guarantee=guarantee, epsilon=1e6, most_queries=10
    )
    run = Hostile(terms, models_for(terms, np.ones((Q, 3, 2))))
    run.names = names
    run.kill("p2")
    through = turn = 0
    while run.tried < scaled(400, 10_000):
        answers = run.ask("q0", identity(Q, Q, turn))
        through += answers.parties != ("p0", "p1") or not np.isin(answers.labels, (0, 1)).all()
        turn += 1
    entries = [entry for entry in run.ledger.published() if entry["kind"] == "charge"]
    own = [entry for entry in entries if (entry["consumer"], entry["dataset"]) == ("q0", "p0")]
    through += len(own) != (turn if guarantee == "worst-case" else 1)
    words = [
        int(word)
        for sender, message in run.said(m.Masks)
        if sender in ("p0", "p1")
        for word in message.masks.reshape(-1)
    ]
    assert words
    heard = b"\0".join(run.heard)
    logs = "\n".join(str(vars(record).get("fields")) for record in caplog.records)
    through += sum(
        word.to_bytes(8, "little", signed=True) in heard or str(word) in logs for word in words
    )
    outcome(f"hostile messages of {' and '.join(names)}, {guarantee}", run.tried, through)
