from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

from privote import InputError

SMALL = ("--teachers", 8, "--private", 300, "--queries", 6)


def test_demo_start_to_end(run: Run, tmp_path: Path) -> None:
    done = run("demo", *SMALL, "--seed", 1, "--output", "my demo", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "my demo/summary.json").read_text())
    places = {(row["mechanism"], row["guarantee"]) for row in found["releases"]}
    assert len(places) == len(found["releases"]) == 9
    assert all(row["abstained"] == 0 for row in found["releases"])
    by_place = {(row["mechanism"], row["guarantee"]): row for row in found["releases"]}
    assert by_place["binary", "allowance"]["answered"] == 6
    assert by_place["tau", "worst-case"]["answered"] == 6
    assert by_place["tau", "data-dependent"]["epsilon"] is None  # it is sealed
    assert found["simulated"] is True
    models = {row["model"]: row for row in found["models"]}
    private = [row for row in models.values() if row["epsilon"] is not None]
    assert {"DPSGD", "DPSGD, adaptive clipping", "PATE student, binary"} <= set(models)
    assert all(row["epsilon"] <= 8.0 for row in private)
    assert (
        models["not private"]["epsilon"] is models["one teacher (not private)"]["epsilon"] is None
    )
    assert all(0 <= row["AUC"] <= 1 for row in models.values() if row["answered"] != 0)

    page = (tmp_path / "my demo/report.html").read_text()
    assert "owner" in page
    assert "Simulated" in page
    assert page.count("<svg") == 4
    # What is sealed stands in its own section, after everything that may leave.
    public, _, owners = page.partition('<h2 id="section-4">')
    for row in found["sealed"]["prices"]:
        assert f"{row['exact_per_query']:.2f}" in owners
        assert f">{row['exact_per_query']:.2f}<" not in public


def test_the_table_for_people(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from privote.errors import missing_extra

    def refuse(_: float) -> Any:
        raise missing_extra("report", "drawing figures")

    monkeypatch.setattr("privote.report.plots.sheet", refuse)
    monkeypatch.setattr("privote.learning.demo._mechanisms", cheap_mechanisms)
    done = run("demo", *SMALL, "--output", "my demo")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("1/6")
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


def cheap_mechanisms(_: object) -> dict[str, Any]:
    import privote as pv

    return {"binary": pv.BinaryVoting(sigma=7.0), "powerset": pv.PowersetVoting(sigma=7.0)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--teachers", 0), "--teachers must be an integer of at least 1, got 0"),
        (("--queries", -1), "--queries must be an integer of at least 1, got -1"),
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
    assert "2/6" not in done.stderr


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
