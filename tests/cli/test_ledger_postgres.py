"""A ledger in PostgreSQL from the command line; skipped, saying so, where no server is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.ledger.conftest import database, server  # noqa: F401 (fixtures)

LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5)
SECRET = "hunter2-and-more"


@pytest.fixture
def address(database: str) -> str:  # noqa: F811
    return database.replace("privote@", f"privote:{SECRET}@")


def test_every_verb_takes_an_address(
    run: Run, votes_file: Path, address: str, tmp_path: Path
) -> None:
    beside = ("--beside", "site")
    said = ""
    for name in ("a.csv", "b.csv"):
        done = run(
            "label", votes_file, *LABEL, "--guarantee", "allowance",
            "--ledger", address, *beside, "--output", name,
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        said += done.stdout + done.stderr
    shown = run("ledger", "show", address, *beside)
    assert shown.exit_code == 0, shown.stderr
    assert "6 entries" in shown.stdout
    checked = run("ledger", "verify", address, *beside)
    assert checked.exit_code == 0, checked.stderr
    assert "nothing is wrong" in checked.stdout
    for verb, name in (("export", "view.json"), ("backup", "copy.db")):
        written = run("ledger", verb, address, *beside, "--output", name, "--json")
        assert written.exit_code == 0, written.stderr
        assert json.loads(written.stdout)["entries"] == 6
    said += shown.stdout + checked.stdout + (tmp_path / "view.json").read_text()
    assert SECRET not in said
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0
    refused = run("ledger", "restore", "copy.db", address, "--beside", "else")
    assert refused.exit_code == 4
    assert SECRET not in refused.stderr
    # It may go on as a file.
    assert run("ledger", "restore", "copy.db", "file.db").exit_code == 0
    assert run("ledger", "verify", "file.db").exit_code == 0


def test_bad_input_leaves_the_database_as_it_was(
    run: Run, votes_file: Path, address: str, tmp_path: Path
) -> None:
    call = ("label", votes_file, "--ledger", address, "--output", "a.csv")
    bad = run(*call, *LABEL, "--epsilon", -1, "--beside", "site")
    assert bad.exit_code == 2
    alone = run(*call, *LABEL)
    assert alone.exit_code == 2
    assert "beside must name a local file" in alone.stderr
    for text in (bad.stderr, alone.stderr):
        assert SECRET not in text
    assert [file.name for file in tmp_path.iterdir()] == [votes_file.name]


@pytest.mark.parametrize("verb", ["show", "verify", "export", "backup"])
def test_a_server_that_is_not_there_is_exit_code_4(run: Run, tmp_path: Path, verb: str) -> None:
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    for end in (".key", ".head"):
        (tmp_path / f"site{end}").write_text("00" * 32)
    more = ("--output", "x.json") if verb in ("export", "backup") else ()
    address = f"postgresql://clerk:{SECRET}@127.0.0.1:1/none"
    done = run("ledger", verb, address, "--beside", "site", *more)
    assert done.exit_code == 4
    assert "cannot be used" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not (tmp_path / "x.json").exists()


def test_beside_needs_an_address(run: Run, votes_file: Path) -> None:
    call = ("label", votes_file, *LABEL, "--output", "a.csv", "--beside", "site")
    alone = run(*call)
    assert alone.exit_code == 2
    assert "--beside needs --ledger" in alone.stderr
    file = run(*call, "--ledger", "ledger.db")
    assert file.exit_code == 2
    assert "beside needs a ledger in PostgreSQL" in file.stderr
    other = run("ledger", "show", f"mysql://u:{SECRET}@h/d")
    assert other.exit_code == 2
    assert SECRET not in other.stderr
