"""Rounds: what is asked next depends on released labels only, and every round is paid for."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import privote as pv
from privote.guardian import Guardian
from privote.learning.rounds import PoolLabelling, Schedule
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


def run(guarantee="allowance", mechanism=None, epsilon=4.0, ask=None, **schedule):
    cube = Cube()
    with Guardian(
        mechanism or pv.BinaryVoting(sigma=10.0),
        Budget(epsilon=epsilon, delta=1e-5),
        Ledger.in_memory(),
        guarantee=guarantee,
        seed=0,
    ) as guardian:
        rows, release = PoolLabelling(
            guardian=guardian,
            pool=cube,
            schedule=Schedule(**schedule),
            public=SimpleNamespace(
                order=np.random.default_rng(4).permutation(ROWS),
                student=lambda rows, labels: (rows, labels),
                ask=ask or (lambda model, rows: np.where(TRUTH[rows], 0.9, 0.1)),
            ),
        ).run()
    assert len(rows) == release.answered == len(set(rows.tolist()))
    return rows, release, cube


def test_one_round_asks_what_was_wanted():
    rows, release, cube = run(queries=30)
    assert len(rows) == 30
    assert len(cube.seen) == 1
    assert release.epsilon <= 4.0


def test_an_allowance_lasts_for_about_as_long_as_released_labels_say():
    _, release, cube = run(epsilon=8.0)
    spent = release.sealed.spent
    assert len(cube.seen) == 1
    assert release.answered < ROWS
    assert 0.8 * release.allowance < spent.max() <= release.allowance


def test_a_good_student_as_baseline_makes_the_allowance_last_longer():
    once, several = run()[1], run(rounds=4)[1]
    assert several.answered > 2 * once.answered
    assert several.epsilon == once.epsilon


def test_nothing_that_only_votes_know_decides_what_is_asked(monkeypatch):
    """Votes that differ, but are released as the same labels, are asked about the same rows."""

    def fixed(_, tally, entropy):
        drawn = np.random.default_rng(tally.margins.shape[0]).random(tally.margins.shape)
        return (drawn < 0.2).astype(np.int8)

    monkeypatch.setattr(pv.BinaryVoting, "draw", fixed)
    found = []
    for votes in (np.zeros_like(VOTES), np.ones_like(VOTES)):
        monkeypatch.setattr(sys.modules[__name__], "VOTES", votes)
        rows, release, cube = run(rounds=3, choose="uncertainty")
        assert len(cube.seen) == 3
        found.append((rows.tolist(), [part.tolist() for part in cube.seen], release.forecast))
    assert found[0] == found[1]


def test_every_round_but_the_last_leaves_its_part_to_the_others():
    silent = lambda model, rows: np.zeros((len(rows), LABELS))  # noqa: E731
    _, release, cube = run(rounds=4, epsilon=8.0, ask=silent)
    assert len(cube.seen) == 4  # a student that says nothing: every round costs the same
    assert release.answered == pytest.approx(run(epsilon=8.0)[1].answered, rel=0.3)
    assert release.sealed.spent.max() <= release.allowance


def test_the_forecast_is_of_all_rounds():
    once, several = run()[1], run(rounds=4)[1]
    assert once.forecast.yes == pytest.approx(0.3, abs=0.1)
    assert several.forecast.yes < 0.15  # the student foresees what is wanted: fewer surprises
    assert several.forecast.answered == several.answered
    assert several.forecast.warnings == ()
    loud = run(mechanism=pv.BinaryVoting(sigma=40.0), rounds=2, queries=60)[1]
    assert "of the labels that every voter wants are missed" in loud.forecast.warnings[0]
    assert run("worst-case", pv.BinaryVoting(sigma=30.0), rounds=2)[1].forecast.lasts is None


def test_later_rounds_begin_where_the_student_is_unsure():
    doubtful = np.arange(ROWS) % 7 == 0
    ask = lambda model, rows: np.where(doubtful[rows, None], 0.5, 0.01) * np.ones(LABELS)  # noqa: E731
    _, _, cube = run(rounds=2, queries=60, choose="uncertainty", ask=ask)
    assert doubtful[cube.seen[1]].all()
    assert not doubtful[cube.seen[0]].all()


def test_rounds_of_composition_cost_what_all_of_them_cost():
    mechanism = pv.BinaryVoting(sigma=30.0)
    once = run("worst-case", mechanism, queries=None)[1]
    several = run("worst-case", mechanism, rounds=3, queries=None)[1]
    assert several.answered == once.answered
    assert several.epsilon == pytest.approx(once.epsilon)
    some = run("worst-case", mechanism, rounds=2, queries=10)[1]
    each = mechanism.worst_case_rdp(VOTERS, LABELS)
    assert some.epsilon == pytest.approx(pv.epsilon(10 * each, None, 1e-5))


def test_ballots_are_the_unit_for_other_mechanisms():
    tau = pv.TauVoting(sigma=40.0, tau=1.5)
    _, release, _ = run(mechanism=tau, epsilon=8.0)
    assert release.sealed.spent.max() <= release.allowance


def test_a_baseline_keeps_to_what_the_mechanism_can_release():
    ask = lambda model, rows: np.tile(np.linspace(0.6, 0.9, LABELS), (len(rows), 1))  # noqa: E731
    mechanism = pv.PowersetVoting(sigma=8.0, max_positives=LABELS)
    assert run(mechanism=mechanism, rounds=2, queries=20, ask=ask)[1].answered == 20
    from privote.learning.rounds import _guess

    two = _guess(ask(None, [0]), pv.PowersetVoting(sigma=1.0, max_positives=2))
    assert two.tolist() == [[False, False, False, True, True]]


@pytest.mark.parametrize(
    ("guarantee", "schedule", "words"),
    [
        ("ptr", {"rounds": 2, "queries": 10}, "rounds must be 1"),
        ("data-dependent", {}, "queries must be given"),
        ("allowance", {"queries": ROWS + 1}, "queries must lie in"),
    ],
)
def test_what_cannot_be_promised_is_refused(guarantee, schedule, words):
    with pytest.raises(pv.InputError, match=words):
        run(guarantee, **schedule)


@pytest.mark.parametrize(
    "bad", [{"rounds": 0}, {"rounds": 1.5}, {"queries": 0}, {"choose": "best"}, {"rounds": True}]
)
def test_bad_schedules_are_refused(bad):
    with pytest.raises(pv.InputError, match=next(iter(bad))):
        Schedule(**bad)
