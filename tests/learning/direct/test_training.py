"""What every private training promises, and where it is charged; a contract of all three."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.base import clone
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError
from privote.learning.direct.dpsgd import DPSGDClassifier
from privote.learning.direct.linear import DPLinear, DPMoments
from privote.learning.direct.noise import Noise, TrainingPlan
from privote.learning.direct.training import begin
from privote.learning.students.saving import load_student, save_student
from privote.ledger import Budget, Ledger

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = (X[:, :2] > 0.3).astype(np.int8)
DELTA = 1e-5


@pytest.mark.parametrize(("noise", "rate", "order"), [(1.0, 0.1, 4.0), (3.0, 0.02, 16.0)])
def test_the_curve_of_sampled_steps_is_that_of_the_dominating_pair(noise, rate, order):
    def density(x: float, at: float) -> float:
        return math.exp(-(((x - at) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))

    def value(x: float) -> float:
        left = (1 - rate) * density(x, 0) + rate * density(x, -1)
        right = (1 - rate) * density(x, 0) + rate * density(x, 1)
        return math.exp(order * math.log(left) + (1 - order) * math.log(right))

    ends = (-order - 12 * noise, 1 + 12 * noise)
    exact = math.log(quad(value, *ends, limit=500, points=[-order, -1, 0, 1])[0]) / (order - 1)
    found = TrainingPlan(steps=5, sample_rate=rate).rdp(noise, np.array([order]))
    assert found == pytest.approx(5 * exact, rel=1e-6)
    assert found >= 5 * exact * (1 - 1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_a_curve_never_promises_more_than_the_losses_do(rate):
    plan = TrainingPlan(steps=30, sample_rate=rate)
    noise = plan.noise_multiplier(4.0, DELTA)
    curve = plan.rdp(noise, pv.DEFAULT_ORDERS)
    assert (np.diff(curve) >= 0).all()
    priced = float(pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA))
    assert 4.0 * 0.99 <= priced <= 4.0 * 1.25


def test_a_curve_is_for_records_replaced_only():
    with refused("adjacency"):
        TrainingPlan(steps=1, adjacency="add-remove").rdp(1.0, pv.DEFAULT_ORDERS)


def test_with_a_ledger_the_noise_is_a_little_more_and_the_promise_holds():
    plan, size = TrainingPlan(steps=50), {"records": 300, "labels": 2, "simulated": False}
    alone = begin(plan, 8.0, DELTA, **size).privacy
    shared = Ledger.in_memory()
    shared.set_budget(Budget(epsilon=8.0, delta=DELTA, rule="shared"), dataset="ward")
    charged = begin(plan, 8.0, DELTA, ledger=shared, dataset="ward", **size).privacy
    assert 1.01 < charged.noise_multiplier / alone.noise_multiplier < 1.15
    assert charged.epsilon < alone.epsilon <= 8.0
    assert "charged to data set 'ward'" in charged.statement()
    assert shared.standing()[0]["used"] <= 8.0


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
        made(**given).fit(X, Y, X[:50], **account)
    monkeypatch.undo()
    entries = Ledger.open(place).published()
    assert [entry["kind"] for entry in entries] == ["budget", "charge"]
    assert entries[1]["mechanism"]["mechanism"] == made().released
    with refused(None, BudgetError):
        made(**given).fit(X, Y, X[:50], **account)
    with pytest.raises(BudgetError):  # votes on the same data set neither
        pv.label(RNG.random((5, 20, 2)) < 0.3, **given, **account,
                 mechanism=pv.BinaryVoting(sigma=20.0))  # fmt: skip
    assert len(Ledger.open(place).published()) == 2


def test_noise_is_secure_unless_seeded(made):
    for seed in (None, 3):
        one, two = (made(seed=seed) for _ in range(2))
        one, two = (model.fit(X, Y, X[:50]) for model in (one, two))
        same = np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert same == one.privacy_.simulated == (seed is not None)
        assert ("protects nobody" in one.privacy_.statement()) == (seed is not None)
        assert one.privacy_.released == one.privacy_.facts()["guarantee"] == one.released


def test_it_clones_pickles_reports_and_is_saved_without_code(made, tmp_path):
    done = []
    model = clone(made(progress=lambda *at: done.append(at))).fit(X, Y, X[:50])
    assert done == [(step, len(done)) for step in range(1, len(done) + 1)] != []
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.set_params(progress=None)
    path, facts = tmp_path / "a.student", model.privacy_.facts()
    save_student(path, model, label_names=("a", "b"), privacy=facts)
    np.testing.assert_array_equal(load_student(path).predict_proba(X), model.predict_proba(X))
    assert load_student(path).privacy == json.loads(json.dumps(facts))


COMMON = ({"epsilon": 0.0}, {"delta": 2.0})
DESCENT = (
    *({"clip": 0.0}, {"learning_rate": -1.0}, {"momentum": 1.0}, {"initial_share": 0.0}),
    *({"steps": 0}, {"steps": 2.5}, {"sample_rate": 0.0}, {"sample_rate": 1.5}),
    *({"adjacency": "swap"}, {"adjacency": "add-remove"}),
)
NETWORKS = (
    *({"network": "vgg"}, {"quantile": 1.0}, {"chunk": 0}, {"normalise": "mean"}),
    *({"schedule": "a"}, {"schedule": (1, 2, 3)}, {"schedule": 0.0}, {"hours": 0.0}),
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
            made(**wrong).fit(X, Y, X[:50], ledger=place)
    for wrong in ({"y": Y[:5]}, {"y": Y + 5}, {"groups": [1, 2]}, {"ids": [1]}):
        with refused(next(iter(wrong))):
            made().fit(**{"X": X, "y": Y, "X_public": X[:50], "ledger": place, **wrong})
    if type(made()) is DPMoments:
        with refused("X_public"):
            made().fit(X, Y, ledger=place)
    assert not Ledger.open(place).published()


def test_a_budget_that_promises_little_is_warned_of(made):
    for budget in ({"epsilon": 50.0, "delta": DELTA}, {"epsilon": 4.0, "delta": 0.01}):
        with pytest.warns(pv.PrivoteWarning):
            made(**budget).fit(X, Y, X[:50])
    with warnings.catch_warnings():
        warnings.simplefilter("error", pv.PrivoteWarning)
        made(epsilon=4.0, delta=DELTA).fit(X, Y, X[:50])
