"""Binary against Powerset voting: on random votes, by noise, by labels, and with few positives."""

from __future__ import annotations

from typing import Any

import numpy as np

import privote as pv

from .bench import Bench, Measured, over_seeds, spread
from .counts import answered, drawn, judged, limits, orders_for, utility
from .electorates import VOTERS, Electorate, binary_gaps, electorate, powerset_gaps
from .sources import RADIOLOGISTS, find
from .theory import powerset_sensitivity

DELTA = 1e-5
ACCOUNTS = (("paper", True), ("exact", False))
MAKERS: dict[str, Any] = {"Binary": pv.BinaryVoting, "Powerset": pv.PowersetVoting}
#: How much ACC and BAC may be lost to noise where mechanisms are compared at equal quality.
DROP = 0.01
#: The sigma that the paper chose for each number of labels of VOC: Binary, Powerset.
VOC_LABELS = {1: (2, 2), 2: (5, 5), 3: (7, 7), 5: (8, 8), 8: (7, 7), 11: (11, 4), 14: (12, 3)}
VOC_LABELS |= {16: (7, 2), 20: (7, 2)}
#: Queries answered, as published: Binary, Powerset.
VOC_QUERIES = {1: (5464, 5464), 2: (5442, 5464), 3: (3437, 3416), 5: (2398, 2040), 8: (1543, 1192)}
VOC_QUERIES |= {11: (1190, 702), 14: (888, 417), 16: (461, 94), 20: (427, 78)}


def panels(bench: Bench) -> list[str]:
    """Return the names of electorates at hand: VOC's, CheXpert's radiologists, tmc2007's."""
    chest = ["radiologists"] if find(bench.data, RADIOLOGISTS) is not None else []
    return ["voc", *chest, "tmc2007"]


def repeated(mechanism: Any, votes: np.ndarray, epsilon: float, *, paper: bool) -> float:
    """Return how many queries like these fit, if there were as many as one likes."""
    orders = orders_for(epsilon)
    each = mechanism.rdp(votes, orders, bound="pate2018" if paper else "exact").mean(axis=0)
    most = limits(epsilon, DELTA, orders, old=paper)
    with np.errstate(divide="ignore"):
        return float(min(1e9, np.max(np.maximum(most, 0) / each)))


def _by_account(votes: np.ndarray, sigma: float, epsilon: float) -> dict[str, float]:
    """Return queries of Binary and Powerset in both accountings, by "Mechanism, account"."""
    return {
        f"{name}, {account}": repeated(make(sigma=sigma), votes, epsilon, paper=paper)
        for name, make in MAKERS.items()
        for account, paper in ACCOUNTS
    }


def _wins(rows: list[dict[str, Any]], account: str) -> int:
    return sum(row[f"Powerset, {account}"] > row[f"Binary, {account}"] for row in rows)


# -- Figure 1, and labels that are copies of one ---------------------------------------------------


def random_and_zero(bench: Bench) -> Measured:
    """Count queries if labels are random (ε = 20), and if all voters say no to all (ε = 2)."""
    random, zero = [], []
    for k in (2, 3, 5, 8, 12, 16, 20):
        votes = np.random.default_rng(0).random((30, VOTERS, k)) < 0.5
        random.append({"votes": "random, ε = 20", "labels": k, **_by_account(votes, 7.0, 20.0)})
        none = np.zeros((1, VOTERS, k), bool)
        zero.append({"votes": "all no, ε = 2", "labels": k, **_by_account(none, 7.0, 2.0)})
    facts = {f"{name}_{a}": _wins(rows, a) for name, rows in (("random", random), ("zero", zero))
             for a, _ in ACCOUNTS}  # fmt: skip
    return Measured(rows=random + zero, facts={**facts, "settings": len(random)})


