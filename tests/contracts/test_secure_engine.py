"""What the secure engine must do; the one in clear of the tests must do it too, bit for bit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
from tests.capc.sessions import any_inputs, both_sides, links, wires
from tests.refusals import refused

from privote.capc.engine import ClearEngine, SecureEngine, _Worker
from privote.capc.network import Wire
from privote.capc.programs import (
    PEER,
    QUERIER,
    AllowanceProgram,
    BallotProgram,
    DecisionProgram,
    Program,
)
from privote.errors import InputError, MissingExtraError, PeerError


def made(kind: type[SecureEngine]) -> SecureEngine:
    try:
        return kind()
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture(params=[ClearEngine, SecureEngine], scope="module")
def engine(request: pytest.FixtureRequest) -> SecureEngine:
    return made(request.param)


@pytest.fixture(scope="module")
def secure() -> SecureEngine:
    return made(SecureEngine)


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    yield
    assert not workers(), "an engine's process was left behind"


def workers() -> list[psutil.Process]:
    """Return the processes of engines that this one started."""
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            if "privote.capc.engine" in one.cmdline():
                found.append(one)
        except psutil.Error:  # it ended in the meantime
            continue
    return found


# --- the same bits as in clear -----------------------------------------------------------------


def ballot_case() -> Any:
    """Return a ballot program with quantised-like inputs; several scores are exactly 0."""
    program = BallotProgram(rows=11, features=24, labels=4)
    values = np.random.default_rng(0)
    querier = {"x": values.integers(-(2**14), 2**14, (11, 24))}
    querier["x"][3:6] = 0
    peer = {
        key: values.integers(-(2**14), 2**14, shape) for key, shape in program.inputs(PEER).items()
    }
    peer["mask"] = values.integers(-(2**63), 2**63 - 1, (11, 4))
    # A row of zeros scores its bias: exactly 0, just below, just above.
    peer["bias"] = np.array([0, -1, 1, 0])
    return program, querier, peer


def tau_case() -> Any:
    """Return tau ballots with every number of yeses."""
    program = BallotProgram(rows=5, features=4, labels=4, weights=(0, 1000, 707, 577, 500))
    peer = {
        "weights": np.eye(4, dtype=np.int64),
        "bias": np.full(4, -1),
        "mask": np.random.default_rng(5).integers(-(2**63), 2**63 - 1, (5, 4)),
    }
    return program, {"x": np.tril(np.ones((5, 4), np.int64), -1)}, peer


def near_allowance(program: AllowanceProgram, seed: int) -> Any:
    """Return inputs of an allowance that some parties exceed within the batch."""
    values = np.random.default_rng(seed)
    shape = program.inputs(QUERIER)["shares"]
    if program.by_ballot:
        ballots = values.integers(0, 2, shape) * values.integers(0, 2, (*shape[:2], 1)) * 7
    else:
        ballots = values.integers(0, 2, shape)
    masks = values.integers(-(2**63), 2**63 - 1, shape)
    left = np.array([0, 3, 1000][: program.parties])
    cells = (program.rows, program.labels)
    parts = any_inputs(program, PEER, seed)
    peer = {**parts, "masks": masks, "vote": values.integers(-3, 4, cells)}
    querier = {"shares": ballots - masks, "left": left - parts["left"]}
    if program.gated:
        peer["gate"] = values.integers(-3, 1, cells)
    if program.steps is not None:  # the noise in two halves
        for part in ("vote", "gate") if program.gated else ("vote",):
            querier[part] = values.integers(-(2**63), 2**63 - 1, cells)
            peer[part] = program.steps * peer[part] - querier[part]
    return program, querier, peer


def chunked_case() -> Any:
    return near_allowance(AllowanceProgram(rows=6, parties=2, voters=2, labels=3), 11)


def chunks_of() -> Any:
    """Return the same batch in two programs, what is left being carried between them."""
    half = AllowanceProgram(rows=3, parties=2, voters=2, labels=3)
    _, querier, peer = chunked_case()
    fresh = np.random.default_rng(12).integers(-(2**63), 2**63 - 1, 2)
    cut = [
        {**peer, **{name: peer[name][rows] for name in ("masks", "vote", "pad")}}
        for rows in (slice(3), slice(3, None))
    ]
    first = (half, {**querier, "shares": querier["shares"][:3]}, {**cut[0], "fresh": fresh})
    second = (half, {"shares": querier["shares"][3:]}, {**cut[1], "left": fresh})
    return {"first chunk": first, "second chunk": second}


def all_cases() -> dict[str, tuple[Program, dict[str, Any], dict[str, Any]]]:
    decisions: dict[str, Program] = {
        "decision": DecisionProgram(rows=20, labels=5),
        "gated": DecisionProgram(rows=20, labels=5, gated=True),
        "shared": DecisionProgram(rows=20, labels=5, shared=True),
        "shared, gated": DecisionProgram(rows=20, labels=5, gated=True, shared=True),
    }
    sizes = {"rows": 6, "parties": 3, "voters": 4, "labels": 3}
    allowances = {
        "allowance": AllowanceProgram(**sizes),
        "allowance, charged": AllowanceProgram(**sizes, charged=(5, 2, 1000)),  # 0, 3, 1000 left
        "allowance, gated": AllowanceProgram(**sizes, gated=True),
        "allowance, ballots": AllowanceProgram(**sizes, grid=7, by_ballot=True, gated=True),
        "allowance, shared": AllowanceProgram(**sizes, steps=32, gated=True),
    }
    cases: dict[str, Any] = {
        "linear": ballot_case(),
        "tau": tau_case(),
        **chunks_of(),
    }
    for key, program in {**decisions, **allowances}.items():
        for extreme in (False, True):
            inputs = [any_inputs(program, side, 7, extreme=extreme) for side in (QUERIER, PEER)]
            cases[f"{key}, {'extreme' if extreme else 'random'}"] = (program, *inputs)
    for seed, (key, allowance) in enumerate(allowances.items()):
        cases[f"{key}, near"] = near_allowance(allowance, seed)
    return cases


CASES = all_cases()


@pytest.fixture(scope="module")
def outputs(engine: SecureEngine) -> dict[str, dict[str, Any]]:
    """Run all cases in one session, and return what the querier got."""
    programs, querier, peer = ([case[i] for case in CASES.values()] for i in range(3))
    results = both_sides(engine, programs, querier, peer)
    assert results[PEER] is None
    assert isinstance(results[QUERIER], list), results
    return dict(zip(CASES, results[QUERIER], strict=True))


@pytest.mark.parametrize("case", sorted(set(CASES) - {"second chunk"}))
def test_same_bits_as_in_clear(outputs: dict[str, dict[str, Any]], case: str) -> None:
    program, querier, peer = CASES[case]
    peer = {**{key: np.zeros(s, np.int64) for key, s in program.inputs(PEER).items()}, **peer}
    wanted = program.compute(np, program.joined(querier, peer))
    assert set(outputs[case]) == set(wanted)
    for key, value in wanted.items():
        assert outputs[case][key].dtype == np.int64
        np.testing.assert_array_equal(outputs[case][key], value)


def test_carried_from_chunk_to_chunk(outputs: dict[str, dict[str, Any]]) -> None:
    """What is left after one chunk is what the next begins with; nobody sees it in between."""
    first, second = outputs["first chunk"], outputs["second chunk"]
    whole, querier, peer = chunked_case()
    wanted = whole.compute(np, whole.joined(querier, peer))
    np.testing.assert_array_equal(
        np.concatenate([first["share"], second["share"]]), wanted["share"]
    )
    np.testing.assert_array_equal(second["left"], wanted["left"])


# --- what is refused, and what fails -----------------------------------------------------------

SMALL = DecisionProgram(rows=2, labels=2)


def small(side: str) -> dict[str, Any]:
    return any_inputs(SMALL, side, 0)


FIRST = AllowanceProgram(rows=1, parties=1, voters=1, labels=1)


@pytest.mark.parametrize(
    ("program", "inputs", "why"),
    [
        (SMALL, {"shares": np.zeros((2, 3), np.int64)}, "shape"),
        (SMALL, {"shares": np.zeros((2, 2), np.int32)}, "int64"),
        (SMALL, {"shares": np.zeros((2, 2))}, "int64"),
        (SMALL, {"shares": [[0, 0], [0, 0]]}, "int64"),
        (SMALL, {"shares": np.zeros((2, 2), np.uint64)}, "int64"),
        (SMALL, {**small(QUERIER), "strange": np.zeros((2, 2), np.int64)}, "strange"),
        (SMALL, {}, "shares"),
        (FIRST, {"shares": np.zeros((1, 1, 1), np.int64)}, "left"),  # nothing is carried into it
    ],
)
def test_wrong_inputs(engine: SecureEngine, program: Program, inputs: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        assert alone(engine, [program], [inputs], 5) == 0


def alone(engine: SecureEngine, programs: Any, inputs: Any, deadline: float) -> int:
    """Run one side of a session; an error must come before a byte was sent."""

    async def run() -> int:
        async with links() as (link, _):
            try:
                await engine.run(programs, QUERIER, inputs, link, deadline=deadline)
            except InputError:
                assert link.bytes == 0
                raise
            return link.bytes

    return asyncio.run(run())


def test_sessions_without_inputs_or_time(engine: SecureEngine) -> None:
    with refused("inputs"):
        alone(engine, [SMALL], [], 5)
    for deadline in (0, -1, float("nan")):
        with refused("deadline"):
            alone(engine, [SMALL], [small(QUERIER)], deadline)


def test_different_programs(engine: SecureEngine) -> None:
    """A program that differs only in a flag is found out on both sides, before anything runs."""
    other = DecisionProgram(rows=2, labels=2, gated=True)
    results = both_sides(
        engine, [SMALL], [small(QUERIER)], [any_inputs(other, PEER, 0)], others=[other]
    )
    for side in (QUERIER, PEER):
        assert isinstance(results[side], PeerError), results
    assert "nothing was computed" in str(results[QUERIER]) + str(results[PEER])


def test_peer_that_never_comes(engine: SecureEngine) -> None:
    started = time.monotonic()
    with refused(None, PeerError):
        alone(engine, [SMALL], [small(QUERIER)], 2)
    assert time.monotonic() - started < 60


MANY = [DecisionProgram(rows=400, labels=20, gated=True)] * 40


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stalls"])
def test_peer_harmed(secure: SecureEngine, harm: signal.Signals) -> None:
    """A peer whose engine dies or stalls in the middle: PeerError, no result, no process left."""

    struck: list[int] = []
    receive = _Worker.receive

    async def strike(self: _Worker, kind: str) -> Any:
        frame = await receive(self, kind)
        if kind == "done" and not struck:
            struck.append(workers()[-1].pid)
            os.kill(struck[0], harm)
        return frame

    inputs = [[any_inputs(one, side, 0) for one in MANY] for side in (QUERIER, PEER)]
    deadline = 60 if harm == signal.SIGKILL else 10  # one is noticed at once, the other never
    with mock.patch.object(_Worker, "receive", strike):
        results = both_sides(secure, MANY, *inputs, deadline=deadline)
    if harm == signal.SIGKILL:
        assert struck
        assert "within" not in f"{results[QUERIER]}{results[PEER]}"
    assert isinstance(results[QUERIER], PeerError)
    assert isinstance(results[PEER], PeerError)


def test_process_ends_with_its_starter(secure: SecureEngine) -> None:
    """Whoever waits for a peer and is killed leaves no engine behind."""
    script = textwrap.dedent(
        """
        from privote.capc.engine import SecureEngine
        from tests.contracts.test_secure_engine import SMALL, alone, small
        alone(SecureEngine(), [SMALL], [small("querier")], 100)
        """
    )
    starter = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 60
        while not (mine := workers()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert mine
    finally:
        starter.kill()
        starter.wait()
    psutil.wait_procs(mine, timeout=30)
    assert not [one for one in mine if one.is_running() and one.status() != "zombie"]


# --- what is on the wire -----------------------------------------------------------------------

SEALED = b"\x5e\xa1\x10\x04\x01\x02"  # how the engine marks what it packs: by zstd


class Tapped:
    """The end of a stream that keeps what passes to it, by connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self.read, self.close = wire, wire.read, wire.close
        self.passed: dict[bytes, bytearray] = defaultdict(bytearray)

    async def write(self, frame: bytes) -> None:
        if frame[0] < 128:  # else it is of no connection
            self.passed[frame[:4]] += frame[4:]
        await self._wire.write(frame)

    def messages(self) -> list[bytes]:
        """Return the long messages, without the engine's short receipts."""
        return [one for data in self.passed.values() for one in split(data) if len(one) > 200]


