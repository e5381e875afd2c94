"""Kill parts of a coalition at random moments: nothing is lost, and nothing is charged twice.

Three sites, a guardian and a querying site are processes on this machine, with the secure engine.
In turn the querying site, an answering site, the guardian and a process of the engine are killed
(SIGKILL) at a random moment of a batch; what serves is started again, and the same command is run
again until it ends with 0. Then every batch must be there, be the same when asked again, and be
charged once to each site.

Run: python benchmarks/kills_capc.py --each 30 --minutes 12
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from privote import BinaryVoting, Ledger
from privote.capc.models import SiteModel
from privote.capc.terms import Terms

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "coalition"))
from processes import running, start, wait_for, write_config

KINDS = ("querier", "answerer", "guardian", "engine")
PARTIES, FEATURES, LABELS, ROWS = ("site-0", "site-1", "site-2"), 8, 3, 10
LONGEST = 6.0  # seconds of a batch within which something is killed


def agreed() -> Terms:
    return Terms(
        name="kills",
        labels=tuple(f"label {n}" for n in range(LABELS)),
        features=tuple(f"x{n}" for n in range(FEATURES)),
        mechanism=BinaryVoting(sigma=2.0),
        guarantee="worst-case",
        epsilon=1e6,
        delta=1e-5,
        guardian="guardian",
        parties=PARTIES,
        queriers=("querier",),
        noise="sites",
        timeout=30.0,
    )


class Coalition:
    """Programs that are killed and started again."""

    def __init__(self, folder: Path, files: dict[str, Path], programs: dict[str, Any]) -> None:
        self.folder, self.files, self.programs = folder, files, programs
        self.batches = 0

    def query(self, rows: Path, output: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "privote", "capc", "query", self.files["querier"], rows]
        with (self.folder / "query.log").open("ab") as log:
            more = ["--output", str(output), "--force", "--json"]
            return subprocess.Popen([*map(str, words), *more], stdout=log, stderr=log)

    def harm(self, kind: str, asking: subprocess.Popen[bytes]) -> None:
        """Kill one process of a kind, and start again what serves."""
        if kind == "querier":
            asking.kill()
        elif kind == "engine":
            while asking.poll() is None and not (engines := self.engines(asking)):
                time.sleep(0.05)
            if asking.poll() is None:
                time.sleep(random.uniform(0, 1.5))
                with suppress(psutil.Error, IndexError):
                    random.choice(self.engines(asking) or engines).kill()
        else:
            name = "guardian" if kind == "guardian" else random.choice(PARTIES)
            self.programs[name].kill()
            self.programs[name].wait()
            log = self.files[name].with_name("log.txt")
            log.unlink()
            self.programs[name] = start(name, self.files[name], "guardian")
            wait_for(name, log, self.programs[name])

    def engines(self, asking: subprocess.Popen[bytes]) -> list[psutil.Process]:
        engines = []
        for program in (asking, *self.programs.values()):
            with suppress(psutil.Error):
                for one in psutil.Process(program.pid).children(recursive=True):
                    if "privote.capc.engine" in one.cmdline():
                        engines.append(one)
        return engines

    def batch(self, kind: str) -> tuple[int, bool]:
        """Ask a batch while something is killed: return its runs, and whether it is lost."""
        place = self.folder / f"batch-{self.batches}"
        place.mkdir()
        X = np.random.default_rng(self.batches).uniform(-1, 1, (ROWS, FEATURES))
        np.savez(place / "rows.npz", X=X)
        self.batches += 1
        asking = self.query(place / "rows.npz", place / "answers")
        if kind != "engine":
            time.sleep(random.uniform(0, LONGEST))
        self.harm(kind, asking)
        runs, code = 1, asking.wait()
        while code and runs < 6:
            runs, code = runs + 1, self.query(place / "rows.npz", place / "answers").wait()
        if code:
            return runs, True
        self.query(place / "rows.npz", place / "again").wait()
        labels = [np.load(place / name / "labels.npz")["labels"] for name in ("answers", "again")]
        return runs, not np.array_equal(*labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=12.0)
    arguments = parser.parse_args()
    terms, rng = agreed(), np.random.default_rng(0)
    models = {
        party: SiteModel(
            weights=rng.normal(size=(FEATURES, LABELS)),
            bias=np.zeros(LABELS),
            labels=terms.labels,
            thresholds=np.full(LABELS, 0.5),
        )
        for party in PARTIES
    }
    tried, lost, again = Counter[str](), Counter[str](), Counter[str]()
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_config(folder, terms, models)
        with running(files, terms) as programs:
            print(f"idle guardian {rss(programs['guardian'].pid)} MB", flush=True)
            print(f"idle answering site {rss(programs['site-0'].pid)} MB", flush=True)
            coalition = Coalition(folder, files, programs)
            while time.monotonic() < end and coalition.batches < arguments.each * len(KINDS):
                kind = KINDS[coalition.batches % len(KINDS)]
                runs, failed = coalition.batch(kind)
                tried[kind] += 1
                lost[kind] += failed
                again[kind] += runs > 1
                print(f"{kind}: {runs} runs{', LOST' if failed else ''}", flush=True)
        charges = Counter[str]()
        with closing(Ledger.open(folder / "guardian" / "ledger.db")) as ledger:
            for entry in ledger.published():
                if entry["kind"] == "charge":
                    charges[entry["dataset"]] += 1
    for kind in KINDS:
        print(f"{kind:>9}: {tried[kind]} kills, {again[kind]} run again, {lost[kind]} lost")
    print(f"{coalition.batches} batches; charges by site: {dict(charges)}")
    if sum(lost.values()) or set(charges.values()) != {coalition.batches}:
        sys.exit("something was lost or charged twice")


def rss(pid: int) -> int:
    return psutil.Process(pid).memory_info().rss // 1_000_000


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
