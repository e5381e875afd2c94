"""Past this machine, on paper: costs measured here, arithmetic and a simulation of many machines.

The job: label 10^9 queries of 10^3 voters and 10^3 labels under an allowance. Votes lie in packed
chunks on the machines. Each machine reads its chunks and counts each voter's contributions; sums
over chunks say where each voter runs out; each machine reads again and counts effective tallies;
the budget is charged; labels are drawn, by the guardian alone in order, or by each machine for its
own chunks. What is measured: seconds a byte read, a vote counted, a label drawn, a charge. What is
assumed stands in `Cluster`. Given costs are not measured: then the output is the same every time.
"""

from __future__ import annotations

import argparse
import heapq
import os
import tempfile
import time
import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from bench_curves import write_votes

import privote as pv


@dataclass(frozen=True)
class Costs:
    """Seconds on one core of this machine; a byte, from its disk."""

    byte: float
    vote: float
    label: float
    charge: float


@dataclass(frozen=True)
class Cluster:
    """The job, and what is assumed of machines and network."""

    queries: int = 10**9
    voters: int = 10**3
    labels: int = 10**3
    machines: int = 100
    cores: int = 2
    chunks: int = 20_000
    network: float = 8e-10  # seconds a byte into the guardian: 10 Gbit/s
    spread: float = 0.2  # of a task's time, log-normal
    slow: float = 0.01  # tasks that take five times as long
    between_failures: float = 1e6  # seconds of a machine: 100 machines lose one in three hours
    repair: float = 600.0
    copies: bool = True  # idle cores run what is late once more
    spread_draw: bool = False  # each machine draws the labels of its chunks

    @property
    def votes(self) -> int:
        """One bit each where they are stored."""
        return self.queries * self.voters * self.labels

    @property
    def cells(self) -> int:
        return self.queries * self.labels


# -- what is measured ------------------------------------------------------------------------------


def measured(small: bool = False) -> Costs:
    """Return the costs of this machine: differences of two sizes, so that what is fixed drops."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (20, 60) if small else (200, 800)
        votes = _growth(folder, (few, 1000, 1000), (many, 1000, 1000))
        few, many = (200, 2000) if small else (2000, 10_000)
        cells = _growth(folder, (few, 1, 1000), (many, 1, 1000))
        return Costs(
            byte=_reading(folder, 2**24 if small else 2**29),
            vote=max(votes - cells / 1000, 1e-12),
            label=cells,
            charge=_charging(folder, 5 if small else 200),
        )


def _growth(folder: Path, small: tuple[int, int, int], large: tuple[int, int, int]) -> float:
    """Return the processor time of a release for each vote more."""
    spent = []
    mechanism = pv.BinaryVoting(sigma=max(4.0, small[1] / 10))
    for shape in (small, large):
        path = folder / "votes.npz"
        write_votes(path, *shape)
        best = np.inf
        for _ in range(3):
            began = time.process_time()
            pv.label(
                path,
                mechanism=mechanism,
                epsilon=8.0,
                delta=1e-5,
                guarantee="allowance",
            )
            best = min(best, time.process_time() - began)
        spent.append((best, float(np.prod(shape))))
    return (spent[1][0] - spent[0][0]) / (spent[1][1] - spent[0][1])


def _reading(folder: Path, size: int) -> float:
    """Return the time of a byte from the disk: the file is written out and its cache given up."""
    path = folder / "bytes"
    path.write_bytes(os.urandom(2**20) * (size // 2**20))
    with open(path, "rb", buffering=0) as stream:
        os.fsync(stream.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        while stream.read(2**22):
            pass
        return (time.perf_counter() - began) / size


def _charging(folder: Path, times: int) -> float:
    """Return the time of one durable entry in a ledger on this machine's disk."""
    ledger = pv.Ledger.open(folder / "ledger.db")
    budget = pv.Budget(epsilon=8.0, delta=1e-5)
    ledger.set_budget(budget, dataset="first")
    began = time.perf_counter()
    for number in range(times):
        ledger.set_budget(budget, dataset=str(number))
    return (time.perf_counter() - began) / times


