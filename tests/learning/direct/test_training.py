"""What every private training promises, where it is charged, and how it goes on; of all three."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError, ChargedError
from privote.files import Draft
from privote.learning.direct import linear, training
from privote.learning.direct.dpsgd import DPSGDClassifier
from privote.learning.direct.linear import DPLinear, DPMoments
from privote.learning.direct.noise import Noise, TrainingPlan
from privote.learning.direct.training import begin
from privote.learning.students.saving import load_student, save_student
from privote.ledger import Budget, Ledger

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(300, 4)), RNG.normal(size=(50, 4))
Y = (X[:, :2] > 0.3).astype(np.int8)
DELTA = 1e-5


def test_with_a_ledger_the_noise_is_a_little_more_and_the_promise_holds():
    plan, size = TrainingPlan(steps=50), {"records": 300, "labels": 2, "simulated": False}
    alone = begin(plan, 8.0, DELTA, **size).privacy
    shared = Ledger.in_memory()
    shared.set_budget(Budget(epsilon=8.0, delta=DELTA).shared(), dataset="ward")
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
        made(**given).fit(X, Y, PUBLIC, **account)
    monkeypatch.undo()
    entries = Ledger.open(place).published()
    assert [entry["kind"] for entry in entries] == ["budget", "charge"]
    assert entries[1]["mechanism"]["mechanism"] == made().released
    with refused(None, BudgetError):
        made(**given).fit(X, Y, PUBLIC, **account)
    with pytest.raises(BudgetError):  # votes on the same data set neither
        pv.label(RNG.random((5, 20, 2)) < 0.3, **given, **account,
                 mechanism=pv.BinaryVoting(sigma=20.0))  # fmt: skip
    assert len(Ledger.open(place).published()) == 2


def test_noise_is_secure_unless_seeded(made):
    for seed in (None, 3):
        one, two = (made(seed=seed) for _ in range(2))
        one, two = (model.fit(X, Y, PUBLIC) for model in (one, two))
        same = np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert same == one.privacy_.simulated == (seed is not None)
        assert ("protects nobody" in one.privacy_.statement()) == (seed is not None)
        assert one.privacy_.released == one.privacy_.facts()["guarantee"] == one.released


def test_it_clones_pickles_reports_and_is_saved_without_code(made, tmp_path):
    done = []
    model = clone(made(progress=lambda *at: done.append(at))).fit(X, Y, PUBLIC)
    assert done == [(step, len(done)) for step in range(1, len(done) + 1)] != []
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.set_params(progress=None)
    path, facts = tmp_path / "a.student", model.privacy_.facts()
    save_student(path, model, label_names=("a", "b"), privacy=facts)
    np.testing.assert_array_equal(load_student(path).predict_proba(X), model.predict_proba(X))
    assert load_student(path).privacy == json.loads(json.dumps(facts))


def test_persons_are_what_is_counted_sampled_and_protected(made, monkeypatch):
    drawn, real = [], Noise.sample
    monkeypatch.setattr(
        Noise, "sample", lambda self, n, rate: drawn.append(n) or real(self, n, rate)
    )
    privacy = made().fit(X, Y, PUBLIC, groups=[f"p{n // 2}" for n in range(300)]).privacy_
    assert privacy.records == 150
    assert set(drawn) <= {150}
    assert "for one person replaced" in privacy.statement()
    alone = made().fit(X[::2], Y[::2], PUBLIC).privacy_
    assert privacy.noise_multiplier == alone.noise_multiplier


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
            made(**wrong).fit(X, Y, PUBLIC, ledger=place)
    for wrong in ({"y": Y[:5]}, {"y": Y + 5}, {"groups": [1, 2]}, {"ids": [1]}):
        with refused(next(iter(wrong))):
            made().fit(**{"X": X, "y": Y, "X_public": PUBLIC, "ledger": place, **wrong})
    if type(made()) is DPMoments:
        with refused("X_public"):
            made().fit(X, Y, ledger=place)
    assert not Ledger.open(place).published()


# -- a training that broke off goes on from its draft -------------------------------------------

MANY = 6


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the noisy sums that are drawn, of many numbers each; and keep every state."""
    monkeypatch.setattr(training, "_PAUSE", 0.0)
    monkeypatch.setattr(training, "_SELDOM", 0.0)
    drawn: list[Any] = []
    real = Noise.add

    def add(self: Noise, total: Any, deviation: float) -> Any:
        noisy = real(self, total, deviation)
        if total.size > 2:  # not the bias of a network
            drawn.append(noisy)
        return noisy

    monkeypatch.setattr(Noise, "add", add)
    return drawn


def broken_off(model: Any, step: int, **account: Any) -> ChargedError:
    """Fit a model on a machine that is gone after so many steps."""

    def progress(done: int, steps: int) -> None:
        if done == step:
            raise OSError("the machine is gone")

    model.set_params(progress=progress)
    with pytest.raises(ChargedError) as told:
        model.fit(X, Y, PUBLIC, **account)
    model.set_params(progress=None)
    return told.value


