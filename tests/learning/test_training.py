"""What every private training promises, where it is charged, and how it goes on; of all three."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError
from privote.learning.dpsgd import DPSGDClassifier
from privote.learning.gradients import DPLinear
from privote.learning.moments import DPMoments
from privote.learning.noise import Noise
from privote.learning.saving import load_student, save_student
from privote.ledger import Ledger

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(300, 4)), RNG.normal(size=(50, 4))
Y = (X[:, :2] > 0.3).astype(np.int8)
DELTA = 1e-5


def test_the_noise_is_the_same_with_a_ledger_and_without(tmp_path):
    alone = DPLinear(2.0, DELTA, steps=50).fit(X, Y).guarantee_
    for total in (2.0, 8.0):
        account = {"ledger": tmp_path / f"{total}.db", "dataset": "ward", "budget": total}
        charged = DPLinear(2.0, DELTA, steps=50).fit(X, Y, **account).guarantee_
        assert charged.mechanism == alone.mechanism
        assert charged.epsilon == alone.epsilon <= charged.total <= total
        assert charged.standing.dataset == "ward"
    with refused(None, BudgetError):
        DPLinear(7.9, DELTA, steps=50).fit(X, Y, **account)


# -- a contract of all three -------------------------------------------------------------------

STEPS = {"steps": 3, "sample_rate": 1.0}  # a full batch is priced in a moment
ALL = {
    "gradients": (DPLinear, STEPS),
    "moments": (DPMoments, {}),
    "dpsgd": (DPSGDClassifier, {**STEPS, "random_state": 0}),
}


@pytest.fixture(params=ALL)
def made(request):
    """Return a maker of one of the estimators, quick ones."""
    if request.param == "dpsgd":
        pytest.importorskip("opacus")
    kind, quick = ALL[request.param]
    return lambda **settings: kind(**{**quick, **settings})


def test_training_is_charged_before_it_starts_and_only_once(made, tmp_path, monkeypatch):
    place, given = tmp_path / "a.ledger", {"epsilon": 8.0, "delta": DELTA}
    account = {"ledger": place, "dataset": "ward"}
    monkeypatch.setattr(Noise, "add", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(pytest.fail.Exception):
        made(**given).fit(X, Y, PUBLIC, **account)
    monkeypatch.undo()
    entries = Ledger.open(place).published()
    assert [entry["kind"] for entry in entries] == ["budget", "charge", "reserve"]
    assert entries[1]["guarantee"] == made().kind
    with refused(None, BudgetError):
        made(**given).fit(X, Y, PUBLIC, **account)
    with pytest.raises(BudgetError):  # votes on the same data set neither
        pv.label(RNG.random((5, 20, 2)) < 0.3, **given, **account,
                 mechanism=pv.BinaryVoting(sigma=20.0))  # fmt: skip
    assert len(Ledger.open(place).published()) == 3


def test_noise_is_secure_unless_seeded(made):
    for seed in (None, 3):
        one, two = (made(seed=seed) for _ in range(2))
        one, two = (model.fit(X, Y, PUBLIC) for model in (one, two))
        same = np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert same == one.guarantee_.simulated == (seed is not None)
        assert one.guarantee_.kind == one.kind


def test_it_clones_pickles_reports_and_is_saved_without_code(made, tmp_path):
    done = []
    model = clone(made(progress=lambda *at: done.append(at))).fit(X, Y, PUBLIC)
    assert done == [(step, len(done)) for step in range(1, len(done) + 1)] != []
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.set_params(progress=None)
    path = tmp_path / "a.student"
    save_student(path, model, label_names=("a", "b"), guarantee=model.guarantee_)
    np.testing.assert_array_equal(load_student(path).predict_proba(X), model.predict_proba(X))
    assert load_student(path).guarantee == model.guarantee_


def test_persons_are_what_is_counted_sampled_and_protected(made, monkeypatch):
    drawn, real = [], Noise.sample
    monkeypatch.setattr(
        Noise, "sample", lambda self, n, rate: drawn.append(n) or real(self, n, rate)
    )
    persons = made().fit(X, Y, PUBLIC, groups=[f"p{n // 2}" for n in range(300)]).guarantee_
    assert persons.voters == 150
    assert set(drawn) <= {150}
    assert persons.protects == pv.guarantees.PERSON
    assert persons.mechanism == made().fit(X[::2], Y[::2], PUBLIC).guarantee_.mechanism


@pytest.mark.parametrize("kind", [DPLinear, DPSGDClassifier])
def test_an_empty_batch_is_only_noise(kind, monkeypatch):
    pytest.importorskip("opacus")
    monkeypatch.setattr(Noise, "sample", lambda *_: np.arange(0))
    one, two = (
        kind(0.2, steps=3, sample_rate=0.1, seed=seed).fit(X, Y).predict_proba(X) for seed in (0, 1)
    )
    assert np.isfinite(one).all()
    assert (one != two).all()


COMMON = ({"epsilon": 0.0}, {"delta": 2.0})
DESCENT = (
    *({"clip": 0.0}, {"learning_rate": -1.0}, {"momentum": 1.0}, {"initial_share": 0.0}),
    *({"steps": 0}, {"steps": 2.5}, {"sample_rate": 0.0}, {"sample_rate": 1.5}),
)
NETWORKS = (
    *({"network": "vgg"}, {"chunk": 0}, {"normalise": "mean"}),
    *({"schedule": "a"}, {"schedule": (1, 2, 3)}, {"schedule": 0.0}),
    *({"epochs": 5}, {"device": "nowhere"}),  # with steps and rate, epochs are known
)
WRONG = {
    DPLinear: (*COMMON, *DESCENT, {"power": -1.0}, {"embedding": "nothing"}),
    DPMoments: (*COMMON, {"tau": 0.0}, {"ridge": -1.0}, {"embedding": "nothing"}),
    DPSGDClassifier: (*COMMON, *DESCENT, *NETWORKS),
}


def test_what_is_wrong_is_refused_before_anything_is_charged_or_drawn(made, tmp_path, monkeypatch):
    monkeypatch.setattr(Noise, "add", lambda *_: pytest.fail("noise was drawn"))
    place = tmp_path / "a.ledger"
    for wrong in WRONG[type(made())]:
        with refused(next(iter(wrong))):
            made(**wrong).fit(X, Y, PUBLIC, ledger=place)
    for wrong in ({"y": Y[:5]}, {"y": Y + 5}, {"groups": [1, 2]}, {"ids": [1]}):
        with refused(next(iter(wrong))):
            made().fit(**{"X": X, "y": Y, "X_public": PUBLIC, "ledger": place, **wrong})
    if type(made()) is DPMoments:
        with refused("X_public"):
            made().fit(X, Y, ledger=place)
    assert not Ledger.open(place).published()
