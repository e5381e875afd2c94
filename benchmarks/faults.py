"""Faults: kill a run at every step and at random moments, fill the disk, stop the database.

A child runs one command through a ledger; the parent has it killed (SIGKILL) at a step, or at a
random moment, and then repeats the command with ``--resume``. Each time it checks anew: the run is
charged once and committed once, its output is there and is what was committed, what was delivered
before the kill has not changed, the ledger verifies, and no outbox is left. Then ``tests/attacks``
run at full size, and what each tried and what got through becomes a table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.ledger import Location, Outbox, Run

_DELTA = ["--delta", "1e-5"]
_THROUGH = 77  # a run that ended before the step of its fault
#: What a run passes on its way from the reservation to the delivery, besides the draw: calls of the
#: system, where a disk can be full, and calls between which a process can be killed.
_SYSTEM: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "replace"),
    (os, "link"),
    (os, "posix_fallocate"),
)
_STEPS: tuple[tuple[Any, str], ...] = (
    *_SYSTEM,
    (pv.Ledger, "append"),
    (Outbox, "allocate"),
    (Outbox, "write"),
    (Outbox, "remove"),
    (Run, "commit"),
    (Run, "deliver"),
)


@dataclass(frozen=True)
class Command:
    """A verb with its input, in a folder of its own."""

    verb: str
    options: tuple[str, ...] = ()

    def prepare(self, folder: Path) -> None:
        """Write what the verb reads."""
        rng = np.random.default_rng(0)
        if self.verb == "label":
            np.save(folder / "input.npy", rng.random((12, 30, 4)) < 0.3)
        elif self.verb == "poll":
            rows = (rng.random((60, 3)) < [0.7, 0.5, 0.3]).astype(int)
            np.savetxt(folder / "input.csv", rows, "%d", ",", header="Ada,Bo,Cy", comments="")
        else:
            X = rng.normal(size=(600, 3)).round(3)
            table = np.column_stack([X, X[:, :2] > 0])
            for name, part in (("input", table[:400]), ("public", table[400:, :3])):
                head = "a,b,c,one,two"[: 2 * part.shape[1] - 1 if part.shape[1] == 3 else None]
                np.savetxt(folder / f"{name}.csv", part, "%g", ",", header=head, comments="")

    def arguments(self, folder: Path, ledger: list[str], *, resume: bool = False) -> list[str]:
        """Return the command line."""
        given = {
            "label": ["input.npy", "--epsilon", "8", "--output", "output.csv"],
            "poll": ["input.csv", "--epsilon", "1", "--seats", "1", "--output", "output"],
            "train": [
                *("input.csv", "--labels", "one,two", "--public", "public.csv"),
                *("--epsilon", "8", "--output", "output"),
            ],
        }[self.verb]
        spelt = [str(folder / word) if (folder / word).exists() else word for word in given]
        spelt = [str(folder / word) if word.startswith("output") else word for word in spelt]
        return [
            *(self.verb, *spelt, *_DELTA, *self.options),
            *("--dataset", "ward", *ledger, *["--resume"] * resume),
        ]


COMMANDS = (
    Command("label"),
    Command("label", ("--mechanism", "binary", "--sigma", "40")),
    Command("label", ("--mechanism", "binary", "--sigma", "40", "--guarantee", "worst-case")),
    Command("poll"),
    Command("poll", ("--shares",)),
    Command("train", ("--method", "teachers", "--teachers", "20")),
    Command("train", ("--method", "gradients")),
    Command("train", ("--method", "moments")),
)


def run(arguments: list[str]) -> int:
    """Run a command of privote's in this process; return its exit code."""
    from privote.cli import main

    sys.argv = ["privote", *arguments]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@contextmanager
def stepping(stop: int, fault: Callable[[], None]) -> Iterator[list[int]]:
    """Count the steps that are passed inside the block, and have a fault happen at one of them."""
    steps = _SYSTEM if fault is no_space else _STEPS
    passed, real = [0], [(owner, name, getattr(owner, name)) for owner, name in steps]

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            passed[0] += 1
            if passed[0] == stop:
                fault()
            return call(*given, **named)

        return step

    try:
        for owner, name, call in real:
            setattr(owner, name, watched(call))
        yield passed
    finally:
        for owner, name, call in real:
            setattr(owner, name, call)