def charges(ledger: Path) -> int:
    with closing(pv.Ledger.open(ledger)) as book:
        return sum(entry["kind"] == "charge" for entry in book.published())


def models(kind: str) -> Any:
    if kind == "dpsgd":
        pytest.importorskip("opacus")
        return DPSGDClassifier(steps=MANY, sample_rate=0.5, schedule=(0.5, 0.8), network="linear")
    return DPLinear(steps=MANY)


@pytest.mark.parametrize("kind", ["gradients", "dpsgd"])
@pytest.mark.parametrize("step", [1, MANY])
def test_steps_are_drawn_once_and_paid_for_once(
    kind: str, step: int, draws: list[Any], tmp_path: Path
) -> None:
    model, path, ledger = models(kind), tmp_path / "a.draft", tmp_path / "a.ledger"
    account = {"draft": path, "ledger": ledger}
    assert broken_off(model, step, **account).draft == path
    assert len(draws) == step
    price = model.privacy_
    with refused():  # would pay again
        model.fit(X, Y, PUBLIC, **account)
    model.fit(X, Y, PUBLIC, **account, resume=True)
    assert len(draws) == MANY
    assert charges(ledger) == 1
    assert model.privacy_.epsilon == price.epsilon
    assert model.privacy_.noise_multiplier == price.noise_multiplier
    chance = model.predict_proba(X)
    model.fit(X, Y, PUBLIC, **account, resume=True)  # all is there: nothing is drawn
    assert len(draws) == MANY
    np.testing.assert_allclose(model.predict_proba(X), chance)


def test_a_resumed_descent_is_the_one_it_goes_on_from(
    draws: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the same noisy sums the weights are the same, to the last bit."""
    monkeypatch.setattr(Noise, "normal", lambda self, count: np.ones(count))
    for kind in ("gradients", "dpsgd"):
        model = models(kind).set_params(sample_rate=1.0)
        if kind == "dpsgd":
            model.set_params(random_state=1)
        whole = model.fit(X, Y, PUBLIC).predict_proba(X)
        path = tmp_path / f"{kind}.draft"
        broken_off(model, 3, draft=path)
        model.fit(X, Y, PUBLIC, draft=path, resume=True)
        np.testing.assert_array_equal(model.predict_proba(X), whole)


def test_a_network_starts_from_the_same_weights(draws: list[Any], tmp_path: Path) -> None:
    """Without a random_state, too: the frozen layers are those that the training began with."""
    pytest.importorskip("opacus")
    model = DPSGDClassifier(steps=MANY, sample_rate=1.0, network="mlp", frozen=True)
    path = tmp_path / "a.draft"
    broken_off(model, MANY, draft=path)
    one = model.fit(X, Y, draft=path, resume=True).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, Y, draft=path, resume=True).predict_proba(X), one)


def kept(path: Path) -> dict[str, Any]:
    with Draft(path, {}, resume=True) as draft:
        return linear._unpacked(draft.read() or b"")


def test_moments_are_drawn_once(draws: list[Any], tmp_path: Path) -> None:
    account = {"draft": tmp_path / "a.draft", "ledger": tmp_path / "a.ledger"}
    model = DPMoments()
    broken_off(model, 1, **account)
    model.fit(X, Y, PUBLIC, **account, resume=True)
    assert len(draws) == charges(tmp_path / "a.ledger") == 1
    # What is kept is what was drawn, and public numbers; not the sum without noise.
    assert kept(account["draft"]).keys() == {"sums"}
    np.testing.assert_array_equal(kept(account["draft"])["sums"], draws[0])


def test_what_follows_from_noisy_sums_is_all_that_is_kept(draws: list[Any], tmp_path: Path) -> None:
    model = DPLinear(steps=MANY)
    broken_off(model, 2, draft=tmp_path / "a.draft")
    state = kept(tmp_path / "a.draft")
    assert state.keys() == {"weights", "velocity", "mean", "step", "averaged"}
    step = model.learning_rate_ / len(X)
    weights = velocity = np.zeros_like(draws[0])
    for noisy in draws:
        velocity = model.momentum * velocity - step * noisy
        weights = weights + velocity
    np.testing.assert_allclose(state["weights"], weights)


def test_a_charge_for_other_steps_is_not_resumed(draws: list[Any], tmp_path: Path) -> None:
    account = {"ledger": tmp_path / "a.ledger"}
    with Draft(tmp_path / "a.draft", {}) as draft:  # opened by whoever writes the model
        DPLinear(steps=MANY).fit(X, Y, PUBLIC, **account, draft=draft)
    with Draft(tmp_path / "a.draft", {}, resume=True) as draft, refused("resume"):
        DPLinear(steps=MANY + 1).fit(X, Y, PUBLIC, **account, draft=draft)
    assert charges(tmp_path / "a.ledger") == 1
