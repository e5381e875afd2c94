"""Crashes at every point: nothing uncharged, nothing released twice, no contribution too many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import Observed, identity, models_for, terms_of

import privote as pv
from privote.capc.charges import Charges, Prices
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.messages import ANSWERING, GUARDIAN, QUERYING, Ready, decode
from privote.capc.programs import AllowanceProgram
from privote.capc.roles import Compute
from privote.capc.terms import Terms

PG, QP = ("pg", GUARDIAN), ("q0", QUERYING)
QUERIES, LABELS = 3, 2


class CrashError(BaseException):
    """The process is gone."""


class Crashing(Observed):
    """Counts the points at which a process can die, and kills whoever runs at one of them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.at, self.points, self.died = -1, 0, []
        self.doomed = ""  # a durable step before which whoever takes it dies
        self.decided: Counter[str] = Counter()
        self.spent: Counter[str] = Counter()
        super().__init__(*args, **more)

    def point(self) -> None:
        self.points += 1
        if self.points == self.at:
            raise CrashError

    def _give(self, seat: Any, event: Any) -> None:
        self._guarded(seat, lambda: (self.point(), super(Crashing, self)._give(seat, event)))

    def _do(self, seat: Any, actions: Any) -> None:
        for action in actions:
            self._guarded(seat, lambda one=action: (self.point(), self._one(seat, one)))

    def _one(self, seat: Any, action: Any) -> None:
        super()._do(seat, [action])

    def _guarded(self, seat: Any, step: Any) -> None:
        try:
            step()
        except CrashError:
            self.died.append(seat)
            self.kill(seat)
            if seat != QP:  # a service is started again by whoever keeps it running
                self.start(seat)

    def _join(self, seat: Any, compute: Compute) -> None:
        waiting = self._sessions.get(compute.session)
        if compute.session.endswith("decision") and waiting is not None:
            self._watch(compute, *waiting.values())
        super()._join(seat, compute)

    def _watch(self, *sides: Compute) -> None:
        """Note what a decision lets out, whether or not anybody lives to store it."""
        batch = sides[0].session.partition(":")[0]
        self.decided[batch] += 1
        ready = [decode(x.data) for x in self.letters if decode(x.data).kind == "ready"]
        names = next(m.parties for m in ready if isinstance(m, Ready) and m.batch == batch)
        by_side = {compute.side: compute for compute in sides}
        program = by_side["peer"].programs[0]
        if not isinstance(program, AllowanceProgram):
            return
        ours, theirs = by_side["querier"].inputs[0], by_side["peer"].inputs[0]
        left = ours["left"] + theirs["left"]
        ballots = ours["shares"] + theirs["masks"]
        running = np.cumsum(ballots.sum(axis=2), axis=0)
        kept = np.where((running <= left)[:, :, None], ballots, 0)
        self.spent.update(dict(zip(names, kept.sum(axis=(0, 2)).tolist(), strict=True)))


@pytest.fixture
def pointed(monkeypatch: pytest.MonkeyPatch) -> list[Crashing]:
    """Make every durable step two points: just before it, and just after."""
    running: list[Crashing] = []
    steps = {
        Charges: ["take"],
        GuardianJournal: ["open", "posterior", "done", "settle"],
        QuerierJournal: ["begin", "posterior", "store"],
    }
    for kind, names in steps.items():
        for name in names:
            real = getattr(kind, name)

            def step(
                self: Any, *args: Any, _real: Any = real, _name: str = name, **more: Any
            ) -> Any:
                if running:
                    running[0].point()
                    if running[0].doomed == _name:
                        running[0].doomed = ""
                        raise CrashError
                result = _real(self, *args, **more)
                if running:
                    running[0].point()
                return result

            monkeypatch.setattr(kind, name, step)
    return running


def coalition_of(guarantee: str, epsilon: float) -> Terms:
    return terms_of(
        pv.BinaryVoting(sigma=4.0),
        guarantee=guarantee,
        epsilon=epsilon,
        features=QUERIES,
        labels=LABELS,
    )


def run_of(terms: Terms, running: list[Crashing], seed: int) -> Crashing:
    rng = np.random.default_rng(seed)
    ballots = (rng.random((QUERIES, 3, LABELS)) < 0.5).astype(np.int64)
    run = Crashing(terms, models_for(terms, ballots), seed=seed)
    running[:] = [run]
    return run


