"""Neighbours in passes: one allowance, charged first; shares from released labels only."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from tests.refusals import refused

import privote as pv
import privote.learning.neighbours.labelling as room
from privote.forecast import expected
from privote.guardian import Guardian
from privote.learning import NeighbourStudent, PATEClassifier, load_student, save_student
from privote.learning.neighbours.ballots import NeighbourBallots
from privote.learning.neighbours.labelling import NeighbourPlan, label_by_neighbours
from privote.ledger import Budget, Ledger

RNG = np.random.default_rng(1)
RECORDS, POOL, LABELS = 3000, 120, 3
RULE = RNG.normal(size=(6, LABELS))
X = RNG.normal(size=(RECORDS, 6))
Y = (X @ RULE > [1.0, 2.0, 3.5]).astype(np.int8)  # from common to rare
PUBLIC = RNG.normal(size=(POOL, 6))
TEST = RNG.normal(size=(500, 6))
TRUTH = (TEST @ RULE > [1.0, 2.0, 3.5]).astype(np.int8)
MECHANISM = pv.BinaryVoting(sigma=8.0, false_alarm=0.05)
PLAN = NeighbourPlan(mechanism=MECHANISM, share=0.05, queries=POOL, first=30, passes=3)


def pate(**settings):
    return PATEClassifier(**{"voters": "neighbours", "epsilon": 8.0, "delta": 1e-5, **settings})


def labelling(labels=Y, ledger=None, plan=PLAN, epsilon=8.0, **more):
    guardian = Guardian(
        MECHANISM,
        Budget(epsilon=epsilon, delta=1e-5),
        Ledger.in_memory() if ledger is None else ledger,
        seed=0,
    )
    ballots = NeighbourBallots(X, labels, PUBLIC, plan.share, radius="query")
    return label_by_neighbours(guardian, ballots, plan, np.arange(POOL), **more)


@pytest.fixture(scope="module")
def fitted():
    return pate().fit(X, Y, PUBLIC, seed=0)


def test_every_row_is_answered_once_a_pass_and_the_student_learns(fitted):
    times = np.bincount(fitted.public_rows_, minlength=POOL)
    assert len(set(times.tolist())) == 1
    assert times[0] > 1
    assert len(fitted.public_rows_) == fitted.release_.answered == fitted.release_.so_far
    assert fitted.privacy_["epsilon"] <= 8.0
    assert fitted.shares_.shape == (LABELS,)
    assert fitted.shares_[2] > fitted.shares_[0]
    found = pv.metrics.multilabel(TRUTH, fitted.predict_proba(TEST))
    assert found["AUC"] > 0.85
    assert isinstance(fitted.student_, NeighbourStudent)


def test_the_forecast_is_of_the_records_near_a_query(fitted):
    """Published numbers only, and still near what only the owner may see."""
    release, found = fitted.release_, fitted.release_.forecast
    near = np.median(fitted.shares_) * release.voters
    assert found["near"] == pytest.approx(near, abs=1)
    assert 0 < found["share_needed"] <= 1
    assert found["lasts"] is None  # their plan sees to that
    assert "voters near it want" in expected(found)
    with pytest.warns(pv.PrivoteWarning, match="that every voter near a query wants are missed"):
        pate(share=0.001, mechanism=pv.BinaryVoting(sigma=20.0, quota=0.01)).fit(X, Y, PUBLIC)


def test_the_allowance_is_charged_before_the_first_batch_and_never_again(monkeypatch):
    seen, book, release = [], Ledger.in_memory(), Guardian.release

    def charges():
        return [entry["kind"] for entry in book.published()].count("charge")

    def watch(self, votes, **more):
        seen.append((charges(), votes.queries))
        return release(self, votes, **more)

    monkeypatch.setattr(Guardian, "release", watch)
    found = labelling(ledger=book)
    assert seen == [(1, 30), (1, 90), (1, 120), (1, 120)]
    assert charges() == 1
    assert found.release.answered == 360
    assert found.release.epsilon <= 8.0


def test_who_runs_out_is_silent_in_every_later_pass():
    """All batches draw on one allowance: nobody's spending passes it, whatever the passes."""
    plan = NeighbourPlan(mechanism=MECHANISM, share=0.2, queries=POOL, first=30, passes=6)
    found = labelling(plan=plan, epsilon=3.0)
    spent, allowance = found.release.sealed.spent, found.release.allowance
    assert spent.max() <= allowance
    assert found.release.sealed.exhausted.mean() > 0.2
    # Without a limit they would have cast several times as much.
    votes = [
        np.bincount(block.voter, block.votes.sum(axis=1), RECORDS)
        for block in NeighbourBallots(X, Y, PUBLIC, found.shares, radius="query").blocks()
    ]
    wanted = plan.passes * np.sum(votes, axis=0)
    assert wanted.max() > 3 * allowance
    late = found.release.labels[-POOL:].mean()
    assert late < found.release.labels[30 : 30 + 90].mean()


