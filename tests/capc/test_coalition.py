"""A whole coalition in one process: what is released is what the ballots, masks and noise say."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.capc.coalitions import Observed, altered, identity, models_for, simulation, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc import messages as m
from privote.capc.charges import Prices
from privote.capc.messages import decode
from privote.capc.programs import AllowanceProgram
from privote.capc.terms import Terms

GATE = pv.Gate(threshold=4.0, sigma=1.5)
MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=2.0),
    "binary gate": pv.BinaryVoting(sigma=2.0, gate=GATE),
    "binary quota": pv.BinaryVoting(sigma=2.0, quota=0.3),
    "tau": pv.TauVoting(sigma=2.0, tau=1.3, grid=32),
    "tau light": pv.TauVoting(sigma=0.2, tau=0.1, grid=19),  # a ballot may count 1 in all
    "tau l1 gate": pv.TauVoting(sigma=2.0, tau=1.3, norm=1, grid=10, gate=GATE),
}


def weigh(terms: Terms, ballots: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return what each vote counts on the grid: by hand, from the definition of tau voting."""
    mechanism = terms.mechanism
    if not isinstance(mechanism, pv.TauVoting):
        return ballots.astype(np.int64)
    sizes = ballots.sum(axis=2, keepdims=True)
    norm = np.maximum(sizes, 1) ** (1 / mechanism.norm)
    assert mechanism.grid is not None
    steps = np.floor(np.minimum(1.0, mechanism.tau / norm) * mechanism.grid + 1e-9)
    return (ballots * steps).astype(np.int64)


def decide(
    margin: npt.NDArray[np.int64],
    noise: npt.NDArray[np.int64],
    gate: npt.NDArray[np.int64] | None,
) -> npt.NDArray[np.int64]:
    label = (margin + noise >= 0).astype(int)
    if gate is not None:
        label[np.abs(margin) + gate < 0] = -1
    return label


def election_of(name: str, guarantee: str, seed: int, dead: int, **more: Any) -> tuple[Any, ...]:
    """Return a run, perhaps without some parties."""
    rng = np.random.default_rng(seed)
    ballots = (rng.random((9, 5, 3)) < rng.choice([0.2, 0.5, 0.8])).astype(np.int64)
    sizes = {"parties": 5, "labels": 3, "features": 9}
    terms = terms_of(MECHANISMS[name], guarantee=guarantee, **sizes, **more)
    run = Observed(terms, models_for(terms, ballots), seed=seed)
    for party in range(4, 4 - dead, -1):
        run.kill(f"p{party}")
    return terms, ballots, run


