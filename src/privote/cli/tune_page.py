"""What tuning found: rows and columns for the terminal, and a page with curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privote.accounting.renyi import rounded_up
from privote.errors import MissingExtraError
from privote.learning.tuning import FIGURES, Trial, Tuning
from privote.report import OWNER_ONLY, Column, Command, Facts, Figure, Section, TableBlock
from privote.report.blocks import Block
from privote.report.page import write_page
from privote.report.plots import by_parameter, utility_by_answered

HEADINGS = {
    "worst_case": "worst\ncase",
    "allowance": "allow-\nance",
    "exact_per_query": "exact per\nquery",
    "exact_by_voter": "exact by\nvoter",
}
NAMES = {
    "worst_case": "worst case",
    "allowance": "allowance",
    "exact_per_query": "exact, per query",
    "exact_by_voter": "exact, by voter",
}
_FIRST_OUT = "Allowance: until the first voter runs out."
_TRIED = {
    "sigma": [Column(key="sigma", digits=1)],
    "tau": [
        Column(key="norm"),
        Column(key="tau", digits=2),
        Column(key="kept"),
        Column(key="clipped"),
        Column(key="cost", digits=1),
    ],
    "gate": [
        Column(key="gate_threshold", heading="T", digits=1),
        Column(key="gate_sigma", heading="sigma_T", digits=1),
        Column(key="coverage"),
    ],
    "threshold": [
        Column(key="tried", heading="threshold"),
        Column(key="yes_per_ballot", heading="yes per\nballot", digits=2),
    ],
}
_WORDS = {
    "sigma": "More noise buys more answers and costs quality. The paper takes as much noise as the "
    "figures stand.",
    "tau": "Clipping ballots makes a query cheaper in the worst case and moves the tally. Kept is "
    "the share of the yes-votes' weight that is left, clipped the share of ballots that lose some, "
    "cost what one query costs at most, in single votes (a public number). The paper takes the "
    "smallest tau at which the figures are preserved.",
    "gate": "A label is answered only where about T voters agree, up to a noise of sigma_T; the "
    "coverage is the share of labels answered. The figures are about answered labels only, so read "
    "them together with the coverage. The first row has no gate.",
    "threshold": "A probability at or above the threshold is a yes. Per label takes each label's "
    "best threshold, judged by the same queries that chose it, so it looks too good. Prevalence "
    "says yes to a share of the pool. Without noise is the plain majority's figure.",
}


def rows_of(tuning: Tuning, metric: str) -> list[dict[str, Any]]:
    """Return one flat row for each trial: what was tried, queries that fit, figures over all."""
    rows = []
    for trial in tuning.trials:
        row = {**trial.values, **trial.details, **trial.fits, **trial.utility["all"]}
        if tuning.parameter == "threshold":
            row |= {
                "tried": _threshold_of(trial),
                "without_noise": trial.details["noise_free"][metric],
            }
        rows.append(row)
    return rows


def _unbroken(columns: Sequence[Column]) -> list[Column]:
    """Return the columns with headings in one line: a page breaks them by itself."""
    return [
        replace(column, heading=column.title.replace("-\n", "").replace("\n", " "))
        for column in columns
    ]


def columns_of(tuning: Tuning, metric: str) -> list[Column]:
    """Return what was tried, the queries that fit by guarantee, and the figures."""
    plain = [Column(key="without_noise", heading=f"{metric} with-\nout noise")]
    return [
        *_TRIED[tuning.parameter],
        *(plain if tuning.parameter == "threshold" else []),
        *(Column(key=name, heading=HEADINGS[name]) for name in tuning.guarantees),
        Column(key="ACC"),
        Column(key="BAC", heading="BAC,\nAUC"),
        Column(key="MAP"),
    ]


def released_rows(tuning: Tuning, metric: str) -> list[dict[str, Any]]:
    """Return one flat row for each trial: the figure of the labels that each guarantee answers."""
    return [
        {
            "tried": _threshold_of(trial),
            **trial.values,
            **{name: trial.utility[name][metric] for name in tuning.guarantees},
        }
        for trial in tuning.trials
    ]


def released_columns(tuning: Tuning) -> list[Column]:
    """Return what was tried, then the guarantees."""
    values = {"tried", *tuning.trials[0].values}
    tried = [column for column in _TRIED[tuning.parameter] if column.key in values]
    return [*tried, *(Column(key=name, heading=HEADINGS[name]) for name in tuning.guarantees)]


def _threshold_of(trial: Trial) -> str | None:
    bar = trial.values.get("threshold")
    return trial.values.get("rule") if bar is None else f"{bar:g}"


def name_of(trial: Trial) -> str:
    """Return what was tried, in a few words."""
    values = trial.values
    if "gate_threshold" in values:
        bar, noise = values["gate_threshold"], values["gate_sigma"]
        return "no gate" if bar is None else f"T {bar:g}, sigma_T {noise:g}"
    if "rule" in values:
        bar = values["threshold"]
        return str(values["rule"]) if bar is None else f"threshold {bar:g}"
    if "tau" in values:
        return f"tau {values['tau']:g} l{values['norm']}"
    return f"sigma {values['sigma']:g}"


def write_tuning_page(
    path: Path, tuning: Tuning, *, metric: str, guarantee: str, chosen: str, command: str
) -> None:
    """Write the page: what was tried, on what, and the curves."""
    budget = f"epsilon {rounded_up(tuning.epsilon)} at delta {rounded_up(tuning.delta)}"
    write_page(
        path,
        title=f"Tuning {'the ' * (tuning.parameter in ('gate', 'threshold'))}{tuning.parameter}",
        intro=f"{tuning.voters:,} voters on {tuning.queries:,} queries with {tuning.labels:,} "
        f"labels, under {budget}. {_WORDS[tuning.parameter]}",
        notices=["Not private. " + tuning.note],
        sealed=True,
        sections=[
            Section(
                heading="What was tried",
                blocks=[
                    _facts(tuning),
                    chosen,
                    TableBlock(
                        caption=f"Queries that fit {budget}, by guarantee, and figures over all "
                        f"{tuning.queries:,} queries, compared with the {tuning.reference}. "
                        f"{OWNER_ONLY.capitalize()}.",
                        rows=rows_of(tuning, metric),
                        columns=_unbroken(columns_of(tuning, metric)),
                    ),
                    TableBlock(
                        caption=f"{metric} of the labels released for as many queries as fit. "
                        f"{OWNER_ONLY.capitalize()}.",
                        rows=released_rows(tuning, metric),
                        columns=_unbroken(released_columns(tuning)),
                    ),
                    Command(text=command),
                ],
            ),
            Section(heading="Queries answered", blocks=_answered(tuning, guarantee)),
            Section(heading="Utility", blocks=_utility(tuning, metric)),
            Section(
                heading="Utility against queries answered", blocks=_trade(tuning, metric, guarantee)
            ),
        ],
    )


def _facts(tuning: Tuning) -> Block:
    return Facts(
        values={
            "queries": tuning.queries,
            "voters": tuning.voters,
            "labels": tuning.labels,
            "compared with": tuning.reference,
            **{f"{name} without noise": tuning.noise_free[name] for name in ("ACC", "BAC", "MAP")},
        },
        sealed=True,
    )


def _figure(caption: str, draw: Callable[[], str]) -> Block:
    """Return the figure, or the sentence that says what it needs."""
    try:
        return Figure(caption=caption, svg=draw(), sealed=True)
    except MissingExtraError as error:
        return f"(No figure here: {error}.)"


def _families(tuning: Tuning) -> tuple[str, str, Mapping[str, Sequence[Trial]]]:
    """Return the key of the axis, its words, and the trials of each curve along it."""
    if tuning.parameter == "tau":
        norms = dict.fromkeys(t.values["norm"] for t in tuning.trials)
        split = {f"l{n}": [t for t in tuning.trials if t.values["norm"] == n] for n in norms}
        return "tau", "tau (bound on a ballot's norm)", split
    if tuning.parameter == "gate":
        gated = [t for t in tuning.trials if t.values["gate_sigma"] is not None]
        noises = dict.fromkeys(t.values["gate_sigma"] for t in gated)
        split = {
            f"sigma_T {n:g}": [t for t in gated if t.values["gate_sigma"] == n] for n in noises
        }
        return "gate_threshold", "T (how many voters must agree)", split
    if tuning.parameter == "threshold":
        common = [t for t in tuning.trials if t.values["rule"] == "common"]
        return "threshold", "threshold (probability from which on a vote is a yes)", {"": common}
    return "sigma", "sigma (standard deviation of the noise on each count)", {"": tuning.trials}


def _others(tuning: Tuning, take: Callable[[Trial], float]) -> dict[str, float]:
    """Return what stands beside the curves: no gate, one threshold per label, prevalence."""
    loose = [t for t in tuning.trials if None in t.values.values()]
    return {name_of(t): value for t in loose if (value := take(t)) == value}


def _curves(
    tuning: Tuning, families: Mapping[str, Sequence[Trial]], take: Callable[[Trial], float]
) -> dict[str, dict[float, float]]:
    key = _families(tuning)[0]
    return {name: {t.values[key]: take(t) for t in trials} for name, trials in families.items()}


def _answered(tuning: Tuning, guarantee: str) -> list[Block]:
    key, axis, families = _families(tuning)
    if tuning.parameter == "gate":
        return _gated_answers(tuning, guarantee)
    return [
        _drawn_answers(
            f"Queries answered{f', {name}' if name else ''}",
            axis,
            {NAMES[g]: {t.values[key]: t.fits[g] for t in trials} for g in tuning.guarantees},
            {},
        )
        for name, trials in families.items()
    ]


def _gated_answers(tuning: Tuning, guarantee: str) -> list[Block]:
    """Return a drawing for each guarantee, a curve for each sigma_T; and the labels let through."""
    _, axis, families = _families(tuning)

    def drawn(title: str, quantity: str, take: Callable[[Trial], float]) -> Block:
        curves, others = _curves(tuning, families, take), _others(tuning, take)
        return _drawn_answers(title, axis, curves, others, quantity)

    def fitting(name: str) -> Callable[[Trial], float]:
        return lambda trial: trial.fits[name]

    def let_through(trial: Trial) -> float:
        return round(trial.answered(guarantee, tuning.labels))

    return [
        *(drawn(f"Queries: {NAMES[g]}", "queries answered", fitting(g)) for g in tuning.guarantees),
        drawn(f"Labels let through: {NAMES[guarantee]}", "labels answered", let_through),
    ]


def _drawn_answers(
    title: str,
    axis: str,
    series: dict[str, dict[float, float]],
    references: dict[str, float],
    quantity: str = "queries answered",
) -> Block:
    return _figure(
        f"How much of these votes fits the budget. {_FIRST_OUT}",
        lambda: by_parameter(
            series,
            title=title,
            parameter=axis,
            quantity=quantity,
            references=references,
            sealed=True,
        ),
    )


def _utility(tuning: Tuning, metric: str) -> list[Block]:
    key, axis, families = _families(tuning)
    shown = ("ACC", "BAC", "MAP")
    blocks: list[Block] = [
        "The figures to expect of labels released for all queries. A released label is its own "
        "score, so AUC equals BAC."
    ]
    if tuning.parameter in ("sigma", "threshold"):
        (trials,) = families.values()
        drawn = {m: {t.values[key]: t.utility["all"][m] for t in trials} for m in shown}
        references = (
            {f"{m} without noise": tuning.noise_free[m] for m in shown}
            if tuning.parameter == "sigma"
            else _others(tuning, lambda t: t.utility["all"][metric])
        )
        return [
            *blocks,
            _drawn_figures("Figures of merit", axis, "figure of merit", drawn, references),
        ]
    quantities = (*shown, "coverage") if tuning.parameter == "gate" else (*shown, "kept", "cost")
    for quantity in quantities:

        def take(trial: Trial, quantity: str = quantity) -> float:
            found = trial.details.get(quantity, trial.utility["all"].get(quantity))
            return float("nan") if found is None else float(found)

        blocks.append(
            _drawn_figures(
                _SAID.get(quantity, quantity),
                axis,
                quantity,
                _curves(tuning, families, take),
                _others(tuning, take),
            )
        )
    return blocks


_SAID = {
    "coverage": "Share of labels answered",
    "kept": "Share of the yes-votes' weight that clipping keeps",
    "cost": "What one query costs at most, in single votes",
}


def _drawn_figures(
    title: str,
    axis: str,
    quantity: str,
    series: dict[str, dict[float, float]],
    references: dict[str, float],
) -> Block:
    usable = {name: value for name, value in references.items() if value == value}
    if all(value != value for points in series.values() for value in points.values()):
        return f"(No figure of {quantity}: no label has both classes.)"
    return _figure(
        f"{title}, over all queries." if title in FIGURES else f"{title}.",
        lambda: by_parameter(
            series,
            title=title,
            parameter=axis,
            quantity=quantity,
            references=usable,
            sealed=True,
        ),
    )


def _trade(tuning: Tuning, metric: str, guarantee: str) -> list[Block]:
    key, _, families = _families(tuning)
    short = {"gate_threshold": "T"}.get(key, key)

    def points(trials: Sequence[Trial], name: str) -> list[tuple[str, float, float]]:
        return [
            (f"{short} {t.values[key]:g}", t.fits[name], t.utility[name][metric]) for t in trials
        ]

    drawings = {
        f", {name}" if name else "": {NAMES[g]: points(trials, g) for g in tuning.guarantees}
        for name, trials in families.items()
    }
    if tuning.parameter == "gate":
        curves = {name: points(trials, guarantee) for name, trials in families.items()}
        drawings = {f": {NAMES[guarantee]}": curves}
    return [
        "Each point is one value: how many queries it answers, and how good the labels of just "
        "those queries are. Few queries make unsteady figures, and labels without both classes "
        "among them do not count.",
        *(_drawn_trade(series, what, metric) for what, series in drawings.items()),
    ]


def _drawn_trade(
    series: dict[str, list[tuple[str, float, float]]], what: str, metric: str
) -> Block:
    if not any(q > 0 and m == m for points in series.values() for _, q, m in points):
        return f"(No figure of {metric}: nothing was answered, or no label has both classes.)"
    return _figure(
        f"{metric} of the labels released. {_FIRST_OUT}",
        lambda: utility_by_answered(
            series, title=f"{metric} against queries answered{what}", metric=metric, sealed=True
        ),
    )
