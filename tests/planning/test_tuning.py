"""Tuning: trials equal brute force and real runs; the choice is the best there is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import privote as pv
from privote import planning
from privote.errors import InputError
from privote.mechanisms import MECHANISMS as REGISTRY
from privote.planning.tuning import best_per_label
from privote.votes.cube import Ballots

EPSILON, DELTA = 4.0, 1e-5
BUDGET: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA}
EVERY: dict[str, Any] = {"guarantee": "allowance", "seed": 0}
BINARY = pv.BinaryVoting(sigma=5.0)


@pytest.fixture(scope="module")
def votes() -> npt.NDArray[np.bool_]:
    """Return (60 queries, 15 voters, 3 labels): most agree, some stray."""
    rng = np.random.default_rng(3)
    wanted = rng.random((60, 1, 3)) < 0.3
    return np.asarray(wanted ^ (rng.random((60, 15, 3)) < 0.12))


def majority(votes: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    return np.asarray(2 * votes.sum(axis=1) > votes.shape[1]).astype(np.int8)


@pytest.fixture(scope="module")
def truth(votes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(4)
    known = np.where(rng.random((60, 3)) < 0.1, 1 - majority(votes), majority(votes))
    known[rng.random((60, 3)) < 0.05] = -1
    return known.astype(np.int8)


# -- sigma ----------------------------------------------------------------------------------------


def test_sigma_answers_more_and_worse(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    calls: list[tuple[int, int]] = []
    found = planning.tune_sigma(
        votes, truth, **BUDGET, sigmas=[3, 6, 12, 24], progress=lambda *step: calls.append(step)
    )
    assert [t.values["sigma"] for t in found.trials] == [3, 6, 12, 24]
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4)]
    worst = [t.fits["worst-case"] or 0 for t in found.trials]
    wrong = [t.quality.wrong for t in found.trials]
    assert worst == sorted(worst)
    assert worst[0] < worst[-1]
    assert wrong == sorted(wrong)
    assert found.against == "truth"
    assert found.trials[0].noise_free == planning.quality_of(majority(votes), truth)


def test_each_trial_is_what_the_counter_and_the_measure_say(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    (trial,) = planning.tune_sigma(votes, truth, **BUDGET, sigmas=[5.0]).trials
    assert trial.mechanism == BINARY
    assert trial.fits == planning.queries_that_fit(BINARY, votes, EPSILON, DELTA)
    assert trial.quality == planning.quality(BINARY, Ballots.of(votes), truth)


def test_without_truth_the_majority_is_the_reference(votes: npt.NDArray[np.bool_]) -> None:
    found = planning.tune_sigma(votes, **BUDGET, sigmas=[0.01])
    assert found.against == "noise-free majority"
    assert found.trials[0].noise_free.wrong == 0
    assert found.trials[0].quality.wrong == pytest.approx(0)


def test_whatever_is_found_says_that_it_is_not_private(votes: npt.NDArray[np.bool_]) -> None:
    facts = planning.tune_sigma(votes, **BUDGET, sigmas=[5.0, 9.0]).facts()
    assert next(iter(facts)) == "note"
    assert "voids the guarantee" in facts["note"]
    assert facts["private"] is False
    row = facts["trials"][1]
    assert row["sigma"] == 9.0
    answered = pytest.approx(3 * row["fits"]["worst-case"])  # a sum of probabilities
    assert row["labels_answered"]["worst-case"] == answered


def test_the_default_grid_of_sigma_grows_with_the_voters(votes: npt.NDArray[np.bool_]) -> None:
    sigmas = [t.values["sigma"] for t in planning.tune_sigma(votes, **BUDGET).trials]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < 15 / 20 < 15 < sigmas[-1]


def test_a_link_is_tried_with_what_noise_would_cost(votes: npt.NDArray[np.bool_]) -> None:
    link = pv.BinaryVoting(link=pv.OptimalLink(cost=1.0, order=4.0))
    found = planning.tune_sigma(votes, mechanism=link, sigmas=[5.0], **BUDGET).trials[0]
    assert isinstance(found.mechanism, pv.BinaryVoting)
    assert found.mechanism.link is not None
    # At the bar, and at its own order, a vote costs about as much as with that sigma.
    at = found.mechanism.link.cost / BINARY.surprise_rdp(15, 3, [4.0])[0]
    assert at == pytest.approx(1.0, rel=0.15)
    assert found.fits["published"] is None


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case", "data-dependent"])
@pytest.mark.parametrize("drop", [0.2, 0.05, 0.015])
def test_the_chosen_one_is_the_best_of_the_grid(
    votes: npt.NDArray[np.bool_], guarantee: str, drop: float
) -> None:
    sigmas = (1.5, 3.0, 4.0, 6.0, 9.0, 14.0)
    found = planning.tune_sigma(votes, **BUDGET, sigmas=sigmas, guarantee=guarantee, drop=drop)
    best = (0, 0.0)
    for sigma in sigmas:
        mechanism = pv.BinaryVoting(sigma=sigma)
        one = mechanism.outcome_probabilities(votes)[..., 1]
        wrong = float(np.where(majority(votes) == 1, 1 - one, one).mean())
        queries = planning.queries_that_fit(mechanism, votes, EPSILON, DELTA)[guarantee]
        if wrong <= drop:
            best = max(best, (queries or 0, -wrong))
    chosen = found.chosen
    assert (chosen is None) == (best[0] == 0)
    if chosen is not None:
        assert (chosen.fits[guarantee], -chosen.quality.wrong) == pytest.approx(best)


def test_no_sigma_nearby_is_better_than_the_refined_one() -> None:
    rng = np.random.default_rng(0)
    many = (rng.random((200, 1, 3)) < 0.3) ^ (rng.random((200, 20, 3)) < 0.1)
    how: dict[str, Any] = {"epsilon": 8.0, "delta": DELTA, "drop": 0.03}
    found = planning.tune_sigma(many, **how, refine=True).chosen
    coarse = planning.tune_sigma(many, **how).chosen
    assert found is not None
    assert coarse is not None
    assert coarse.fits["allowance"] < found.fits["allowance"] < 200  # type: ignore[operator]
    sigma = found.values["sigma"]
    # Every sigma nearby either falls short or answers no more.
    near = [float(s) for s in np.geomspace(0.95 * sigma, 1.05 * sigma, 40)]
    for other in planning.tune_sigma(many, **how, sigmas=near).trials:
        if other.quality.wrong <= 0.03:
            assert other.fits["allowance"] <= found.fits["allowance"]  # type: ignore[operator]


def test_the_chosen_mechanism_releases_what_was_said(votes: npt.NDArray[np.bool_]) -> None:
    found = planning.tune_sigma(votes, **BUDGET, drop=0.05).chosen
    assert found is not None
    queries = found.fits["allowance"]
    release = pv.label(votes[:queries], mechanism=found.mechanism, **BUDGET, **EVERY)
    assert release.sealed.spent.sum() == votes[:queries].sum()


def test_beyond_says_what_happens_when_voters_run_out(votes: npt.NDArray[np.bool_]) -> None:
    refused, good, plenty = planning.tune_sigma(
        votes, **BUDGET, sigmas=[0.1, 5.0, 90.0], beyond=True
    ).trials
    assert refused.beyond is None  # V = 0
    assert good.beyond is not None
    assert good.beyond.missed > good.quality.missed
    assert plenty.beyond == plenty.quality  # nobody runs out
    drawn = [
        pv.label(votes, mechanism=good.mechanism, **BUDGET, **{**EVERY, "seed": seed}).labels
        for seed in range(40)
    ]
    wrong = np.mean([(labels != majority(votes)).mean() for labels in drawn])
    assert good.beyond.wrong == pytest.approx(wrong, abs=0.02)


# -- the rule of choice ---------------------------------------------------------------------------


def trial(sigma: float, queries: int, wrong: float, missed: float, **how: Any) -> planning.Trial:
    return planning.Trial(
        values={"sigma": sigma},
        mechanism=pv.BinaryVoting(sigma=sigma),
        fits={"allowance": queries},
        quality=planning.Quality(wrong=wrong, missed=missed, false_alarm=0.0, **how),
        noise_free=planning.Quality(wrong=0.1, missed=0.1, false_alarm=0.1),
    )


def tuned(*trials: planning.Trial, **rule: Any) -> planning.Tuning:
    return planning.Tuning(
        over="sigma", trials=trials, against="truth", queries=99, voters=9, labels=4,
        epsilon=1.0, delta=DELTA, **rule,
    )  # fmt: skip


def test_choose_takes_the_most_answers_that_are_still_good() -> None:
    some = (
        trial(1, 5, 0.1, 0.1),
        trial(2, 20, 0.11, 0.3),
        trial(3, 40, 0.2, 0.4),
        trial(4, 30, 0.1, 0.1, answered=0.5),
    )
    for drop, sigma in ((0.0, 4), (0.02, 2), (0.2, 3)):
        chosen = tuned(*some, drop=drop).chosen
        assert chosen is not None
        assert chosen.values["sigma"] == sigma
    chosen = tuned(*some, drop=0.2, missed=0.3).chosen
    assert chosen is not None
    assert chosen.values["sigma"] == 2
    assert tuned(trial(1, 0, 0.1, 0.1)).chosen is None
    assert tuned(trial(1, 9, 0.5, 0.1)).chosen is None
    assert tuned(trial(1, 9, math.nan, math.nan, answered=0.0)).chosen is None


# -- tau and the gate -----------------------------------------------------------------------------


def test_tau_says_what_clipping_keeps_and_costs(votes: npt.NDArray[np.bool_]) -> None:
    kind = pv.TauVoting(sigma=5.0, tau=9.0)
    found = planning.tune_tau(votes, mechanism=kind, taus=[1.0, 1.4, 3.0], **BUDGET)
    assert [(t.values["norm"], t.values["tau"]) for t in found.trials] == [
        (norm, tau) for norm in (2, 1) for tau in (1.0, 1.4, 3.0)
    ]
    ballots = votes.reshape(-1, 3).astype(float)
    for each in found.trials:
        norm, tau = each.values["norm"], each.values["tau"]
        length = np.linalg.norm(ballots, ord=norm, axis=1)
        clipped = ballots * np.minimum(1, tau / np.maximum(length, 1e-9))[:, None]
        assert each.details["kept"] == pytest.approx(clipped.sum() / ballots.sum())
        assert each.details["clipped"] == pytest.approx((length > tau).mean())
    # Without clipping a ballot may change all three labels, and labels are Binary's.
    assert found.trials[2].details["cost"] == pytest.approx(3)
    binary = planning.tune_sigma(votes, sigmas=[5.0], **BUDGET).trials[0]
    assert found.trials[2].quality.wrong == pytest.approx(binary.quality.wrong)
    assert found.trials[2].fits["data-dependent"] == binary.fits["data-dependent"]


def test_cost_of_tau_with_twenty_labels() -> None:
    # ACCOUNTING, "wrong in print": l2 with 1.8 gives 6.48, l1 with 3.4 gives 6 (3 ones, all whole).
    votes = np.zeros((1, 50, 20), bool)
    votes[:, :, 0] = True
    for norm, tau, cost in ((2, 1.8, 6.48), (1, 3.4, 6.0)):
        kind = pv.TauVoting(sigma=9.0, tau=1.0)
        found = planning.tune_tau(
            votes, mechanism=kind, epsilon=20, delta=1e-5, taus=[tau], norms=[norm]
        )
        assert found.trials[0].details["cost"] == pytest.approx(cost)


def test_the_default_grid_of_tau_ends_without_clipping(votes: npt.NDArray[np.bool_]) -> None:
    kind = pv.TauVoting(sigma=5.0, tau=1.0)
    found = planning.tune_tau(votes[:10], mechanism=kind, **BUDGET)
    for norm in (2, 1):
        kept = [t.details["kept"] for t in found.trials if t.values["norm"] == norm]
        assert kept == sorted(kept)
        assert kept[0] < kept[-1] == 1


def test_gate_begins_without_one_and_says_what_it_lets_through(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    found = planning.tune_gate(
        votes, truth, mechanism=BINARY, **BUDGET, gate_thresholds=[9, 12, 15], gate_sigmas=[2, 4]
    )
    plain = planning.tune_sigma(votes, truth, **BUDGET, sigmas=[5.0]).trials[0]
    first, *gated = found.trials
    assert first == replace(plain, values={"gate_threshold": None, "gate_sigma": None})
    pairs = [(t.values["gate_sigma"], t.values["gate_threshold"]) for t in gated]
    assert pairs == list(itertools.product([2.0, 4.0], [9, 12, 15]))
    for each in gated:
        gate = pv.Gate(threshold=each.values["gate_threshold"], sigma=each.values["gate_sigma"])
        count = votes.sum(axis=1)
        passed = np.exp(gate.log_probs(np.maximum(count, 15 - count))[..., 1])
        assert each.quality.answered == pytest.approx(passed[truth != -1].mean())
        expected = (each.fits["allowance"] or 0) * 3 * each.quality.answered
        assert each.labels_answered("allowance", 3) == pytest.approx(expected)


# -- mechanisms -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Foreign(pv.BinaryVoting):
    """A mechanism of somebody else's."""

    name: ClassVar[str] = "foreign"


