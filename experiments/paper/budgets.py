"""Noise, clipping, budgets and gates on votes: what each costs in quality and buys in queries."""

from __future__ import annotations

from typing import Any

import numpy as np

import privote as pv
from privote.accounting import sanitize

from .bench import Bench, Measured, over_seeds, spread
from .counts import answered, chances, expected, fitting, independent, judged, utility, worst_case
from .electorates import Electorate, electorate

EPSILON, DELTA = 20.0, 1e-5
BOUNDS = {"paper": "pate2018", "exact": "exact"}
BY_EPSILON = (0, 6, 13, 22, 31, 40, 64, 81, 101, 113, 135, 165, 199, 217, 239, 272, 306, 332)
BY_EPSILON += (362, 403)
BY_DELTA = {1e-5: 170, 1e-6: 158, 1e-7: 151, 1e-8: 139}


def _voc(bench: Bench) -> list[Electorate]:
    return [electorate("voc", seed, bench.data) for seed in range(bench.seeds)]


def _costs(sigma: float, some: list[Electorate]) -> dict[str, list[Any]]:
    mechanism = pv.BinaryVoting(sigma=sigma)
    return {
        name: [mechanism.rdp(one.votes, pv.DEFAULT_ORDERS, bound=bound) for one in some]
        for name, bound in BOUNDS.items()
    }


def _fit(costs: Any, account: str, epsilon: float, delta: float) -> int:
    return fitting(costs, epsilon, delta, pv.DEFAULT_ORDERS, old=account == "paper")


def by_epsilon(bench: Bench) -> Measured:
    """Count queries of Binary at sigma 7 for epsilon 1 to 20, and judge their labels."""
    some, mechanism, rows = _voc(bench), pv.BinaryVoting(sigma=7.0), []
    costs = _costs(7.0, some)
    real = mechanism.rdp(electorate("tmc2007").votes[:600], pv.DEFAULT_ORDERS)
    labels = [mechanism.release(one.votes, seed=seed) for seed, one in enumerate(some)]
    counts: dict[str, list[float]] = {"paper": [], "exact": [], "tmc2007": [], "published": []}
    for epsilon, told in enumerate(BY_EPSILON, 1):
        draws = []
        for seed, one in enumerate(some):
            draws.append({a: float(_fit(costs[a][seed], a, epsilon, DELTA)) for a in BOUNDS})
            n = int(draws[-1]["paper"])
            if n > 1:
                answers = labels[seed][:n]
                good = pv.metrics.multilabel(one.truth[:n], answers.astype(float), answers)
                draws[-1] |= {figure: float(good[figure]) for figure in ("ACC", "BAC", "MAP")}
        means, shown = over_seeds(draws)
        there = _fit(real, "exact", epsilon, DELTA)
        rows.append({"ε": epsilon, "published": told, **shown, "tmc2007, exact": there})
        for name, value in {**means, "tmc2007": there, "published": told}.items():
            counts.get(name, []).append(float(value))
    facts: dict[str, Any] = {}
    for name, line in counts.items():
        at = [e for e in range(5, 21) if line[e - 1] > 0]
        power = np.polyfit(np.log(at), np.log([line[e - 1] for e in at]), 1)[0]
        facts |= {f"power_{name}": float(power), f"at20_{name}": line[19], f"at10_{name}": line[9]}
    at20 = [_fit(one, "paper", 20.0, DELTA) for one in costs["paper"]]
    return Measured(rows=rows, facts={**facts, "order_low": min(at20), "order_high": max(at20)})


def by_delta(bench: Bench) -> Measured:
    """Count queries at epsilon 16, sigma 9, by delta."""
    costs, rows = _costs(9.0, _voc(bench)), []
    ends: dict[str, list[float]] = {"paper": [], "exact": []}
    for delta, told in BY_DELTA.items():
        counts = {a: [_fit(one, a, 16.0, delta) for one in costs[a]] for a in BOUNDS}
        rows.append({"δ": f"{delta:.0e}", "published": told})
        rows[-1] |= {account: spread(values) for account, values in counts.items()}
        for account, values in counts.items():
            ends[account].append(float(np.mean(values)))
    return Measured(rows=rows, facts={a: values[-1] / values[0] for a, values in ends.items()})


# -- Figures 4 and 14: methods by noise ------------------------------------------------------------

