"""Tuning: counts equal brute force and real runs, figures equal enumeration and scikit-learn's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privote as pv
from privote.errors import InputError
from privote.learning import tuning
from privote.learning.tuning.figures import figures_of, majority
from privote.learning.tuning.fits import default_guarantees
from privote.learning.tuning.thresholds import best_per_label

EPSILON, DELTA = 4.0, 1e-5
GATE = pv.Gate(threshold=12, sigma=4)
MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=5.0),
    "gated": pv.BinaryVoting(sigma=5.0, gate=GATE),
    "tau": pv.TauVoting(sigma=5.0, tau=1.2),
    "tau l1": pv.TauVoting(sigma=5.0, tau=1.5, norm=1, gate=GATE),
    "powerset": pv.PowersetVoting(sigma=3.0),
    "powerset, few": pv.PowersetVoting(sigma=3.0, max_positives=3, gate=GATE),
}
NAMES = tuning.FIGURES


@pytest.fixture(scope="module")
def votes() -> npt.NDArray[np.bool_]:
    """Return (60 queries, 15 voters, 3 labels): most agree, some stray."""
    rng = np.random.default_rng(3)
    wanted = rng.random((60, 1, 3)) < 0.3
    return np.asarray(wanted ^ (rng.random((60, 15, 3)) < 0.12))


@pytest.fixture(scope="module")
def truth(votes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    rng = np.random.default_rng(4)
    known = np.where(rng.random((60, 3)) < 0.1, 1 - majority(votes), majority(votes))
    known[rng.random((60, 3)) < 0.05] = -1
    return known.astype(np.int8)


# -- how many queries fit -------------------------------------------------------------------------


def longest(fits: list[bool]) -> int:
    """Return how many of the first fit; once one does not, no later one does."""
    assert fits == sorted(fits, reverse=True)
    return sum(fits)


@pytest.mark.parametrize("name", ["binary", "gated", "tau", "powerset"])
def test_counts_are_the_longest_prefixes_that_fit(name: str, votes: npt.NDArray[np.bool_]) -> None:
    mechanism, orders, votes = MECHANISMS[name], pv.DEFAULT_ORDERS, votes[:20]
    got = tuning.queries_that_fit(mechanism, votes, 2.0, DELTA, tuning.GUARANTEES)

    def fit(curve: Any) -> bool:
        return bool(np.max(pv.epsilon(curve, orders, DELTA)) <= 2.0)

    steps = range(1, len(votes) + 1)
    worst = mechanism.worst_case_rdp(15, 3, orders)
    assert got["worst_case"] == longest([fit(n * worst) for n in steps])
    each = np.cumsum(mechanism.rdp(votes, orders), axis=0)
    assert got["exact_per_query"] == longest([fit(curve) for curve in each])
    bills = itertools.accumulate(mechanism.rdp_by_voter(votes[n - 1 : n], orders) for n in steps)
    assert got["exact_by_voter"] == longest([fit(bill) for bill in bills])
    assert 0 < got["worst_case"] <= got["exact_per_query"] <= got["exact_by_voter"] < 20


@pytest.mark.parametrize("name", ["binary", "tau", "powerset"])
def test_the_first_voter_runs_out_where_it_is_said(name: str, votes: npt.NDArray[np.bool_]) -> None:
    mechanism = MECHANISMS[name]
    count = tuning.queries_that_fit(mechanism, votes, EPSILON, DELTA, ["allowance"])["allowance"]
    allowance = pv.Electorate(
        mechanism=mechanism, voters=15, labels=3, epsilon=EPSILON, delta=DELTA
    ).allowance
    spent = votes.sum(axis=2) if name == "binary" else votes.any(axis=2)
    assert 0 < count < len(votes)
    assert spent[:count].sum(axis=0).max() <= allowance < spent[: count + 1].sum(axis=0).max()


def test_counts_are_those_of_a_real_run(votes: npt.NDArray[np.bool_]) -> None:
    mechanism = MECHANISMS["binary"]
    fits = tuning.queries_that_fit(mechanism, votes, EPSILON, DELTA)
    run = {"mechanism": mechanism, "epsilon": EPSILON, "delta": DELTA, "seed": 1}
    assert pv.label(votes, guarantee="worst-case", **run).answered == fits["worst_case"]
    n = fits["exact_per_query"]
    for queries, fit in ((n, True), (n + 1, False)):
        released = pv.label(votes, guarantee="data-dependent", queries=queries, **run)
        assert (released.sealed.epsilon <= EPSILON) is fit


def test_a_budget_that_buys_nothing_answers_nothing() -> None:
    silent = np.zeros((5, 4, 2), bool)
    fits = tuning.queries_that_fit(pv.BinaryVoting(sigma=0.1), silent, 0.01, DELTA)
    assert (fits["worst_case"], fits["allowance"]) == (0, 0)


def test_missing_votes_are_counted_as_the_mechanism_counts_them(
    votes: npt.NDArray[np.bool_],
) -> None:
    gaps = votes.astype(np.int8)
    gaps[::3, 2] = -1
    mechanism, orders = MECHANISMS["binary"], pv.DEFAULT_ORDERS
    got = tuning.queries_that_fit(mechanism, gaps, EPSILON, DELTA)
    each = pv.epsilon(np.cumsum(mechanism.rdp(gaps, orders), axis=0), orders, DELTA)
    assert got["exact_per_query"] == int((np.asarray(each) <= EPSILON).sum())
    assert (
        got["allowance"] >= tuning.queries_that_fit(mechanism, votes, EPSILON, DELTA)["allowance"]
    )


def test_bills_by_voter_are_for_binary_unless_told() -> None:
    assert default_guarantees(MECHANISMS["gated"]) == tuning.GUARANTEES
    assert "exact_by_voter" not in default_guarantees(MECHANISMS["tau"])


# Table of docs/accounting.md and of the README: delta 1e-5, epsilon 20.
@pytest.mark.parametrize(
    ("sigma", "expected"),
    [(7.0, (18, 123, 462, 514)), (12.0, (55, 366, 526, 543)), (20.0, (153, 988, 384, 386))],
)
def test_counts_on_real_votes(
    tmc_votes: npt.NDArray[np.bool_], sigma: float, expected: tuple[int, ...]
) -> None:
    fits = tuning.queries_that_fit(pv.BinaryVoting(sigma=sigma), tmc_votes, 20.0, 1e-5)
    assert tuple(fits.values()) == expected


# -- how good the labels are ----------------------------------------------------------------------


@given(data=st.data(), queries=st.integers(1, 8), labels=st.integers(1, 3))
def test_figures_are_those_of_the_metrics_room(data: Any, queries: int, labels: int) -> None:
    def table() -> npt.NDArray[np.int8]:
        cells = st.lists(st.sampled_from((-1, 0, 1)), min_size=labels, max_size=labels)
        return np.array(data.draw(st.lists(cells, min_size=queries, max_size=queries)), np.int8)

    truth, answers = table(), table()
    expected = pv.metrics.multilabel(truth, answers, answers)
    for name, value in figures_of(answers, truth).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, err_msg=name)


def enumerated(chances: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]) -> dict[str, float]:
    """Return each figure's mean over every outcome there is, weighted by its probability."""
    flat = chances.reshape(-1, 3)
    sums, weights = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0)
    for outcome in itertools.product((0, 1, 2), repeat=len(flat)):
        chance = math.prod(flat[i, o] for i, o in enumerate(outcome))
        if chance == 0:
            continue
        answers = np.array([-1 if o == 2 else o for o in outcome], np.int8).reshape(truth.shape)
        for name, value in figures_of(answers, truth).items():
            if not math.isnan(value):
                sums[name] += chance * value
                weights[name] += chance
    return {name: sums[name] / weights[name] for name in NAMES}


