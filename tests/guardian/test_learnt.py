"""The learnt allowance: charged first, drawn once, gone on with; nothing sealed leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.allowance import Learning, learnt_delta
from privote.entropy import Entropy
from privote.errors import ChargedError
from privote.guardian import Accounts, Allowance, allowance
from privote.votes.contributions import bound_contributions

BUDGET: dict[str, float] = {"epsilon": 8.0, "delta": 1e-5}


def cube(queries: int = 60, voters: int = 40, labels: int = 5, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    wanted = rng.random((queries, 1, labels)) < 0.15
    return wanted ^ (rng.random((queries, voters, labels)) < 0.03)


VOTES = cube()


def entries(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    ledger = pv.Ledger.open(path, readonly=True)
    try:
        return [each for each in ledger.published() if kind in (None, each["kind"])]
    finally:
        ledger.close()


def month(path: Path, votes: Any, **more: Any) -> pv.Release:
    return pv.label(votes, **BUDGET, ledger=path, **more)


# -- the draw -------------------------------------------------------------------------------------


def test_places_are_drawn_with_the_probabilities_that_are_priced() -> None:
    learning = Learning(voters=20, queries=10, labels=2, epsilon0=0.9)
    contributions = np.repeat([1, 2, 3, 7], 5)
    chances = np.exp(learning.log_probs(contributions))
    entropy, scores = Entropy(0), learning.scores(contributions).tolist()
    scale, draws = Fraction(learning.epsilon0) / 2, 4000
    drawn = [entropy.exponential_mechanism(scores, scale) for _ in range(draws)]
    seen = np.bincount(drawn, minlength=len(chances)) / draws
    assert np.abs(seen - chances).max() < 4 * math.sqrt(0.25 / draws)
    assert entropy.exponential_mechanism([5], Fraction(10**6)) == 0
    assert entropy.exponential_mechanism([0, 10**9], Fraction(1)) == 1


# -- without a ledger -----------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["auto", "allowance", "worst-case"])
@pytest.mark.parametrize("epsilon", [8.0, 1.0])
def test_a_whole_budget_is_priced_exactly_whatever_is_drawn(guarantee: str, epsilon: float) -> None:
    drawn = set()
    for seed in range(8):
        release = pv.label(VOTES, epsilon=epsilon, delta=1e-5, guarantee=guarantee, seed=seed)
        terms, cells = release.terms["learnt"], 60 * 5
        assert release.epsilon == epsilon
        assert release.answered == terms["planned"] == 60
        limit = cells if release.allowance is None else release.allowance
        assert isinstance(limit, int)
        mu = math.sqrt(min(2 * limit, cells)) / release.mechanism["sigma"]
        assert learnt_delta(epsilon, terms["epsilon0"], mu) <= 1e-5 * (1 + 1e-9)
        assert learnt_delta(epsilon, terms["epsilon0"], 1.001 * mu) > 1e-5
        drawn.add(limit)
    assert (guarantee == "worst-case") == (drawn == {cells})
    assert terms["learns"] == (epsilon == 8.0 and guarantee != "worst-case")


def test_few_voters_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("looked at the votes")

    monkeypatch.setattr(allowance, "_contributions", asked)
    with pytest.warns(pv.PrivoteWarning, match="too few voters"):
        release = pv.label(VOTES[:, :8], epsilon=1.0, delta=1e-5)
    assert release.allowance == math.ceil(60 * 5 / 8)
    assert release.terms["learnt"] == {
        "epsilon0": 0.0,
        "planned": 60,
        "learns": False,
    }
    assert release.quality is None
    assert "cannot be estimated" in release.summary()


def test_a_run_without_a_ledger_is_one_release(kill: Callable[..., None]) -> None:
    ledger = pv.Ledger.in_memory()
    kill(allowance, "_contributions")  # even if it answered nothing
    with pytest.raises(Killed):
        pv.label(VOTES, **BUDGET, ledger=ledger)
    for votes in (VOTES, VOTES[:, :30]):
        with refused(None, pv.BudgetError):
            pv.label(votes, **BUDGET, ledger=ledger)


def test_tallies_are_of_votes_that_count() -> None:
    """With next to no noise: tallies are those of the votes, cut where the allowance ends."""
    release = pv.label(VOTES, epsilon=1e9, delta=1e-5, seed=1)
    assert isinstance(release.allowance, int)
    left = np.full(40, release.allowance)
    block = next(pv.Ballots.of(VOTES).blocks())
    given: dict[str, Any] = {"unit": "vote", "missing_counts_as_no": True}
    counted, spent, turned_away = bound_contributions(block, np.zeros((60, 5), bool), left, **given)
    assert np.array_equal(release.tallies, pv.TallyVoting(sigma=1.0).tally(counted).steps)
    assert np.array_equal(release.sealed.spent, spent)
    assert np.array_equal(release.sealed.refused, turned_away)


# -- in a ledger ----------------------------------------------------------------------------------


def test_months_go_on_with_one_charge(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    first = month(path, VOTES[:20], plan_for=60)
    second = month(path, VOTES[20:50], plan_for=60)
    assert [each["kind"] for each in entries(path)] == [
        *("budget", "charge", "learnt", "answer", "outcome", "answer", "outcome")
    ]
    for release in (first, second):
        assert release.epsilon == release.total == 8.0
        assert (release.runs, release.share) == (1, 1.0)
        assert release.mechanism == first.mechanism
        assert release.allowance == first.allowance
        assert release.terms["learnt"]["planned"] == 60
        assert release.rule == "shared at order 4"
    assert (first.so_far, second.so_far) == (20, 50)
    ledger = pv.Ledger.open(path, readonly=True)
    assert ledger.standing()[0]["used"] == 8.0
    assert ledger.allowances()[0]["more"] == 10
    ledger.close()
    with pytest.raises(pv.BudgetError, match="30 more") as caught:
        month(path, VOTES[30:], plan_for=60)
    assert caught.value.exit_code == 3
    with refused(None, pv.BudgetError):
        month(path, VOTES[50:], plan_for=70)
    third = month(path, VOTES[50:])  # as many as are left
    assert third.so_far == 60
    assert (third.sealed.spent <= third.allowance).all()
    assert len(entries(path, "charge")) == len(entries(path, "learnt")) == 1


def test_what_is_charged_is_what_is_drawn_on_every_branch(tmp_path: Path) -> None:
    """The charge is a line in the order, known before V; any V then has the noise that pays."""
    seen = set()
    for seed in range(6):
        ledger = pv.Ledger.open(tmp_path / f"{seed}.db")
        ledger.set_budget(pv.Budget(epsilon=16.0, delta=1e-5), dataset="default")
        release = pv.label(VOTES, **BUDGET, ledger=ledger, seed=seed)
        _, charge, drawn, *_ = ledger.published()
        ledger.close()
        slopes = np.array(charge["rdp"]) / np.array(charge["orders"])
        assert np.ptp(slopes) < 1e-12
        limit, sigma = drawn["limit"], drawn["mechanism"]["sigma"]
        paid = charge["learnt"]["epsilon0"] ** 2 / 8 + min(2 * limit, 300) / (2 * sigma**2)
        assert slopes[0] * (1 - 1e-9) < paid <= slopes[0]
        assert release.mechanism["sigma"] == sigma
        seen.add(limit)
    assert len(seen) > 1  # branches that differ


def test_bad_plans_charge_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with refused("plan_for"):
        month(path, VOTES, plan_for=59)
    with refused("plan_for"):
        pv.label(VOTES, **BUDGET, plan_for=100)
    with refused("plan_for"):
        month(path, VOTES, plan_for=100, mechanism=pv.BinaryVoting(sigma=9.0))
    with refused("plan_for"):
        month(path, VOTES, plan_for=60.5)
    with refused("mechanism"):
        month(path, VOTES, guarantee="data-dependent", queries=10)
    with refused(None, pv.BudgetError):
        month(path, VOTES, plan_for=10**23)
    assert entries(path, "charge") == []


def test_more_queries_than_planned_are_refused_inside_the_charge(tmp_path: Path) -> None:
    """Two runs that both saw enough left: the second is refused where it would be entered."""
    path = tmp_path / "l.db"
    month(path, VOTES[:40], plan_for=60)
    ledger = pv.Ledger.open(path)
    account = next(iter(ledger.reading().accounts))
    accounts = Accounts(ledger=ledger, budget=pv.Budget(**BUDGET), dataset="default")
    known = ledger.reading().accounts[account]
    held = Allowance(accounts, account, known.allowance, known.curve, None, known.learnt)
    assert held.learn(lambda: pytest.fail("drawn twice")).mechanism == known.mechanism
    with refused(None, pv.BudgetError):
        held.answer(21, lambda left: (None, 0 * left, 0 * left))
    held.answer(20, lambda left: (None, 0 * left, 0 * left))
    assert ledger.allowances()[0]["answered"] == 60
    ledger.close()


# -- crashes --------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a process that dies."""


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes a function die the first time that it is called, before or after it."""

    def arm(owner: Any, name: str, *, after: bool = False) -> None:
        right = getattr(owner, name)

        def dies(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(owner, name, right)
            if after:
                right(*given, **named)
            raise Killed

        monkeypatch.setattr(owner, name, dies)

    return arm


def test_a_crash_before_the_allowance_is_entered_costs_nothing_more(
    tmp_path: Path, kill: Callable[..., None]
) -> None:
    """A draw that was not entered never left."""
    path = tmp_path / "l.db"
    kill(Entropy, "exponential_mechanism", after=True)
    with pytest.raises(Killed):
        month(path, VOTES, plan_for=80)
    assert [each["kind"] for each in entries(path)] == ["budget", "charge"]
    release = month(path, VOTES, plan_for=80)
    assert [each["kind"] for each in entries(path)][2:] == ["learnt", "answer", "outcome"]
    assert release.terms["learnt"]["planned"] == 80


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (allowance, "_contributions", False),
        (Allowance, "learn", True),
        (Allowance, "answer", True),
        (pv.TallyVoting, "draw", True),
    ],
    ids=["counted", "learnt", "answered", "drawn"],
)
def test_a_run_that_died_is_resumed(
    tmp_path: Path,
    kill: Callable[..., None],
    ledger: bool,
    owner: Any,
    name: str,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, output = tmp_path / "l.db" if ledger else None, tmp_path / "out.npz"
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 40 * 5 * 16)  # four blocks
    given: dict[str, Any] = {**BUDGET, "ledger": place, "output": output}
    kill(owner, name, after=after)
    with pytest.raises((Killed, ChargedError)):
        pv.label(VOTES, **given)
    draft = tmp_path / ".out.npz.draft"
    release = pv.label(VOTES, **given, resume=draft.exists())
    assert release.answered == 60
    assert pv.Release.load(output).drawn == release.drawn
    if place is not None:
        assert len(entries(place, "charge")) == len(entries(place, "learnt")) == 1
        assert sum(each["queries"] for each in entries(place, "answer")) == 60


@pytest.mark.parametrize("ledger", [True, False])
def test_what_was_kept_is_gone_on_with(
    tmp_path: Path, kill: Callable[..., None], ledger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some blocks: the same allowance and noise, and what is kept stays as it is."""
    place, output = tmp_path / "l.db" if ledger else None, tmp_path / "out.npz"
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 40 * 5 * 16)
    given: dict[str, Any] = {**BUDGET, "ledger": place, "output": output}
    drawn: list[Any] = []
    right = pv.TallyVoting.draw

    def draw(self: Any, tally: Any, entropy: Any) -> Any:
        if len(drawn) == 2:
            raise Killed
        drawn.append((self, right(self, tally, entropy)))
        return drawn[-1][1]

    monkeypatch.setattr(pv.TallyVoting, "draw", draw)
    with pytest.raises(Killed):
        pv.label(VOTES, **given)
    monkeypatch.setattr(pv.TallyVoting, "draw", right)
    with pytest.raises(ChargedError, match="do not fit" if ledger else "same votes"):
        pv.label(cube(queries=61), **given, resume=True)
    release = pv.label(VOTES, **given, resume=True)
    assert release.tallies is not None
    assert np.array_equal(release.tallies[:32], np.concatenate([each for _, each in drawn]))
    assert release.mechanism == drawn[0][0].parameters()
    assert release.answered == release.so_far == 60


