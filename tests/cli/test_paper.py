from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import privote


def test_lists_every_claim(run: Run) -> None:
    done = run("paper", "--list", "--json")
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["claims"]) == 46


def test_measures_what_is_named_and_writes_a_page(run: Run, tmp_path: Path) -> None:
    done = run("paper", "--only", "alg:extended-pate,prop:gap", "--seeds", 1, "--output", "mine")
    assert done.exit_code == 0, done.stderr
    assert "does not hold: 1" in done.stdout
    assert "0/2 alg:extended-pate" in done.stderr
    page = (tmp_path / "mine" / "paper.html").read_text(encoding="utf-8")
    assert "paper&#x27;s accounting</th>" in page
    assert "exact</th>" in page
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text(encoding="utf-8"))
    assert summary["command"].startswith("privote paper --output mine --profile quick --seeds 1")
    assert [claim["verdict"] for claim in summary["claims"]] == ["does not hold", "holds"]


def test_claims_are_found_by_their_place_in_the_paper(run: Run) -> None:
    done = run("paper", "--only", "theorem 5.2, Lemma 2.1", "--seeds", 1, "--output", "mine")
    assert done.exit_code == 0, done.stderr
    assert "Lemma 2.1: Numerical integration gives the formula" in done.stdout
    assert "1/2 thm:pate-rdp-bound" in done.stderr


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
    done = run("paper", *flags)
    assert done.exit_code == 2
    assert said in done.stderr


def test_without_a_checkout_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    site = tmp_path / "site" / "packages"
    site.mkdir(parents=True)
    source = Path(privote.__file__).parent
    shutil.copytree(source, site / "privote", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "privote", "paper", "--list"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the paper's claims come with a checkout")
    assert done.stderr.count("\n") == 1