def test_mechanisms_side_by_side_at_equal_noise(votes: npt.NDArray[np.bool_]) -> None:
    found = planning.tune_mechanism(votes, sigma=3.0, **BUDGET)
    names = [each.mechanism.name for each in found.trials]
    assert names == ["binary", "binary", "tau", "tau", "powerset"]
    assert list(found.left_out) == ["plurality (sigma=3)"]
    noises = [t.mechanism.parameters().get("sigma", 3.0) for t in found.trials]
    assert noises == [3.0] * 5
    for each in found.trials:
        assert each.fits == planning.queries_that_fit(each.mechanism, votes, EPSILON, DELTA)
        exact, published = each.fits["data-dependent"], each.fits["published"]
        assert exact is not None
        assert published is None or published <= exact
    one_hot = np.eye(3, dtype=bool)[np.arange(40).reshape(4, 10) % 3]
    last = planning.tune_mechanism(one_hot, sigma=3.0, **BUDGET).trials[-1]
    assert last.mechanism == pv.PluralityVoting(sigma=3.0)


def test_mechanisms_side_by_side_at_equal_quality(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    mechanisms = [BINARY, pv.PowersetVoting(sigma=1.0), pv.TauVoting(sigma=1.0, tau=1.8)]
    found = planning.tune_mechanism(
        votes, truth, mechanisms=mechanisms, sigma=4.0, equal="quality", **BUDGET
    )
    first, *others = found.trials
    assert first.mechanism == pv.BinaryVoting(sigma=4.0)
    assert len(others) == 2
    for each in others:
        assert each.quality.wrong == pytest.approx(first.quality.wrong, rel=0.02)
        assert each.quality.wrong <= first.quality.wrong
    clipped = pv.TauVoting(sigma=1.0, tau=0.51)
    found = planning.tune_mechanism(
        votes, mechanisms=[BINARY, clipped], sigma=1.0, equal="quality", **BUDGET
    )
    assert len(found.trials) == 1
    assert "with hardly any noise" in found.left_out["tau"]


def test_links_answer_more_at_equal_quality(tmc_votes: npt.NDArray[np.bool_]) -> None:
    # ACCOUNTING section 5, tmc2007 at epsilon 20: at the flip rate of sigma 12 a link answers 501
    # instead of 366, as published with orders 2.5 to 3.
    kinds = pv.BinaryVoting.variants(12.0, 2.4)
    plain, link = planning.tune_mechanism(
        tmc_votes, mechanisms=kinds, sigma=12.0, equal="quality", epsilon=20.0, delta=DELTA
    ).trials
    assert plain.fits["allowance"] == 366
    assert (link.fits["allowance"] or 0) >= 501


def test_a_mechanism_from_outside_is_planned_with_like_any_other(
    votes: npt.NDArray[np.bool_], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = planning.tune_mechanism(votes, mechanisms=[Foreign(sigma=2.0)], sigma=5.0, **BUDGET)
    same = planning.tune_mechanism(votes, mechanisms=[BINARY], equal="as-given", **BUDGET)
    assert given.trials[0].mechanism == Foreign(sigma=5.0)
    assert given.trials[0].fits == same.trials[0].fits
    assert given.trials[0].quality == same.trials[0].quality
    monkeypatch.setitem(REGISTRY, "foreign", Foreign)
    names = {t.mechanism.name for t in planning.tune_mechanism(votes, sigma=3.0, **BUDGET).trials}
    assert "foreign" in names
    assert planning.queries_for(Foreign(sigma=5.0), 15, 3, **BUDGET) == planning.queries_for(
        BINARY, 15, 3, **BUDGET
    )


# -- thresholds -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scores(truth: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Return probabilities (60, 15, 3) that are higher where the truth is 1, low on label 2."""
    rng = np.random.default_rng(6)
    base = np.where(truth == 1, 0.55, 0.25)[:, None, :] * np.array([1.0, 1.0, 0.4])
    return np.asarray(np.clip(base + rng.normal(0, 0.1, (60, 15, 3)), 0, 1))


def test_thresholds_are_tried_for_all_and_by_label(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]
) -> None:
    own = scores >= 0.3
    found = planning.tune_threshold(
        scores, truth, mechanism=BINARY, **BUDGET, thresholds=[0.15, 0.4, 0.8], others={"own": own}
    )
    assert [t.values["rule"] for t in found.trials] == ["common"] * 3 + ["per label", "own"]
    for each, threshold in zip(found.trials, (0.15, 0.4, 0.8), strict=False):
        alone = planning.tune_sigma(scores >= threshold, truth, **BUDGET, sigmas=[5.0]).trials[0]
        assert each.fits == alone.fits
        assert each.quality == alone.quality
        assert each.noise_free == alone.noise_free
        assert each.details["yes_per_ballot"] == pytest.approx((scores >= threshold).sum() / 900)
    assert found.trials[3].details["thresholds"] == [0.4, 0.4, 0.15]
    wrong = [t.noise_free.wrong for t in found.trials]
    assert wrong[3] == min(wrong)
    assert found.trials[4].details["thresholds"] is None
    assert found.trials[4].details["yes_per_ballot"] == pytest.approx(own.sum() / 900)


def test_each_label_has_its_own_best_threshold(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]
) -> None:
    grid = np.round(np.arange(0.05, 1, 0.05), 2).tolist()
    table = []
    for threshold in grid:
        answers = majority(scores >= threshold)
        # Of labels with both classes, missed plus false alarms is two less twice the BAC.
        table.append(pv.metrics.multilabel(truth, answers, answers)["per_label"]["BAC"])
    expected = np.array(grid)[np.array(table).argmax(axis=0)]
    np.testing.assert_array_equal(best_per_label(scores, truth, grid, BINARY), expected)