@pytest.mark.parametrize("dead", [0, 2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_composition_releases_what_numpy_decides(name: str, dead: int) -> None:
    terms, ballots, run = election_of(name, "worst-case", 3, dead)
    for seed in range(3):
        run.envelopes.clear()
        answers = run.ask("q0", identity(9, 9, seed))
        there = 5 - dead
        assert answers.parties == tuple(f"p{i}" for i in range(there))
        assert set(answers.left_out) == {f"p{i}" for i in range(there, 5)}
        masks = {site: message.masks for site, message in run.said(m.Masks)}
        total = sum(masks[party] for party in answers.parties)
        neutral = name in ("binary", "binary gate")
        bar = there if neutral else 5 * terms.counted.unit
        margin = 2 * weigh(terms, ballots)[:, :there].sum(axis=1) - bar
        assert np.array_equal(run.recorder.guardian_input("masks"), 2 * total - bar)
        noise = run.recorder.guardian_input("vote")
        gated = terms.mechanism.gate is not None
        gate = run.recorder.guardian_input("gate") if gated else None
        assert np.array_equal(answers.labels, decide(margin, noise, gate)), seed


def counted(
    terms: Terms,
    ballots: npt.NDArray[Any],
    left: dict[str, int],
) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
    """Return the votes that count and what is left: one party, one query at a time.

    A plain running sum, whatever the chunks and batches: from the first ballot with which it
    exceeds the allowance everything of that party counts as the baseline.
    """
    votes = ballots.copy()
    for place, party in enumerate(terms.parties):
        for query in range(len(votes)):
            departs = int(votes[query, place].sum())
            left[party] -= min(departs, 1) if terms.counted.by_ballot else departs
            if left[party] < 0:
                votes[query, place] = 0
    return votes, left


@pytest.mark.parametrize("chunk", [100, 4, 1])
@pytest.mark.parametrize("name", MECHANISMS)
def test_allowance_releases_what_numpy_decides(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllowanceProgram, "most_rows", chunk)
    terms, ballots, run = election_of(name, "allowance", 4, 0, epsilon=22.0)
    left = Prices(terms).allowances("q0")
    assert 0 < min(left.values()) < 27
    for batch in range(6):
        answers = run.ask("q0", identity(9, 9, batch))
        votes, left = counted(terms, ballots, left)
        weights = weigh(terms, votes)
        margin = 2 * weights.sum(axis=1) - 5 * terms.counted.unit
        gate = None if terms.mechanism.gate is None else run.recorder.guardian_input("gate")
        noise = run.recorder.guardian_input("vote")
        assert np.array_equal(answers.labels, decide(margin, noise, gate)), batch
        assert held(run, terms) == left, "what is left, put together from the two halves"
    assert min(left.values()) < 0, "some ran out"


def held(run: Observed, terms: Terms, querier: str = "q0") -> dict[str, int]:
    """Return what everybody has left, from both journals."""
    prices = Prices(terms)
    here, there = run.journal(querier).halves()[1], run.journal("pg").halves(querier)[1]
    left = {}
    for party, whole in prices.allowances(querier).items():
        total = (here.get(party, 0) + there.get(party, whole)) % 2**64
        left[party] = total - 2**64 if total >= 2**63 else total
    return left


# -- who sees what --------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["worst-case", "allowance"])
def test_no_view_depends_on_ballots(guarantee: str) -> None:
    """Neither the guardian's nor an answering site's: to the bit, but for the names of runs."""
    views: list[dict[str, list[bytes]]] = []
    for share in (0, 1):
        terms = terms_of(features=8, guarantee=guarantee)
        run = simulation(terms, np.full((8, 3, 2), share), seed=4)
        run.ask("q0", identity(8, 8, share))
        (grant,) = [message.run for _, message in run.said(m.Grant)]
        (ask,) = [message.batch for _, message in run.said(m.RequestBatch)]
        seen: dict[str, list[bytes]] = {"pg": [], "p1": []}
        for envelope in run.envelopes:
            if envelope.to in seen:
                data = envelope.data.replace(grant.encode(), b"#" * 32)
                seen[envelope.to].append(data.replace(ask.encode(), b"#" * 64))
        views.append(seen)
        peers = [inputs for side, _, inputs in run.recorder.sessions if side == "peer"]
        assert len(peers) == 4
    assert views[0] == views[1]


def test_a_share_alone_says_nothing() -> None:
    """The querying party's is the label less a pad that only the guardian has until the commit."""
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)))
    answers = run.ask("q0", identity(8, 8))
    ((_, outcome),) = run.said(m.OutcomeShare)
    np.testing.assert_array_equal(outcome.share, run.recorder.guardian_input("pad"))
    assert len(np.unique(outcome.share >> 32)) == answers.labels.size


# -- batches ---------------------------------------------------------------------------------------


def test_the_same_rows_are_charged_once_and_delivered_again() -> None:
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)))
    first = run.ask("q0", identity(8, 8))
    second = run.ask("q0", identity(8, 8, 1))
    run.kill("pg")  # it is not even asked
    again = run.ask("q0", identity(8, 8))
    np.testing.assert_array_equal(first.labels, again.labels)
    assert first.facts() == again.facts() != second.facts()
    assert sum(entry["kind"] == "charge" for entry in run.ledger.published()) == 6


def test_everybody_is_greeted_before_anything_is_charged() -> None:
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)))
    run.kill("p1")
    run.kill("p2")
    with refused(None, pv.errors.PeerError):
        run.ask("q0", identity(8, 8))
    assert run.said(m.RequestBatch) == []
    run.start("p2")
    assert run.ask("q0", identity(8, 8)).left_out.keys() == {"p1"}


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [m.Hello, m.BallotsReady, m.Masks])
def test_a_party_that_fails_is_left_out(kind: type[m.Message]) -> None:
    post = altered(kind, "p2", lambda _: None)
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)), post=post)
    answers = run.ask("q0", identity(8, 8))
    assert (answers.parties, answers.voters) == (("p0", "p1"), 3)
    assert set(answers.left_out) == {"p2"}


def test_sites_that_ask_and_answer_never_answer_themselves() -> None:
    terms = terms_of(features=8, queriers=("p0", "p1"), guarantee="allowance", epsilon=50.0)
    run = simulation(terms, np.ones((8, 3, 2)))
    answers = run.ask("p0", identity(8, 8))
    assert (answers.parties, answers.voters) == (("p1", "p2"), 2)
    assert run.ask("p1", identity(8, 8)).parties == ("p0", "p2")
    assert all(row["used"] <= 50.0 for row in run.ledger.standing())


# -- what is refused -------------------------------------------------------------------------------