def test_shares_look_at_released_labels_only(monkeypatch):
    """Other private labels behind the same releases: the same shares, circles and queries."""
    given, balanced = [], room.balanced_shares

    def watch(labels, share, mechanism, voters, **more):
        given.append((labels.copy(), share, mechanism, voters))
        return balanced(labels, share, mechanism, voters, **more)

    monkeypatch.setattr(room, "balanced_shares", watch)
    fixed = np.random.default_rng(5).random((POOL * 3, LABELS)) < [0.6, 0.3, 0.05]
    monkeypatch.setattr(
        pv.BinaryVoting,
        "draw",
        lambda self, tally, entropy: fixed[: len(tally.margins)].astype(np.int8),
    )
    one, two = labelling(Y), labelling(1 - Y[::-1])
    np.testing.assert_array_equal(one.shares, two.shares)
    np.testing.assert_array_equal(one.rows, two.rows)
    assert len(np.unique(one.shares)) > 1
    for labels, share, mechanism, voters in given:
        np.testing.assert_array_equal(labels, fixed[:30])
        assert (share, mechanism, voters) == (PLAN.share, MECHANISM, RECORDS)
    for mine, theirs in zip(one.batches, two.batches, strict=True):
        for near, other in zip(mine[0].near, theirs[0].near, strict=True):
            assert (near != other).nnz == 0


def test_batches_say_what_was_asked_with_which_circle():
    found = labelling()
    first, *passes = found.batches
    assert first[0].queries == 30
    assert all(circles is passes[0][0] for circles, _ in passes)
    assert (passes[0][1][:30] == pv.ABSTAIN).all()
    again = np.concatenate([first[1], passes[0][1][30:], passes[1][1], passes[2][1]])
    np.testing.assert_array_equal(again, found.release.labels)
    np.testing.assert_array_equal(
        found.rows, np.concatenate([np.arange(POOL), np.arange(POOL), np.arange(POOL)])
    )


def test_a_pool_smaller_than_the_first_batch():
    plan = NeighbourPlan(mechanism=MECHANISM, share=0.05, queries=20, first=20, passes=1)
    found = labelling(plan=plan)
    assert found.release.answered == 20
    model = NeighbourStudent(MECHANISM).fit(PUBLIC, found.batches)
    assert model.coef_.shape == (LABELS, 6)


def test_a_large_pool_has_no_circles_and_a_plain_student(monkeypatch):
    monkeypatch.setattr(room, "MOST_ROWS", POOL - 1)
    model = pate().fit(X, Y, PUBLIC, seed=0)
    assert type(model.student_).__name__ == "LinearStudent"
    assert model.predict_proba(TEST).shape == (500, LABELS)


def test_another_student_gets_every_row_as_often_as_it_was_answered():
    seen = []

    class Watch(LogisticRegression):
        def fit(self, X, y):
            seen.append(len(X))
            return super().fit(X, y)

    from sklearn.multioutput import MultiOutputClassifier

    model = pate(student=MultiOutputClassifier(Watch())).fit(X, Y, PUBLIC, seed=0)
    assert set(seen) == {len(model.public_rows_)}
    assert len(model.public_rows_) > POOL


def test_words_are_weighted_for_the_student_and_it_is_saved_without_code(tmp_path):
    words = (RNG.random((RECORDS + 100, 30)) < 0.3).astype(np.float32)
    labels = (words[:RECORDS, :2] > 0).astype(np.int8)
    rows = sparse.csr_array(words)
    model = clone(pate(embedding="tfidf")).fit(rows[:RECORDS], labels, rows[RECORDS:], seed=0)
    assert isinstance(model.student_[0], TfidfTransformer)
    save_student(
        tmp_path / "a.student", model.student_, label_names=["a", "b"], privacy=model.privacy_
    )
    back = load_student(tmp_path / "a.student")
    np.testing.assert_allclose(
        back.predict_proba(rows[RECORDS:]), model.predict_proba(rows[RECORDS:]), rtol=1e-6
    )


# -- persons ---------------------------------------------------------------------------------------