def correlation(bench: Bench) -> Measured:
    """Count queries if all labels are copies of one, clear or contested, by how many there are."""
    rows = []
    for label, place in {"aeroplane": 0, "person": 14}.items():
        votes = electorate("voc", 0, bench.data).votes[:400, :, place : place + 1]
        for k in (2, 5, 8, 12, 16, 20):
            same = np.repeat(votes, k, axis=2)
            rows.append({"copies of": label, "labels": k, **_by_account(same, 7.0, 20.0)})
    last = rows[5]
    facts = {f"{n.lower()}_{a}": last[f"{n}, {a}"] for n in MAKERS for a, _ in ACCOUNTS}
    facts |= {f"wins_{a}": _wins(rows, a) for a, _ in ACCOUNTS}
    return Measured(rows=rows, facts={**facts, "settings": len(rows)})


# -- Figure 2: how much noise each bears -----------------------------------------------------------


def noise_borne(bench: Bench) -> Measured:
    """Return ACC, BAC and MAP of 11 labels by noise; sigma is scaled to the voters, as of fifty."""
    rows, facts = [], {}
    sigmas = (1.0, 2.0, 4.0, 7.0, 11.0, 16.0, 20.0)
    for name in panels(bench):
        some = [electorate(name, s, bench.data).first(11).head(200) for s in range(bench.seeds)]
        scale = some[0].voters / VOTERS
        for kind, make in MAKERS.items():
            table = []
            for sigma in sigmas:
                means, shown = judged(make(sigma=sigma * scale), some)
                table.append(means)
                rows.append({"votes": name, "σ of fifty": sigma, "mechanism": kind, **shown})
            best = {figure: max(row[figure] for row in table) for figure in ("ACC", "BAC")}
            borne = [s for s, row in zip(sigmas, table, strict=True)
                     if all(best[f] - row[f] <= 0.02 for f in best)]  # fmt: skip
            facts[f"{name}_{kind.lower()}"] = max(borne)
    return Measured(rows=rows, facts=facts)


# -- Figure 3, Tables 11 and 12: queries by the number of labels -----------------------------------


def _bearable(make: Any, some: Electorate) -> float:
    """Return the largest sigma of a grid that costs at most DROP of ACC and BAC, by halving."""
    grid = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0, 12.0, 16.0, 20.0]) * some.voters / VOTERS
    best = utility(make(sigma=grid[0] / 2), some)
    low, high = 0, len(grid)  # the first is borne, one beyond the last is not
    while high - low > 1:
        middle = (low + high) // 2
        here = utility(make(sigma=float(grid[middle])), some)
        borne = all(here[figure] >= best[figure] - DROP for figure in best)
        low, high = (middle, high) if borne else (low, middle)
    return float(grid[low])


def by_labels(bench: Bench) -> Measured:
    """Count queries by labels: VOC with the paper's sigma, all electorates at equal quality."""
    rows = []
    for name in panels(bench)[:-1]:
        for k in VOC_LABELS if name == "voc" else (2, 3, 5, 7, 9, 11):
            pair: dict[str, Any] = {"votes": name, "labels": k}
            for place, (kind, make) in enumerate(MAKERS.items()):
                some = [electorate(name, s, bench.data).first(k) for s in range(bench.seeds)]
                sigma = _bearable(make, some[0].head(300))
                pair[f"{kind}, σ at equal quality"] = sigma
                for account, paper in ACCOUNTS:
                    each = [repeated(make(sigma=sigma), one.votes[:500], 20.0, paper=paper)
                            for one in some]  # fmt: skip
                    pair[f"{kind}, {account}"] = float(np.mean(each))
                if name == "voc":
                    mechanism = make(sigma=float(VOC_LABELS[k][place]))
                    counts = [answered(mechanism, one.votes, paper=True) for one in some]
                    pair[f"{kind}, published"] = VOC_QUERIES[k][place]
                    pair[f"{kind}, the paper's σ"] = float(np.mean(counts))
            rows.append(pair)
    facts: dict[str, Any] = {}
    for name in panels(bench)[:-1]:
        own = [row for row in rows if row["votes"] == name]
        for account in ("the paper's σ", "paper", "exact") if name == "voc" else ("paper", "exact"):
            ratios = [row[f"Binary, {account}"] / max(row[f"Powerset, {account}"], 1e-9)
                      for row in own]  # fmt: skip
            key = f"{name}_{'same' if 'σ' in account else account}"
            facts |= {key: ratios, f"{key}_low": min(ratios), f"{key}_high": max(ratios)}
    return Measured(rows=rows, facts=facts)


