"""What is said about labels and models: one list of facts, the same everywhere, nothing sealed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.release import OWNER_ONLY, SANITIZED, UNCONDITIONAL, mark
from privote.report.page import Figure, TableBlock
from privote.report.results import TrainingStatement, labels_blocks, write_label_page

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "guarantee": "allowance", "seed": 0}
WANTED = np.random.default_rng(0).random((120, 12)) < 0.15
VOTES = np.repeat(WANTED[:, None, :], 60, axis=1)


def released(sigma: float, **more: Any) -> pv.Release:
    return pv.label(VOTES, mechanism=pv.BinaryVoting(sigma=sigma), **BUDGET, **more)


def said(release: pv.Release) -> dict[str, str]:
    return {row.key: row.text for row in release.rows()}


@pytest.mark.parametrize("release", [pv.label(VOTES, **BUDGET), released(12.0)])
def test_every_rendering_has_the_same_rows(release: pv.Release, tmp_path: Path) -> None:
    summary, statement = release.summary(), release.statement().lower()
    page = write_label_page(tmp_path / "a.html", release).read_text().replace("\xa0", " ")
    assert len({row.name for row in release.rows()}) == len(release.rows())
    for row in release.rows():
        assert f"{row.name.lower()}: {row.text.removesuffix('.').lower()}." in statement
        if row.key not in ("simulated", "warnings"):  # which stand on top
            assert f">{row.name.replace(chr(39), '&#x27;')}</th>" in page
        assert (f"{row.name} " in summary) is row.brief
    assert release.headline in page
    assert summary.startswith(release.headline)
    assert page.count("Simulated: ") == 1
    saved = pv.Release.of_facts(release.labels, release.facts(), tallies=release.tallies)
    assert saved.statement() == release.statement()  # from facts alone


def test_by_label_how_many_ones_and_how_sure() -> None:
    release = pv.label(VOTES, **BUDGET)
    figure, table = labels_blocks(release)
    assert isinstance(table, TableBlock)
    assert [row["ones"] for row in table.rows] == (release.labels == 1).sum(axis=0).tolist()
    assert all(row["expected right"].endswith(" %") for row in table.rows)
    assert isinstance(figure, Figure)
    assert release.probabilities is not None
    tenths = np.minimum((10 * release.probabilities).astype(int), 9)
    ones = np.bincount(tenths[release.labels == 1], minlength=10)
    assert f"decided 1: {', '.join(f'{count:,}' for count in ones)};" in figure.svg
    chances, ones = release.probabilities, release.labels == 1
    for place, row in enumerate(table.rows):
        missed, expected = map(int, row["ones missed"].split(" of "))
        assert expected == round(chances[:, place].sum())
        assert missed == round(chances[~ones[:, place], place].sum())
    none = replace(release, chances=0 * chances, labels=0 * release.labels)
    *_, table = labels_blocks(none)
    assert {row["ones missed"] for row in table.rows} == {None}  # not all of nothing
    (table,) = labels_blocks(released(12.0))  # bits have no probabilities
    assert isinstance(table, TableBlock)
    assert "expected right" not in table.rows[0]
    few = pv.label(VOTES[:5, :8], **BUDGET)
    assert "cannot be estimated" in few.headline


def test_marks_follow_the_guarantee() -> None:
    assert {mark(g) for g in ("allowance", "worst-case")} == {UNCONDITIONAL}
    assert mark("data-dependent") == OWNER_ONLY
    assert mark("data-dependent", sanitized=True) == SANITIZED
    with refused("guarantee", value="trust me"):
        mark("trust me")


# -- trainings -------------------------------------------------------------------------------------


def trained(persons: bool = True, **changes: Any) -> TrainingStatement:
    facts = {"epsilon": 2.0, "delta": 1e-6, "simulated": False, "guarantee": "noisy moments"}
    facts |= {"records": 1234, "steps": 1, "sample_rate": 1.0, "noise_multiplier": 3.0}
    facts |= {"protects": "a record", "new": True, "dataset": "ward"}
    promise = SimpleNamespace(
        facts=lambda: {**facts, **changes},
        statement=lambda: "PRIVACY STATEMENT\n\nMechanism: binary.",
    )
    numbers = SimpleNamespace(records=1234)
    fitted = SimpleNamespace(method_="moments", reasons_=("Many labels.",), numbers_=numbers)
    fitted.encoder_ = object()
    outcome: Any = SimpleNamespace(promise=promise, release=None, fitted=fitted, persons=persons)
    outcome.label_names, outcome.feature_names = ("flu", "cold"), ("age", "notes")
    outcome.job = SimpleNamespace(method="auto")
    return TrainingStatement(outcome=outcome, digest="d1g3st")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["each of 1,234 persons", "at most a factor of e^2 (that is 7.39)", "d1g3st",
              "predicts flu, cold from the columns age, notes", "was chosen. Many labels.",
              "void the guarantee"]),
        ({"epsilon": 1000.0}, ["at most a factor of e^1000, plus 1e-06."]),  # no number holds it
        ({"persons": False}, ["each of 1,234 records", "A person with several records is"]),
    ],
)  # fmt: skip
def test_a_training_says_whom_what_which_and_what_would_void_it(changes, words) -> None:
    text = trained(**changes).statement()
    for some in words:
        assert some in text
    assert text.count("PRIVACY STATEMENT") == 1
    assert text.endswith("Mechanism: binary.")
    facts = trained(**changes).facts()
    assert facts["model"] == {"file": "student.student", "sha256": "d1g3st"}
    assert facts["records"] == 1234
    # Odds of 1 to 99 grow by e^epsilon at most, and the share is rounded up.
    (example,) = [row.text for row in trained(**changes).rows() if row.key == "meaning"]
    stated = float(example.split("rise above ")[1].split(" %")[0])
    times = math.exp(min(changes.get("epsilon", 2.0), 700))
    assert 100 * times / (times + 99) <= stated < 101 * times / (times + 99)
    technical = {fact.key: fact.text for fact in trained(**changes).technical()}
    assert technical["noise_multiplier"] == "3"
    assert ("assumed" in technical) is (not changes.get("persons", True))


@pytest.mark.parametrize(
    "facts", [{"simulated": True}, {"epsilon": None}, {"guarantee": "data-dependent"}]
)
def test_where_nothing_is_promised_it_says_so(facts: dict[str, Any]) -> None:
    (promise,) = [row.text for row in trained(**facts).rows() if row.key == "epsilon"]
    assert promise.startswith(("none", "not differential privacy"))
    assert "at most a factor" not in trained(**facts).statement()
