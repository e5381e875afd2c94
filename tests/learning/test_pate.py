"""PATE as an estimator: private data in, a public student out."""

import pickle
import warnings
from contextlib import closing

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.refusals import refused

import privote as pv
from privote.learning import PATEClassifier
from privote.learning import pate as room
from privote.learning.delivery import Delivery
from privote.learning.pate import VoterNames

RNG = np.random.default_rng(0)
N, LABELS = 1500, 3
X = RNG.normal(size=(N, 6)).astype(np.float32)
Y = (X[:, :LABELS] + 0.3 * RNG.normal(size=(N, LABELS)) > 0.5).astype(np.int8)
X_PUBLIC = RNG.normal(size=(300, 6)).astype(np.float32)
X_TEST = RNG.normal(size=(400, 6)).astype(np.float32)
Y_TEST = (X_TEST[:, :LABELS] > 0.5).astype(np.int8)


def pate(**settings):
    return PATEClassifier(**{"n_teachers": 40, "epsilon": 8.0, "delta": 1e-5, **settings})


@pytest.fixture(scope="module")
def fitted():
    return pate().fit(X, Y, X_PUBLIC, seed=0)


@pytest.fixture
def results(monkeypatch):
    """Return what keeps all that a function of the room returns."""

    def of(name):
        seen, real = [], getattr(room, name)
        monkeypatch.setattr(room, name, lambda *a, **k: seen.append(real(*a, **k)) or seen[-1])
        return seen

    return of


def test_the_student_learns_and_the_promise_holds(fitted):
    found = pv.metrics.multilabel(Y_TEST, fitted.predict_proba(X_TEST))
    assert found["AUC"] > 0.9
    assert fitted.guarantee_.epsilon <= 8.0
    assert fitted.guarantee_.kind == "allowance"
    assert len(fitted.public_rows_) == fitted.release_.answered == len(X_PUBLIC)
    # It says yes as often as teachers do, as far as released tallies tell.
    said, share = fitted.predict(X_PUBLIC).mean(axis=0), fitted.shares_
    assert said == pytest.approx(share, abs=0.02)
    assert share == pytest.approx(Y.mean(axis=0), abs=0.05)


def test_a_student_of_tallies_learns_from_shares(monkeypatch):
    """Shares, and not labels at one half: released numbers only, also for the thresholds."""
    taught, train = [], room.train_student
    monkeypatch.setattr(
        room, "train_student", lambda *given: taught.append(given[2]) or train(*given)
    )
    model = pate().fit(X, Y, X_PUBLIC, seed=0)
    assert np.array_equal(taught[0], pv.decide(model.release_).shares)
    assert model.guarantee_.kind == "allowance"
    bits = pate(mechanism=pv.BinaryVoting(sigma=8.0), queries=20).fit(X, Y, X_PUBLIC, seed=0)
    assert np.array_equal(taught[1], bits.release_.labels)
    assert bits.thresholds_ == 0.5
    assert bits.shares_ == pytest.approx(bits.predict_proba(X_PUBLIC).mean(axis=0))
    assert bits.guarantee_.kind == "worst-case"  # so few queries fit


def test_noise_and_parts_are_fresh_unless_a_seed_is_given_and_training_is_not():
    noisy = {"queries": 50, "mechanism": pv.BinaryVoting(sigma=40.0)}  # labels are near coin flips
    one, two = (pate(**noisy).fit(X, Y, X_PUBLIC, seed=3) for _ in range(2))
    assert np.array_equal(one.release_.labels, two.release_.labels)
    assert one.guarantee_.simulated
    assert one.release_.forecast["warnings"]
    other = pate(**noisy).fit(X, Y, X_PUBLIC)
    assert np.array_equal(other.public_rows_, one.public_rows_)
    assert not np.array_equal(other.release_.labels, one.release_.labels)
    assert not other.guarantee_.simulated


