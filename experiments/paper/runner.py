"""Run claims, keep what was measured, and go on where a run was broken off.

What is kept goes by what it came from: the code of the module that measures it (but for verdicts)
and of what it imports here, the profile, the seeds, and the files of the data folder that it uses.
A change of any of them measures anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import privote as pv

from .claims import CLAIMS
from .kinds import ABSENT, NOT_RUN, Bench, Claim, Measured, Verdict, write_whole
from .sources import described, fingerprint

#: Told after each claim: which, how many are done, of how many.
Progress = Callable[[str, int, int], None]


_WORDS = ("CLAIMS", "PLACES")


def _code(path: Path) -> list[ast.stmt]:
    """Return a module's statements without verdicts and claims, which measure nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node
        for node in tree.body
        if not getattr(node, "name", "").endswith(("_verdict", "_result"))
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in _WORDS)
    ]


# Read when this is loaded: a file that is edited during a run is not what runs.
_CODE = {path.stem: _code(path) for path in Path(__file__).parent.glob("*.py")}


def _built_on(name: str) -> set[str]:
    """Return a module and the modules beside it that it imports, at any remove."""
    found, open_ones = set(), [name]
    while open_ones:
        found.add(one := open_ones.pop())
        for node in _CODE[one]:
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = [node.module] if node.module else [one.name for one in node.names]
                open_ones += [str(one) for one in names if one not in found]
    return found


@dataclass(frozen=True, kw_only=True)
class Result:
    """One claim's outcome: verdict, what was measured, the work it took, and data not at hand."""

    claim: Claim
    verdict: Verdict
    measured: Measured | None
    seconds: float
    kept: bool
    absent: tuple[str, ...] = ()


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
        one = _one(claim, bench, cache, done, fresh=fresh, kept_only=kept_only)
        absent = tuple(name for name in claim.sources if not described(bench.data, name))
        results.append(replace(one, absent=absent))
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
    name = measurement(claim)
    file = cache / f"{name}-{_digest(claim, bench)}.json"
    # Several claims may share one measurement: it is made once a run.
    kept = file.is_file() and (not fresh or file.name in done)
    if not kept and kept_only:
        why = f"No run has measured it yet: {claim.command}"
        return Result(claim=claim, verdict=(NOT_RUN, why), measured=None, seconds=0.0, kept=False)
    if not kept:
        started = time.process_time()  # of the processor: other work on the machine does not count
        found = claim.measure(bench)
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


def _digest(claim: Claim, bench: Bench) -> str:
    """Return a fingerprint of all that a measurement comes from."""
    assert claim.measure is not None
    state = hashlib.sha256()
    for name in sorted(_built_on(claim.measure.__module__.rpartition(".")[2])):
        state.update("\n".join(ast.dump(node) for node in _CODE[name]).encode())
    state.update(f"{claim.measure.__name__} {bench.profile} {bench.seeds}".encode())
    state.update(pv.__version__.encode())
    for line in fingerprint(bench.data, claim.sources):
        state.update(line.encode())
    return state.hexdigest()[:16]


def counted(results: Sequence[Result]) -> dict[str, int]:
    """Return how many claims of the paper there are of each verdict."""
    found: dict[str, int] = {}
    for result in (one for one in results if one.claim.kind != "ours"):
        found[result.verdict[0]] = found.get(result.verdict[0], 0) + 1
    return found
