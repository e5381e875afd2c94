from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, write_rows

from privote.cli.output import Spelling
from privote.errors import InputError

SPELLING = {
    "epsilon": "--epsilon",
    "queries": "--queries",
    "false_alarm": "--false-alarm",
    "quota": "--quota",
    "sigma": "--sigma",
    "gate sigma": "--gate-sigma",
    "X_public": "--public",
    "X": "DATA",
}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("gate sigma", "must be positive"), "--gate-sigma must be positive"),
        (InputError("X_public", "must be like `X`"), "--public must be like DATA"),
        (InputError("`epsilon=8` allows 3 queries"), "--epsilon 8 allows 3 queries"),
        (InputError("got `quota=0.3`, `false_alarm=None`"), "got --quota 0.3, no --false-alarm"),
        (InputError("alpha", "goes with `beta=True`"), "alpha goes with beta=True"),
    ],
)
def test_arguments_become_options(error: InputError, expected: str) -> None:
    assert error.worded(Spelling(SPELLING).spell) == expected


# -- warnings --------------------------------------------------------------------------------------

SILLY = ("--epsilon", 1000, "--delta", 0.3)
SENSIBLE = ("--epsilon", 20, "--delta", 0.02)
TRAIN = ("train", "rows.csv", "--columns", "a,b,c")
SIZES = ("--voters", 40, "--labels", 2)
BUDGETED: dict[str, tuple[object, ...]] = {
    "label": ("label", "votes.npy", "--mechanism", "binary", "--sigma", 2, "--output", "l.csv"),
    "train": (*TRAIN, "--labels", "flu", "--public", "public.csv", "--output", "run"),
    "poll": ("poll", "poll.csv"),
    "plan": ("plan", *SIZES, "--mechanism", "binary", "--sigma", 2),
    "poll --plan": ("poll", "--plan", "--voters", 40, "--options", 3),
    "capc": ("capc", "simulate", "--parties", 4, "--queries", 2, "--clear", "--output", "trial"),
}


@pytest.mark.parametrize("verb", BUDGETED)
def test_a_budget_that_promises_little_is_said_once(run: Run, tmp_path: Path, verb: str) -> None:
    np.save(tmp_path / "votes.npy", np.zeros((3, 40, 2), bool))
    write_rows(tmp_path, rows=40, public=39)
    ballots = [f"{place % 2},{place % 3 % 2}" for place in range(40)]
    (tmp_path / "poll.csv").write_text("\n".join(["Ada,Bo", *ballots]))
    done = run(*BUDGETED[verb], *SILLY)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("warning: delta 0.3 ") == 1
    assert done.stderr.count("warning: epsilon 1000 ") == 1
    again = () if verb.startswith(("plan", "poll")) else ("--output", "again.csv")
    quiet = run(*BUDGETED[verb], *SENSIBLE, *again)
    assert quiet.exit_code == 0, quiet.stderr
    assert "a delta of" not in quiet.stderr
    assert "an epsilon of" not in quiet.stderr
