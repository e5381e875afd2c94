"""When to stop: decided on public numbers and released labels, and in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import privote as pv
from privote.ledger.totals import Earlier
from privote.planning import Pace

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
NARROW = pv.BinaryVoting(sigma=12.0)


def ward(seed: int, queries: int = 300) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return votes of 60 voters who mostly agree on 12 labels, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, 12)) < 0.15
    return rng.random((queries, 60, 12)) < np.where(truth, 0.93, 0.002)[:, None, :], truth


def recall(release: pv.Release, truth: npt.NDArray[np.bool_]) -> float:
    return float((release.labels == 1)[truth[: release.answered]].mean())


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_it_stops_where_voters_run_out_and_says_so(seed: int) -> None:
    votes, truth = ward(seed)
    every = {"mechanism": NARROW, "guarantee": "allowance", "seed": seed}
    with pytest.warns(pv.PrivoteWarning, match=rf"It stopped after \d+ of {len(votes)} queries"):
        release = pv.label(votes, **BUDGET, **every)
    assert release.asked == 300
    assert 60 <= release.answered < 120
    assert recall(release, truth) >= 0.9
    assert f"{release.answered} of 300" in release.summary()
    with pytest.warns(pv.PrivoteWarning, match="voters run out"):
        through = pv.label(votes, **BUDGET, **every)
    assert through.answered == 300
    assert recall(through, truth) < 0.5  # so there was something to stop for


def test_the_number_answered_follows_from_what_was_released() -> None:
    """Replayed with released labels alone, the rule makes the same batches and the same end."""
    for seed in range(4):
        votes, _ = ward(seed)
        ledger = pv.Ledger.in_memory()
        release = pv.label(
            votes, **BUDGET, mechanism=NARROW, guarantee="allowance", ledger=ledger, seed=seed
        )
        entries = ledger.published()
        sizes = [e["queries"] for e in entries if e["kind"] == "answer"]
        pace = Pace(mechanism=NARROW, labels=12)
        assert isinstance(release.allowance, int)
        pace.start(60, release.allowance, Earlier())
        replayed, done = [], 0
        guess = np.zeros(release.labels.shape, bool)
        while more := pace.more(release.labels[:done], guess[:done]):
            replayed.append(more)
            done += more
        assert replayed == sizes
        assert done == release.answered


def test_nothing_that_only_votes_know_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes that differ, but are released as the same labels, are answered the same way."""

    def fixed(_: pv.Mechanism, tally: Any, entropy: object) -> npt.NDArray[np.int8]:
        drawn = np.random.default_rng(tally.margins.shape[0]).random(tally.margins.shape)
        return (drawn < 0.2).astype(np.int8)

    monkeypatch.setattr(pv.BinaryVoting, "draw", fixed)
    quiet, loud = np.zeros((200, 60, 12), bool), np.ones((200, 60, 12), bool)
    for setting in ({}, {"mechanism": NARROW, "guarantee": "allowance"}):
        facts = [pv.label(votes, **BUDGET, **setting).facts() for votes in (quiet, loud)]
        for each in facts:
            del each["made"]
        assert json.dumps(facts[0]) == json.dumps(facts[1])


def test_later_runs_with_a_ledger_are_never_silently_bad(tmp_path: Path) -> None:
    votes, truth = ward(0)
    setting = {"mechanism": NARROW, "ledger": tmp_path / "l.db", "seed": 0}
    first = pv.label(votes[:40], **BUDGET, **setting)
    assert first.answered == 40
    second = pv.label(votes[40:], **BUDGET, **setting)
    assert second.so_far == 40 + second.answered < 120
    labels = np.concatenate([first.labels, second.labels])
    assert (labels == 1)[truth[: len(labels)]].mean() >= 0.85
    for _ in range(2):
        with pytest.raises(pv.BudgetError, match=r"queries were answered from it in earlier runs"):
            pv.label(votes[150:], **BUDGET, **setting)
    with pytest.warns(pv.PrivoteWarning, match="Earlier runs have used up this allowance"):
        last = pv.label(votes[:5], **BUDGET, **setting)
    assert last.answered == 5
    assert last.forecast.lasts is None  # nothing is told about a long life by labels of nobody


def test_counts_of_what_was_released_are_not_in_the_published_view(tmp_path: Path) -> None:
    votes, _ = ward(0)
    pv.label(votes, **BUDGET, mechanism=NARROW, ledger=tmp_path / "l.db")
    ledger = pv.Ledger.open(tmp_path / "l.db")
    assert ledger.published()[-1]["kind"] == "outcome"
    assert "departed" not in json.dumps(ledger.published())
    assert ledger.verify().ok


def test_a_first_batch_is_one_on_which_nobody_can_run_out() -> None:
    pace = Pace(mechanism=NARROW, labels=12)
    pace.start(60, 138, Earlier())
    none = np.zeros((0, 12), np.int8)
    assert pace.more(none, none.astype(bool)) == 138 // 12
    known = Pace(mechanism=NARROW, labels=12, yes=0.02)
    known.start(60, 138, Earlier())
    assert known.more(none, none.astype(bool)) > 2 * (138 // 12)


def test_noise_that_hides_everything_is_paced_by_the_stated_share() -> None:
    flat = pv.BinaryVoting(sigma=1000.0)
    pace = Pace(mechanism=flat, labels=12, yes=0.1)
    pace.start(60, 100, Earlier())
    done = 0
    while more := pace.more(np.zeros((done, 12), np.int8), np.zeros((done, 12), bool)):
        done += more
    assert done == pv.planning.forecast(flat, 60, 12, allowance=100, yes=0.1).lasts


def test_a_round_uses_its_part_of_what_earlier_ones_left() -> None:
    def first(earlier: Earlier, **given: Any) -> tuple[int, int]:
        pace, done = Pace(mechanism=NARROW, labels=12, anew=True, **given), 0
        pace.start(60, 1200, earlier)
        labels = np.zeros((2000, 12), np.int8)
        labels[:, :2] = 1
        while more := pace.more(labels[:done], np.zeros((done, 12), bool)):
            done += more
        return pace._allowance, done

    whole, all_of_it = first(Earlier())
    half, part = first(Earlier(), rounds=2)
    assert (whole, half) == (1200, 600)
    assert 100 < part < all_of_it / 2
    # Two departures a query were released before: more than twice as many surprises are gone.
    rest, fewer = first(Earlier(queries=200, told=200, departed=400))
    assert 1200 - 1.56 * 600 < rest < 1200 - 400
    assert fewer < all_of_it - 200
    assert first(Earlier(queries=900, told=900, departed=1800)) == (pytest.approx(-2000, rel=1), 0)