#: The paper's choices: sigma, tau in l2 and l1, voters, labels, delta.
CHOSEN = {"voc": (9.0, 1.8, 3.4, 50, 20, 1e-5), "mimic": (10.0, 3.0, 6.0, 50, 11, 1e-6)}
CHOSEN |= {"chexpert": (7.0, 2.8, 4.5, 50, 11, 1e-6), "padchest": (7.0, 2.7, 4.5, 10, 15, 1e-6)}


def _bounds(name: str, sigma: float) -> dict[str, float]:
    """Return queries of the data-independent bounds, which look at no vote."""
    _, tau2, tau1, voters, labels, delta = CHOSEN[name]
    room = (voters, labels, EPSILON, delta)
    l2, l1 = pv.TauVoting(sigma=sigma, tau=tau2), pv.TauVoting(sigma=sigma, tau=tau1, norm=1)
    return {
        "l2_paper": independent(lambda o: o * tau2**2 / sigma**2, EPSILON, delta, 10**6),
        "l2_exact": worst_case(l2, *room),
        "l1_paper": independent(lambda o: o * 2 * tau1**2 / sigma**2, EPSILON, delta, 10**6),
        "l1_exact": worst_case(l1, *room),
    }


def methods(bench: Bench) -> Measured:
    """Count queries of every method by sigma on VOC; elsewhere what looks at no vote."""
    rows, facts = [], {}
    some = _voc(bench)[: 1 if bench.seeds == 1 else 2]
    for sigma in (3.0, 5.0, 7.0, 9.0, 12.0, 16.0, 22.0, 30.0):
        binary, tau = pv.BinaryVoting(sigma=sigma), pv.TauVoting(sigma=sigma, tau=1.8)
        draws = [
            {
                "binary_paper": answered(binary, one.votes, paper=True),
                "binary_exact": answered(binary, one.votes),
                "tau_paper": answered(
                    tau, one.votes, paper=True, cap=lambda o, s=sigma: o * 1.8**2 / s**2
                ),
                "tau_exact": answered(tau, one.votes),
                "binary_bac": utility(binary, one.head(400))["BAC"],
                "tau_bac": utility(tau, one.head(400))["BAC"],
            }
            for one in some
        ]
        means, shown = over_seeds(draws)
        bounds = _bounds("voc", sigma)
        rows.append({"votes": "voc", "σ": sigma, **shown, **bounds})
        if sigma in (7.0, 9.0, 30.0):
            facts |= {f"{name}_{sigma:.0f}": v for name, v in {**means, **bounds}.items()}
    for name, (sigma, *_) in list(CHOSEN.items())[1:]:
        bounds = _bounds(name, sigma)
        rows.append({"votes": name, "σ": sigma, **bounds})
        facts |= {f"{name}_{key}": value for key, value in bounds.items()}
    return Measured(rows=rows, facts=facts)


# -- Figures 11, 12 and 13: quality by clipping and noise ------------------------------------------

GRIDS = {
    2: (0.5, 0.8, 1.0, 1.2, 1.4, 1.8, 2.2, 2.8, 3.4),
    1: (0.5, 1.0, 1.4, 2.0, 2.6, 3.4, 4.5, 6.0, 8.0),
}


def tuning(bench: Bench) -> Measured:
    """Return quality by tau in both norms, almost without noise, and by noise."""
    rows, facts = [], {}
    for name in ("voc", "tmc2007"):
        some = [electorate(name, seed, bench.data).head(600) for seed in range(bench.seeds)]
        whole = np.mean([utility(pv.BinaryVoting(sigma=0.2), one)["BAC"] for one in some])
        sizes = some[0].votes.sum(axis=2)[some[0].votes.any(axis=2)].astype(float)
        for norm, grid in GRIDS.items():
            kept = []
            for tau in grid:
                means, shown = judged(pv.TauVoting(sigma=0.2, tau=tau, norm=norm), some)
                rows.append({"votes": name, "what": f"tau, l{norm}", "value": tau, **shown})
                kept += [tau] if means["BAC"] >= whole - 0.005 else []
            facts |= {f"{name}_tau{norm}": min(kept, default=np.inf)}
            facts |= {f"{name}_norm{norm}": float((sizes ** (1 / norm)).mean())}
        for sigma in (1.0, 4.0, 7.0, 9.0, 12.0, 20.0, 30.0, 50.0):
            means, shown = judged(pv.BinaryVoting(sigma=sigma), some)
            rows.append({"votes": name, "what": "sigma", "value": sigma, **shown})
            facts[f"{name}_bac_{sigma:.0f}"] = means["BAC"]
    return Measured(rows=rows, facts=facts)


