"""What the paper could not have: the same data and budgets, with what came after it.

Nothing here judges a claim. Labels are judged by the truth on public rows, models on test rows; no
budget covers these figures, which are for research on public data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import privote as pv
from privote.learning.gradients import DPLinear
from privote.planning import sigma_for

from .counts import answered, over_seeds
from .electorates import electorate
from .kinds import ABSENT, MEASURED, MODELS, VOC, Bench, Claim, Measured, Verdict, together
from .kinds import NIH as CHEST_XRAYS
from .learning import MECHANISMS, NAMES, Task, quietly, task
from .sources import FEATURES, NIH, find

Facts = Mapping[str, Any]
DELTA = 1e-5
SHOWN = ("BAC", "AUC", "MAP")
BUDGETS = (2.0, 10.0)


def _figures(truth: Any, scores: Any, labels: Any) -> dict[str, float]:
    found = pv.metrics.multilabel(truth, np.asarray(scores, float), labels)
    return {figure: float(found[figure]) for figure in SHOWN}


def _released(release: Any, truth: Any) -> dict[str, float]:
    scores = release.labels if release.probabilities is None else release.probabilities
    good = _figures(truth[: release.answered], scores, release.labels)
    return {"queries": float(release.answered), **good}


def _table(bench: Bench, rows_of: Callable[[int], list[tuple[dict[str, Any], Any]]]) -> list[Any]:
    """Return (what, means, shown) for rows that every seed has, in their order."""
    found: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for seed in range(bench.seeds):
        for what, row in rows_of(seed):
            found.setdefault(tuple(what.items()), []).append(row)
    return [(dict(what), *over_seeds(draws)) for what, draws in found.items()]


# -- unconditional ---------------------------------------------------------------------------------


TOLD = {10.0: 113, 20.0: 403}  # queries that the paper answers at σ = 7 (Table 3): public numbers


def unconditional(bench: Bench) -> Measured:
    """Label as many of VOC's pictures as the paper does, and all of them, with a promise."""

    def rows_of(seed: int) -> list[tuple[dict[str, Any], Any]]:
        some, out = electorate("voc", seed, bench.data), []
        votes, truth = some.votes, some.truth
        for epsilon, told in TOLD.items():
            labels = MECHANISMS["Binary PATE"].release(votes[:told], seed=seed)
            good = {"queries": float(told), **_figures(truth[:told], labels, labels)}
            out.append(({"ε": epsilon, "labels": "Binary, σ = 7", "promise": "these votes"}, good))
            sigma = sigma_for(
                lambda s: pv.BinaryVoting(sigma=s), *votes.shape[1:], epsilon, DELTA, told
            )
            settings = {"mechanism": pv.BinaryVoting(sigma=sigma), "guarantee": "worst-case"}
            for way, done in (
                ("Binary, worst case", _label(votes[:told], epsilon, seed, **settings)),
                (OURS, _label(votes[:told], epsilon, seed)),
                (f"{OURS}, all pictures", _label(votes, epsilon, seed)),
            ):
                what = {"ε": epsilon, "labels": way, "promise": "any votes"}
                out.append((what, _released(done, truth)))
        return out

    found = _table(bench, rows_of)
    rows = [{**what, **shown} for what, _, shown in found]
    facts = {f"{what['ε']:g}, {what['labels']}": means for what, means, _ in found}
    return Measured(rows=rows, facts=facts)


OURS = "privote's default"


def _label(votes: Any, epsilon: float, seed: int, **settings: Any) -> Any:
    return quietly(lambda: pv.label(votes, epsilon=epsilon, delta=DELTA, seed=seed, **settings))


def unconditional_result(facts: Facts) -> Verdict:
    said = []
    for epsilon in ("10", "20"):
        paper, ours, every = (
            facts[f"{epsilon}, {way}"] for way in ("Binary, σ = 7", OURS, f"{OURS}, all pictures")
        )
        said.append(
            f"at ε = {epsilon}, {paper['queries']:.0f} pictures have AUC {ours['AUC']:.3f} and MAP "
            f"{ours['MAP']:.3f} instead of {paper['AUC']:.3f} and {paper['MAP']:.3f}; all "
            f"{every['queries']:,.0f} have {every['AUC']:.3f} and {every['MAP']:.3f}"
        )
    return MEASURED, (
        f"With a promise that holds for any votes: {'; '.join(said)}. What a student makes of all "
        "of them is under Table 1."
    )


# -- exact -----------------------------------------------------------------------------------------


def exact(bench: Bench) -> Measured:
    """Count queries by Theorem 6 and by the exact cost, same orders and conversions."""

    def rows_of(seed: int) -> list[tuple[dict[str, Any], Any]]:
        votes, out = electorate("voc", seed, bench.data).votes, []
        for name, mechanism in MECHANISMS.items():
            for epsilon in (10.0, 20.0):
                found = {
                    title: float(answered(mechanism, votes, epsilon, DELTA, paper=paper))
                    for title, paper in (("Theorem 6", True), ("exact", False))
                }
                what = {"mechanism": name.removesuffix(" PATE"), "σ": mechanism.sigma, "ε": epsilon}
                out.append((what, found))
        return out

    found = _table(bench, rows_of)
    ratios = [means["exact"] / max(means["Theorem 6"], 1) for _, means, _ in found]
    rows = [{**what, **shown} for what, _, shown in found]
    return Measured(rows=rows, facts={"low": min(ratios), "high": max(ratios)})


def exact_result(facts: Facts) -> Verdict:
    return MEASURED, (
        f"The exact cost, which also bounds the direction that Theorem 6 leaves out, answers "
        f"{facts['low']:.1f} to {facts['high']:.1f} times as many queries on VOC's votes."
    )


