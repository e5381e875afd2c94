"""Numbers of every size and kind: an answer, or one sentence, and soon."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.attacks.conftest import Outcome, full, scaled, time_limit
from tests.cli.conftest import invoke

import privote as pv
from privote import planning
from privote.accounting import sanitize
from privote.accounting.renyi import DEFAULT_ORDERS
from privote.capc.site import read_toml
from privote.entropy import Entropy
from privote.errors import PrivoteError
from privote.guarantees.allowance import check_allowance
from privote.learning.noise import TrainingPlan
from privote.planning import forecast
from privote.votes.cube import SparseBallots, check_threshold

STRANGE: list[Any] = [
    *(True, False, None, "8", b"8", "many", 1j, [], [1, 2], {}, object(), np.array(8)),
    np.array([8]),
    *(math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf"), np.bool_(True)),
    *(0, -1, -(10**18), 10**12 + 1, 10**18, 2**63, 2**64 - 300, 10**400, 10**5000, -(10**400)),
    *(np.uint64(2**64 - 300), np.uint64(2**63), np.int8(-1), np.uint8(0), np.int64(2**62)),
    *(0.5, 1.5, 1e308, 1e-308, 5e-324, -0.0, 1e160, 1e-160, 7.000000001),
    *(Decimal(8), Decimal("NaN"), Fraction(1, 3), Fraction(10**400), Fraction(1, 10**400)),
    *(np.datetime64("2020"), np.timedelta64(8), np.str_("8")),
]
VOTES = np.zeros((4, 3, 2), np.bool_)
_BINARY = pv.BinaryVoting(sigma=7.0)
_SMALL_SETS = pv.PowersetVoting(sigma=2.0, max_positives=3)
_PLANNED = {"voters": 50, "labels": 3, "queries": 9, "epsilon": 8.0, "delta": 1e-5, "yes": 0.1}
TAKERS: dict[str, Callable[[Any], Any]] = {
    "sigma": lambda x: pv.BinaryVoting(sigma=x).worst_case_rdp(50, 3, [2.0]),
    "sigma of tau": lambda x: pv.TauVoting(sigma=x, tau=1.8).worst_case_rdp(50, 3, [2.0]),
    "tau": lambda x: pv.TauVoting(sigma=7.0, tau=x).worst_case_rdp(50, 3, [2.0]),
    "norm": lambda x: pv.TauVoting(sigma=7.0, tau=1.8, norm=x),
    "grid": lambda x: pv.TauVoting(sigma=7.0, tau=1.8, grid=x).weights(3),
    "sigma of powerset": lambda x: pv.PowersetVoting(sigma=x).release(VOTES),
    "max_positives": lambda x: pv.PowersetVoting(sigma=2.0, max_positives=x).release(VOTES),
    "sigma of plurality": lambda x: pv.PluralityVoting(sigma=x).worst_case_rdp(50, 3, [2.0]),
    "quota": lambda x: pv.BinaryVoting(sigma=7.0, quota=x).release(VOTES),
    "false_alarm": lambda x: pv.BinaryVoting(sigma=7.0, false_alarm=x).release(VOTES),
    "gate threshold": lambda x: pv.BinaryVoting(
        sigma=7.0, gate=pv.Gate(threshold=x, sigma=3.0)
    ).release(VOTES),
    "gate sigma": lambda x: pv.BinaryVoting(
        sigma=7.0, gate=pv.Gate(threshold=2, sigma=x)
    ).worst_case_rdp(50, 3, [2.0]),
    "voters": lambda x: _BINARY.worst_case_rdp(x, 20, [2.0]),
    "labels": lambda x: _BINARY.worst_case_rdp(20, x, [2.0]),
    "voters of contribution": lambda x: _BINARY.contribution_rdp(x, 20, [2.0]),
    "voters of tau": lambda x: pv.TauVoting(sigma=7.0, tau=1.8).worst_case_rdp(x, 2, [2.0]),
    "labels of tau": lambda x: pv.TauVoting(sigma=7.0, tau=1.8).worst_case_rdp(50, x, [2.0]),
    "labels on the grid": lambda x: pv.TauVoting(sigma=7.0, tau=1.8, grid=99).worst_case_rdp(
        50, x, [2.0]
    ),
    "labels of powerset": lambda x: forecast(pv.PowersetVoting(sigma=2.0), 50, x),
    "labels of small sets": lambda x: forecast(_SMALL_SETS, 50, x),
    "labels of plurality": lambda x: forecast(pv.PluralityVoting(sigma=2.0), 50, x),
    "orders": lambda x: _BINARY.worst_case_rdp(20, 2, x),
    "an order": lambda x: _BINARY.worst_case_rdp(20, 2, [2.0, x]),
    "delta": lambda x: pv.epsilon(np.ones(1), [2.0], x),
    "rdp": lambda x: pv.epsilon(x, [2.0], 1e-5),
    "epsilon": lambda x: planning.queries_for(_BINARY, 50, 3, x, 1e-5),
    "delta of a plan": lambda x: planning.queries_for(_BINARY, 50, 3, 8.0, x),
    "wanted": lambda x: planning.sigma_for(lambda s: pv.BinaryVoting(sigma=s), 50, 3, 8.0, 1e-5, x),
    "missed": lambda x: forecast(_BINARY, x, 3),
    **{f"plan, {name}": lambda x, name=name: pv.plan(**{**_PLANNED, name: x}) for name in _PLANNED},
    "allowance": lambda x: _allowances(x, 3),
    "allowances": lambda x: _allowances([1, 2, x], 3),
    "unsigned allowances": lambda x: _allowances(_unsigned(x), 2),
    "threshold": lambda x: check_threshold(x, 3),
    "thresholds": lambda x: check_threshold([0.5, 0.5, x], 3),
    "seed": lambda x: Entropy(x).bytes(3),
    "head": lambda x: pv.Ballots.of(VOTES).head(x),
    "clip": lambda x: pv.Ballots.of(VOTES).clip(x).to_array(),
    "a vote": lambda x: pv.Ballots.of([[[x, 0]]]).to_array(),
    "packed shape": lambda x: pv.Ballots.from_packed(np.zeros(3, np.uint8), [x, 1, 1]),
    "sparse queries": lambda x: SparseBallots([0], [0], [[1]], queries=x, voters=2),
    "sparse voters": lambda x: SparseBallots([0], [0], [[1]], queries=2, voters=x),
    "sparse query": lambda x: _places(SparseBallots([x], [0], [[1]], queries=9, voters=2)),
    "sparse voter": lambda x: _places(SparseBallots([0], [x], [[1]], queries=9, voters=2)),
    "epsilon of a release": lambda x: pv.label(VOTES, epsilon=x, delta=1e-5, mechanism=_BINARY),
    "delta of a release": lambda x: pv.label(VOTES, epsilon=8, delta=x, mechanism=_BINARY),
    "queries": lambda x: pv.label(
        VOTES, epsilon=8, delta=1e-5, mechanism=_BINARY, queries=x, guarantee="worst-case"
    ),
}


def _unsigned(value: Any) -> Any:
    try:
        return np.array([1, value], np.uint64)
    except (TypeError, ValueError, OverflowError):
        return value


def _allowances(wanted: Any, voters: int) -> None:
    found = check_allowance(wanted, 2**62, voters, pv.Budget(epsilon=8.0, delta=1e-5))
    assert (found >= 0).all(), f"allowances {found}"


def _places(ballots: SparseBallots) -> None:
    for block in ballots.blocks():
        query, voter, _ = block.speakers()
        assert (query >= 0).all()
        assert (voter >= 0).all()


@pytest.mark.filterwarnings("ignore")
def test_strange_numbers_are_one_sentence(outcome: Outcome) -> None:
    found: list[str | None] = []
    for (name, take), value in product(TAKERS.items(), STRANGE):
        wrong = None
        try:
            with time_limit():
                take(value)
        except PrivoteError as error:
            if len(str(error)) > 400 or "\n" in str(error):
                wrong = f"{len(str(error))} letters"
        except BaseException as error:  # what this is about
            wrong = f"{type(error).__name__}: {str(error)[:80]}"
        found.append(wrong and f"{name}, of kind {type(value).__name__}: {wrong}")
    outcome.of("a number of a strange kind or size", found)


SIZES = ("1000000000", "1000000000000", "1000000000000000000", "9" * 400, "9" * 5000, "-1", "0")
MECHANISMS = (
    "binary --sigma 7",
    "binary --sigma 7 --gate-threshold 30 --gate-sigma 9",
    "tau --sigma 9 --tau 1.8",
    "powerset --sigma 2",
    "powerset --sigma 2 --max-positives 3",
    "plurality --sigma 4",
)


def _plan(mechanism: str, option: str, value: str) -> str | None:
    """Return what is wrong with a plan: neither an answer nor one sentence."""
    sizes = {"--voters": "50", "--labels": "4", "--epsilon": "8", "--delta": "1e-5", option: value}
    flags = [word for pair in sizes.items() for word in pair]
    with time_limit():
        done = invoke("plan", "--mechanism", *mechanism.split(), *flags, "--json")
    fine = done.exit_code in (0, 2, 3) and not isinstance(done.exception, MemoryError)
    said = done.stderr.strip().splitlines()
    if done.exit_code == 0:
        fine = fine and json.loads(done.stdout)["voters"] > 0
    else:
        if said[1:] == ["See privote plan --help"]:
            said = said[:1]  # what is no number at all
        found = json.loads(done.stdout or "{}")
        fine = fine and len(said) == 1 and said[0] == f"error: {found.get('error')}"
        fine = fine and found.get("exit_code") == done.exit_code and len(said[0]) < 400
    return None if fine else f"{mechanism} {option} {value[:20]}: {done.exit_code}, {said[-1:]}"


def test_plans_of_any_size_are_an_answer_or_one_sentence(outcome: Outcome) -> None:
    asked = [(option, size) for option in ("--voters", "--labels") for size in SIZES]
    asked += [("--delta", value) for value in ("1e400", "nan", "0", "1", "1e-320", "-1")]
    asked += [("--epsilon", value) for value in ("1e308", "nan", "inf", "1e-320", "-1")]
    found = []
    for mechanism, (option, value) in product(MECHANISMS, asked):
        small = value == SIZES[1] and "tau" not in mechanism and "gate" not in mechanism
        if full() or small or mechanism == MECHANISMS[0]:  # a refusal is the same for all of them
            found.append(_plan(mechanism, option, value))
    outcome.of("a plan of a strange size", found)


@pytest.mark.parametrize("depth", [2000, 100_000])
def test_deep_terms_are_one_sentence(depth: int, tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text("a = " + "[" * depth + "]" * depth)
    with pytest.raises(pv.InputError) as caught:
        read_toml(tmp_path / "terms.toml")
    assert "\n" not in str(caught.value)


def _exact(curve: Any, orders: Any, delta: float) -> Any:
    """Return the epsilon of a curve of floats in 200 bits: Canonne, Kamath and Steinke 2020."""
    d, known = mpmath.mpf(delta), []
    for order, cost in zip(orders, curve, strict=True):
        a, r = mpmath.mpf(float(order)), mpmath.mpf(float(cost))
        free = d**2 + mpmath.expm1(-r) > 0
        known.append(0 if free else r + mpmath.log1p(-1 / a) - mpmath.log(d * a) / (a - 1))
    return max(mpmath.mpf(0), min(known))


def _exact_gaussian(noise: float, delta: float, near: float) -> Any:
    """Return the epsilon of one Gaussian whose mean moves by 1: Balle and Wang 2018, Theorem 8."""
    mu = 1 / mpmath.mpf(noise)

    def excess(e: Any) -> Any:
        tail = mpmath.e**e * mpmath.ncdf(-mu / 2 - e / mu)
        return mpmath.log(mpmath.ncdf(mu / 2 - e / mu) - tail) - mpmath.log(delta)

    return mpmath.findroot(excess, (near * (1 - 1e-6), near * (1 + 1e-6)), tol=1e-40)


def _epsilons(rng: np.random.Generator) -> Iterator[tuple[float, Any]]:
    """Yield epsilons by every way from a curve, each with the exact one."""
    delta, orders = float(10 ** rng.uniform(-12, -2)), DEFAULT_ORDERS
    curve = 10 ** rng.uniform(-4, 3) * orders ** rng.uniform(0, 1)
    yield float(pv.epsilon(curve, None, delta)), _exact(curve, orders, delta)
    yield float(np.max(pv.epsilon(curve[None], orders, delta))), _exact(curve, orders, delta)
    loose = min(curve[i] - mpmath.log(delta) / (a - 1) for i, a in enumerate(orders))
    yield pv.epsilon_2017(curve, None, delta), loose
    place = int(rng.integers(len(orders)))
    one = float(orders[place]), delta
    cost = float(curve[place])
    yield (
        pv.Budget(epsilon=8.0, delta=delta, order=one[0]).filter.epsilon(cost),
        _exact([cost], one[:1], delta),
    )
    yield sanitize.statement_epsilon(cost, 0.0, *one), _exact([cost], one[:1], delta)
    plan = TrainingPlan(steps=4)
    spent = float(10 ** rng.uniform(-4, 1.5))
    noise = plan.noise_multiplier(spent, delta)
    stated = plan.epsilon(noise, delta)
    assert spent * (1 - 1e-8) < stated <= spent  # solved for a budget: it fits, and just so
    yield stated, _exact_gaussian(noise / 4, delta, stated)


def test_no_epsilon_is_below_its_exact_value(outcome: Outcome) -> None:
    """Floats round down as often as up; what is added for that is added once."""
    with mpmath.workprec(200):
        found = [
            not exact <= stated <= exact * (1 + 1.1e-9)
            for seed in range(scaled(20, 2000))
            for stated, exact in _epsilons(np.random.default_rng(seed))
        ]
    outcome.of("an epsilon below its exact value, or rounded up twice", found)


def _sampled_step(noise: float, rate: float, order: float) -> Any:
    """Return a sampled step's Rényi divergence under replacement, to 30 digits.

    The same integral as a sum over a grid, each term from the one before it.
    """
    mp = mpmath
    with mp.workdps(30):
        z, q, a = mp.mpf(noise), mp.mpf(rate), mp.mpf(order)
        step, x = min(z, z * z) / 5, -2 * a - 11 * z
        left, right = mp.exp(-(x + 0.5) / z**2), mp.exp((x - 0.5) / z**2)
        ratio, density = mp.exp(-step / z**2), mp.exp(-((x / z) ** 2) / 2)
        growth, slower = mp.exp(-(2 * x * step + step**2) / (2 * z * z)), mp.exp(-((step / z) ** 2))
        total = mp.mpf(0)
        for _ in range(int((2 * a + 22 * z + 1) / step)):
            total += density * (1 - q + q * left) ** a * (1 - q + q * right) ** (1 - a)
            left, right = left * ratio, right / ratio
            density, growth = density * growth, growth * slower
        return mp.log(total * step / (z * mp.sqrt(2 * mp.pi))) / (a - 1)


def test_no_sampled_step_is_priced_below_its_divergence(outcome: Outcome) -> None:
    rates = (1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12)
    noises, orders = ((0.3, 0.7, 1.0, 4.0, 30.0), (1.1, 2.0, 17.5, 64.0, 128.0))
    if not full():
        rates, noises, orders = rates[::4], noises[2:4], orders[::2]
    found = []
    for noise, rate, order in product(noises, rates, orders):
        price = TrainingPlan(steps=1, sample_rate=rate).rdp(noise, np.array([order]))[0]
        true = _sampled_step(noise, rate, order)
        # Not much more either, where the price is not that of a full batch.
        found.append(not true <= price <= true * (1 + 1e-8) + 1e-8)
    outcome.of("sampled steps priced below their divergence", found)