def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def no_space() -> None:
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device")


def hang_up(server: Any) -> Callable[[], None]:
    """Return what ends all sessions of a server's other databases, as a crash of it does."""

    def gone() -> None:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname LIKE 'fault_%' AND pid <> pg_backend_pid()"
        )

    return gone


def start(job: Callable[[], int]) -> int:
    """Run a job in a forked process, without its output; return the process."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(quiet, stream)
            code = job()
        finally:
            os._exit(code)
    return child


def in_child(job: Callable[[], int], seconds: float | None = None) -> int:
    """Return how a job ends in a forked process, killed after some time: its code, or -9."""
    child = start(job)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- what must hold --------------------------------------------------------------------------------


def outputs(folder: Path) -> dict[str, str]:
    """Return the digests of the files that were delivered."""
    files = [path for path in folder.glob("output*") if path.is_file()]
    files += [path for path in (folder / "output").glob("[!.]*") if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def numbers(folder: Path) -> dict[str, str]:
    """Return the digests of what is in the files: of a model its numbers, for its file has times.

    A page names when it was made, and a statement, too; what was drawn is in the others.
    """
    digests = {n: d for n, d in outputs(folder).items() if n.endswith((".csv", ".npz"))}
    for path in (folder / "output").glob("*.student"):
        model = vars(pv.load(path).model).items()
        arrays = [(n, v.tobytes()) for n, v in sorted(model) if isinstance(v, np.ndarray)]
        assert arrays
        digests[path.name] = hashlib.sha256(repr(arrays).encode()).hexdigest()
    return digests


def problems(folder: Path, place: Any, before: dict[str, str], code: int) -> list[str]:
    """Return what is wrong after a run was killed and resumed."""
    ledger = pv.Ledger.open(place)
    try:
        wrong = [*ledger.verify().problems]
        kinds = [entry["kind"] for entry in ledger.published()]
        state = ledger.state
        if code != 0:
            wrong.append(f"--resume ended with {code}")
        for kind in ("charge", "commit", "deliver"):
            if kinds.count(kind) != 1:
                wrong.append(f"{kinds.count(kind)} entries of the kind {kind}")
        files = outputs(folder)
        if not files:
            wrong.append("no output")
        for each in state.runs.values():
            for name, digest in each.files.items():
                if files.get(name) != digest:
                    wrong.append(f"{name} is not what was delivered")
    finally:
        ledger.close()
    after = numbers(folder)
    for name, digest in before.items():
        if after.get(name) != digest:
            wrong.append(f"{name} was delivered twice, with other numbers")
    wrong += [f"{path.name} is left" for path in folder.glob("*.outbox")]
    return wrong


@contextmanager
def prepared(command: Command, server: Any) -> Iterator[tuple[Path, Any, list[str]]]:
    """Yield a folder with a command's input, the place of its ledger, and options that name it.

    With a server the ledger is a new database of PostgreSQL's.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command.prepare(folder)
        place: Any = folder / "ledger.db"
        options = ["--ledger", str(place)]
        if server is not None:
            base = f"fault_{os.urandom(6).hex()}"
            server.execute(f"CREATE DATABASE {base}")
            place = Location.of(f"{server.address}/{base}", place)
            options = [
                "--ledger",
                f"{server.address}/{base}",
                "--beside",
                str(folder / "ledger.db"),
            ]
        yield folder, place, options


def attempt(
    command: Command,
    fault: Callable[[], None],
    stop: int,
    seconds: float | None = None,
    server: Any = None,
) -> tuple[int, list[str]]:
    """Have a fault happen at a step, or a kill after some time; resume; return what is wrong."""
    with prepared(command, server) as (folder, place, ledger):

        def job() -> int:
            with stepping(stop, fault) as passed:
                code = run(command.arguments(folder, ledger))
            return _THROUGH if stop and passed[0] < stop else code

        first, before = in_child(job, seconds), numbers(folder)
        code = in_child(lambda: run(command.arguments(folder, ledger, resume=True)))
        return first, problems(folder, place, before, code)