def test_one_record_reaches_one_voter_whatever_it_holds(results):
    """The adjacency: two data sets that differ in one record differ in one voter's ballots."""
    seen = results("cast")
    other, wild = X.copy(), Y.copy()
    other[17], wild[17] = 1e3, 1 - wild[17]
    for rule in ("prevalence", 0.5):
        seen.clear()
        pate(threshold=rule, queries=20).fit(X, Y, X_PUBLIC, seed=0)
        pate(threshold=rule, queries=20).fit(other, wild, X_PUBLIC, seed=0)
        changed = (seen[0] != seen[1]).any(axis=(0, 2))
        assert changed.sum() <= 1


def test_a_ledger_holds_the_budget_over_fits(tmp_path):
    path = tmp_path / "a.ledger"
    common = {"ledger": path, "electorate": "ward 7"}
    setting = {"queries": 10, "mechanism": pv.BinaryVoting(sigma=8.0)}
    first = pate(**setting).fit(X, Y, X_PUBLIC, **common)
    again = pate(**setting).fit(X, Y, X_PUBLIC, **common)  # the same voters go on
    assert again.guarantee_.allowance == first.guarantee_.allowance
    assert again.guarantee_.answered_total == 20
    assert again.release_.sealed.spent.sum() > first.release_.sealed.spent.sum()
    rest = pate(mechanism=setting["mechanism"]).fit(X, Y, X_PUBLIC, **common).release_
    assert rest.guarantee.answered_total == 320  # all that was asked, though voters have run out
    assert rest.sealed.exhausted.all()
    assert rest.epsilon == first.release_.epsilon


def test_a_learnt_allowance_is_for_the_public_rows_of_the_first_fit(tmp_path):
    common = {"ledger": tmp_path / "a.ledger", "electorate": "ward 7"}
    first = pate(queries=200).fit(X, Y, X_PUBLIC, **common).release_
    rest = pate(queries=100).fit(X, Y, X_PUBLIC, **common).release_
    assert rest.guarantee.answered_total == 300
    assert (rest.epsilon, rest.guarantee.mechanism) == (first.epsilon, first.guarantee.mechanism)
    with refused(None, pv.BudgetError):
        pate(queries=1).fit(X, Y, X_PUBLIC, **common)


@pytest.mark.parametrize("voters", ["teachers", "neighbours"])
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"electorate": "ward 8"},
        {"electorate": "ward 7", "ids": np.arange(N)},
        {"electorate": "ward 7", "ids": [str(i) for i in range(N)]},
    ],
    ids=["no electorate", "another", "ids", "texts"],
)
def test_records_that_may_sit_with_other_voters_are_charged_anew(tmp_path, voters, other):
    path = tmp_path / "a.ledger"
    settings = {"voters": voters, "queries": 10, "mechanism": pv.BinaryVoting(sigma=20.0)}
    pate(**settings).fit(X, Y, X_PUBLIC, ledger=path, electorate="ward 7")
    with refused(None, pv.BudgetError):
        pate(**settings).fit(X, Y, X_PUBLIC, ledger=path, **other)


def test_a_ledger_keeps_the_parts_of_a_data_set(tmp_path, results):
    parts = results("partition")
    path = tmp_path / "a.ledger"
    setting = {"queries": 3, "mechanism": pv.BinaryVoting(sigma=200.0), "guarantee": "worst-case"}
    with closing(pv.Ledger.open(path)) as book:
        pate(**setting).fit(X, Y, X_PUBLIC, ledger=book, dataset="ward 7", budget=40.0)
    pate(**setting, random_state=1).fit(X, Y, X_PUBLIC, ledger=path, dataset="ward 7")
    pate(**setting).fit(X, Y, X_PUBLIC, ledger=path, dataset="ward 8")
    pate(**setting).fit(X, Y, X_PUBLIC, ledger=tmp_path / "b.ledger", dataset="ward 7")
    assert np.array_equal(parts[0], parts[1])
    assert (parts[0] == parts[2]).mean() < 0.1
    assert (parts[0] == parts[3]).mean() < 0.1


