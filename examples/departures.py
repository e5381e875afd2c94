"""Departures: where published formulas state too little, shown by numbers.

Each part computes a published bound and the true cost of a small election side by side. The
explanations are in docs/departures.md.

Run: python examples/departures.py
"""

import math

import numpy as np
from scipy.integrate import quad
from scipy.special import log_ndtr

import privote as pv
from privote.accounting.pate2018 import theorem6
from privote.accounting.renyi import divergence, two_sided
from privote.datasets import load_teacher_votes

DELTA = 1e-5


def gaussian_vote(margin: float, std: float) -> np.ndarray:
    """Return log Pr[0], log Pr[1] of a noisy majority with this std on the margin."""
    return np.array([log_ndtr(-margin / std), log_ndtr(margin / std)])


def algorithm_1() -> None:
    print("1. Noise of half the variance, charged as for the whole (the paper's Algorithm 1)")
    sigma, voters, order = 7.0, 50, np.array([32.0])
    claimed = float(order[0]) / sigma**2
    # N(0, sigma^2 / 2) on each of two bins: std sigma on the margin, which one vote moves by 2.
    worst = max(
        two_sided(gaussian_vote(m, sigma), gaussian_vote(m + 2, sigma), order)[0]
        for m in range(-voters, voters - 1)
    )
    ours = pv.BinaryVoting(sigma=sigma).worst_case_rdp(voters, 1, order)[0]
    print(f"   claimed order/sigma^2 = {claimed:.3f}; true, as drawn = {worst:.3f}")
    print(f"   with privote's convention (variance sigma^2 a bin): {ours:.3f}")


def tau_bound() -> None:
    print("2. The bound order * tau^2 / sigma^2 for tau voting")
    sigma, tau, labels, order = 7.0, 1.0, 2, np.array([32.0])
    mechanism = pv.TauVoting(sigma=sigma, tau=tau)
    claimed = float(order[0]) * tau**2 / sigma**2
    # One voter says "first label" or "second label": both labels move, one up and one down.
    worst = 0.0
    for first in range(49):
        for second in range(49 - first):
            before = np.zeros((1, 50, labels), bool)
            before[0, :first, 0], before[0, first : first + second, 1] = True, True
            after = before.copy()
            before[0, -1, 0], after[0, -1, 1] = True, True
            p, q = (np.log(mechanism.outcome_probabilities(v)[0]) for v in (before, after))
            worst = max(worst, float(two_sided(p, q, order).sum()))
    print(f"   claimed {claimed:.3f}; enumerated {worst:.3f}")
    stated = mechanism.worst_case_rdp(50, labels, order)[0]
    print(f"   privote's worst case: {stated:.3f}")
    print("   costliest pair of ballots at k=20, in units of order/sigma^2:")
    for name, wide in (
        ("l2, tau=1.8", pv.TauVoting(sigma=7.0, tau=1.8)),
        ("l1, tau=3.4", pv.TauVoting(sigma=7.0, tau=3.4, norm=1)),
        ("Binary", pv.BinaryVoting(sigma=7.0)),
    ):
        units = wide.worst_case_rdp(50, 20, [2.0], bound="gaussian")[0] / (2.0 / 49)
        print(f"     {name:12s} {units:.2f}")


def one_direction() -> None:
    print("3. PATE 2018's Theorem 6 bounds one direction only")
    sigma, order = 7.0, np.array([5.0])
    std = math.sqrt(2) * sigma
    here, there = gaussian_vote(50, std), gaussian_vote(48, std)
    bound = theorem6(here.min(), sigma, order)[0]
    forth, back = divergence(here, there, order)[0], divergence(there, here, order)[0]
    print(f"   n=50, unanimous: bound {bound:.2e}; D(X||X') {forth:.2e}; D(X'||X) {back:.2e}")


