"""Crashes at every point: nothing lost, nothing charged twice, nothing released twice."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import Observed, identity, models_for, terms_of

import privote as pv
from privote.capc.charges import Charges, Prices
from privote.capc.coalition import Envelope
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.messages import Disconnected, OutcomeShare
from privote.capc.parties import Party
from privote.capc.terms import Terms

QUERIES, LABELS = 3, 2
BATCHES = [identity(QUERIES, QUERIES, turn) for turn in range(3)]


class CrashError(BaseException):
    """The process of a site is gone."""

    def __init__(self, site: str) -> None:
        super().__init__(site)
        self.site = site


class Crashing(Observed):
    """Counts the points at which a process can die, and kills whoever runs at one of them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.at, self.points = -1, 0
        self.died: list[str] = []
        super().__init__(*args, **more)

    def point(self, site: str) -> None:
        self.points += 1
        if self.points == self.at:
            self.died.append(site)
            raise CrashError(site)

    async def carry(self, envelope: Envelope) -> bytes:
        self.point(envelope.sender)
        try:
            self.point(envelope.to)
            data = await super().carry(envelope)
            self.point(envelope.to)
        except CrashError as crash:
            self.revive(crash.site)
            raise Disconnected(f"{crash.site} is gone") from None
        self.point(envelope.sender)
        return data

    def revive(self, site: str) -> None:
        """Start a service again, as whoever keeps it running does."""
        if site in self.programs:
            self.kill(site)
            self.start(site)

    def try_to_ask(self, rows: Any) -> Any:
        """Return labels, or None if the querying party crashed or failed."""
        try:
            return self.ask("q0", rows).labels
        except CrashError:
            loop = self._runner.get_loop()
            for task in asyncio.all_tasks(loop):
                task.cancel()  # of the dead process; services lose their sessions, too
            self.rest()
            return None
        except pv.BudgetError:
            raise
        except pv.PrivoteError:
            return None


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> list[Crashing]:
    """Make every durable step and every session two points: just before it, and just after."""
    running: list[Crashing] = []
    steps: dict[Any, list[str]] = {
        Charges: ["reserve", "commit"],
        GuardianJournal: ["reserve", "decide", "commit"],
        QuerierJournal: ["enter", "decided", "store"],
    }

    def patch(kind: Any, name: str, site: str) -> None:
        real = getattr(kind, name)

        def step(self: Any, *args: Any, **more: Any) -> Any:
            for run in running:
                run.point(site)
            result = real(self, *args, **more)
            for run in running:
                run.point(site)
            return result

        monkeypatch.setattr(kind, name, step)

    for kind, names in steps.items():
        for name in names:
            patch(kind, name, "q0" if kind is QuerierJournal else "pg")
    compute = Party.compute

    async def session(self: Party, *args: Any) -> Any:
        try:
            running[0].point(self.name)
            result = await compute(self, *args)
            running[0].point(self.name)
        except CrashError:
            if self.name == "q0":
                raise
            running[0].revive(self.name)
            return None
        return result

    monkeypatch.setattr(Party, "compute", session)
    return running


def coalition_of(guarantee: str, epsilon: float = 1e6, **more: Any) -> Terms:
    sizes = {"features": QUERIES, "labels": LABELS, **more}
    return terms_of(pv.BinaryVoting(sigma=4.0), guarantee=guarantee, epsilon=epsilon, **sizes)


def run_of(terms: Terms, running: list[Crashing], seed: int) -> Crashing:
    ballots = (np.random.default_rng(seed).random((QUERIES, 3, LABELS)) < 0.5).astype(np.int64)
    run = Crashing(terms, models_for(terms, ballots), seed=seed)
    run.ballots = ballots  # type: ignore[attr-defined]
    running[:] = [run]
    return run


def check(run: Crashing, terms: Terms, asked: int) -> None:
    """Check that so many batches were released once, and charged once."""
    shares = {message.share.tobytes() for _, message in run.said(OutcomeShare)}
    assert len(shares) == asked, "a batch was released in two ways"
    entries = [e for e in run.ledger.published() if e["kind"] == "charge"]
    if terms.guarantee == "worst-case":
        charged = Counter[str]()
        for entry in entries:
            charged[entry["dataset"]] += entry["terms"]["queries"]
        assert set(charged.values()) == {QUERIES * asked}, "a batch was charged twice"
        return
    assert Counter(e["dataset"] for e in entries) == Counter(dict.fromkeys(terms.parties, 1))
    halves = [run.journal(site).halves(*key)[1] for site, key in (("pg", ("q0",)), ("q0", ()))]
    for place, (party, allowance) in enumerate(Prices(terms).allowances("q0").items()):
        left = (halves[0].get(party, allowance) + halves[1].get(party, 0) + 2**63) % 2**64 - 2**63
        spent = asked * int(run.ballots[:, place].sum())  # type: ignore[attr-defined]
        took_part = party in halves[1]
        assert allowance - left <= spent
        assert left <= allowance
        assert took_part or left == allowance


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_a_crash_at_any_point_of_a_batch(guarantee: str, crashing: list[Crashing]) -> None:
    """Condition 7 of a free second draw: what a peer has seen is never drawn again."""
    terms = coalition_of(guarantee, noise="sites")
    run = run_of(terms, crashing, 0)
    run.try_to_ask(BATCHES[0])
    last = run.points
    assert last > 40
    died: Counter[str] = Counter()
    for at in range(1 + (guarantee == "allowance"), last + 1, 2):
        run = run_of(terms, crashing, at)
        run.at = at
        first = next(x for x in (run.try_to_ask(BATCHES[0]) for _ in range(3)) if x is not None)
        second = run.try_to_ask(BATCHES[1])
        assert second is not None
        again = run.try_to_ask(BATCHES[0])
        np.testing.assert_array_equal(first, again)
        check(run, terms, 2)
        died.update(run.died)
    assert {"pg", "q0", "p0"} <= set(died)


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_crash_after_crash_in_any_order_of_batches(
    guarantee: str, crashing: list[Crashing]
) -> None:
    terms, rng = coalition_of(guarantee), np.random.default_rng(3)
    crashes = 0
    for seed in range(6):
        run = run_of(terms, crashing, seed)
        for _ in range(12):
            run.at = run.points + int(rng.integers(1, 80))
            run.try_to_ask(BATCHES[rng.integers(3)])
        run.at = -1
        for rows in BATCHES:
            assert run.try_to_ask(rows) is not None
        check(run, terms, 3)
        crashes += len(run.died)
    assert crashes > 20


@pytest.mark.parametrize("site", ["pg", "q0"])
def test_a_full_disk_loses_nothing(
    site: str, tmp_path: Path, crashing: list[Crashing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every write of a journal: an error, and the same rows are finished once there is room."""
    terms, full = coalition_of("allowance"), [-1]
    kinds = {"pg": GuardianJournal, "q0": QuerierJournal}
    write = kinds[site]._write

    def fails(self: Any, *args: Any) -> None:
        full[0] -= 1
        if full[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, *args)

    monkeypatch.setattr(kinds[site], "_write", fails)
    failed = 0
    for at in range(1, 6):
        run, full[0] = run_of(terms, crashing, at), -1
        run._journals = {name: kinds[name](tmp_path / f"{name}{at}", terms, name) for name in kinds}
        run.revive("pg")
        full[0] = at
        failed += run.try_to_ask(BATCHES[0]) is None
        assert run.try_to_ask(BATCHES[0]) is not None
        check(run, terms, 1)
    assert failed == {"pg": 3, "q0": 4}[site], "every write was tried"
