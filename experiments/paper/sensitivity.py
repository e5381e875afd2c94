"""What one changed voter may move: coordinate independence, and the norms a ballot is clipped in.

Exact, by enumeration and computation: the paper's Proposition on Binary voting, the lemma and the
proposition behind it, and its comparison of clipping in l2 with clipping in l1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import privote as pv
from privote.accounting.renyi import divergence

from .kinds import FAILS, HOLDS, PART, Bench, Measured, Verdict
from .theory import SIGMA, VOTERS, majority

Facts = Mapping[str, Any]


def _sensitivities(symmetric: bool) -> tuple[int, int, Any]:
    """Try all pairs of Boolean functions of two voters' votes on one label each.

    Returns how many pairs there are, for how many one changed voter attains both worst cases, and
    the first pair for which none does.
    """
    columns = list(itertools.product((0, 1), repeat=2))  # what two voters say on one label
    functions = [dict(zip(columns, t, strict=True)) for t in itertools.product((0, 1), repeat=4)]
    if symmetric:
        functions = [f for f in functions if f[0, 1] == f[1, 0]]
    moves = [
        (a, b)
        for a in columns
        for b in columns
        if sum(x != y for x, y in zip(a, b, strict=True)) == 1
    ]
    good, counter = 0, None
    for f, g in itertools.product(functions, repeat=2):
        worst = [max(abs(h[a] - h[b]) for a, b in moves) for h in (f, g)]
        joint = 0
        for voter in (0, 1):
            mine = [(a, b) for a, b in moves if a[voter] != b[voter]]
            # One voter changes: it may move either label, or both, each in any way.
            joint = max(joint, sum(max(abs(h[a] - h[b]) for a, b in mine) for h in (f, g)))
        if joint == sum(worst):
            good += 1
        elif counter is None:
            counter = [list(f.values()), list(g.values())]
    return len(functions) ** 2, good, counter


def coordinates(bench: Bench) -> Measured:
    """Enumerate coordinate-independent functions: any, and those that treat voters alike."""
    rows, facts = [], {}
    for name, symmetric in (("any function", False), ("voters treated alike", True)):
        total, good, counter = _sensitivities(symmetric)
        rows.append({"functions": name, "pairs": total, "one change attains both": good})
        facts[name] = [total, good]
        if counter:
            facts["counterexample"] = counter
    for k, p in itertools.product((1, 2, 5, 20), (1, 2)):
        flipped = np.ones(k)  # a ballot of all yes for one of all no, each label at its tie
        rows.append(
            {
                "functions": f"majorities, k={k}, l{p}",
                "stated k^(1/p)": k ** (1 / p),
                "attained": float(np.linalg.norm(flipped, p)),
            }
        )
    # Tied labels, one voter turns from all no to all yes: the joint cost is k times one label's.
    here, there = majority(0, SIGMA * math.sqrt(2)), majority(2, SIGMA * math.sqrt(2))
    orders = np.array([2.0, 10.0])
    one = divergence(here, there, orders)
    k = 3
    cube = np.array(list(itertools.product((0, 1), repeat=k)))
    joint = [np.array([sum(p[b] for b in row) for row in cube]) for p in (here, there)]
    facts["additive"] = float(np.abs(divergence(*joint, orders) / (k * one) - 1).max())
    return Measured(rows=rows, facts=facts)


def _alike(facts: Facts) -> tuple[bool, bool]:
    anything, alike = facts["any function"], facts["voters treated alike"]
    return anything[0] == anything[1], alike[0] == alike[1]


def coordinates_verdict(facts: Facts) -> Verdict:
    anything, alike = _alike(facts)
    if anything and alike:
        return HOLDS, "Every pair of functions enumerated attains both worst cases at once."
    if alike:
        bad = facts["any function"][0] - facts["any function"][1]
        return PART, (
            "True if the function treats voters alike, as every tally does. Not in general: if "
            "one label listens to the first voter only and the other to the second only, no single "
            f"voter moves both ({bad} of {facts['any function'][0]} pairs enumerated)."
        )
    return FAILS, "Even functions that treat voters alike do not attain both worst cases."


def binary_verdict(facts: Facts) -> Verdict:
    word, reason = coordinates_verdict(facts)
    if facts["additive"] > 1e-9:
        return FAILS, "The joint cost of independent labels is not the sum of single ones."
    if word == FAILS:
        return word, reason
    return PART, (
        "True of functions that treat voters alike: sensitivities add up, and the exact cost of k "
        "labels is k times one label's. In general it rests on Lemma A.1, which has "
        "counterexamples. That Binary is not optimal in l2, as the paper remarks, says nothing "
        "about its cost: squares of l2 sensitivities add up as Rényi costs do."
    )


def dependent_verdict(facts: Facts) -> Verdict:
    anything, alike = _alike(facts)
    if anything:
        return HOLDS, "No coordinate-independent function enumerated has a smaller sensitivity."
    f, g = facts["counterexample"]
    return (PART if alike else FAILS), (
        "True of functions that treat voters alike. Else a coordinate-independent function may "
        f"have a smaller sensitivity than the sum: labels {f} and {g} of two voters' votes "
        "(00, 01, 10, 11) have sensitivity 1 each, and 1 together."
    )


def norms(bench: Bench) -> Measured:
    """Compare l2 with l1 clipping and Binary: the paper's bounds and the costliest ballots."""
    rows, units = [], 2.0 / SIGMA**2
    for name, mech, stated in (
        ("l2, τ = 1.8", pv.TauVoting(sigma=SIGMA, tau=1.8), 1.8**2),
        ("l1, τ = 3.4", pv.TauVoting(sigma=SIGMA, tau=3.4, norm=1), 2 * 3.4**2),
        ("Binary", pv.BinaryVoting(sigma=SIGMA), 20.0),
    ):
        bound = float(mech.worst_case_rdp(VOTERS, 20, [2.0], bound="gaussian")[0] / units)
        exact = float(mech.worst_case_rdp(VOTERS, 20, [2.0])[0] / units)
        rows.append(
            {"clipping": name, "paper's accounting": stated, "corrected": bound, "exact": exact}
        )
    facts = {
        "paper": rows[2]["paper's accounting"] / rows[0]["paper's accounting"],
        "binary": rows[2]["exact"] / rows[0]["exact"],
        "l1": rows[1]["exact"] / rows[0]["exact"],
    }
    return Measured(rows=rows, facts=facts)


def norms_verdict(facts: Facts) -> Verdict:
    if facts["l1"] > 6 and facts["binary"] > 6:
        return HOLDS, "Clipping in l2 is more than six times cheaper than both."
    return FAILS, (
        f"With the true cost of replacing a ballot, l2 is {facts['binary']:.2f} times cheaper than "
        f"Binary, not {facts['paper']:.1f}, and l1 costs {facts['l1']:.2f} of l2. The algorithm "
        "itself is Private-kNN's, and is privote's TauVoting(norm=1)."
    )
