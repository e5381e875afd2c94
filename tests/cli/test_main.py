from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import Run

import privote as pv
from privote.cli import app

VERBS = ("label", "plan", "audit", "demo")


def test_help_and_version(run: Run) -> None:
    done = run("--help")
    assert all(verb in done.stdout for verb in VERBS)
    assert "3 budget refused" in " ".join(done.stdout.split())
    assert run("--version").stdout == run("-V").stdout == f"privote {pv.__version__}\n"


def test_the_unforeseen_keeps_its_traceback(
    run: Run, votes_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("privote.labelling.Labelling", fail)
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
    assert done.stderr.startswith("error: votes file ")
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['privote', '--help']\n"
        "from privote.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'matplotlib', 'dp_accounting', 'pandas', 'torch'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Release the outcome" in done.stdout
    assert "HEAVY []" in done.stdout


def _verbs(group: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    inside = getattr(group, "commands", None)
    if inside is None:
        return [(words, group)]
    return [found for name, each in inside.items() for found in _verbs(each, (*words, name))]


@pytest.mark.parametrize(("words", "command"), _verbs(typer.main.get_command(app)))
def test_every_verb_has_an_example_json_and_words_for_every_option(
    run: Run, words: tuple[str, ...], command: Any
) -> None:
    said = run(*words, "--help").stdout
    assert f"privote {' '.join(words)}" in said.partition("Example")[2]
    assert "--json" in said
    assert said.count("<bool>") <= 1  # of --help itself, which is Typer's
    assert [each.name for each in command.params if not each.help and each.name != "help"] == []


CALL = ("label", "votes.npy", "--epsilon", 8, "--output", "o.csv")
UNKNOWN = "is not an option of this command"


@pytest.mark.parametrize(
    ("words", "argument", "rule", "value"),
    [
        (CALL, "--delta", "must be given", None),
        ((*CALL, "--delta", "little"), "--delta", "must be a number", "'little'"),
        ((*CALL, "--delta=little"), "--delta", "must be a number", "'little'"),
        ((*CALL, "--delta", 1e-5, "--queries", "x"), "--queries", "must be an integer", "'x'"),
        ((*CALL, "--resumee"), "--resumee", f"{UNKNOWN}; did you mean --resume?", None),
        ((*CALL, "--delta"), "--delta", "needs a value", None),
        (("label", "--delta", 1e-5), "VOTES", "must be given", None),
        (("lable", "votes.npy"), None, "no such command 'lable'. Did you mean 'label'?", None),
        (("ledger", "verfy"), None, "no such command 'verfy'. Did you mean 'verify'?", None),
        (
            (*CALL, "--delta", 1e-5, "--mechanism", "binary", "--sigma", -1),
            "--sigma",
            "must be finite and positive",
            "-1.0",
        ),
    ],
)
def test_errors_are_data_for_programs(
    run: Run, words: tuple[object, ...], argument: str | None, rule: str, value: str | None
) -> None:
    head, *rest = words  # the last word may lack its value
    done = run(head, "--json", *rest) if head != "ledger" else run(*words, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == found["exit_code"] == 2
    assert (found["argument"], found["rule"], found["value"]) == (argument, rule, value)
    assert done.stderr.startswith(f"error: {found['error']}")
    plain = run(*words)
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert plain.stderr == done.stderr


def test_a_full_disk_is_exit_code_7(run: Run, votes_file: Path, tmp_path: Path) -> None:
    (tmp_path / "poll.csv").write_text("Ada,Bo\n" + "1,0\n" * 300)
    budget = ("--epsilon", 8, "--delta", 1e-5)
    small = ("--records", 300, "--queries", 60)
    calls: dict[str, tuple[object, ...]] = {
        "label": ("label", votes_file, *budget, "--anyway", "--output", "a.csv"),
        "poll": ("poll", "poll.csv", *budget, "--output", "page"),
        "demo": ("demo", *small, "--output", "demo"),
    }
    for name, call in calls.items():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
            done = run(*call)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert done.exit_code == 7, (name, done.output)
        assert "Traceback" not in done.output
