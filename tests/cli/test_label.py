from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv

BUDGET = ("--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary", "--sigma", 7)
EVERY = ("--guarantee", "allowance")


def read_csv(path: Path) -> npt.NDArray[Any]:
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def test_writes_csv_and_prints_the_bill(run: Run, votes_file: Path, tmp_path: Path) -> None:
    call = ("label", votes_file, *BINARY, *BUDGET, *EVERY)
    done = run(*call, "--output", "labels.csv", "--verbose")
    assert done.exit_code == 0, done.stderr
    assert "This run costs epsilon 8" in done.stderr
    text = (tmp_path / "labels.csv").read_text()
    assert text.startswith("query,label_0,label_1,label_2,label_3\n0,")
    table = read_csv(tmp_path / "labels.csv")
    assert table[:, 0].tolist() == list(range(12))
    assert set(np.unique(table[:, 1:])) <= {0, 1}
    for said in ("unconditional", "46 contributions per voter"):
        assert said in done.stdout
    assert "SIMULATED" not in done.stdout
    brief = run(*call, "--output", "brief.csv").stdout
    lines = [line.split()[0] for line in brief.splitlines() if line[:1].strip()]
    assert lines == ["Bill", "result", "quality", "epsilon", "noise", "next"]
    bill = json.loads(run(*call, "--output", "again.csv", "--json").stdout)  # all there is
    assert (bill["answered"], bill["guarantee"]["kind"]) == (12, "allowance")
    assert (bill["mark"], bill["read_as"][:22]) == ("unconditional", "12 queries x 20 voters")
    assert bill["epsilon"] <= 8
    assert "PRIVACY STATEMENT" in bill["statement"]
    assert "sealed" not in bill


LIBRARY: list[tuple[str, pv.Mechanism]] = [
    ("binary --sigma 7", pv.BinaryVoting(sigma=7.0)),
    ("binary --sigma 7 --quota 0.4", pv.BinaryVoting(sigma=7.0, quota=0.4)),
    ("binary --sigma 7 --false-alarm 0.1", pv.BinaryVoting(sigma=7.0, false_alarm=0.1)),
    (
        "binary --sigma 7 --gate-threshold 15 --gate-sigma 9",
        pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=15, sigma=9)),
    ),
    ("tau --sigma 9 --tau 1.8", pv.TauVoting(sigma=9.0, tau=1.8)),
    ("tau --sigma 9 --tau 3.4 --norm 1", pv.TauVoting(sigma=9.0, tau=3.4, norm=1)),
    ("powerset --sigma 5", pv.PowersetVoting(sigma=5.0)),
]


@pytest.mark.parametrize(("flags", "mechanism"), LIBRARY)
def test_releases_what_the_library_releases(
    run: Run, votes_file: Path, votes: Any, flags: str, mechanism: pv.Mechanism
) -> None:
    named = ("--mechanism", *flags.split(), "--seed", 3, "--output", "labels.npz")
    done = run("label", votes_file, *BUDGET, *named)
    assert done.exit_code == 0, done.stderr
    assert "SIMULATED" in done.stdout
    written = pv.Release.load("labels.npz")
    expected = pv.label(votes, mechanism=mechanism, epsilon=8.0, delta=1e-5, seed=3)
    assert written.facts()["sha256"] == expected.facts()["sha256"]
    assert written.guarantee.mechanism == expected.guarantee.mechanism
    assert written.epsilon == expected.epsilon


def test_clip_cuts_ballots_that_powerset_would_refuse(run: Run, votes_file: Path) -> None:
    powerset = ("--mechanism", "powerset", "--sigma", 5, "--max-positives", 1)
    call = ("label", votes_file, *powerset, *BUDGET, "--output", "labels.csv")
    refusal = run(*call)
    assert refusal.exit_code == 2
    assert "--max-positives" in refusal.stderr
    assert run(*call, "--clip").exit_code == 0


