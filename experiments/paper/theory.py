"""The paper's lemmas, propositions and prices beside exact costs: computation, no data."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.fft import irfft, rfft
from scipy.integrate import quad
from scipy.special import erfc, log_ndtr
from scipy.stats import binom

import privote as pv
from privote.accounting.pate2018 import theorem6
from privote.accounting.renyi import divergence, two_sided
from privote.mechanisms.classes import Contest

from .bench import Bench, Measured
from .counts import answered
from .electorates import electorate

VOTERS, SIGMA = 50, 7.0


def majority(margin: Any, std: float) -> np.ndarray:
    """Return log Pr[0], log Pr[1] of a majority with noise of this std on the margin."""
    margin = np.asarray(margin, float)
    return np.stack([log_ndtr(-margin / std), log_ndtr(margin / std)], axis=-1)


def costs_by_margin(std: float, orders: Any, voters: int = VOTERS) -> np.ndarray:
    """Return the two-sided cost of a vote at each margin -n, -n + 2 ... n: (margins, orders)."""
    margins = np.arange(-voters, voters + 1, 2)
    cost = np.zeros((len(margins), len(orders)))
    for move in (-2, 2):
        inside = np.abs(margins + move) <= voters
        there = majority(margins[inside] + move, std)
        moved = two_sided(majority(margins[inside], std), there, orders)
        cost[inside] = np.maximum(cost[inside], moved)
    return cost


# -- Lemmas 2.1, 2.2 and 3.2, Proposition 5.1 ------------------------------------------------------


def lemmas(bench: Bench) -> Measured:
    """Integrate, sample and enumerate what four statements say of Gaussian noise."""
    rows = [*_one_number(), *_many_numbers()]
    gaussian = max(abs(row["measured"] / row["stated"] - 1) for row in rows[:12])
    vector = max(abs(row["measured"] / row["stated"] - 1) for row in rows[12:])
    composed, gap = _composition(), _gap_bound()
    rows += [{"statement": "Lemma 2.2, 200 elections", "stated": 1.0, "measured": composed}]
    rows += [{"statement": "Proposition 5.1, 240 histograms", "stated": 1.0, "measured": gap}]
    facts = {"gaussian": gaussian, "vector": vector, "composed": composed, "gap": gap}
    return Measured(rows=rows, facts=facts)


def _one_number() -> list[dict[str, Any]]:
    rows = []
    for sigma, shift, order in itertools.product((1.0, 7.0), (1.0, 2.0), (2.0, 10.0, 32.0)):

        def integrand(x: float, s: float = sigma, d: float = shift, a: float = order) -> float:
            exponent = -a * x * x / (2 * s * s) - (1 - a) * (x - d) ** 2 / (2 * s * s)
            # Around its own centre the integrand is 1 at most.
            return math.exp(exponent - a * (a - 1) * d * d / (2 * s * s))

        centre = (1 - order) * shift
        area = quad(integrand, centre - 12 * sigma, centre + 12 * sigma, points=[centre])[0]
        area /= math.sqrt(2 * math.pi) * sigma
        measured = (math.log(area) + order * (order - 1) * shift**2 / (2 * sigma**2)) / (order - 1)
        name = f"Lemma 2.1, sigma {sigma:g}, shift {shift:g}, order {order:g}"
        stated = order * shift**2 / (2 * sigma**2)
        rows.append({"statement": name, "stated": stated, "measured": measured})
    return rows


def _many_numbers() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for k, order in ((2, 2.0), (5, 3.0), (20, 2.0)):
        shift = rng.random(k) * 0.6
        noise = rng.normal(size=(400_000, k)) * 3.0
        loss = (noise * shift).sum(axis=1) / 9.0 + (shift**2).sum() / 18.0
        measured = math.log(np.exp((order - 1) * loss).mean()) / (order - 1)
        stated = order * (shift**2).sum() / 18.0
        name = f"Lemma 3.2, {k} labels, order {order:g}"
        rows.append({"statement": name, "stated": stated, "measured": measured})
    return rows


def _composition() -> float:
    """Return the largest joint cost of adaptive elections, as a share of the sum of bounds."""
    rng = np.random.default_rng(1)
    orders, worst = np.array([2.0, 5.0, 20.0]), 0.0
    for _ in range(200):
        counts = rng.integers(1, 9, size=3)
        sigma = {(): 3.0, (0,): rng.uniform(1, 9), (1,): rng.uniform(1, 9)}
        sigma |= {pair: rng.uniform(1, 9) for pair in itertools.product((0, 1), repeat=2)}
        joint, steps = np.zeros((2, 8)), np.zeros((3, len(orders)))
        for place, path in enumerate(itertools.product((0, 1), repeat=3)):
            for step in range(3):
                std = sigma[path[:step]] * math.sqrt(2)
                here, there = (majority(2 * (counts[step] + d) - 10, std) for d in (0, 1))
                joint[0, place] += here[path[step]]
                joint[1, place] += there[path[step]]
                steps[step] = np.maximum(steps[step], two_sided(here, there, orders))
        share = two_sided(joint[0], joint[1], orders) / steps.sum(axis=0)
        worst = max(worst, float(share.max()))
    return worst


def _gap_bound() -> float:
    """Return the largest chance of another outcome than the leading one, as a multiple of q."""
    rng = np.random.default_rng(2)
    largest = 0.0
    for sigma, classes in itertools.product((2.0, 7.0, 20.0), (2, 4, 32, 2048)):
        for _ in range(20):
            weights = rng.dirichlet(np.full(min(classes, 8), rng.uniform(0.2, 3)))
            counts = np.sort(rng.multinomial(VOTERS, weights))[::-1]
            contest = Contest(sigma, tuple(int(c) for c in counts[counts > 0]), classes)
            levels, log_mult = contest.levels()
            mult = np.exp(log_mult)
            mult[0] -= 1
            # Added up, not taken from 1: a chance of 1e-12 keeps its digits.
            other = float((mult * np.exp(contest.win_log_probs())).sum())
            q = float((mult * erfc((levels[0] - levels) / (2 * sigma))).sum() / 2)
            if other > 1e-12:
                largest = max(largest, other / q)
    return largest


# -- Proposition 3.1, Lemma A.1, Proposition A.2 ---------------------------------------------------


def coordinates(bench: Bench) -> Measured:
    """Enumerate pairs of Boolean functions of two voters' votes, one label each."""
    rows, facts = [], {}
    for name, symmetric in (("any", False), ("alike", True)):
        total, attained, example = _sensitivities(symmetric)
        rows.append({"functions": name, "pairs": total, "one change attains both": attained})
        facts |= {name: total, f"{name}_attained": attained}
        if example:
            rows[-1]["first pair that does not"] = example
    # Tied labels, one voter turns from all no to all yes: the joint cost is k times one label's.
    here, there = majority(0, SIGMA * math.sqrt(2)), majority(2, SIGMA * math.sqrt(2))
    orders = np.array([2.0, 10.0])
    cube = np.array(list(itertools.product((0, 1), repeat=3)))
    joint = [np.array([sum(p[bit] for bit in row) for row in cube]) for p in (here, there)]
    shares = divergence(*joint, orders) / (3 * divergence(here, there, orders))
    return Measured(rows=rows, facts={**facts, "additive": float(np.abs(shares - 1).max())})


