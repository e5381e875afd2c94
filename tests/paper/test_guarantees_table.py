"""The kept table of queries by guarantee: what it must show, and that the docs show the same."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / "benchmarks" / "results" / "bench_guarantees.txt"
COLUMNS = (
    "paper",
    "worst",
    "gaussian",
    "allowance",
    "ptr",
    "smooth",
    "sanitized",
    "per_query",
    "by_voter",
    "pld",
)

Rows = dict[int, dict[str, int]]


def tables() -> dict[str, Rows]:
    """Return by electorate, by sigma, by column."""
    found: dict[str, Rows] = {}
    for part in re.split(r"\n(?=tmc2007, 50|made-up electorate)", KEPT.read_text("utf-8"))[1:]:
        rows = re.findall(r"^ +(\d+)((?: +[\d,]+){10})$", part, re.MULTILINE)
        found[part.splitlines()[0]] = {
            int(sigma): dict(
                zip(COLUMNS, (int(n.replace(",", "")) for n in numbers.split()), strict=True)
            )
            for sigma, numbers in rows
        }
    return found


def test_real_votes_against_the_papers_accounting() -> None:
    rows = next(iter(tables().values()))
    assert [row["paper"] for row in rows.values()] == [143, 204, 225, 160, 89]
    assert rows[7]["ptr"] >= 8 * rows[7]["worst"]
    assert rows[7]["pld"] >= 540


def test_every_electorate_has_every_sigma_and_columns_in_the_order_of_what_they_ask() -> None:
    found = tables()
    assert [name.split(",")[0] for name in found] == ["tmc2007"] + ["made-up electorate"] * 3
    for rows in found.values():
        assert list(rows) == [4, 7, 9, 12, 20]
        for row in rows.values():
            assert row["gaussian"] <= row["worst"]
            assert row["smooth"] <= row["ptr"]
            assert row["sanitized"] <= row["per_query"] <= row["by_voter"] <= row["pld"]
            assert row["paper"] <= row["per_query"]


def test_the_docs_show_what_was_measured() -> None:
    page = (REPOSITORY / "docs" / "measured.md").read_text("utf-8")
    shown = [
        tuple(int(cell.replace(",", "")) for cell in line.strip("| \n").split("|"))
        for line in page.splitlines()
        if re.fullmatch(r"\| \d+ (\| [\d,]+ ){10}\|", line)
    ]
    real = next(iter(tables().values()))
    measured = [(sigma, *row.values()) for sigma, row in real.items()]
    assert shown == measured