def test_an_output_is_replaced_only_by_force(run: Run, votes_file: Path, tmp_path: Path) -> None:
    name = "labels.csv"
    (tmp_path / name).write_text("precious")
    call = ("label", votes_file, *BINARY, *BUDGET, "--output", name)
    refusal = run(*call)
    assert refusal.exit_code == 2
    assert "--output" in refusal.stderr
    assert (tmp_path / name).read_text() == "precious"
    assert run(*call, "--force").exit_code == 0
    assert (tmp_path / name).read_bytes()[:8] != b"precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, votes_file.name])


def test_a_ledger_is_charged_and_a_broken_one_is_exit_code_4(
    run: Run, votes_file: Path, tmp_path: Path
) -> None:
    call = ("label", votes_file, *BINARY, *BUDGET, "--ledger", "ledger.db")
    worst = (*call, "--guarantee", "worst-case")
    first = run(*worst, "--output", "a.csv", "--json")
    assert first.exit_code == 0, first.stderr
    again = run(*worst, "--queries", 12, "--output", "b.csv")
    assert again.exit_code == 3  # what the first run left does not pay for twelve more
    (tmp_path / "ledger.db").write_bytes(b"not a ledger" * 100)
    assert run(*call, "--output", "c.csv").exit_code == 4
    assert not (tmp_path / "c.csv").exists()


@pytest.fixture
def many(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    truth = rng.random((120, 1, 6)) < 0.2
    np.save(tmp_path / "many.npy", rng.random((120, 100, 6)) < np.where(truth, 0.95, 0.01))
    return tmp_path / "many.npy"


def test_by_default_nothing_is_asked_for_and_quality_is_told(
    run: Run, many: Path, tmp_path: Path
) -> None:
    done = run("label", many, *BUDGET, "--output", "labels.npz", "--json", "--seed", 0)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["answered"], facts["asked"]) == (120, 120)
    assert facts["guarantee"]["mechanism"]["mechanism"] == "tally"
    assert facts["quality"]["precision"] > 0.9
    assert len(facts["quality"]["by_label"]["recall"]) == 6
    assert facts["headline"].startswith("120 queries; expected precision ")
    assert facts["decided"] == "likely"
    truth = np.load(many).mean(axis=1) > 0.5
    release = pv.Release.load(tmp_path / "labels.npz")
    assert ((release.labels == 1) == truth).mean() > 0.97


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_probabilities_are_written(run: Run, many: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"chances{suffix}"
    flags = ("label", many, *BUDGET, "--output", "labels.npz", "--probabilities", file)
    assert run(*flags).exit_code == 0
    want = pv.Release.load(tmp_path / "labels.npz").probabilities
    got = read_csv(file)[:, 1:] if suffix == ".csv" else np.load(file)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_months_share_what_is_planned(run: Run, many: Path, tmp_path: Path) -> None:
    votes = np.load(many)
    for name, part, more in (("one", votes[:50], ("--plan-for", 120)), ("two", votes[50:110], ())):
        np.save(tmp_path / f"{name}.npy", part)
        flags = (*BUDGET, "--ledger", "l.db", *more, "--output", f"{name}.npz", "--json")
        done = run("label", f"{name}.npy", *flags)
        assert done.exit_code == 0, done.stderr
        guarantee = json.loads(done.stdout)["guarantee"]
        assert guarantee["epsilon"] == guarantee["standing"]["total"] == 8
        assert run("ledger", "check", f"{name}.npz", "--ledger", "l.db").exit_code == 0
    shown = json.loads(run("ledger", "show", "l.db", "--json").stdout)
    assert shown["allowances"][0]["left"] == 10
    assert [row["epsilon"] for row in shown["runs"]] == ["8", "0"]
    assert shown["budgets"][0]["used"] == 8
    assert " left" in run("ledger", "show", "l.db").stdout
    over = ("--ledger", "l.db", "--plan-for", 120, "--output", "three.npz", "--dry-run")
    assert run("label", "two.npy", *BUDGET, *over).exit_code == 3  # more than are left


def test_a_page_and_a_statement_are_written(run: Run, votes_file: Path, tmp_path: Path) -> None:
    more = (*BINARY, *BUDGET, *EVERY, "--statement", "s.txt")
    done = run("label", votes_file, *more, "--output", "a.npz", "--report", "a.html")
    assert done.exit_code == 0, done.stderr
    assert "Expected quality" in (tmp_path / "a.html").read_text()
    assert "PRIVACY STATEMENT" in (tmp_path / "s.txt").read_text()
    facts = json.loads((tmp_path / "s.json").read_text())
    assert facts["guarantee"]["kind"] == "allowance"
    again = run("label", votes_file, *more, "--output", "b.csv")
    assert again.exit_code == 2
    assert "--statement" in again.stderr
    assert not (tmp_path / "b.csv").exists()
    for name in ("s.json", "c.npz"):  # its .json is written beside it, and must be no other file
        call = ("--statement", name, "--output", "c.npz")
        assert run("label", votes_file, *more[:-2], *call).exit_code == 2


def test_what_it_costs_is_said_before_it_is_paid(run: Run, many: Path, tmp_path: Path) -> None:
    """A dry run makes no ledger; the noise beside the voters is a range; a part leaves a rest."""
    call = ("label", many, *LEDGER, "--output", "a.npz", "--delta", 1e-5, "--epsilon")
    dry = run(*call, 8, "--dry-run", "--json")
    assert dry.exit_code == 0, dry.stderr
    facts = json.loads(dry.stdout)
    assert (facts["budget"], facts["new"], facts["left"]) == (8, True, 0)
    assert [path.name for path in tmp_path.iterdir()] == [many.name]
    assert run("ledger", "budget", "ledger.db", "--dataset", "ward", *BUDGET).exit_code == 0
    facts = json.loads(run(*call, 2, "--dataset", "ward", "--dry-run", "--json").stdout)
    assert (facts["budget"], facts["new"]) == (8, False)
    assert facts["left"] == pytest.approx(7.1, abs=0.3)
    assert str(facts["left"]) in facts["still"]
    assert run(*call, 9, "--dataset", "ward", "--dry-run").exit_code == 3
    paid = run(*call, 2, "--dataset", "ward")
    assert facts["cost"] in paid.stderr
    again = run(*call, 2, "--dataset", "ward", "--resume", "--json")
    assert (again.exit_code, json.loads(again.stdout)["status"]) == (0, "complete")


def test_noise_that_drowns_all_votes_is_refused(run: Run, votes_file: Path, tmp_path: Path) -> None:
    call = ("label", votes_file, "--epsilon", 0.3, "--delta", 1e-5, *LEDGER, "--json")
    refused = run(*call, "--output", "a.csv")
    assert (refused.exit_code, json.loads(refused.stdout)["code"]) == (3, "drowned")
    assert [path.name for path in tmp_path.iterdir()] == [votes_file.name]
    assert run(*call, "--output", "a.csv", "--anyway").exit_code == 0


LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5, "--force")
CALL = ("label", "votes.npy", *LABEL, *EVERY, "--output", "labels.csv")
LEDGER = ("--ledger", "ledger.db")


