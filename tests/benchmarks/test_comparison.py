"""One form for every comparison: what is printed is what the table collects."""

from __future__ import annotations

from pathlib import Path

import comparison
import pytest


def test_rows_are_collected_from_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison.row("a job", 2.0, 6.0, "s", comparison.peer("a loop", "numpy"))
    comparison.row("queries", 300, 100, "queries", "somebody", gain=True)
    kept = tmp_path / "bench_it.txt"
    kept.write_text(f"date:    2026-01-02 03:04 UTC\n\nwords\n{capsys.readouterr().out}")
    first, second = comparison.collected(tmp_path)
    assert first[:4] == ("a job", "2 s", "6 s", "3")
    assert first[4].startswith("a loop (numpy ")
    assert second[3] == "3"
    assert {row[-1] for row in (first, second)} == {"2026-01-02"}