def _sensitivities(symmetric: bool) -> tuple[int, int, str]:
    """Return how many pairs there are, in how many one voter attains both worst cases, and one."""
    columns = list(itertools.product((0, 1), repeat=2))  # what two voters say on one label
    functions = [dict(zip(columns, t, strict=True)) for t in itertools.product((0, 1), repeat=4)]
    if symmetric:
        functions = [f for f in functions if f[0, 1] == f[1, 0]]
    moves = [(a, b) for a in columns for b in columns if (a[0] != b[0]) != (a[1] != b[1])]
    attained, example = 0, ""
    for f, g in itertools.product(functions, repeat=2):
        worst = sum(max(abs(h[a] - h[b]) for a, b in moves) for h in (f, g))
        joint = max(
            sum(max(abs(h[a] - h[b]) for a, b in moves if a[v] != b[v]) for h in (f, g))
            for v in (0, 1)
        )
        attained += joint == worst
        if joint != worst and not example:
            example = f"{list(f.values())} and {list(g.values())}"
    return len(functions) ** 2, attained, example


# -- Theorem 5.2 and what Section 5 makes of it ----------------------------------------------------


def theorem_six(bench: Bench) -> Measured:
    """Compare the bound with both directions of the exact cost, and its condition as printed."""
    orders, rows = np.array([2.0, 5.0, 10.0]), []
    margins, std = np.arange(0, VOTERS + 1, 2), SIGMA * math.sqrt(2)
    here = majority(margins, std)
    bound = theorem6(here.min(axis=1), SIGMA, orders)
    ways = np.zeros((2, *bound.shape))
    for move in (-2, 2):
        inside = np.abs(margins + move) <= VOTERS
        there = majority(margins[inside] + move, std)
        for way, pair in enumerate(((here[inside], there), (there, here[inside]))):
            ways[way][inside] = np.maximum(ways[way][inside], divergence(*pair, orders))
    for place, margin in enumerate(margins):
        costs = (bound[place, 1], *ways[:, place, 1])
        names = ("Theorem 6", "D(X||X')", "D(X'||X)")
        rows.append({"margin": int(margin), "order": 5, **dict(zip(names, costs, strict=True))})
    # As printed, q <= exp((mu2 - 1) e2) * (mu1/(mu1 - 1) * mu2/(mu2 - 1))^mu2; the code divides.
    mu2 = np.linspace(1.05, 60, 500)
    printed = (mu2 - 1) * mu2 / SIGMA**2 + mu2 * np.log((mu2 + 1) / mu2 * mu2 / (mu2 - 1))
    facts = {
        "forth": float((ways[0] / bound).max()),
        "back": float((ways[1] / bound).max()),
        "loose": float(np.median(bound / ways.max(axis=0))),
        "printed": float(np.exp(printed.min())),
    }
    return Measured(rows=rows, facts=facts)


