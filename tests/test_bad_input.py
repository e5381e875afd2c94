"""Malformed input: each case names the argument or the place, the rule and the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import privote as pv
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
    return pv.Electorate(mechanism=pv.BinaryVoting(sigma=3.0), **{**arguments, **changes})


def sparse(**changes: Any) -> pv.SparseBallots:
    arguments: dict[str, Any] = {"query": [0], "voter": [1], "votes": [[True, False]]}
    return pv.SparseBallots(**{**arguments, "queries": 2, "voters": 3, **changes})


def two_positives() -> np.ndarray:
    votes = GOOD.copy()
    votes[3, 4, :2] = True
    return votes


BINARY, TAU = pv.BinaryVoting(sigma=3.0), pv.TauVoting(sigma=3.0, tau=1.0)
BALLOTS = pv.Ballots.from_array(GOOD)
BUDGET = pv.Budget(epsilon=1.0, delta=1e-5)
BITS = np.zeros(8, np.uint8)
RAGGED = [[[1, 0, 1], [0, 1]], [[1, 0, 0]]]


def guardian(**changes: Any) -> pv.Guardian:
    arguments: dict[str, Any] = {"mechanism": BINARY, "budget": BUDGET, "ledger": LEDGER}
    return pv.Guardian(**{**arguments, **changes})


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    # votes
    "nan": (lambda: label(cube(np.nan)), pv.BallotError, "query 2, voter 1, label 0] must be 0, 1"),
    "two": (
        lambda: label(cube(2, np.int8)),
        pv.BallotError,
        "query 2, voter 1, label 0] must be 0",
    ),
    "minus two": (lambda: label(cube(-2, np.int8)), pv.BallotError, "must be 0, 1 or missing (-1)"),
    "half": (lambda: label(cube(0.5)), pv.BallotError, "threshold if these are probabilities"),
    "infinity": (lambda: label(cube(np.inf)), pv.BallotError, "must be 0, 1 or missing"),
    "rank 2": (lambda: label(GOOD[0]), pv.BallotError, "3 axes (queries, voters, labels), got 2"),
    "rank 4": (lambda: label(GOOD[None]), pv.BallotError, "got 4"),
    "a scalar": (lambda: label(1), pv.BallotError, "got 0"),
    "no queries": (lambda: label(GOOD[:0]), pv.BallotError, "at least one of its queries"),
    "no voters": (lambda: label(GOOD[:, :0]), pv.BallotError, "at least one of its voters"),
    "no labels": (lambda: label(GOOD[:, :, :0]), pv.BallotError, "at least one of its labels"),
    "words": (lambda: label(np.full((1, 2, 3), "yes")), pv.BallotError, "got dtype <U3"),
    "objects": (lambda: label(np.full((1, 2, 3), None)), pv.BallotError, "got dtype object"),
    "complex": (lambda: label(GOOD.astype(complex)), pv.BallotError, "got dtype complex128"),
    "hidden byte": (
        lambda: label(np.full((1, 2, 3), 7, np.uint8).view(bool)),
        pv.BallotError,
        "is no bool inside",
    ),
    "two positives": (
        lambda: label(two_positives(), mechanism=pv.PluralityVoting(sigma=3.0)),
        pv.BallotError,
        "plurality takes at most one positive a ballot",
    ),
    "too many positives": (
        lambda: label(two_positives(), mechanism=pv.PowersetVoting(sigma=3.0, max_positives=1)),
        pv.BallotError,
        "max_positives is 1, but a ballot has more positives",
    ),
    "declared complete": (
        lambda: pv.Ballots.from_array(cube(-1, np.int8), may_be_missing=False),
        pv.BallotError,
        "may_be_missing is False",
    ),
    # probabilities
    "probability above 1": (lambda: label(cube(1.2), threshold=0.5), pv.BallotError, "in [0, 1]"),
    "probability nan": (lambda: label(cube(np.nan), threshold=0.5), pv.BallotError, "in [0, 1]"),
    "threshold above 1": (lambda: label(cube(0.1), threshold=1.5), pv.InputError, "got 1.5"),
    "threshold nan": (lambda: label(cube(0.1), threshold=np.nan), pv.InputError, "in [0, 1]"),
    "two thresholds for three labels": (
        lambda: label(cube(0.1), threshold=[0.5, 0.5]),
        pv.InputError,
        "one per label (3), got shape (2,)",
    ),
    # mechanisms
    "sigma zero": (lambda: pv.BinaryVoting(sigma=0.0), pv.InputError, "sigma must be finite"),
    "sigma nan": (lambda: pv.TauVoting(sigma=np.nan, tau=1.0), pv.InputError, "got nan"),
    "sigma a bool": (lambda: pv.PowersetVoting(sigma=True), pv.InputError, "got True"),
    "sigma a word": (lambda: pv.PluralityVoting(sigma="7"), pv.InputError, "got '7'"),
    "no sigma": (lambda: pv.BinaryVoting(), pv.InputError, "exactly one of sigma and link"),
    "sigma and link": (
        lambda: pv.BinaryVoting(sigma=1.0, link=pv.OptimalLink(cost=0.1, order=2.0)),
        pv.InputError,
        "exactly one of sigma and link",
    ),
    "tau negative": (lambda: pv.TauVoting(sigma=1.0, tau=-1.0), pv.InputError, "tau must be"),
    "norm 3": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=3), pv.InputError, "1 or 2, got 3"),
    "max_positives 0": (
        lambda: pv.PowersetVoting(sigma=1.0, max_positives=0),
        pv.InputError,
        "max_positives must be an integer of at least 1, got 0",
    ),
    "quota 1": (lambda: pv.BinaryVoting(sigma=1.0, quota=1.0), pv.InputError, "quota must lie"),
    "two bars": (
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, false_alarm=0.1),
        pv.InputError,
        "give one of them",
    ),
    "gate with a bar": (
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, gate=pv.Gate(threshold=1, sigma=1.0)),
        pv.UnavailableError,
        "got quota=0.3",
    ),
    "link with a bar": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0), quota=0.3),
        pv.UnavailableError,
        "no quota",
    ),
    "gate sigma": (lambda: pv.Gate(threshold=1, sigma=-1.0), pv.InputError, "gate sigma must be"),
    "gate threshold": (lambda: pv.Gate(threshold=np.nan, sigma=1.0), pv.InputError, "got nan"),
    "gate a number": (lambda: pv.BinaryVoting(sigma=1.0, gate=5), pv.InputError, "got 5"),
    "link order": (lambda: pv.OptimalLink(cost=0.1, order=1.0), pv.InputError, "above 1, got 1.0"),
    # accounting
    "order 1": (
        lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, [1.0]),
        pv.InputError,
        "orders must be finite and above 1, got 1.0",
    ),
    "no orders": (lambda: pv.epsilon([], [], 1e-5), pv.InputError, "orders must be a non-empty"),
    "curve too short": (
        lambda: pv.epsilon([0.1], [2.0, 3.0], 1e-5),
        pv.InputError,
        "one value per order on its last axis (2)",
    ),
    "negative curve": (lambda: pv.epsilon([-0.1], [2.0], 1e-5), pv.InputError, "no negative"),
    "unknown bound": (
        lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, bound="tight"),
        pv.InputError,
        "one of exact, pate2018, got 'tight'",
    ),
    "unknown worst case": (
        lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(5, 3, bound="pate2018"),
        pv.InputError,
        "one of exact, gaussian, got 'pate2018'",
    ),
    "published bound on a link": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0)).rdp(
            GOOD, bound="pate2018"
        ),
        pv.UnavailableError,
        "Gaussian noise, not for a link",
    ),
    "no voters to price": (
        lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(0, 3),
        pv.InputError,
        "voters must be an integer of at least 1, got 0",
    ),
    # labelling
    "epsilon zero": (lambda: label(epsilon=0.0), pv.InputError, "epsilon must be finite"),
    "epsilon infinite": (lambda: label(epsilon=np.inf), pv.InputError, "got inf"),
    "delta zero": (lambda: label(delta=0.0), pv.InputError, "delta must lie strictly"),
    "delta one": (lambda: label(delta=1.0), pv.InputError, "got 1.0"),
    "unknown guarantee": (
        lambda: label(guarantee="none"),
        pv.InputError,
        "allowance, worst-case, ptr, data-dependent, got 'none'",
    ),
    "ptr without queries": (lambda: label(guarantee="ptr"), pv.InputError, "queries must be given"),
    "ptr without a proof": (
        lambda: label(guarantee="ptr", queries=2, mechanism=pv.TauVoting(sigma=3.0, tau=1.0)),
        pv.UnavailableError,
        "'allowance' and 'worst-case' take every mechanism",
    ),
    "ledger in no folder": (
        lambda: label(ledger="no/such/folder/x.db"),
        pv.LedgerError,
        "no/such/folder'",
    ),
    "data set without a name": (lambda: label(dataset=""), pv.InputError, "must be a name"),
    "mechanism a word": (lambda: label(mechanism="binary"), pv.InputError, "got 'binary'"),
    "more queries than votes": (lambda: label(queries=5), pv.InputError, "in 1..4"),
    "queries zero": (lambda: label(queries=0), pv.InputError, "got 0"),
    "queries a float": (lambda: label(queries=2.0), pv.InputError, "integer, got 2.0"),
    "data-dependent without queries": (
        lambda: label(guarantee="data-dependent"),
        pv.InputError,
        "queries must be given",
    ),
    "negative seed": (lambda: label(seed=-1), pv.InputError, "seed must be None or an integer"),
    "baseline shape": (
        lambda: label(baseline=np.zeros((4, 2))),
        pv.InputError,
        "baseline must be (queries, labels) = (4, 3), got (4, 2)",
    ),
    "baseline values": (
        lambda: label(baseline=np.full((4, 3), 2)),
        pv.InputError,
        "baseline must hold 0 and 1 only",
    ),
    "baseline for worst-case": (
        lambda: label(baseline=np.zeros((4, 3)), guarantee="worst-case"),
        pv.InputError,
        "not 'worst-case'",
    ),
    "no surprise fits": (
        lambda: label(epsilon=0.01, guarantee="allowance", mechanism=pv.BinaryVoting(sigma=0.5)),
        pv.BudgetError,
        "buys not one surprise",
    ),
    "no query fits": (
        lambda: label(epsilon=0.01, guarantee="worst-case", mechanism=pv.BinaryVoting(sigma=0.5)),
        pv.BudgetError,
        "allows 0 more queries",
    ),
    "queries do not fit": (
        lambda: label(epsilon=4.0, guarantee="worst-case", queries=4),
        pv.BudgetError,
        "but queries=4",
    ),
    # electorate and sparse ballots
    "allowance too large": (lambda: electorate(allowance=10**9), pv.InputError, "in 0.."),
    "allowance per voter": (
        lambda: electorate(allowance=[1, 2]),
        pv.InputError,
        "one per voter (5)",
    ),
    "names twice": (
        lambda: electorate(voter_ids=["a", "a", "b", "c", "d"]),
        pv.InputError,
        "5 different names, but voters 0 and 1 have one",
    ),
    "stranger": (
        lambda: electorate(voter_ids="abcde").answer(GOOD, voter_ids="abcdz"),
        pv.InputError,
        "must name registered voters, and voter 4 is not",
    ),
    "voters absent without names": (
        lambda: electorate().answer(GOOD[:, :4]),
        pv.InputError,
        "must have 5 voters, got 4",
    ),
    "another number of labels": (
        lambda: electorate().answer(GOOD[:, :, :2]),
        pv.InputError,
        "must have 3 labels, got 2",
    ),
    "sparse voter out of range": (lambda: sparse(voter=[3]), pv.BallotError, "in 0..2, got 3"),
    "sparse two ballots": (
        lambda: sparse(query=[0, 0], voter=[1, 1], votes=[[1, 0], [0, 1]]),
        pv.BallotError,
        "voter 1 casts more than one ballot on query 0",
    ),
    "sparse missing": (lambda: sparse(votes=[[-1, 0]]), pv.BallotError, "must be 0 or 1"),
    "sparse lengths": (lambda: sparse(query=[0, 1]), pv.BallotError, "one per ballot"),
    "sparse baseline": (
        lambda: pv.label(
            sparse(),
            mechanism=pv.BinaryVoting(sigma=9.0),
            epsilon=50.0,
            delta=1e-5,
            baseline=[[1, 0], [0, 0]],
        ),
        pv.InputError,
        "zero baseline only",
    ),
    # arrays that are none
    "ragged": (lambda: label(RAGGED), pv.BallotError, "votes must be one array, its rows of one"),
    "masked": (
        lambda: label(np.ma.masked_array(GOOD, mask=True)),
        pv.BallotError,
        "a mask says nothing here, -1 is missing",
    ),
    "no votes at all": (lambda: BINARY.release(None), pv.BallotError, "got 0"),
    "a table of names": (lambda: BINARY.rdp({"a": 1}), pv.BallotError, "got 0"),
    "dates": (lambda: label(np.zeros((1, 2, 3), "M8[s]")), pv.BallotError, "datetime64"),
    "records": (lambda: label(np.zeros((1, 2, 3), [("a", int)])), pv.BallotError, "got dtype"),
    "path without a file": (lambda: label("absent.npy"), pv.InputError, "does not exist"),
    "path of another kind": (lambda: label("."), pv.InputError, "must end in one of"),
    "path a number": (lambda: votefiles.read(5), pv.InputError, "path must name a file, got 5"),
    "packed into no folder": (
        lambda: votefiles.write_packed("no/such/folder/x.npz", GOOD),
        pv.InputError,
        "cannot be written",
    ),
    "packed bits a list of words": (
        lambda: pv.Ballots.from_packed(["a"], (1, 2, 3)),
        pv.BallotError,
        "packed votes must be 1 bytes (uint8)",
    ),
    "packed shape ragged": (
        lambda: pv.Ballots.from_packed(BITS, [[1], [2, 3]]),
        pv.BallotError,
        "shape must be one array",
    ),
    "packed shape negative": (
        lambda: pv.Ballots.from_packed(BITS, (-1, 2, 3)),
        pv.BallotError,
        "at least one of its queries",
    ),
    "shape of two": (
        lambda: pv.Ballots((1, 2), lambda start, stop: GOOD, missing=False),
        pv.BallotError,
        "3 axes (queries, voters, labels), got 2",
    ),
    "shape of words": (
        lambda: pv.Ballots(("a", 2, 3), lambda start, stop: GOOD, missing=False),
        pv.BallotError,
        "queries must be an integer, got 'a'",
    ),
    "rows that cannot be called": (
        lambda: pv.Ballots((1, 2, 3), GOOD, missing=False),
        pv.InputError,
        "rows must be a function",
    ),
    "may_be_missing a word": (
        lambda: pv.Ballots.from_array(GOOD, may_be_missing="no"),
        pv.InputError,
        "may_be_missing must be True, False or None, got 'no'",
    ),
    "clip to a word": (
        lambda: BALLOTS.clip("a"),
        pv.InputError,
        "max_positives must be an integer",
    ),
    "clip to nothing": (lambda: BALLOTS.clip(None), pv.InputError, "got None"),
    "clip to a half": (lambda: BALLOTS.clip(1.5), pv.InputError, "got 1.5"),
    "clip below zero": (lambda: BALLOTS.clip(-1), pv.InputError, "at least 0, got -1"),
    "head a word": (lambda: BALLOTS.head("a"), pv.InputError, "queries must be an integer"),
    "threshold ragged": (
        lambda: label(cube(0.1), threshold=[[0.5], [0.1, 0.2]]),
        pv.InputError,
        "threshold must be a number or one per label",
    ),
    # numbers that are none
    "epsilon nan": (lambda: label(epsilon=np.nan), pv.InputError, "epsilon must be finite"),
    "epsilon a truth": (
        lambda: label(epsilon=np.bool_(True)),
        pv.InputError,
        "epsilon must be finite",
    ),
    "epsilon an array": (lambda: label(epsilon=np.array([8.0])), pv.InputError, "got array([8.])"),
    "epsilon complex": (lambda: label(epsilon=8 + 0j), pv.InputError, "got (8+0j)"),
    "epsilon a word": (lambda: label(epsilon="8"), pv.InputError, "got '8'"),
    "epsilon beyond floats": (lambda: label(epsilon=10**400), pv.InputError, "got 1000000"),
    "sigma beyond floats": (
        lambda: pv.BinaryVoting(sigma=10**400),
        pv.InputError,
        "sigma must be finite and positive, got 1000000",
    ),
    "delta a word": (lambda: label(delta="1e-5"), pv.InputError, "got '1e-5'"),
    "delta a truth": (lambda: label(delta=True), pv.InputError, "got True"),
    "delta nan": (lambda: label(delta=np.nan), pv.InputError, "got nan"),
    "delta negative": (lambda: label(delta=-1e-5), pv.InputError, "got -1e-05"),
    "seed a word": (lambda: label(seed="a"), pv.InputError, "got 'a'"),
    "seed a float": (lambda: BINARY.release(GOOD, seed=1.0), pv.InputError, "got 1.0"),
    "seed a truth": (lambda: BINARY.release(GOOD, seed=True), pv.InputError, "got True"),
    "seed a list": (lambda: label(seed=[1]), pv.InputError, "got [1]"),
    "orders a word": (lambda: BINARY.rdp(GOOD, "abc"), pv.InputError, "orders must be numbers"),
    "orders a table": (lambda: BINARY.rdp(GOOD, {2: 1}), pv.InputError, "orders must be numbers"),
    "orders ragged": (
        lambda: BINARY.worst_case_rdp(5, 3, [[2], [3, 4]]),
        pv.InputError,
        "orders must be numbers, got [[2], [3, 4]]",
    ),
    "curve a word": (lambda: pv.epsilon("a", [2.0], 1e-5), pv.InputError, "rdp must be numbers"),
    "curve nothing": (lambda: pv.epsilon(None, None, 1e-5), pv.InputError, "rdp must be numbers"),
    "several curves in 2017": (
        lambda: pv.epsilon_2017([[1.0], [2.0]], [2.0], 1e-5),
        pv.InputError,
        "rdp must be one curve (orders,), got shape (2, 1)",
    ),
    "voters a float": (lambda: TAU.worst_case_rdp(5.0, 3), pv.InputError, "voters must be an int"),
    "labels negative": (lambda: BINARY.surprise_rdp(5, -1), pv.InputError, "labels must be an int"),
    "norm a truth": (
        lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=True),
        pv.InputError,
        "norm must be an integer of at least 1, got True",
    ),
    "norms": (
        lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=np.array([1, 2])),
        pv.InputError,
        "norm must be an integer",
    ),
    "quota a word": (lambda: pv.BinaryVoting(sigma=1.0, quota="a"), pv.InputError, "got 'a'"),
    "link order nan": (
        lambda: pv.OptimalLink(cost=0.1, order=np.nan),
        pv.InputError,
        "got nan",
    ),
    # names, ledgers and what goes with what
    "data set a number": (lambda: label(dataset=5), pv.InputError, "dataset must be a name"),
    "data set blank": (lambda: label(dataset="  "), pv.InputError, "got '  '"),
    "consumer without a name": (lambda: label(consumer=""), pv.InputError, "consumer must be a"),
    "owner a number": (lambda: guardian(owner=5), pv.InputError, "owner must be a name"),
    "budget a number": (lambda: guardian(budget=5), pv.InputError, "budget must be a privote.Bud"),
    "budget set to nothing": (
        lambda: LEDGER.set_budget(None, dataset="d"),
        pv.InputError,
        "budget must be a privote.Budget, got None",
    ),
    "budget of nobody": (
        lambda: LEDGER.set_budget(BUDGET, dataset=""),
        pv.InputError,
        "dataset must be a name",
    ),
    "ledger a folder": (lambda: label(ledger="."), pv.InputError, "is a folder"),
    "ledger a number": (lambda: label(ledger=5), pv.InputError, "Ledger or its path, got 5"),
    "ledger bytes": (lambda: label(ledger=b"x.db"), pv.InputError, "got b'x.db'"),
    "ledger without a name": (lambda: label(ledger=""), pv.InputError, "got ''"),
    "voters numbered": (lambda: label(voter_ids=5), pv.InputError, "voter_ids must be a sequence"),
    "voters without order": (
        lambda: label(voter_ids=set("abcde")),
        pv.InputError,
        "voter_ids must be a sequence",
    ),
    "voters nameless": (lambda: label(voter_ids=[None] * 5), pv.InputError, "voter 0 has NoneType"),
    "voters in two columns": (
        lambda: label(voter_ids=np.zeros((5, 2), int)),
        pv.InputError,
        "voter 0 has ndarray",
    ),
    "nobody": (lambda: guardian(voter_ids=[]), pv.InputError, "one or more different names, got 0"),
    "bound without a use": (
        lambda: guardian().release(GOOD, bound="pate2018"),
        pv.InputError,
        "bound goes with guarantee 'data-dependent', not 'allowance'; got 'pate2018'",
    ),
    "bound unknown": (
        lambda: guardian(guarantee="data-dependent").release(GOOD, queries=2, bound="tight"),
        pv.InputError,
        "got 'tight'",
    ),
    "baseline ragged": (
        lambda: label(baseline=[[1], [1, 2]]),
        pv.InputError,
        "baseline must be a table",
    ),
    "baseline words": (
        lambda: label(baseline=np.full((4, 3), "0")),
        pv.InputError,
        "baseline must hold 0 and 1 only",
    ),
    "baseline with a hidden byte": (
        lambda: label(baseline=np.full((4, 3), 7, np.uint8).view(bool)),
        pv.InputError,
        "baseline must hold 0 and 1 only",
    ),
    "allowance a float": (lambda: electorate(allowance=2.5), pv.InputError, "got 2.5"),
    "allowance negative": (lambda: electorate(allowance=-1), pv.InputError, "none negative"),
    "allowance ragged": (lambda: electorate(allowance=[1, [2]]), pv.InputError, "got [1, [2]]"),
    "sparse queries a word": (
        lambda: sparse(queries="a"),
        pv.BallotError,
        "queries must be an int",
    ),
    "sparse voters a half": (lambda: sparse(voters=2.5), pv.BallotError, "voters must be an int"),
    "sparse votes ragged": (lambda: sparse(votes=[[1], [1, 0]]), pv.BallotError, "one array"),
    "sparse query beyond": (lambda: sparse(query=[2**63]), pv.BallotError, "in 0..1"),
    # what was written
    "release without a file": (
        lambda: pv.Release.load("absent.npz"),
        pv.InputError,
        "'absent.npz' is not a saved release",
    ),
    "release a number": (lambda: pv.Release.load(5), pv.InputError, "'5' is not a saved release"),
    # audits
    "audit a word": (lambda: pv.audit.exact("x", 3, 2), pv.InputError, "must be a privote mech"),
    "audit nothing": (
        lambda: pv.audit.exact(BINARY, 3, 2, elections=0),
        pv.InputError,
        "elections must be an integer of at least 1, got 0",
    ),
    "audit without a seed": (
        lambda: pv.audit.exact(BINARY, 3, 2, seed="a"),
        pv.InputError,
        "seed must be an integer of at least 0, got 'a'",
    ),
    "audit one draw": (
        lambda: pv.audit.sampled(BINARY, GOOD, GOOD, draws=1),
        pv.InputError,
        "draws must be an integer of at least 2, got 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_refused_with_the_reason(name: str) -> None:
    action, kind, message = CASES[name]
    with pytest.raises(kind, match=re.escape(message)) as caught:
        action()
    assert type(caught.value) is kind
    assert LEDGER.published() == []


def test_bad_batch_spends_nothing() -> None:
    voters = electorate()
    good = np.ones((1, 5, 3), dtype=bool)
    voters.answer(good)
    before = voters.sealed.spent.copy()
    for bad in (cube(np.nan), GOOD[:, :4], GOOD[0]):
        with pytest.raises(pv.InputError):
            voters.answer(bad)
    with pytest.raises(pv.InputError):
        voters.answer(good, baseline=np.zeros((2, 3)))
    assert (voters.sealed.spent == before).all()
    assert before.tolist() == [3] * 5
