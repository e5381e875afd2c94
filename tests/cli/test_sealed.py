"""Sealed numbers appear where they were asked for by name, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv

LABEL = ("--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5, "--seed", 3)
DEPENDENT = ("--guarantee", "data-dependent", "--queries", 12)


@pytest.fixture
def release(votes: npt.NDArray[np.bool_]) -> pv.Release:
    return pv.label(
        votes,
        mechanism=pv.BinaryVoting(sigma=7.0),
        epsilon=8,
        delta=1e-5,
        guarantee="data-dependent",
        queries=12,
        seed=3,
    )


def digits(number: float) -> str:
    return f"{number:.12f}"[:6]  # as many as would give it away, whatever it is rounded to


@pytest.mark.parametrize("extra", [("--verbose",), ("--json",)])
def test_a_data_dependent_epsilon_is_not_shown(
    run: Run, votes_file: Path, release: pv.Release, extra: Any
) -> None:
    done = run("label", votes_file, *LABEL, *DEPENDENT, "--output", "labels.npz", *extra)
    assert done.exit_code == 0, done.stderr
    assert "not differential privacy" in " ".join(done.stdout.split())
    everything = done.stdout + done.stderr + json.dumps(pv.Release.load("labels.npz").facts())
    for number in (release.sealed.epsilon, *release.sealed.bills()):
        assert digits(number) not in everything


def test_the_owner_sees_it_on_request(run: Run, votes_file: Path, release: pv.Release) -> None:
    call = ("label", votes_file, *LABEL, *DEPENDENT, "--show-sealed")
    shown = run(*call, "--output", "a.csv")
    assert digits(release.sealed.epsilon) in shown.stdout
    assert "For the owner's eyes" in shown.stdout
    before, _ = shown.stdout.split("For the owner's eyes")
    assert digits(release.sealed.epsilon) not in before
    sealed = json.loads(run(*call, "--output", "b.csv", "--json").stdout)["sealed"]
    assert sealed["note"] == "for the owner's eyes"
    assert sealed["epsilon"] == pytest.approx(release.sealed.epsilon)
    assert sealed["epsilon_of_costliest_voter"] == pytest.approx(release.sealed.bills().max())


@pytest.mark.parametrize("flags", [("plurality",), ("powerset", "--max-positives", 1)])
def test_a_refused_ballot_is_not_quoted(
    run: Run, tmp_path: Path, flags: tuple[object, ...]
) -> None:
    votes = np.zeros((9, 8, 3), bool)
    votes[8, 7, :2] = True
    np.save(tmp_path / "two.npy", votes)
    call = ("label", "two.npy", *LABEL[2:], "--mechanism", *flags, "--output", "a.csv")
    done = run(*call)
    assert done.exit_code == 2
    assert "--show-sealed" in done.stderr
    assert "voter" not in done.stderr
    asked = run(*call, "--show-sealed")
    assert "for the owner's eyes: voter 7 has 2 positives on query 8" in asked.stderr