def approximation(bench: Bench) -> Measured:
    """Compare Equation 5, the expectations made of it and the max load with exact costs."""
    rows, ratios = [], []
    for gap in (10, 20, 30, 40, 50):
        order = max(gap / 4, 1.01)
        exact = float(
            costs_by_margin(SIGMA * math.sqrt(2), np.array([order]))[(VOTERS + gap) // 2, 0]
        )
        stated = math.exp(-2 * order / SIGMA**2) / order
        ratios.append(stated / exact)
        rows.append({"gap": gap, "order": order, "Equation 5": stated, "exact": exact})
    t, p = VOTERS, 0.9
    counts = np.arange(1, t + 1)
    costs = 4 / counts * np.exp(-counts / (2 * SIGMA**2))
    logs = np.array([math.log(math.comb(t, int(c))) for c in counts])
    printed = float((np.exp(logs) * p**counts * (1 - p) ** (1.0 - counts) * costs).sum())
    meant = float((binom.pmf(counts, t, p) * costs).sum())
    rows.append({"gap": "E[cost] of a label, p = .9", "Equation 5": printed, "exact": meant})
    facts = {"low": min(ratios), "high": max(ratios), "printed": printed, "meant": meant}
    facts |= {"load_half": math.e * t * 0.5, "share": 1 / math.e}
    return Measured(rows=rows, facts=facts)


def no_consensus(bench: Bench) -> Measured:
    """Compare costs of random votes with the data-independent ones, as they become more random."""
    rows, k, order = [], 8, np.array([2.0])
    makers = {"binary": pv.BinaryVoting(sigma=SIGMA), "powerset": pv.PowersetVoting(sigma=SIGMA)}
    stated = {"binary": k * 2.0 / SIGMA**2, "powerset": 2.0 / SIGMA**2}
    for p in (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5):
        votes = np.random.default_rng(3).random((60, VOTERS, k)) < p
        row: dict[str, Any] = {"p": p}
        for name, mechanism in makers.items():
            most = float(mechanism.worst_case_rdp(VOTERS, k, order)[0])
            bound = mechanism.rdp(votes, order, bound="pate2018").mean()
            row[f"{name}_paper"] = float(bound / stated[name])
            row[f"{name}_exact"] = float(mechanism.rdp(votes, order).mean() / most)
        rows.append(row)
    return Measured(rows=rows, facts={key: value for key, value in rows[-1].items() if key != "p"})


# -- Algorithms 1 and 2, thresholds, Powerset's sensitivity ----------------------------------------


def algorithm_one(bench: Bench) -> Measured:
    """Price Algorithm 1 as printed, as its authors' code draws, and with two labels."""
    order, root = [32.0], math.sqrt(2)
    claimed = 32.0 / SIGMA**2
    priced = {
        "label, as printed": pv.BinaryVoting(sigma=SIGMA / root).worst_case_rdp(VOTERS, 1, order),
        "label, code": pv.BinaryVoting(sigma=SIGMA).worst_case_rdp(VOTERS, 1, order),
        "tau, code": pv.TauVoting(sigma=SIGMA, tau=1.0).worst_case_rdp(VOTERS, 2, order),
        "tau, as printed": pv.TauVoting(sigma=SIGMA / root, tau=1.0).worst_case_rdp(
            VOTERS, 2, order
        ),
    }
    rows = [{"what": n, "charged": claimed, "exact": float(c[0])} for n, c in priced.items()]
    names = ("label_printed", "label_code", "tau_code", "tau_printed")
    facts = {n: row["exact"] / claimed for n, row in zip(names, rows, strict=True)}
    return Measured(rows=rows, facts=facts)


def norms(bench: Bench) -> Measured:
    """Compare clipping in l2 and l1 with Binary: as the paper prices it, and exactly."""
    rows, units = [], 2.0 / SIGMA**2
    for name, mechanism, stated in (
        ("l2", pv.TauVoting(sigma=SIGMA, tau=1.8), 1.8**2),
        ("l1", pv.TauVoting(sigma=SIGMA, tau=3.4, norm=1), 2 * 3.4**2),
        ("binary", pv.BinaryVoting(sigma=SIGMA), 20.0),
    ):
        exact = float(mechanism.worst_case_rdp(VOTERS, 20, [2.0])[0] / units)
        rows.append({"clipping": name, "paper": stated, "exact": exact})
    l2, l1, binary = (row["exact"] for row in rows)
    facts = {"paper": rows[2]["paper"] / rows[0]["paper"], "binary": binary / l2, "l1": l1 / l2}
    # What one ballot of s ones for another, disjoint one moves, in units of the price.
    for s in (1, 2, 3, 4, 8, 10):
        moved = (2 * s * min(1.0, 1.8**2 / s), 2 * s * min(1.0, 3.4 / s) ** 2)
        rows.append({"clipping": f"{s} ones, l2 and l1", "paper": moved[0], "exact": moved[1]})
    facts |= {"long_l2": rows[-1]["paper"], "long_l1": rows[-1]["exact"]}
    return Measured(rows=rows, facts=facts)


def negative_votes(bench: Bench) -> Measured:
    """Price T = n - votes and T = n/2 at equal sigma: in the worst case, and on real votes."""
    orders = np.array([2.0, 8.0, 32.0])
    # Noise on the yes votes alone is noise of 2 sigma on the margin: PATE's sigma times sqrt(2).
    ways = {"T = n - votes": SIGMA, "T = n/2": SIGMA * math.sqrt(2)}
    worst = [costs_by_margin(s * math.sqrt(2), orders).max(axis=0) for s in ways.values()]
    votes = electorate("voc", 0, bench.data).votes
    rows = []
    for (name, sigma), cost in zip(ways.items(), worst, strict=True):
        mechanism = pv.BinaryVoting(sigma=sigma)
        row = {"threshold": name, "worst case, order 2": float(cost[0])}
        row |= {
            "paper": answered(mechanism, votes, paper=True),
            "exact": answered(mechanism, votes),
        }
        rows.append(row)
    facts = {"worst": float((worst[0] / worst[1]).min())}
    for name, row in zip(("negative", "half"), rows, strict=True):
        facts |= {f"{name}_paper": row["paper"], f"{name}_exact": row["exact"]}
    return Measured(rows=rows, facts=facts)


def powerset_sensitivity() -> tuple[float, float]:
    """Return Powerset's worst case with a bound on positives, as a share of that without one."""
    shares = []
    for k, tau in ((5, 1), (5, 2), (20, 1), (20, 4)):
        costs = [
            float(
                pv.PowersetVoting(sigma=SIGMA, max_positives=m).worst_case_rdp(VOTERS, k, [2.0])[0]
            )
            for m in (tau, None)
        ]
        shares.append(costs[0] / costs[1])
    return min(shares), max(shares)


# -- bounded noise ---------------------------------------------------------------------------------


def bounded_noise(bench: Bench) -> Measured:
    """Compare bounded noise (Dagan and Kur 2020) on 20 counts with Gaussian noise, equal (ε, δ)."""
    rows = []
    for epsilon in (1.0, 4.0, 8.0):
        low, high = 1.0, 400.0  # of the bound R
        while high / low > 1.005:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if _bounded_delta(middle, epsilon) <= 1e-5 else (middle, high)
        x, density = _bounded(high)
        gauss = _gaussian_std(epsilon)
        bounded = math.sqrt(float((x**2 * density).sum()))
        rows.append({"ε": epsilon, "bound": high, "std, bounded": bounded, "std, Gaussian": gauss})
    ratios = [row["std, bounded"] / row["std, Gaussian"] for row in rows]
    return Measured(rows=rows, facts={"low": min(ratios), "high": max(ratios)})


def _bounded(bound: float, points: int = 20_001) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-bound, bound, points)[1:-1]
    density = np.exp(-np.exp(np.minimum(1 / (1 - (x / bound) ** 2), 6.5)))
    return x, density / density.sum()