def test_calls_that_break_a_rule_are_refused_and_charge_nothing() -> None:
    terms = terms_of(queriers=("q0", "q1"), most_queries=10)
    run = simulation(terms, np.ones((4, 3, 2)))
    at, batch, name = terms.digest(), "a" * 64, "b" * 32
    words = np.ones((2, 2), np.int64)

    def refuses(sender: str, to: str, message: m.Message) -> None:
        assert isinstance(run.call(sender, to, message), m.Refused), message

    for sender, to, message in (
        ("q0", "pg", m.Hello("0" * 64, "clear")),
        ("q0", "p0", m.Hello(at, "another")),
        ("q0", "pg", m.RequestBatch("0" * 64, batch, 2, 0)),
        ("stranger", "pg", m.RequestBatch(at, batch, 2, 0)),
        ("p0", "pg", m.RequestBatch(at, batch, 2, 0)),
        ("q0", "pg", m.RequestBatch(at, batch, 11, 0)),
        ("q0", "p0", m.RequestBatch(at, batch, 2, 0)),
        ("q0", "p0", m.RequestBallots(at, name, 2)),  # that run is not charged
        ("p1", "p0", m.RequestBallots(at, name, 2)),
        ("p0", "pg", m.Masks(at, name, "q0", 2, words)),
        ("q0", "pg", m.Decide(at, name, ("p0", "p1"))),
        ("q0", "pg", m.Done(at, name)),
    ):
        refuses(sender, to, message)
    assert not [entry for entry in run.ledger.published() if entry["kind"] == "charge"]
    grant = run.call("q0", "pg", m.RequestBatch(at, batch, 2, 0))
    assert isinstance(grant, m.Grant)
    refuses("q1", "pg", m.RequestBatch(at, batch, 2, 0))  # another's
    refuses("q0", "pg", m.RequestBatch(at, batch, 3, 0))  # of another size
    refuses("q1", "pg", m.Decide(at, grant.run, ("p0", "p1")))
    refuses("q0", "pg", m.Masks(at, grant.run, "q0", 2, words))  # it does not answer
    refuses("p0", "pg", m.Masks(at, grant.run, "q1", 2, words))
    refuses("p0", "pg", m.Masks(at, grant.run, "q0", 2, words[:1]))
    for party in ("p0", "p1"):
        deposit = m.Masks(at, grant.run, "q0", 2, words)
        assert run.call(party, "pg", deposit) == m.Confirmed(grant.run)
        refuses(party, "pg", deposit)  # once
    refuses("q0", "pg", m.Decide(at, grant.run, ("p0", "p2")))  # one of them has no masks here
    ready = run.call("q0", "pg", m.Decide(at, grant.run, ("p0", "p1", "p2")))
    assert ready == m.DecisionReady(("p0", "p1"), 1)
    refuses("q0", "pg", m.Decide(at, grant.run, ("p0", "p1")))  # once
    refuses("p2", "pg", m.Masks(at, grant.run, "q0", 2, words))  # too late
    refuses("q1", "pg", m.Done(at, grant.run))


def test_of_a_batch_that_is_abandoned_nothing_leaves() -> None:
    """Also where it is decided, and only its commit is due."""
    replies, rows = list[m.Message](), identity(4, 4)

    def post(envelope: Any) -> Any:
        message = decode(envelope.data)
        replies.append(message)
        for number, batch in run.ledger.state.runs.items():
            if isinstance(message, m.Done) and batch.status == "open":
                run.ledger.abandon(number)
        return envelope

    run = simulation(terms_of(), np.ones((4, 3, 2)), post=post)
    with refused(None, pv.errors.ChargedError):
        run.ask("q0", rows)
    with refused(None, pv.BudgetError):
        run.ask("q0", rows)
    assert any(isinstance(each, m.DecisionReady) for each in replies)
    assert not any(isinstance(each, m.OutcomeShare) for each in replies)
    assert [each.status for each in run.ledger.state.runs.values()] == ["abandoned"]
    assert run.ledger.verify().ok


@pytest.mark.parametrize(
    ("sender", "kind", "change"),
    [
        ("pg", m.DecisionReady, lambda _: m.DecisionReady(("p0",), 1)),
        ("pg", m.DecisionReady, lambda _: m.DecisionReady(("p0", "p1", "p9"), 1)),
        ("pg", m.OutcomeShare, lambda x: m.OutcomeShare(x.share[:1])),
        ("pg", m.OutcomeShare, lambda x: m.OutcomeShare(x.share + 2)),
        ("pg", m.Grant, lambda _: m.Confirmed("0" * 32)),
    ],
)
def test_the_querying_party_stores_only_what_it_asked_for(
    sender: str, kind: type[m.Message], change: Any
) -> None:
    post = altered(kind, sender, change)
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)), post=post)
    with pytest.raises(pv.PrivoteError):
        run.ask("q0", identity(8, 8))
    assert "stored" not in {one.phase for one in run.journal("q0")._batches.values()}


def test_models_and_rows_that_do_not_fit_are_refused() -> None:
    terms = terms_of()
    with refused("model"):
        Observed(terms, models_for(terms_of(features=5), np.ones((1, 3, 2))))
    run = simulation(terms, np.ones((1, 3, 2)))
    for rows in (np.ones((2, 3)), np.ones((0, 4)), np.ones((1001, 4)), np.full((1, 4), np.nan)):
        with refused("X"):
            run.ask("q0", rows)