# -- learnt allowance, tallies ---------------------------------------------------------------------


def learnt(bench: Bench) -> Measured:
    """Label VOC by ε with a fixed and with a learnt allowance, and say what was expected of it."""

    def rows_of(seed: int) -> list[tuple[dict[str, Any], Any]]:
        some, out = electorate("voc", seed, bench.data), []
        votes, truth = some.votes, some.truth
        for epsilon in (2.0, 10.0, 20.0):
            done = _label(votes, epsilon, seed)
            row = _released(done, truth)
            most = votes.mean(axis=1) > 0.5
            row["F1 to the majority"] = _f1(most[: done.answered], np.asarray(done.labels) == 1)
            if done.quality is not None:
                row["F1 expected"] = float(done.quality["f1"])
            out.append(({"ε": epsilon}, row))
        return out

    found = _table(bench, rows_of)
    rows = [{**what, **shown} for what, _, shown in found]
    facts = {f"{what['ε']:g}": means for what, means, _ in found}
    return Measured(rows=rows, facts=facts)


def _f1(truth: Any, said: Any) -> float:
    both = float((truth & said).sum())
    return 2 * both / max(float(truth.sum() + said.sum()), 1.0)


def learnt_result(facts: Facts) -> Verdict:
    said = ", ".join(f"{one['AUC']:.3f} at ε = {e}" for e, one in facts.items())
    told = [abs(f["F1 expected"] - f["F1 to the majority"]) for f in facts.values() if len(f) > 5]
    return MEASURED, (
        f"The allowance is learnt and paid for. AUC of the labels of all pictures: {said}. Where "
        f"the release says what F1 to expect, it is off by at most {max(told):.3f}."
    )


# -- models ----------------------------------------------------------------------------------------


def _models(bench: Bench, ways: Mapping[str, Callable[..., Any]]) -> Measured:
    names = [n for n, f in (("voc", FEATURES), ("nih", NIH)) if find(bench.data, f) is not None]

    def rows_of(seed: int) -> list[tuple[dict[str, Any], Any]]:
        out = []
        for name in names:
            here = task(name, seed, bench.data)
            for epsilon in BUDGETS:
                for way, fit in ways.items():
                    model = quietly(lambda fit=fit, e=epsilon, t=here: fit(t, e, seed))
                    row = here.judged(model)
                    what = {"data": NAMES[name], "ε": epsilon, "model": way}
                    out.append((what, {figure: row[figure] for figure in SHOWN}))
        return out

    found = _table(bench, rows_of)
    rows = [{**what, **shown} for what, _, shown in found]
    facts: dict[str, dict[str, list[float]]] = {}
    for what, means, _ in found:
        facts.setdefault(what["data"], {}).setdefault(what["model"], []).append(means["AUC"])
    return Measured(rows=rows, facts=facts)


def _way(method: str) -> Callable[[Task, float, int], Any]:
    def fit(here: Task, epsilon: float, seed: int) -> Any:
        model = pv.PrivateClassifier(method, epsilon=epsilon, delta=DELTA, random_state=seed)
        return model.fit(here.X_private, here.Y_private, here.X_public, seed=seed)

    return fit


def _raw(here: Task, epsilon: float, seed: int) -> Any:
    return DPLinear(epsilon, DELTA, embedding=None, seed=seed).fit(here.X_private, here.Y_private)


def neighbours(bench: Bench) -> Measured:
    """Let records vote about what is near them, next to teachers."""
    return _models(bench, {"teachers": _way("teachers"), "neighbours": _way("neighbours")})


def embedding(bench: Bench) -> Measured:
    """Train linear models with noise, on features as they are and in a public embedding."""
    ways = {"gradients, features as they are": _raw, "gradients": _way("gradients")}
    return _models(bench, {**ways, "moments": _way("moments")})


def models_result(facts: Facts) -> Verdict:
    if not facts:
        return ABSENT, "Needs VOC's features or the NIH's X-rays in the data folder."
    said = "; ".join(
        f"{data}: "
        + ", ".join(f"{way} {', '.join(f'{a:.3f}' for a in auc)}" for way, auc in one.items())
        for data, one in facts.items()
    )
    budgets = ", ".join(f"{e:g}" for e in BUDGETS)
    return MEASURED, f"Test AUC at ε = {budgets}, unconditional. {said}."


CLAIMS = (
    Claim(
        key="ours:unconditional",
        kind="ours",
        title="Unconditional instead of data-dependent",
        says="The same ε for any votes, next to the paper's accounting on these votes.",
        **VOC,
        measure=unconditional,
        verdict=unconditional_result,
    ),
    Claim(
        key="ours:exact",
        kind="ours",
        title="Exact instead of Theorem 6",
        says="The exact two-sided cost of every query, still data-dependent.",
        **VOC,
        measure=exact,
        verdict=exact_result,
    ),
    Claim(
        key="ours:learnt",
        kind="ours",
        title="The learnt allowance and tallies",
        says="pv.label(votes, epsilon=…, delta=1e-5), with nothing else said.",
        **VOC,
        measure=learnt,
        verdict=learnt_result,
    ),
    Claim(
        key="ours:neighbours",
        kind="ours",
        title="Neighbours instead of teachers",
        says="Private records vote on public rows near them; nothing is trained on private data.",
        **together(MODELS, CHEST_XRAYS),
        measure=neighbours,
        verdict=models_result,
    ),
    Claim(
        key="ours:embedding",
        kind="ours",
        title="A public embedding",
        says="Linear models by noisy gradients or moments, where public rows say what matters.",
        **together(MODELS, CHEST_XRAYS),
        measure=embedding,
        verdict=models_result,
    ),
)