def test_a_person_is_one_voter_with_one_allowance():
    people = (np.arange(RECORDS) // 3).astype(str).astype(object)  # as a table holds them
    model = pate().fit(X, Y, PUBLIC, groups=people, seed=0)
    assert model.release_.voters == RECORDS // 3
    assert model.release_.sealed.spent.shape == (RECORDS // 3,)
    assert model.release_.sealed.spent.max() <= model.release_.allowance
    assert model.release_.protects.startswith("a person, with all their records (replaced by any")


def test_how_many_records_a_person_has_changes_nothing_public():
    """One person's records are replaced by more of them: the plan and the circles stay."""
    people = np.arange(RECORDS) // 3
    more = np.concatenate([np.arange(RECORDS), np.zeros(400, np.int64)])
    one = pate().fit(X, Y, PUBLIC, groups=people, seed=0)
    two = pate().fit(X[more], Y[more], PUBLIC, groups=people[more], seed=0)
    assert one.release_.mechanism == two.release_.mechanism
    assert one.release_.voters == two.release_.voters
    np.testing.assert_array_equal(one.public_rows_, two.public_rows_)
    other = one.release_.sealed.spent != two.release_.sealed.spent
    assert set(np.flatnonzero(other).tolist()) <= {0}


def test_the_same_persons_go_on_under_the_name_of_an_electorate(tmp_path):
    people = np.array([f"p{i:04d}" for i in np.arange(RECORDS) // 3])
    common = {"ledger": tmp_path / "a.ledger", "electorate": "ward 7"}
    settings = {"mechanism": MECHANISM, "queries": 40}
    first = pate(**settings).fit(X, Y, PUBLIC, groups=people.tolist(), **common)
    order = np.random.default_rng(2).permutation(RECORDS)
    again = pate(**settings).fit(
        X[order], Y[order], PUBLIC, groups=people[order].tolist(), **common
    )
    assert again.release_.so_far == first.release_.answered + again.release_.answered
    # Seat by seat the same person: nobody has spent less than before.
    assert (again.release_.sealed.spent >= first.release_.sealed.spent).all()
    with refused(None, pv.BudgetError):
        pate(mechanism=MECHANISM).fit(X, Y, PUBLIC, groups=people.tolist(), **common)
    with refused(None, pv.BudgetError):
        pate(**settings).fit(X, Y, PUBLIC, **common)  # records are other voters than persons


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "given", "argument"),
    [
        ({"rounds": 3}, {}, None),
        ({"choose": "uncertainty"}, {}, None),
        ({"queries": POOL + 1}, {}, "queries"),
        ({"share": 2.0}, {}, "share"),
        ({"embedding": "words"}, {}, "embedding"),
        ({}, {"ids": [1, 2]}, "ids"),
        ({}, {"groups": np.zeros(5, int)}, "groups"),
        ({}, {"groups": np.array([1, "a"] * (RECORDS // 2), object)}, "groups"),
        ({}, {"groups": np.linspace(0, 1, RECORDS)}, "groups"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_charged(
    tmp_path, settings, given, argument
):
    path = tmp_path / "a.ledger"
    with refused(argument):
        pate(**settings).fit(X, Y, PUBLIC, ledger=path, **given)
    assert not path.exists()


def test_one_share_is_asked_once_and_in_rounds():
    model = pate(share=0.05, mechanism=MECHANISM, rounds=2, choose="uncertainty")
    model.fit(X, Y, PUBLIC, seed=0)
    assert model.shares_ is None
    assert np.unique(model.public_rows_).size == len(model.public_rows_) == POOL


@pytest.mark.parametrize("settings", [{}, {"share": 0.05}])
def test_rows_of_one_id_are_one_neighbour(settings, tmp_path):
    """A record may have several rows: as voters of their own they would have its budget each."""
    ids = [f"record {row // 2}" for row in range(RECORDS)]
    model = pate(**settings).fit(X, Y, PUBLIC, ids=ids, seed=0)
    assert model.release_.voters == RECORDS // 2
    assert "a record" in model.release_.protects
    same = pate(**settings).fit(X, Y, PUBLIC, groups=ids, seed=0)
    np.testing.assert_array_equal(model.release_.labels, same.release_.labels)
    # A ledger knows them by different names, and again.
    again = {"ids": ids, "ledger": tmp_path / "l.ledger", "electorate": "ward", "seed": 0}
    assert pate(queries=10, **settings).fit(X, Y, PUBLIC, **again).release_.voters == RECORDS // 2