def test_voters_are_known_by_name_whatever_their_order(
    run: Run, votes_file: Path, votes: npt.NDArray[np.bool_], tmp_path: Path
) -> None:
    turn = np.random.default_rng(0).permutation(20)[:15]  # another order, and some are absent
    sites = [f"site {i}" for i in turn]
    (tmp_path / "names.txt").write_text("\n".join(f"site {i}" for i in range(20)))
    (tmp_path / "turned.txt").write_text("\n".join(sites))
    (tmp_path / "more.txt").write_text("\n".join([*sites[:14], "newcomer"]))
    sealed = (*CALL, *LEDGER, "--show-sealed", "--json", "--voter-ids")
    assert run(*sealed, "names.txt").exit_code == 0
    np.save(votes_file, votes[:, turn])
    again = run(*sealed, "turned.txt")
    assert again.exit_code == 0, again.stderr
    assert "Voters have no names" not in again.stderr
    bill = json.loads(again.stdout)
    assert bill["sealed"]["contributions_cast_most"] == 2 * votes[:, turn].sum(axis=(0, 2)).max()
    assert run(*sealed, "more.txt").exit_code == 2
    worst = run(*sealed, "turned.txt", "--guarantee", "worst-case")
    assert json.loads(worst.stdout)["argument"] == "--voter-ids"


