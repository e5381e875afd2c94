"""``privote poll``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

BUDGET = ("--epsilon", 1, "--delta", 1e-6)


@pytest.fixture
def ballots(tmp_path: Path) -> Path:
    rows = "".join(
        f"v{place};{place < 431:d};{place < 317:d};{place < 209:d}\n" for place in range(577)
    )
    path = tmp_path / "poll.csv"
    path.write_text("\ufeffvoter;Ada;Bo;Cy\n" + rows)
    return path


def test_winners_a_page_and_nothing_more(run: Run, ballots: Path) -> None:
    done = run("poll", ballots, *BUDGET, "--seats", 1, "--output", "page")
    assert done.exit_code == 0, done.stderr
    assert "Ada" in done.stdout
    assert "Without a ledger" in done.stderr
    assert "431" not in done.stdout
    assert Path("page/poll.html").exists()
    assert not Path("page-owner.html").exists()
    again = run("poll", ballots, *BUDGET, "--output", "page")
    assert again.exit_code == 2
    assert "--output" in again.stderr
    facts = json.loads(run("poll", ballots, *BUDGET, "--quota", 0.4, "--json").stdout)
    assert facts["winners"] == ["Ada", "Bo"]
    assert not {"shares", "sealed"} & set(facts)


def test_shares_and_the_owners_view(run: Run, ballots: Path) -> None:
    # A seed: without one a noisy count, or digits of a share, may be the true count by chance.
    words = ("--shares", "--output", "page", "--show-sealed", "--seed", 1)
    done = run("poll", ballots, *BUDGET, *words)
    assert done.exit_code == 0, done.stderr
    assert "decided" in done.stdout
    assert "431" in Path("page-owner.html").read_text()
    assert "true counts: page-owner.html" in done.stdout
    assert "tied for the last seat: none" in done.stdout
    assert all("431" not in file.read_text() for file in Path("page").iterdir())


def test_a_budget_is_kept_and_refused(run: Run, ballots: Path) -> None:
    place = ("--people", "club", "--ledger", "ledger.db")
    assert run("poll", ballots, *BUDGET, *place).exit_code == 0
    done = run("poll", ballots, *BUDGET, *place, "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["code"] == "budget"
    shown = run("ledger", "show", "ledger.db")
    assert "club" in shown.stdout
    assert "poll" in shown.stdout
    assert run("ledger", "verify", "ledger.db").exit_code == 0


def test_who_voted_is_said_in_the_terminal(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{place},user{place}@x.org,{place % 2},1\n" for place in range(300))
    path = tmp_path / "form.csv"
    path.write_text(f"Timestamp,Email Address,Ada,Bo\n{rows}301,USER3@X.ORG,1,1\n")
    assert run("poll", path, *BUDGET).exit_code == 2
    done = run("poll", path, *BUDGET, "--duplicates", "last")
    assert done.exit_code == 0, done.stderr
    for words in ("1 row repeated a voter", "'Email Address' is the public roll"):
        assert words in done.stdout
    path.write_text("Ada,Bo\n" + "1,0\n" * 300)
    said = run("poll", path, *BUDGET).stdout
    assert "double votes cannot be detected" in said


def test_several_questions(run: Run, tmp_path: Path) -> None:
    path, days = tmp_path / "form.csv", tmp_path / "days.txt"
    path.write_text("Email,Fund it?,When?\n" + "".join(
        f'{place}@x,"Yes, with conditions","Mon, Tue"\n' for place in range(300)
    ))  # fmt: skip
    days.write_text("Mon\nTue\nWed\n")
    words = ("poll", path, *BUDGET, "--column", "Fund it?", "--column", "When?", "--seats", 1)
    options = ("--options", 'Yes,"Yes, with conditions",No')
    done = run(*words, *options, "--options", days, "--shares")
    assert done.exit_code == 0, done.stderr
    assert "Fund it?: Yes, with conditions; When?: " in done.stdout
    assert done.stdout.count("Shares, with intervals") == 2
    for bad in ((), options, (*options, *options, *options)):
        assert run(*words, *bad).exit_code == 2


def test_options_by_name_or_by_file(run: Run, tmp_path: Path) -> None:
    lists = tmp_path / "lists.csv"
    lists.write_text("approved\n" + "Ada;Bo\n" * 300 + "Ada\n" * 300)
    names = tmp_path / "names.txt"
    names.write_text("Ada\nBo\nCy\n")
    for given in ("Ada,Bo,Cy", names):
        words = ("--seats", 1, "--column", "approved", "--options", given, "--json")
        done = run("poll", lists, *BUDGET, *words)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["winners"] == ["Ada"]
    assert run("poll", lists, *BUDGET).exit_code == 2


def test_a_plan_reads_no_ballots(run: Run, ballots: Path) -> None:
    words = ("poll", "--plan", "--voters", 500, "--options", 12, *BUDGET)
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    assert "may be published" in done.stdout
    assert "intervals" in done.stdout
    plans = json.loads(run(*words, "--seats", 2, "--json").stdout)["plans"]
    assert [row["epsilon"] for row in plans] == ["0.25", "0.5", "1", "2", "4"]
    assert "top-m" in plans[0]["winners: decides"]
    for bad in ((ballots, *words[1:]), words[1:4] + BUDGET, BUDGET):
        assert run("poll", *bad).exit_code == 2
