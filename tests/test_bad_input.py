"""Malformed input: each case names the argument or the place, the rule and the value."""

from __future__ import annotations

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


# What is done, which argument broke the rule, and the kind of error unless it is InputError.
CASES: dict[str, tuple[Any, ...]] = {
    # votes
    "nan": (lambda: label(cube(np.nan)), "votes[query 2, voter 1, label 0]", pv.BallotError),
    "two": (lambda: label(cube(2, np.int8)), "votes[query 2, voter 1, label 0]", pv.BallotError),
    "minus two": (
        lambda: label(cube(-2, np.int8)),
        "votes[query 2, voter 1, label 0]",
        pv.BallotError,
    ),
    "half": (lambda: label(cube(0.5)), "votes[query 2, voter 1, label 0]", pv.BallotError),
    "infinity": (lambda: label(cube(np.inf)), "votes[query 2, voter 1, label 0]", pv.BallotError),
    "rank 2": (lambda: label(GOOD[0]), "votes", pv.BallotError),
    "rank 4": (lambda: label(GOOD[None]), "votes", pv.BallotError),
    "a scalar": (lambda: label(1), "votes", pv.BallotError),
    "no queries": (lambda: label(GOOD[:0]), "votes", pv.BallotError),
    "no voters": (lambda: label(GOOD[:, :0]), "votes", pv.BallotError),
    "no labels": (lambda: label(GOOD[:, :, :0]), "votes", pv.BallotError),
    "words": (lambda: label(np.full((1, 2, 3), "yes")), "votes", pv.BallotError),
    "objects": (lambda: label(np.full((1, 2, 3), None)), "votes", pv.BallotError),
    "complex": (lambda: label(GOOD.astype(complex)), "votes", pv.BallotError),
    "hidden byte": (
        lambda: label(np.full((1, 2, 3), 7, np.uint8).view(bool)),
        "votes[query 0, voter 0, label 0]",
        pv.BallotError,
    ),
    "two positives": (
        lambda: label(two_positives(), mechanism=pv.PluralityVoting(sigma=3.0)),
        None,
        pv.BallotError,
    ),
    "too many positives": (
        lambda: label(two_positives(), mechanism=pv.PowersetVoting(sigma=3.0, max_positives=1)),
        "max_positives",
        pv.BallotError,
    ),
    "declared complete": (
        lambda: pv.Ballots.from_array(cube(-1, np.int8), may_be_missing=False),
        "may_be_missing",
        pv.BallotError,
    ),
    # probabilities
    "probability above 1": (
        lambda: label(cube(1.2), threshold=0.5),
        "votes[query 2, voter 1, label 0]",
        pv.BallotError,
    ),
    "probability nan": (
        lambda: label(cube(np.nan), threshold=0.5),
        "votes[query 2, voter 1, label 0]",
        pv.BallotError,
    ),
    "threshold above 1": (lambda: label(cube(0.1), threshold=1.5), "threshold"),
    "threshold nan": (lambda: label(cube(0.1), threshold=np.nan), "threshold"),
    "two thresholds for three labels": (
        lambda: label(cube(0.1), threshold=[0.5, 0.5]),
        "threshold",
    ),
    # mechanisms
    "sigma zero": (lambda: pv.BinaryVoting(sigma=0.0), "sigma"),
    "sigma nan": (lambda: pv.TauVoting(sigma=np.nan, tau=1.0), "sigma"),
    "sigma a bool": (lambda: pv.PowersetVoting(sigma=True), "sigma"),
    "sigma a word": (lambda: pv.PluralityVoting(sigma="7"), "sigma"),
    "no sigma": (lambda: pv.BinaryVoting(), None),
    "sigma and link": (
        lambda: pv.BinaryVoting(sigma=1.0, link=pv.OptimalLink(cost=0.1, order=2.0)),
        None,
    ),
    "tau negative": (lambda: pv.TauVoting(sigma=1.0, tau=-1.0), "tau"),
    "norm 3": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=3), "norm"),
    "max_positives 0": (lambda: pv.PowersetVoting(sigma=1.0, max_positives=0), "max_positives"),
    "quota 1": (lambda: pv.BinaryVoting(sigma=1.0, quota=1.0), "quota"),
    "two bars": (lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, false_alarm=0.1), None),
    "gate with a bar": (
        lambda: pv.BinaryVoting(sigma=1.0, quota=0.3, gate=pv.Gate(threshold=1, sigma=1.0)),
        None,
        pv.UnavailableError,
    ),
    "gate with a false alarm": (
        lambda: pv.BinaryVoting(sigma=1.0, false_alarm=0.1, gate=pv.Gate(threshold=1, sigma=1.0)),
        None,
        pv.UnavailableError,
    ),
    "link with a bar": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0), quota=0.3),
        None,
        pv.UnavailableError,
    ),
    "gate sigma": (lambda: pv.Gate(threshold=1, sigma=-1.0), "gate sigma"),
    "gate threshold": (lambda: pv.Gate(threshold=np.nan, sigma=1.0), "gate threshold"),
    "gate a number": (lambda: pv.BinaryVoting(sigma=1.0, gate=5), "gate"),
    "link order": (lambda: pv.OptimalLink(cost=0.1, order=1.0), "order"),
    # accounting
    "order 1": (lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, [1.0]), "orders"),
    "no orders": (lambda: pv.epsilon([], [], 1e-5), "orders"),
    "curve too short": (lambda: pv.epsilon([0.1], [2.0, 3.0], 1e-5), "rdp"),
    "negative curve": (lambda: pv.epsilon([-0.1], [2.0], 1e-5), "rdp"),
    "unknown bound": (lambda: pv.BinaryVoting(sigma=1.0).rdp(GOOD, bound="tight"), "bound"),
    "unknown worst case": (
        lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(5, 3, bound="pate2018"),
        "bound",
    ),
    "published bound on a link": (
        lambda: pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=2.0)).rdp(
            GOOD, bound="pate2018"
        ),
        None,
        pv.UnavailableError,
    ),
    "no voters to price": (lambda: pv.BinaryVoting(sigma=1.0).worst_case_rdp(0, 3), "voters"),
    # labelling
    "epsilon zero": (lambda: label(epsilon=0.0), "epsilon"),
    "epsilon infinite": (lambda: label(epsilon=np.inf), "epsilon"),
    "delta zero": (lambda: label(delta=0.0), "delta"),
    "delta one": (lambda: label(delta=1.0), "delta"),
    "unknown guarantee": (lambda: label(guarantee="none"), "guarantee"),
    "ptr without queries": (lambda: label(guarantee="ptr"), "queries"),
    "ptr without a proof": (
        lambda: label(guarantee="ptr", queries=2, mechanism=pv.TauVoting(sigma=3.0, tau=1.0)),
        None,
        pv.UnavailableError,
    ),
    "ledger in no folder": (lambda: label(ledger="no/such/folder/x.db"), None, pv.LedgerError),
    "data set without a name": (lambda: label(dataset=""), "dataset"),
    "mechanism a word": (lambda: label(mechanism="binary"), "mechanism"),
    "more queries than votes": (lambda: label(queries=5), "queries"),
    "queries zero": (lambda: label(queries=0), "queries"),
    "queries a float": (lambda: label(queries=2.0), "queries"),
    "data-dependent without queries": (lambda: label(guarantee="data-dependent"), "queries"),
    "negative seed": (lambda: label(seed=-1), "seed"),
    "baseline shape": (lambda: label(baseline=np.zeros((4, 2))), "baseline"),
    "baseline values": (lambda: label(baseline=np.full((4, 3), 2)), "baseline"),
    "baseline for worst-case": (
        lambda: label(baseline=np.zeros((4, 3)), guarantee="worst-case"),
        "baseline",
    ),
    "no surprise fits": (
        lambda: label(epsilon=0.01, guarantee="allowance", mechanism=pv.BinaryVoting(sigma=0.5)),
        None,
        pv.BudgetError,
    ),
    "no query fits": (
        lambda: label(epsilon=0.01, guarantee="worst-case", mechanism=pv.BinaryVoting(sigma=0.5)),
        None,
        pv.BudgetError,
    ),
    "queries do not fit": (
        lambda: label(epsilon=4.0, guarantee="worst-case", queries=4),
        None,
        pv.BudgetError,
    ),
    # electorate and sparse ballots
    "allowance too large": (lambda: electorate(allowance=10**9), "allowance"),
    "allowance per voter": (lambda: electorate(allowance=[1, 2]), "allowance"),
    "names twice": (lambda: electorate(voter_ids=["a", "a", "b", "c", "d"]), "voter_ids"),
    "stranger": (
        lambda: electorate(voter_ids="abcde").answer(GOOD, voter_ids="abcdz"),
        "voter_ids",
    ),
    "voters absent without names": (lambda: electorate().answer(GOOD[:, :4]), "votes"),
    "another number of labels": (lambda: electorate().answer(GOOD[:, :, :2]), "votes"),
    "sparse voter out of range": (lambda: sparse(voter=[3]), None, pv.BallotError),
    "sparse two ballots": (
        lambda: sparse(query=[0, 0], voter=[1, 1], votes=[[1, 0], [0, 1]]),
        None,
        pv.BallotError,
    ),
    "sparse missing": (lambda: sparse(votes=[[-1, 0]]), None, pv.BallotError),
    "sparse lengths": (lambda: sparse(query=[0, 1]), None, pv.BallotError),
    "sparse baseline": (
        lambda: pv.label(
            sparse(),
            mechanism=pv.BinaryVoting(sigma=9.0),
            epsilon=50.0,
            delta=1e-5,
            baseline=[[1, 0], [0, 0]],
        ),
        None,
    ),
    # arrays that are none
    "ragged": (lambda: label(RAGGED), "votes", pv.BallotError),
    "masked": (lambda: label(np.ma.masked_array(GOOD, mask=True)), "votes", pv.BallotError),
    "no votes at all": (lambda: BINARY.release(None), "votes", pv.BallotError),
    "a table of names": (lambda: BINARY.rdp({"a": 1}), "votes", pv.BallotError),
    "dates": (lambda: label(np.zeros((1, 2, 3), "M8[s]")), "votes", pv.BallotError),
    "records": (lambda: label(np.zeros((1, 2, 3), [("a", int)])), "votes", pv.BallotError),
    "path without a file": (lambda: label("absent.npy"), "votes file"),
    "path of another kind": (lambda: label("."), None),
    "path a number": (lambda: votefiles.read(5), "path"),
    "packed into no folder": (lambda: votefiles.write_packed("no/such/folder/x.npz", GOOD), None),
    "packed bits a list of words": (
        lambda: pv.Ballots.from_packed(["a"], (1, 2, 3)),
        None,
        pv.BallotError,
    ),
    "packed shape ragged": (
        lambda: pv.Ballots.from_packed(BITS, [[1], [2, 3]]),
        "shape",
        pv.BallotError,
    ),
    "packed shape negative": (
        lambda: pv.Ballots.from_packed(BITS, (-1, 2, 3)),
        "votes",
        pv.BallotError,
    ),
    "shape of two": (
        lambda: pv.Ballots((1, 2), lambda start, stop: GOOD, missing=False),
        "votes",
        pv.BallotError,
    ),
    "shape of words": (
        lambda: pv.Ballots(("a", 2, 3), lambda start, stop: GOOD, missing=False),
        None,
        pv.BallotError,
    ),
    "rows that cannot be called": (lambda: pv.Ballots((1, 2, 3), GOOD, missing=False), "rows"),
    "may_be_missing a word": (
        lambda: pv.Ballots.from_array(GOOD, may_be_missing="no"),
        "may_be_missing",
    ),
    "clip to a word": (lambda: BALLOTS.clip("a"), "max_positives"),
    "clip to nothing": (lambda: BALLOTS.clip(None), "max_positives"),
    "clip to a half": (lambda: BALLOTS.clip(1.5), "max_positives"),
    "clip below zero": (lambda: BALLOTS.clip(-1), "max_positives"),
    "head a word": (lambda: BALLOTS.head("a"), "queries"),
    "threshold ragged": (lambda: label(cube(0.1), threshold=[[0.5], [0.1, 0.2]]), "threshold"),
    # numbers that are none
    "epsilon nan": (lambda: label(epsilon=np.nan), "epsilon"),
    "epsilon a truth": (lambda: label(epsilon=np.bool_(True)), "epsilon"),
    "epsilon an array": (lambda: label(epsilon=np.array([8.0])), "epsilon"),
    "epsilon complex": (lambda: label(epsilon=8 + 0j), "epsilon"),
    "epsilon a word": (lambda: label(epsilon="8"), "epsilon"),
    "epsilon beyond floats": (lambda: label(epsilon=10**400), "epsilon"),
    "sigma beyond floats": (lambda: pv.BinaryVoting(sigma=10**400), "sigma"),
    "delta a word": (lambda: label(delta="1e-5"), "delta"),
    "delta a truth": (lambda: label(delta=True), "delta"),
    "delta nan": (lambda: label(delta=np.nan), "delta"),
    "delta negative": (lambda: label(delta=-1e-5), "delta"),
    "seed a word": (lambda: label(seed="a"), "seed"),
    "seed a float": (lambda: BINARY.release(GOOD, seed=1.0), "seed"),
    "seed a truth": (lambda: BINARY.release(GOOD, seed=True), "seed"),
    "seed a list": (lambda: label(seed=[1]), "seed"),
    "orders a word": (lambda: BINARY.rdp(GOOD, "abc"), "orders"),
    "orders a table": (lambda: BINARY.rdp(GOOD, {2: 1}), "orders"),
    "orders ragged": (lambda: BINARY.worst_case_rdp(5, 3, [[2], [3, 4]]), "orders"),
    "curve a word": (lambda: pv.epsilon("a", [2.0], 1e-5), "rdp"),
    "curve nothing": (lambda: pv.epsilon(None, None, 1e-5), "rdp"),
    "several curves in 2017": (lambda: pv.epsilon_2017([[1.0], [2.0]], [2.0], 1e-5), "rdp"),
    "voters a float": (lambda: TAU.worst_case_rdp(5.0, 3), "voters"),
    "labels negative": (lambda: BINARY.surprise_rdp(5, -1), "labels"),
    "norm a truth": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=True), "norm"),
    "norms": (lambda: pv.TauVoting(sigma=1.0, tau=1.0, norm=np.array([1, 2])), "norm"),
    "quota a word": (lambda: pv.BinaryVoting(sigma=1.0, quota="a"), "quota"),
    "link order nan": (lambda: pv.OptimalLink(cost=0.1, order=np.nan), "order"),
    # names, ledgers and what goes with what
    "data set a number": (lambda: label(dataset=5), "dataset"),
    "data set blank": (lambda: label(dataset="  "), "dataset"),
    "consumer without a name": (lambda: label(consumer=""), "consumer"),
    "owner a number": (lambda: guardian(owner=5), "owner"),
    "budget a number": (lambda: guardian(budget=5), "budget"),
    "budget set to nothing": (lambda: LEDGER.set_budget(None, dataset="d"), "budget"),
    "budget of nobody": (lambda: LEDGER.set_budget(BUDGET, dataset=""), "dataset"),
    "ledger a folder": (lambda: label(ledger="."), "ledger"),
    "ledger a number": (lambda: label(ledger=5), "ledger"),
    "ledger bytes": (lambda: label(ledger=b"x.db"), "ledger"),
    "ledger without a name": (lambda: label(ledger=""), "ledger"),
    "voters numbered": (lambda: label(voter_ids=5), "voter_ids"),
    "voters without order": (lambda: label(voter_ids=set("abcde")), "voter_ids"),
    "voters nameless": (lambda: label(voter_ids=[None] * 5), "voter_ids"),
    "voters in two columns": (lambda: label(voter_ids=np.zeros((5, 2), int)), "voter_ids"),
    "nobody": (lambda: guardian(voter_ids=[]), "voter_ids"),
    "baseline ragged": (lambda: label(baseline=[[1], [1, 2]]), "baseline"),
    "baseline words": (lambda: label(baseline=np.full((4, 3), "0")), "baseline"),
    "baseline with a hidden byte": (
        lambda: label(baseline=np.full((4, 3), 7, np.uint8).view(bool)),
        "baseline",
    ),
    "allowance a float": (lambda: electorate(allowance=2.5), "allowance"),
    "allowance negative": (lambda: electorate(allowance=-1), "allowance"),
    "allowance ragged": (lambda: electorate(allowance=[1, [2]]), "allowance"),
    "sparse queries a word": (lambda: sparse(queries="a"), None, pv.BallotError),
    "sparse voters a half": (lambda: sparse(voters=2.5), None, pv.BallotError),
    "sparse votes ragged": (lambda: sparse(votes=[[1], [1, 0]]), "votes", pv.BallotError),
    "sparse query beyond": (lambda: sparse(query=[2**63]), None, pv.BallotError),
    # what was written
    "release without a file": (lambda: pv.Release.load("absent.npz"), None),
    "release a number": (lambda: pv.Release.load(5), None),
    # audits
    "audit a word": (lambda: pv.audit.exact("x", 3, 2), "mechanism"),
    "audit nothing": (lambda: pv.audit.exact(BINARY, 3, 2, elections=0), "elections"),
    "audit without a seed": (lambda: pv.audit.exact(BINARY, 3, 2, seed="a"), "seed"),
    "audit one draw": (lambda: pv.audit.sampled(BINARY, GOOD, GOOD, draws=1), "draws"),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_refused_with_the_reason(name: str) -> None:
    action, argument, *other = CASES[name]
    kind = other[0] if other else pv.InputError
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