@pytest.mark.parametrize("gate", [None, pv.Gate(threshold=4, sigma=1)])
def test_expected_figures_equal_enumeration(gate: pv.Gate | None) -> None:
    rng = np.random.default_rng(8)
    votes, truth = rng.random((3, 5, 2)) < 0.4, np.array([[1, 0], [0, 1], [1, 1]], np.int8)
    chances = tuning.label_chances(pv.BinaryVoting(sigma=2.0, gate=gate), votes)
    np.testing.assert_allclose(chances.sum(axis=-1), 1)
    (got,) = tuning.expected_figures(chances, truth, [3], releases=4000)
    expected = enumerated(chances, truth)
    for name in NAMES:
        exact = gate is None and name in ("ACC", "BAC", "AUC")
        # 4,000 draws of something between 0 and 1: eight thousandths are one standard error.
        assert got[name] == pytest.approx(expected[name], abs=1e-12 if exact else 0.03), name
    assert got["coverage"] == pytest.approx(1 - chances[..., 2].mean(), abs=1e-12)


def test_figures_of_the_first_queries_are_about_those_only(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    chances = tuning.label_chances(MECHANISMS["binary"], votes)
    nothing, some = tuning.expected_figures(chances, truth, [0, 20])
    assert all(math.isnan(value) for value in nothing.values())
    (alone,) = tuning.expected_figures(chances[:20], truth[:20], [20])
    assert some["BAC"] == pytest.approx(alone["BAC"], abs=1e-12)
    assert some["MAP"] == pytest.approx(alone["MAP"], abs=0.05)


def test_figures_are_those_of_real_runs(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    found = tuning.tune_sigma(
        votes, truth, epsilon=EPSILON, delta=DELTA, sigmas=[5.0], guarantees=["worst_case"]
    ).trials[0]
    run = {"mechanism": MECHANISMS["binary"], "epsilon": EPSILON, "delta": DELTA}
    n = found.fits["worst_case"]
    seen = [
        pv.metrics.multilabel(truth[:n], labels, labels)
        for seed in range(30)
        for labels in [pv.label(votes, guarantee="worst-case", seed=seed, **run).labels]
    ]
    for name in ("ACC", "BAC", "MAP"):
        values = [figures[name] for figures in seen]
        error = np.std(values) / math.sqrt(len(values))
        slack = 4 * error + (0 if name != "MAP" else 4 * np.std(values) / math.sqrt(20))
        assert found.utility["worst_case"][name] == pytest.approx(np.mean(values), abs=slack)


@pytest.mark.parametrize("name", ["powerset", "powerset, few", "tau l1", "gated"])
def test_chances_are_how_often_each_outcome_is_drawn(name: str) -> None:
    rng = np.random.default_rng(2)
    votes = (rng.random((3, 15, 4)) < 0.25) & (np.arange(4) < 3)  # one label that nobody wants
    mechanism = MECHANISMS[name]
    drawn = mechanism.release(np.tile(votes, (4000, 1, 1)), seed=5).reshape(4000, 3, 4)
    seen = np.stack([(drawn == outcome).mean(axis=0) for outcome in (0, 1, -1)], axis=-1)
    np.testing.assert_allclose(tuning.label_chances(mechanism, votes), seen, atol=0.04)


@pytest.mark.parametrize("gate", [None, GATE])
def test_chances_of_plurality_are_its_winners(gate: pv.Gate | None) -> None:
    votes = np.eye(4, dtype=bool)[np.array([[0] * 9 + [1] * 6, [3] * 15])]
    mechanism = pv.PluralityVoting(sigma=4.0, gate=gate)
    table, chances = mechanism.outcome_probabilities(votes), tuning.label_chances(mechanism, votes)
    np.testing.assert_allclose(chances[..., 1], table[:, :4], rtol=1e-12)
    np.testing.assert_allclose(chances.sum(axis=-1), 1, rtol=1e-12)
    abstain = 0.0 if gate is None else table[:, 4:]
    np.testing.assert_allclose(chances[..., 2], np.broadcast_to(abstain, (2, 4)), rtol=1e-12)


# -- what is tried --------------------------------------------------------------------------------


def test_sigma_answers_more_and_worse(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    calls: list[tuple[int, int]] = []
    found = tuning.tune_sigma(
        votes,
        truth,
        epsilon=EPSILON,
        delta=DELTA,
        sigmas=[3, 6, 12, 24],
        progress=lambda done, total: calls.append((done, total)),
    )
    assert [t.values["sigma"] for t in found.trials] == [3, 6, 12, 24]
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4)]
    worst = [t.fits["worst_case"] for t in found.trials]
    merit = [t.utility["all"]["BAC"] for t in found.trials]
    assert worst == sorted(worst)
    assert worst[0] < worst[-1]
    assert merit == sorted(merit, reverse=True)
    assert found.reference == "truth"
    assert found.noise_free == pytest.approx(figures_of(majority(votes), truth), nan_ok=True)


def test_without_truth_the_majority_is_the_reference(votes: npt.NDArray[np.bool_]) -> None:
    found = tuning.tune_sigma(votes, epsilon=EPSILON, delta=DELTA, sigmas=[0.01])
    assert found.reference == "noise-free majority"
    assert found.noise_free["ACC"] == 1
    assert found.trials[0].utility["all"]["BAC"] == pytest.approx(1)


def test_whatever_is_found_says_that_it_is_not_private(votes: npt.NDArray[np.bool_]) -> None:
    found = tuning.tune_sigma(votes, epsilon=EPSILON, delta=DELTA, sigmas=[5.0, 9.0])
    facts = found.facts()
    assert next(iter(facts)) == "note"
    assert "voids the guarantee" in facts["note"]
    assert facts["private"] is False
    assert facts["trials"][1]["sigma"] == 9.0
    assert facts["trials"][1]["labels_answered"]["worst_case"] == (
        3 * facts["trials"][1]["fits"]["worst_case"]
    )


def test_the_default_grid_of_sigma_grows_with_the_voters(votes: npt.NDArray[np.bool_]) -> None:
    found = tuning.tune_sigma(votes, epsilon=EPSILON, delta=DELTA, guarantees=["worst_case"])
    sigmas = [t.values["sigma"] for t in found.trials]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < 15 / 20 < 15 < sigmas[-1]


def test_tau_says_what_clipping_keeps_and_costs(votes: npt.NDArray[np.bool_]) -> None:
    budget = {"epsilon": EPSILON, "delta": DELTA, "guarantees": ["exact_per_query"]}
    found = tuning.tune_tau(votes, sigma=5.0, taus=[1.0, 1.4, 3.0], **budget)
    assert [(t.values["norm"], t.values["tau"]) for t in found.trials] == [
        (norm, tau) for norm in (2, 1) for tau in (1.0, 1.4, 3.0)
    ]
    ballots = votes.reshape(-1, 3).astype(float)
    for trial in found.trials:
        norm, tau = trial.values["norm"], trial.values["tau"]
        length = np.linalg.norm(ballots, ord=norm, axis=1)
        clipped = ballots * np.minimum(1, tau / np.maximum(length, 1e-9))[:, None]
        assert trial.details["kept"] == pytest.approx(clipped.sum() / ballots.sum())
        assert trial.details["clipped"] == pytest.approx((length > tau).mean())
    # Without clipping a ballot may change all three labels, and figures are Binary's.
    assert found.trials[2].details["cost"] == pytest.approx(3)
    binary = tuning.tune_sigma(votes, sigmas=[5.0], **budget).trials[0]
    assert found.trials[2].utility["all"]["BAC"] == pytest.approx(binary.utility["all"]["BAC"])
    assert found.trials[2].fits["exact_per_query"] == binary.fits["exact_per_query"]


def test_cost_of_tau_with_twenty_labels() -> None:
    # ACCOUNTING, "wrong in print": l2 with 1.8 gives 6.48, l1 with 3.4 gives 6 (3 ones, all whole).
    votes = np.zeros((1, 50, 20), bool)
    votes[:, :, 0] = True
    for norm, tau, cost in ((2, 1.8, 6.48), (1, 3.4, 6.0)):
        found = tuning.tune_tau(
            votes,
            sigma=9.0,
            epsilon=20,
            delta=1e-5,
            taus=[tau],
            norms=[norm],
            guarantees=["exact_per_query"],
        )
        assert found.trials[0].details["cost"] == pytest.approx(cost)


def test_the_default_grid_of_tau_ends_without_clipping(votes: npt.NDArray[np.bool_]) -> None:
    found = tuning.tune_tau(
        votes, sigma=5.0, epsilon=EPSILON, delta=DELTA, guarantees=["allowance"]
    )
    for norm in (2, 1):
        kept = [t.details["kept"] for t in found.trials if t.values["norm"] == norm]
        assert kept == sorted(kept)
        assert kept[0] < kept[-1] == 1


def test_gate_begins_without_one_and_says_what_it_lets_through(
    votes: npt.NDArray[np.bool_], truth: npt.NDArray[np.int8]
) -> None:
    mechanism = MECHANISMS["binary"]
    found = tuning.tune_gate(
        votes,
        truth,
        mechanism=mechanism,
        epsilon=EPSILON,
        delta=DELTA,
        thresholds=[9, 12, 15],
        sigmas=[2.0, 4.0],
    )
    plain = tuning.tune_sigma(votes, truth, epsilon=EPSILON, delta=DELTA, sigmas=[5.0]).trials[0]
    first, *gated = found.trials
    assert first.values == {"gate_threshold": None, "gate_sigma": None}
    np.testing.assert_equal((first.fits, first.utility), (plain.fits, plain.utility))
    pairs = [(t.values["gate_sigma"], t.values["gate_threshold"]) for t in gated]
    assert pairs == list(itertools.product([2.0, 4.0], [9, 12, 15]))
    for trial in gated:
        gate = pv.Gate(threshold=trial.values["gate_threshold"], sigma=trial.values["gate_sigma"])
        count = votes.sum(axis=1)
        passed = np.exp(gate.log_probs(np.maximum(count, 15 - count))[..., 1])
        assert trial.utility["all"]["coverage"] == pytest.approx(passed.mean())
        n = trial.fits["allowance"]
        assert trial.answered("allowance", 3) == pytest.approx(passed[:n].sum())


def test_choose_takes_the_most_answers_that_are_still_good() -> None:
    def trial(sigma: float, queries: int, merit: float, coverage: float = 1.0) -> tuning.Trial:
        figures = {"BAC": merit, "coverage": coverage}
        return tuning.Trial(
            values={"sigma": sigma},
            fits={"allowance": queries},
            utility={"allowance": figures, "all": figures},
        )

    def tuned(*trials: tuning.Trial) -> tuning.Tuning:
        return tuning.Tuning(
            parameter="sigma", trials=trials, reference="truth", noise_free={}, queries=99,
            voters=9, labels=4, epsilon=1.0, delta=DELTA,
        )  # fmt: skip

    found = tuned(trial(1, 5, 0.9), trial(2, 20, 0.89), trial(3, 40, 0.8), trial(4, 30, 0.9, 0.5))
    for drop, sigma in ((0.0, 4), (0.02, 2), (0.2, 3)):
        chosen = found.choose(drop=drop)
        assert chosen is not None
        assert chosen.values["sigma"] == sigma
    assert tuned(trial(1, 0, 0.9)).choose() is None
    assert tuned(trial(1, 5, math.nan)).choose() is None
    with pytest.raises(InputError, match="guarantee must be one of allowance, got 'worst_case'"):
        found.choose(guarantee="worst_case")
    with pytest.raises(InputError, match="metric must be one of"):
        found.choose(metric="accuracy")
    with pytest.raises(InputError, match="drop must lie in"):
        found.choose(drop=-1)


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
    mechanism = MECHANISMS["binary"]
    share = np.array([0.3, 0.3, 0.25])
    found = tuning.tune_threshold(
        scores,
        truth,
        mechanism=mechanism,
        epsilon=EPSILON,
        delta=DELTA,
        thresholds=[0.15, 0.4, 0.8],
        prevalence=share,
    )
    rules = [t.values["rule"] for t in found.trials]
    assert rules == ["common"] * 3 + ["per label", "prevalence"]
    for trial, threshold in zip(found.trials, (0.15, 0.4, 0.8), strict=False):
        alone = tuning.tune_sigma(
            scores >= threshold, truth, epsilon=EPSILON, delta=DELTA, sigmas=[5.0]
        )
        assert trial.fits == alone.trials[0].fits
        np.testing.assert_equal(trial.utility, alone.trials[0].utility)  # NaN equals NaN here
        np.testing.assert_equal(trial.details["noise_free"], alone.noise_free)
        assert trial.details["yes_per_ballot"] == pytest.approx((scores >= threshold).sum() / 900)
    per_label = found.trials[3]
    assert per_label.details["thresholds"] == [0.4, 0.4, 0.15]
    merit = [t.details["noise_free"]["BAC"] for t in found.trials]
    assert merit[3] == max(merit)
    assert found.noise_free["BAC"] == max(merit[:3])
    assert found.trials[4].details["yes_per_ballot"] == pytest.approx((18 + 18 + 15) / 60)


@pytest.mark.parametrize(("best_by", "figure"), [("BAC", "BAC"), ("F1", "F1")])
def test_each_label_has_its_own_best_threshold(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.int8], best_by: str, figure: str
) -> None:
    grid = np.round(np.arange(0.05, 1, 0.05), 2).tolist()
    table = []
    for threshold in grid:
        answers = majority(scores >= threshold)
        table.append(pv.metrics.multilabel(truth, answers, answers)["per_label"][figure])
    expected = np.array(grid)[np.array(table).argmax(axis=0)]
    np.testing.assert_array_equal(best_per_label(scores, truth, grid, best_by), expected)


