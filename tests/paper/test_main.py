from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments.paper.__main__ import app
from typer.testing import CliRunner

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that measures claims with these arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


def test_lists_every_claim(run: Run) -> None:
    done = run("--list", "--json")
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["claims"]) == 46 + 10 + 5


def test_measures_what_is_named_by_key_or_place_and_writes_a_page(run: Run, tmp_path: Path) -> None:
    done = run("--only", "alg:extended-pate, Lemma 2.1", "--seeds", 1, "--output", "mine")
    assert done.exit_code == 0, done.stderr
    assert "does not hold: 1" in done.stdout
    assert "Lemma 2.1: Numerical integration gives the formula" in done.stdout
    assert "1/2 alg:extended-pate" in done.stderr
    page = (tmp_path / "mine" / "paper.html").read_text(encoding="utf-8")
    assert "paper&#39;s accounting</th>" in page
    assert "exact</th>" in page
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text(encoding="utf-8"))
    assert summary["command"].startswith(
        "python -m experiments.paper --output mine --profile quick --seeds 1"
    )
    assert [claim["verdict"] for claim in summary["claims"]] == ["holds", "does not hold"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--only", "fig:absent"), "--only must name claims by key or place; --list shows"),
        (("--profile", "slow"), "--profile must be one of quick, full, got 'slow'"),
        (("--kept", "--fresh"), "--kept does not go with --fresh"),
        (("--seeds", 0), "--seeds must be at least 1, got 0"),
        (("--data", "nowhere"), "--data must be a folder, got 'nowhere'"),
    ],
)
def test_refuses_what_it_cannot_run(run: Run, flags: tuple[object, ...], said: str) -> None:
    done = run(*flags)
    assert done.exit_code == 2
    assert said in done.stderr