# -- arithmetic ------------------------------------------------------------------------------------


def arithmetic(job: Cluster, cost: Costs) -> dict[str, float]:
    """Return the seconds of each step if all machines work all the time."""
    cores = job.machines * job.cores
    return {
        "read the votes, once": job.votes / 8 * cost.byte / job.machines,
        "count votes, once": job.votes * cost.vote / cores,
        "tallies to the guardian": 2 * job.cells * job.network,
        "draw at the guardian, one core": job.cells * cost.label,
        "draw on every machine": job.cells * cost.label / cores,
        "a durable lease a chunk": job.chunks * cost.charge,
    }


def task(job: Cluster, cost: Costs) -> float:
    """Return the seconds of one chunk on one core while all cores of its machine are busy."""
    votes = job.votes / job.chunks
    return max(votes / 8 * cost.byte * job.cores, votes * cost.vote)


# -- simulation ------------------------------------------------------------------------------------


class Stage:
    """Every chunk once through the machines, with stragglers and failures; events in a heap."""

    def __init__(self, job: Cluster, seconds: float, rng: np.random.Generator) -> None:
        self.job, self.seconds, self.rng = job, seconds, rng
        self.lost = self.copied = 0
        self._events: list[tuple[float, int, str, int]] = []
        self._count = 0
        self._running: dict[int, tuple[int, int]] = {}  # attempt -> chunk, machine
        self._attempts: dict[int, list[int]] = {}  # chunk -> attempts, oldest first

    def run(self, start: float) -> np.ndarray:
        """Return when each chunk is done: (chunks,)."""
        job = self.job
        done = np.full(job.chunks, np.nan)
        self._waiting = list(range(job.chunks))[::-1]
        self._idle = [m for _ in range(job.cores) for m in range(job.machines)]
        self._down: set[int] = set()
        for machine in range(job.machines):
            self._plan_failure(start, machine)
        left = job.chunks
        self._dispatch(start)
        while left:
            now, _, kind, number = heapq.heappop(self._events)
            if kind == "done":
                left -= self._finish(now, number, done)
            elif kind == "failed":
                self._fail(now, number)
            else:
                self._down.discard(number)
                self._idle += [number] * job.cores
                self._plan_failure(now, number)
            self._dispatch(now)
        return done

    def _push(self, at: float, kind: str, number: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, kind, number))

    def _plan_failure(self, now: float, machine: int) -> None:
        if np.isfinite(self.job.between_failures):
            self._push(now + self.rng.exponential(self.job.between_failures), "failed", machine)

    def _begin(self, now: float, chunk: int, machine: int) -> None:
        pace = self.rng.lognormal(-(self.job.spread**2) / 2, self.job.spread)
        pace *= 5.0 if self.rng.random() < self.job.slow else 1.0
        self._count += 1
        attempt = self._count
        self._running[attempt] = (chunk, machine)
        self._attempts.setdefault(chunk, []).append(attempt)
        self._push(now + pace * self.seconds, "done", attempt)

    def _dispatch(self, now: float) -> None:
        while self._idle and self._waiting:
            self._begin(now, self._waiting.pop(), self._idle.pop())
        while self.job.copies and self._idle:
            # Chunks begin in the order of the dictionary, so the first is the latest.
            late = next((c for c, tries in self._attempts.items() if len(tries) == 1), None)
            if late is None:
                return
            self.copied += 1
            self._begin(now, late, self._idle.pop())

    def _finish(self, now: float, attempt: int, done: np.ndarray) -> int:
        if attempt not in self._running:
            return 0  # given up: its machine failed, or a copy was faster
        chunk, _ = self._running[attempt]
        done[chunk] = now
        for other in self._attempts.pop(chunk):
            self._idle.append(self._running.pop(other)[1])
        return 1

    def _fail(self, now: float, machine: int) -> None:
        self._down.add(machine)
        self._idle = [m for m in self._idle if m != machine]
        for attempt, (chunk, at) in list(self._running.items()):
            if at == machine:
                self.lost += 1
                del self._running[attempt]
                self._attempts[chunk].remove(attempt)
                if not self._attempts[chunk]:
                    del self._attempts[chunk]
                    self._waiting.append(chunk)
        self._push(now + self.job.repair, "repaired", machine)


