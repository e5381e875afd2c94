"""What is said about labels: one list of facts, the same everywhere, nothing sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.release import headline, rows_of
from privote.report.labels import label_bill, labels_blocks, write_label_page
from privote.report.page import TableBlock

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "guarantee": "allowance", "seed": 0}
WANTED = np.random.default_rng(0).random((120, 12)) < 0.15
VOTES = np.repeat(WANTED[:, None, :], 60, axis=1)


def released(sigma: float, **more: Any) -> pv.Release:
    return pv.label(VOTES, mechanism=pv.BinaryVoting(sigma=sigma), **BUDGET, **more)


@pytest.mark.parametrize("release", [pv.label(VOTES, **BUDGET), released(12.0)])
def test_every_rendering_has_the_same_rows(release: pv.Release, tmp_path: Path) -> None:
    summary, rows = release.summary(), rows_of(release)
    page = write_label_page(tmp_path / "a.html", release).read_text().replace("\xa0", " ")
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        if row.key not in ("simulated", "warnings"):  # which stand on top
            assert f">{row.name.replace(chr(39), '&#39;')}</th>" in page
        assert (f"\n{row.name:<20}{row.text}" in summary) is row.brief
    assert summary.startswith(headline(release))
    assert page.count("Simulated: ") == 1
    assert "The votes of 60 voters labelled 120 queries" in page  # its first sentence
    bill = label_bill(release, target=1.0, output=tmp_path / "a.csv")
    assert [*bill] == ["above the target", "result", "quality", "epsilon", "noise", "next"]
    assert len(label_bill(release, target=8.0, output=tmp_path / "a.csv")) == 5


def test_by_label_how_many_ones_and_how_sure() -> None:
    release = pv.label(VOTES, **BUDGET)
    sure, table = labels_blocks(release)
    assert isinstance(table, TableBlock)
    assert isinstance(sure, TableBlock)
    assert [row["ones"] for row in table.rows] == (release.labels == 1).sum(axis=0).tolist()
    assert all(row["expected right"].endswith(" %") for row in table.rows)
    assert release.probabilities is not None
    assert sum(row["labels"] for row in sure.rows) == release.labels.size
    ones = [row for row in sure.rows if row["decided"] == "decided 1"]
    assert all(float(row["probability"].split()[1]) >= 0.5 for row in ones)
    chances, wanted = release.probabilities, release.labels == 1
    for place, row in enumerate(table.rows):
        missed, expected = map(int, row["ones missed"].split(" of "))
        assert expected == round(chances[:, place].sum())
        assert missed == round(chances[~wanted[:, place], place].sum())
    none = replace(release, _chances=0 * chances, labels=0 * release.labels)
    *_, table = labels_blocks(none)
    assert {row["ones missed"] for row in table.rows} == {None}  # not all of nothing
    (table,) = labels_blocks(released(12.0))  # bits have no probabilities
    assert isinstance(table, TableBlock)
    assert "expected right" not in table.rows[0]
    few = pv.label(VOTES[:5, :8], anyway=True, **BUDGET)
    assert "cannot be estimated" in headline(few)