def test_whose_ballots_were_refused_is_for_the_owner(run: Run, tmp_path: Path) -> None:
    busy = np.zeros((100, 17, 3), bool)
    busy[:, :7] = True
    np.save(tmp_path / "votes.npy", busy)
    (tmp_path / "names.txt").write_text("\n".join(f"site {i}" for i in range(17)))
    call = (*CALL, "--voter-ids", "names.txt")
    asked = json.loads(run(*call, "--show-sealed", "--json").stdout)["sealed"]
    assert asked["voters_who_ran_out"] == 7
    refused = asked["ballots_clipped"]
    assert refused == {f"site {i}": refused["site 0"] for i in range(7)}
    assert 0 < refused["site 0"] < 100
    shown = run(*call, "--show-sealed").stdout
    open_part, owners = shown.split("For the owner's eyes")
    assert "voters who ran out" in owners
    for text in (open_part, run(*call).stdout, run(*call, "--json").stdout):
        assert "refused" not in text
        assert "site 0" not in text


BAD: dict[str, bytes] = {
    "few.txt": b"a\nb\n",
    "empty.txt": b"",
    "gap.txt": b"a\n\n" + b"\n".join(b"%d" % i for i in range(18)),
    "twice.txt": b"\n".join([b"a"] * 20),
    "binary.txt": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", [*BAD, "absent.txt", "."])
def test_bad_names_charge_nothing(run: Run, votes_file: Path, tmp_path: Path, name: str) -> None:
    for file, content in BAD.items():
        (tmp_path / file).write_bytes(content)
    done = run(*CALL, *LEDGER, "--voter-ids", name, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["argument"] == "--voter-ids"
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "labels.csv").exists()
    assert not (tmp_path / "ledger.db").exists()


# -- votes in CSV files ----------------------------------------------------------------------------

NAMES = ("fever", "=cough", "rash, mild", "pain")


@pytest.fixture
def sheet(tmp_path: Path, votes: npt.NDArray[np.bool_]) -> Path:
    path = tmp_path / "votes.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["query", "voter", *NAMES])
        for query in reversed(range(12)):
            for voter in range(20):
                said = np.where(votes[query, voter], "yes", "no").tolist()
                writer.writerow([f"case {query}", f"site {voter}", *said])
    return path


def test_names_go_from_the_votes_to_the_labels(run: Run, sheet: Path, tmp_path: Path) -> None:
    done = run("label", sheet, *LABEL, *LEDGER, "--output", "labels.csv", "--json")
    assert done.exit_code == 0, done.stderr
    assert "nothing will be left" in done.stderr
    facts = json.loads(done.stdout)
    assert "Voters have no names" not in done.stderr
    assert facts["label_names"] == list(NAMES)
    with (tmp_path / "labels.csv").open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    assert header == ["query", "fever", "'=cough", "rash, mild", "pain"]
    assert [row[0] for row in rows] == [f"case {query}" for query in range(12)]
    assert "site" not in (tmp_path / "labels.csv").read_text() + done.stdout


def test_labels_with_names_are_a_baseline_in_any_order(
    run: Run, sheet: Path, tmp_path: Path
) -> None:
    first = run("label", sheet, *LABEL, "--output", "labels.csv")
    assert first.exit_code == 0, first.stderr
    head, *rows = (tmp_path / "labels.csv").read_text().splitlines()
    (tmp_path / "mixed.csv").write_text("\n".join([head, *reversed(rows)]))
    said = []
    for name in ("labels.csv", "mixed.csv"):
        more = ("--baseline", name, "--seed", 3, "--output", f"out-{name}")
        done = run("label", sheet, *LABEL, *more)
        assert done.exit_code == 0, done.stderr
        said.append((tmp_path / f"out-{name}").read_text())
    assert said[0] == said[1]
    (tmp_path / "few.csv").write_text("\n".join([head, *rows[1:]]))
    lost = run("label", sheet, *LABEL, "--baseline", "few.csv", "--output", "x.csv")
    assert lost.exit_code == 2
    assert "must name every query of the votes" in lost.stderr