def ask(run: Crashing) -> Any:
    try:
        return run.ask("q0", identity(QUERIES, QUERIES))
    except pv.BudgetError:
        raise
    except pv.PrivoteError as error:
        return error


def check(run: Crashing, terms: Terms) -> None:
    assert max(run.decided.values(), default=0) <= 1, "a batch was decided twice"
    stored = [batch for batch, _ in run.journal("q0").batches()]
    assert set(stored) <= set(run.decided)
    entries = [e for e in run.ledger.published() if e["kind"] == "charge"]
    if terms.guarantee == "worst-case":
        for party in terms.parties:
            charged = sum(e["queries"] for e in entries if e["dataset"] == party)
            assert charged >= QUERIES * len(run.decided), "a decision was not charged"
    elif run.decided:
        assert Counter(e["dataset"] for e in entries) == Counter(dict.fromkeys(terms.parties, 1))
        for party, allowance in Prices(terms).allowances("q0").items():
            assert run.spent[party] <= allowance, "more contributions than the allowance"
    assert run.ledger.verify().ok


def points_of_a_batch(guarantee: str, running: list[Crashing]) -> int:
    run = run_of(coalition_of(guarantee, 1e6), running, 0)
    ask(run)
    first = run.points
    ask(run)
    return max(first, run.points - first)


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_a_crash_at_any_point_of_a_batch(guarantee: str, pointed: list[Crashing]) -> None:
    terms = coalition_of(guarantee, 1e6)
    last = points_of_a_batch(guarantee, pointed)
    assert last > 60
    died: Counter[Any] = Counter()
    for at in range(1, last + 1):
        run = run_of(terms, pointed, at)
        run.at = at
        for _ in range(3):
            ask(run)
            check(run, terms)
        died.update(run.died)
        # One crash costs at most one batch: the others are answered.
        assert len(run.journal("q0").batches()) >= 2, (at, run.died)
        if guarantee == "worst-case":
            entries = [e for e in run.ledger.published() if e.get("dataset") == "p0"]
            charged = sum(e.get("queries", 0) for e in entries)
            assert charged <= QUERIES * 4
    assert {PG, QP} < set(died)
    assert any(seat[1] == ANSWERING for seat in died)


def test_no_party_ever_says_more_than_its_allowance(pointed: list[Crashing]) -> None:
    terms = coalition_of("allowance", 6.0)
    allowance = Prices(terms).allowances("q0")
    assert QUERIES * LABELS < min(allowance.values()) <= 12
    last = points_of_a_batch("allowance", pointed)
    crashes, lost = 0, 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        run = run_of(terms, pointed, seed)
        for _ in range(10):
            run.at = run.points + int(rng.integers(1, 2 * last))
            # Often at the worst moment: the outcome is out, and not yet on disk.
            run.doomed = str(rng.choice(["", "store", "store", "done", "settle"]))
            result = ask(run)
            lost += isinstance(result, pv.PrivoteError)
            check(run, terms)
        crashes += len(run.died)
    assert crashes > 40
    assert lost > 10


def test_a_charged_batch_is_resumed_and_paid_once(pointed: list[Crashing]) -> None:
    terms = coalition_of("worst-case", 1e6)
    run = run_of(terms, pointed, 1)
    for party in list(terms.parties)[1:]:
        run.kill((party, ANSWERING))
    assert isinstance(ask(run), pv.errors.PeerError)
    for party in list(terms.parties)[1:]:
        run.start((party, ANSWERING))
    run.kill(PG)
    run.start(PG)
    answers = ask(run)
    assert answers.resumed
    assert sum(e["kind"] == "charge" for e in run.ledger.published()) == 3
    assert not ask(run).resumed


def test_a_querying_party_that_lost_its_journal_is_refused(pointed: list[Crashing]) -> None:
    run = run_of(coalition_of("allowance", 1e4), pointed, 2)
    ask(run)
    run._journals.pop("q0")
    assert "journals was lost" in str(ask(run))
    open_ended = run_of(coalition_of("worst-case", 1e4), pointed, 2)
    ask(open_ended)
    open_ended._journals.pop("q0")
    assert ask(open_ended).labels.shape == (QUERIES, LABELS)