@pytest.mark.parametrize("voters", ["teachers", "neighbours"])
def test_released_labels_use_the_public_rows_and_the_student_does_not(voters):
    setting = {"voters": voters, "n_teachers": 25, "epsilon": 2.0}
    model = pate(**setting).fit(X, Y, X_PUBLIC, seed=0)
    alone, rows = pv.decide(model.release_), X_PUBLIC[model.public_rows_]
    assert np.array_equal(model.release_.labels, pv.decide(model.release_, rows=rows).labels)
    truth = X_PUBLIC[model.public_rows_, :LABELS] > 0.5
    right, before = ((each.labels == truth).mean() for each in (model.release_, alone))
    assert right > before + {"teachers": 0.02, "neighbours": -0.01}[voters]
    # The student's shares are those of the tallies alone.
    assert model.shares_ == pytest.approx(alone.shares.mean(axis=0))
    huge = np.where(np.arange(6) == 3, 1e300, X_PUBLIC.astype(float))
    with refused("rows"):
        pate(**setting).fit(X, Y, huge)  # before anything is drawn


def test_a_step_fitted_on_public_rows_is_frozen_and_nothing_is_warned_of():
    scaler = FrozenEstimator(StandardScaler().fit(X_PUBLIC))
    model = make_pipeline(scaler, pate(queries=50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y, pateclassifier__X_public=scaler.transform(X_PUBLIC))
    assert model.predict(X_TEST).shape == (400, LABELS)


def test_it_pickles_without_teachers_votes_or_anything_sealed(fitted):
    blob = pickle.dumps(fitted)
    back = pickle.loads(blob)
    assert np.array_equal(back.predict(X_TEST), fitted.predict(X_TEST))
    assert not hasattr(back.release_.sealed, "spent")
    for word in (b"Teachers", b"prevalence_", b"Ballots", b"privote.ledger"):
        assert word not in blob


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": pv.TauVoting(sigma=20.0, tau=1.2), "guarantee": "worst-case"},
        {"mechanism": pv.PowersetVoting(sigma=5.0), "guarantee": "data-dependent", "queries": 30},
        {"mechanism": pv.BinaryVoting(sigma=8.0, gate=pv.Gate(threshold=30, sigma=10))},
        {"teacher": RandomForestClassifier(5), "n_teachers": 6, "epsilon": 20.0},
        {"student": RandomForestClassifier(10)},
        {"guarantee": "worst-case", "n_teachers": 100},
        {"mechanism": pv.TallyVoting(sigma=20.0)},
        {"threshold": [0.4, 0.5, 0.6]},
    ],
    ids=str,
)
def test_every_mechanism_guarantee_teacher_and_student(settings):
    model = pate(**settings).fit(X, Y, X_PUBLIC, seed=1)
    assert model.release_.labels.shape[1] == LABELS
    chance = model.predict_proba(X_TEST)
    assert chance.shape == (400, LABELS)
    assert ((chance >= 0) & (chance <= 1)).all()


