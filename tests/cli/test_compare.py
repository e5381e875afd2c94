from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.accounting.gaussian import analytic_gaussian
from privote.cli.fitting import Fitting

GATE = pv.Gate(threshold=12.0, sigma=3.0)
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
        assert row["worst_case"] >= row["gaussian"] >= 0
        if row["parameters"]["mechanism"] == "binary":
            assert row["pld_by_voter"] >= row["exact_by_voter"]
        else:
            assert row["pld_by_voter"] is None
        assert 0 <= row["agreement"] <= 1
    done = run(*call)
    shown, told = done.stdout, done.stderr.splitlines()
    # Not a terminal: a line for each mechanism says that work goes on.
    assert told[0] == "1/4  binary, sigma 7"
    assert len(told) == 4
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
    by_voter = int(np.sum(np.array(worst) <= epsilon))
    assert fitting.by_voter(mechanism, quiet) == by_voter
    per_query = fitting.per_query(mechanism, "exact", quiet)
    assert fitting.by_voter(mechanism, quiet, per_query) == by_voter


@pytest.mark.parametrize(
    ("epsilon", "gate"), [(0.5, None), (2.5, None), (4.0, GATE), (100.0, None)]
)
def test_losses_fit_up_to_the_longest_prefix(
    votes: npt.NDArray[np.bool_], epsilon: float, gate: pv.Gate | None
) -> None:
    cube = np.tile(votes, (3, 1, 1))
    fitting = Fitting(votes=cube, epsilon=epsilon, delta=1e-5)
    mechanism = pv.BinaryVoting(sigma=7.0, gate=gate)
    known = fitting.by_voter(mechanism, quiet)
    found = fitting.by_voter_pld(mechanism, known, quiet)
    assert found is not None
    assert found >= known

    def price(queries: int) -> float:
        return float(pv.bills(mechanism, cube[:queries], 1e-5, accountant="smaller").max())

    if found:
        assert price(found) <= epsilon + 1e-6
    if found < len(cube):
        assert price(found + 1) > epsilon - 1e-6


def test_other_mechanisms_have_no_losses(votes: npt.NDArray[np.bool_]) -> None:
    fitting = Fitting(votes=votes, epsilon=2.0, delta=1e-5)
    assert fitting.by_voter_pld(pv.TauVoting(sigma=7.0, tau=1.5), 3, quiet) is None


def test_the_gaussian_bound_by_its_exact_epsilon(votes: npt.NDArray[np.bool_]) -> None:
    cube = np.tile(votes, (30, 1, 1))
    fitting = Fitting(votes=cube, epsilon=8.0, delta=1e-5)
    for mechanism, shift in (
        (pv.BinaryVoting(sigma=7.0), math.sqrt(2 * 4) / 7),
        (pv.PowersetVoting(sigma=7.0), math.sqrt(2) / 7),
    ):
        found = fitting.gaussian(mechanism)
        assert found is not None
        assert analytic_gaussian(shift * math.sqrt(found), 1e-5) <= 8.0
        assert analytic_gaussian(shift * math.sqrt(found + 1), 1e-5) > 8.0
        assert found <= fitting.worst_case(mechanism)
    link = pv.BinaryVoting(link=pv.OptimalLink(cost=0.1, order=3.0))
    assert fitting.gaussian(link) is None


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
