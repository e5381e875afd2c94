from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.ledger.conftest import database, server  # noqa: F401 (fixtures)

LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5)
EVERY = ("--guarantee", "allowance")


@pytest.fixture
def ledger(run: Run, votes_file: Path, tmp_path: Path) -> Path:
    done = run("label", votes_file, *LABEL, *EVERY, "--output", "a.csv", "--ledger", "ledger.db")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "ledger.db"


def test_show_lists_entries_and_budgets(run: Run, ledger: Path) -> None:
    shown = run("ledger", "show", ledger)
    assert shown.exit_code == 0
    assert "1 run in 5 entries" in " ".join(shown.stdout.split())
    for word in ("allowance", "unconditional", "delivered"):
        assert word in shown.stdout
    facts = json.loads(run("ledger", "show", ledger, "--json").stdout)
    assert [e["kind"] for e in facts["entries"]] == [
        "budget",
        "charge",
        "reserve",
        "commit",
        "deliver",
    ]
    budget, shown = facts["budgets"][0], " ".join(shown.stdout.split())
    assert budget["used"] <= 8
    assert (budget["used"], budget["share"], budget["fits"]) == (8, 1, 0)  # one run took all
    assert "(sigma=7)" in shown


def test_a_budget_is_set_and_raised(run: Run, tmp_path: Path) -> None:
    words = ("ledger", "budget", "l.db", "--dataset", "ward", "--delta", 1e-5, "--json")
    first = json.loads(run(*words, "--epsilon", 4).stdout)
    assert (first["epsilon"], first["fits"]) == (4, 4)
    assert "one run at epsilon 4" in first["still"]
    assert json.loads(run(*words, "--epsilon", 8).stdout)["was"] == 4
    assert run(*words, "--epsilon", 7).exit_code == 3
    shown = json.loads(run("ledger", "show", "l.db", "--json").stdout)["budgets"][0]
    assert (shown["epsilon"], shown["order"]) == (8, first["order"])


def test_verify_tells_and_leaves_with_4_if_edited(run: Run, ledger: Path) -> None:
    good = run("ledger", "verify", ledger, "--json")
    assert good.exit_code == 0
    assert json.loads(good.stdout)["ok"]
    with sqlite3.connect(ledger) as connection:
        connection.execute("DROP TRIGGER entries_stay")
        connection.execute("UPDATE entries SET body=replace(body, 'default', 'another')")
    bad = run("ledger", "verify", ledger)
    assert bad.exit_code == 4
    assert "entry 1 was edited" in bad.stderr
    assert run("ledger", "verify", "nowhere.db").exit_code == 4


