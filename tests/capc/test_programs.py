"""The programs in clear against plain loops, what they refuse, which chunks are safe."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from privote.capc import programs as ballot
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


@given(seed=SEEDS, hidden=st.none() | st.integers(1, 4), tau=st.booleans())
def test_ballots_by_hand(seed: int, hidden: int | None, tau: bool) -> None:
    values = np.random.default_rng(seed)
    table = (0, 12, 9, 5) if tau else None
    program = BallotProgram(rows=4, features=3, labels=3, hidden=hidden, weights=table)
    x = values.integers(-3, 4, (4, 3))
    peer = {key: values.integers(-3, 4, s) for key, s in program.inputs(PEER).items()}
    peer["mask"] = uniform(values, (4, 3))
    share = program.compute(np, program.joined({"x": x}, peer))["share"]
    for row in range(4):
        inputs = [int(one) for one in x[row]]
        if hidden is not None:
            inputs = [
                max(0, sum(a * int(w) for a, w in zip(inputs, column, strict=True)) + int(b))
                for column, b in zip(peer["weights1"].T, peer["bias1"], strict=True)
            ]
        weights, bias = (
            (peer["weights"], peer["bias"]) if hidden is None else (peer["weights2"], peer["bias2"])
        )
        votes = [
            int(
                sum(a * int(w) for a, w in zip(inputs, weights[:, label], strict=True))
                + int(bias[label])
                >= 0
            )
            for label in range(3)
        ]
        worth = table[sum(votes)] if table else 1
        for label in range(3):
            wanted = (votes[label] * worth - int(peer["mask"][row, label])) % 2**64
            assert int(share[row, label]) % 2**64 == wanted


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


@given(
    seed=SEEDS,
    gated=st.booleans(),
    kind=st.sampled_from(["votes", "baseline", "ballots"]),
    partial=st.booleans(),
)
def test_allowance_by_hand(seed: int, gated: bool, kind: str, partial: bool) -> None:
    """Against one query at a time, one party at a time."""
    values = np.random.default_rng(seed)
    rows, parties, voters, labels = 7, 3, 5, 2
    grid = 6 if kind == "ballots" else 1
    has = values.integers(0, 2, (parties, labels))
    program = AllowanceProgram(
        rows=rows,
        parties=parties,
        voters=voters,
        labels=labels,
        gated=gated,
        grid=grid,
        by_ballot=kind == "ballots",
        baseline=kind == "baseline",
        has=tuple(map(tuple, has.tolist())) if partial else None,
    )
    ballots = values.integers(0, 2, (rows, parties, labels)) * values.integers(1, grid + 1)
    left, fresh = values.integers(0, 9, parties), uniform(values, (parties,))
    base = values.integers(-1, 2, (rows, labels))
    noise, second = (values.integers(-6, 7, (rows, labels)) for _ in range(2))
    masks, part = uniform(values, ballots.shape), uniform(values, (parties,))
    querier = {"shares": ballots - masks, "left": left - part}
    peer = {"masks": masks, "left": part, "fresh": fresh, "vote": noise}
    if gated:
        peer["gate"] = second
    if kind == "baseline":
        querier["base"], peer["base"] = base, np.zeros_like(base)
    else:
        base = np.zeros_like(base)
    values_ = program.joined(program.checked(QUERIER, querier), program.checked(PEER, peer))
    result = program.compute(np, values_)

    remaining = left.copy()
    for row in range(rows):
        guess = (base[row] > 0).astype(int)
        yes = guess * (voters - parties)  # who is missing counts as the baseline
        for party in range(parties):
            known = has[party] == 1 if partial else np.ones(labels, bool)
            ballot = np.where(known, ballots[row, party], guess)
            surprises = int((ballot != guess).sum())
            count = int(surprises > 0) if kind == "ballots" else surprises
            remaining[party] -= count  # refused ones, too: whoever is over stays over
            yes = yes + (guess if remaining[party] < 0 else ballot)
        margin = 2 * yes - voters * grid
        label = (margin + noise[row] >= 0).astype(int)
        if gated:
            label[np.abs(margin) + second[row] < 0] = -1
        np.testing.assert_array_equal(result["label"][row], label)
    np.testing.assert_array_equal(result["left"] + fresh, remaining)


PROGRAMS = [
    BallotProgram(rows=2, features=3, labels=2),
    BallotProgram(rows=2, features=3, labels=2, hidden=4, weights=(0, 10, 7)),
    DecisionProgram(rows=5, labels=2, gated=True),
    AllowanceProgram(rows=2, parties=2, voters=3, labels=2, has=((1, 0), (1, 1)), baseline=True),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_rebuilt_from_public_parameters(program: Any) -> None:
    parameters = json.loads(json.dumps(program.parameters()))
    again = program_of(program.name, parameters)
    assert again == program
    assert hash(again) == hash(program)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("decision", {"rows": 0, "labels": 2}),
        ("decision", {"rows": True, "labels": 2}),
        ("decision", {"rows": 2.5, "labels": 2}),
        ("decision", {"rows": 2, "labels": 2, "gated": 1}),
        ("decision", {"rows": 1 << 20, "labels": 20}),
        ("ballot", {"rows": 512, "features": 8, "labels": 20}),
        ("ballot", {"rows": 2, "features": 8, "labels": 20, "hidden": 1 << 19}),
        ("ballot", {"rows": 2, "features": 8, "labels": 2, "weights": [0, 1]}),
        ("ballot", {"rows": 2, "features": 8, "labels": 2, "weights": [0, 1, -1]}),
        ("ballot", {"rows": 2, "features": 8, "labels": 2, "weights": [0, 1, 1 << 50]}),
        ("allowance", {"rows": 1, "parties": 3, "voters": 2, "labels": 2}),
        ("allowance", {"rows": 1, "parties": 1, "voters": 2, "labels": 2, "has": [[1]]}),
        ("allowance", {"rows": 1, "parties": 1, "voters": 2, "labels": 2, "has": [[1, 2]]}),
        (
            "allowance",
            {
                "rows": 1,
                "parties": 1,
                "voters": 1,
                "labels": 1,
                "by_ballot": True,
                "baseline": True,
            },
        ),
    ],
)
def test_refused(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        program_of(name, parameters)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_every_size_and_flag_is_checked(program: Any) -> None:
    for name, value in program.parameters().items():
        if isinstance(value, bool):
            with pytest.raises(InputError, match=f"{name} must be True or False, got 1"):
                replace(program, **{name: 1})
        elif isinstance(value, int):
            for wrong in (0, 1.0, True, 1 << 50):
                with pytest.raises(InputError, match=f"{name} must be an integer"):
                    replace(program, **{name: wrong})


def test_chunks_of_decisions_are_bounded() -> None:
    def allowance(parties: int, labels: int) -> int:
        return AllowanceProgram(rows=1, parties=parties, voters=parties, labels=labels).most_rows

    assert DecisionProgram(rows=1, labels=20).most_rows * 20 <= 1 << 15
    assert allowance(50, 20) * 20 * 50 <= 1 << 17
    assert allowance(1, 1) <= 1024
    assert allowance(1 << 10, 1 << 10) == 1


def test_a_batch_is_split_into_programs_of_at_most_so_many_rows() -> None:
    program = AllowanceProgram(rows=1, parties=1, voters=1, labels=1)
    assert [one.rows for one in program.split(2500)] == [1024, 1024, 452]
    assert [one.rows for one in program.split(1024)] == [1024]
    assert {replace(one, rows=1) for one in program.split(2500)} == {program}


def most_rows(**sizes: int | None) -> int:
    return BallotProgram(rows=1, **sizes).most_rows  # type: ignore[arg-type]


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


def test_rows_within_one_polynomial_are_not_enough() -> None:
    assert 5 * 6 < SLOTS
    assert not single_response(5, 294, 6)


@pytest.mark.parametrize(
    ("labels", "hidden", "rows"), [(20, None, 256), (20, 64, 128), (6, None, 1024), (128, 20, 64)]
)
@pytest.mark.parametrize("features", [3, 294, 512])
def test_chunk_is_a_power_of_two(labels: int, hidden: int | None, rows: int, features: int) -> None:
    assert most_rows(features=features, labels=labels, hidden=hidden) == rows


@given(
    features=st.integers(1, 700),
    labels=st.integers(8, 60),
    hidden=st.none() | st.integers(8, 60),
    share=st.floats(0.001, 1.0),
)
def test_padded_rows_are_safe(features: int, labels: int, hidden: int | None, share: float) -> None:
    most = most_rows(features=features, labels=labels, hidden=hidden)
    rows = max(1, int(share * most))
    padded = BallotProgram(rows=rows, features=features, labels=labels, hidden=hidden).padded()
    assert rows <= padded.rows <= most
    products = [(features, labels)] if hidden is None else [(features, hidden), (hidden, labels)]
    for product in products:
        assert single_response(padded.rows, *product)


def test_padding_looks_at_few_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safe numbers of rows may be hundreds apart, and each look costs a fraction of a second."""
    looks = []

    def counted(*sizes: int) -> bool:
        looks.append(sizes)
        return single_response(*sizes)

    monkeypatch.setattr(ballot, "single_response", counted)
    padded = BallotProgram(rows=1111, features=8, labels=3, hidden=3).padded()
    assert 1111 < padded.rows <= most_rows(features=8, labels=3, hidden=3)
    assert len(looks) < 30


def test_too_wide_for_any_chunk() -> None:
    with refused(None):
        single_response_rows(((4, SLOTS + 1),))