def stopping() -> None:
    print("4. Answering until a data-dependent budget is used up leaks")
    mechanism = pv.BinaryVoting(sigma=7.0)
    votes, budget = load_teacher_votes().votes[:500], 20.0
    print("   votes: tmc2007, 50 teachers, 22 labels; epsilon=20")
    here, other = answered(mechanism, votes, budget), []
    for voter in range(votes.shape[1]):
        for replaced in (~votes[:, voter], np.ones_like(votes[:, voter])):
            neighbour = votes.copy()
            neighbour[:, voter] = replaced
            other.append(answered(mechanism, neighbour, budget))
    print(f"   answered: {here}; on {len(other)} neighbours: {min(other)}-{max(other)}")
    print(f"   the count alone tells the votes from {sum(n != here for n in other)} of them")


def answered(mechanism: pv.Mechanism, votes: np.ndarray, budget: float) -> int:
    total = np.cumsum(mechanism.rdp(votes), axis=0)
    low, high = 0, len(total)
    while low < high:
        middle = (low + high + 1) // 2
        fits = pv.epsilon(total[middle - 1], None, DELTA) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def expected_costs() -> None:
    print("5. An expected cost is a forecast, not a cost; a cap on the vote forgets the gate")
    gate, order, voters = pv.Gate(threshold=50, sigma=30), np.array([32.0]), 50
    plain, gated = pv.BinaryVoting(sigma=7.0), pv.BinaryVoting(sigma=7.0, gate=gate)
    tied = np.array([0, 2])  # margins: 25 or 26 of 50 voters say yes
    vote = two_sided(*plain.log_probs(tied, voters), order)[0]
    check = order[0] / (2 * gate.sigma**2)  # the gate's share at its worst
    answer = float(np.exp(gate.log_probs(np.array(25))[1]))
    true = two_sided(*gated.log_probs(tied, voters), order)[0]
    print(f"   a tied label passes with probability {answer:.3f}; its vote costs {vote:.3f}")
    print(f"   gate + probability x cost: {check + answer * vote:.3f}; true, jointly: {true:.3f}")
    low, agreed = np.array([2.0]), np.array([26, 28])  # 38 or 39 of 50 voters agree
    cap = plain.worst_case_rdp(voters, 1, low)[0]
    sharp = pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=38, sigma=2.0))
    joint = two_sided(*sharp.log_probs(agreed, voters), low)[0]
    print(f"   order 2: the vote's worst case {cap:.3f}; with a gate of sigma=2, true: {joint:.3f}")


def sanitizing() -> None:
    print("6. The published cost of a sanitized epsilon (PATE 2018, Theorem 23)")
    order, beta, sigma = 5.0, 0.099, 1.0
    published = order * math.exp(2 * beta) / sigma**2 + (
        beta * order - 0.5 * math.log(1 - 2 * order * beta)
    ) / (order - 1)
    true = max(smooth_gaussian(order, t, sigma) for t in (-beta, beta))

    # The same number by brute force: N(0, 1) against N(e^-beta, e^-2beta), integrated.
    def integrand(x: float) -> float:
        p, q = -0.5 * x * x, -0.5 * (x * math.exp(beta) - 1) ** 2 + beta
        return math.exp(order * p - (order - 1) * q - 0.5 * math.log(2 * math.pi))

    brute = math.log(quad(integrand, -60, 60, points=[-40, -20, 0], limit=500)[0]) / (order - 1)
    print(f"   order 5, beta=.099, sigma=1: formula {published:.2f}; true {true:.2f}")
    print(f"   by numerical integration: {brute:.2f}")


def smooth_gaussian(order: float, t: float, sigma: float) -> float:
    """Return D(N(0, s^2) || N(m, s^2 e^2t)), s = sigma, m = min(1, e^t): smooth sensitivity."""
    spread = 1 - order + order * math.exp(2 * t)
    mean = order * min(1.0, math.exp(2 * t)) / (2 * sigma**2 * spread)
    return mean + (order * t - 0.5 * math.log(spread)) / (order - 1)


if __name__ == "__main__":
    for part in (algorithm_1, tau_bound, one_direction, stopping, expected_costs, sanitizing):
        part()
