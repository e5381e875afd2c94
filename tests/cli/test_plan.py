from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote import calibrate
from privote.calibrate import queries_for

WHERE = ("--voters", 50, "--labels", 20, "--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary")


def test_says_what_a_budget_buys(run: Run) -> None:
    done = run("plan", *BINARY, "--sigma", 7, *WHERE, "--surprises-per-query", 2)
    assert done.exit_code == 0, done.stderr
    assert "4 queries, whatever the votes" in done.stdout
    assert "46 surprises a voter" in done.stdout
    assert "23 queries for a voter with 2 surprises a query" in done.stdout
    assert "may be published" in done.stdout


def test_json(run: Run) -> None:
    numbers = json.loads(run("plan", *BINARY, "--sigma", 7, *WHERE, "--json").stdout)
    assert numbers["worst_case_queries"] == 4
    assert numbers["allowance"] == 46
    assert numbers["allowance_counts"] == "votes"
    assert "queries_until_out" not in numbers
    assert 0 < numbers["missed"] < 1e-5


@pytest.mark.parametrize("surprises", [None, 2])
def test_wanted_finds_a_sigma_that_does(run: Run, surprises: int | None) -> None:
    more = () if surprises is None else ("--surprises-per-query", surprises)
    call = ("plan", *BINARY, *WHERE, "--wanted", 500, *more, "--json")
    numbers = json.loads(run(*call).stdout)
    sigma = numbers["mechanism"]["sigma"]
    if surprises is None:
        assert numbers["worst_case_queries"] >= 500
        assert queries_for(pv.BinaryVoting(sigma=0.99 * sigma), 50, 20, 8.0, 1e-5) < 500
    else:
        assert numbers["queries_until_out"] == 500
        assert numbers["worst_case_queries"] == 100
    assert numbers["wanted"] == 500


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--mechanism", "binary"), "--sigma"),
        (("--mechanism", "binary", "--sigma", 7, "--wanted", 5), "--wanted solves for sigma"),
        (("--mechanism", "binary", "--wanted", 0), "wanted must be an integer of at least 1"),
        (
            ("--mechanism", "powerset", "--sigma", 7, "--surprises-per-query", 2),
            "--surprises-per-query must be at most 1 for powerset, which counts whole ballots",
        ),
        (("--mechanism", "binary", "--sigma", 7, "--voters", 0), "voters must be an integer"),
        (("--mechanism", "tau", "--sigma", 7), "--tau must be given for mechanism 'tau'"),
        (("--mechanism", "tau", "--wanted", 5), "--sigma or --tau must be given with --wanted"),
        (
            ("--mechanism", "tau", "--sigma", 7, "--tau", 1, "--wanted", 5),
            "--wanted solves for sigma, or for tau given sigma: leave out --tau",
        ),
    ],
)
def test_bad_arguments(run: Run, flags: tuple[Any, ...], message: str) -> None:
    done = run("plan", *WHERE, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("size", [("--voters", 50), ("--labels", 20)])
def test_without_votes_the_size_must_be_given(run: Run, size: tuple[Any, ...]) -> None:
    done = run("plan", *BINARY, "--sigma", 7, "--epsilon", 8, "--delta", 1e-5, *size)
    assert done.exit_code == 2
    missing = "--labels" if size[0] == "--voters" else "--voters"
    assert f"{missing} must be given unless --votes is, got none" in done.stderr


def test_an_impossible_budget_is_exit_code_3(run: Run) -> None:
    tiny = ("--voters", 50, "--labels", 20, "--epsilon", 1e-6, "--delta", 1e-12)
    done = run("plan", *BINARY, *tiny, "--wanted", 10)
    assert done.exit_code == 3
    assert "no sigma" in done.stderr


TAU = ("--mechanism", "tau", "--voters", 50, "--labels", 2, "--epsilon", 8, "--delta", 1e-5)


def test_wanted_finds_the_largest_tau_for_a_sigma(run: Run) -> None:
    done = run("plan", *TAU, "--sigma", 9, "--wanted", 80, "--json")
    assert done.exit_code == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["worst_case_queries"] >= 80
    assert numbers["mechanism"]["sigma"] == 9
    tau = numbers["mechanism"]["tau"]
    more = pv.TauVoting(sigma=9.0, tau=1.01 * tau)
    assert queries_for(more, 50, 2, 8.0, 1e-5) < 80


LOOK = ("plan", "--epsilon", 8, "--delta", 1e-5, "--votes-are-public", "--votes")
QUICK = (*BINARY, "--floor", 0.9)


def test_chooses_on_public_votes(run: Run, votes_file: Path, votes: Any) -> None:
    chosen = calibrate.best(votes, epsilon=8.0, delta=1e-5, floor=0.9)
    done = run(*LOOK, votes_file, *QUICK)
    assert done.exit_code == 0, done.stderr
    assert str(chosen.mechanism) in done.stdout
    assert f"{chosen.queries} of 12 queries" in done.stdout
    assert "valid only if they are public or paid for" in done.stdout
    assert f"{chosen.utility:.4f} with the noise-free outcome (floor 0.9)" in done.stdout
    table = done.stdout.split("What else there is")[1].splitlines()
    assert sum("<-" in line for line in table) == 1
    assert any("<-" in line and str(chosen.mechanism) in line for line in table)


def test_chooses_in_json(run: Run, votes_file: Path, votes: Any) -> None:
    chosen = calibrate.best(votes, epsilon=8.0, delta=1e-5, floor=0.9, quotas=0.5)
    numbers = json.loads(run(*LOOK, votes_file, *QUICK, "--quota", 0.5, "--json").stdout)
    assert "public or paid for" in numbers["note"]
    assert (numbers["voters"], numbers["labels"], numbers["queries_looked_at"]) == (20, 4, 12)
    assert numbers["chosen"]["parameters"] == chosen.mechanism.parameters()
    assert numbers["chosen"]["queries"] == chosen.queries
    assert numbers["chosen"]["allowance"] == chosen.allowance
    assert numbers["chosen"]["on_front"] is True
    assert len(numbers["candidates"]) == len(chosen.table) > 5


@pytest.mark.parametrize(
    "wishes",
    [
        (*BINARY, "--floor", 0.8),
        (*BINARY, "--floor", 0.8, "--sigma", 6, "--gate"),
        (*BINARY, "--floor", 0.7, "--sigma", 7, "--quota", 0.4, "--guarantee", "worst-case"),
        (*BINARY, "--floor", 0.7, "--sigma", 7, "--guarantee", "data-dependent"),
        ("--mechanism", "tau", "--sigma", 9, "--tau", 1.5, "--norm", 2, "--floor", 0.1),
    ],
)
def test_ends_with_the_command_that_carries_it_out(
    run: Run, votes_file: Path, wishes: tuple[Any, ...]
) -> None:
    call = (*LOOK, votes_file, *wishes)
    found = json.loads(run(*call, "--json").stdout)
    assert run(*call).stdout.rstrip().splitlines()[-1] == found["command"]
    words = shlex.split(found["command"].replace("VOTES", str(votes_file)))
    assert words.pop(0) == "privote"
    done = run(*words, "--json")
    assert done.exit_code == 0, done.stderr
    labelled = json.loads(done.stdout)
    assert labelled["mechanism"] == found["chosen"]["parameters"]
    assert labelled["guarantee"] == found["guarantee"]
    assert (labelled["budget"], labelled["delta"]) == (8.0, 1e-5)
    assert labelled["answered"] == found["chosen"]["queries"]


def test_the_command_keeps_the_threshold(run: Run, votes: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "soft.npy", np.where(votes, 0.8, 0.3))
    call = (*LOOK, tmp_path / "soft.npy", *QUICK, "--sigma", 6, "--threshold", 0.5)
    assert " --threshold 0.5 " in run(*call).stdout.splitlines()[-1]


def test_passes_every_wish_on(run: Run, votes_file: Path, votes: Any, tmp_path: Path) -> None:
    truth = votes.mean(axis=1) > 0.4
    np.save(tmp_path / "truth.npy", truth)
    wishes = ("--guarantee", "worst-case", "--measure", "balanced", "--truth", "truth.npy")
    done = run(*LOOK, votes_file, *QUICK, *wishes, "--sigma", 7, "--quota", 0.4, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    expected = calibrate.best(
        votes, epsilon=8.0, delta=1e-5, floor=0.9, guarantee="worst-case", measure="balanced",
        truth=truth, sigmas=7.0, quotas=0.4,
    )  # fmt: skip
    assert found["against"] == "the truth"
    assert found["chosen"]["parameters"] == {"mechanism": "binary", "sigma": 7, "quota": 0.4}
    assert found["chosen"]["utility"] == expected.utility
    assert found["chosen"]["queries"] == expected.queries


def test_gates_and_what_lies_beyond(run: Run, votes_file: Path) -> None:
    few = ("--sigma", 6, "--gate", "--beyond")
    done = run(*LOOK, votes_file, *QUICK, *few, "--json")
    found = json.loads(done.stdout)
    gated = [c for c in found["candidates"] if "gate" in c["parameters"]]
    assert gated
    assert found["chosen"]["beyond"] is not None
    shown = run(*LOOK, votes_file, *QUICK, *few)
    assert f"{found['chosen']['beyond']:.4f} if all 12 queries are answered" in shown.stdout


def test_probabilities_need_a_threshold(run: Run, votes: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "soft.npy", np.where(votes, 0.8, 0.3))
    call = (*LOOK, tmp_path / "soft.npy", *QUICK, "--sigma", 6)
    assert run(*call).exit_code == 2
    assert run(*call, "--threshold", 0.5).exit_code == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--voters", 20), "--voters cannot be given here: --votes says that itself"),
        (("--wanted", 20), "--wanted cannot be given here"),
        (("--surprises-per-query", 1), "--surprises-per-query cannot be given here"),
        (("--link-cost", 0.1, "--link-order", 4), "--link-cost does not go with --votes: links"),
        (("--gate-threshold", 9, "--gate-sigma", 4), "does not go with --votes: give --gate"),
        (("--false-alarm", 0.1), "--false-alarm does not go with --votes: a bar that moves"),
        (("--truth", "absent.npy"), "--truth 'absent.npy' cannot be read"),
        (("--tau", 1), "--tau goes with mechanism 'tau'"),
        (("--measure", "f1"), "measure must be one of"),
        (("--quota", 0.3, "--gate"), "a gate goes with the bar at one half"),
    ],
)
def test_flags_that_do_not_go_with_votes(
    run: Run, votes_file: Path, flags: tuple[Any, ...], message: str
) -> None:
    done = run(*LOOK, votes_file, *QUICK, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_looking_must_be_allowed(run: Run, votes_file: Path) -> None:
    done = run("plan", *BINARY, "--epsilon", 8, "--delta", 1e-5, "--votes", votes_file)
    assert done.exit_code == 2
    assert "--votes-are-public must be given with --votes" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("flag", [("--votes-are-public",), ("--floor", 0.9), ("--gate",)])
def test_flags_that_need_votes(run: Run, flag: tuple[Any, ...]) -> None:
    done = run("plan", *BINARY, *WHERE, "--sigma", 7, *flag)
    assert done.exit_code == 2
    assert f"{flag[0]} cannot be given here: it goes with --votes" in done.stderr


def test_a_floor_out_of_reach_is_exit_code_3(run: Run, votes_file: Path) -> None:
    done = run(*LOOK, votes_file, *BINARY, "--floor", 0.99999, "--sigma", 12)
    assert done.exit_code == 3
    assert "reaches --floor 0.99999: the best agreement is" in done.stderr
    assert done.stdout == ""
