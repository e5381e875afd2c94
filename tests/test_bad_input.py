"""Malformed input: each case names the argument or the place, the rule and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

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


CASES: dict[str, tuple[Callable[[], Any], type[pv.PrivoteError], str | None]] = {
    # votes
    "nan": (lambda: label(cube(np.nan)), pv.BallotError, "votes[query 2, voter 1, label 0]"),
    "two": (lambda: label(cube(2, np.int8)), pv.BallotError, "votes[query 2, voter 1, label 0]"),
    "minus two": (
        lambda: label(cube(-2, np.int8)),
        pv.BallotError,
        "votes[query 2, voter 1, label 0]",
    ),
    "half": (lambda: label(cube(0.5)), pv.BallotError, "votes[query 2, voter 1, label 0]"),
    "infinity": (lambda: label(cube(np.inf)), pv.BallotError, "votes[query 2, voter 1, label 0]"),
    "rank 2": (lambda: label(GOOD[0]), pv.BallotError, "votes"),
    "rank 4": (lambda: label(GOOD[None]), pv.BallotError, "votes"),
    "a scalar": (lambda: label(1), pv.BallotError, "votes"),
    "no queries": (lambda: label(GOOD[:0]), pv.BallotError, "votes"),
    "no voters": (lambda: label(GOOD[:, :0]), pv.BallotError, "votes"),
    "no labels": (lambda: label(GOOD[:, :, :0]), pv.BallotError, "votes"),
    "words": (lambda: label(np.full((1, 2, 3), "yes")), pv.BallotError, "votes"),
    "objects": (lambda: label(np.full((1, 2, 3), None)), pv.BallotError, "votes"),
    "complex": (lambda: label(GOOD.astype(complex)), pv.BallotError, "votes"),
    "hidden byte": (
        lambda: label(np.full((1, 2, 3), 7, np.uint8).view(bool)),
        pv.BallotError,
        "votes[query 0, voter 0, label 0]",
    ),
    "two positives": (
        lambda: label(two_positives(), mechanism=pv.PluralityVoting(sigma=3.0)),
        pv.BallotError,
        None,
    ),
    "too many positives": (
        lambda: label(two_positives(), mechanism=pv.PowersetVoting(sigma=3.0, max_positives=1)),
        pv.BallotError,
        "max_positives",
    ),
    "declared complete": (
        lambda: pv.Ballots.from_array(cube(-1, np.int8), may_be_missing=False),
        pv.BallotError,
        "may_be_missing",
    ),
    # probabilities
    "probability above 1": (
        lambda: label(cube(1.2), threshold=0.5),
        pv.BallotError,
        "votes[query 2, voter 1, label 0]",
    ),
    "probability nan": (
        lambda: label(cube(np.nan), threshold=0.5),
        pv.BallotError,
        "votes[query 2, voter 1, label 0]",
    ),
    "threshold above 1": (lambda: label(cube(0.1), threshold=1.5), pv.InputError, "threshold"),
    "threshold nan": (lambda: label(cube(0.1), threshold=np.nan), pv.InputError, "threshold"),
    "two thresholds for three labels": (
        lambda: label(cube(0.1), threshold=[0.5, 0.5]),
        pv.InputError,
        "threshold",
    ),
    # mechanisms
    "sigma zero": (lambda: pv.BinaryVoting(sigma=0.0), pv.InputError, "sigma"),
    "sigma nan": (lambda: pv.TauVoting(sigma=np.nan, tau=1.0), pv.InputError, "sigma"),
    "sigma a bool": (lambda: pv.PowersetVoting(sigma=True), pv.InputError, "sigma"),
    "sigma a word": (lambda: pv.PluralityVoting(sigma="7"), pv.InputError, "sigma"),
    "no sigma": (lambda: pv.BinaryVoting(), pv.InputError, None),
    "sigma and link": (
        lambda: pv.BinaryVoting(sigma=1.0, link=pv.OptimalLink(cost=0.1, order=2.0)),
        pv.InputError,
        None,
    ),
    "tau negative": (lambda: pv.TauVoting(sigma=1.0, tau=-1.0), pv.InputError, "tau"),
    "norm 3": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=3), pv.InputError, "norm"),
    "max_positives 0": (
        lambda: pv.PowersetVoting(sigma=1.0, max_positives=0),
        pv.InputError,
        "max_positives",
    ),
    "quota 1": (lambda: pv.BinaryVoting(sigma=1.0, quota=1.0), pv.InputError, "quota"),
    "two bars": (
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, false_alarm=0.1),
        pv.InputError,
        None,
    ),
    "gate with a bar": (
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, gate=pv.Gate(threshold=1, sigma=1.0)),
        pv.UnavailableError,
        None,
    ),
    "link with a bar": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0), quota=0.3),
        pv.UnavailableError,
        None,
    ),
    "gate sigma": (lambda: pv.Gate(threshold=1, sigma=-1.0), pv.InputError, "gate sigma"),
    "gate threshold": (
        lambda: pv.Gate(threshold=np.nan, sigma=1.0),
        pv.InputError,
        "gate threshold",
    ),
    "gate a number": (lambda: pv.BinaryVoting(sigma=1.0, gate=5), pv.InputError, "gate"),
    "link order": (lambda: pv.OptimalLink(cost=0.1, order=1.0), pv.InputError, "order"),
    # accounting
    "order 1": (lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, [1.0]), pv.InputError, "orders"),
    "no orders": (lambda: pv.epsilon([], [], 1e-5), pv.InputError, "orders"),
    "curve too short": (lambda: pv.epsilon([0.1], [2.0, 3.0], 1e-5), pv.InputError, "rdp"),
    "negative curve": (lambda: pv.epsilon([-0.1], [2.0], 1e-5), pv.InputError, "rdp"),
    "unknown bound": (
        lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, bound="tight"),
        pv.InputError,
        "bound",
    ),
    "unknown worst case": (
        lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(5, 3, bound="pate2018"),
        pv.InputError,
        "bound",
    ),
    "published bound on a link": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0)).rdp(
            GOOD, bound="pate2018"
        ),
        pv.UnavailableError,
        None,
    ),
    "no voters to price": (
        lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(0, 3),
        pv.InputError,
        "voters",
    ),
    # labelling
    "epsilon zero": (lambda: label(epsilon=0.0), pv.InputError, "epsilon"),
    "epsilon infinite": (lambda: label(epsilon=np.inf), pv.InputError, "epsilon"),
    "delta zero": (lambda: label(delta=0.0), pv.InputError, "delta"),
    "delta one": (lambda: label(delta=1.0), pv.InputError, "delta"),
    "unknown guarantee": (lambda: label(guarantee="none"), pv.InputError, "guarantee"),
    "ptr without queries": (lambda: label(guarantee="ptr"), pv.InputError, "queries"),
    "ptr without a proof": (
        lambda: label(guarantee="ptr", queries=2, mechanism=pv.TauVoting(sigma=3.0, tau=1.0)),
        pv.UnavailableError,
        None,
    ),
    "ledger in no folder": (lambda: label(ledger="no/such/folder/x.db"), pv.LedgerError, None),
    "data set without a name": (lambda: label(dataset=""), pv.InputError, "dataset"),
    "mechanism a word": (lambda: label(mechanism="binary"), pv.InputError, "mechanism"),
    "more queries than votes": (lambda: label(queries=5), pv.InputError, "queries"),
    "queries zero": (lambda: label(queries=0), pv.InputError, "queries"),
    "queries a float": (lambda: label(queries=2.0), pv.InputError, "queries"),
    "data-dependent without queries": (
        lambda: label(guarantee="data-dependent"),
        pv.InputError,
        "queries",
    ),
    "negative seed": (lambda: label(seed=-1), pv.InputError, "seed"),
    "baseline shape": (lambda: label(baseline=np.zeros((4, 2))), pv.InputError, "baseline"),
    "baseline values": (lambda: label(baseline=np.full((4, 3), 2)), pv.InputError, "baseline"),
    "baseline for worst-case": (
        lambda: label(baseline=np.zeros((4, 3)), guarantee="worst-case"),
        pv.InputError,
        "baseline",
    ),
    "no surprise fits": (
        lambda: label(epsilon=0.01, guarantee="allowance", mechanism=pv.BinaryVoting(sigma=0.5)),
        pv.BudgetError,
        None,
    ),
    "no query fits": (
        lambda: label(epsilon=0.01, guarantee="worst-case", mechanism=pv.BinaryVoting(sigma=0.5)),
        pv.BudgetError,
        None,
    ),
    "queries do not fit": (
        lambda: label(epsilon=4.0, guarantee="worst-case", queries=4),
        pv.BudgetError,
        None,
    ),
    # electorate and sparse ballots
    "allowance too large": (lambda: electorate(allowance=10**9), pv.InputError, "allowance"),
    "allowance per voter": (lambda: electorate(allowance=[1, 2]), pv.InputError, "allowance"),
    "names twice": (
        lambda: electorate(voter_ids=["a", "a", "b", "c", "d"]),
        pv.InputError,
        "voter_ids",
    ),
    "stranger": (
        lambda: electorate(voter_ids="abcde").answer(GOOD, voter_ids="abcdz"),
        pv.InputError,
        "voter_ids",
    ),
    "voters absent without names": (
        lambda: electorate().answer(GOOD[:, :4]),
        pv.InputError,
        "votes",
    ),
    "another number of labels": (
        lambda: electorate().answer(GOOD[:, :, :2]),
        pv.InputError,
        "votes",
    ),
    "sparse voter out of range": (lambda: sparse(voter=[3]), pv.BallotError, None),
    "sparse two ballots": (
        lambda: sparse(query=[0, 0], voter=[1, 1], votes=[[1, 0], [0, 1]]),
        pv.BallotError,
        None,
    ),
    "sparse missing": (lambda: sparse(votes=[[-1, 0]]), pv.BallotError, None),
    "sparse lengths": (lambda: sparse(query=[0, 1]), pv.BallotError, None),
    "sparse baseline": (
        lambda: pv.label(
            sparse(),
            mechanism=pv.BinaryVoting(sigma=9.0),
            epsilon=50.0,
            delta=1e-5,
            baseline=[[1, 0], [0, 0]],
        ),
        pv.InputError,
        None,
    ),
    # arrays that are none
    "ragged": (lambda: label(RAGGED), pv.BallotError, "votes"),
    "masked": (lambda: label(np.ma.masked_array(GOOD, mask=True)), pv.BallotError, "votes"),
    "no votes at all": (lambda: BINARY.release(None), pv.BallotError, "votes"),
    "a table of names": (lambda: BINARY.rdp({"a": 1}), pv.BallotError, "votes"),
    "dates": (lambda: label(np.zeros((1, 2, 3), "M8[s]")), pv.BallotError, "votes"),
    "records": (lambda: label(np.zeros((1, 2, 3), [("a", int)])), pv.BallotError, "votes"),
    "path without a file": (lambda: label("absent.npy"), pv.InputError, "votes file"),
    "path of another kind": (lambda: label("."), pv.InputError, None),
    "path a number": (lambda: votefiles.read(5), pv.InputError, "path"),
    "packed into no folder": (
        lambda: votefiles.write_packed("no/such/folder/x.npz", GOOD),
        pv.InputError,
        None,
    ),
    "packed bits a list of words": (
        lambda: pv.Ballots.from_packed(["a"], (1, 2, 3)),
        pv.BallotError,
        None,
    ),
    "packed shape ragged": (
        lambda: pv.Ballots.from_packed(BITS, [[1], [2, 3]]),
        pv.BallotError,
        "shape",
    ),
    "packed shape negative": (
        lambda: pv.Ballots.from_packed(BITS, (-1, 2, 3)),
        pv.BallotError,
        "votes",
    ),
    "shape of two": (
        lambda: pv.Ballots((1, 2), lambda start, stop: GOOD, missing=False),
        pv.BallotError,
        "votes",
    ),
    "shape of words": (
        lambda: pv.Ballots(("a", 2, 3), lambda start, stop: GOOD, missing=False),
        pv.BallotError,
        None,
    ),
    "rows that cannot be called": (
        lambda: pv.Ballots((1, 2, 3), GOOD, missing=False),
        pv.InputError,
        "rows",
    ),
    "may_be_missing a word": (
        lambda: pv.Ballots.from_array(GOOD, may_be_missing="no"),
        pv.InputError,
        "may_be_missing",
    ),
    "clip to a word": (lambda: BALLOTS.clip("a"), pv.InputError, "max_positives"),
    "clip to nothing": (lambda: BALLOTS.clip(None), pv.InputError, "max_positives"),
    "clip to a half": (lambda: BALLOTS.clip(1.5), pv.InputError, "max_positives"),
    "clip below zero": (lambda: BALLOTS.clip(-1), pv.InputError, "max_positives"),
    "head a word": (lambda: BALLOTS.head("a"), pv.InputError, "queries"),
    "threshold ragged": (
        lambda: label(cube(0.1), threshold=[[0.5], [0.1, 0.2]]),
        pv.InputError,
        "threshold",
    ),
    # numbers that are none
    "epsilon nan": (lambda: label(epsilon=np.nan), pv.InputError, "epsilon"),
    "epsilon a truth": (lambda: label(epsilon=np.bool_(True)), pv.InputError, "epsilon"),
    "epsilon an array": (lambda: label(epsilon=np.array([8.0])), pv.InputError, "epsilon"),
    "epsilon complex": (lambda: label(epsilon=8 + 0j), pv.InputError, "epsilon"),
    "epsilon a word": (lambda: label(epsilon="8"), pv.InputError, "epsilon"),
    "epsilon beyond floats": (lambda: label(epsilon=10**400), pv.InputError, "epsilon"),
    "sigma beyond floats": (lambda: pv.BinaryVoting(sigma=10**400), pv.InputError, "sigma"),
    "delta a word": (lambda: label(delta="1e-5"), pv.InputError, "delta"),
    "delta a truth": (lambda: label(delta=True), pv.InputError, "delta"),
    "delta nan": (lambda: label(delta=np.nan), pv.InputError, "delta"),
    "delta negative": (lambda: label(delta=-1e-5), pv.InputError, "delta"),
    "seed a word": (lambda: label(seed="a"), pv.InputError, "seed"),
    "seed a float": (lambda: BINARY.release(GOOD, seed=1.0), pv.InputError, "seed"),
    "seed a truth": (lambda: BINARY.release(GOOD, seed=True), pv.InputError, "seed"),
    "seed a list": (lambda: label(seed=[1]), pv.InputError, "seed"),
    "orders a word": (lambda: BINARY.rdp(GOOD, "abc"), pv.InputError, "orders"),
    "orders a table": (lambda: BINARY.rdp(GOOD, {2: 1}), pv.InputError, "orders"),
    "orders ragged": (lambda: BINARY.worst_case_rdp(5, 3, [[2], [3, 4]]), pv.InputError, "orders"),
    "curve a word": (lambda: pv.epsilon("a", [2.0], 1e-5), pv.InputError, "rdp"),
    "curve nothing": (lambda: pv.epsilon(None, None, 1e-5), pv.InputError, "rdp"),
    "several curves in 2017": (
        lambda: pv.epsilon_2017([[1.0], [2.0]], [2.0], 1e-5),
        pv.InputError,
        "rdp",
    ),
    "voters a float": (lambda: TAU.worst_case_rdp(5.0, 3), pv.InputError, "voters"),
    "labels negative": (lambda: BINARY.surprise_rdp(5, -1), pv.InputError, "labels"),
    "norm a truth": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=True), pv.InputError, "norm"),
    "norms": (
        lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=np.array([1, 2])),
        pv.InputError,
        "norm",
    ),
    "quota a word": (lambda: pv.BinaryVoting(sigma=1.0, quota="a"), pv.InputError, "quota"),
    "link order nan": (lambda: pv.OptimalLink(cost=0.1, order=np.nan), pv.InputError, "order"),
    # names, ledgers and what goes with what
    "data set a number": (lambda: label(dataset=5), pv.InputError, "dataset"),
    "data set blank": (lambda: label(dataset="  "), pv.InputError, "dataset"),
    "consumer without a name": (lambda: label(consumer=""), pv.InputError, "consumer"),
    "owner a number": (lambda: guardian(owner=5), pv.InputError, "owner"),
    "budget a number": (lambda: guardian(budget=5), pv.InputError, "budget"),
    "budget set to nothing": (
        lambda: LEDGER.set_budget(None, dataset="d"),
        pv.InputError,
        "budget",
    ),
    "budget of nobody": (lambda: LEDGER.set_budget(BUDGET, dataset=""), pv.InputError, "dataset"),
    "ledger a folder": (lambda: label(ledger="."), pv.InputError, "ledger"),
    "ledger a number": (lambda: label(ledger=5), pv.InputError, "ledger"),
    "ledger bytes": (lambda: label(ledger=b"x.db"), pv.InputError, "ledger"),
    "ledger without a name": (lambda: label(ledger=""), pv.InputError, "ledger"),
    "voters numbered": (lambda: label(voter_ids=5), pv.InputError, "voter_ids"),
    "voters without order": (lambda: label(voter_ids=set("abcde")), pv.InputError, "voter_ids"),
    "voters nameless": (lambda: label(voter_ids=[None] * 5), pv.InputError, "voter_ids"),
    "voters in two columns": (
        lambda: label(voter_ids=np.zeros((5, 2), int)),
        pv.InputError,
        "voter_ids",
    ),
    "nobody": (lambda: guardian(voter_ids=[]), pv.InputError, "voter_ids"),
    "bound without a use": (
        lambda: guardian().release(GOOD, bound="pate2018"),
        pv.InputError,
        "bound",
    ),
    "bound unknown": (
        lambda: guardian(guarantee="data-dependent").release(GOOD, queries=2, bound="tight"),
        pv.InputError,
        "bound",
    ),
    "baseline ragged": (lambda: label(baseline=[[1], [1, 2]]), pv.InputError, "baseline"),
    "baseline words": (lambda: label(baseline=np.full((4, 3), "0")), pv.InputError, "baseline"),
    "baseline with a hidden byte": (
        lambda: label(baseline=np.full((4, 3), 7, np.uint8).view(bool)),
        pv.InputError,
        "baseline",
    ),
    "allowance a float": (lambda: electorate(allowance=2.5), pv.InputError, "allowance"),
    "allowance negative": (lambda: electorate(allowance=-1), pv.InputError, "allowance"),
    "allowance ragged": (lambda: electorate(allowance=[1, [2]]), pv.InputError, "allowance"),
    "sparse queries a word": (lambda: sparse(queries="a"), pv.BallotError, None),
    "sparse voters a half": (lambda: sparse(voters=2.5), pv.BallotError, None),
    "sparse votes ragged": (lambda: sparse(votes=[[1], [1, 0]]), pv.BallotError, "votes"),
    "sparse query beyond": (lambda: sparse(query=[2**63]), pv.BallotError, None),
    # what was written
    "release without a file": (lambda: pv.Release.load("absent.npz"), pv.InputError, None),
    "release a number": (lambda: pv.Release.load(5), pv.InputError, None),
    # audits
    "audit a word": (lambda: pv.audit.exact("x", 3, 2), pv.InputError, "mechanism"),
    "audit nothing": (
        lambda: pv.audit.exact(BINARY, 3, 2, elections=0),
        pv.InputError,
        "elections",
    ),
    "audit without a seed": (lambda: pv.audit.exact(BINARY, 3, 2, seed="a"), pv.InputError, "seed"),
    "audit one draw": (
        lambda: pv.audit.sampled(BINARY, GOOD, GOOD, draws=1),
        pv.InputError,
        "draws",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_refused_with_the_reason(name: str) -> None:
    action, kind, argument = CASES[name]
    with refused(argument, kind) as caught:
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