# -- Table 15: Powerset with few positives ---------------------------------------------------------

CLIPPED = {3: (7, (1, 2, 3)), 5: (8, (1, 2, 3, 5)), 10: (5, (1, 2, 5, 10)), 20: (2, (1, 2, 4, 20))}
CLIPPED_PAPER = {3: (3437, 3421, 3416), 5: (2321, 2151, 2077, 2040)}
CLIPPED_PAPER |= {10: (947, 896, 877, 848), 20: (111, 99, 78, 78)}


def clipped(votes: np.ndarray, most: int) -> np.ndarray:
    """Return votes with at most so many yeses a ballot: the rarest labels are kept."""
    order = np.argsort(votes.mean(axis=(0, 1)))
    ranked = votes[:, :, order]
    kept = ranked & (np.cumsum(ranked, axis=2) <= most)
    return np.asarray(kept[:, :, np.argsort(order)])


def powerset_clipped(bench: Bench) -> Measured:
    """Count Powerset's queries by the most positives of a ballot, and Binary's without a bound."""
    rows, facts = [], {}
    for k, (sigma, taus) in CLIPPED.items():
        some = [electorate("voc", seed, bench.data).first(k) for seed in range(bench.seeds)]
        plain = pv.BinaryVoting(sigma=float(VOC_LABELS.get(k, (7, 0))[0]))
        binary = np.mean([answered(plain, one.votes, paper=True) for one in some])
        table = []
        for tau, told in zip(taus, CLIPPED_PAPER[k], strict=True):
            mechanism, draws = pv.PowersetVoting(sigma=sigma, max_positives=tau), []
            for seed, one in enumerate(some):
                part = Electorate(votes=clipped(one.votes, tau), truth=one.truth)
                counts = {a: answered(mechanism, part.votes, paper=p) for a, p in ACCOUNTS}
                draws.append(counts | drawn(mechanism, part.head(min(counts["paper"], 300)), seed))
            means, shown = over_seeds(draws)
            table.append(means)
            rows.append({"labels": k, "σ": sigma, "at most": tau, "published": told, **shown})
            rows[-1]["Binary"] = float(binary)
        for account, _ in ACCOUNTS:
            facts[f"gain_{k}_{account}"] = table[0][account] / max(table[-1][account], 1)
        facts |= {f"binary_{k}": float(binary), f"one_{k}": table[0]["paper"]}
    gains = [value for name, value in facts.items() if name.startswith("gain")]
    low, high = powerset_sensitivity()
    facts |= {"low": min(gains), "high": max(gains), "same_low": low, "same_high": high}
    return Measured(rows=rows, facts=facts)


# -- Figures 8, 9 and 10: gaps between votes -------------------------------------------------------


def gaps(bench: Bench) -> Measured:
    """Return gaps of sets and of labels, and their quality without noise, by labels."""
    rows, facts = [], {}
    for name in panels(bench):
        whole = electorate(name, 0, bench.data)
        scale, most = VOTERS / whole.voters, min(whole.votes.shape[2], 20)
        single = binary_gaps(whole.votes) * scale
        facts[f"{name}_above"] = float((single > 40).mean())
        for k in [k for k in (1, 2, 3, 5, 8, 11, 14, 17, 20) if k <= most]:
            some = [electorate(name, s, bench.data).first(k).head(500) for s in range(bench.seeds)]
            row: dict[str, Any] = {"votes": name, "labels": k}
            for kind, gaps_of in (("Binary", binary_gaps), ("Powerset", powerset_gaps)):
                wide = [float(gaps_of(one.votes).mean()) * scale for one in some]
                quiet = MAKERS[kind](sigma=0.3 / scale)
                good = [utility(quiet, one.head(250))["BAC"] for one in some]
                row |= {f"{kind}, mean gap of fifty": spread(wide), f"{kind}, BAC": spread(good)}
                if k in (1, most):
                    end = "first" if k == 1 else "last"
                    facts[f"{name}_{kind.lower()}_{end}"] = float(np.mean(wide))
                    facts[f"{name}_{kind.lower()}_bac"] = float(np.mean(good))
            rows.append(row)
    return Measured(rows=rows, facts=facts)
