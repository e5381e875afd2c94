"""Run claims, keep what was measured, and go on where a run was broken off.

What is kept goes by what it came from: the code of the module that measures it (but for verdicts)
and of what it imports here, the profile, the seeds, and the files of the data folder where they are
read. A change of any of them measures anew.

What takes long is measured in the full profile only, whose page leaves it in ``slow/``; ``make
paper PROFILE=full`` puts it into ``results/`` here. The quick profile shows that, and says so.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import privote as pv

from .claims import CLAIMS
from .kinds import ABSENT, NOT_RUN, Bench, Claim, Measured, Verdict, write_whole

#: Told after each claim: which, how many are done, of how many.
Progress = Callable[[str, int, int], None]
#: Where full runs leave what the quick profile does not measure.
KEPT = Path(__file__).parent / "results"


def _code(path: Path) -> list[ast.stmt]:
    """Return a module's statements without verdicts, which measure nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if not getattr(node, "name", "").endswith("_verdict")]


# Read when this is loaded: a file that is edited during a run is not what runs.
_CODE = {path.stem: _code(path) for path in Path(__file__).parent.glob("*.py")}


def _built_on(name: str) -> set[str]:
    """Return a module and the modules beside it that it imports, at any remove."""
    found, open_ones = set(), [name]
    while open_ones:
        found.add(one := open_ones.pop())
        for node in _CODE[one]:
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module not in found:
                open_ones.append(str(node.module))
    return found


@dataclass(frozen=True, kw_only=True)
class Result:
    """One claim's outcome: verdict, what was measured if anything was, and the work it took."""

    claim: Claim
    verdict: Verdict
    measured: Measured | None
    seconds: float
    kept: bool


def run(
    bench: Bench,
    cache: Path,
    *,
    only: Sequence[str] | None = None,
    fresh: bool = False,
    kept_only: bool = False,
    progress: Progress | None = None,
) -> list[Result]:
    """Measure claims, or take what was kept.

    Parameters
    ----------
    bench
        Profile, seeds and data.
    cache
        A folder for what was measured, one JSON file for each measurement.
    only
        Keys of claims; all by default.
    fresh
        True to measure anew what was kept.
    kept_only
        True to measure nothing: a claim that no earlier run has measured is "not run".
    progress
        Told after each claim.
    """
    cache.mkdir(parents=True, exist_ok=True)
    chosen = [claim for claim in CLAIMS if only is None or claim.key in only]
    results = []
    done: set[str] = set()
    for number, claim in enumerate(chosen):
        if progress is not None:
            progress(claim.key, number, len(chosen))
        results.append(_one(claim, bench, cache, done, fresh=fresh, kept_only=kept_only))
    if progress is not None:
        progress("done", len(chosen), len(chosen))
    return results


def _one(
    claim: Claim, bench: Bench, cache: Path, done: set[str], *, fresh: bool, kept_only: bool
) -> Result:
    if claim.measure is None or claim.verdict is None:
        return Result(
            claim=claim, verdict=(ABSENT, claim.needs), measured=None, seconds=0.0, kept=False
        )
    if claim.slow and not bench.full:
        return _of_a_full_run(claim)
    name = measurement(claim)
    file = cache / f"{name}-{_digest(claim, bench)}.json"
    # Several claims may share one measurement: it is made once a run.
    kept = file.is_file() and (not fresh or file.name in done)
    if not kept and kept_only:
        why = f"No run has measured it yet: {claim.command}"
        return Result(claim=claim, verdict=(NOT_RUN, why), measured=None, seconds=0.0, kept=False)
    if not kept:
        parts = file.with_suffix("")
        if fresh and parts.is_dir():
            shutil.rmtree(parts)
        started = time.process_time()  # of the processor: other work on the machine does not count
        found = claim.measure(replace(bench, parts=parts))
        seconds = time.process_time() - started
        payload = {"seconds": seconds, "measured": None if found is None else found.plain()}
        write_whole(file, payload)
    done.add(file.name)
    read = json.loads(file.read_text(encoding="utf-8"))
    if read["measured"] is None:
        verdict: Verdict = (ABSENT, claim.needs or "What it needs is not at hand.")
        return Result(
            claim=claim, verdict=verdict, measured=None, seconds=read["seconds"], kept=kept
        )
    measured = Measured.of(read["measured"])
    return Result(
        claim=claim,
        verdict=claim.verdict(measured.facts),
        measured=measured,
        seconds=read["seconds"],
        kept=kept,
    )


def measurement(claim: Claim) -> str:
    """Return what measures a claim, by name: several claims may share it."""
    assert claim.measure is not None
    return f"{claim.measure.__module__.rpartition('.')[2]}.{claim.measure.__name__}"


def _of_a_full_run(claim: Claim) -> Result:
    """Return what the last full run left in the repository."""
    assert claim.verdict is not None
    file = KEPT / f"{measurement(claim)}.json"
    if not file.is_file():
        why = f"It takes long: {claim.command}"
        return Result(claim=claim, verdict=(NOT_RUN, why), measured=None, seconds=0.0, kept=False)
    read = json.loads(file.read_text(encoding="utf-8"))
    measured = Measured.of(read["measured"])
    word, reason = claim.verdict(measured.facts)
    told = f" Not measured in this run: figures of {read['date']}, {claim.command}."
    return Result(
        claim=claim, verdict=(word, reason + told), measured=measured, seconds=0.0, kept=True
    )


def _digest(claim: Claim, bench: Bench) -> str:
    """Return a fingerprint of all that a measurement comes from."""
    assert claim.measure is not None
    state = hashlib.sha256()
    for name in sorted(_built_on(claim.measure.__module__.rpartition(".")[2])):
        state.update("\n".join(ast.dump(node) for node in _CODE[name]).encode())
    state.update(f"{claim.measure.__name__} {bench.profile} {bench.seeds}".encode())
    state.update(pv.__version__.encode())
    if claim.measure.__module__.endswith(".data"):  # the others look at no file
        for line in _files(bench.data):
            state.update(line.encode())
    return state.hexdigest()[:16]


def _files(folder: Path | None) -> Iterator[str]:
    """Yield name, size and time of every label file of the data folder."""
    if folder is None:
        return
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".csv", ".gz", ".whl", ".txt", ".arff") and path.is_file():
            facts = path.stat()
            yield f"{path.relative_to(folder)} {facts.st_size} {facts.st_mtime_ns}\n"


def counted(results: Sequence[Result]) -> dict[str, int]:
    """Return how many claims there are of each verdict."""
    found: dict[str, int] = {}
    for result in results:
        found[result.verdict[0]] = found.get(result.verdict[0], 0) + 1
    return found
