r"""How much noise private training needs, and where that noise comes from.

Each of T steps samples every record with probability q (Poisson), lets it add a vector of norm at
most C, and adds Gaussian noise of standard deviation z·C to the sum: z is the *noise multiplier*.

The promise is about *replacing* one record. The pair of distributions that dominates one step is
(1−q)·N(0, z²) + q·N(−1, z²) against (1−q)·N(0, z²) + q·N(1, z²).

Proof. Given the sampled others, the outputs are P = (1−q)·N₀ + q·N_v and Q = (1−q)·N₀ + q·N_w
with \|v\|, \|w\| ≤ 1 in units of C. For any set A with a = N₀(A),
P(A) − γ·Q(A) = (1−q)(1−γ)·a + q·N_v(A) − γq·N_w(A), and by Neyman and Pearson
N_v(A) ≤ Φ(Φ⁻¹(a) + 1/z) and N_w(A) ≥ Φ(Φ⁻¹(a) − 1/z). A half-space meets both bounds at once if v
and w are opposite unit vectors, so no other pair has a larger divergence, for any γ. Averaging over
the others is joint convexity; dominating pairs compose (Zhu, Dong and Wang 2022, Theorem 10).

Epsilons are dp-accounting's: analytic for q = 1 (T steps are one Gaussian of multiplier z/√T), else
by privacy loss distributions, rounded up ("connect the dots").

A *schedule* lets noise and clipping norm change as training goes on, in stages that are fixed
beforehand. Steps are priced one by one, each at its own noise multiplier, and their Rényi costs, or
privacy losses, are added up; the clipping norm has no price, since noise is in units of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, ndtri

from ..accounting.renyi import DEFAULT_ORDERS, UPWARDS
from ..entropy import Entropy
from ..errors import positive, whole
from .rows import Floats, fraction

_SHIFT = 2.0  # how far replacing a record moves a sum, in units of C
_TOLERANCE = 1e-3  # how far above the least noise multiplier the search may stop, relative
_STOP = 1e-15  # how far from an analytic epsilon its search may stop: far below `UPWARDS`
_STAGES = 10  # of a schedule: a price takes as many times longer
_LEAST = 0.3  # no less noise than this, whatever the promise: losses become too many to list
_INTERVAL = 5e-4  # of privacy losses: epsilon comes out too large by less than a thousandth
_LAST_ORDER = 128.0  # up to which the divergence of sampled steps is worked out
_TAILS, _FINE = 14.0, 40  # deviations to look at on either side; points for each of them
_ROUNDING = 1e-9  # of sums of many logarithms, on the safe side
_GRID = -20  # a noisy sum is rounded to about a millionth of its noise
# What a record adds ends up further inside than its norm, so that rounding of the sum never shows
# more than was priced: n vectors, summed in blocks of b, are off by at most 2^-53 (b + n / b) n
# times their norm (Higham 2002, section 4.2), which this covers up to 20 million rows.
CLIP_MARGIN = 1e-4


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """So many noisy steps at a sampling rate: what is priced before a record is read.

    Attributes
    ----------
    steps
        How many noisy sums are released.
    sample_rate
        With which probability a record takes part in a step; 1 means all of them, every time.
    decay
        The noise multiplier of the last steps, in units of that of the first. In between it moves
        in ten stages of equally many steps, each by the same factor.
    """

    steps: int
    sample_rate: float = 1.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        fraction("sample_rate", self.sample_rate, "(]")
        positive("schedule", self.decay)

    @property
    def stages(self) -> list[tuple[float, int]]:
        """The noise of each stage, in units of the first, and how many steps it has."""
        if self.decay == 1:
            return [(1.0, self.steps)]
        factors = scheduled(self.decay, self.steps).tolist()
        return [(factor, factors.count(factor)) for factor in dict.fromkeys(factors)]

    def epsilon(self, noise_multiplier: float, delta: float) -> float:
        """Return the epsilon of all steps together at this delta.

        ``noise_multiplier`` is that of the first step, here and below.
        """
        import dp_accounting

        noise_multiplier = positive("noise_multiplier", noise_multiplier)
        fraction("delta", delta, "()")
        if self.sample_rate == 1:
            ratio = noise_multiplier / (_SHIFT * self._root)
            value = dp_accounting.get_epsilon_gaussian(ratio, delta, tol=_STOP)
        else:
            from dp_accounting.pld import PLDAccountant

            replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
            accountant = PLDAccountant(replaced, _INTERVAL).compose(self._event(noise_multiplier))
            value = accountant.get_epsilon(delta)
        return UPWARDS * float(value)

    def noise_multiplier(self, epsilon: float, delta: float) -> float:
        """Return a noise multiplier whose epsilon is at most this, close to the least."""
        import dp_accounting

        epsilon = positive("epsilon", epsilon)
        fraction("delta", delta, "()")
        if self.sample_rate == 1:
            # Twice: once is what `epsilon` adds, and both searches stop on any side.
            noise = float(dp_accounting.get_sigma_gaussian(epsilon / UPWARDS**2, delta))
            noise *= _SHIFT * self._root
        else:
            noise = self._search(epsilon, delta)
        while self.epsilon(noise, delta) > epsilon:  # a search stops near its target, on any side
            noise *= 1 + _TOLERANCE / 4
        return noise

    def rdp(self, noise_multiplier: float, orders: Floats) -> Floats:
        """Return the Rényi cost of all steps together for one record replaced: (orders,).

        With sampling: the divergence of the dominating pair; beyond order 128 that of a step which
        takes every record, which is no less (quasi-convexity).
        """
        first = positive("noise_multiplier", noise_multiplier)
        total = np.zeros(len(orders))
        for factor, steps in self.stages:
            z = factor * first
            curve = _SHIFT**2 * np.asarray(orders, np.float64) / (2 * z**2)
            for index, order in enumerate(orders if self.sample_rate < 1 else ()):
                if order <= _LAST_ORDER:
                    curve[index] = min(
                        curve[index], _sampled_rdp(z, self.sample_rate, float(order))
                    )
            total += steps * np.maximum.accumulate(curve)
        return total

    @property
    def _root(self) -> float:
        """The root of the number of steps; of those with less noise each counts for more."""
        return math.sqrt(sum(steps / factor**2 for factor, steps in self.stages))

    def _event(self, noise_multiplier: float) -> Any:
        import dp_accounting as dp

        events = []
        for factor, steps in self.stages:
            gaussian = dp.GaussianDpEvent(factor * noise_multiplier)
            step = dp.PoissonSampledDpEvent(self.sample_rate, gaussian)
            events.append(dp.SelfComposedDpEvent(step, steps))
        return dp.ComposedDpEvent(events)

    def _search(self, epsilon: float, delta: float) -> float:
        from dp_accounting.rdp import RdpAccountant

        def excess(z: float) -> float:
            accountant = RdpAccountant([2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256])
            return float(accountant.compose(self._event(z)).get_epsilon(delta)) - epsilon

        # Rényi's bound for adding a record takes a moment, and its noise is a fair first guess.
        least = _LEAST / min(1.0, self.decay)
        near = _least_noise(excess, 1.0, 1e-2, least)
        start = near * math.sqrt(_SHIFT)
        return _least_noise(lambda z: self.epsilon(z, delta) - epsilon, start, _TOLERANCE, least)


def scheduled(last: float, steps: int) -> Floats:
    """Return factors (steps,) from 1 to ``last`` in ten stages of equally many steps."""
    stages = min(_STAGES, steps)
    stage = np.arange(steps) * stages // steps
    return np.asarray(last ** (stage / max(1, stages - 1)))


def _least_noise(
    excess: Callable[[float], float], start: float, tolerance: float, least: float
) -> float:
    """Return about the least noise multiplier whose price is not in excess, from a first guess."""
    from scipy.optimize import brentq

    low = high = max(start, least)
    if excess(high) > 0:
        while excess(high := high * 1.5) > 0:
            low = high
    else:
        while excess(low := low / 1.5) <= 0:
            high = low
            if high <= least:  # records take part so rarely that any noise will do
                return high
    return float(brentq(excess, low, high, rtol=tolerance))


def _sampled_rdp(noise: float, rate: float, order: float) -> float:
    """Return what one sampled step costs at an order: the divergence of the pair for replacing.

    The pair dominates for every hockey-stick divergence, so also for Rényi's; by symmetry both ways
    round are the same. The integrand is smooth, so sums over a fine grid are exact but for
    rounding. It peaks between -(2 * order - 1), where it does for a rate of 1, and 0, where it does
    for rare sampling, and falls off on either side like a Gaussian of this noise.
    """
    reach = _TAILS * noise
    x = np.arange(-2 * order - reach, 1 + reach, noise / _FINE)
    none, sampled = math.log1p(-rate), math.log(rate)
    left = np.logaddexp(none - (x / noise) ** 2 / 2, sampled - ((x + 1) / noise) ** 2 / 2)
    right = np.logaddexp(none - (x / noise) ** 2 / 2, sampled - ((x - 1) / noise) ** 2 / 2)
    total = logsumexp(order * left + (1 - order) * right)
    total += math.log(noise / _FINE) - math.log(noise * math.sqrt(2 * math.pi))
    return max(0.0, float(total) / (order - 1)) * (1 + _ROUNDING) + _ROUNDING


class Noise:
    """Sampling and Gaussian noise for training, from the cryptographic generator unless seeded."""

    def __init__(self, seed: int | None = None) -> None:
        self._entropy = Entropy(seed)

    @property
    def simulated(self) -> bool:
        """True if a seed was given."""
        return self._entropy.simulated

    def sample(self, records: int, rate: float) -> npt.NDArray[np.intp]:
        """Return the places of the records that take part in a step (Poisson sampling)."""
        if rate == 1:
            return np.arange(records)
        return np.flatnonzero(self._entropy.uniform(records) < rate)

    def secret(self) -> int:
        """Return 63 bits for a generator whose draws nobody must know, such as torch's."""
        return int.from_bytes(self._entropy.bytes(8), "little") >> 1

    def normal(self, count: int) -> Floats:
        """Return standard normal draws, right to the last digits in both tails."""
        size = self._entropy.uniform(count)
        sign = np.frombuffer(self._entropy.bytes(count), np.uint8) & 1
        # Half of (0, 1) and a sign: near 1 a uniform has too few digits for the upper tail.
        draw = -ndtri(np.maximum(size, np.finfo(np.float64).tiny) / 2)
        return np.asarray(np.where(sign == 1, draw, -draw))

    def add(self, total: Floats, deviation: float) -> Floats:
        """Return ``total`` with noise of this standard deviation, rounded to a coarse grid.

        The grid depends on the deviation only. It drops the digits in which floating point shows
        what was added up (Mironov 2012); this is a precaution, not a proof.
        """
        step = math.ldexp(1.0, math.frexp(deviation)[1] + _GRID)
        noisy = total + deviation * self.normal(total.size).reshape(total.shape)
        return np.asarray(np.rint(noisy / step) * step)


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A plan with the noise that its price allows: public numbers only.

    Attributes
    ----------
    records
        How many take part: records, or persons. Sums are scaled by it, so it counts as public.
    noise_multiplier
        Of the first step.
    """

    plan: TrainingPlan
    records: int
    noise_multiplier: float
    delta: float

    def curve_at(self, epsilon: float) -> Floats:
        """Return the Rényi curve of such a training at an epsilon."""
        noise = self.plan.noise_multiplier(epsilon, self.delta)
        return self.plan.rdp(noise, DEFAULT_ORDERS)

    def parameters(self, kind: str) -> dict[str, Any]:
        """Return the public parameters, as a guarantee states them."""
        plan = self.plan
        return {
            "mechanism": f"noisy {kind}",
            "steps": plan.steps,
            "sample_rate": plan.sample_rate,
            "noise_multiplier": self.noise_multiplier,
            **({} if plan.decay == 1 else {"decay": plan.decay}),
        }


def affordable_rate(priced: Priced, keep: float) -> float:
    """Return the learning rate at which noise moves a weight by about 1 in all.

    Steps of rate η on noisy means, in units of the clipping norm, with a momentum that keeps this
    share: the noise adds up to η/(1−keep)·√T·z/batch. A public number, like all that it is made of.
    """
    plan = priced.plan
    batch = plan.sample_rate * priced.records
    noise = math.sqrt(sum(steps * factor**2 for factor, steps in plan.stages))
    return batch * (1 - keep) / (noise * priced.noise_multiplier)
