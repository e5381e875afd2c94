from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tests.refusals import refused

import privote as pv
from privote.dependencies import Implications, consistent, gated
from privote.errors import BudgetError, UnavailableError

CHEST = [("Pneumonia", "Consolidation"), ("Consolidation", "Opacity"), ("Edema", "Opacity")]
DELTA = 1e-5
NAMES = ("Opacity", "Consolidation", "Pneumonia", "Edema")

# Pairs of places that go up in number cannot lead back.
RISING = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda pair: pair[0] < pair[1]),
    min_size=1,
    max_size=8,
)
ROWS = arrays(np.int8, (7, 5), elements=st.integers(-1, 1))


def test_pairs_and_mappings_say_the_same() -> None:
    mapping = {"Pneumonia": "Consolidation", "Consolidation": ["Opacity"], "Edema": ("Opacity",)}
    for source in (CHEST, mapping, Implications.of(CHEST), [*CHEST, CHEST[0]]):
        assert sorted(Implications.of(source).pairs) == sorted(CHEST)


def test_a_cycle_is_shown() -> None:
    with refused("implies") as caught:
        Implications.of([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    cycle = str(caught.value).rpartition(": ")[2].split(" -> ")
    assert len(cycle) == 4
    assert cycle[0] == cycle[-1]
    assert {*itertools.pairwise(cycle)} == {("a", "b"), ("b", "c"), ("c", "a")}


def test_labels_are_found_by_name_or_place() -> None:
    assert set(Implications.of(CHEST).places(4, NAMES)) == {(2, 1), (1, 0), (3, 0)}
    assert Implications.of([("2", "0")]).places(3) == [(2, 0)]


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("up", [[1, 1, 1, 0], [0, 0, 0, 0], [1, -1, -1, 1], [1, 1, 1, -1], [0, 0, 0, 0]]),
        ("down", [[0, 0, 0, 0], [0, 0, 0, 0], [1, -1, -1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]),
    ],
)
def test_who_gives_way(rule: str, made: list[list[int]]) -> None:
    labels = np.array(
        [[0, 0, 1, 0], [0, 0, 0, 0], [-1, -1, -1, 1], [0, -1, 1, -1], [0, -1, -1, 0]], np.int8
    )
    np.testing.assert_array_equal(consistent(labels, CHEST, rule, names=NAMES), made)


@given(labels=ROWS, pairs=RISING, rule=st.sampled_from(["up", "down"]))
def test_what_is_consistent(labels: np.ndarray, pairs: list[tuple[int, int]], rule: str) -> None:
    before = labels.copy()
    made = consistent(labels, pairs, rule)
    np.testing.assert_array_equal(labels, before)
    for child, parent in Implications.of(pairs).pairs:
        below, above = made[:, int(child)], made[:, int(parent)]
        assert (above[below == 1] == 1).all()
        assert (below[above == 0] == 0).all()
    np.testing.assert_array_equal(consistent(made, pairs, rule), made)
    # The side that does not give way keeps what was released, and nothing else is made up.
    kept = 1 if rule == "up" else 0
    assert (made[labels == kept] == kept).all()
    alone = np.setdiff1d(np.arange(5), np.unique(pairs))
    np.testing.assert_array_equal(made[:, alone], labels[:, alone])
    assert ((made != labels) <= ((labels >= 0).any(axis=1)[:, None])).all()


@given(
    scores=arrays(np.float64, (4, 5), elements=st.floats(0, 1)),
    pairs=RISING,
    rule=st.sampled_from(["up", "down"]),
)
def test_probabilities(scores: np.ndarray, pairs: list[tuple[int, int]], rule: str) -> None:
    made = consistent(scores, pairs, rule)
    assert ((made >= scores) if rule == "up" else (made <= scores)).all()
    for child, parent in pairs:
        assert (made[:, child] <= made[:, parent]).all()
    # Labels by a bar on consistent probabilities are the consistent labels.
    bar = (scores >= 0.5).astype(np.int8)
    np.testing.assert_array_equal(made >= 0.5, consistent(bar, pairs, rule))


def test_a_release_says_what_was_done(tmp_path: Path) -> None:
    votes = np.random.default_rng(3).random((60, 20, 3)) < [0.7, 0.3, 0.5]
    asked = {"mechanism": pv.BinaryVoting(sigma=3.0), "guarantee": "worst-case", "seed": 4}
    plain = pv.label(votes, epsilon=200, delta=DELTA, **asked)
    made = consistent(plain, {0: [1, 2]})
    changed = int((made.labels != plain.labels).sum())
    assert changed
    assert made.processed == (f"2 implications were applied (up) and changed {changed} labels",)
    assert (made.epsilon, plain.processed) == (plain.epsilon, ())
    assert made.processed[0] in made.summary()
    assert made.processed[0] in made.statement()
    made.save(tmp_path / "made.npz")
    assert pv.Release.load(tmp_path / "made.npz").processed == made.processed
    matrix = pv.dependencies.positive(made)
    np.testing.assert_array_equal(matrix, pv.dependencies.positive(made.labels))


TABLES = arrays(
    np.int8, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-1, 1)
)


