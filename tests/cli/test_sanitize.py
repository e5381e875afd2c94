from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.accounting import sanitize2018

CALL = ("--sigma", 7, "--delta", 1e-5, "--queries", 12)


def test_only_public_numbers_unless_asked(
    run: Run, votes_file: Path, votes: npt.NDArray[np.bool_]
) -> None:
    shown = run("sanitize", votes_file, *CALL, "--seed", 3).stdout
    facts = json.loads(run("sanitize", votes_file, *CALL, "--seed", 3, "--json").stdout)
    assert "sealed" not in facts
    assert facts["simulated"]
    assert facts["price_2018"] != pytest.approx(facts["price"])
    assert "for comparison only: not a valid bound" in " ".join(shown.split())
    mechanism = pv.BinaryVoting(sigma=7.0)
    hidden = [pv.epsilon(mechanism.total_rdp(votes), None, 1e-5), *pv.bills(mechanism, votes, 1e-5)]
    for number in hidden:
        for digits in range(3, 7):
            assert f"{number:.{digits}g}" not in shown


def test_the_owner_sees_the_exact_cost_and_the_figures_of_2018(
    run: Run, votes_file: Path, votes: npt.NDArray[np.bool_]
) -> None:
    call = ("sanitize", votes_file, *CALL, "--show-sealed")
    sealed = json.loads(run(*call, "--json").stdout)["sealed"]
    mechanism = pv.BinaryVoting(sigma=7.0)
    assert sealed["note"] == "for the owner's eyes"
    total = pv.epsilon(mechanism.total_rdp(votes), None, 1e-5)
    assert sealed["epsilon"] == pytest.approx(total)
    assert sealed["epsilon_rdp"] == pytest.approx(pv.bills(mechanism, votes, 1e-5).max())
    assert sealed["accountant"] == "pld"
    assert sealed["epsilon_by_voter"] == sealed["epsilon_pld"] < sealed["epsilon_rdp"]
    cells = np.bincount(votes.sum(axis=1).ravel(), minlength=21)
    expected = sanitize2018.sanitized(cells, 7.0, 1e-5)
    assert sealed["pate2018"].pop("note") == "for comparison only: not a valid bound"
    assert sealed["pate2018"] == pytest.approx(expected._asdict())
    shown = " ".join(run(*call).stdout.split())
    assert "For the owner's eyes; for comparison only: not a valid bound" in shown


def test_figures_of_2018_where_they_are_defined(run: Run, votes_file: Path) -> None:
    for more in (("--quota", 0.3), ("--gate-threshold", 12, "--gate-sigma", 3)):
        call = ("sanitize", votes_file, *CALL, "--show-sealed", *more)
        assert json.loads(run(*call, "--json").stdout)["sealed"]["pate2018"] is None
        assert "before" not in run(*call).stdout


def test_real_votes_of_the_papers_run(run: Run, shared_data: Path) -> None:
    # By the paper's accounting 204 queries cost 20 at sigma 7.
    votes = shared_data / "votes_tmc2007_50.npz"
    call = ("--sigma", 7, "--delta", 1e-5, "--queries", 204, "--show-sealed", "--json")
    old = json.loads(run("sanitize", votes, *call).stdout)["sealed"]["pate2018"]
    assert old["before"] == pytest.approx(19.985, abs=1e-3)
    assert old["after"] == pytest.approx(25.308, abs=1e-3)
    assert old["deviation"] == pytest.approx(3.692, abs=1e-3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--queries", 0), "queries"),
        (("--queries", 13), "queries"),
        (("--sigma", 0), "sigma must be finite and positive"),
        (("--delta", 2), "delta"),
    ],
)
def test_bad_arguments(run: Run, votes_file: Path, flags: tuple[object, ...], message: str) -> None:
    done = run("sanitize", votes_file, *CALL, *flags)
    assert done.exit_code == 2
    assert message in done.stderr


def test_terms_are_explained(run: Run, votes_file: Path) -> None:
    for words in (("sanitize", "--help"), ("sanitize", votes_file, *CALL)):
        shown = " ".join(run(*words).stdout.split())
        for term in ("smooth sensitivity: how far the cost can move", "confidence", "exp(-beta)"):
            assert term in shown
        assert "not differential privacy" in shown
        assert "docs/publishing.md" in shown
    assert "confidence 0.95 (1 - gamma)" in shown