def split(data: bytearray) -> list[bytes]:
    """Return the messages of a stream: the engine marks each with PRPC and its length."""
    found, start = [], 0
    while start < len(data):
        if data[start : start + 4] != b"PRPC":
            raise ValueError(f"no message starts at {start}: {data[start : start + 8]!r}")
        size = 12 + int.from_bytes(data[start + 4 : start + 8], "big")
        found.append(bytes(data[start : start + size]))
        start += size
    return found


def ciphertexts(messages: list[bytes]) -> list[bytes]:
    """Return the ciphertexts (and keys) among messages, unpacked."""
    import pyarrow as pa

    found = []
    for one in messages:
        start = one.find(SEALED, 0, 200)
        size = int.from_bytes(one[start + 8 : start + 16], "little")
        if 0 <= start and start + size <= len(one):  # keys come in several messages: left out
            packed = pa.BufferReader(one[start + len(SEALED) + 10 :])
            with pa.CompressedInputStream(packed, "zstd") as stream:
                found.append(stream.read())
    return found


def repeated(messages: list[bytes]) -> int:
    """Return how many coefficients of the ciphertexts occur more than once.

    Ciphertexts are pseudorandom: two that share a half repeat thousands.
    """
    words = [
        np.frombuffer(one, np.uint64, (len(one) - start) // 8, start)
        for one in ciphertexts(messages)
        for start in range(8)
    ]
    if not words:
        return 0
    values, counts = np.unique(np.concatenate(words), return_counts=True)
    return int(counts[(values > 2**32) & (counts > 1)].sum())


def tapped(engine: SecureEngine, x: Any) -> tuple[Tapped, Tapped]:
    """Return what went to the peer, and what came from it."""
    program, values = BallotProgram(rows=256, features=16, labels=16), np.random.default_rng(1)
    peer = {
        "weights": values.integers(-(2**20), 2**20, (16, 16)),
        "bias": values.integers(-(2**20), 2**20, 16),
        "mask": values.integers(-(2**63), 2**63 - 1, (256, 16)),
    }
    taps: list[Tapped] = []

    def ends() -> list[Tapped]:
        taps.extend(map(Tapped, wires()))
        return taps

    results = both_sides(engine, [program], [{"x": x}], [peer], ends=ends)
    assert isinstance(results[QUERIER], list), results
    return taps[0], taps[1]


def test_traffic_does_not_depend_on_the_rows(secure: SecureEngine) -> None:
    """Equal rows and different rows look alike to the peer: as many messages, of the same sizes."""
    pytest.importorskip("pyarrow", reason="unpacking ciphertexts needs pyarrow")
    different = np.random.default_rng(2).integers(-(2**20), 2**20, (256, 16))
    runs = [tapped(secure, x) for x in (np.repeat(different[:1], 256, axis=0), different)]
    for pair in zip(*runs, strict=True):
        sizes = [sorted(len(one) for one in wire.messages()) for wire in pair]
        assert len(sizes[0]) == len(sizes[1]) > 10
        # Keys and ciphertexts are packed, and random ones pack to slightly different lengths.
        slack = np.where(np.array(sizes[0]) > 5000, 4000, 8)
        assert (np.abs(np.subtract(*sizes)) <= slack).all()
        for wire in pair:
            assert repeated(wire.messages()) < 2000
            # A public key, and a matrix or the one response: never a second response.
            assert len(ciphertexts(wire.messages())) == 2