def test_export_and_backup_write_new_files_only(run: Run, ledger: Path, tmp_path: Path) -> None:
    assert run("ledger", "export", ledger, "--output", "view.json").exit_code == 0
    view = json.loads((tmp_path / "view.json").read_text())
    assert view["verified"]
    for word in ("spent", "refused", "roll", "seal"):
        assert word not in json.dumps(view)
    assert run("ledger", "backup", ledger, "--output", "copy.db").exit_code == 0
    for verb, name in (("export", "view.json"), ("backup", "copy.db")):
        (tmp_path / name).write_text("theirs")
        again = run("ledger", verb, ledger, "--output", name)
        assert again.exit_code == 2
        assert f"--output '{name}' exists" in again.stderr
        assert (tmp_path / name).read_text() == "theirs"
        assert run("ledger", verb, ledger, "--output", name, "--force").exit_code == 0
    assert json.loads((tmp_path / "view.json").read_text()) == view
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0  # it holds sealed parts
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_backup_and_restore_on_the_command_line(
    run: Run, ledger: Path, votes_file: Path, tmp_path: Path
) -> None:
    told = run("ledger", "backup", ledger, "--output", "safe")
    assert told.exit_code == 0
    ledger.write_bytes(b"theirs")
    assert run("ledger", "restore", "safe", ledger).exit_code == 4
    assert ledger.read_bytes() == b"theirs"
    (tmp_path / "fresh").mkdir()
    done = run("ledger", "restore", "safe", "fresh/ledger.db", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == 6
    facts = json.loads(run("ledger", "show", "fresh/ledger.db", "--json").stdout)
    assert (len(facts["restored"]), facts["chargeable"]) == (1, False)
    assert run("ledger", "verify", "safe").exit_code == 0  # without restoring it
    spend = ("label", votes_file, *LABEL, *EVERY, "--output", "b.csv", "--dataset", "new")
    assert run(*spend, "--ledger", "fresh/ledger.db").exit_code == 4
    assert run("ledger", "restore", "--replace", "safe", "fresh/ledger.db").exit_code == 0
    assert run(*spend, "--ledger", "fresh/ledger.db").exit_code == 0
    assert run("ledger", "restore", "nothing", "else.db").exit_code == 2


def test_a_ledgers_own_files_are_never_replaced(run: Run, ledger: Path) -> None:
    for own in (ledger.with_name(ledger.name + end) for end in ("", ".key", ".head")):
        before = own.read_bytes()
        for verb in ("export", "backup"):
            assert run("ledger", verb, ledger, "--output", own, "--force").exit_code == 2
            assert own.read_bytes() == before
    assert run("ledger", "verify", ledger).exit_code == 0


SECRET = "hunter2-and-more"


@pytest.fixture
def address(database: str) -> str:  # noqa: F811
    return database.replace("privote@", f"privote:{SECRET}@")


def test_every_verb_takes_an_address(
    run: Run, votes_file: Path, address: str, tmp_path: Path
) -> None:
    beside = ("--beside", "site")
    call = ("label", votes_file, *LABEL, *EVERY, "--ledger", address, *beside, "--output")
    bad = run(*call, "a.csv", "--epsilon", -1)
    assert bad.exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == [votes_file.name]
    said = bad.stderr
    for name in ("a.csv", "b.csv"):
        done = run(*call, name)
        assert done.exit_code == 0, done.stderr
        said += done.stdout + done.stderr
    shown = run("ledger", "show", address, *beside)
    assert shown.exit_code == 0, shown.stderr
    assert "8 entries" in shown.stdout
    checked = run("ledger", "verify", address, *beside)
    assert checked.exit_code == 0, checked.stderr
    assert "nothing is wrong" in checked.stdout
    for verb, name in (("export", "view.json"), ("backup", "copy.db")):
        written = run("ledger", verb, address, *beside, "--output", name, "--json")
        assert written.exit_code == 0, written.stderr
        assert json.loads(written.stdout)["entries"] == 8
    said += shown.stdout + checked.stdout + (tmp_path / "view.json").read_text()
    assert SECRET not in said
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0
    refused = run("ledger", "restore", "copy.db", address, "--beside", "else")
    assert refused.exit_code == 4
    assert SECRET not in refused.stderr
    # It may go on as a file.
    assert run("ledger", "restore", "copy.db", "file.db").exit_code == 0
    assert run("ledger", "verify", "file.db").exit_code == 0


@pytest.mark.parametrize("verb", ["show", "verify", "export", "backup"])
def test_a_server_that_is_not_there_is_exit_code_7(run: Run, tmp_path: Path, verb: str) -> None:
    pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")
    for end in (".key", ".head"):
        (tmp_path / f"site{end}").write_text("00" * 32)
    more = ("--output", "x.json") if verb in ("export", "backup") else ()
    address = f"postgresql://clerk:{SECRET}@127.0.0.1:1/none"
    done = run("ledger", verb, address, "--beside", "site", *more)
    assert done.exit_code == 7
    assert SECRET not in done.stdout + done.stderr
    assert not (tmp_path / "x.json").exists()


def test_files_are_found_in_the_ledger_that_released_them(
    run: Run, votes_file: Path, tmp_path: Path
) -> None:
    more = ("--output", "a.npz", "--statement", "s.txt", "--report", "a.html", "--ledger", "l.db")
    assert run("label", votes_file, *LABEL, *more).exit_code == 0
    files = ("a.npz", "s.txt", "s.json", "a.html")
    found = run("ledger", "check", *files, "--ledger", "l.db", "--json")
    assert found.exit_code == 0, found.stdout
    assert {row["file"] for row in json.loads(found.stdout)["findings"]} == {*files}
    (tmp_path / "s.txt").write_text((tmp_path / "s.txt").read_text().replace("epsilon", "Epsilon"))
    assert run("label", votes_file, *LABEL, "--output", "b.npz", "--anyway").exit_code == 0
    edited = run("ledger", "check", *files, "b.npz", "--ledger", "l.db", "--json")
    assert (edited.exit_code, json.loads(edited.stdout)["unknown"]) == (1, ["s.txt", "b.npz"])


def test_an_open_run_is_shown_and_ended(
    run: Run, ledger: Path, votes_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ("label", votes_file, *LABEL, *EVERY, "--output", "b.csv", "--ledger", "ledger.db")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("privote.ledger.Run.commit", killed)
        assert run(*call, "--dataset", "other").exit_code == 6
    row = json.loads(run("ledger", "show", ledger, "--json").stdout)["runs"][-1]
    assert (row["status"], row["data set"]) == ("open", "other")
    assert run(*call, "--dataset", "other").exit_code == 3  # it is to be resumed, or ended
    assert run("ledger", "abandon", ledger, row["run"]).exit_code == 0
    again = run("ledger", "abandon", ledger, row["run"], "--json")
    assert (again.exit_code, json.loads(again.stdout)["argument"]) == (2, "RUN")
    assert run(*call, "--dataset", "other", "--resume").exit_code == 6  # charged, and closed


def test_an_auditor_checks_files_against_a_signed_export(
    run: Run, votes_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    more = ("--output", "out/a.csv", "--statement", "out/s.txt", "--report", "out/a.html")
    assert run("label", votes_file, *LABEL, *more, "--ledger", "l.db").exit_code == 0
    write = ("ledger", "export", "l.db", "--json", "--force", "--signed")
    first, again = (json.loads(run(*write, name).stdout)["key"] for name in ("x", "y"))
    assert first == again
    (tmp_path / "out" / "for-the-owner.json").write_text("{}")
    call = ("ledger", "check", "out", "--json", "--ledger")
    found = run(*call, "x")
    assert (found.exit_code, json.loads(found.stdout)["key"]) == (0, first), found.output
    rows = {row["file"] for row in json.loads(found.stdout)["findings"]}
    assert rows == {"a.csv", "s.txt", "s.json", "a.html"}
    (tmp_path / "out" / "a.csv").write_text("query,flu\n0,1\n")
    assert json.loads(run(*call, "x").stdout)["unknown"] == ["a.csv"]
    text = (tmp_path / "x").read_text()
    for word in ("operators", "spent", "roll", str(tmp_path)):
        assert word not in text
    assert run(*write, "z", "--operators").exit_code == 0
    assert str(tmp_path) in (tmp_path / "z").read_text()
    (tmp_path / "x").write_text(text.replace('"status": "delivered"', '"status": "failed"'))
    assert run(*call, "x").exit_code == 4
    assert run("ledger", "export", "l.db").exit_code == 2
    assert run("ledger", "export", "l.db", "--registry", "r.yaml").exit_code == 0
    assert "Approximate DP" in (tmp_path / "r.yaml").read_text()
