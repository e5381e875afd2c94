"""One form for every comparison: what is printed is what the table collects."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "comparison.py"


@pytest.fixture
def comparison() -> Any:
    """Load it from its file: other packages bring a `benchmarks` of their own."""
    spec = importlib.util.spec_from_file_location("comparison", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_collected_from_what_is_kept(
    comparison: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
