"""Every statement, table, figure and algorithm of the paper, in its order, and by subject."""

from __future__ import annotations

from . import appendix, main_text, ours, prose

CLAIMS = (*main_text.CLAIMS, *appendix.CLAIMS, *prose.CLAIMS, *ours.CLAIMS)
BY_KEY = {claim.key: claim for claim in CLAIMS}


def _places() -> dict[str, str]:
    """Return what the printed paper calls each claim: floats are counted, statements by section."""
    found = {
        "lemma:rdp-gaussian": "Lemma 2.1",
        "lemma:rdp-composition": "Lemma 2.2",
        "prop:binary-pate": "Proposition 3.1",
        "lemma:rdp-gaussian-multilabel": "Lemma 3.2",
        "prop:gap": "Proposition 5.1",
        "thm:pate-rdp-bound": "Theorem 5.2",
        "lemma:coordindep": "Lemma A.1",
        "prop:coorddepend": "Proposition A.2",
    }
    for kind in ("figure", "table", "algorithm"):
        keys = [claim.key for claim in CLAIMS if claim.kind == kind]
        found |= {key: f"{kind.capitalize()} {number}" for number, key in enumerate(keys, 1)}
    extra = {claim.key: f"Beyond {place}" for place, claim in enumerate(ours.CLAIMS, 1)}
    return found | prose.PLACES | extra


#: What a reader of the paper looks for, such as "Figure 3", by key.
PLACES = _places()

#: Claims by what one may call them: key, or place in the paper, in small letters.
BY_NAME = {name.lower(): BY_KEY[key] for key, place in PLACES.items() for name in (key, place)}

#: The parts of the page: subject -> keys, as one would read them.
PARTS: dict[str, tuple[str, ...]] = {
    "Theorems and algorithms": (
        "lemma:rdp-gaussian",
        "lemma:rdp-composition",
        "lemma:rdp-gaussian-multilabel",
        "prop:binary-pate",
        "lemma:coordindep",
        "prop:coorddepend",
        "prop:gap",
        "thm:pate-rdp-bound",
        "alg:extended-pate",
        "alg:tau-clipping-privateknn",
        "text:negative-votes",
        "text:no-consensus",
        "text:ade20k",
    ),
    "Binary against Powerset": (
        "fig:binary_powerset_negative_votes",
        "fig:powerset-binary-pate-compare-metrics-sigma",
        "fig:powerset-binary-pate",
        "tab:powerset-binary-pate-pascal",
        "tab:powerset-binary-pate-cxpert",
        "fig:cdf-gaps",
        "fig:powerset-binary-gaps-metrics-num-labels-pascal",
        "fig:powerset-binary-gaps-metrics-num-labels-cxpert",
        "tab:powerset-tau-pate-pascal",
        "text:powerset-tau",
        "text:binary-at-one",
        "text:correlation",
    ),
    "Noise, clipping and budgets": (
        "fig:tpate",
        "fig:app-compare-methods-directly",
        "fig:app-tune-tau2",
        "fig:app-tune-tau1",
        "fig:app-tune-sigma",
        "fig:ap-chexpert-ensemble-self-pate",
        "tab:binary-pate-vary-epsilon",
        "tab:pascal-voc-delta-values",
        "tab:data-stats-final#2",
        "text:one-setting",
        "text:threshold",
    ),
    "Learning: PATE and DPSGD": (
        "tab:compare-dpsgd-pate",
        "tab:dpsgd-pate-chexpert",
        "text:run-time",
    ),
    "Coalitions: CaPC": (
        "tab:data-stats-final",
        "tab:diff-epsilon",
        "tab:diff-epsilon#2",
        "fig:retrain",
        "fig:PascalVOC-eps10",
        "fig:retrain-cxpert-tau",
        "fig:cross-domain",
        "text:degrading",
    ),
    "Data and dependencies": (
        "fig:datasets_class_distribution",
        "tab:pascal-voc-positive-labels-per-data-point",
        "tab:pascal_dependency_matrix",
        "tab:mimic_dependency_matrix",
        "tab:cxpert_dependency_matrix",
        "tab:padchest_dependency_matrix",
        "matrix:dependency-chexpert",
        "fig:treeMulti",
        "tab:extreme-multilabel",
    ),
    "What the paper could not have": tuple(claim.key for claim in ours.CLAIMS),
}