# -- what comes in --------------------------------------------------------------------------------


def test_a_missing_vote_is_the_baseline() -> None:
    votes = VOTES.astype(np.int8)
    votes[:, ::2] = -1
    release = pv.label(votes, epsilon=1e9, delta=1e-5)
    ones = pv.label(votes, epsilon=1e9, delta=1e-5, baseline=np.ones((60, 5)))
    assert release.tallies is not None
    assert ones.tallies is not None
    assert not release.sealed.spent[::2].any()
    assert not ones.sealed.spent[::2].any()
    assert release.tallies.max() <= 20
    assert ones.tallies.min() >= 20


def test_votes_may_be_probabilities(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    soft = np.clip(np.abs(VOTES - 0.2 * rng.random(VOTES.shape)), 0, 1)
    soft[:, 0] = -1
    release = pv.label(soft, epsilon=1e9, delta=1e-5, guarantee="worst-case")
    steps = np.rint(100 * np.maximum(soft, 0)).sum(axis=1)
    assert np.array_equal(release.tallies, steps)
    assert release.mechanism["grid"] == 100
    release = pv.label(soft, **BUDGET)
    need = ((np.rint(100 * np.maximum(soft, 0)) / 100) ** 2).sum(axis=(0, 2))
    assert isinstance(release.allowance, int)
    assert 0.5 * np.median(need) < release.allowance < 3 * np.median(need)
    assert (release.sealed.spent <= release.allowance).all()
    path = tmp_path / "l.db"
    month(path, soft[:30], plan_for=60)
    with refused("votes"):
        month(path, VOTES[30:], plan_for=60)
    with refused("votes[query 0, voter 0, label 0]"):
        pv.label(soft + 0.5, **BUDGET)


def test_probabilities_count_by_their_squares() -> None:
    """Whoever says .5 everywhere departs by a quarter of a vote, from 0 and from 1."""
    votes = np.full((40, 30, 4), 0.5)
    for guess in (None, np.ones((40, 4))):
        release = pv.label(votes, **BUDGET, baseline=guess, seed=0)
        spent = release.sealed.spent
        assert (spent == spent[0]).all()
        assert spent[0] == min(40, release.allowance)


# -- what leaves ----------------------------------------------------------------------------------


def test_an_entry_is_durable_before_a_tally_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "l.db", []
    for owner, name in ((allowance, "_contributions"), (pv.TallyVoting, "draw")):
        right = getattr(owner, name)

        def watched(*given: Any, right: Any = right) -> Any:
            seen.append([each["kind"] for each in entries(path)])
            return right(*given)

        monkeypatch.setattr(owner, name, watched)
    month(path, VOTES)
    assert seen == [["budget", "charge"], ["budget", "charge", "learnt", "answer"]]


def test_labels_are_decided_from_tallies_for_free(tmp_path: Path) -> None:
    release = pv.label(VOTES, **BUDGET, output=tmp_path / "r.npz")
    assert release.decided == "likely"
    assert np.array_equal(pv.decide(release).labels, release.labels)
    for by in ("f1", "balanced", 0.3):
        other = pv.decide(release, by)
        assert other.decided == by
        assert other.drawn == release.drawn
        other.save(tmp_path / "o.npz")
        loaded = pv.Release.load(tmp_path / "o.npz")
        assert loaded.decided == by
        assert np.array_equal(loaded.labels, other.labels)
    assert release.probabilities is not None
    assert np.array_equal(pv.decide(release, 0.3).labels == 1, release.probabilities >= 0.3)
    for bad in ("mean", 1.5, math.nan, None):
        with refused("by"):
            pv.decide(release, bad)  # type: ignore[arg-type]
    bits = pv.label(VOTES, **BUDGET, mechanism=pv.BinaryVoting(sigma=9.0))
    assert bits.tallies is bits.probabilities is bits.quality is bits.posterior is None
    with refused("release"):
        pv.decide(bits)


def test_the_guardian_refuses_what_does_not_go_together() -> None:
    budget = pv.Budget(**BUDGET)
    steps = pv.TallyVoting(sigma=1.0, grid=100).ballots(VOTES / 2)
    for mechanism in (pv.BinaryVoting(sigma=9.0), pv.TallyVoting(sigma=9.0)):
        with refused("votes"):
            pv.label(steps, **BUDGET, mechanism=mechanism)
    with refused("guarantee"):
        pv.Guardian("auto", budget, pv.Ledger.in_memory(), guarantee="data-dependent")
    with refused("allowance"):
        pv.Guardian("auto", budget, pv.Ledger.in_memory(), allowance=3)
    with refused("mechanism"):
        pv.Guardian("best", budget, pv.Ledger.in_memory())
    guardian = pv.Guardian("auto", budget, pv.Ledger.in_memory(), guarantee="worst-case")
    with refused("baseline"):
        guardian.release(VOTES, baseline=np.zeros((60, 5)))


def test_batches_of_one_plan_are_one_charge() -> None:
    book = pv.Ledger.in_memory()
    with pv.Guardian("auto", pv.Budget(**BUDGET), book, seed=0) as guardian:
        first = guardian.release(VOTES[:20], plan_for=60)
        second = guardian.release(VOTES[20:40], plan_for=60, baseline=np.ones((20, 5)))
        third = guardian.release(VOTES[40:], plan_for=60)
        for plan_for in (None, 60):
            with refused(None, pv.BudgetError):
                guardian.release(VOTES[:1], plan_for=plan_for)
    assert [each["kind"] for each in book.published()].count("charge") == 1
    assert first.epsilon == second.epsilon == third.epsilon == BUDGET["epsilon"]
    assert first.mechanism == third.mechanism
    assert third.allowance is not None
    assert (third.sealed.spent <= third.allowance).all()
    mu = math.sqrt(min(2 * int(third.allowance), 300)) / first.mechanism["sigma"]
    cost = learnt_delta(BUDGET["epsilon"], first.terms["learnt"]["epsilon0"], mu)
    assert cost <= BUDGET["delta"] * (1 + 1e-9)
