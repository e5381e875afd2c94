"""Faults: kill the process anywhere, fill the disk, lock the ledger; then every attack, full size.

A child answers queries in a loop through a ledger and writes every release it got to an outbox. The
parent kills it (SIGKILL) at a random moment and checks, each time anew: every release in the outbox
was charged before; the ledger verifies; the next child is not blocked. Then `tests/attacks` run at
full size, and what each tried and what got through becomes a table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv

GUARANTEES = ("worst-case", "allowance", "data-dependent")
MECHANISM = pv.BinaryVoting(sigma=200.0)


def answer(folder: Path, guarantee: str, votes: np.ndarray) -> pv.Release:
    """Make one release through the ledger and put it into the outbox, durably."""
    release = pv.label(
        votes,
        mechanism=MECHANISM,
        epsilon=50.0,
        delta=1e-5,
        guarantee=guarantee,
        queries=len(votes),
        ledger=folder / "ledger.db",
        dataset=guarantee,
    )
    with open(folder / "outbox", "a") as stream:
        stream.write(json.dumps({**(release.ledger or {}), "answered": release.answered}) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    return release


def work(folder: Path, seed: int) -> None:
    """Answer until killed."""
    rng = np.random.default_rng(seed)
    while True:
        answer(folder, GUARANTEES[rng.integers(3)], rng.random((3, 10, 4)) < 0.3)


def check(folder: Path) -> list[str]:
    """Return what is wrong: a release without a charge, or a ledger that does not verify."""
    ledger = pv.Ledger.open(folder / "ledger.db")
    found = ledger.verify()
    wrong = list(found.problems)
    entries = {entry["number"]: entry for entry in ledger.published()}
    outbox = folder / "outbox"
    for line in outbox.read_text().splitlines() if outbox.exists() else []:
        try:
            sent = json.loads(line)
        except ValueError:
            continue  # the kill came while the child wrote its own outbox
        entry = entries.get(sent["entry"])
        if entry is None or entry["digest"] != sent["digest"]:
            wrong.append(f"a release names entry {sent['entry']}, which is not in the ledger")
        elif entry.get("queries") != sent["answered"]:
            wrong.append(f"entry {sent['entry']} charges other than what was released")
    ledger.close()
    return wrong


def kill_at_random(kills: int, seed: int, progress: Any = None) -> dict[str, int]:
    """Kill children at random moments; return what was seen."""
    rng, wrong, releases = random.Random(seed), 0, 0
    context = multiprocessing.get_context("fork")  # no imports in the child: kills hit the work
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answer(folder, "worst-case", np.zeros((1, 10, 4), bool))  # make the ledger; warm caches
        for turn in range(kills):
            child = context.Process(target=work, args=(folder, rng.randrange(2**32)))
            child.start()
            time.sleep(rng.uniform(0.0, 0.4))
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            problems = check(folder)
            wrong += len(problems)
            for problem in problems:
                print(f"after kill {turn + 1}: {problem}", file=sys.stderr)
            if progress is not None:
                progress(turn + 1, kills)
        releases = len((folder / "outbox").read_text().splitlines())
        entries = len(pv.Ledger.open(folder / "ledger.db").published())
    return {"kills": kills, "releases": releases, "entries": entries, "violations": wrong}


def _try_release(folder: Path, limit: str, connection: Any) -> None:
    os.chdir("/")
    if limit == "full disk":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # Nothing may grow beyond what the ledger has now: what a full disk does.
        size = max(file.stat().st_size for file in folder.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (min(size, 8192), min(size, 8192)))
    elif os.getuid() == 0:
        os.setuid(65534)  # root may write anywhere: become nobody
    try:
        answer(folder, "worst-case", np.zeros((1, 10, 4), bool))
        connection.send("released")
    except pv.LedgerError as error:
        connection.send(f"refused: {error}")
    except OSError as error:
        connection.send(f"released, but {error}")


def starve(limit: str) -> tuple[bool, str]:
    """Try a release with a full disk or a read-only ledger; return whether it was refused."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ledger"
        folder.mkdir()
        answer(folder, "worst-case", np.zeros((1, 10, 4), bool))
        before = check(folder)
        if limit == "read-only":
            os.chmod(name, 0o755)
            for file in folder.iterdir():
                file.chmod(0o444)
            folder.chmod(0o555)
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=_try_release, args=(folder, limit, send))
        child.start()
        said = receive.recv() if receive.poll(60) else "no answer"
        child.join()
        folder.chmod(0o755)
        for file in folder.iterdir():
            file.chmod(0o600)
        intact = not before and not check(folder)
    return said.startswith("refused") and intact, said.replace(f"{folder}/", "")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-attacks", action="store_true", help="leave tests/attacks out")
    arguments = parser.parse_args()

    def progress(done: int, total: int) -> None:
        print(f"\rkills {done}/{total}", end="", file=sys.stderr, flush=True)

    seen = kill_at_random(arguments.kills, arguments.seed, progress)
    print(file=sys.stderr)
    print(
        f"{seen['kills']} kills, {seen['releases']} releases got out, {seen['entries']} entries: "
        f"{seen['violations']} violations"
    )
    ok = seen["violations"] == 0
    for limit in ("full disk", "read-only"):
        refused, said = starve(limit)
        print(f"{limit}: {'no release' if refused else 'VIOLATION'} ({said})")
        ok = ok and refused
    if not arguments.no_attacks:
        ok = attacks() and ok
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
