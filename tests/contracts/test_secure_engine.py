"""What the secure engine must do; the one in clear of the tests must do it too, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
from scipy.stats import chisquare
from tests.capc.sessions import ClearEngine, LocalChannel, any_inputs, both_sides
from tests.capc.wiretap import Wiretap, ciphertexts, repeated
from tests.refusals import refused

from privote.capc.engine import SecureEngine, _Worker
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
            if "privote.capc.cheetah" in one.cmdline():
                found.append(one)
        except psutil.Error:  # it ended in the meantime
            continue
    return found


# --- the same bits as in clear -----------------------------------------------------------------

TABLE = (0, 1000, 707, 577, 500)


def ballot_case(seed: int, *, table: Any = None) -> Any:
    """Return a ballot program with quantised-like inputs; several scores are exactly 0."""
    program = BallotProgram(rows=11, features=24, labels=4, weights=table)
    values = np.random.default_rng(seed)
    querier = {"x": values.integers(-(2**14), 2**14, (11, 24))}
    querier["x"][3:6] = 0
    peer = {
        key: values.integers(-(2**14), 2**14, shape) for key, shape in program.inputs(PEER).items()
    }
    peer["mask"] = values.integers(-(2**63), 2**63 - 1, (11, 4))
    # A row of zeros scores its bias: exactly 0, just below, just above.
    peer["bias"] = np.array([0, -1, 1, 0])
    return program, querier, peer


def clip_case() -> Any:
    """Return tau ballots with every number of yeses."""
    program = BallotProgram(rows=5, features=4, labels=4, weights=TABLE)
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
        {**peer, "masks": peer["masks"][rows], "vote": peer["vote"][rows]}
        for rows in (slice(3), slice(3, None))
    ]
    first = (half, {**querier, "shares": querier["shares"][:3]}, {**cut[0], "fresh": fresh})
    second = (half, {"shares": querier["shares"][3:]}, {**cut[1], "left": fresh})
    return {"first chunk": first, "second chunk": second}


def uniform_case() -> Any:
    """Return ballots that are all yes, then all no."""
    rows = 256
    x = np.ones((rows, 2), np.int64)
    x[rows // 2 :] = -1
    masks = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (rows, 20))
    peer = {"weights": np.ones((2, 20), np.int64), "bias": np.zeros(20, np.int64), "mask": masks}
    return BallotProgram(rows=rows, features=2, labels=20), {"x": x}, peer


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
        "linear": ballot_case(0),
        "tau": ballot_case(2, table=TABLE),
        "clip": clip_case(),
        "uniform": uniform_case(),
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
        np.concatenate([first["label"], second["label"]]), wanted["label"]
    )
    np.testing.assert_array_equal(second["left"], wanted["left"])


def test_share_is_uniform(outputs: dict[str, dict[str, Any]]) -> None:
    """Whatever the ballot is, each byte of the querier's share is uniform."""
    share, masks = outputs["uniform"]["share"], CASES["uniform"][2]["mask"]
    half = len(share) // 2
    ballots = np.repeat([1, 0], half)[:, None] * np.ones(20)
    np.testing.assert_array_equal(share + masks, ballots)
    for part in (share[:half], share[half:]):
        for place in range(8):
            counts = np.bincount(
                np.ascontiguousarray(part).view(np.uint8)[:, place::8].ravel(), minlength=256
            )
            assert chisquare(counts).pvalue > 1e-4


# --- what is refused, and what fails -----------------------------------------------------------

SMALL = DecisionProgram(rows=2, labels=2)