def test_a_label_with_one_class_takes_what_is_best_on_average(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]
) -> None:
    known = truth.copy()
    known[:, 2] = 0
    best = best_per_label(scores, known, [0.1, 0.4, 0.9], BINARY)
    np.testing.assert_array_equal(best, [0.4, 0.4, 0.4])
    with pytest.raises(InputError, match="both classes"):
        best_per_label(scores, np.zeros_like(truth), [0.1, 0.4], BINARY)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigmas": []}, "sigmas must hold at least one value"),
        ({"sigmas": [5.0, 5.0]}, "sigmas must not hold a value twice"),
        ({"sigmas": [5.0, -1]}, "sigmas must be finite and positive, got -1"),
        ({"epsilon": 0}, "epsilon must be finite and positive, got 0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"guarantee": "hope"}, "guarantee must be one of allowance, worst-case, ptr"),
        ({"drop": -1}, r"drop must lie in \[0, 1\]"),
        ({"missed": 2}, r"missed must lie in \[0, 1\]"),
        ({"truth": np.zeros((3, 3))}, r"truth must have the shape .*\(60, 3\).* got \(3, 3\)"),
        ({"baseline": np.zeros((5, 3))}, "baseline must be"),
        ({"mechanism": pv.PluralityVoting(sigma=1.0)}, "plurality takes at most one positive"),
    ],
)
def test_bad_arguments(votes: npt.NDArray[np.bool_], changes: dict[str, Any], message: str) -> None:
    given = {**BUDGET, "sigmas": [5.0], **changes}
    with pytest.raises(InputError, match=message):
        planning.tune_sigma(votes, given.pop("truth", None), **given)


