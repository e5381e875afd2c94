"""Votes in CSV files on the command line: names in, names out, warnings on stderr."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5)
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
    done = run("label", sheet, *LABEL, "--ledger", "ledger.db", "--output", "labels.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert "their names, whatever their order" in done.stdout
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
    assert "no row for query 'case 0' of the votes" in lost.stderr


def test_what_looks_swapped_is_a_warning_on_stderr(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((30, 1, 4), bool))
    call = ("one.npy", *LABEL, "--json", "--output", "labels.csv")
    done = run("label", *call)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("warning: votes have 1 voter: their axes are (queries, voters")
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())
    json.loads(done.stdout)
    tuned = run(
        "tune", "one.npy", "--over", "sigma", "--epsilon", 8, "--delta", 1e-5, "--values", 3
    )
    assert tuned.exit_code == 0, tuned.stderr
    assert tuned.stderr.startswith("warning: votes have 1 voter")


def test_probabilities_are_not_taken_for_votes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "soft.csv").write_text("voter,x\na,0.4\nb,0.9\n")
    done = run("label", "soft.csv", *LABEL, "--ledger", "ledger.db", "--output", "labels.csv")
    assert done.exit_code == 2
    assert "soft.csv, line 2, column 'x' must be a vote" in done.stderr
    assert done.stderr.endswith("; --show-sealed says which\n")
    assert not (tmp_path / "ledger.db").exists()
