"""How time grows with queries, voters and labels; and with labels where there are 2^k outcomes.

Votes lie in a packed file and are labelled under an allowance that lasts for all of them, whatever
their number: its epsilon protects nobody. With one that does, voters run out after a few queries,
the others are empty, and larger sizes would have less to count. Prices depend on voters and labels
and not on votes: they are worked out before, by a release of one query, and are not timed.
Processor time in one thread, the least of some runs: at least two, and more until they take a
second in all.

The exponent says how time grows once there is something to do: of every time that of the smallest
size is taken off, which is what is fixed, and a line is fitted to the logarithms at all sizes whose
time is at least five times as long. How many they are stands next to the exponent.

Sizes go up by the square root of ten to 10^7, or to the first that takes longer than ten seconds;
Powerset's to 10^5.

Writes a plot if asked to: python benchmarks/bench_curves.py --plot docs/pictures/curves.svg
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import privote as pv

AXES = ("queries", "voters", "labels")
BASE = {"queries": 16, "voters": 16, "labels": 8}  # what stays while another grows
MECHANISMS: dict[str, Callable[[int], pv.Mechanism]] = {
    "Binary": lambda voters: pv.BinaryVoting(sigma=max(2.0, voters / 5)),
    "Tau": lambda voters: pv.TauVoting(sigma=max(2.0, voters / 5), tau=1.5),
    "Powerset": lambda voters: pv.PowersetVoting(sigma=max(2.0, voters / 20)),
}
ENOUGH = 1.0  # seconds of runs at one size
TELLING = 5.0  # times the smallest time: from there on a size tells the exponent
LONGEST = 10.0  # seconds; a larger size is not tried after one that takes as long
LASTING = 1e9  # an epsilon with which nobody runs out


def write_votes(path: Path, queries: int, voters: int, labels: int, yes: int = 3) -> None:
    """Write packed votes with about one yes in 2^yes."""
    rng = np.random.default_rng(0)
    size = -(-queries * voters * labels // 8)
    bits = rng.integers(0, 256, size, dtype=np.uint8)
    for _ in range(yes - 1):
        bits &= rng.integers(0, 256, size, dtype=np.uint8)
    np.savez(path, votes=bits, shape=np.array([queries, voters, labels]))


def seconds(mechanism: pv.Mechanism, size: dict[str, int], folder: Path) -> float:
    """Return the processor time of one release, prices apart."""

    def release(path: Path) -> float:
        began = time.process_time()
        pv.label(
            path,
            mechanism=mechanism,
            epsilon=LASTING,
            delta=1e-5,
            guarantee="allowance",
        )
        return time.process_time() - began

    yes = 3 if not isinstance(mechanism, pv.PowersetVoting) else 8
    few, whole = folder / "few.npz", folder / "whole.npz"
    write_votes(few, 1, size["voters"], size["labels"], yes)
    write_votes(whole, **size, yes=yes)
    release(few)
    took = [release(whole)]
    while len(took) < 2 or sum(took) < ENOUGH:
        took.append(release(whole))
        if sum(took) > LONGEST:
            break
    return min(took)


def curve(name: str, axis: str, sizes: list[int]) -> Iterator[tuple[int, float]]:
    """Yield sizes and seconds until one takes too long."""
    for size in sizes:
        shape = {**BASE, axis: size}
        with tempfile.TemporaryDirectory() as folder:
            took = seconds(MECHANISMS[name](shape["voters"]), shape, Path(folder))
        yield size, took
        if took > LONGEST:
            return


def exponent(points: list[tuple[int, float]]) -> tuple[str, int]:
    """Return the slope of what grows, in words, and from how many sizes."""
    fixed = points[0][1]
    grown = [(size, took - fixed) for size, took in points if took >= TELLING * fixed]
    if len(grown) < 2:
        return "not told", len(grown)
    sizes, times = np.log(np.array(grown)).T
    return f"exponent {np.polyfit(sizes, times, 1)[0]:.3f}", len(grown)


def plot(found: dict[tuple[str, str], list[tuple[int, float]]], path: Path) -> None:
    """Draw one panel an axis, a line a mechanism."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "privote"  # the same picture for the same figures
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6), sharey=True)
    for panel, axis in zip(panels, AXES, strict=True):
        for (name, along), points in found.items():
            if along == axis:
                label = f"{name}: {exponent(points)[0]}"
                panel.loglog(*zip(*points, strict=True), "o-", markersize=4, label=label)
        rest = " × ".join(f"{BASE[other]} {other}" for other in AXES if other != axis)
        panel.set_xlabel(f"{axis} ({rest})")
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    panels[0].set_ylabel("seconds of processor")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=7, help="10 to this power at the most")
    parser.add_argument("--plot", type=Path, help="write a picture of the curves there")
    arguments = parser.parse_args()
    sizes = [round(10 ** (half / 2)) for half in range(4, 2 * arguments.largest + 1)]
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    for name in MECHANISMS:
        for axis in AXES:
            limit = 10**5 if name == "Powerset" else 10**7
            points = list(curve(name, axis, [size for size in sizes if size <= limit]))
            found[name, axis] = points
            line = ", ".join(f"{size:,}: {took:.3g} s" for size, took in points)
            power, told = exponent(points)
            print(f"{name} in {axis}: {power} by {told} sizes ({line})", flush=True)
    if arguments.plot is not None:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
