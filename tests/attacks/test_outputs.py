"""Attacks on what was paid for: a release that is charged must not get lost.

A run is killed at random moments after its charge: at calls inside privote, and of the system from
there, so over every line of the work and not over the time that imports take. Afterwards all that
was asked for is there, or the same command with --resume brings it: as much of it, at the same
price, with one charge in the ledger, and nothing else left behind.
"""

from __future__ import annotations

import csv
import errno
import json
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, in_a_child, scaled, write_poll
from tests.cli.conftest import invoke

from privote.cli import app, main
from privote.errors import StorageError
from privote.ledger import Ledger, Run

# Imports once; then each run is a process of its own.
SERVER = multiprocessing.get_context("forkserver")
LOADED = "labelling learning.private polls report.polls report.training votes.arrays"
SERVER.set_forkserver_preload(
    ["skops.io", "sklearn.linear_model", *(f"privote.{name}" for name in LOADED.split()), __name__]
)


def run(words: list[str], log: Path, at: int, signal: int, stdout: str | None) -> None:
    """Run privote in this process, which ends at one of its calls after the charge."""
    calls, commit = 0, Ledger._settle

    def committed(self: Ledger, before: Any, added: Any, after: Any) -> None:
        if any(json.loads(row.body)["kind"] == "charge" for row in added):
            sys.setprofile(count)
        commit(self, before, added, after)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call") and "/privote/" in frame.f_code.co_filename:
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal)

    Ledger._settle = committed  # type: ignore[method-assign]
    os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    os.dup2(2, 1)
    code = 0
    try:
        if stdout is None:
            app(words)
        else:
            break_stdout(stdout)
            sys.argv = ["privote", *words]
            main()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        sys.setprofile(None)
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python has it
    log.with_name("calls").write_text(f"{calls}")
    os._exit(code)


def break_stdout(how: str) -> None:
    if how == "closed":
        sys.stdout = None  # type: ignore[assignment]
        os.close(1)
    elif how == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    else:
        nobody, writer = os.pipe()
        os.close(nobody)
        os.dup2(writer, 1)


