"""The kept table of queries by guarantee: what it must show, and that the docs show the same."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = REPOSITORY / "benchmarks" / "results" / "bench_guarantees.txt"
Rows = dict[int, tuple[int, ...]]


def tables() -> dict[str, Rows]:
    """Return by electorate and sigma how many queries each of eight accountants allows."""
    found: dict[str, Rows] = {}
    for part in re.split(r"\n(?=tmc2007, 50|made-up electorate)", KEPT.read_text("utf-8"))[1:]:
        rows = re.findall(r"^ +(\d+)((?: +[\d,]+){8})$", part, re.MULTILINE)
        found[part.splitlines()[0]] = {
            int(sigma): tuple(int(number.replace(",", "")) for number in numbers.split())
            for sigma, numbers in rows
        }
    return found


def test_real_votes_against_the_papers_accounting() -> None:
    rows = next(iter(tables().values()))
    assert [paper for paper, *_ in rows.values()] == [143, 204, 225, 160, 89]
    _, worst, _, allowance, *_, pld = rows[7]
    assert allowance >= 6 * worst
    assert pld >= 540


def test_every_electorate_has_every_sigma_and_columns_in_the_order_of_what_they_ask() -> None:
    found = tables()
    assert [name.split(",")[0] for name in found] == ["tmc2007"] + ["made-up electorate"] * 3
    for rows in found.values():
        assert list(rows) == [4, 7, 9, 12, 20]
        for paper, worst, gaussian, _, sanitized, each, by_voter, pld in rows.values():
            assert gaussian <= worst
            assert sanitized <= each <= by_voter <= pld
            assert paper <= each


def test_the_docs_show_what_was_measured() -> None:
    page = (REPOSITORY / "docs" / "measured.md").read_text("utf-8")
    shown = [
        tuple(int(cell.replace(",", "")) for cell in line.strip("| \n").split("|"))
        for line in page.splitlines()
        if re.fullmatch(r"\| \d+ (\| [\d,]+ ){8}\|", line)
    ]
    real = next(iter(tables().values()))
    measured = [(sigma, *row) for sigma, row in real.items()]
    assert shown == measured
