"""Costs at the far ends of every parameter: finite, not negative, silent, never above Gaussian."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import logsumexp
from tests.contracts.cases import random_votes

import privote as pv
from privote.accounting.renyi import divergence

pytestmark = pytest.mark.filterwarnings("error")

ORDERS = np.array([1.01, 1.1, 2.0, 32.0, 1000.0])
SIGMAS = [0.1, 1.0, 7.0, 1e4]
SIZES = [(1, 1), (1, 1000), (100_000, 1), (50, 20), (2001, 3), (300, 1000)]


def mechanisms(sigma: float, voters: int) -> dict[str, pv.Mechanism]:
    gate = pv.Gate(threshold=0.6 * voters, sigma=sigma)
    return {
        "binary": pv.BinaryVoting(sigma=sigma),
        "binary gate": pv.BinaryVoting(sigma=sigma, gate=gate),
        "binary quota": pv.BinaryVoting(sigma=sigma, quota=0.01),
        "binary false_alarm": pv.BinaryVoting(sigma=sigma, false_alarm=1e-9),
        "tau l2": pv.TauVoting(sigma=sigma, tau=1.8),
        "tau l1": pv.TauVoting(sigma=sigma, tau=1.8, norm=1),
        "tau gate": pv.TauVoting(sigma=sigma, tau=1.8, gate=gate),
        "tally": pv.TallyVoting(sigma=sigma),
        "tally tau": pv.TallyVoting(sigma=sigma, tau=1.8),
        "plurality": pv.PluralityVoting(sigma=sigma),
        "plurality gate": pv.PluralityVoting(sigma=sigma, gate=gate),
        "powerset": pv.PowersetVoting(sigma=sigma),
        "powerset max_positives": pv.PowersetVoting(sigma=sigma, max_positives=3),
        "powerset gate": pv.PowersetVoting(sigma=sigma, gate=gate),
    }


NAMES = list(mechanisms(1.0, 1))
Case = tuple[str, float, int, int]


def ends(sizes: list[tuple[int, int]], once: int) -> list[Case]:
    """Return all cases; of a thousand labels Tau, which takes long, only with so many voters."""
    every = [(name, sigma, *size) for name, sigma, size in product(NAMES, SIGMAS, sizes)]
    one = ("tau l2", 1.0, once, 1000)
    return [
        case for case in every if case == one or case[3] < 1000 or not case[0].startswith("tau")
    ]


@pytest.mark.parametrize(("name", "sigma", "voters", "labels"), ends(SIZES, 300))
def test_worst_cases_at_the_ends(name: str, sigma: float, voters: int, labels: int) -> None:
    mech = mechanisms(sigma, voters)[name]
    worst = mech.worst_case_rdp(voters, labels, ORDERS)
    assert np.isfinite(worst).all()
    assert (worst > 0).all() or (mech.name == "plurality" and labels == 1) or voters == 1
    gaussian = mech.worst_case_rdp(voters, labels, ORDERS, bound="gaussian")
    assert (worst <= gaussian * (1 + 1e-12)).all()


def votes_for(mech: pv.Mechanism, voters: int, labels: int) -> Any:
    rng = np.random.default_rng(voters + labels)
    mixed = random_votes(mech, (1, voters, labels), rng, share=0.3)
    if mech.name == "plurality":
        first = np.zeros_like(mixed)
        first[:, :, 0] = True
        return np.concatenate([mixed, np.zeros_like(mixed), first])
    alike = np.repeat(mixed[:, :1], voters, axis=1)
    return np.concatenate([mixed, np.zeros_like(mixed), alike])


@pytest.mark.parametrize(
    ("name", "sigma", "voters", "labels"),
    ends([(1, 1), (1, 1000), (3_000, 1), (50, 20), (600, 3), (30, 1000)], 1),
)
def test_costs_of_votes_at_the_ends(name: str, sigma: float, voters: int, labels: int) -> None:
    mech = mechanisms(sigma, voters)[name]
    votes = votes_for(mech, voters, labels)
    if labels == 1000 and name.startswith("tau"):
        votes = votes[:1]
    rdp, bills = mech.rdp(votes, ORDERS), mech.rdp_by_voter(votes, ORDERS)
    for costs in (rdp, bills):
        assert np.isfinite(costs).all()
        assert (costs >= 0).all()
    slack = 1 + 1e-11
    assert (bills.max(axis=(0, 1)) <= rdp.sum(axis=0) * slack).all()
    if mech.name != "tau":  # its search takes a second; the other contracts compare them
        worst = mech.worst_case_rdp(voters, labels, ORDERS)
        assert (rdp <= worst * slack).all()
    released = mech.release(votes, seed=1)
    assert released.shape == (len(votes), labels)
    assert mech.name == "tally" or np.isin(released, (0, 1, pv.ABSTAIN)).all()


# -- the divergence itself ------------------------------------------------------------------------


def reference_divergence(log_p: list[float], log_q: list[float], order: float) -> float:
    with mpmath.workdps(400):
        p, q = ([mpmath.exp(mpmath.mpf(x)) for x in logs] for logs in (log_p, log_q))
        p, q = ([x / mpmath.fsum(side) for x in side] for side in (p, q))
        a = mpmath.mpf(order)
        total = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))
        return float(mpmath.log(total) / (a - 1))


@given(
    logs=st.lists(st.tuples(st.floats(-800, 0), st.floats(-800, 0)), min_size=1, max_size=4),
    apart=st.sampled_from([1.0, 1e-3, 1e-8]),
    order=st.sampled_from([1.01, 1.5, 2.0, 17.0, 1000.0]),
)
def test_divergence_against_mpmath(
    logs: list[tuple[float, float]], apart: float, order: float
) -> None:
    # The last outcome takes what is left, so that both sides add up to 1 to the last digit.
    p = np.array([a for a, _ in logs])
    q = p + apart * (np.array([b for _, b in logs]) - p)
    p, q = (np.append(side - math.log(len(logs) + 1), 0.0) for side in (p, q))
    for side in (p, q):
        side[-1] = math.log1p(-math.exp(logsumexp(side[:-1])))
    found = float(divergence(p, q, np.array([order]))[0])
    expected = reference_divergence(p.tolist(), q.tolist(), order)
    # The inputs themselves are rounded: a log-probability of -800 is known to 1e-13.
    noise = 1e-12 * order / (order - 1) if apart == 1.0 else 0.0
    assert found == pytest.approx(expected, rel=1e-7, abs=max(1e-16, noise))


def test_divergence_counts_what_is_impossible() -> None:
    orders = np.array([1.5, 2.0, 1000.0])
    sure = np.array([0.0, -np.inf])
    half = np.log([0.5, 0.5])
    np.testing.assert_allclose(divergence(sure, half, orders), math.log(2))
    assert np.isposinf(divergence(half, sure, orders)).all()
    assert (divergence(sure, sure, orders) == 0).all()
    three = np.array([math.log(0.5), math.log(0.5), -np.inf])
    assert (divergence(three, three, orders) == 0).all()


def reference_cell(margin: int, voters: int, sigma: float, gate: pv.Gate | None) -> list[Any]:
    """Return the probabilities of 0, 1 (and ABSTAIN), to hundreds of digits."""

    def phi(z: Any) -> Any:
        return mpmath.erfc(-z / mpmath.sqrt(2)) / 2

    z = mpmath.mpf(margin) / (mpmath.sqrt(2) * mpmath.mpf(sigma))
    if gate is None:
        return [phi(-z), phi(z)]
    top = mpmath.mpf(voters + abs(margin)) / 2
    y = (top - mpmath.mpf(gate.threshold)) / mpmath.mpf(gate.sigma)
    return [phi(-z) * phi(y), phi(z) * phi(y), phi(-y)]


@given(
    sigma=st.floats(-2, 4).map(lambda x: 10.0**x),
    gate_sigma=st.floats(-2, 4).map(lambda x: 10.0**x),
    share=st.none() | st.floats(0.0, 1.2),
    voters=st.sampled_from([1, 2, 5, 50, 2001]),
    place=st.floats(0, 1),
    order=st.floats(0.0043, 3).map(lambda x: 10.0**x),
)
@example(sigma=0.07, gate_sigma=0.1, share=0.257838384, voters=5, place=1.0, order=1.2535176)
def test_costs_of_a_vote_are_never_below_mpmath(
    sigma: float, gate_sigma: float, share: float | None, voters: int, place: float, order: float
) -> None:
    gate = None if share is None else pv.Gate(threshold=share * voters, sigma=gate_sigma)
    mech = pv.BinaryVoting(sigma=sigma, gate=gate)
    here = 2 * round(place * (voters - 1)) - voters
    margins = np.array([here, here + 2])
    p, q = mech.log_probs(margins, voters)
    found = [float(divergence(a, b, np.array([order]))[0]) for a, b in ((p, q), (q, p))]
    with mpmath.workdps(120):
        sides = [reference_cell(int(m), voters, sigma, gate) for m in margins]
        a = mpmath.mpf(order)
        for cost, (one, other) in zip(found, (sides, sides[::-1]), strict=True):
            assert cost >= 0
            total = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(one, other, strict=True))
            expected = mpmath.log(total) / (a - 1)
            # Below 1e-60 neither a sum over cells nor an epsilon can show it.
            assert expected * (1 - 1e-9) - 1e-60 <= cost <= expected * (1 + 1e-6) + 1e-60
    worst = mech.worst_case_rdp(voters, 1, np.array([order]))[0]
    assert max(found) <= worst * (1 + 1e-11)


@pytest.mark.parametrize("order", [1.0006652181875832, 1.135169383392157, 1.4018278757830596])
def test_costs_whose_squares_are_subnormal_are_not_negative(order: float) -> None:
    rng = np.random.default_rng(0)
    hair = 10 ** rng.uniform(-162.5, -159.5, 20_000)
    # An answer that is all but certain, beside one that takes the sum into logarithms.
    for far in (-3.0, -5000.0):
        log_p = np.stack([-hair, np.full_like(hair, far), np.full_like(hair, -2000.0)], axis=-1)
        log_q = log_p + np.array([0.0, 0.0, -1000.0])
        log_q[:, 0] = -hair / 3
        cost = divergence(log_p, log_q, np.array([order]))
        assert (cost >= 0).all()


# -- Powerset with up to 2^1000 classes -----------------------------------------------------------


def reference_win(counts: list[int], others: int, own: int, sigma: float) -> float:
    """Return Pr[a class with ``own`` votes wins], against ``counts`` and ``others`` at zero."""
    with mpmath.workdps(30):
        rivals = [c / mpmath.mpf(sigma) for c in counts]
        mean = own / mpmath.mpf(sigma)

        def log_cdf(z: Any) -> Any:
            # 1 - Phi(z) by erfc: the digits near 1 matter when raised to 2^1000.
            return mpmath.log1p(-mpmath.erfc(z / mpmath.sqrt(2)) / 2)

        def log_cdf_above(z: Any) -> Any:
            return mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2)

        def integrand(x: Any) -> Any:
            log = others * log_cdf(x) if others else mpmath.mpf(0)
            log += mpmath.fsum(log_cdf(x - r) for r in rivals)
            return mpmath.exp(log) * mpmath.npdf(x, mean, 1)

        cuts = {-9.0, max(float(v) for v in [*rivals, mean]) + 12}
        if others > 1000:
            # The maximum of the crowd lies within a sliver around this point.
            crowd = float(mpmath.findroot(lambda z: mpmath.log(others) + log_cdf_above(z), 30))
            cuts |= {
                crowd + step * sign for step in (0, 0.05, 0.2, 0.5, 1, 3, 8) for sign in (-1, 1)
            }
        cuts |= {float(v) + step for v in [*rivals, mean] for step in (-3, 0, 3)}
        return float(mpmath.quad(integrand, sorted(cuts), maxdegree=8))


@pytest.mark.parametrize(
    ("labels", "sigma", "profile"),
    [
        (3, 2.0, [4, 2, 1]),
        (3, 0.5, [3, 3, 1]),
        (20, 2.0, [30, 12, 5]),
        (20, 7.0, [9, 8]),
        (1000, 7.0, [270, 10]),
        (3000, 2.0, [140, 15]),  # more classes than there are floats
    ],
)
def test_powerset_win_probabilities_against_mpmath(
    labels: int, sigma: float, profile: list[int]
) -> None:
    votes = np.zeros((1, sum(profile), labels), bool)
    start = 0
    for place, count in enumerate(profile):  # distinct sets: {}, {0}, {0, 1}, ...
        votes[0, start : start + count, :place] = True
        start += count
    entry = pv.PowersetVoting(sigma=sigma).outcome_probabilities(votes)[0]
    assert sum(entry.values()) == pytest.approx(1, abs=5e-13)
    free = 2**labels - len(profile)
    for place, count in enumerate(profile):
        rivals = profile[:place] + profile[place + 1 :]
        expected = reference_win(rivals, free, count, sigma)
        # A class that wins once in 1e195 elections is known to seven digits; it costs nothing.
        rel = 1e-9 if expected > 1e-50 else 1e-6
        assert entry[tuple(range(place))] == pytest.approx(expected, rel=rel, abs=1e-300)
    if labels <= 20:
        assert entry["unvoted"] == pytest.approx(
            free * reference_win(profile, free - 1, 0, sigma), rel=1e-9
        )
