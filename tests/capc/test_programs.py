"""The programs in clear against plain loops, what they refuse, which chunks are safe."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.capc.programs import (
    PEER,
    QUERIER,
    SLOTS,
    AllowanceProgram,
    BallotProgram,
    DecisionProgram,
    program_of,
    responses,
    single_response,
    single_response_rows,
)
from privote.errors import InputError

SEEDS = st.integers(0, 2**32 - 1)


def uniform(values: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return values.integers(-(2**63), 2**63 - 1, shape, endpoint=True)


@given(seed=SEEDS, gated=st.booleans())
def test_decisions_by_hand(seed: int, gated: bool) -> None:
    values = np.random.default_rng(seed)
    program = DecisionProgram(rows=3, labels=4, gated=gated)
    margin = values.integers(-4, 5, (3, 4))
    noise, second = values.integers(-4, 5, (3, 4)), values.integers(-6, 3, (3, 4))
    masked = uniform(values, (3, 4))
    peer = {"masks": masked, "vote": noise} | ({"gate": second} if gated else {})
    label = program.compute(np, program.joined({"shares": margin - masked}, peer))["label"]
    wanted = (margin + noise >= 0).astype(int)
    if gated:
        wanted[np.abs(margin) + second < 0] = -1
    np.testing.assert_array_equal(label, wanted)


PROGRAMS = [
    BallotProgram(rows=2, features=3, labels=2),
    BallotProgram(rows=2, features=3, labels=2, weights=(0, 10, 7)),
    DecisionProgram(rows=5, labels=2, gated=True),
    AllowanceProgram(rows=2, parties=2, voters=3, labels=2, charged=(5, 6), steps=3),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_rebuilt_from_public_parameters(program: Any) -> None:
    parameters = json.loads(json.dumps(program.parameters()))
    again = program_of(program.name, parameters)
    assert again == program
    assert hash(again) == hash(program)


def test_chunks_of_decisions_are_bounded() -> None:
    def allowance(parties: int, labels: int) -> int:
        return AllowanceProgram(rows=1, parties=parties, voters=parties, labels=labels).most_rows

    assert DecisionProgram(rows=1, labels=20).most_rows * 20 <= 1 << 15
    assert allowance(50, 20) * 20 * 50 <= 1 << 17
    assert allowance(1, 1) <= 1024
    assert allowance(1 << 10, 1 << 10) == 1


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        # Counted on the wire with spu 0.9.5 (see tests/contracts/test_secure_engine.py).
        ((5, 294, 6), 2),
        ((512, 64, 20), 2),
        ((100, 100, 1), 2),
        ((512, 3, 6), 2),
        ((256, 64, 64), 2),
        ((1024, 16, 16), 2),
        ((128, 64, 64), 1),
        ((256, 16, 16), 1),
    ],
)
def test_responses_as_on_the_wire(sizes: tuple[int, int, int], count: int) -> None:
    assert responses(*sizes) == count


@given(seed=SEEDS, tau=st.booleans())
def test_ballots_by_hand(seed: int, tau: bool) -> None:
    values = np.random.default_rng(seed)
    table = (0, 12, 9, 5) if tau else None
    program = BallotProgram(rows=4, features=3, labels=3, weights=table)
    x = values.integers(-3, 4, (4, 3))
    peer = {key: values.integers(-3, 4, s) for key, s in program.inputs(PEER).items()}
    peer["mask"] = uniform(values, (4, 3))
    share = program.compute(np, program.joined({"x": x}, peer))["share"]
    for row in range(4):
        scores = [
            sum(int(a) * int(w) for a, w in zip(x[row], peer["weights"][:, label], strict=True))
            + int(peer["bias"][label])
            for label in range(3)
        ]
        votes = [int(score >= 0) for score in scores]
        worth = table[sum(votes)] if table else 1
        for label in range(3):
            wanted = (votes[label] * worth - int(peer["mask"][row, label])) % 2**64
            assert int(share[row, label]) % 2**64 == wanted


@given(seed=SEEDS, gated=st.booleans(), by_ballot=st.booleans())
def test_allowance_by_hand(seed: int, gated: bool, by_ballot: bool) -> None:
    """Against one query at a time, one party at a time."""
    values = np.random.default_rng(seed)
    rows, parties, voters, labels = 7, 3, 5, 2
    grid = 6 if by_ballot else 1
    program = AllowanceProgram(
        rows=rows,
        parties=parties,
        voters=voters,
        labels=labels,
        gated=gated,
        grid=grid,
        by_ballot=by_ballot,
    )
    ballots = values.integers(0, 2, (rows, parties, labels)) * values.integers(1, grid + 1)
    left, fresh = values.integers(0, 9, parties), uniform(values, (parties,))
    noise, second = (values.integers(-6, 7, (rows, labels)) for _ in range(2))
    masks, part = uniform(values, ballots.shape), uniform(values, (parties,))
    querier = {"shares": ballots - masks, "left": left - part}
    peer = {"masks": masks, "left": part, "fresh": fresh, "vote": noise}
    if gated:
        peer["gate"] = second
    result = program.in_clear(program.checked(QUERIER, querier), program.checked(PEER, peer))
    remaining = left.copy()
    for row in range(rows):
        yes = np.zeros(labels, int)
        for party in range(parties):
            surprises = int((ballots[row, party] != 0).sum())
            # Refused ones count, too: whoever is over stays over.
            remaining[party] -= min(surprises, 1) if by_ballot else surprises
            yes = yes + (0 if remaining[party] < 0 else ballots[row, party])
        margin = 2 * yes - voters * grid
        label = (margin + noise[row] >= 0).astype(int)
        if gated:
            label[np.abs(margin) + second[row] < 0] = -1
        np.testing.assert_array_equal(result["label"][row], label)
    np.testing.assert_array_equal(result["left"] + fresh, remaining)


ONE = {"rows": 1, "parties": 1, "voters": 2, "labels": 2}
BALLOT = {"rows": 2, "features": 8, "labels": 2}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *(("decision", {"rows": rows, "labels": 20}) for rows in (0, True, 2.5, 1 << 20)),
        ("ballot", {"rows": 512, "features": 8, "labels": 20}),
        ("ballot", {"rows": 1, "features": 4, "labels": SLOTS + 1}),
        *(("ballot", {**BALLOT, "weights": w}) for w in ([0, 1], [0, 1, -1], [0, 1, 1 << 50])),
        *(("allowance", {**ONE, "charged": charged}) for charged in ([1, 1], [-1], [1 << 50])),
        ("allowance", {**ONE, "grid": 1 << 50}),
    ],
)
def test_refused(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        program_of(name, parameters)


@given(features=st.integers(1, 700), labels=st.integers(8, 60), share=st.floats(0.001, 1.0))
def test_padded_rows_are_safe(features: int, labels: int, share: float) -> None:
    most = single_response_rows(features, labels)
    rows = max(1, int(share * most))
    padded = BallotProgram(rows=rows, features=features, labels=labels).padded()
    assert rows <= padded.rows <= most
    assert single_response(padded.rows, features, labels)
    assert not single_response(5, 294, 6), "rows within one polynomial are not enough"