def small(side: str) -> dict[str, Any]:
    return any_inputs(SMALL, side, 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shares": np.zeros((2, 3), np.int64)}, "shape"),
        ({"shares": np.zeros((2, 2), np.int32)}, "int64"),
        ({"shares": np.zeros((2, 2))}, "int64"),
        ({"shares": [[0, 0], [0, 0]]}, "int64"),
        ({"shares": np.zeros((2, 2), np.uint64)}, "int64"),
        ({"strange": np.zeros((2, 2), np.int64)}, "strange"),
    ],
)
def test_wrong_inputs(
    engine: SecureEngine, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    ends = LocalChannel.pair(tmp_path)
    with pytest.raises(InputError, match=why):
        engine.run([SMALL], QUERIER, [{**small(QUERIER), **change}], ends[0], deadline=5)
    with refused(None, PeerError):  # nothing was sent
        ends[1].exchange(b"", 0.01)


def test_missing_inputs(engine: SecureEngine, tmp_path: Path) -> None:
    ends = LocalChannel.pair(tmp_path)
    with pytest.raises(InputError, match="shares"):
        engine.run([SMALL], QUERIER, [{}], ends[0], deadline=5)
    with refused("inputs"):
        engine.run([SMALL], QUERIER, [], ends[0], deadline=5)
    allowance = AllowanceProgram(rows=1, parties=1, voters=1, labels=1)
    first = {"shares": np.zeros((1, 1, 1), np.int64)}
    with pytest.raises(InputError, match="left"):  # nothing is carried into the first
        engine.run([allowance], QUERIER, [first], ends[0], deadline=5)
    for deadline in (0, -1, float("nan")):
        with refused("deadline"):
            engine.run([SMALL], QUERIER, [small(QUERIER)], ends[0], deadline=deadline)


def test_different_programs(engine: SecureEngine) -> None:
    """A program that differs only in a flag is found out on both sides, before anything runs."""
    other = DecisionProgram(rows=2, labels=2, gated=True)
    results = both_sides(
        engine, [SMALL], [small(QUERIER)], [any_inputs(other, PEER, 0)], others=[other]
    )
    for side in (QUERIER, PEER):
        assert isinstance(results[side], PeerError), results
    assert "nothing was computed" in str(results[QUERIER]) + str(results[PEER])


def test_peer_that_never_comes(engine: SecureEngine, tmp_path: Path) -> None:
    ends = LocalChannel.pair(tmp_path)
    started = time.monotonic()
    with refused(None, PeerError):
        engine.run([SMALL], QUERIER, [small(QUERIER)], ends[0], deadline=2)
    assert time.monotonic() - started < 60
    ends[0].close()
    ends[1].close()


MANY = [DecisionProgram(rows=400, labels=20, gated=True)] * 40


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stalls"])
def test_peer_harmed(secure: SecureEngine, harm: signal.Signals) -> None:
    """A peer whose engine dies or stalls in the middle: PeerError, no result, no process left."""

    struck: list[int] = []
    heard = _Worker.heard

    def strike(self: _Worker, kind: str) -> Any:
        frame = heard(self, kind)
        if kind == "done" and self._session.side == QUERIER and not struck:
            struck.append(workers()[-1].pid)
            os.kill(struck[0], harm)
        return frame

    inputs = [[any_inputs(one, side, 0) for one in MANY] for side in (QUERIER, PEER)]
    deadline = 60 if harm == signal.SIGKILL else 10  # one is noticed at once, the other never
    with mock.patch.object(_Worker, "heard", strike):
        results = both_sides(secure, MANY, *inputs, deadline=deadline)
    if harm == signal.SIGKILL:
        assert struck
        assert "within" not in str(results[QUERIER])
    assert isinstance(results[QUERIER], PeerError)
    assert isinstance(results[PEER], PeerError)


def test_process_ends_with_its_starter(secure: SecureEngine, tmp_path: Path) -> None:
    """Whoever waits for a peer and is killed leaves no engine behind."""
    script = textwrap.dedent(
        f"""
        import sys
        import numpy as np
        from privote.capc.programs import DecisionProgram
        from privote.capc.engine import SecureEngine
        from tests.capc.sessions import LocalChannel
        channel, _ = LocalChannel.pair({str(tmp_path)!r})
        share = {{"shares": np.zeros((2, 2), np.int64)}}
        program = DecisionProgram(rows=2, labels=2)
        SecureEngine().run([program], "querier", [share], channel, deadline=100)
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

TAPPED = BallotProgram(rows=256, features=16, labels=16)


def tapped(engine: SecureEngine, folder: Path, x: Any) -> Wiretap:
    wire = Wiretap(folder)
    values = np.random.default_rng(1)
    peer = {
        "weights": values.integers(-(2**20), 2**20, (16, 16)),
        "bias": values.integers(-(2**20), 2**20, 16),
        "mask": values.integers(-(2**63), 2**63 - 1, (256, 16)),
    }
    results = both_sides(engine, [TAPPED], [{"x": x}], [peer], channels=(wire.querier, wire.peer))
    wire.close()
    assert isinstance(results[QUERIER], list), results
    return wire


def test_traffic_does_not_depend_on_the_rows(secure: SecureEngine, tmp_path: Path) -> None:
    """Equal rows and different rows look alike to the peer: as many messages, of the same sizes."""
    pytest.importorskip("pyarrow", reason="unpacking ciphertexts needs pyarrow")
    values = np.random.default_rng(2)
    different = values.integers(-(2**20), 2**20, (256, 16))
    wires = []
    for place, x in enumerate((np.repeat(different[:1], 256, axis=0), different)):
        folder = tmp_path / str(place)
        folder.mkdir()
        wires.append(tapped(secure, folder, x))
    for side in (PEER, QUERIER):
        sizes = [sorted(len(one) for one in wire.messages(side)) for wire in wires]
        assert len(sizes[0]) == len(sizes[1]) > 10
        # Keys and ciphertexts are packed, and random ones pack to slightly different lengths.
        slack = np.where(np.array(sizes[0]) > 5000, 4000, 8)
        assert (np.abs(np.subtract(*sizes)) <= slack).all()
        for wire in wires:
            assert repeated(wire.messages(side)) < 2000
            # A public key, and a matrix or the one response: never a second response.
            assert len(ciphertexts(wire.messages(side))) == 2
