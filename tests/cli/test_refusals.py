"""What each verb refuses: which option is at fault, in one line, before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, write_rows

BUDGET = ("--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary", "--sigma", 7)
TAU = ("--mechanism", "tau", "--sigma", 7)
LABEL = ("label", "votes.npy", *BUDGET, "--output", "labels.csv")
PLAN = ("plan", *BUDGET, "--voters", 50, "--labels", 20)
POLL = ("poll", "poll.csv", *BUDGET)
CAPC = ("capc", "simulate", "--clear", "--queries", 5, "--output", "out")
TRAIN = ("train", "rows.csv", *BUDGET, "--columns", "a,b,c", "--output", "run")
FLU = (*TRAIN, "--labels", "flu", "--public", "public.csv")
VOTES = ("votes", "flat.npy", "models", "--output")

CASES: list[tuple[tuple[object, ...], str]] = [
    ((*LABEL, "--mechanism", "borda", "--sigma", 7), "--mechanism"),
    ((*LABEL, "--mechanism", "binary"), "--sigma"),
    ((*LABEL, *TAU, "--tau", 1, "--quota", 0.3), "--quota"),
    ((*LABEL, *BINARY, "--gate-sigma", 3), "--gate-threshold"),
    ((*LABEL, *BINARY, "--threshold", "half"), "--threshold"),
    ((*LABEL, *BINARY, "--guarantee", "hope"), "--guarantee"),
    ((*LABEL, *BINARY, "--guarantee", "data-dependent"), "--queries"),
    ((*LABEL, *BINARY, "--baseline", "guess.txt"), "--baseline"),
    ((*LABEL, *BINARY, "--clip"), "--clip"),
    ((*LABEL, *BINARY, "--dataset", "mine"), "--dataset"),
    ((*LABEL, *BINARY, "--delta", 2), "--delta"),
    ((*LABEL, *BINARY, "--output", "labels.txt"), "--output"),
    ((*LABEL, *BINARY, "--output", "absent/labels.csv"), "--output"),
    ((*LABEL, *BINARY, "--output", "s3://me:hunter2@bucket/labels.csv"), "--output"),
    ((*LABEL, *BINARY, "--report", "a.pdf"), "--report"),
    ((*LABEL, *BINARY, "--probabilities", "chances.csv"), "--probabilities"),
    (("label", "soft.npy", *LABEL[2:], *BINARY), "votes[query 0, voter 0, label 0]"),
    (("label", "absent.npy", *LABEL[2:], *BINARY), "votes file"),
    (PLAN, "--queries"),
    ((*PLAN, "--queries", 9, "--sigma", 5), "--sigma"),
    ((*PLAN, *BINARY, "--yes", 0.1), "--yes"),
    ((*POLL, "--seats", 2, "--quota", 0.5), "--seats"),
    ((*POLL, "--people", "club"), "--dataset"),
    ((*POLL, "--most", 1), "line 2"),
    ((*POLL, "--show-sealed"), "--show-sealed"),
    ((*POLL, "--encoding", "klingon"), "--encoding"),
    ((*POLL, "--output", "poll.csv"), "--output"),
    ((*POLL, "--output", "x" * 300), "too long"),
    (("predict", "absent.student", "poll.csv", "--output", "p.csv"), "absent.student"),
    ((*POLL, "--options", "poll.utf16"), "--options"),
    (("audit", "--mechanism", "borda"), "--mechanism"),
    (("audit", "--labels", 40), "--labels"),
    (("demo", "--records", 0), "--records"),
    (("demo", "--output", "votes.npy"), "--output"),
    ((*CAPC, "--parties", 1), "--parties"),
    ((*CAPC, "--mechanism", "plurality", "--sigma", 3), "--mechanism"),
    ((*TRAIN, "--labels", "flu", "--method", "moments"), "--public"),
    ((*TRAIN, "--labels", "flu", "--public", "rows.csv"), "--public"),
    ((*TRAIN, "--public", "public.csv"), "--labels"),
    ((*TRAIN, "--public", "public.csv", "--labels", "sick"), "'sick'"),
    ((*FLU, "--sigma", 3), "--sigma"),
    ((*FLU, "--student", "cat"), "--student"),
    ((*FLU, "--threshold", "high"), "--threshold"),
    ((*FLU, "--method", "magic"), "--method"),
    ((*FLU, "--method", "gradients", *BINARY), "--mechanism"),
    ((*FLU, "--method", "dpsgd", "--network", "cat"), "--network"),
    ((*FLU, "--method", "teachers", "--steps", 5), "--steps"),
    ((*FLU, "--method", "neighbours", "--teacher", "resnet50"), "--teacher"),
    ((*FLU, "--embedding", "efficientnet-lite0"), "--embedding"),
    ((*VOTES, "v.zarr"), "--labels"),
    ((*VOTES, "s3://me:hunter2@bucket/v.zarr", "--labels", "flu"), "--output"),
    ((*VOTES, "v.zarr", "--labels", "flu", "--address", "tcp://x:1"), "--address"),
    (("votes", "flat.npy", "nobody", "--labels", "flu", "--output", "v.zarr"), "VOTERS"),
    (("votes", "flat.npy", "ask:vote", "--labels", "flu", "--output", "v.zarr"), "--names"),
]


@pytest.mark.parametrize(("words", "named"), CASES)
def test_the_option_at_fault_is_named(
    words: tuple[object, ...], named: str, run: Run, votes_file: Path, tmp_path: Path
) -> None:
    if words[0] == "capc":
        pytest.importorskip("grpc")
    np.save(tmp_path / "flat.npy", np.zeros((3, 4)))
    np.save(tmp_path / "soft.npy", np.full((2, 3, 4), 0.5))
    (tmp_path / "broken.npy").write_bytes(b"nonsense")
    (tmp_path / "empty.csv").write_text("")
    ballots = "".join(f"v{voter};1;{voter % 2 == 0:d}\n" for voter in range(300))
    (tmp_path / "poll.csv").write_text(f"voter;Ada;Bo\n{ballots}")
    (tmp_path / "poll.utf16").write_text("Ada\nBo\n", encoding="utf-16")
    write_rows(tmp_path, rows=40, public=20)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.joblib").write_bytes(b"")
    before = {*tmp_path.iterdir()}
    done = run(*words, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == found["exit_code"] == 2
    assert found["argument"] in (named, None)
    assert named in found["error"]
    assert done.stderr.count("error: ") == 1
    assert "hunter2" not in done.stdout + done.stderr
    assert {*tmp_path.iterdir()} == before
