from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run

SMALL = ("--records", 600, "--queries", 60)


def test_what_it_shows_and_what_it_suggests(run: Run, tmp_path: Path) -> None:
    done = run("demo", *SMALL, "--seed", 1, "--output", "my demo", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("1/3")
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "my demo/summary.json").read_text())
    assert summary["simulated"] is True
    private, _, plain, nothing = summary["models"]
    assert [row["epsilon"] for row in summary["models"][:2]] == pytest.approx([8, 2])
    assert plain["epsilon"] is nothing["epsilon"] is None
    assert plain["AUC"] > private["AUC"] > nothing["AUC"]
    *tallies, alone, _, helped, _ = summary["labels"]
    assert [row["votes on"] for row in tallies] == ["reports"] * 2 + ["pictures"] * 2
    assert [row["epsilon"] for row in summary["labels"]] == pytest.approx([8, 2] * 4)
    assert min(row["actual precision"] for row in tallies) > 0.3
    assert (alone["rows"], helped["rows"]) == ("no", "yes")
    first = summary["labels"][0]
    assert first["expected precision"] == pytest.approx(first["actual precision"], abs=0.15)
    page = (tmp_path / "my demo/report.html").read_text()
    assert "Simulated" in page
    for section in page.split('<h2 id="section-')[1:3]:  # results first, then what they mean
        assert section.index("<table") < section.index("<p>")
    # What it suggests works, and gives what it says.
    steps = [line for line in summary["next"].replace("\\\n", "").splitlines() if line[:1] == "p"]
    train, predict, label = (run(*shlex.split(line)[1:], "--json") for line in steps)
    assert train.exit_code == predict.exit_code == label.exit_code == 0
    assert private["model"] == f"private ({json.loads(train.stdout)['method']})"
    assert json.loads(label.stdout)["answered"] == 60
    assert "aeroplane" in (tmp_path / "my demo/labels.csv").read_text()


def test_tables_for_people_in_a_new_folder(run: Run) -> None:
    done = run("demo", *SMALL, "--output", "my demo")
    assert done.exit_code == 0, done.stderr
    for words in ("not private", "pictures", "Report: my demo/report.html", "privote label"):
        assert words in done.stdout
    assert "SIMULATED" not in done.stdout
    again = run("demo", *SMALL, "--output", "my demo")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert run("demo", "--records", 10, "--output", "new").exit_code == 2
