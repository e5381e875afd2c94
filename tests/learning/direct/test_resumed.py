"""A training that broke off goes on from its draft: every step is drawn once, and paid for once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import ChargedError, InputError
from privote.files import Draft
from privote.learning import DPLinear, DPMoments, DPSGDClassifier
from privote.learning.direct import linear, training
from privote.learning.direct.noise import Noise

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(200, 4)), RNG.normal(size=(50, 4))
Y = (X[:, :2] > 0.3).astype(np.int8)
STEPS = 6


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the noisy sums that are drawn, of many numbers each; and keep every state."""
    monkeypatch.setattr(training, "_PAUSE", 0.0)
    monkeypatch.setattr(training, "_SELDOM", 0.0)
    drawn: list[Any] = []
    real = Noise.add

    def add(self: Noise, total: Any, deviation: float) -> Any:
        noisy = real(self, total, deviation)
        if total.size > 2:  # not the bias of a network, nor a count
            drawn.append(noisy)
        return noisy

    monkeypatch.setattr(Noise, "add", add)
    return drawn


def stops_after(step: int) -> Any:
    def progress(done: int, steps: int) -> None:
        if done == step:
            raise OSError("the machine is gone")

    return progress


def charges(ledger: Path) -> int:
    with closing(pv.Ledger.open(ledger)) as book:
        return sum(entry["kind"] == "charge" for entry in book.published())


def models(kind: str) -> Any:
    if kind == "dpsgd":
        pytest.importorskip("opacus")
        return DPSGDClassifier(steps=STEPS, sample_rate=0.5, adaptive=True, network="linear")
    return DPLinear(steps=STEPS, adaptive=True)


@pytest.mark.parametrize("kind", ["gradients", "dpsgd"])
@pytest.mark.parametrize("step", [1, STEPS])
def test_steps_are_drawn_once_and_paid_for_once(
    kind: str, step: int, draws: list[Any], tmp_path: Path
) -> None:
    model, path, ledger = models(kind), tmp_path / "a.draft", tmp_path / "a.ledger"
    account = {"draft": path, "ledger": ledger}
    model.set_params(progress=stops_after(step))
    with pytest.raises(ChargedError) as told:
        model.fit(X, Y, PUBLIC, **account)
    assert told.value.draft == path
    assert len(draws) == step
    price = model.privacy_
    model.set_params(progress=None)
    with pytest.raises(InputError):  # would pay again
        model.fit(X, Y, PUBLIC, **account)
    model.fit(X, Y, PUBLIC, **account, resume=True)
    assert len(draws) == STEPS
    assert charges(ledger) == 1
    assert (model.privacy_.epsilon, model.privacy_.noise_multiplier) == (
        price.epsilon,
        price.noise_multiplier,
    )
    chance = model.predict_proba(X)
    model.fit(X, Y, PUBLIC, **account, resume=True)  # all is there: nothing is drawn
    assert len(draws) == STEPS
    np.testing.assert_allclose(model.predict_proba(X), chance)


def test_a_resumed_descent_is_the_one_it_goes_on_from(
    draws: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the same noisy sums the weights are the same, to the last bit."""
    monkeypatch.setattr(Noise, "normal", lambda self, count: np.ones(count))
    for kind in ("gradients", "dpsgd"):
        model = models(kind).set_params(sample_rate=1.0)
        random = {"random_state": 1} if kind == "dpsgd" else {}
        model.set_params(**random)
        whole = model.fit(X, Y, PUBLIC).predict_proba(X)
        path = tmp_path / f"{kind}.draft"
        model.set_params(progress=stops_after(3))
        with pytest.raises(ChargedError):
            model.fit(X, Y, PUBLIC, draft=path)
        model.set_params(progress=None)
        model.fit(X, Y, PUBLIC, draft=path, resume=True)
        np.testing.assert_array_equal(model.predict_proba(X), whole)


def test_a_network_starts_from_the_same_weights(draws: list[Any], tmp_path: Path) -> None:
    """Without a random_state, too: the frozen layers are those that the training began with."""
    pytest.importorskip("opacus")
    model = DPSGDClassifier(steps=STEPS, sample_rate=1.0, network="mlp", frozen=True)
    path = tmp_path / "a.draft"
    model.set_params(progress=stops_after(STEPS))
    with pytest.raises(ChargedError):
        model.fit(X, Y, draft=path)
    model.set_params(progress=None)
    one = model.fit(X, Y, draft=path, resume=True).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, Y, draft=path, resume=True).predict_proba(X), one)


def test_moments_are_drawn_once(
    draws: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account = {"draft": tmp_path / "a.draft", "ledger": tmp_path / "a.ledger"}
    model = DPMoments(progress=stops_after(1))
    with pytest.raises(ChargedError):
        model.fit(X, Y, PUBLIC, **account)
    model.set_params(progress=None).fit(X, Y, PUBLIC, **account, resume=True)
    assert len(draws) == charges(tmp_path / "a.ledger") == 1
    # What is kept is what was drawn, and public numbers; not the sum without noise.
    with Draft(account["draft"], {}, resume=True) as draft:
        kept = linear._unpacked(draft.read() or b"")
    assert kept.keys() == {"sums"}
    np.testing.assert_array_equal(kept["sums"], draws[0])


def test_what_follows_from_noisy_sums_is_all_that_is_kept(draws: list[Any], tmp_path: Path) -> None:
    model = DPLinear(steps=STEPS)
    model.set_params(progress=stops_after(2))
    with pytest.raises(ChargedError):
        model.fit(X, Y, PUBLIC, draft=tmp_path / "a.draft")
    with Draft(tmp_path / "a.draft", {}, resume=True) as draft:
        kept = linear._unpacked(draft.read() or b"")
    assert kept.keys() == {"weights", "velocity", "mean", "clip", "step", "averaged"}
    step = model.learning_rate_ / len(X)
    weights = velocity = np.zeros_like(draws[0])
    for noisy in draws:
        velocity = model.momentum * velocity - step * noisy
        weights = weights + velocity
    np.testing.assert_allclose(kept["weights"], weights)


def test_a_charge_for_other_steps_is_not_resumed(draws: list[Any], tmp_path: Path) -> None:
    account = {"ledger": tmp_path / "a.ledger"}
    with Draft(tmp_path / "a.draft", {}) as draft:  # opened by whoever writes the model
        DPLinear(steps=STEPS).fit(X, Y, PUBLIC, **account, draft=draft)
    with Draft(tmp_path / "a.draft", {}, resume=True) as draft, refused("resume"):
        DPLinear(steps=STEPS + 1).fit(X, Y, PUBLIC, **account, draft=draft)
    assert charges(tmp_path / "a.ledger") == 1
