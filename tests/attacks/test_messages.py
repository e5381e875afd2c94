"""No message ends a role, charges twice, or learns what is another's: bytes and fields at random.

The roles run without sockets, in one simulation: between the honest letters of a batch come
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
from tests.capc.test_messages import BATCH, EVERY, framed

from privote.capc import messages as m
from privote.capc.charges import Charges
from privote.capc.coalition import Letter, Seat
from privote.errors import PeerError

WIRES = [m.encode(each) for each in (*EVERY, m.Masks(BATCH, np.ones((2, 2), np.int64)))]
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
        head[chance.choice(["more", "kind", "batch", "parties", ""])] = chance.choice(EXTREMES)
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


# -- roles -----------------------------------------------------------------------------------------


class Hostile:
    """Adds hostile letters to honest ones, and remembers what hostile sites are told."""

    def __init__(
        self, terms: Any, chance: random.Random, each: int, names: tuple[str, ...]
    ) -> None:
        self.terms, self.chance, self.each, self.names = terms, chance, each, names
        self.tried = 0
        self.heard: list[bytes] = []
        self.batches: list[str] = ["0" * 32]
        self.simulation: Observed | None = None

    def post(self, letter: Letter) -> list[Letter]:
        if letter.to[0] in (*self.names, "stranger"):  # nobody is there; they write as they like
            self.heard.append(letter.data)
            return []
        head, _ = headed(letter.data)
        if isinstance(head.get("batch"), str):
            self.batches.append(head["batch"])
        # What they provoke must not provoke more than there was before, for ever.
        busy = self.simulation is None or len(self.simulation._queue) > 2 * self.each
        return [*(() if busy else (self.letter() for _ in range(self.each))), letter]

    def learn(self) -> None:
        for data in self.heard[-50:]:
            batch = headed(data)[0].get("batch")
            if isinstance(batch, str):
                self.batches.append(batch)

    def letter(self) -> Letter:
        assert self.simulation is not None
        self.tried += 1
        chance = self.chance
        name = chance.choice([*self.names, "stranger"])
        seat: Seat = (name, m.QUERYING if name.startswith("q") else m.ANSWERING)
        return Letter(seat, chance.choice(list(self.simulation.roles)), self.data(name, seat[1]))

    def data(self, name: str, role: str) -> bytes:
        chance = self.chance
        if chance.random() < 0.2:
            return changed(chance.choice(WIRES), chance)
        if chance.random() < 0.2:
            return m.encode(m.Hello(self.terms.digest(), "clear", role))
        self.learn()
        kind = chance.choice(get_args(m.AnyMessage))
        batch = chance.choice([*self.batches[-4:], "0" * 32, f"{chance.getrandbits(128):032x}"])
        fields: dict[str, list[Any]] = {
            "coalition": [self.terms.digest()],
            "engine": ["clear", "spu-cheetah"],
            "role": [m.QUERYING, m.ANSWERING, m.GUARDIAN],
            "queries": [Q, 1, self.terms.most_queries, 2**31],
            "version": [0, 1, 2, 2**30, 2**31 - 1, 2**31],
            "nonce": [f"{chance.getrandbits(128):032x}", "0" * 32],
            "resume": [None, batch],
            "resumed": [False, True],
            "batch": [batch],
            "why": ["", "why", "x" * 500],
            "code": list(m.CODES),
            "querier": ["q0", "q1", name],
            "parties": [["p0", "p1"], ["p2"], [], ["p0", "p1", "p2"], [name]],
            "masks": [[Q, 2], [1, 1]],
            "noise": [None, [Q, 2], [1, 1]],
        }
        tag, known = kind.__struct_config__.tag, kind.__struct_fields__
        head = {"kind": tag} | {field: chance.choice(fields[field]) for field in known}
        table = head.get("masks") or head.get("noise")
        tail = b"" if table is None else bytes(8 * table[0] * table[1])
        if chance.random() < 0.15:
            head[chance.choice(known)] = chance.choice(EXTREMES)
        return framed(head, tail)


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
@pytest.mark.parametrize("names", [("q1", "p2"), ("p2",)], ids=["querier and party", "party"])
def test_hostile_messages_between_honest_ones(
    guarantee: str, names: tuple[str, ...], outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = terms_of(
        features=Q, queriers=("q0", "q1"), guarantee=guarantee, epsilon=1e6, most_queries=10
    )
    taken: list[str] = []
    take = Charges.take

    def count(self: Charges, querier: str, queries: int, batch: str) -> Any:
        done = take(self, querier, queries, batch)
        taken.append(batch)
        return done

    monkeypatch.setattr(Charges, "take", count)
    hostile = Hostile(terms, random.Random(2), each=12, names=names)
    models = models_for(terms, np.ones((Q, 3, 2)))
    simulation = hostile.simulation = Observed(terms, models, post=hostile.post)
    simulation.roles.pop(("p2", m.ANSWERING))
    through = 0
    while hostile.tried < scaled(400, 10_000):
        answers = simulation.ask("q0", identity(Q, Q))
        through += answers.parties != ("p0", "p1") or not np.isin(answers.labels, (0, 1)).all()
    grants = [headed(letter.data)[0] for letter in simulation.letters if b'"grant"' in letter.data]
    fresh = [grant["batch"] for grant in grants if not grant["resumed"]]
    through += len(set(taken)) != len(taken)
    through += sorted(taken) != sorted(fresh)
    through += len({grant["nonce"] for grant in grants}) != len(grants)
    through += leaked(simulation, hostile)
    outcome(f"hostile messages of {' and '.join(names)}, {guarantee}", hostile.tried, through)


def leaked(simulation: Observed, hostile: Hostile) -> int:
    """Return how many of the masks' words were told to a hostile site, or to a log."""
    words = [
        int(word)
        for letter in simulation.letters
        if letter.sender[0] in ("p0", "p1") and b'"kind":"masks"' in letter.data[:40]
        for word in np.frombuffer(headed(letter.data)[1], "<i8")
    ]
    assert words
    logs = "\n".join(str(e) for told in simulation.complaints.values() for e in told)
    heard = b"\0".join(hostile.heard)
    return sum(
        word.to_bytes(8, "little", signed=True) in heard or str(word) in logs for word in words
    )