def test_what_does_not_fit_together_is_refused(votes: npt.NDArray[np.bool_]) -> None:
    gated = pv.BinaryVoting(sigma=5.0, gate=pv.Gate(threshold=9, sigma=4))
    with pytest.raises(InputError, match="mechanism must have no gate yet"):
        planning.tune_gate(votes, mechanism=gated, **BUDGET)
    with pytest.raises(InputError, match="norms must be 2, 1 or both"):
        planning.tune_tau(votes, mechanism=pv.TauVoting(sigma=5.0, tau=1.0), norms=[], **BUDGET)
    with pytest.raises(InputError, match="mechanism must have a tau to tune"):
        planning.tune_tau(votes, mechanism=BINARY, **BUDGET)
    with pytest.raises(InputError, match="equal must be noise, quality or as-given"):
        planning.tune_mechanism(votes, equal="price", **BUDGET)
    with pytest.raises(InputError, match="mechanisms must hold one that can count these votes"):
        planning.tune_mechanism(votes, mechanisms=[pv.PluralityVoting(sigma=1.0)], **BUDGET)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": [0.5, 1.5]}, r"threshold must lie in \[0, 1\]"),
        ({"probabilities": np.full((60, 15, 3), 1.5)}, "must be a probability in"),
        ({"probabilities": np.zeros((60, 15))}, "votes must have 3 axes"),
    ],
)
def test_bad_thresholds(
    scores: npt.NDArray[np.float64],
    truth: npt.NDArray[np.int8],
    changes: dict[str, Any],
    message: str,
) -> None:
    given: dict[str, Any] = {"probabilities": scores, **changes}
    with pytest.raises(InputError, match=message):
        planning.tune_threshold(
            given.pop("probabilities"), truth, mechanism=BINARY, **BUDGET, **given
        )