# -- Figure 18 and Appendix F.5: the gate ----------------------------------------------------------


def gate(bench: Bench) -> Measured:
    """Count labels with and without the paper's gate on VOC, and tune T and sigma_T."""
    rows, facts = [], {}
    for account in BOUNDS:
        for title, one in (("none", None), ("T = 50, σ_T = 30", pv.Gate(threshold=50, sigma=30))):
            mechanism, draws = pv.BinaryVoting(sigma=7.0, gate=one), []
            for some in _voc(bench):
                count = answered(mechanism, some.votes, paper=account == "paper")
                table = chances(mechanism, some.votes[:count])
                draws.append({"queries": float(count)})
                draws[-1]["labels answered"] = float(round(table[..., :2].sum()))
                draws[-1]["BAC"] = expected(table, some.truth[:count])["BAC"]
            means, shown = over_seeds(draws)
            rows.append({"gate": title, "accounting": account, **shown})
            facts[f"{'gate' if one else 'none'}_{account}"] = means["labels answered"]
    grid = {"gate_threshold": [30.0, 40.0, 50.0], "gate_sigma": [10.0, 30.0]}
    some = electorate("voc", 0, bench.data).head(400)
    mechanism = pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=50, sigma=30))
    _, trials = pv.planning.tune(
        some.votes, mechanism, some.truth, epsilon=EPSILON, delta=DELTA, settings=grid
    )
    for trial in trials:
        setting = trial.mechanism.gate
        rows.append({"gate": f"T = {setting.threshold:g}, σ_T = {setting.sigma:g}"})
        rows[-1] |= {"accounting": "tune, 400 queries", "queries": trial.queries}
        rows[-1] |= {"labels answered": trial.queries * 20 * trial.answered}
    best = max(trials, key=lambda trial: trial.queries * trial.answered).mechanism.gate
    return Measured(rows=rows, facts={**facts, "T": best.threshold, "S": best.sigma})


# -- Table 18: the sanitized epsilon ---------------------------------------------------------------


def sanitized(bench: Bench) -> Measured:
    """Publish a data-dependent epsilon; and price its parts: the shift, the sum, Theorem 23."""
    rows, facts = [], {}
    mechanism = pv.BinaryVoting(sigma=9.0)
    for name in ("voc", "tmc2007"):
        for target in (10.0, 20.0):
            noisy, hidden = [], []
            for seed in range(bench.seeds):
                votes = electorate(name, seed, bench.data).votes
                queries = answered(mechanism, votes, target, DELTA)
                release = pv.label(
                    votes, mechanism=mechanism, epsilon=target, delta=DELTA,
                    guarantee="data-dependent", queries=queries, seed=seed,
                )  # fmt: skip
                noisy.append(float(release.epsilon))
                hidden.append(float(release.sealed.epsilon_rdp))
            rows.append({"votes": name, "data-dependent ε": target, "queries": queries})
            rows[-1] |= {"exact ε": spread(hidden), "sanitized ε": spread(noisy)}
            facts[f"{name}_{target:.0f}"] = float(np.mean(noisy)) / target
    # What publishing costs at an order where such budgets settle, by the noise and beta of each.
    order = 3.0
    for title, share in (("privote's beta", sanitize.BETA_SHARE), ("public code's beta", None)):
        beta = sanitize.default_beta(order) if share else 0.49 / order
        row = {"votes": f"price of publishing at order 3, {title}"}
        noise = sanitize.SIGMA_S
        row["Theorem 23"] = sanitize.published_cost_2018(order, beta, noise)
        finite = beta < sanitize.largest_beta(order)
        row["exact, number"] = sanitize.release_cost(order, beta, noise) if finite else np.inf
        bound = sanitize.release_cost(order, beta, noise, sanitize.GAMMA) if finite else np.inf
        row["exact, upper bound"] = bound
        rows.append(row)
    number, upper = rows[-2]["exact, number"], rows[-2]["exact, upper bound"]
    facts |= {"theorem": rows[-2]["Theorem 23"], "number": number, "upper": upper}
    facts |= {"public": rows[-1]["exact, number"], "public_theorem": rows[-1]["Theorem 23"]}
    return Measured(rows=rows, facts=facts)
