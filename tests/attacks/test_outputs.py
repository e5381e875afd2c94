"""Attacks on what was paid for: a release that is charged must not get lost.

A run is killed at moments spread over all calls inside privote, so over every line of the work and
not over the time that imports take. Afterwards either nothing is charged, or the labels are there,
or the same command with --resume brings them, at no further charge. One window is left, inside the
guardian, between the charge and the draft: a crash there wastes budget, never privacy.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, scaled
from typer.testing import CliRunner

from privote.cli import app
from privote.guardian import Guardian

# Imports once, then one process a run, which counts its calls inside privote and may end at one.
# A call is inside the guardian while any frame of the guardian is open.
DRIVER = """
import json, os, signal, sys, threading
import privote.cli, privote.learning, privote.labelling, sklearn.linear_model, skops.io
import privote.cli.files, privote.cli.progress, privote.learning.jobs, privote.report.training
import privote.statements, privote.votefiles, typer._adapters

def run(job):
    calls, where, guarding = [0, 0], {}, set()
    def place(code):
        file = code.co_filename
        where[code] = found = ("/privote/" in file) + ("/privote/guardian/" in file)
        return found
    def count(frame, event, argument):
        if event not in ("call", "return"):
            return
        code = frame.f_code
        found = where[code] if code in where else place(code)
        if not found:
            return
        if found == 2:
            (guarding.add if event == "call" else guarding.discard)(frame)
        if event != "call":
            return
        inside = bool(guarding)
        calls[0] += 1
        calls[1] += not inside
        if inside and not job["inside"]:
            return
        if calls[not job["inside"]] == job["at"]:
            with open(job["mark"], "w") as stream:
                stream.write("window" if inside else "outside")
            os.kill(os.getpid(), job["signal"])
    os.dup2(os.open(job["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    os.dup2(2, 1)
    sys.setprofile(count)
    code = 0
    try:
        privote.cli.app(job["arguments"])
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.setprofile(None)
    with open(job["calls"], "w") as stream:
        json.dump(calls, stream)
    os._exit(code)

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(json.loads(line))
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""


class Runs:
    """Runs of privote, each in a process of its own that may be made to die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._moments: dict[Any, list[tuple[int, bool]]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "300"},
            text=True,
        )

    def go(
        self, *arguments: object, at: int = -1, signal: int = 9, inside: bool = True
    ) -> tuple[int, str]:
        """Return the exit code, and what was printed.

        The process is ended at one of its calls inside privote; ``inside`` False leaves out those
        inside the guardian.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        names = ("mark", "log", "calls")
        files = {name: str(self.folder / f"driver.{name}") for name in names}
        for file in files.values():
            Path(file).unlink(missing_ok=True)
        job = {"arguments": [str(part) for part in arguments], "at": at, "signal": signal, **files}
        job["inside"] = inside
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        return code, Path(files["log"]).read_text()

    def moments(self, command: Any) -> list[tuple[int, bool]]:
        """Return calls spread over a whole run: over all, and over those outside the guardian."""
        if command not in self._moments:
            whole = self.folder / command.__name__
            whole.mkdir()
            code, log = self.go(*command(whole))
            assert code == 0, log
            assert finished(whole)
            counts = json.loads((self.folder / "driver.calls").read_text())
            self._moments[command] = [
                (at, inside)
                for inside, calls in zip((True, False), counts, strict=True)
                for at in np.linspace(1, calls, scaled(2, 25) + 2)[1:-1].astype(int).tolist()
            ]
        return self._moments[command]

    @property
    def in_window(self) -> bool:
        """Whether the last process was ended between charge and draft, or before the charge."""
        mark = self.folder / "driver.mark"
        return mark.exists() and mark.read_text() == "window"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Runs(tmp_path_factory.mktemp("driver"))
    yield made
    made.close()


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(part) for part in arguments])


def entries(ledger: Path) -> int:
    """Return how many charges and answers a ledger holds."""
    if not ledger.exists() or not ledger.stat().st_size:  # killed while it was made
        return 0
    shown = invoke("ledger", "show", ledger, "--json")
    if shown.exit_code == 4 and "no key yet" in shown.output:
        return 0
    assert shown.exit_code == 0, shown.output
    return len(json.loads(shown.stdout)["entries"])


def label_command(folder: Path, queries: int = 40) -> list[object]:
    rng = np.random.default_rng(0)
    np.save(folder / "votes.npy", rng.random((queries, 20, 4)) < 0.2)
    return [
        "label", folder / "votes.npy", "--mechanism", "binary", "--sigma", 7, "--epsilon", 8,
        "--delta", 1e-5, "--ledger", folder / "a.ledger", "--output", folder / "out.csv",
        "--statement", folder / "out.txt",
    ]  # fmt: skip


def train_command(folder: Path) -> list[object]:
    rng = np.random.default_rng(0)
    for name, rows in (("private", 120), ("public", 40)):
        X = rng.normal(size=(rows, 3))
        Y = (X[:, :2] > 0.4).astype(int)
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["a", "b", "c", "flu", "cold"])
            writer.writerows(np.column_stack([X, Y]).tolist())
    return [
        "train", folder / "private.csv", "--labels", "flu,cold", "--public", folder / "public.csv",
        "--teachers", 8, "--rounds", 2, "--queries", 20, "--epsilon", 8, "--delta", 1e-5,
        "--ledger", folder / "a.ledger", "--output", folder / "run",
    ]  # fmt: skip