def test_a_label_with_one_class_takes_what_is_best_on_average(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]
) -> None:
    known = truth.copy()
    known[:, 2] = 0
    best = best_per_label(scores, known, [0.1, 0.4, 0.9])
    np.testing.assert_array_equal(best, [0.4, 0.4, 0.4])
    with pytest.raises(InputError, match="both classes"):
        best_per_label(scores, np.zeros_like(truth), [0.1, 0.4])


def bad(votes: Any, truth: Any = None, **changes: Any) -> Any:
    given = {"epsilon": EPSILON, "delta": DELTA, "sigmas": [5.0], **changes}
    return tuning.tune_sigma(votes, truth, **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigmas": []}, "sigmas must hold at least one value"),
        ({"sigmas": [5.0, 5.0]}, "sigmas must not hold a value twice"),
        ({"sigmas": [5.0, -1]}, "sigmas must be finite and positive, got -1"),
        ({"epsilon": 0}, "epsilon must be finite and positive, got 0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"guarantees": ["pate2018"]}, "guarantees must be among .* got 'pate2018'"),
        ({"releases": 0}, "releases must be an integer of at least 1, got 0"),
        ({"truth": np.zeros((3, 3))}, r"truth must have the shape .*\(60, 3\).* got \(3, 3\)"),
        ({"truth": np.full((60, 3), 2)}, "truth must hold 1, 0 and -1"),
    ],
)
def test_bad_arguments(votes: npt.NDArray[np.bool_], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bad(votes, **changes)


def test_sparse_ballots_and_gates_twice_are_refused(votes: npt.NDArray[np.bool_]) -> None:
    sparse = pv.SparseBallots([0], [0], np.ones((1, 2), bool), queries=2, voters=3)
    with pytest.raises(InputError, match="dense cube"):
        bad(sparse)
    with pytest.raises(InputError, match="mechanism must have no gate yet"):
        tuning.tune_gate(votes, mechanism=MECHANISMS["gated"], epsilon=EPSILON, delta=DELTA)
    with pytest.raises(InputError, match="norms must be 2, 1 or both"):
        tuning.tune_tau(votes, sigma=5.0, epsilon=EPSILON, delta=DELTA, norms=[])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"best_by": "AUC"}, "best_by must be one of BAC, F1, got 'AUC'"),
        ({"thresholds": [0.5, 1.5]}, r"threshold must lie in \[0, 1\]"),
        ({"prevalence": [0.1, 0.2]}, r"prevalence must hold one share per label \(3\)"),
        ({"prevalence": [0.1, 0.2, 1.2]}, r"prevalence must lie in \[0, 1\]"),
        ({"probabilities": np.full((60, 15, 3), 1.5)}, "a probability must lie in"),
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
        tuning.tune_threshold(
            given.pop("probabilities"),
            truth,
            mechanism=MECHANISMS["binary"],
            epsilon=EPSILON,
            delta=DELTA,
            **given,
        )
