"""One form for every comparison: ours next to a peer, in one run, with the peer's version.

A benchmark prints rows with :func:`row`. Run as a script, this collects the rows of all results
that are kept into one table. The ratio says how many times better ours is: for costs (seconds,
bytes) what the peer takes over what we take, for gains the other way round. Below 1 ours is worse.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

MARK = "ratio |"
RESULTS = Path(__file__).parent / "results"
HEADINGS = ("", "ours", "peer", "ratio", "the peer", "measured")


def peer(what: str, *packages: str) -> str:
    """Return a peer's name with the versions of what it runs on."""
    return f"{what} ({', '.join(f'{name} {version(name)}' for name in packages)})"


def row(what: str, ours: float, other: float, unit: str, by: str, *, gain: bool = False) -> None:
    """Print one comparison.

    Parameters
    ----------
    what
        The job, with its size.
    ours, other
        What we took and what the peer took, in ``unit``; with ``gain`` what we and it reached.
    by
        The peer, as :func:`peer` names it.
    """
    ratio = ours / other if gain else other / ours
    cells = (what, f"{_short(ours)} {unit}", f"{_short(other)} {unit}", _short(ratio), by)
    assert not any("|" in cell for cell in cells), cells
    print(MARK, " | ".join(cells), flush=True)


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def machine() -> str:
    """Return what was measured on: cores, processor, Python."""
    name = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = found[0].partition(":")[2].strip() if found else name
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def collected(folder: Path = RESULTS) -> list[tuple[str, ...]]:
    """Return the rows of every kept result, with the day on which it was measured."""
    found = []
    for path in sorted(folder.glob("bench_*.txt")):
        day = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("date:"):
                day = line.split()[1]
            if line.startswith(MARK):
                cells = (cell.strip() for cell in line[len(MARK) :].split("|"))
                found.append((*cells, day))
    return found


def main() -> None:
    rows = [HEADINGS, *collected()]
    widths = [max(len(cells[place]) for cells in rows) for place in range(len(HEADINGS))]
    print(f"{machine()}; a ratio above 1: ours is so many times better")
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)))
    sys.exit(0 if len(rows) > 1 else "no results are kept: make bench")


if __name__ == "__main__":
    main()