class Runs:
    """Runs of privote, each in a process of its own that may be made to die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole: dict[str, tuple[int, list[str], list[Any]]] = {}

    def go(
        self, *arguments: object, at: int = -1, signal: int = 9, stdout: str | None = None
    ) -> tuple[int | None, str]:
        """Return the exit code, and what was printed.

        The process is ended at one of its calls after the charge; or its standard output is broken.
        """
        log, words = self.folder / "log", [str(part) for part in arguments]
        process = SERVER.Process(target=run, args=(words, log, at, signal, stdout))
        process.start()
        process.join()
        return process.exitcode, log.read_text()

    def whole(self, case: str) -> tuple[int, list[str], list[Any]]:
        """Return how many calls a run has after its charge, its files, and what they amount to."""
        if case not in self._whole:
            folder = made(self.folder / case)
            code, log = self.go(*COMMANDS[case](folder))
            assert code == 0, log
            calls = int((self.folder / "calls").read_text())
            self._whole[case] = calls, files_in(folder), amount(folder)
        return self._whole[case]


def made(folder: Path) -> Path:
    """Make a folder."""
    folder.mkdir()
    return folder


def files_in(folder: Path) -> list[str]:
    """Return what lies in a folder, but the ledger's own files."""
    found = (str(file.relative_to(folder)) for file in folder.rglob("*"))
    return sorted(name for name in found if not name.startswith("a.ledger"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("COLUMNS", "300")
        ensure_running()
    return Runs(tmp_path_factory.mktemp("runs"))


def entries(ledger: Path) -> int:
    """Return how many charges a ledger holds."""
    if not ledger.exists() or not ledger.stat().st_size:
        return 0
    shown = invoke("ledger", "show", ledger, "--json")
    assert shown.exit_code == 0, shown.output
    return sum(entry["kind"] == "charge" for entry in json.loads(shown.stdout)["entries"])


def label_command(folder: Path, queries: int = 40) -> list[object]:
    rng = np.random.default_rng(0)
    np.save(folder / "votes.npy", rng.random((queries, 20, 4)) < 0.2)
    return [
        "label", folder / "votes.npy", "--mechanism", "binary", "--sigma", 7, "--epsilon", 8,
        "--delta", 1e-5, "--ledger", folder / "a.ledger", "--output", folder / "out.csv",
        "--statement", folder / "out.txt",
    ]  # fmt: skip


def poll_command(folder: Path) -> list[object]:
    return [
        "poll", write_poll(folder), "--epsilon", 1, "--delta", 1e-6, "--seats", 1, "--shares",
        "--dataset", "club", "--ledger", folder / "a.ledger", "--output", folder / "page",
    ]  # fmt: skip


def train_command(folder: Path, method: tuple[object, ...]) -> list[object]:
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
        "--epsilon", 8, "--delta", 1e-5, "--ledger", folder / "a.ledger", "--output",
        folder / "run", "--method", *method,
    ]  # fmt: skip


# What a run amounts to: numbers that are not drawn.
RESULTS = ("out.json", "page/poll.json", "run/statement.json")
FACTS = ("gap", "answered", "records", "method")


def amount(folder: Path) -> list[Any]:
    """Return what the files of a run amount to, to compare: of any verb."""
    (file,) = (each for each in RESULTS if (folder / each).exists())
    facts = json.loads((folder / file).read_text())
    tables = [folder / "out.csv", folder / "run" / "labels.csv"]
    rows = [len(table.read_text().splitlines()) for table in tables if table.exists()]
    guarantee, standing = facts["guarantee"], facts["guarantee"]["standing"]
    shares, cost = len(facts.get("shares") or ()), guarantee["epsilon"]
    return [rows, shares, guarantee["terms"], cost, standing["total"], *map(facts.get, FACTS)]


COMMANDS: dict[str, Callable[[Path], list[object]]] = {
    "label": label_command,
    "poll": poll_command,
    **{
        f"train-{method}": partial(train_command, method=(method, *more))
        for method, *more in (
            ("teachers", "--teachers", 8, "--queries", 20),
            ("neighbours",),
            ("gradients", "--steps", 20),
            ("moments",),
            ("dpsgd", "--steps", 8, "--sample-rate", 0.5, "--network", "linear"),
        )
    },
}


def finished(folder: Path) -> bool:
    """Return whether everything that label was to write is there, and nothing else."""
    files = ["out.csv", "out.json", "out.txt", "votes.npy"]
    return files_in(folder) == files and all((folder / name).stat().st_size for name in files)


@pytest.mark.parametrize("signal", [9, 2], ids=["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("case", COMMANDS)
def test_killed_at_any_moment_after_the_charge(
    tmp_path: Path, runs: Runs, outcome: Outcome, case: str, signal: int
) -> None:
    """The same command without --resume would pay again: it is refused, and changes nothing."""
    if "dpsgd" in case:
        pytest.importorskip("opacus")
    calls, files, wanted = runs.whole(case)
    rng, found = np.random.default_rng(signal), []
    most = 40 if "train" in case else 200
    kills = scaled(2, most) if signal == 9 else scaled(1, most // 4)
    for turn in range(kills):
        folder = made(tmp_path / f"{turn}")
        arguments, ledger = COMMANDS[case](folder), folder / "a.ledger"
        # Half of them soon after the charge, the others anywhere.
        at = int(calls ** rng.random() if turn % 2 else 1 + calls * rng.random())
        code, log = runs.go(*arguments, at=at, signal=signal)
        left = files_in(folder)
        good = entries(ledger) == 1
        if signal == 2:
            good &= code in (0, 6, 130)
        if left != files:
            code, log = runs.go(*arguments)
            good &= code in (2, 3) and "--resume" in log and files_in(folder) == left
        code, log = runs.go(*arguments, "--resume")  # or it says that all is complete
        good &= code == 0
        good = good and files_in(folder) == files and amount(folder) == wanted
        good = good and entries(ledger) == 1
        good = good and invoke("ledger", "verify", ledger).exit_code == 0
        found.append(None if good else (at, calls, left, code, log, files_in(folder)))
    name = {9: "SIGKILL", 2: "SIGINT"}[signal]
    outcome.of(f"{case} ended by {name} after the charge: lost, or charged twice", found)


def printed(folder: Path) -> dict[str, tuple[list[object], int]]:
    """Return commands that print, and their exit codes where nothing can be printed."""
    label = label_command(folder)
    train = [*train_command(folder, ("moments",)), "--dataset", "rows"]
    budget = ["--epsilon", 8, "--delta", 1e-5]
    sizes = ["--voters", 20, "--labels", 4, "--queries", 10, *budget]
    ledger, student = folder / "a.ledger", folder / "run" / "student.student"
    alone = poll_command(folder)[:-2]
    return {  # what is on disk is there; what was only printed is lost
        "label": (label, 0),
        "train": (train, 0),
        "predict": (["predict", student, folder / "public.csv", "--output", folder / "p.csv"], 0),
        "poll": ([*alone, "--output", folder / "page"], 0),
        "poll, no folder": ([*alone, "--title", "again", "--dataset", "others"], 6),
        "poll, no ledger": (["poll", folder / "poll.csv", *budget], 7),
        "plan": (["plan", *sizes], 7),
        "plan of a poll": (["poll", "--plan", "--voters", 50, "--options", 3, *budget], 7),
        "audit": (["audit", "--mechanism", "binary", "--elections", 1], 7),
        "ledger show": (["ledger", "show", ledger], 7),
        "ledger verify": (["ledger", "verify", ledger, "--json"], 7),
        "ledger export": (["ledger", "export", ledger, "--output", folder / "l.json"], 0),
        "ledger backup": (["ledger", "backup", ledger, "--output", folder / "copy.db"], 0),
    }


@pytest.mark.parametrize("how", ["full", "closed", "pipe"])
def test_standard_output_that_fails(tmp_path: Path, runs: Runs, outcome: Outcome, how: str) -> None:
    """Results are on disk before anything is printed; then it is one sentence, and no traceback."""
    commands, found = printed(tmp_path), []
    for name, (arguments, lost) in commands.items():
        code, log = runs.go(*arguments, stdout=how)
        wanted = lost if how != "pipe" or lost == 6 else 0
        silent = how == "pipe" and lost != 6
        said = [line for line in log.splitlines() if "standard output cannot be written" in line]
        good = code == wanted and "Traceback" not in log and len(said) == (not silent)
        found.append(None if good else (name, code, wanted, log))
    written = ["out.csv", "run/student.student", "p.csv", "page/poll.html", "l.json", "copy.db"]
    found += [None if (tmp_path / file).exists() else file for file in written]
    code, log = runs.go(*commands["poll, no folder"][0], "--resume")
    assert code == 0, log
    assert "Ada" in log
    outcome.of(f"standard output that is {how}, in every verb", found)


def test_a_full_disk(tmp_path: Path, runs: Runs, outcome: Outcome) -> None:
    """Whatever a file may grow to: nothing is charged, or the labels can be had."""
    found = []
    for turn, kilobytes in enumerate(np.linspace(100, 700, scaled(3, 20)).astype(int).tolist()):
        folder = made(tmp_path / f"{turn}")
        arguments = label_command(folder, queries=60_000)
        limit = (kilobytes * 1024, resource.RLIM_INFINITY)

        def job(arguments: Any = arguments, limit: Any = limit) -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            return int(invoke(*arguments).exit_code)

        code = in_a_child(job)
        charged = entries(folder / "a.ledger")
        lost = code not in (2, 7) or (folder / "out.csv").exists()
        if charged and not finished(folder):
            again, _ = runs.go(*arguments, "--resume")
            kept = again == 0 and finished(folder) and entries(folder / "a.ledger") == charged
            lost = not (kept and code == 6)
        elif charged:
            lost = False
        found.append(lost)
    outcome.of("labels that outgrow the disk", found)


def test_a_disk_that_is_full_right_after_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """The charge is in the ledger, its anchor cannot follow: what is paid for can still be had."""
    commit, found = Ledger._settle, []

    def full(*_: object, **__: object) -> None:
        raise StorageError(os.strerror(errno.ENOSPC))

    for name in ("label", "poll", "train-moments"):
        folder = made(tmp_path / name)
        arguments = COMMANDS[name](folder)
        with monkeypatch.context() as patched:

            def committed(self: Ledger, before: Any, added: Any, after: Any) -> None:
                if any(json.loads(row.body)["kind"] == "charge" for row in added):
                    patched.setattr("privote.ledger.chain.Anchor.write", full)
                commit(self, before, added, after)

            patched.setattr(Ledger, "_settle", committed)
            first = invoke(*arguments)
        again = invoke(*arguments, "--resume")
        good = first.exit_code in (4, 6) and again.exit_code == 0
        good &= entries(folder / "a.ledger") == 1
        found.append(None if good else (name, first.exit_code, first.output, again.output))
    outcome.of("charged, and the disk is full before the anchor", found)


@pytest.mark.parametrize("name", ["out.csv", "out.txt", "out.json", "run"])
def test_an_output_that_leads_nowhere(tmp_path: Path, outcome: Outcome, name: str) -> None:
    arguments = COMMANDS["train-moments" if name == "run" else "label"](tmp_path)
    (tmp_path / name).symlink_to(tmp_path / ("nowhere" if name == "run" else "nowhere/file"))
    code = invoke(*arguments).exit_code
    outcome("an output that is a dangling link", 1, code != 2 or entries(tmp_path / "a.ledger") > 0)


@pytest.mark.parametrize("name", ["out.csv", "out.txt"])
def test_an_output_that_is_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, name: str
) -> None:
    real = Run.commit

    def slow(self: Run, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        (tmp_path / name).write_text("mine")

    arguments = label_command(tmp_path)
    monkeypatch.setattr(Run, "commit", slow)
    result = invoke(*arguments)
    charged = entries(tmp_path / "a.ledger")
    kept = result.exit_code == 6 and (tmp_path / name).read_text() == "mine"
    (tmp_path / name).unlink()
    monkeypatch.undo()
    kept &= invoke(*arguments, "--resume").exit_code == 0
    kept &= finished(tmp_path) and entries(tmp_path / "a.ledger") == charged
    outcome(f"{name} made meanwhile", 1, not kept)
