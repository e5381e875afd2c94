"""What a page says of released labels: what is to be expected of them, and nothing sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.report.bill import bill, forecast_section, noise, write_label_page
from privote.report.blocks import Facts, Figure, TableBlock

BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "guarantee": "allowance", "seed": 0}
WANTED = np.random.default_rng(0).random((120, 12)) < 0.15


def released(sigma: float, **more: Any) -> pv.Release:
    votes = np.repeat(WANTED[:, None, :], 60, axis=1)
    return pv.label(votes, mechanism=pv.BinaryVoting(sigma=sigma), **BUDGET, **more)


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_a_forecast_has_figures_and_words() -> None:
    release = released(12.0)
    section = forecast_section(release)
    assert section is not None
    (facts,) = (block for block in section.blocks if isinstance(block, Facts))
    assert release.forecast is not None
    assert facts.values["the allowance lasts for"] == f"{release.forecast.lasts:,} queries"
    said = " ".join(block for block in section.blocks if isinstance(block, str))
    assert "cannot see voters who used up their allowance" in said
    assert f"Warning: The allowance should last for {release.forecast.lasts} of 120" in said


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_warnings_come_first_and_nothing_is_said_where_nothing_is_known() -> None:
    loud = released(60.0, queries=20)
    section = forecast_section(loud)
    assert section is not None
    assert isinstance(section.blocks[0], str)
    assert section.blocks[0].startswith("Warning: There is much noise for so few voters")
    assert forecast_section(replace(loud, forecast=None)) is None


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_the_bill_says_of_which_labels_it_speaks() -> None:
    said = "every count of votes, 60 at most, is moved by about 12"
    assert bill(released(12.0))["noise"] == said
    assert noise({"mechanism": "their own", "sigma": 12.0}, 60) is None
    assert noise({"mechanism": "binary", "link": {"cost": 0.1}}, 60) is None
    assert bill(released(12.0))["missed"] == "0.02 % of the labels that every voter wants"
    assert bill(released(8.0))["missed"] == "below 0.01 % of the labels that every voter wants"
    loud = bill(released(60.0, queries=20))  # yes and no each with noise: Phi(-60 / (60 sqrt 2))
    assert loud["missed"] == "24 % of the labels that every voter wants"
    assert loud["false alarms"] == "24 % of the labels that nobody wants"


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_the_page_of_labels_has_bill_forecast_and_statement(tmp_path: Path) -> None:
    release = released(12.0)
    page = write_label_page(tmp_path / "a.html", release).read_text()
    for words in ("What it costs", "What to expect of the labels", "Privacy statement"):
        assert words.lower() in page.lower()
    assert "SIMULATED" in page
    assert "7.98302" in page  # rounded up
    assert "120 queries; epsilon 7.984, delta 1e-05." in page


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_the_page_of_decided_labels_says_by_label_how_sure_they_are(tmp_path: Path) -> None:
    votes = np.repeat(WANTED[:, None, :], 60, axis=1)
    release = pv.label(votes, **BUDGET)
    section = forecast_section(release)
    assert section is not None
    (labels,) = (block for block in section.blocks if isinstance(block, TableBlock))
    (sure,) = (block for block in section.blocks if isinstance(block, Figure))
    assert [row["ones"] for row in labels.rows] == (release.labels == 1).sum(axis=0).tolist()
    assert all(row["sure"].endswith(" %") for row in labels.rows)
    tenths = np.minimum((10 * release.probabilities).astype(int), 9)
    ones = np.bincount(tenths[release.labels == 1], minlength=10)
    assert f"decided 1: {', '.join(f'{count:,}' for count in ones)};" in sure.svg
    page = write_label_page(tmp_path / "a.html", release).read_text()
    assert "120 queries; expected precision" in page
    assert "the allowance was itself chosen privately" in page
    few = pv.label(votes[:5, :8], **BUDGET)
    assert "cannot be told" in write_label_page(tmp_path / "b.html", few).read_text()


@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_an_allowance_of_less_than_a_query_is_called_that(tmp_path: Path) -> None:
    release = released(60.0, queries=20)
    assert release.forecast is not None
    none = replace(release, forecast=replace(release.forecast, lasts=0, yes=0.9, yes_from="stated"))
    assert bill(none)["allowance lasts for"] == "less than one query"
    page = write_label_page(tmp_path / "a.html", none).read_text()
    said = f"{none.statement()}\n{none.summary()}\n{page}"
    assert "less than one query" in said
    assert " 0 queries" not in said