@given(TABLES)
def test_it_is_the_share_of_pairs_that_are_known(Y: np.ndarray) -> None:
    for value, matrix in ((1, pv.dependencies.positive(Y)), (0, pv.dependencies.negative(Y))):
        for row in range(Y.shape[1]):
            for column in range(Y.shape[1]):
                there = Y[Y[:, row] == value, column]
                there = there[there >= 0]
                expected = (there == value).mean() if len(there) else np.nan
                assert matrix[row, column] == pytest.approx(expected, nan_ok=True)


ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0])


def guardian(questions: float, mechanism: pv.BinaryVoting, **more: Any) -> pv.Guardian:
    """Return a door in the worst case, with a budget for so many questions about one label."""
    curve = questions * mechanism.worst_case_rdp(more.pop("voters", 20), 1)
    epsilon = float(pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA)) * (1 + 1e-9)
    budget = pv.Budget(epsilon=epsilon, delta=DELTA)
    return pv.Guardian(
        mechanism, budget, pv.Ledger.in_memory(), **{"guarantee": "worst-case", **more}
    )


def electorate(voters: int, mechanism: pv.BinaryVoting, **more: Any) -> pv.Electorate:
    """Return a door of one label."""
    given = {"epsilon": 5000.0, "delta": DELTA, **more}
    return pv.Electorate(mechanism=mechanism, voters=voters, labels=1, **given)


def test_the_rest_is_asked_where_the_indicator_is_released_as_one() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((60, 5)) < 0.4
    votes = np.repeat(truth[:, None], 30, axis=1)
    door = electorate(30, pv.BinaryVoting(sigma=2.0), seed=1)
    release = gated(door.answer, votes, 2)
    np.testing.assert_array_equal(release.labels, truth & truth[:, [2]])  # all are of one mind
    asked = 60 + 4 * int(truth[:, 2].sum())
    assert door.answered == asked
    assert f"{asked} questions on single labels instead of 300" in release.processed[0]
    assert release.epsilon == door.epsilon
    assert release.sealed.spent.tolist() == [release.labels.sum()] * 30


def test_in_the_worst_case_the_budget_is_what_is_printed() -> None:
    mechanism = pv.BinaryVoting(sigma=4.0)
    votes = np.zeros((50, 20, 6), bool)
    votes[::10] = True
    release = gated(guardian(30, mechanism, seed=0).release, votes, 0)
    assert release.epsilon == release.budget
    assert "epsilon is the whole budget" in release.statement()
    # 30 questions: queries 0, 10 and 20 take six each, those between one, and none is left at 14.
    assert release.answered == 20
    np.testing.assert_array_equal(release.labels, votes[:20, 0])
    assert guardian(30, mechanism, seed=0).release(votes).answered == 5


def test_a_query_that_was_begun_and_not_ended_stays_behind() -> None:
    mechanism = pv.BinaryVoting(sigma=1.0)
    votes = np.ones((4, 20, 3), bool)
    for fit, answered in ((3, 1), (4, 1), (5, 1), (6, 2), (8, 2)):
        assert gated(guardian(fit, mechanism).release, votes, 0).answered == answered
    with pytest.raises(BudgetError):
        gated(guardian(0.5, mechanism).release, votes, 0)


def test_an_indicator_held_back_and_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        [(f"q{q}", f"v{v}", int(q < 2 or v % 2), int(q < 1)) for q in range(3) for v in range(10)],
        columns=["query", "voter", "rain", "snow"],
    )
    mechanism = pv.BinaryVoting(sigma=1.0, gate=pv.Gate(threshold=8, sigma=0.5))
    release = gated(electorate(10, mechanism, seed=1).answer, frame, 0)
    np.testing.assert_array_equal(release.labels, [[1, 1], [1, 0], [-1, -1]])
    assert release.label_names == ("rain", "snow")
    assert release.query_names == ("q0", "q1", "q2")


