"""How each claim is drawn: as the paper draws it, with its own numbers where it gives any.

A measurement leaves lines; what only a reader needs stands here: which of them a claim is about,
short titles, logarithmic axes, the paper's choices and its published points.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from privote.report import bars

from .kinds import Measured, Plot
from .learning import OPEN
from .mechanisms import CLIPPED, CLIPPED_PAPER
from .panels import Panel, side_by_side
from .telling import worded

Lines = Mapping[str, Mapping[float, float]]
Panels = Sequence[Panel]

# Queries answered at ε = 20 by the number of labels, from the paper's two tables.
VOC_BINARY = {1: 5464, 2: 5442, 3: 3437, 5: 2398, 8: 1543, 11: 1190, 14: 888, 15: 465, 16: 461}
VOC_BINARY |= {18: 446, 20: 427}
VOC_POWERSET = {1: 5464, 2: 5464, 3: 3416, 5: 2040, 8: 1192, 11: 702, 14: 417, 15: 165, 16: 94}
VOC_POWERSET |= {18: 94, 20: 78}
CHEST_BINARY = {1: 988, 2: 898, 3: 399, 4: 554, 5: 320, 6: 299, 7: 157, 8: 145, 9: 159, 10: 105}
CHEST_BINARY |= {11: 201}
CHEST_POWERSET = {1: 988, 2: 872, 3: 674, 4: 323, 5: 582, 6: 392, 7: 338, 8: 200, 9: 241, 10: 146}
CHEST_POWERSET |= {11: 152}
BY_LABELS = {
    "VOC": {"Binary, as published": VOC_BINARY, "Powerset, as published": VOC_POWERSET},
    "CheXpert": {"Binary, as published": CHEST_BINARY, "Powerset, as published": CHEST_POWERSET},
}
CHOSEN = "the paper's choice"
_BOTH_ROWS = ("queries", "quality")

_LOG = "log10 of "
_ROUNDED = -16.0  # what a measurement writes for costs that rounding hides: they are not drawn


def _line_name(name: str) -> str:
    account = re.sub(r", paper$", ", paper's accounting", name)
    return worded(account)


def _panel(plot: Plot) -> Panel:
    """Return what was measured as a panel; logarithms become numbers on a logarithmic axis."""
    log = plot.y.startswith(_LOG)
    series = {
        _line_name(name): {
            x: 10**y if log else y for x, y in line.items() if not log or y > _ROUNDED
        }
        for name, line in plot.series.items()
    }
    return Panel(
        title=worded(plot.title),
        parameter=worded(plot.x),
        quantity=worded(plot.y.removeprefix(_LOG).removeprefix("the ")),
        series=series,
        log=log,
    )


def _titled(panels: Panels, *titles: str) -> list[Panel]:
    return [replace(one, title=title) for one, title in zip(panels, titles, strict=True)]


# -- claims that are drawn in a way of their own --------------------------------------------------


def _bound(panels: Panels, measured: Measured) -> Panels:
    return _titled(panels, "One label, 50 voters, σ = 7, order 5")


def _random_and_zero(panels: Panels, measured: Measured) -> Panels:
    named = _titled(panels, "Random labels, ε = 20", "All say no to all, ε = 2")
    return [replace(named[0], log=True), named[1]]


def _noise_borne(panels: Panels, measured: Measured) -> Panels:
    name = "as published (BAC)"
    equal = [{"Binary": (11.0, 0.66), "Powerset": (4.0, 0.66)}]
    equal += [{"Binary": (20.0, 0.68), "Powerset": (5.0, 0.68)}, {}]
    return [
        replace(one, points={f"{kind}, {name}": dict([at]) for kind, at in there.items()})
        for one, there in zip(_titled(panels, "VOC", "CheXpert", "tmc2007"), equal, strict=True)
    ]


def _by_labels(*names: str) -> Callable[[Panels, Measured], Panels]:
    def drawn(panels: Panels, measured: Measured) -> Panels:
        # The paper's numbers belong to its accounting and sigma: the first of a data set's two.
        points = [table for name in names for table in (BY_LABELS[name], {})]
        return [replace(one, points=p, log=True) for one, p in zip(panels, points, strict=True)]

    return drawn


def _tradeoff(panels: Panels, measured: Measured) -> Panels:
    chosen = {"VOC": 9, "MIMIC": 10, "CheXpert": 7, "PadChest": 7}
    titles = [(name, what) for name in chosen for what in _BOTH_ROWS]
    told = {"VOC": {"Binary": {9: 427}, "L2-DI": {9: 123}}}
    told["MIMIC"] = {"Binary": {10: 94}, "L2-DI": {10: 48}}
    lines = {"BAC": "Binary", "BAC, Tau": "Tau"}
    return [
        replace(
            one,
            title=f"{name}, {what}",
            series={lines.get(line, line): values for line, values in one.series.items()},
            choices={CHOSEN: chosen[name]},
            log=what == "queries",
            points={
                f"{line}, as published": at
                for line, at in told.get(name, {}).items()
                if what == "queries"
            },
        )
        for one, (name, what) in zip(panels, titles, strict=True)
    ]


def _contest(panels: Panels, measured: Measured) -> Panels:
    series = dict(panels[0].series)
    top = series.pop(OPEN)
    return [replace(panels[0], series=series, references={OPEN: next(iter(top.values()))})]


def _by_epsilon(panels: Panels, measured: Measured) -> Panels:
    series = dict(panels[0].series)
    told = {"as published": series.pop("the paper")}
    named = {n if n == "tmc2007" else f"VOC, {n}": line for n, line in series.items()}
    named["tmc2007, exact"] = named.pop("tmc2007")
    title = "Binary, σ = 7, 50 voters, 20 labels"
    return [replace(panels[0], title=title, series=named, points=told)]


def _by_label(after: str | None) -> Callable[[Panels, Measured], Panels]:
    def drawn(panels: Panels, measured: Measured) -> Panels:
        every = panels[0].series
        kept = {n: line for n, line in every.items() if after is None or n in ("before", after)}
        means = {f"mean {name}": sum(v.values()) / len(v) for name, v in kept.items()}
        title = "Balanced accuracy by label"
        return [replace(panels[0], title=title, series=kept, references=means, joined=False)]

    return drawn


def _copies(panels: Panels, measured: Measured) -> Panels:
    return [replace(one, log=True) for one in panels]


def _clipped(panels: Panels, measured: Measured) -> Panels:
    told = {
        f"k={k}, as published": dict(zip(CLIPPED[k][1], CLIPPED_PAPER[k], strict=True))
        for k in (5, 10, 20)
    }
    title = "At most τ positives a ballot, VOC, ε = 20"
    return [replace(panels[0], title=title, points=told, log=True)]


def _gaps(panels: Panels, measured: Measured) -> Panels:
    means = ({"Powerset's mean in the paper": 18.0}, {"Powerset's mean in the paper": 13.0}, {})
    titled = _titled(panels, "VOC", "CheXpert", "tmc2007")
    return [replace(one, choices=mean) for one, mean in zip(titled, means, strict=True)]


def _gaps_by_labels(panels: Panels, measured: Measured) -> Panels:
    return _titled(panels, "Mean gap between votes", "Quality without noise")


def _tuned(*chosen: float | None) -> Callable[[Panels, Measured], Panels]:
    def drawn(panels: Panels, measured: Measured) -> Panels:
        titled = _titled(panels, "VOC", "CheXpert", "tmc2007")
        return [
            replace(one, choices={} if value is None else {CHOSEN: value})
            for one, value in zip(titled, chosen, strict=True)
        ]

    return drawn


def _compare(panels: Panels, measured: Measured) -> Panels:
    ours = {
        f"L1-DI, {name}": {row["sigma"]: float(row[f"L1-DI, {key}"]) for row in measured.rows}
        for key, name in (("paper", "paper's accounting"), ("exact", "exact"))
    }
    series = {**panels[0].series, **ours}
    title = "VOC, ε = 20"
    return [replace(panels[0], title=title, series=series, choices={CHOSEN: 9.0}, log=True)]


def _ensemble(panels: Panels, measured: Measured) -> Panels:
    told = {"kept up to σ = 9 in the paper": 0.69}
    return [replace(panels[0], title="Binary, made votes", references=told)]


def _rates(panels: Panels, measured: Measured) -> Panels:
    return _titled(panels, "Labels by frequency, from the published matrices")


Drawn = Callable[[Panels, Measured], Panels]
#: Claims whose panels are changed, by key.
_OWN: dict[str, Drawn] = {
    "thm:pate-rdp-bound": _bound,
    "fig:binary_powerset_negative_votes": _random_and_zero,
    "fig:powerset-binary-pate-compare-metrics-sigma": _noise_borne,
    "fig:powerset-binary-pate": _by_labels("VOC", "CheXpert"),
    "tab:powerset-binary-pate-pascal": _by_labels("VOC"),
    "tab:powerset-binary-pate-cxpert": _by_labels("CheXpert"),
    "fig:tpate": _tradeoff,
    "tab:compare-dpsgd-pate": _contest,
    "tab:binary-pate-vary-epsilon": _by_epsilon,
    "fig:retrain": _by_label("after, ε=20"),
    "fig:PascalVOC-eps10": _by_label("after, ε=10"),
    "fig:retrain-cxpert-tau": _by_label("after, ε=20"),
    "tab:powerset-tau-pate-pascal": _clipped,
    "text:correlation": _copies,
    "fig:cdf-gaps": _gaps,
    "fig:powerset-binary-gaps-metrics-num-labels-pascal": _gaps_by_labels,
    "fig:powerset-binary-gaps-metrics-num-labels-cxpert": _gaps_by_labels,
    "fig:app-tune-tau2": _tuned(1.8, 2.8, None),
    "fig:app-tune-tau1": _tuned(3.4, None, None),
    "fig:app-tune-sigma": _tuned(9.0, 7.0, None),
    "fig:app-compare-methods-directly": _compare,
    "fig:ap-chexpert-ensemble-self-pate": _ensemble,
    "fig:datasets_class_distribution": _rates,
}
#: Tables of the paper that say all: lines by label belong to the figures beside them.
_TABLES = ("tab:data-stats-final", "tab:diff-epsilon", "tab:diff-epsilon#2", "text:degrading")
_TABLES += ("text:one-setting", "text:binary-at-one")
#: Claims whose lines are named in pairs: mechanism and accounting, or mechanism and figure.
_PAIRED = (
    "fig:binary_powerset_negative_votes",
    "fig:powerset-binary-pate-compare-metrics-sigma",
    "text:correlation",
    "text:no-consensus",
    "fig:tpate",
    "tab:powerset-tau-pate-pascal",
    "fig:app-compare-methods-directly",
)


def _bars(key: str, measured: Measured) -> Callable[[], str] | None:
    """Return how to draw what has no parameter."""
    if key == "fig:cross-domain":
        title, axis = "Asking another domain", "balanced accuracy (BAC)"
        names = {"before": "a site before", "after": "a site after"}
        names |= {"own ensemble": "its own ensemble", "other domain's": "the other's ensemble"}
        values = {name: float(measured.facts[fact]) for fact, name in names.items()}
    elif key == "fig:treeMulti":
        title, axis = "Of those with a finding", "share that has what it implies"
        values = {
            f"{row['given']} → {row['also']}\n{worded(row['labels'])}": row["share"]
            for row in measured.rows
            if not row["labels"].startswith("mimic")
        }
    else:
        return None
    return lambda: bars(values, title=title, axis=axis)


def drawing(key: str, measured: Measured) -> Callable[[], Any] | None:
    """Return what draws a claim as SVG text, or None where there is nothing to draw."""
    if key in _TABLES or not measured.plots:
        return _bars(key, measured)
    panels: Panels = [_panel(plot) for plot in measured.plots]
    panels = _OWN[key](panels, measured) if key in _OWN else panels
    return lambda: side_by_side(panels, paired=key in _PAIRED)
