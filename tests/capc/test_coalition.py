"""A whole coalition in one process: what is released is what the ballots, masks and noise say."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.capc.coalitions import Observed, altered, identity, models_for, simulation, terms_of

import privote as pv
from privote.capc.messages import ANSWERING, GUARDIAN, Confirm, Hello, Masks, Message, Willing
from privote.capc.programs import AllowanceProgram
from privote.capc.roles import Compute, Computed, Received
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
PG = ("pg", GUARDIAN)


class Recorded(Observed):
    """A simulation that keeps what each side put into a session."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.computes: dict[tuple[str, str], Compute] = {}
        super().__init__(*args, **more)

    def _join(self, seat: tuple[str, str], compute: Compute) -> None:
        self.computes[compute.session, compute.side] = compute
        super()._join(seat, compute)

    def guardian_input(self, batch: str, name: str) -> npt.NDArray[np.int64]:
        """Return one of the guardian's inputs to a decision, all chunks of it."""
        inputs = self.computes[f"{batch}:decision", "peer"].inputs
        return np.concatenate([values[name] for values in inputs])

    def masks(self, batch: str) -> dict[str, npt.NDArray[np.int64]]:
        """Return the masks that reached the guardian, by party."""
        found = {}
        for event in self.seen[PG]:
            message = event.message if isinstance(event, Received) else None
            if isinstance(message, Masks) and message.batch == batch:
                found[event.sender] = message.masks
        return found


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
    run = Recorded(terms, models_for(terms, ballots), seed=seed)
    for party in range(4, 4 - dead, -1):
        run.kill((f"p{party}", ANSWERING))
    return terms, ballots, run


@pytest.mark.parametrize("dead", [0, 2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_composition_releases_what_numpy_decides(name: str, dead: int) -> None:
    terms, ballots, run = election_of(name, "worst-case", 3, dead)
    for seed in range(3):
        answers = run.ask("q0", identity(9, 9))
        there = 5 - dead
        assert answers.parties == tuple(f"p{i}" for i in range(there))
        assert set(answers.left_out) == {f"p{i}" for i in range(there, 5)}
        masks = run.masks(answers.batch)
        total = sum(masks[party] for party in answers.parties)
        neutral = name in ("binary", "binary gate")
        bar = there if neutral else 5 * terms.counted.unit
        margin = 2 * weigh(terms, ballots)[:, :there].sum(axis=1) - bar
        assert np.array_equal(run.guardian_input(answers.batch, "masks"), 2 * total - bar)
        noise = run.guardian_input(answers.batch, "vote")
        gated = terms.mechanism.gate is not None
        gate = run.guardian_input(answers.batch, "gate") if gated else None
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
            left[party] -= min(departs, 1) if terms.by_ballot else departs
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
    left = dict(run.roles[PG]._charges.prices.allowances("q0"))  # type: ignore[attr-defined]
    assert 0 < min(left.values()) < 27
    for batch in range(6):
        answers = run.ask("q0", identity(9, 9))
        votes, left = counted(terms, ballots, left)
        weights = weigh(terms, votes)
        margin = 2 * weights.sum(axis=1) - 5 * terms.counted.unit
        gate = None if terms.mechanism.gate is None else run.guardian_input(answers.batch, "gate")
        noise = run.guardian_input(answers.batch, "vote")
        assert np.array_equal(answers.labels, decide(margin, noise, gate)), batch
        assert held(run, terms) == left, "what is left, put together from the two halves"
    assert min(left.values()) < 0, "some ran out"


def held(run: Observed, terms: Terms, querier: str = "q0") -> dict[str, int]:
    """Return what everybody has left, from both journals."""
    prices = run.roles[PG]._charges.prices  # type: ignore[attr-defined]
    here, there = run.journal(querier).half(), run.journal("pg").half(querier)
    left = {}
    for party, whole in prices.allowances(querier).items():
        total = (here.get(party, 0) + there.get(party, whole)) % 2**64
        left[party] = total - 2**64 if total >= 2**63 else total
    return left


# -- who sees what --------------------------------------------------------------------------------


def test_the_guardians_view_does_not_depend_on_ballots() -> None:
    for guarantee in ("worst-case", "allowance"):
        views = []
        for share in (0, 1):
            ballots = np.full((8, 3, 2), share)
            terms = terms_of(features=8, guarantee=guarantee)
            run = Recorded(terms, models_for(terms, ballots), seed=4)
            answers = run.ask("q0", identity(8, 8))
            seen = [event for event in run.seen[PG] if isinstance(event, Received)]
            masks = run.masks(answers.batch)
            views.append(([type(event.message) for event in seen], masks))
            ends = [event for event in run.seen[PG] if isinstance(event, Computed)]
            assert [event.outputs for event in ends] == [None]
        kinds, others = zip(*views, strict=True)
        assert kinds[0] == kinds[1]
        # The same seeds, other ballots: what reaches the guardian is the same to the bit.
        assert all(np.array_equal(others[0][party], others[1][party]) for party in others[0])


def test_an_answering_party_sees_the_same_whatever_it_votes_and_is_asked() -> None:
    views = []
    for share, row in ((0, 1), (1, 0)):
        terms = terms_of(features=8)
        run = simulation(terms, np.full((8, 3, 2), share), seed=4)
        rows = np.full((8, 8), row, np.int64) if row else identity(8, 8)
        answers = run.ask("q0", rows)
        mine = [letter.data for letter in run.letters if letter.to == ("p1", ANSWERING)]
        # But for the batch's random name every byte is the same.
        views.append([data.replace(answers.batch.encode(), b"#" * 32) for data in mine])
        ends = [event for event in run.seen["p1", ANSWERING] if isinstance(event, Computed)]
        assert [event.outputs for event in ends] == [None]
    assert views[0] == views[1]


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Hello, Willing, Masks, Confirm])
@pytest.mark.parametrize("data", [None, b"\x00\x00\x00\x04null"], ids=["lost", "garbled"])
def test_a_party_that_fails_is_left_out(kind: type[Message], data: bytes | None) -> None:
    post = altered(kind, "p2", lambda _: data)
    run = simulation(terms_of(features=8), np.ones((8, 3, 2)), post=post)
    answers = run.ask("q0", identity(8, 8))
    assert answers.parties == ("p0", "p1")
    assert set(answers.left_out) == {"p2"}
    assert answers.voters == 3
    assert any(run.complaints.values()) or kind is Masks  # nobody waits to hear of those


def test_sites_that_ask_and_answer_never_answer_themselves() -> None:
    terms = terms_of(features=8, queriers=("p0", "p1"), guarantee="allowance", epsilon=50.0)
    run = simulation(terms, np.ones((8, 3, 2)))
    answers = run.ask("p0", identity(8, 8))
    assert answers.parties == ("p1", "p2")
    assert answers.voters == 2
    assert run.ask("p1", identity(8, 8)).parties == ("p0", "p2")
    assert all(row["used"] <= 50.0 for row in run.ledger.standing())
