"""pv.label: what each guarantee answers, charges, publishes and keeps sealed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.release import rows_of

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
MECHANISMS = [
    pv.BinaryVoting(sigma=4.0),
    pv.BinaryVoting(sigma=4.0, gate=pv.Gate(threshold=12, sigma=2.0)),
    pv.TauVoting(sigma=4.0, tau=1.5),
    pv.PowersetVoting(sigma=4.0),
]


@pytest.fixture
def votes() -> np.ndarray:
    rng = np.random.default_rng(0)
    common = rng.random((30, 1, 4)) < 0.2
    return common ^ (rng.random((30, 20, 4)) < 0.1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_allowance_answers_everything_within_the_budget(
    mechanism: pv.Mechanism, votes: np.ndarray
) -> None:
    release = pv.label(votes, mechanism=mechanism, epsilon=20.0, delta=1e-5, guarantee="allowance")
    assert release.answered == 30
    assert release.labels.dtype == np.int8
    assert release.epsilon is not None
    assert release.epsilon <= 20.0
    # V is the largest: one more would not fit.
    contribution = mechanism.contribution_rdp(20, 4)
    allowance = release.guarantee.allowance
    assert isinstance(allowance, int)
    assert pv.epsilon(2 * allowance * contribution, None, 1e-5) <= 20.0
    assert pv.epsilon(2 * (allowance + 1) * contribution, None, 1e-5) > 20.0


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_worst_case_stops_before_the_budget(mechanism: pv.Mechanism, votes: np.ndarray) -> None:
    release = pv.label(votes, mechanism=mechanism, epsilon=12.0, delta=1e-5, guarantee="worst-case")
    each = mechanism.worst_case_rdp(20, 4)
    assert release.epsilon == pytest.approx(pv.epsilon(release.answered * each, None, 1e-5))
    assert release.epsilon <= 12.0
    if release.answered < 30:
        assert pv.epsilon((release.answered + 1) * each, None, 1e-5) > 12.0


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_data_dependent_epsilon_is_sealed_everywhere(
    mechanism: pv.Mechanism, votes: np.ndarray, tmp_path: Path
) -> None:
    release = pv.label(votes, mechanism=mechanism, **BUDGET, guarantee="data-dependent", queries=25)
    assert release.answered == 25
    sealed = release.sealed.epsilon
    if isinstance(mechanism, pv.BinaryVoting):  # sanitized: another number, with its terms
        assert release.epsilon is not None
        assert abs(release.epsilon - sealed) > 1e-3
        assert release.guarantee.terms.gamma == 0.05
        # What PATE 2018 would charge is no bound: on the statement, marked, and not on the bill.
        assert {row.name: row.brief for row in rows_of(release)}["for comparison only"] is False
    else:
        assert release.epsilon is None
        assert "sealed" in release.summary()
    assert sealed == pytest.approx(pv.epsilon(mechanism.total_rdp(votes[:25]), None, 1e-5))
    release.save(tmp_path / "r.npz")
    shown = "\n".join(
        [
            repr(release),
            str(release),
            repr(release.sealed),
            str(release.sealed),
            release.summary(),
            release.statement(),
            str(release.facts()),
            repr(pv.Release.load(tmp_path / "r.npz").__dict__),
        ]
    )
    for digits in range(3, 8):
        assert f"{sealed:.{digits}g}" not in shown
    # Each voter's own bill is at most the additive one, and the largest of them the exact cost.
    assert release.sealed.bills().max() <= sealed * (1 + 1e-9)


def test_prefix_only(votes: np.ndarray) -> None:
    mechanism = pv.BinaryVoting(sigma=4.0)
    few = pv.label(votes, mechanism=mechanism, **BUDGET, queries=7, seed=3)
    same = pv.label(votes[:7], mechanism=mechanism, **BUDGET, seed=3)
    np.testing.assert_array_equal(few.labels, same.labels)


def test_seed_marks_the_release_as_simulated(votes: np.ndarray) -> None:
    mechanism = pv.BinaryVoting(sigma=4.0)
    for seed in (5, None):
        release = pv.label(votes, mechanism=mechanism, **BUDGET, seed=seed)
        assert release.guarantee.simulated is (seed is not None)
        for text in (release.summary(), release.statement(), repr(release)):
            assert ("SIMULATED" in text) is release.guarantee.simulated


def test_published_numbers_do_not_depend_on_the_votes(votes: np.ndarray) -> None:
    for guarantee in ("allowance", "worst-case"):
        facts = [
            pv.label(
                cube, mechanism=pv.BinaryVoting(sigma=4.0), **BUDGET, guarantee=guarantee
            ).facts()
            for cube in (votes, ~votes)
        ]
        for fact in facts:  # of released labels, and the time
            for name in ("abstained", "sha256", "digest", "reasons"):
                del fact[name]
            for name in ("drawn", "made_at", "text"):
                del fact["guarantee"][name]
        assert facts[0] == facts[1]


def test_a_statement_says_what_and_when(votes: np.ndarray, tmp_path: Path) -> None:
    setting: dict[str, Any] = {
        "mechanism": pv.BinaryVoting(sigma=4.0),
        **BUDGET,
        "ledger": tmp_path / "a.ledger",
        "dataset": "ward 7",
        "guarantee": "allowance",
    }
    first, second = (pv.label(votes, **setting) for _ in range(2))
    answered = (first.guarantee.answered_total, second.guarantee.answered_total)
    assert answered == (len(votes), 2 * len(votes))
    text = second.statement()
    for word in (
        "'ward 7'",
        second.guarantee.drawn,
        second.guarantee.made_at,
        f"{2 * len(votes)} queries",
    ):
        assert word in text
    assert first.facts()["digest"] != second.facts()["digest"]


@pytest.mark.parametrize(
    ("more", "protects"),
    [
        ({"guarantee": "allowance"}, True),
        ({"guarantee": "worst-case"}, True),
        ({"guarantee": "allowance", "seed": 1}, False),
        ({"guarantee": "data-dependent", "queries": 5}, False),
    ],
)
def test_the_statement_says_what_epsilon_means(more: dict[str, Any], protects: bool) -> None:
    votes = np.random.default_rng(0).random((5, 60, 3)) < 0.2
    said = pv.label(votes, mechanism=pv.BinaryVoting(sigma=40.0), **BUDGET, **more).statement()
    assert ("one voter's ballots, on any or all queries, had been different" in said) is protects
    assert (", plus 1e-05.\n" in said) is protects


def test_sanitized_epsilon_is_mostly_above_the_exact_one(votes: np.ndarray) -> None:
    drawn = [
        pv.label(
            votes,
            mechanism=pv.BinaryVoting(sigma=4.0),
            **BUDGET,
            guarantee="data-dependent",
            queries=25,
            seed=seed,
        )
        for seed in range(60)
    ]
    above = [r.epsilon > r.sealed.epsilon for r in drawn if r.epsilon is not None]
    assert len(above) == 60
    assert np.mean(above) >= 0.95


def test_gated_labels_count_as_answered_and_are_reported_apart(votes: np.ndarray) -> None:
    gate = pv.Gate(threshold=100, sigma=1.0)  # nobody can agree this much
    release = pv.label(
        votes, mechanism=pv.BinaryVoting(sigma=4.0, gate=gate), **BUDGET, guarantee="allowance"
    )
    assert release.answered == 30
    assert (release.labels == pv.ABSTAIN).sum() == 30 * 4


def test_empty_votes_have_no_ones_out_of_nothing() -> None:
    votes = np.zeros((200, 60, 6), bool)
    with pytest.warns(pv.PrivoteWarning, match="no label is a 1"):
        release = pv.label(votes, **BUDGET, seed=0)
    assert not release.labels.any()
    assert release.quality is None


def test_what_is_poor_is_warned_of() -> None:
    votes = pv.datasets.load_teacher_votes("voc2012").votes[:3000]
    with pytest.warns(pv.PrivoteWarning, match="recall .* would help"):
        release = pv.label(votes, **BUDGET, seed=0)
    assert release.quality is not None
    assert release.quality["f1"] < 0.5


def test_what_is_good_is_said_without_a_warning(votes: np.ndarray) -> None:
    many = np.concatenate([np.repeat(votes, 4, axis=1)] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = pv.label(many, **BUDGET, seed=0)
    assert release.quality is not None
    first = release.summary().splitlines()[0]
    precision = f"{release.quality['precision']:.0%}".replace("%", " %")
    assert first.startswith(f"120 queries; expected precision {precision}, recall ")
    assert first.endswith("; epsilon 8, delta 1e-05")
    assert "the allowance was chosen from all votes" in release.statement()


def test_a_named_mechanism_takes_the_worst_case_where_all_queries_fit(
    votes: np.ndarray, tmp_path: Path
) -> None:
    wide, narrow = pv.BinaryVoting(sigma=90.0), pv.BinaryVoting(sigma=4.0)
    assert pv.label(votes, mechanism=wide, **BUDGET).guarantee.kind == "worst-case"
    assert pv.label(votes, mechanism=narrow, **BUDGET).guarantee.kind == "allowance"
    assert pv.label(votes[:1], mechanism=narrow, **BUDGET).guarantee.kind == "worst-case"
    for more in ({"ledger": tmp_path / "l.db"}, {"voter_ids": range(20)}):
        assert pv.label(votes[:1], mechanism=narrow, **BUDGET, **more).guarantee.kind == "allowance"


def test_rows_help_also_where_the_budget_ends_before_the_queries() -> None:
    rng = np.random.default_rng(0)
    votes, rows = rng.random((300, 50, 4)) < 0.2, rng.normal(size=(300, 5))
    budget = {"epsilon": 4.0, "delta": 1e-5, "guarantee": "worst-case", "seed": 0}
    release = pv.label(votes, mechanism=pv.TallyVoting(sigma=30.0), rows=rows, **budget)
    assert 50 < release.answered < 300
    again = pv.decide(release, rows=rows[: release.answered])
    assert np.array_equal(release.labels, again.labels)


def test_the_longest_name_of_a_data_set_leaves_room_for_what_was_drawn(tmp_path: Path) -> None:
    """What does not fit is noticed after the charge, and its length would tell of a draw."""
    votes = np.random.default_rng(0).random((300, 60, 3)) < 0.2
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "ledger": tmp_path / "a.ledger"}
    name = "\U0001f600" + 997 * " " + "b\U0001f600"
    longest = (1000 * "\U0001f600", 999 * "\x01" + "a", 1000 * '"')
    for dataset in (*longest, name, "\U0001f600 b\U0001f600"):
        release = pv.label(votes, dataset=dataset, budget=8.0, **asked)
        assert release.guarantee.standing is not None
