from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.cli import app

VERBS = ("label", "plan", "tune", "audit", "demo")


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(run: Run, verb: str) -> None:
    done = run(verb, "--help")
    assert done.exit_code == 0
    assert "Example:" in done.stdout
    assert f"privote {verb} " in done.stdout.split("Example:")[1]
    assert "--json" in done.stdout


def test_help_lists_verbs_and_exit_codes(run: Run) -> None:
    done = run("--help")
    assert all(verb in done.stdout for verb in VERBS)
    assert "3 budget refused" in " ".join(done.stdout.split())


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"privote {pv.__version__}\n"


def test_unknown_verbs_and_missing_options_are_usage_errors(run: Run) -> None:
    assert run("vote").exit_code == 2
    missing = run("label", "votes.npy")
    assert missing.exit_code == 2
    assert "--mechanism" in missing.stderr


def test_the_unforeseen_keeps_its_traceback(
    run: Run, votes_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(pv, "label", fail)
    done = run(
        "label", votes_file, "--mechanism", "binary", "--sigma", 7, "--epsilon", 8, "--delta", 1e-5,
        "--output", "labels.csv",
    )  # fmt: skip
    assert done.exit_code == 1
    assert isinstance(done.exception, RuntimeError)
    assert [path.name for path in tmp_path.iterdir()] == [votes_file.name]
    # Pretty tracebacks show local variables, and these may be votes.
    assert app.pretty_exceptions_enable is False


def test_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "privote", "label", "absent.npy", "--mechanism", "binary"]
    command += ["--sigma", "7", "--epsilon", "8", "--delta", "1e-5", "--output", "out.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: votes file 'absent.npy' does not exist\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['privote', '--help']\n"
        "from privote.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'sklearn', 'matplotlib', 'dp_accounting', 'joblib', 'pandas', 'torch'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    assert time.monotonic() - start < 10  # about half a second; a busy machine takes longer
