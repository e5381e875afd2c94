"""Names on the command line: allowances follow voters, not their place in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.cli.files import read_names

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
    assert "their place in the file" in said[0]
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
    assert "and of 2 more" in owners
    for text in (open_part, run(*call).stdout, run(*call, "--json").stdout):
        assert "refused" not in text
        assert "site 0" not in text


@pytest.mark.parametrize("kind", ["txt", "csv", "npy", "npz", "numbers"])
def test_names_come_from_many_files(tmp_path: Path, kind: str) -> None:
    made, path = ["a", "b c", "é"], tmp_path / f"names.{kind}"
    if kind == "txt":
        path.write_text("a\n b c \r\né\n\n", encoding="utf-8")
    elif kind == "csv":
        path.write_text('\ufeffcity,voter\nX,a\n"Y, Z",b c\n,é\n', encoding="utf-8")
    elif kind == "npy":
        np.save(path, np.array(made))
    elif kind == "npz":
        np.savez(path, votes=np.zeros(2), voter_ids=np.array(made))
    else:
        path, made = tmp_path / "names.npy", ["7", "8"]
        np.save(path, np.array([7, 8]))
    assert read_names(path) == made


def bad_files(folder: Path) -> None:
    """Write one file of every kind that holds no names."""
    (folder / "few.txt").write_text("a\nb\n")
    (folder / "empty.txt").write_text("")
    (folder / "gap.txt").write_text("a\n\n" + "\n".join(map(str, range(18))))
    (folder / "twice.txt").write_text("\n".join(["a"] * 20))
    (folder / "columns.csv").write_text("name,city\na,b\n")
    (folder / "binary.txt").write_bytes(b"\xff\xfe\x00")
    np.savez(folder / "none.npz", votes=np.zeros(3))
    np.save(folder / "floats.npy", np.zeros(20))
    np.save(folder / "square.npy", np.zeros((4, 5), int))
    np.save(folder / "objects.npy", np.array([None] * 20), allow_pickle=True)


BAD = {
    "few.txt": "--voter-ids must be 20 different names, got 2",
    "empty.txt": "--voter-ids must be 20 different names, got 0",
    "gap.txt": "voter 1 has an empty one",
    "twice.txt": "different names, but voters",
    "columns.csv": "no column 'voter'",
    "binary.txt": "--voter-ids 'binary.txt' cannot be read",
    "none.npz": "no array 'voter_ids'; it has: votes",
    "floats.npy": "texts or integers, got float64",
    "square.npy": "got int64 of shape (4, 5)",
    "objects.npy": "--voter-ids 'objects.npy' cannot be read",
    "absent.txt": "--voter-ids 'absent.txt' cannot be read",
    ".": "--voter-ids '.' cannot be read",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_names_charge_nothing(run: Run, votes_file: Path, tmp_path: Path, name: str) -> None:
    bad_files(tmp_path)
    done = run(*CALL, *LEDGER, "--voter-ids", name)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert BAD[name] in done.stderr
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
    assert "somebody who is not registered with the others" in stranger.stderr
    worst = run(*CALL, *LEDGER, "--voter-ids", "names.txt", "--guarantee", "worst-case")
    assert worst.exit_code == 2
    assert "--voter-ids goes with --guarantee allowance" in worst.stderr
    assert entries(run) == before


def test_unnamed_voters_of_another_file_are_taken_for_the_same(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name in ("one.npy", "two.npy"):
        np.save(tmp_path / name, rng.random((30, 40, 2)) < 0.1)
    budget = ("--epsilon", 8, "--delta", 1e-5, "--ledger", "both.db", "--guarantee", "allowance")
    first = run("label", "one.npy", *budget, "--output", "a.csv", "--plan-for", 60)
    assert first.exit_code == 0
    done = run("label", "two.npy", *budget, "--output", "b.csv")
    assert done.exit_code == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "voters without names are taken to be the same persons in every run" in shown
    charges = [e for e in pv.Ledger.open("both.db").published() if e["kind"] == "charge"]
    assert len(charges) == 1  # nobody gets a second allowance