def _bounded_delta(bound: float, epsilon: float, labels: int = 20) -> float:
    """Return delta at epsilon of noise of this bound on all labels, each count moved by one."""
    x, mass = _bounded(bound)
    moved = np.interp(x - 1, x, mass, left=0.0, right=0.0)
    beyond = float(mass[moved == 0].sum())
    some = moved > 0
    step, size = 1e-3, 2**20
    loss = np.rint(np.log(mass[some] / moved[some]) / step).astype(int)
    inside = np.abs(loss) < size // (4 * labels)
    beyond += float(mass[some][~inside].sum())
    cells = np.bincount(loss[inside] % size, mass[some][inside], minlength=size)
    total = np.maximum(irfft(rfft(cells) ** labels, size), 0)
    losses = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
    above = losses > epsilon
    return labels * beyond + float((total[above] * -np.expm1(epsilon - losses[above])).sum())


def _gaussian_std(epsilon: float, labels: int = 20, delta: float = 1e-5) -> float:
    """Return the std of Gaussian noise on so many counts: the exact (ε, δ) of one Gaussian."""
    low, high = 0.1, 1000.0
    while high / low > 1.0005:
        std = math.sqrt(low * high)
        mu = math.sqrt(labels) / std
        tails = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
        spent = math.exp(tails[0]) - math.exp(epsilon + tails[1])
        low, high = (low, std) if spent <= delta else (std, high)
    return high
