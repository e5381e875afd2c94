from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

from privote import InputError
from privote.learning.demo import AUTO, MODELS

SMALL = ("--records", 600, "--queries", 40)


def test_demo_start_to_end(run: Run, tmp_path: Path) -> None:
    done = run("demo", *SMALL, "--seed", 1, "--output", "my demo", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "my demo/summary.json").read_text())
    first = found["releases"][0]
    assert first["how"] == "by default"
    assert first["answered"] == found["plan"]["queries"] == 40
    assert {row["guarantee"] for row in found["releases"]} == {
        "allowance", "worst-case", "data-dependent",
    }  # fmt: skip
    assert found["simulated"] is True
    models = {row["model"]: row for row in found["models"]}
    assert models["always no"]["epsilon"] is models["not private"]["epsilon"] is None
    default = next(name for name in models if name.endswith(", the default"))
    assert models[default]["epsilon"] <= 8.0
    assert models[default]["AUC"] > 0.6
    # The default is one of the methods: it has one row, and the others have theirs.
    methods = {name.removesuffix(", the default") for name in models}
    assert methods == {*MODELS} - {AUTO}
    assert len(models) == len(methods)
    assert found["reasons"]

    page = (tmp_path / "my demo/report.html").read_text()
    assert "Simulated" in page
    for section in page.split('<h2 id="section-')[1:3]:  # results first, then what they mean
        assert section.index("<table") < section.index("<figure") < section.index("<p>")
    # What is sealed stands in its own section, after everything that may leave.
    public, _, owners = page.partition('<h2 id="section-3">')
    exact = f"{found['sealed']['exact epsilon, by query']:.3f}"
    assert exact in owners
    assert exact not in public


def test_the_table_for_people(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from privote.errors import missing_extra

    def refuse(_: float) -> Any:
        raise missing_extra("report", "drawing figures")

    monkeypatch.setattr("privote.report.plots.sheet", refuse)
    done = run("demo", *SMALL, "--output", "my demo")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("1/4")
    assert "allowance should last" not in done.stderr  # of votes that nobody sees here
    assert "BAC" in done.stdout
    assert "For the owner's eyes" in done.stdout
    assert "Report: my demo/report.html" in done.stdout
    page = (tmp_path / "my demo/report.html").read_text()
    assert "needs the extra [report]" in page

    commands = done.stdout.partition("Try next:\n")[2].replace("\\\n", "").splitlines()
    assert len(commands) == 3
    for command in commands:
        again = run(*shlex.split(command)[1:])
        assert again.exit_code == 0, (command, again.stderr)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--records", 0), "--records must be an integer of at least 200, got 0"),
        (("--queries", -1), "--queries must"),
        (("--output", "votes.npy"), "cannot be a folder"),
        (("--epsilon", 0), "epsilon must be finite and positive, got 0.0"),
        (("--delta", 1), "delta must lie strictly between 0 and 1, got 1.0"),
    ],
)
def test_bad_arguments_are_found_at_once(
    run: Run, votes_file: Path, flags: tuple[Any, ...], message: str
) -> None:
    done = run("demo", *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "2/4" not in done.stderr


def test_only_an_earlier_demo_is_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise InputError("the work began")

    monkeypatch.setattr("privote.learning.demo.run_demo", stop)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "votes.npz").write_text("theirs")
    (folder / "summary.json").write_text("{}")
    done = run("demo", *SMALL, "--output", "mine")
    assert done.exit_code == 2
    assert "--output 'mine' exists and is not empty; give --force" in done.stderr
    assert (folder / "votes.npz").read_text() == "theirs"
    (folder / "summary.json").write_text(json.dumps({"command": "privote demo --output mine"}))
    assert "the work began" in run("demo", *SMALL, "--output", "mine").stderr
    (folder / "summary.json").unlink()
    assert "the work began" in run("demo", *SMALL, "--output", "mine", "--force").stderr
