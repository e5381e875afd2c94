from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from tests.cli.conftest import Run

from privote.cli import app
from privote.cli.wording import Spelling, Verb
from privote.errors import InputError

SPELLING = {
    "epsilon": "--epsilon",
    "queries": "--queries",
    "false_alarm": "--false-alarm",
    "quota": "--quota",
    "sigma": "--sigma",
    "gate sigma": "--gate-sigma",
    "votes": "VOTES",
    "X_public": "--public",
    "X": "DATA",
    "labels": "--labels",
}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("epsilon", "must be finite", 0.0), "--epsilon must be finite, got 0.0"),
        (InputError("gate sigma", "must be positive"), "--gate-sigma must be positive"),
        (InputError("X_public", "must be like `X`"), "--public must be like DATA"),
        (InputError("`epsilon=8` allows 3 queries"), "--epsilon 8 allows 3 queries"),
        (InputError("got `quota=0.3`, `false_alarm=None`"), "got --quota 0.3, no --false-alarm"),
        (InputError("alpha", "goes with `beta=True`"), "alpha goes with beta=True"),
        (InputError("a larger sigma, or fewer queries"), "a larger sigma, or fewer queries"),
    ],
)
def test_arguments_become_options(error: InputError, expected: str) -> None:
    assert error.worded(Spelling(SPELLING).spell) == expected


def test_every_verb_speaks_so() -> None:
    def verbs(group: object) -> list[object]:
        commands = getattr(group, "commands", None)
        return [group] if commands is None else [v for c in commands.values() for v in verbs(c)]

    found = verbs(typer.main.get_command(app))
    assert len(found) > 10
    assert all(isinstance(verb, Verb) for verb in found)


BUDGET = ("--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary", "--sigma", 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("label", "VOTES", *BINARY, *BUDGET, "--guarantee", "ptr"), "--queries must be given for"),
        (("label", "VOTES", *BINARY, *BUDGET, "--quota", 0.3, "--false-alarm", 0.1), "--quota and"),
        (("label", "VOTES", *BINARY, *BUDGET, "--seed", -1), "--seed must be None or an integer"),
        (("plan", *BINARY, *BUDGET, "--voters", 0, "--labels", 2), "--voters must be an integer"),
        (("label", "VOTES", *BINARY, *BUDGET, "--queries", 99), "--queries must"),
        (("tune", "VOTES", *BUDGET, "--over", "tau", "--sigma", -1), "--sigma must be finite"),
        (
            ("train", "scenes", *BUDGET, "--teachers", 0),
            "--teachers must be an integer of at least",
        ),
        (("train", "scenes", *BUDGET, "--rounds", 0), "--rounds must be"),
        (("audit", "--elections", 0), "--elections must be an integer of at least 1, got 0"),
        (("tune", "VOTES", *BUDGET, "--over", "sigma", "--values", -1), "--values must"),
    ],
)
def test_messages_name_options(
    run: Run, votes_file: Path, words: tuple[object, ...], message: str
) -> None:
    words = tuple(votes_file if word == "VOTES" else word for word in words)
    output = ("--output", "out.csv") if words[0] in ("label", "train") else ()
    done = run(*words, *output)
    assert done.exit_code == 2
    assert f"error: {message}" in done.stderr
    assert not Path("out.csv").exists()


def test_public_rows_that_do_not_fit_are_named(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in np.round(rng.random((30, 2)), 3).tolist()]
    private = ["a,b,flu", *(f"{line},{i % 2}" for i, line in enumerate(lines))]
    (tmp_path / "private.csv").write_text("\n".join(private))
    (tmp_path / "public.csv").write_text("a,b\n0.1,0.2")
    call = ("train", "private.csv", "--labels", "flu", "--public", "public.csv", *BUDGET)
    done = run(*call, "--method", "neighbours", "--output", "run")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: public.csv must have two public rows or more, got 1")
