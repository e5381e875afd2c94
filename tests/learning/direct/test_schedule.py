"""A schedule of noise: every step is priced at its own, never below what others say."""

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from tests.refusals import refused

import privote as pv
from privote.learning.direct.noise import Noise, NoisySteps, TrainingPlan, scheduled

DELTA = 1e-5
ORDERS = np.array([2.0, 4.0, 8.0, 32.0])


def one_by_one(plan, noise):
    """Every step as an event of its own, at the noise that is drawn in it."""
    steps = noise * scheduled(plan.decay, plan.steps)
    return dp.ComposedDpEvent(
        [dp.PoissonSampledDpEvent(plan.sample_rate, dp.GaussianDpEvent(float(z))) for z in steps]
    )


@pytest.mark.parametrize(("decay", "rate"), [(0.5, 0.2), (2.0, 0.2), (0.5, 1.0)])
def test_a_schedule_costs_what_its_steps_cost_one_by_one(decay, rate):
    plan = TrainingPlan(steps=23, sample_rate=rate, decay=decay)
    relation = dp.NeighboringRelation.REPLACE_ONE
    theirs = PLDAccountant(relation, 5e-4).compose(one_by_one(plan, 3.0)).get_epsilon(DELTA)
    assert plan.epsilon(3.0, DELTA) == pytest.approx(theirs, rel=2e-3)
    # A curve adds up steps: at every order that of each step alone.
    alone = [
        TrainingPlan(steps=1, sample_rate=rate).rdp(float(z), ORDERS)
        for z in 3.0 * scheduled(decay, 23)
    ]
    assert plan.rdp(3.0, ORDERS) == pytest.approx(np.sum(alone, axis=0), rel=1e-9)
    # Adding or removing is covered by replacing, so their bound for that is no higher.
    less = RdpAccountant(ORDERS).compose(one_by_one(plan, 3.0))._rdp
    assert (plan.rdp(3.0, ORDERS) >= less * (1 - 1e-9)).all()


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_less_noise_anywhere_never_costs_less(rate):
    priced = [
        TrainingPlan(steps=20, sample_rate=rate, decay=decay).rdp(2.0, ORDERS)
        for decay in (2.0, 1.3, 1.0, 0.8, 0.5)
    ]
    assert (np.diff(priced, axis=0) > 0).all()
    plan = TrainingPlan(steps=20, sample_rate=rate, decay=0.5)
    noise = plan.noise_multiplier(2.0, DELTA)
    assert plan.epsilon(noise, DELTA) <= 2.0 < plan.epsilon(0.98 * noise, DELTA)
    assert float(pv.epsilon(plan.rdp(noise, pv.DEFAULT_ORDERS), pv.DEFAULT_ORDERS, DELTA)) > 1.98


def test_stages_are_even_and_cover_every_step():
    for steps in (1, 3, 10, 27):
        factors = scheduled(0.5, steps)
        assert len(factors) == steps
        assert factors[0] == 1.0
        assert steps == 1 or factors[-1] == pytest.approx(0.5)
        assert (np.diff(factors) <= 0).all()
        plan = TrainingPlan(steps=steps, decay=0.5)
        assert sum(count for _, count in plan.stages) == steps
    assert TrainingPlan(steps=7).stages == [(1.0, 7)]


def test_what_is_drawn_is_what_was_priced(monkeypatch):
    pytest.importorskip("opacus")
    from privote.learning import DPSGDClassifier

    drawn = []
    monkeypatch.setattr(Noise, "add", lambda _, total, size: drawn.append(size) or total)
    X = np.random.default_rng(0).normal(size=(40, 3))
    how = {"steps": 4, "sample_rate": 1.0, "clip": 2.0, "seed": 0}
    model = DPSGDClassifier(**how, schedule="0.5,0.25").fit(X, X[:, :1] > 0)
    z = model.privacy_.noise_multiplier
    clips = 2.0 * scheduled(0.25, 4)
    assert model.history_["clip"] == pytest.approx(clips)
    assert drawn[::2] == pytest.approx(z * scheduled(0.5, 4) * clips)  # weights; biases are as many
    assert model.privacy_.decay == 0.5
    assert z > DPSGDClassifier(**how).fit(X, X[:, :1] > 0).privacy_.noise_multiplier


def test_a_count_takes_its_share_of_every_steps_noise():
    steps = NoisySteps(Noise(0), [2.0, 1.0], clip=1.0, batch=50.0, quantile=0.5, falls=0.5)
    assert (steps.bound(0), steps.bound(1)) == (1.0, 0.5)
    _, unit = steps.release(1, [np.zeros(3)], 0.0)
    assert unit == 25.0
    with refused("schedule"):
        TrainingPlan(steps=3, decay=-1.0)