def test_bad_arguments() -> None:
    def never(votes: Any, /, **more: Any) -> pv.Release:
        raise AssertionError("nothing may be asked")

    votes = np.zeros((2, 3, 4), bool)
    with refused("indicator", value=4):
        gated(never, votes, 4)
    with refused(None, UnavailableError):
        gated(never, pv.SparseBallots([0], [0], [[1, 0]], queries=1, voters=3), 0)
    with refused("queries"):
        asked = guardian(1, pv.BinaryVoting(sigma=1.0), guarantee="data-dependent")
        gated(asked.release, votes, 0)


# -- privacy: every transcript of a small run ------------------------------------------------------


class EndOfTapeError(Exception):
    """The outcomes were told up to here."""


class TapedVoting(pv.BinaryVoting):
    """Binary voting whose draws are told, so that a real run can be led along every branch."""

    bits: ClassVar[Iterator[int]]
    log: ClassVar[float]  # the log-probability of what was drawn

    def draw(self, tally: Any, entropy: Any) -> Any:
        drawn = []
        for cell in self.log_probs(tally.margins, tally.voters).reshape(-1, 2):
            bit = next(TapedVoting.bits, None)
            if bit is None:
                raise EndOfTapeError
            TapedVoting.log += float(cell[bit])
            drawn.append(bit)
        return np.array(drawn, np.int8).reshape(tally.margins.shape)


def transcripts(run: Callable[[], Any]) -> dict[tuple[int, ...], float]:
    """Return every sequence of released labels that a run can have, with its log-probability."""
    found: dict[tuple[int, ...], float] = {}
    todo: list[tuple[int, ...]] = [()]
    while todo:
        bits = todo.pop()
        TapedVoting.bits, TapedVoting.log = iter(bits), 0.0
        try:
            run()
        except EndOfTapeError:
            todo += [(*bits, 0), (*bits, 1)]
        else:
            assert next(TapedVoting.bits, None) is None
            found[bits] = TapedVoting.log
    assert np.exp(list(found.values())).sum() == pytest.approx(1)
    return found


def neighbours(seed: int) -> list[np.ndarray]:
    """Return votes (2 queries, 3 voters, 3 labels) in which one voter's ballots differ."""
    rng = np.random.default_rng(seed)
    others = rng.random((2, 3, 3)) < 0.6
    ballots = [np.zeros((2, 3)), np.ones((2, 3)), *(rng.random((2, 2, 3)) < 0.5)]
    made = []
    for ballot in ballots:
        votes = others.copy()
        votes[:, 0] = ballot
        made.append(votes)
    return made


def check_transcripts(
    answer: Callable[[], Any], seed: int, stated: np.ndarray, epsilon: float
) -> list[dict[tuple[int, ...], float]]:
    """Compare all runs of neighbours with what is stated: costs, and delta at this epsilon."""
    worlds = [
        transcripts(lambda votes=votes: gated(answer(), votes, 0)) for votes in neighbours(seed)
    ]
    divergence = 0.0
    for one, two in itertools.permutations(worlds, 2):
        # What is asked follows from released labels alone, so both have the same transcripts.
        assert one.keys() == two.keys()
        p, q = (np.array([world[key] for key in one]) for world in (one, two))
        cost = np.log(np.exp(np.outer(ORDERS, p) - np.outer(ORDERS - 1, q)).sum(axis=1))
        divergence = max(divergence, (cost / (ORDERS - 1) / stated).max())
        assert np.maximum(np.exp(p) - np.exp(epsilon + q), 0).sum() <= DELTA
    assert 0.3 < divergence <= 1 + 1e-9
    return worlds


@pytest.mark.parametrize("allowance", [1, 2])
def test_all_transcripts_under_an_allowance(allowance: int) -> None:
    mechanism = TapedVoting(sigma=2.0)

    def door() -> pv.Electorate:
        return electorate(3, mechanism, epsilon=30, allowance=allowance)

    stated = 2 * allowance * mechanism.contribution_rdp(3, 1, ORDERS)
    check_transcripts(lambda: door().answer, allowance, stated, door().epsilon)


def test_all_transcripts_in_the_worst_case() -> None:
    mechanism, questions = TapedVoting(sigma=2.0), 4

    def door() -> pv.Guardian:
        return guardian(questions, mechanism, voters=3)

    stated = questions * mechanism.worst_case_rdp(3, 1, ORDERS)
    worlds = check_transcripts(lambda: door().release, 7, stated, door().budget.epsilon)
    assert {len(bits) for bits in worlds[0]} <= {2, 3, 4}  # two to four questions
    # The cost of the questions that one branch asked is less, and is no bound: see the docstring.
    assert min(len(bits) for bits in worlds[0]) < questions
