"""A coalition over gRPC with mutual TLS, against the bare engine on the same programs.

Guardian and answering sites are processes on this machine; the querying site runs here, so that
its time is from the first word to the last: charging, ballots with every site (two at a time),
masks, decision and journals. The bare engine runs the same programs, with the same chunks and as
many at a time, over unix sockets without any of that. Both are timed in turn, in one run. Models
are random: 512 inputs, 20 labels.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from comparison import peer, row

from privote import BinaryVoting
from privote.capc import site as service
from privote.capc.engine import OTHER, OWN, SecureEngine
from privote.capc.messages import QUERYING
from privote.capc.models import SiteModel, quantise_model, quantise_rows
from privote.capc.parties import ballot_programs, decision_programs, sliced
from privote.capc.programs import PEER, QUERIER, Program
from privote.capc.site import Site
from privote.capc.terms import Terms

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "coalition"))
from processes import running, write_config

FEATURES, LABELS, MOST = 512, 20, 1000
MAX_CONCURRENT = 2
Inputs = list[dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    bare: float
    network: float
    megabytes: float


def agreed(parties: int) -> Terms:
    return Terms(
        name="benchmark",
        labels=tuple(f"label {n}" for n in range(LABELS)),
        features=tuple(f"x{n}" for n in range(FEATURES)),
        bound=1.0,
        mechanism=BinaryVoting(sigma=20.0),
        guarantee="worst-case",
        epsilon=1e6,
        delta=1e-5,
        guardian="guardian",
        parties=tuple(f"site-{n}" for n in range(parties)),
        queriers=("querier",),
        minimum=2,
        most_queries=MOST,
        timeout=900.0,
    )


def models(terms: Terms) -> dict[str, SiteModel]:
    rng = np.random.default_rng(0)
    return {
        party: SiteModel(
            weights=rng.normal(size=(FEATURES, LABELS)),
            bias=rng.normal(size=LABELS),
            labels=terms.labels,
            thresholds=np.full(LABELS, 0.5),
        )
        for party in terms.parties
    }


class Side:
    """One side of a session: the engine's sockets are links to each other, and digests queue."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, asyncio.Queue[bytes]()
        folder.mkdir(mode=0o700)

    def reach(self, other: Side) -> None:
        (self.folder / OTHER).symlink_to(other.folder / OWN)
        self.other = other

    async def exchange(self, data: bytes) -> bytes:
        self.said.put_nowait(data)
        return await self.other.said.get()

    async def guard(self, work: Any) -> Any:
        return await work

    @asynccontextmanager
    async def sockets(self) -> AsyncIterator[Path]:
        yield self.folder


async def bare_session(programs: Sequence[Program], querier: Inputs, peer_inputs: Inputs) -> None:
    """Run one session of the engine, over unix sockets."""
    with tempfile.TemporaryDirectory() as folder:
        sides: list[Any] = [Side(Path(folder).resolve() / name) for name in (QUERIER, PEER)]
        sides[0].reach(sides[1])
        sides[1].reach(sides[0])
        run = SecureEngine().run
        await asyncio.gather(
            run(programs, QUERIER, querier, sides[0], deadline=600.0),
            run(programs, PEER, peer_inputs, sides[1], deadline=600.0),
        )


def bare(terms: Terms, held: dict[str, SiteModel], X: np.ndarray) -> float:
    """Return the seconds of all ballots and the decision, without parties, network or charges."""
    rows = quantise_rows(X, features=FEATURES, bound=terms.bound, bits=terms.bits)
    programs = ballot_programs(terms, len(rows))
    deciding = decision_programs(terms, "querier", len(rows), tuple(held))
    rng = np.random.default_rng(1)
    mask = rng.integers(-(2**62), 2**62, (len(rows), LABELS))
    asked = sliced(programs, {"x": rows})

    async def ballots(model: SiteModel, places: asyncio.Semaphore) -> None:
        async with places:
            fixed = quantise_model(model, bound=terms.bound, bits=terms.bits)
            parts = [{**fixed, **part} for part in sliced(programs, {"mask": mask})]
            await bare_session(programs, asked, parts)

    async def batch() -> None:
        places = asyncio.Semaphore(MAX_CONCURRENT)
        await asyncio.gather(*(ballots(model, places) for model in held.values()))
        theirs = sliced(deciding, {"masks": mask, "vote": mask, "pad": mask})
        await bare_session(deciding, sliced(deciding, {"shares": mask}), theirs)

    began = time.perf_counter()
    asyncio.run(batch())
    return time.perf_counter() - began


@contextmanager
def coalition(terms: Terms, held: dict[str, SiteModel]) -> Iterator[Site]:
    """Start everybody but the querying site, whose settings it yields."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_config(Path(folder), terms, held, max_concurrent=MAX_CONCURRENT)
        with running(files, terms):
            yield Site.read(files["querier"], QUERYING)


def network(site: Site, X: np.ndarray) -> tuple[float, float]:
    """Return the seconds and megabytes of one batch."""
    facts, answers = service.ask(site, X)
    assert len(answers.parties) == len(site.terms.parties), answers.left_out
    return float(facts["seconds"]), float(facts["megabytes"])


def measure(site: Site, held: dict[str, SiteModel], queries: int, times: int) -> Measured:
    """Time both in turn; the median of each."""
    alone, there = [], []
    for turn in range(times):  # other rows each time: the same ones would only be delivered again
        X = np.random.default_rng(turn).uniform(-1, 1, (queries, FEATURES))
        alone.append(bare(site.terms, held, X))
        there.append(network(site, X))
    middle = sorted(there)[times // 2]
    return Measured(sorted(alone)[times // 2], *middle)


def show(queries: int, parties: int, found: Measured) -> None:
    print(
        f"{queries:>7,} {parties:>7} {found.bare:>9.2f} {found.network:>10.2f} "
        f"{found.network / found.bare:>6.2f} {found.megabytes:>8.1f} "
        f"{1e3 * found.megabytes / queries:>9.1f}",
        flush=True,
    )
    if queries >= 100:
        row(
            f"coalition over TLS: {queries:,} queries, {parties} sites, linear model",
            found.network,
            found.bare,
            "s",
            peer("the engine bare", "spu"),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="runs of each; the median counts")
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--parties", type=int, nargs="+", default=[3, 5])
    arguments = parser.parse_args()
    print("queries parties  bare, s  network, s  ratio  MB both  KB/query")
    terms = agreed(2)
    held = models(terms)
    with coalition(terms, held) as site:
        network(site, np.zeros((1, FEATURES)))  # prices of the terms, once
        for queries in arguments.queries:
            show(queries, 2, measure(site, held, queries, arguments.times))
    print("\nGrowth with answering sites, 100 queries (two sessions at a time on this machine)")
    for parties in arguments.parties:
        terms = agreed(parties)
        held = models(terms)
        with coalition(terms, held) as site:
            network(site, np.zeros((1, FEATURES)))
            show(100, parties, measure(site, held, 100, arguments.times))


if __name__ == "__main__":
    main()
