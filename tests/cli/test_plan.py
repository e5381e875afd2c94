from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote import planning
from privote.planning import queries_for

WHERE = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary")


def test_says_what_a_budget_buys_as_the_library_does(run: Run) -> None:
    call = ("plan", *BINARY, "--sigma", 7, *WHERE)
    numbers = json.loads(run(*call, "--json").stdout)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5}
    assert numbers["allowance"] == planning.allowance_for(pv.BinaryVoting(sigma=7.0), **size)
    assert numbers["worst_case_queries"] == queries_for(pv.BinaryVoting(sigma=7.0), **size)
    shown = run(*call).stdout
    assert f"{numbers['worst_case_queries']} queries" in shown
    assert f"{numbers['allowance']} surprises" in shown


def test_says_what_to_expect_where_no_mechanism_is_given(run: Run) -> None:
    call = ("plan", *WHERE, "--queries", 400, "--yes", 0.03)
    size = {"voters": 50, "labels": 20, "epsilon": 8.0, "delta": 1e-5, "queries": 400}
    found = pv.plan(**size, yes=0.03)
    assert json.loads(run(*call, "--json").stdout) == json.loads(json.dumps(found.facts()))
    shown = run(*call).stdout
    for kind, quality in found.quality.items():
        assert re.search(rf"{kind} voters +F1 {quality['f1']:.2f} ", shown)
    assert f"{found.sigma:.3g} votes on a tally of 50" in shown


BUDGET = ("--epsilon", 3, "--delta", 1e-5)


@pytest.fixture
def file(tmp_path: Path, votes: npt.NDArray[np.bool_]) -> Path:
    """Return votes with their truth; beside it probabilities that give them back at one half."""
    path = tmp_path / "both.npz"
    noise = np.random.default_rng(1).random(votes.shape)
    truth = np.arange(48).reshape(12, 4) % 5 == 0
    np.savez(path, votes=votes, truth=truth)
    np.savez(tmp_path / "soft.npz", votes=votes / 2 + noise * 0.49, truth=truth)
    return path


def call(file: Path | str, *more: Any) -> tuple[Any, ...]:
    return ("tune", file, "--over", "sigma", "--values", "3,7", *BUDGET, *more)


def test_everything_is_marked_as_not_private(run: Run, file: Path) -> None:
    shown = run(*call(file))
    assert shown.exit_code == 0, shown.stderr
    assert f"NOT PRIVATE. {planning.NOT_PRIVATE}" in shown.stdout
    assert "Votes were read as 12 queries x 20 voters x 4 labels." in shown.stdout
    answer = json.loads(run(*call(file, "--json")).stdout)
    assert answer["note"] == planning.NOT_PRIVATE
    assert answer["private"] is False


def test_it_is_what_the_library_says(run: Run, file: Path, votes: Any) -> None:
    with np.load(file) as data:
        truth = data["truth"]
    tried = [pv.TauVoting(sigma=sigma, tau=1.5, norm=1) for sigma in (3.0, 7.0)]
    expected = planning.tune(votes, tried, truth, epsilon=3, delta=1e-5).facts()
    flags = ("--mechanism", "tau", "--tau", 1.5, "--norm", 1, "--json")
    answer = json.loads(run(*call(file, *flags)).stdout)
    assert {key: answer[key] for key in expected} == json.loads(json.dumps(expected))


def test_truth_is_found_wherever_it_is(run: Run, votes: npt.NDArray[np.bool_]) -> None:
    truth = np.arange(48).reshape(12, 4) % 5 == 0
    np.save("votes.npy", votes)
    np.savez("packed.npz", votes=np.packbits(votes), shape=votes.shape, truth=np.packbits(truth))
    np.save("truth.npy", truth)
    np.savez("truth.npz", truth=truth.astype(np.int8))
    table = "\n".join(f"{i},{','.join(map(str, row))}" for i, row in enumerate(truth.astype(int)))
    Path("truth.csv").write_text(f"query,a,b,c,d\n{table}\n")
    beside = json.loads(run(*call("packed.npz", "--json")).stdout)
    assert beside["against"] == "truth"
    for name in ("truth.npy", "truth.npz", "truth.csv"):
        given = json.loads(run(*call("votes.npy", "--truth", name, "--json")).stdout)
        assert given == beside
    without = json.loads(run(*call("votes.npy", "--json")).stdout)
    assert without["against"] == "noise-free majority"


def test_probabilities_with_a_threshold_are_votes(run: Run, file: Path) -> None:
    head = ("--max-queries", 5, "--json")
    soft = json.loads(run(*call("soft.npz", "--threshold", 0.5, *head)).stdout)
    assert soft["trials"] == json.loads(run(*call(file, *head)).stdout)["trials"]
    assert soft["queries"] == 5
