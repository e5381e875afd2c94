"""Malformed input: kind of error, and argument or place at fault; nothing is charged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.dependencies import Implications
from privote.entropy import Entropy
from privote.votes import arrays as votefiles

GOOD = np.zeros((4, 5, 3), dtype=bool)
LEDGER = pv.Ledger.in_memory()  # nothing in this file may ever charge it


def cube(value: float, dtype: Any = np.float64) -> np.ndarray:
    votes = np.zeros((4, 5, 3), dtype=dtype)
    votes[2, 1, 0] = value
    return votes


def label(votes: Any = GOOD, **changes: Any) -> pv.Release:
    mechanism = changes.pop("mechanism", pv.BinaryVoting(sigma=3.0))
    arguments: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-5, "ledger": LEDGER, **changes}
    return pv.label(votes, mechanism=mechanism, **arguments)


def electorate(**changes: Any) -> pv.Electorate:
    arguments: dict[str, Any] = {"voters": 5, "labels": 3, "epsilon": 50.0, "delta": 1e-5}
    return pv.Electorate(**{"mechanism": pv.BinaryVoting(sigma=3.0), **arguments, **changes})


def sparse(**changes: Any) -> pv.SparseBallots:
    arguments: dict[str, Any] = {"query": [0], "voter": [1], "votes": [[True, False]]}
    return pv.SparseBallots(**{**arguments, "queries": 2, "voters": 3, **changes})


implied = Implications.of
BINARY, TAU = pv.BinaryVoting(sigma=3.0), pv.TauVoting(sigma=3.0, tau=1.0)
GATE = pv.Gate(threshold=1, sigma=1.0)
BALLOTS = pv.Ballots.from_array(GOOD)
BUDGET = pv.Budget(epsilon=1.0, delta=1e-5)
BITS, HIDDEN = np.zeros(8, np.uint8), np.full((1, 2, 3), 7, np.uint8).view(bool)
TWO = GOOD.copy()
TWO[3, 4, :2] = True
RAGGED = [[[1, 0, 1], [0, 1]], [[1, 0, 0]]]
TIGHT: dict[str, Any] = {"epsilon": 0.01, "mechanism": pv.BinaryVoting(sigma=0.5)}


Table = dict[str | None, list[Callable[[], Any]]]


def each(action: Callable[..., Any], argument: str, *values: Any) -> list[Callable[[], Any]]:
    return [partial(action, **{argument: value}) for value in values]


# What is done, by the argument that broke a rule.
INPUT: Table = {
    "votes": [
        lambda: BINARY.rdp({"a": 1}),
        lambda: electorate().answer(GOOD[:, :4]),
        lambda: electorate().answer(GOOD[:, :, :2]),
    ],
    "queries": [
        lambda: label(GOOD[:0]),
        *each(label, "queries", 5, 0, 2.0),
        *each(label, "guarantee", "data-dependent"),
        lambda: sparse(queries="a"),
        lambda: BALLOTS.head("a"),
        lambda: pv.Ballots.from_packed(BITS, (-1, 2, 3)),
        lambda: pv.Ballots(("a", 2, 3), lambda start, stop: GOOD, missing=False),
    ],
    "voters": [
        lambda: label(GOOD[:, :0]),
        lambda: BINARY.worst_case_rdp(0, 3),
        lambda: TAU.worst_case_rdp(5.0, 3),
        lambda: sparse(voters=2.5),
        lambda: pv.audit.exact(BINARY, 0, 2),
    ],
    "labels": [
        lambda: label(GOOD[:, :, :0]),
        *(partial(pv.dependencies.consistent, bad, [(0, 1)]) for bad in ([[0.2, -1.0]], [[1, 2]])),
    ],
    "max_positives": [
        *(partial(BALLOTS.clip, bad) for bad in ("a", None, 1.5, -1)),
        lambda: pv.PowersetVoting(sigma=1.0, max_positives=0),
    ],
    "threshold": each(
        partial(label, cube(0.1)), "threshold", 1.5, np.nan, [0.5, 0.5], [[0.5], [0.1, 0.2]]
    ),
    "votes file": [lambda: label("absent.npy"), lambda: label("."), lambda: votefiles.read(5)],
    # mechanisms
    "sigma": [
        *each(pv.BinaryVoting, "sigma", 0.0, 10**400),
        lambda: pv.TauVoting(sigma=np.nan, tau=1.0),
        lambda: pv.PowersetVoting(sigma=True),
        lambda: pv.PluralityVoting(sigma="7"),
        # What cannot be drawn.
        *each(partial(Entropy().rounded_gaussian, count=1), "sigma", 0.0, -1.0, np.nan, 1.1e9),
        lambda: pv.TallyVoting(sigma=2e9),
        lambda: pv.TallyVoting(sigma=2e7, grid=100),
        lambda: pv.TallyVoting(sigma=2e6, tau=1.0),
    ],
    "tau": [lambda: pv.TauVoting(sigma=1.0, tau=-1.0)],
    "norm": each(partial(pv.TauVoting, sigma=1.0, tau=1.0), "norm", 3, True, np.array([1, 2])),
    "quota": each(partial(pv.BinaryVoting, sigma=1.0), "quota", 1.0, "a"),
    "gate": [lambda: pv.BinaryVoting(sigma=1.0, gate=5)],
    "gate sigma": [lambda: pv.Gate(threshold=1, sigma=-1.0)],
    "gate threshold": [lambda: pv.Gate(threshold=np.nan, sigma=1.0)],
    None: [
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, false_alarm=0.1),
        lambda: votefiles.write_packed("no/such/folder/x.npz", GOOD),
        *(partial(pv.Release.load, bad) for bad in ("absent.npz", 5)),
        lambda: label(sparse(), baseline=[[1, 0], [0, 0]]),
    ],
    # accounting
    "orders": [
        *(partial(BINARY.rdp, GOOD, bad) for bad in ("abc", {2: 1})),
        lambda: pv.epsilon([], [], 1e-5),
    ],
    "rdp": [
        lambda: pv.epsilon([0.1], [2.0, 3.0], 1e-5),
        *(partial(pv.epsilon, bad, [2.0], 1e-5) for bad in ([-0.1], "a", None)),
        lambda: pv.epsilon_2017([[1.0], [2.0]], [2.0], 1e-5),
    ],
    # labelling
    "epsilon": each(
        label, "epsilon", 0.0, np.inf, np.nan, np.bool_(1), np.array([8.0]), 8j, "8", 10**400
    ),
    "delta": each(label, "delta", 0.0, 1.0, "1e-5", True, np.nan, -1e-5),
    "seed": [
        *each(label, "seed", -1, "a", [1]),
        *each(partial(BINARY.release, GOOD), "seed", 1.0, True),
        lambda: pv.audit.exact(BINARY, 3, 2, seed="a"),
    ],
    "guarantee": each(label, "guarantee", "none"),
    "mechanism": [
        *each(label, "mechanism", "binary"),
        lambda: pv.audit.exact("x", 3, 2),
        lambda: electorate(mechanism="auto", ledger=LEDGER),
    ],
    "dataset": [
        *each(label, "dataset", "", 5, "  "),
        lambda: LEDGER.set_budget(BUDGET, dataset=""),
    ],
    "ledger": each(label, "ledger", 5, b"x.db", ""),
    "budget": [*each(label, "budget", 0, "5"), lambda: LEDGER.set_budget(None, dataset="d")],
    "baseline": [
        *each(label, "baseline", np.zeros((4, 2)), np.full((4, 3), 2), [[1], [1, 2]]),
        *each(label, "baseline", np.full((4, 3), "0"), np.repeat(HIDDEN[0], 2, axis=0)),
        lambda: label(baseline=np.zeros((4, 3)), guarantee="worst-case"),
    ],
    "allowance": [
        *each(electorate, "allowance", 10**9, [1, 2], 2.5, -1, [1, [2]], True),
        # These would refund.
        *each(electorate, "allowance", np.uint64(2**64 - 300), np.full(5, 2**64 - 300, np.uint64)),
    ],
    "voter_ids": [
        *each(label, "voter_ids", 5, set("abcde"), [None] * 5, np.zeros((5, 2), int)),
        *each(electorate, "voter_ids", ["a", "a", "b", "c", "d"]),
        *each(label, "voter_ids", []),
        lambda: electorate(voter_ids="abcde").answer(GOOD, voter_ids="abcdz"),
    ],
    # dependencies
    "implies": [
        *(partial(implied, bad) for bad in (3, "a.csv", [], {}, ["ab"], [("a",)], [("a", "a")])),
        *(partial(implied, [("a", bad)]) for bad in ("", -1, True)),
        lambda: implied([("a", "c")]).places(2, ("a", "b")),
        lambda: implied([("a", "b")]).places(2),
        lambda: implied([(3, 0)]).places(3),
        lambda: implied([("a", "b"), (1, 0)]).places(2, ("a", "b")),  # a cycle: "a" is 0
    ],
    "rule": [lambda: pv.dependencies.consistent([[1, 0]], [(0, 1)], "sideways")],
    "Y": [
        partial(pv.dependencies.positive, bad)
        for bad in ([1, 0], [[2, 0]], [[0.5, 1]], [["1", "0"]], [[1], [0, 1]], None)
    ],
    # audits
    "elections": [lambda: pv.audit.exact(BINARY, 3, 2, elections=0)],
    "draws": [lambda: pv.audit.sampled(BINARY, GOOD, GOOD, draws=1)],
}
BALLOT: Table = {
    "votes[query 2, voter 1, label 0]": [
        *(partial(label, cube(bad)) for bad in (0.5, np.inf)),
        *(partial(label, cube(bad, np.int8)) for bad in (2, -2)),
        *(partial(label, cube(bad), threshold=0.5) for bad in (1.2, np.inf)),
    ],
    "votes[query 0, voter 0, label 0]": [
        lambda: label(HIDDEN),
        *each(sparse, "votes", [[-1, 0]]),
    ],
    "votes": [
        *(partial(label, bad) for bad in (1, GOOD[0], GOOD[None], RAGGED)),
        lambda: label(np.full((1, 2, 3), "yes")),
        lambda: label(np.full((1, 2, 3), "yes", object)),
        *(partial(label, np.zeros((1, 2, 3), kind)) for kind in ("c16", "M8[s]", [("a", int)])),
        lambda: label(np.ma.masked_array(GOOD, mask=True)),
        lambda: BINARY.release(None),
        lambda: pv.Ballots((1, 2), lambda start, stop: GOOD, missing=False),
        lambda: sparse(votes=[[1], [1, 0]]),
    ],
    None: [
        lambda: label(TWO, mechanism=pv.PluralityVoting(sigma=3.0)),
        lambda: sparse(query=[0, 0], voter=[1, 1], votes=[[1, 0], [0, 1]]),
    ],
    "voter": each(sparse, "voter", [3]),
    "query": each(sparse, "query", [2**63], [0, 1]),
    "shape": [lambda: pv.Ballots.from_packed(BITS, [[1], [2, 3]])],
    "max_positives": [lambda: label(TWO, mechanism=pv.PowersetVoting(sigma=3.0, max_positives=1))],
}
CASES: dict[type[pv.PrivoteError], Table] = {
    pv.InputError: INPUT,
    pv.BallotError: BALLOT,
    pv.UnavailableError: {
        None: [
            lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, gate=GATE),
            lambda: pv.BinaryVoting(sigma=1.0, false_alarm=0.1, gate=GATE),
        ]
    },
    pv.BudgetError: {
        None: [
            *(partial(label, guarantee=name, **TIGHT) for name in ("allowance", "worst-case")),
            lambda: label(epsilon=4.0, guarantee="worst-case", queries=4),
        ]
    },
    pv.LedgerError: {None: each(label, "ledger", ".", "no/such/folder/x.db")},
}


@pytest.mark.parametrize(
    ("kind", "argument", "action"),
    [
        (kind, argument, action)
        for kind, table in CASES.items()
        for argument, actions in table.items()
        for action in actions
    ],
)
def test_malformed_input_is_refused_with_the_reason(
    kind: type[pv.PrivoteError], argument: str | None, action: Callable[[], Any]
) -> None:
    with refused(argument, kind) as caught:
        action()
    assert type(caught.value) is kind
    assert LEDGER.published() == []


def test_bad_batch_spends_nothing() -> None:
    voters = electorate()
    good = np.ones((1, 5, 3), dtype=bool)
    voters.answer(good)
    before = voters.sealed.spent.copy()
    for bad in (cube(np.inf), GOOD[:, :4], GOOD[0]):
        with pytest.raises(pv.InputError):
            voters.answer(bad)
    with pytest.raises(pv.InputError):
        voters.answer(good, baseline=np.zeros((2, 3)))
    assert (voters.sealed.spent == before).all()
    assert before.tolist() == [3] * 5