NEAR = {"voters": "neighbours"}
WRONG = {  # settings
    "voters": ["crowd"],
    "epsilon": [-1],
    "queries": [0, len(X_PUBLIC) + 1],
    "threshold": ["high"],
    "n_teachers": [0],
    "guarantee": ["maybe"],
    "mechanism": ["binary"],
}
UNNAMED = [1, None] * (N // 2)
GIVEN = {"X_public": [None], "y": [Y[:5], Y + 1], "ids": [[1, 2]], "electorate": [" "]}


@pytest.mark.parametrize(
    ("argument", "settings", "change"),
    [
        *((name, {name: bad}, {}) for name in WRONG for bad in WRONG[name]),
        *((name, {}, {name: bad}) for name in GIVEN for bad in GIVEN[name]),
        (None, {}, {"X_public": X_PUBLIC[:, :2]}),
        ("mechanism", {"guarantee": "data-dependent", "queries": 5}, {}),
        ("queries", {"guarantee": "data-dependent", "mechanism": pv.BinaryVoting(sigma=9.0)}, {}),
        ("ids", NEAR, {"ids": [1, 2]}),
        ("groups", NEAR, {"groups": UNNAMED}),
    ],
)
def test_what_is_bad_is_refused_and_nothing_is_charged(tmp_path, argument, settings, change):
    path = tmp_path / "c.ledger"
    with pytest.raises((ValueError, pv.PrivoteError)) as caught:
        pate(**settings).fit(**{"X": X, "y": Y, "X_public": X_PUBLIC, **change}, ledger=path)
    assert argument is None or caught.value.argument == argument
    with closing(pv.Ledger.open(path)) as book:
        assert "charge" not in [entry["kind"] for entry in book.published()]


def names(ids=None, groups=None, electorate="ward 7"):
    return VoterNames(ids, groups, Delivery(electorate=electorate, seed=0))


def ballots(voters, persons=None):
    source = pv.SparseBallots([0], [0], [[True]], queries=1, voters=voters)
    source.voter_names = persons
    return source


def test_records_are_called_by_their_ids_or_rows_and_persons_by_their_names():
    assert len(set(names().of("neighbours", ballots(5)))) == 5
    one, two = names(ids=["a", "b", "c"]), names(ids=["c", "a", "b"])
    assert sorted(one.of("neighbours", ballots(3))) == sorted(two.of("neighbours", ballots(3)))
    assert one.of("neighbours", ballots(3))[0] == two.of("neighbours", ballots(3))[1]
    found = names(groups=["eve", "bob", "eve", "ann"]).of(
        "neighbours", ballots(3, ["ann", "bob", "eve"])
    )
    assert [name.rpartition("-")[2] for name in found] == ["ann", "bob", "eve"]


def test_a_name_says_which_scheme_it_is_from():
    groups = ["0", "1", "2"]
    schemes = [
        names(groups=groups).of("neighbours", ballots(3, groups)),
        names(ids=[0, 1, 2]).of("neighbours", ballots(3)),
        names().of("neighbours", ballots(3)),
        names().of("teachers", ballots(3)),
        names(groups=groups, electorate="ward 8").of("neighbours", ballots(3, groups)),
    ]
    every = [name for scheme in schemes for name in scheme]
    assert len(set(every)) == len(every)
    assert names(ids=["0", 1.0, "02"]).of("neighbours", ballots(3)) == schemes[1]


@pytest.mark.parametrize("whose", [{}, {"ids": [1]}, {"groups": [1]}], ids=str)
def test_whom_it_protects_says_which_change_is_covered(whose):
    def change(known, size_public):
        who, _, what = (
            names(**whose).protected(known=known, size_public=size_public).partition(" (")
        )
        assert who == ("a person, with all their records" if "groups" in whose else "a record")
        return what

    assert change(False, False) == "replaced by any other, or one more or fewer)"
    assert change(False, True) == "replaced by any other; how many there are is public)"
    for size_public, more in ((False, ", or one more or fewer)"), (True, " is public)")):
        assert change(True, size_public).endswith(more if whose else "the same row)")


@pytest.mark.parametrize(
    ("fit", "covered"),
    [
        (lambda: pate(), True),
        (lambda: pate(n_teachers=2 * N), True),  # nothing is refused by the number of records
        (lambda: pate(voters="neighbours"), False),
        (lambda: pv.PrivateClassifier("teachers", epsilon=8.0), False),
        # What is said of a model's use follows from the number of records even so.
        (
            lambda: pv.PrivateClassifier("teachers", settings={"n_teachers": 9, "embedding": None}),
            False,
        ),
    ],
)
def test_one_more_or_fewer_is_covered_where_no_public_number_follows_from_how_many(fit, covered):
    released = fit().fit(X, Y, X_PUBLIC).guarantee_
    assert ("one more or fewer" in released.protects) is covered
    assert ("how many there are is public" in released.protects) is not covered