def takeover(command: Command, server: Any = None) -> list[str]:
    """Resume a run whose first process lives, and goes on only then; return what is wrong."""
    with prepared(command, server) as (folder, place, ledger):
        (ready, is_ready), (go, let_go), commit = os.pipe(), os.pipe(), Run.commit

        def late(self: Run, *given: Any, **named: Any) -> None:
            os.write(is_ready, b"1")
            os.read(go, 1)
            commit(self, *given, **named)

        def job() -> int:
            Run.commit = late  # type: ignore[method-assign]  # in the child only
            return run(command.arguments(folder, ledger))

        first = start(job)
        os.read(ready, 1)
        code = in_child(lambda: run(command.arguments(folder, ledger, resume=True)))
        before = numbers(folder)
        os.write(let_go, b"1")
        late_code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        for pipe in (ready, is_ready, go, let_go):
            os.close(pipe)
        wrong = problems(folder, place, before, code)
        return wrong + [f"the first process ended with {late_code}"] * (late_code != 6)


def at_every_step(
    command: Command, fault: Callable[[], None], step: int = 1, server: Any = None
) -> tuple[int, int]:
    """Have a fault at every step of a command, or every so many; return tries and violations."""
    tries = wrong = 0
    stop = 1
    while True:
        code, found = attempt(command, fault, stop, server=server)
        if code == _THROUGH:  # before the step came
            return tries, wrong
        tries += 1
        for problem in found:
            print(f"{command} at step {stop} ({fault.__name__}): {problem}", file=sys.stderr)
        wrong += bool(found)
        stop += step


def at_random(kills: int, seed: int, server: Any = None) -> tuple[int, int]:
    """Kill commands at random moments; return tries and violations."""
    rng, wrong = random.Random(seed), 0
    for turn in range(kills):
        command = COMMANDS[turn % len(COMMANDS)]
        moment = rng.uniform(0.0, 2.0 if command.verb == "train" else 0.6)
        _, found = attempt(command, die, 0, moment, server)
        for problem in found:
            print(f"{command} at random ({turn}): {problem}", file=sys.stderr)
        wrong += bool(found)
    return kills, wrong


def attacks() -> bool:
    """Run every attack at full size and print what was tried; return whether none got through."""
    with tempfile.TemporaryDirectory() as name:
        table = Path(name) / "table"
        table.touch()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/attacks"],
            env={**os.environ, "PRIVOTE_ATTACKS": "full", "PRIVOTE_ATTACKS_TABLE": str(table)},
            stdout=sys.stderr,
            check=False,
        )
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    print(f"\n{'tried':>8} {'through':>8}  attack")
    for row in rows:
        print(f"{row['tried']:>8,} {row['through']:>8}  {row['attack']}")
    print(f"tests/attacks at full size: {'all passed' if done.returncode == 0 else 'FAILED'}")
    return done.returncode == 0


def everything(kills: int, every: int, seed: int, server: Any = None) -> int:
    """Have all faults happen to all commands, and print what came of it; return violations."""
    where, violations = "SQLite" if server is None else "PostgreSQL", 0
    for command in COMMANDS:
        words = " ".join((command.verb, *command.options))
        for fault in (die, no_space) if server is None else (die, hang_up(server)):
            tries, wrong = at_every_step(command, fault, every, server)
            print(f"{where}, {words}: {fault.__name__} at {tries} steps: {wrong} violations")
            violations += wrong
        found = takeover(command, server)
        print(f"{where}, {words}: a takeover while the first lives: {found or 'one commit'}")
        violations += bool(found)
    tries, wrong = at_random(kills, seed, server)
    print(f"{where}: {tries} kills at random moments: {wrong} violations", flush=True)
    return violations + wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="at random moments, in all")
    parser.add_argument("--every", type=int, default=1, help="have a fault at every so many steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-attacks", action="store_true", help="leave tests/attacks out")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.ledger.conftest import started

    half, every, seed = arguments.kills // 2, arguments.every, arguments.seed
    violations = everything(arguments.kills - half, every, seed)
    with started() as server:
        violations += everything(half, every, seed, server)
    ok = not violations
    if not arguments.no_attacks:
        ok = attacks() and ok
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