def finished(folder: Path) -> bool:
    """Return whether everything that was to be written is there, and nothing else."""
    left = [*folder.rglob("*.draft"), *folder.rglob("*.part*"), *folder.glob(".out*")]
    if (folder / "run").exists() or (folder / "private.csv").exists():
        wanted = ("student.student", "labels.csv", "statement.txt", "statement.json", "report.html")
        files = [folder / "run" / name for name in wanted]
    else:
        files = [folder / "out.csv", folder / "out.txt", folder / "out.json"]
    return not left and all(file.exists() and file.stat().st_size for file in files)


@pytest.mark.parametrize("signal", [9, 2], ids=["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("command", [label_command, train_command], ids=["label", "train"])
def test_killed_at_any_moment(
    tmp_path: Path, runs: Runs, outcome: Outcome, command: Any, signal: int
) -> None:
    tried, through = 0, []
    for turn, (at, inside) in enumerate(runs.moments(command)):
        folder = tmp_path / f"{turn}"
        folder.mkdir()
        arguments, ledger = command(folder), folder / "a.ledger"
        code, log = runs.go(*arguments, at=at, signal=signal, inside=inside)
        window = runs.in_window
        charged = entries(ledger)
        tried += 1
        if signal == 2 and charged and not window and not finished(folder) and code != 6:
            through.append((at, "does not say that it is charged", code, log))
        if not charged:  # nothing stands in the way of the next run
            code, log = runs.go(*arguments)
            good = code == 0 and finished(folder)
        elif finished(folder):
            good = True
        else:
            code, log = runs.go(*arguments, "--resume")
            good = (code == 0 and finished(folder)) or (window and code == 2)
            good = good and entries(ledger) == charged
        if not good:
            through.append((at, window, code, log))
    verb, name = command.__name__.split("_")[0], {9: "SIGKILL", 2: "SIGINT"}[signal]
    print(through)
    outcome(f"{verb} ended by {name}: charged labels lost, or charged twice", tried, len(through))


def test_a_full_disk(tmp_path: Path, runs: Runs, outcome: Outcome) -> None:
    """Whatever a file may grow to: nothing is charged, or the labels can be had."""
    tried = through = 0
    for turn, kilobytes in enumerate(np.linspace(100, 700, scaled(3, 20)).astype(int).tolist()):
        folder = tmp_path / f"{turn}"
        folder.mkdir()
        arguments = label_command(folder, queries=60_000)
        limit = (kilobytes * 1024, resource.RLIM_INFINITY)
        result = subprocess.run(
            [sys.executable, "-m", "privote", *[str(part) for part in arguments]],
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
            capture_output=True,
            text=True,
            check=False,
        )
        tried += 1
        charged = entries(folder / "a.ledger")
        if charged and not finished(folder):
            code, _ = runs.go(*arguments, "--resume")
            kept = code == 0 and finished(folder) and entries(folder / "a.ledger") == charged
            through += not (kept and result.returncode == 6)
        elif not charged:
            through += result.returncode != 2 or (folder / "out.csv").exists()
    outcome("labels that outgrow the disk", tried, through)


def test_an_output_that_leads_nowhere(tmp_path: Path, outcome: Outcome) -> None:
    through = 0
    for name in ("out.csv", "out.txt", "out.json"):
        folder = tmp_path / name
        folder.mkdir()
        arguments = label_command(folder)
        (folder / name).symlink_to(folder / "nowhere" / "file")
        result = invoke(*arguments)
        through += result.exit_code != 2 or entries(folder / "a.ledger") > 0
    arguments = train_command(tmp_path)
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    through += invoke(*arguments).exit_code != 2 or entries(tmp_path / "a.ledger") > 0
    outcome("an output that is a dangling link", 4, through)


@pytest.mark.parametrize("name", ["out.csv", "out.txt"])
def test_an_output_that_is_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, name: str
) -> None:
    real = Guardian.release

    def slow(self: Guardian, *arguments: Any, **named: Any) -> Any:
        made = real(self, *arguments, **named)
        (tmp_path / name).write_text("mine")
        return made

    arguments = label_command(tmp_path)
    monkeypatch.setattr(Guardian, "release", slow)
    result = invoke(*arguments)
    charged = entries(tmp_path / "a.ledger")
    through = result.exit_code != 6 or "is charged" not in result.output
    through |= (tmp_path / name).read_text() != "mine"
    (tmp_path / name).unlink()
    through |= invoke(*arguments, "--resume").exit_code != 0
    through |= not finished(tmp_path) or entries(tmp_path / "a.ledger") != charged
    outcome(f"{name} made meanwhile", 1, int(through))


def test_labels_of_other_votes_are_not_resumed(tmp_path: Path, outcome: Outcome) -> None:
    """What lies in a draft is about the votes, or rows, that it was asked for."""
    rng = np.random.default_rng(0)
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, rng.random((4, 9, 2)) < 0.5)
    arguments = ["--mechanism", "binary", "--sigma", "9", "--epsilon", "8", "--delta", "1e-5"]
    arguments += ["--output", str(tmp_path / "labels.csv")]
    (tmp_path / ".labels.part.csv").mkdir()  # where the file is to be written
    broken = invoke("label", str(tmp_path / "a.npy"), *arguments)
    assert broken.exit_code == 6
    assert "Do the same again with --resume" in broken.stderr
    (tmp_path / ".labels.part.csv").rmdir()
    other = invoke("label", str(tmp_path / "b.npy"), *arguments, "--resume")
    outcome("labels of other votes, resumed", 1, int(other.exit_code != 2))
    assert "votes was 'a.npy', got 'b.npy'" in other.output
    assert invoke("label", str(tmp_path / "a.npy"), *arguments, "--resume").exit_code == 0
