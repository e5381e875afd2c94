from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from experiments.paper.__main__ import main
from experiments.paper.claims import CLAIMS


def test_lists_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CLAIMS)


def test_measures_what_is_named_by_key_or_place_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--only", "algorithm-1, Figure 7", "--results", str(tmp_path / "kept")]
    assert main([*words, "--page", str(tmp_path / "paper.md")]) == 0
    shown = capsys.readouterr()
    assert "Algorithm 1, Section 5.1: fails" in shown.out
    assert "1/2 algorithm-1" in shown.err
    text = (tmp_path / "paper.md").read_text(encoding="utf-8")
    assert text.count("**not run**") > len(CLAIMS) - 3
    facts = json.loads((tmp_path / "kept" / "algorithm-1.json").read_text("utf-8"))
    assert facts["command"].startswith("python -m experiments.paper --only algorithm-1")
    with (tmp_path / "kept" / "figure-7.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


def test_what_needs_absent_data_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--only", "code,table-5", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("not run") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags", [("--only", "figure-99"), ("--profile", "slow"), ("--data", "nowhere")]
)
def test_refuses_what_it_cannot_run(flags: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(list(flags))
    assert caught.value.code == 2
