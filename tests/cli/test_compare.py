from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.cli.fitting import Fitting

COUNTS = ("worst_case", "allowance", "exact_per_query", "exact_by_voter", "pate2018")


def quiet(_: int) -> None:
    pass


def test_every_mechanism_has_a_row(run: Run, votes_file: Path) -> None:
    call = ("compare", votes_file, "--epsilon", 3, "--delta", 1e-5)
    rows = json.loads(run(*call, "--json").stdout)["mechanisms"]
    assert [row["parameters"]["mechanism"] for row in rows] == ["binary", "tau", "tau", "powerset"]
    for row in rows:
        assert all(0 <= row[count] <= 12 for count in COUNTS)
        assert row["exact_by_voter"] >= row["exact_per_query"] >= row["worst_case"]
        assert 0 <= row["agreement"] <= 1
    shown = run(*call).stdout
    assert "binary, sigma 7" in shown
    assert "tau 3.4 l1, sigma 9" in shown


def test_plurality_joins_if_ballots_have_one_yes(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.eye(3, dtype=bool)[np.arange(40).reshape(4, 10) % 3])
    call = ("compare", "one.npy", "--epsilon", 2, "--delta", 1e-5, "--json")
    names = [row["mechanism"] for row in json.loads(run(*call).stdout)["mechanisms"]]
    assert names[-1] == "plurality, sigma 40"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--max-queries", 0), "--max-queries must be at least 1, got 0"),
        (("--epsilon", 0), "epsilon must be finite and positive, got 0.0"),
        (("--binary-sigma", -1), "sigma must be finite and positive, got -1.0"),
        (("--powerset-sigma", 0), "sigma must be finite and positive, got 0.0"),
    ],
)
def test_bad_arguments(run: Run, votes_file: Path, flags: tuple[Any, ...], message: str) -> None:
    done = run("compare", votes_file, "--epsilon", 3, "--delta", 1e-5, *flags)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 100.0])
def test_prefixes_are_the_longest_that_fit(votes: npt.NDArray[np.bool_], epsilon: float) -> None:
    cube = np.tile(votes, (5, 1, 1))
    fitting = Fitting(votes=cube, epsilon=epsilon, delta=1e-5)
    mechanism = pv.BinaryVoting(sigma=7.0)
    for bound in ("exact", "pate2018"):
        costs = [
            pv.epsilon(mechanism.total_rdp(cube[:n], bound=bound), None, 1e-5) for n in range(1, 61)
        ]
        assert fitting.per_query(mechanism, bound, quiet) == int(np.sum(np.array(costs) <= epsilon))
    worst = [float(pv.bills(mechanism, cube[:n], 1e-5).max()) for n in range(1, 61)]
    assert fitting.by_voter(mechanism, quiet) == int(np.sum(np.array(worst) <= epsilon))


def test_allowance_counts_queries_that_everybody_affords() -> None:
    votes = np.zeros((60, 5, 2), bool)
    votes[:, 3] = True  # two surprises a query, and an allowance of 46
    fitting = Fitting(votes=votes, epsilon=8.0, delta=1e-5)
    assert fitting.allowance(pv.BinaryVoting(sigma=7.0)) == 23
    assert Fitting(votes=votes[:10], epsilon=8.0, delta=1e-5).allowance(
        pv.BinaryVoting(sigma=7.0)
    ) == 10  # fmt: skip


def test_agreement_is_with_the_majority() -> None:
    votes = np.zeros((50, 9, 2), bool)
    votes[:, :6, 0] = True
    fitting = Fitting(votes=votes, epsilon=1.0, delta=1e-5)
    assert fitting.agreement(pv.BinaryVoting(sigma=0.01), 0) == (1.0, 1.0)
    _, on_yes = Fitting(votes=votes[:, 6:], epsilon=1.0, delta=1e-5).agreement(
        pv.BinaryVoting(sigma=0.01), 0
    )
    assert np.isnan(on_yes)
