"""Rounds: what is asked next depends on released labels only, and every round is paid for."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import privote as pv
from privote.entropy import Entropy
from privote.guardian import Guardian
from privote.learning.pate import PoolLabelling
from privote.ledger import Budget, Ledger
from privote.votes.cube import Ballots

ROWS, VOTERS, LABELS = 400, 40, 5
RNG = np.random.default_rng(3)
TRUTH = RNG.random((ROWS, LABELS)) < 0.3
VOTES = np.repeat(TRUTH[:, None], VOTERS, axis=1)


class Cube:
    near = None
    voters, labels = VOTERS, LABELS

    def __init__(self):
        self.seen = []

    def take(self, rows):
        self.seen.append(rows)
        return Ballots.from_array(VOTES[rows])


def run(mechanism=None, epsilon=4.0, ask=None, taught=None, rounds=1, queries=None):
    cube, taught = Cube(), [] if taught is None else taught
    with Guardian(
        mechanism or pv.BinaryVoting(sigma=10.0),
        Budget(epsilon=epsilon, delta=1e-5),
        Ledger.in_memory(),
        guarantee="allowance",
        seed=0,
    ) as guardian:
        rows, release = PoolLabelling(
            guardian=guardian,
            pool=cube,
            rounds=rounds,
            queries=queries,
            progress=lambda done, total: None,
            public=SimpleNamespace(
                order=np.random.default_rng(4).permutation(ROWS),
                student=lambda rows, targets: taught.append(targets),
                ask=ask or (lambda model, rows: np.where(TRUTH[rows], 0.9, 0.1)),
            ),
        ).run()
    assert len(rows) == release.answered == len(set(rows.tolist()))
    return rows, release, cube


def test_all_rounds_share_one_learnt_allowance():
    learnt_from = []
    once = run(mechanism="auto", epsilon=40.0)[1]
    _, several, cube = run(mechanism="auto", epsilon=40.0, rounds=4, taught=learnt_from)
    assert several.answered == once.answered == ROWS
    assert several.so_far == several.terms["learnt"]["planned"] == ROWS
    assert several.epsilon <= 40.0
    # Rounds depend on each other, which the exact price of one call does not cover.
    assert once.terms["learnt"]["exact"]
    assert not several.terms["learnt"]["exact"]
    assert [len(rows) for rows in cube.seen] == [100] * 4
    assert several.sealed.spent.max() <= several.allowance
    # The baseline foresees what is wanted: after the first round nobody is surprised.
    assert several.sealed.spent.max() <= TRUTH[cube.seen[0]].sum()
    assert (several.labels == TRUTH[np.concatenate(cube.seen)]).mean() > 0.95
    assert [len(targets) for targets in learnt_from] == [100, 200, 300]
    assert all(0 < targets.mean() < 1 and targets.dtype == float for targets in learnt_from)
    assert len(several.drawn) == 4


def test_a_named_mechanism_answers_what_was_asked():
    (rows, once, _), (later, several, _) = run(), run(rounds=4)
    assert once.answered == several.answered == ROWS
    assert several.epsilon == once.epsilon
    assert once.sealed.exhausted.all()
    # A good student as the baseline makes the allowance last longer.
    assert (several.labels == TRUTH[later]).mean() > (once.labels == TRUTH[rows]).mean() + 0.05


@pytest.mark.parametrize("mechanism", [pv.BinaryVoting(sigma=10.0), "auto"], ids=str)
def test_nothing_that_only_votes_know_decides_what_is_asked(monkeypatch, mechanism):
    """Votes that differ, but are released as the same, are asked about the same rows."""

    def fixed(_, tally, entropy):
        sums = tally.margins if hasattr(tally, "margins") else tally.steps
        drawn = np.random.default_rng(len(sums)).random(sums.shape)
        return (drawn < 0.2).astype(np.int8) if mechanism != "auto" else (40 * drawn).astype(int)

    monkeypatch.setattr(pv.BinaryVoting, "draw", fixed)
    monkeypatch.setattr(pv.TallyVoting, "draw", fixed)
    monkeypatch.setattr(Entropy, "tempered", lambda *_: 3)  # what is learnt is paid for
    found = []
    for votes in (np.zeros_like(VOTES), np.ones_like(VOTES)):
        monkeypatch.setattr(sys.modules[__name__], "VOTES", votes)
        taught = []
        rows, release, cube = run(rounds=3, mechanism=mechanism, taught=taught)
        assert len(cube.seen) == 3
        found.append((rows.tolist(), [part.tolist() for part in cube.seen], release.forecast))
        found[-1] += ([targets.tolist() for targets in taught], release.facts()["sha256"])
    assert found[0] == found[1]


def test_the_forecast_is_of_all_rounds():
    loud = run(mechanism=pv.BinaryVoting(sigma=40.0), rounds=2, queries=60)[1]
    assert loud.forecast["missed"] > 0.05
    assert loud.forecast["warnings"]


def test_a_baseline_keeps_to_what_the_mechanism_can_release():
    ask = lambda model, rows: np.tile(np.linspace(0.6, 0.9, LABELS), (len(rows), 1))  # noqa: E731
    mechanism = pv.PowersetVoting(sigma=8.0, max_positives=LABELS)
    assert run(mechanism=mechanism, rounds=2, queries=20, ask=ask)[1].answered == 20
    two = SimpleNamespace(mechanism=pv.PowersetVoting(sigma=1.0, max_positives=2))
    asking = dict.fromkeys(("pool", "rounds", "queries", "progress"))
    public = SimpleNamespace(student=lambda *_: None, ask=ask)
    told = PoolLabelling(guardian=two, public=public, **asking)
    release = run(queries=20)[1]
    guess = told._guess(np.arange(20), [release], np.arange(1))
    assert guess.tolist() == [[False, False, False, True, True]]


def test_rounds_end_where_an_earlier_fit_left_no_more(tmp_path):
    X = RNG.normal(size=(300, 3))
    private, public = X[:200], X[200:]

    def fitted(queries, **more):
        model = pv.PATEClassifier(n_teachers=30, queries=queries, epsilon=8.0, delta=1e-5, **more)
        model.fit(
            private,
            (private[:, :2] > 0).astype(int),
            X_public=public,
            ids=range(200),
            ledger=tmp_path / "l.db",
            electorate="e",
        )
        return model.release_.answered

    assert fitted(60) == 60
    assert fitted(60, rounds=2) == 30  # of the 40 that are left, and paid for
    with pytest.raises(pv.BudgetError):
        fitted(60, rounds=2)
