"""Names on the command line: allowances follow voters; labels and queries keep their names."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5, "--force")
EVERY = ("--guarantee", "allowance")
CALL = ("label", "votes.npy", *LABEL, *EVERY, "--output", "labels.csv")
LEDGER = ("--ledger", "ledger.db")


@pytest.fixture
def names(tmp_path: Path, votes_file: Path) -> list[str]:
    made = [f"site {i}" for i in range(20)]
    (tmp_path / "names.txt").write_text("\n".join(made) + "\n")
    return made


def entries(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        run("ledger", "show", "ledger.db", "--json").stdout
    )["entries"]  # fmt: skip
    return found


def test_voters_are_known_by_name_whatever_their_order(
    run: Run, names: list[str], votes: npt.NDArray[np.bool_], tmp_path: Path
) -> None:
    sealed = (*CALL, *LEDGER, "--show-sealed", "--json", "--voter-ids")
    first = run(*sealed, "names.txt")
    assert first.exit_code == 0, first.stderr
    turn = np.random.default_rng(0).permutation(20)[:15]  # another order, and some are absent
    np.save(tmp_path / "votes.npy", votes[:, turn])
    (tmp_path / "turned.txt").write_text("\n".join(names[i] for i in turn))
    again = run(*sealed, "turned.txt")
    assert again.exit_code == 0, again.stderr
    bill = json.loads(again.stdout)
    assert bill["voters"] == 20
    assert bill["voters_known_by"] == "name"
    assert bill["sealed"]["surprises_cast_most"] == 2 * votes[:, turn].sum(axis=(0, 2)).max()
    assert [e["kind"] for e in entries(run)] == ["budget", "charge", *["answer", "outcome"] * 2]


def test_the_bill_says_how_voters_are_known(run: Run, names: list[str]) -> None:
    placed = run(*CALL, *LEDGER)
    said = [line for line in placed.stdout.splitlines() if line.startswith("voters known by")]
    assert len(said) == 1
    assert "their position in the file" in said[0]
    assert "--voter-ids" in placed.stdout
    named = run(*CALL, "--ledger", "other.db", "--voter-ids", "names.txt").stdout
    assert "their names" in named
    assert "voters known by" not in run(*CALL).stdout  # without a ledger nothing outlives the run
    other = run(*CALL, "--ledger", "third.db", "--guarantee", "worst-case").stdout
    assert "voters known by" not in other


def test_whose_ballots_were_refused_is_for_the_owner(run: Run, tmp_path: Path) -> None:
    busy = np.zeros((100, 17, 3), bool)
    busy[:, :7] = True
    np.save(tmp_path / "votes.npy", busy)
    (tmp_path / "names.txt").write_text("\n".join(f"site {i}" for i in range(17)))
    call = (*CALL, "--voter-ids", "names.txt")
    asked = json.loads(run(*call, "--show-sealed", "--json").stdout)["sealed"]
    assert asked["voters_who_ran_out"] == 7
    refused = asked["ballots_refused"]
    assert refused == {f"site {i}": refused["site 0"] for i in range(7)}
    assert 0 < refused["site 0"] < 100
    shown = run(*call, "--show-sealed").stdout
    open_part, owners = shown.split("For the owner's eyes")
    assert "7 voters" in owners
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


def test_strangers_and_other_guarantees_are_refused(
    run: Run, names: list[str], tmp_path: Path
) -> None:
    assert run(*CALL, *LEDGER, "--voter-ids", "names.txt").exit_code == 0
    before = entries(run)
    (tmp_path / "more.txt").write_text("\n".join([*names[:19], "newcomer"]))
    stranger = run(*CALL, *LEDGER, "--voter-ids", "more.txt")
    assert stranger.exit_code == 2
    assert "not registered" in stranger.stderr
    worst = run(*CALL, *LEDGER, "--voter-ids", "names.txt", "--guarantee", "worst-case")
    assert worst.exit_code == 2
    assert "--voter-ids needs --guarantee allowance" in worst.stderr
    assert entries(run) == before


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
    done = run("label", sheet, *LABEL, *LEDGER, "--output", "labels.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert "their names" in done.stdout
    with (tmp_path / "labels.csv").open(newline="") as stream:
        header, *rows = list(csv.reader(stream))
    assert header == ["query", "fever", "'=cough", "rash, mild", "pain"]
    assert [row[0] for row in rows] == [f"case {query}" for query in range(12)]
    assert "site" not in (tmp_path / "labels.csv").read_text() + done.stdout
    facts = json.loads(
        run("label", sheet, *LABEL, "--seed", 1, "--json", "--output", "again.npz").stdout
    )
    assert facts["label_names"] == list(NAMES)


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
    assert "every query of the votes" in lost.stderr
