"""The price of noisy training, against independent computations; and the noise itself."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad, trapezoid
from scipy.stats import kstest, norm
from tests.refusals import refused

import privote as pv
from privote.learning.noise import Noise, TrainingPlan, scheduled

DELTA = 1e-5
ORDERS = np.array([2.0, 4.0, 8.0, 32.0])


def _divergence(first, second, gamma, noise):
    """The hockey-stick divergence of two densities on a line, by the trapezoidal rule."""
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 20_001)
    return trapezoid(np.maximum(0.0, first(x) - gamma * second(x)), x)


def _step(rate, shift, noise):
    return lambda x: (1 - rate) * norm.pdf(x, 0, noise) + rate * norm.pdf(x, shift, noise)


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 1.0), (0.5, 2.0), (0.02, 0.7)])
def test_one_sampled_step_costs_what_quadrature_says(rate, noise):
    gamma = math.exp(TrainingPlan(steps=1, sample_rate=rate).epsilon(noise, DELTA))
    there, here = _step(rate, 1.0, noise), _step(rate, -1.0, noise)
    assert _divergence(there, here, gamma, noise) == pytest.approx(DELTA, rel=5e-3)


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
def test_many_sampled_steps_cost_what_a_transform_of_our_own_says(steps, rate, noise):
    epsilon = TrainingPlan(steps=steps, sample_rate=rate).epsilon(noise, DELTA)
    there, here = _step(rate, 1.0, noise), _step(rate, -1.0, noise)
    low, high = (
        _composed_delta(there, here, noise, steps, epsilon, rounding)
        for rounding in (np.floor, np.ceil)
    )
    # Rounding may move a sum of losses by steps * interval: bounds on both sides.
    slack = math.exp(10 * steps * 2e-4)
    assert DELTA / slack < low < DELTA * (1 + 1e-3)
    assert high < DELTA * slack


@pytest.mark.parametrize("steps", [1, 50])
def test_full_batches_are_one_gaussian(steps):
    noise = 10.0
    epsilon = TrainingPlan(steps=steps).epsilon(noise, DELTA)
    mean = 2 * math.sqrt(steps) / noise
    delta = norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * norm.cdf(
        -mean / 2 - epsilon / mean
    )
    assert delta == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize(("noise", "rate", "order"), [(1.0, 0.1, 4.0), (3.0, 0.02, 16.0)])
def test_the_curve_of_sampled_steps_is_that_of_the_dominating_pair(noise, rate, order):
    def density(x, at):
        return math.exp(-(((x - at) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))

    def value(x):
        left = (1 - rate) * density(x, 0) + rate * density(x, -1)
        right = (1 - rate) * density(x, 0) + rate * density(x, 1)
        return math.exp(order * math.log(left) + (1 - order) * math.log(right))

    ends = (-order - 12 * noise, 1 + 12 * noise)
    exact = math.log(quad(value, *ends, limit=500, points=[-order, -1, 0, 1])[0]) / (order - 1)
    found = TrainingPlan(steps=5, sample_rate=rate).rdp(noise, np.array([order]))
    assert found == pytest.approx(5 * exact, rel=1e-6)
    assert found >= 5 * exact * (1 - 1e-9)


@pytest.mark.parametrize(
    ("rate", "epsilon", "decay"),
    [(1.0, 0.5, 1.0), (1.0, 8.0, 1.0), (0.1, 1.0, 1.0), (1.0, 2.0, 0.5), (0.3, 2.0, 0.5)],
)
def test_the_noise_is_enough_and_hardly_more(rate, epsilon, decay):
    plan = TrainingPlan(steps=20, sample_rate=rate, decay=decay)
    noise = plan.noise_multiplier(epsilon, DELTA)
    assert plan.epsilon(noise, DELTA) <= epsilon < plan.epsilon(noise * 0.99, DELTA)
    # A curve never promises more than losses do.
    curve = plan.rdp(noise, pv.DEFAULT_ORDERS)
    assert (np.diff(curve) >= 0).all()
    priced = float(pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA))
    assert epsilon * 0.99 <= priced <= epsilon * 1.25


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
    with refused("schedule"):
        TrainingPlan(steps=3, decay=-1.0)


@pytest.mark.parametrize("seed", [None, 1])
def test_noise_is_normal(seed):
    draws = Noise(seed).normal(100_000)
    assert kstest(draws, "norm").pvalue > 1e-4
    assert 3.5 < np.abs(draws).max() < 7.0


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