@dataclass(frozen=True)
class Run:
    contributions: float
    tallies: float
    labels: float
    lost: int
    copied: int


def simulated(job: Cluster, cost: Costs, seed: int = 0) -> Run:
    """Return when contributions, tallies and labels are there, and what was done twice."""
    rng = np.random.default_rng(seed)
    each = job.cells / job.chunks
    first = Stage(job, task(job, cost), rng)
    contributions = float(np.max(first.run(0.0)))
    # Counts of all chunks to the guardian and back, 8 bytes each; then the charge, before any draw.
    begin = contributions + 16 * job.chunks * job.voters * job.network + cost.charge
    drawing = each * cost.label
    second = Stage(job, task(job, cost) + (drawing if job.spread_draw else 0.0), rng)
    done = second.run(begin)
    # In order of arrival a lease is written; in order of queries the guardian draws.
    at = begin
    for ready in np.sort(done) if job.spread_draw else done:
        step = cost.charge if job.spread_draw else max(drawing, 2 * each * job.network)
        at = max(at, float(ready)) + step
    lost, copied = first.lost + second.lost, first.copied + second.copied
    return Run(contributions, float(done.max()), at, lost, copied)


SCENARIOS = {
    "no faults, the guardian draws": {"spread": 0.0, "slow": 0.0, "between_failures": np.inf},
    "stragglers and failures": {},
    "the same, nothing run twice": {"copies": False},
    "the same, each machine draws": {"spread_draw": True},
    "10 machines, the guardian draws": {"machines": 10},
    "1,000 machines, the guardian draws": {"machines": 1000},
    "1,000 machines, each draws": {"machines": 1000, "spread_draw": True},
}


def report(job: Cluster, cost: Costs) -> None:
    print(
        f"{job.queries:,} queries x {job.voters:,} voters x {job.labels:,} labels on "
        f"{job.machines} machines of {job.cores} cores: {job.votes / 8 / 1e12:,.0f} TB of votes, "
        f"{job.votes / 8 / job.machines / 1e12:.2f} TB a machine"
    )
    for name, seconds in arithmetic(job, cost).items():
        print(f"{name:<34}{seconds:>12,.0f} s")
    print()
    print(
        f"{'simulated, ' + format(job.chunks, ',') + ' chunks':<34}"
        "contributions   tallies    labels"
    )
    for name, changes in SCENARIOS.items():
        run = simulated(replace(job, **changes), cost)
        again = f"{run.lost} tasks lost, {run.copied} run twice"
        print(
            f"{name:<38}{run.contributions:>7,.0f} s {run.tallies:>7,.0f} s {run.labels:>7,.0f} s  "
            f"{again}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for field, unit in zip(fields(Costs), ("ns", "ns", "ns", "ms"), strict=True):
        parser.add_argument(f"--{field.name}", type=float, help=f"{unit}; default: measured")
    parser.add_argument("--chunks", type=int, default=Cluster.chunks)
    parser.add_argument("--small", action="store_true", help="measure roughly")
    given = parser.parse_args()
    named = {"byte": given.byte, "vote": given.vote, "label": given.label, "charge": given.charge}
    costs = {
        name: None if value is None else value * (1e-3 if name == "charge" else 1e-9)
        for name, value in named.items()
    }
    if None in costs.values():
        warnings.simplefilter("ignore")
        found = measured(given.small)
        print(
            f"measured: {found.byte * 1e9:.2g} ns a byte read, {found.vote * 1e9:.2g} ns a vote "
            f"counted, {found.label * 1e9:.2g} ns a label drawn, {found.charge * 1e3:.2g} ms a "
            "charge; 1/8 byte a vote\n"
        )
        known = {name: value for name, value in costs.items() if value is not None}
        report(Cluster(chunks=given.chunks), replace(found, **known))
    else:
        report(Cluster(chunks=given.chunks), Costs(**costs))


if __name__ == "__main__":
    main()
