"""The learnt allowance: charged first, drawn once, gone on with; nothing sealed leaves."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.accounting.allowance import Learning, learnt_delta
from privote.entropy import Entropy
from privote.guarantees import Learnt, allowance
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
        terms, cells = release.guarantee.terms, 60 * 5
        assert isinstance(terms, Learnt)
        assert release.epsilon == epsilon
        assert release.answered == terms.planned == 60
        limit = cells if release.guarantee.allowance is None else release.guarantee.allowance
        assert isinstance(limit, int)
        mu = math.sqrt(min(2 * limit, cells)) / release.guarantee.mechanism["sigma"]
        assert learnt_delta(epsilon, terms.epsilon0, mu) <= 1e-5 * (1 + 1e-9)
        assert learnt_delta(epsilon, terms.epsilon0, 1.001 * mu) > 1e-5
        drawn.add(limit)
    assert (guarantee == "worst-case") == (drawn == {cells})
    assert terms.learns == (epsilon == 8.0 and guarantee != "worst-case")


def test_few_voters_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("looked at the votes")

    monkeypatch.setattr(allowance, "_contributions", asked)
    with pytest.warns(pv.PrivoteWarning, match="too few voters"):
        release = pv.label(VOTES[:, :8], epsilon=1.0, delta=1e-5, anyway=True)
    assert release.guarantee.allowance == math.ceil(60 * 5 / 8)
    terms = release.guarantee.terms
    assert isinstance(terms, Learnt)
    assert (terms.epsilon0, terms.planned, terms.learns) == (0.0, 60, False)
    assert release.quality is None
    assert "cannot be estimated" in release.summary()


def test_tallies_are_of_votes_that_count() -> None:
    """With next to no noise: tallies are those of the votes, cut where the allowance ends."""
    release = pv.label(VOTES, epsilon=1e9, delta=1e-5, seed=1)
    assert isinstance(release.guarantee.allowance, int)
    left = np.full(40, release.guarantee.allowance)
    block = next(pv.Ballots.of(VOTES).blocks())
    given: dict[str, Any] = {"unit": "vote", "missing_counts_as_no": True}
    counted, spent, turned_away = bound_contributions(block, np.zeros((60, 5), bool), left, **given)
    assert np.array_equal(release.tallies, pv.TallyVoting(sigma=1.0).tally(counted).steps)
    assert np.array_equal(release.sealed.spent, spent)
    assert np.array_equal(release.sealed.clipped, turned_away)


# -- in a ledger ----------------------------------------------------------------------------------


def test_months_go_on_with_one_charge(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    first = month(path, VOTES[:20], plan_for=60)
    second = month(path, VOTES[20:50], plan_for=60)
    run = ["reserve", "commit", "deliver"]
    assert [each["kind"] for each in entries(path)] == ["budget", "charge", *run, *run]
    for release in (first, second):
        guarantee = release.guarantee
        assert release.epsilon == guarantee.total == 8.0
        assert guarantee.standing is not None
        assert (guarantee.standing.runs, guarantee.standing.share) == (1, 1.0)
        assert guarantee.mechanism == first.guarantee.mechanism
        assert guarantee.allowance == first.guarantee.allowance
        assert isinstance(guarantee.terms, Learnt)
        assert guarantee.terms.planned == 60
    standings = [each.guarantee.standing for each in (first, second)]
    opener = standings[0].entry if standings[0] else None
    assert [(of.new, of.continues) for of in standings if of] == [(True, None), (False, opener)]
    assert [each.guarantee.answered_total for each in (first, second)] == [20, 50]
    ledger = pv.Ledger.open(path, readonly=True)
    assert ledger.standing()[0]["used"] == 8.0
    assert [each.remaining for each in ledger.state.accounts.values()] == [10]
    ledger.close()
    for votes, plan in ((VOTES[30:], 60), (VOTES[50:], 70)):
        with refused(None, pv.BudgetError):
            month(path, votes, plan_for=plan)
    third = month(path, VOTES[50:])  # as many as are left
    assert third.guarantee.answered_total == 60
    assert (third.sealed.spent <= third.guarantee.allowance).all()
    assert len(entries(path, "charge")) == 1
    with refused(None, pv.BudgetError):  # nothing is left, and one run took all of the budget
        month(path, VOTES[:1])


def test_what_is_charged_is_what_is_drawn_on_every_branch(tmp_path: Path) -> None:
    """The charge is a line in the order, known before V; any V then has the noise that pays."""
    seen = set()
    for seed in range(6):
        ledger = pv.Ledger.open(tmp_path / f"{seed}.db")
        ledger.set_budget(pv.Budget(epsilon=16.0, delta=1e-5), dataset="default")
        release = pv.label(VOTES, **BUDGET, ledger=ledger, seed=seed)
        budget, charge, _, drawn, *_ = ledger.published()
        ledger.close()
        slope = charge["cost"] / budget["order"]
        limit, sigma = drawn["limit"], drawn["mechanism"]["sigma"]
        epsilon0 = charge["terms"]["learnt"]["epsilon0"]
        paid = epsilon0**2 / 8 + min(2 * limit, 300) / (2 * sigma**2)
        assert slope * (1 - 1e-9) < paid <= slope
        assert release.guarantee.mechanism["sigma"] == sigma
        seen.add(limit)
    assert len(seen) > 1  # branches that differ


def test_bad_plans_charge_nothing(tmp_path: Path) -> None:
    path, binary = tmp_path / "l.db", pv.BinaryVoting(sigma=9.0)
    bad: list[tuple[str, dict[str, Any]]] = [
        *(("plan_for", {"plan_for": plan}) for plan in (59, 60.5)),
        ("plan_for", {"plan_for": 100, "mechanism": binary}),
        ("plan_for", {"plan_for": 100, "ledger": None}),
        ("mechanism", {"guarantee": "data-dependent", "queries": 10}),
        ("queries", {"plan_for": 10**23}),
    ]
    for argument, more in bad:
        with refused(argument):
            pv.label(VOTES, **BUDGET, **{"ledger": path, **more})
    with refused(None, pv.BudgetError):  # the noise is more than there are voters
        month(path, VOTES, plan_for=10**9)
    assert not path.exists()


def test_an_allowance_pays_for_one_run_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches never spend the same allowance; what a failed one spent is not known."""
    path = tmp_path / "l.db"
    month(path, VOTES[:20], plan_for=60)
    with monkeypatch.context() as patch:
        patch.setattr(pv.TallyVoting, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            month(path, VOTES[20:40])
    with refused(None, pv.BudgetError):
        month(path, VOTES[40:50])
    resumed = month(path, VOTES[20:40], resume=True)
    assert resumed.guarantee.answered_total == 40
    with monkeypatch.context() as patch:
        patch.setattr(pv.TallyVoting, "draw", broken)
        with refused(None, pv.ChargedError):
            month(path, VOTES[40:50])
    for plan in (None, 60):
        with refused(None, pv.BudgetError):
            month(path, VOTES[40:50], plan_for=plan)
    assert len(entries(path, "charge")) == 1


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


def broken(*_: Any) -> Any:
    raise ValueError("broken")


def test_an_end_without_a_draw_leaves_the_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.db"
    with monkeypatch.context() as patch:
        patch.setattr(pv.TallyVoting, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            month(path, VOTES[:20], plan_for=60)
    ledger = pv.Ledger.open(path)
    ledger.abandon(max(ledger.state.runs))
    ledger.close()
    assert month(path, VOTES[:20], plan_for=60).guarantee.answered_total == 20
    assert len(entries(path, "charge")) == 1


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
    assert release.guarantee.mechanism["grid"] == 100
    release = pv.label(soft, **BUDGET)
    need = ((np.rint(100 * np.maximum(soft, 0)) / 100) ** 2).sum(axis=(0, 2))
    assert isinstance(release.guarantee.allowance, int)
    assert 0.5 * np.median(need) < release.guarantee.allowance < 3 * np.median(need)
    assert (release.sealed.spent <= release.guarantee.allowance).all()
    path = tmp_path / "l.db"
    month(path, soft[:30], plan_for=60)
    with refused(None, pv.BudgetError):  # single votes are another allowance
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
        assert spent[0] == min(40, release.guarantee.allowance)


# -- what leaves ----------------------------------------------------------------------------------


def test_nothing_is_read_before_the_reservation(
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
    assert seen == [["budget", "charge", "reserve"]] * 2


def test_labels_are_decided_from_tallies_for_free(tmp_path: Path) -> None:
    release = pv.label(VOTES, **BUDGET)
    assert release.decided == "likely"
    assert np.array_equal(pv.decide(release).labels, release.labels)
    for by in ("f1", "balanced", 0.3):
        other = pv.decide(release, by)
        assert other.decided == by
        assert other.guarantee == release.guarantee
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
    assert bits.tallies is bits.probabilities is bits.quality is bits.shares is None
    with refused("release"):
        pv.decide(bits)


def test_steps_are_for_tallies_of_the_same() -> None:
    steps = pv.TallyVoting(sigma=1.0, grid=100).ballots(VOTES / 2)
    for mechanism in (pv.BinaryVoting(sigma=9.0), pv.TallyVoting(sigma=9.0)):
        with refused("votes"):
            pv.label(steps, **BUDGET, mechanism=mechanism)


def test_batches_of_one_plan_are_within_one_price(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    first = month(path, VOTES[:20], plan_for=60)
    month(path, VOTES[20:40], baseline=np.ones((20, 5)))
    third = month(path, VOTES[40:])
    guarantee = third.guarantee
    assert guarantee.mechanism == first.guarantee.mechanism
    assert isinstance(guarantee.allowance, int)
    assert isinstance(guarantee.terms, Learnt)
    assert (third.sealed.spent <= guarantee.allowance).all()
    mu = math.sqrt(min(2 * guarantee.allowance, 300)) / guarantee.mechanism["sigma"]
    cost = learnt_delta(BUDGET["epsilon"], guarantee.terms.epsilon0, mu)
    assert cost <= BUDGET["delta"] * (1 + 1e-9)
