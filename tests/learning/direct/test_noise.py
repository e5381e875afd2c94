"""The price of noisy training, against independent computations; and the noise itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import kstest, norm

from privote.learning.direct.noise import (
    Noise,
    TrainingPlan,
    affordable_rate,
    next_clip,
    split_for_clipping,
)
from privote.learning.direct.training import TrainingPrivacy

DELTA = 1e-5


def _divergence(first, second, gamma, noise):
    """The hockey-stick divergence of two densities on a line, by the trapezoidal rule."""
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 20_001)
    return trapezoid(np.maximum(0.0, first(x) - gamma * second(x)), x)


def _step(rate, shift, noise):
    return lambda x: (1 - rate) * norm.pdf(x, 0, noise) + rate * norm.pdf(x, shift, noise)


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 1.0), (0.5, 2.0), (0.02, 0.7)])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_one_sampled_step_costs_what_quadrature_says(rate, noise, adjacency):
    plan = TrainingPlan(steps=1, sample_rate=rate, adjacency=adjacency)
    epsilon = plan.epsilon(noise, DELTA)
    there, here = _step(rate, 1.0, noise), _step(rate, -1.0, noise)
    if adjacency == "add-remove":
        here = _step(0.0, 0.0, noise)
    gamma = math.exp(epsilon)
    delta = max(_divergence(there, here, gamma, noise), _divergence(here, there, gamma, noise))
    assert delta == pytest.approx(DELTA, rel=5e-3)


@given(
    rate=st.floats(0.01, 0.9),
    noise=st.floats(0.5, 3.0),
    shifts=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    gamma=st.floats(1.0, 20.0),
)
def test_opposite_records_are_the_worst_pair(rate, noise, shifts, gamma):
    worst = _divergence(_step(rate, -1.0, noise), _step(rate, 1.0, noise), gamma, noise)
    other = _divergence(_step(rate, shifts[0], noise), _step(rate, shifts[1], noise), gamma, noise)
    assert other <= worst * (1 + 1e-6) + 1e-12


def _composed_delta(first, second, noise, steps, epsilon, rounding):
    """Delta of many steps, from losses on a grid of our own, added up by a Fourier transform."""
    interval, size = 2e-4, 2**18
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 400_001)
    mass = np.diff(first(x)) / 2 + first(x[:-1])
    mass = mass * (x[1] - x[0])
    middle = (x[1:] + x[:-1]) / 2
    loss = rounding(np.log(first(middle) / second(middle)) / interval).astype(int)
    grid = np.bincount(loss % size, mass, size)  # places beyond the middle are negative losses
    summed = np.fft.irfft(np.fft.rfft(grid) ** steps, size)
    total = interval * (np.arange(size) - size * (np.arange(size) >= size // 2))
    return (summed * np.maximum(0.0, -np.expm1(epsilon - total)))[total > epsilon].sum()


@pytest.mark.parametrize(("steps", "rate", "noise"), [(20, 0.2, 2.0), (60, 0.05, 1.0)])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_many_sampled_steps_cost_what_a_transform_of_our_own_says(steps, rate, noise, adjacency):
    plan = TrainingPlan(steps=steps, sample_rate=rate, adjacency=adjacency)
    epsilon = plan.epsilon(noise, DELTA)
    there, here = _step(rate, 1.0, noise), _step(rate, -1.0, noise)
    if adjacency == "add-remove":
        here = _step(0.0, 0.0, noise)
    low, high = (
        max(
            _composed_delta(there, here, noise, steps, epsilon, rounding),
            _composed_delta(here, there, noise, steps, epsilon, rounding),
        )
        for rounding in (np.floor, np.ceil)
    )
    # Rounding may move a sum of losses by steps * interval: bounds on both sides.
    slack = math.exp(10 * steps * 2e-4)
    assert DELTA / slack < low < DELTA * (1 + 1e-3)
    assert high < DELTA * slack


@pytest.mark.parametrize("steps", [1, 50])
@pytest.mark.parametrize(("adjacency", "reach"), [("replace", 2.0), ("add-remove", 1.0)])
def test_full_batches_are_one_gaussian(steps, adjacency, reach):
    noise = 10.0
    epsilon = TrainingPlan(steps=steps, adjacency=adjacency).epsilon(noise, DELTA)
    mean = reach * math.sqrt(steps) / noise
    delta = norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * norm.cdf(
        -mean / 2 - epsilon / mean
    )
    assert delta == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize(("steps", "rate", "noise"), [(100, 0.1, 2.0), (1000, 0.01, 1.0)])
def test_add_remove_agrees_with_opacus(steps, rate, noise):
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.PRVAccountant()
    theirs.history = [(noise, rate, steps)]
    ours = TrainingPlan(steps=steps, sample_rate=rate, adjacency="add-remove")
    assert ours.epsilon(noise, DELTA) == pytest.approx(
        theirs.get_epsilon(delta=DELTA, eps_error=1e-3), rel=5e-3
    )


@pytest.mark.parametrize(("rate", "epsilon"), [(1.0, 0.5), (1.0, 8.0), (0.1, 1.0)])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_the_noise_is_enough_and_hardly_more(rate, adjacency, epsilon):
    plan = TrainingPlan(steps=100, sample_rate=rate, adjacency=adjacency)
    noise = plan.noise_multiplier(epsilon, DELTA)
    assert plan.epsilon(noise, DELTA) <= epsilon
    assert plan.epsilon(noise * 0.99, DELTA) > epsilon


@given(noise=st.floats(0.3, 100.0), batch=st.floats(1.0, 1e5))
def test_shared_noise_costs_what_it_costs_alone(noise, batch):
    gradients, count = split_for_clipping(noise, batch)
    assert gradients**-2 + (2 * count) ** -2 == pytest.approx(noise**-2)
    assert gradients <= noise * 2 / math.sqrt(3) * (1 + 1e-9)


def test_affordable_rate_lets_noise_move_a_weight_by_one():
    plan = TrainingPlan(steps=400, sample_rate=0.25)
    rate = affordable_rate(plan, 5.0, 8_000, keep=0.9)
    speed = place = np.zeros(4_000)
    for draw in Noise(0).normal(400 * 4_000).reshape(400, 4_000):
        speed = 0.9 * speed + rate * 5.0 * draw / 2_000
        place = place + speed
    assert place.std() == pytest.approx(1.0, rel=0.05)


def test_clip_moves_towards_the_quantile():
    assert next_clip(1.0, 50.0, 100.0, quantile=0.5, rate=0.2) == pytest.approx(math.exp(-0.1))
    assert next_clip(1.0, -50.0, 100.0, quantile=0.5, rate=0.2) == pytest.approx(math.exp(0.1))
    assert next_clip(1.0, 0.0, 100.0, quantile=0.5, rate=0.2) == 1.0
    assert next_clip(1.0, 1e9, 100.0, quantile=0.5, rate=0.2) == pytest.approx(math.exp(-0.1))


@pytest.mark.parametrize("below", [1e9, -1e9])
def test_a_clip_that_adapts_for_long_stays_a_number_that_noise_can_be_scaled_by(below):
    clip = 1.0
    for _ in range(10_000):
        clip = next_clip(clip, below, 100.0, quantile=0.5, rate=0.2)
    assert 1e-30 <= clip <= 1e30
    noisy = Noise(0).add(np.zeros(100), clip)
    assert noisy.std() == pytest.approx(clip, rel=0.3)


@pytest.mark.parametrize("seed", [None, 1])
def test_noise_is_normal(seed):
    draws = Noise(seed).normal(100_000)
    assert kstest(draws, "norm").pvalue > 1e-4
    assert 3.5 < np.abs(draws).max() < 7.0


def test_rare_records_need_hardly_any_noise():
    plan = TrainingPlan(steps=1, sample_rate=1e-6)
    assert plan.epsilon(plan.noise_multiplier(8.0, DELTA), DELTA) <= 8.0


def test_sampling_is_poisson():
    sizes = [len(Noise(seed).sample(10_000, 0.1)) for seed in range(50)]
    assert np.mean(sizes) == pytest.approx(1000, abs=5 * 30 / math.sqrt(50))
    assert 15 < np.std(sizes) < 60
    assert len(Noise(0).sample(7, 1.0)) == 7


@pytest.mark.parametrize("deviation", [1e-3, 1.0, 300.0])
def test_noisy_sums_lie_on_a_grid_that_shows_nothing_of_the_sum(deviation):
    total = np.full((40, 50), math.pi)
    noisy = Noise(0).add(total, deviation)
    assert noisy.shape == total.shape
    assert (noisy - math.pi).std() == pytest.approx(deviation, rel=0.1)
    step = 2.0 ** (math.floor(math.log2(deviation)) + 1 - 20)
    assert np.array_equal(noisy / step, np.rint(noisy / step))


def test_statement_rounds_epsilon_up_and_says_what_is_protected():
    facts = {"epsilon": 1.23401, "delta": DELTA, "noise_multiplier": 3.0, "steps": 5}
    facts |= {"sample_rate": 0.5, "records": 77}
    text = TrainingPrivacy(**facts, adjacency="replace", simulated=False).statement()
    assert "(1.2341, 1e-05)" in text
    assert "one record replaced" in text
    assert "The number of records, 77, is public." in text
    text = TrainingPrivacy(**facts, adjacency="add-remove", simulated=True).statement()
    assert "protects nobody" in text
    assert "added or removed" in text
