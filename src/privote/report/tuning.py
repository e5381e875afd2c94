"""What a tuning found: rows and columns for the terminal, and a page with curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privote.accounting.renyi import rounded_up
from privote.planning import NOT_PRIVATE, Trial, Tuning
from privote.release import OWNER_ONLY

from .page import Block, Command, Facts, Section, TableBlock, drawn, write_page
from .plots import answered_by_guarantee, by_parameter, utility_by_answered
from .tables import Column

_HEADINGS = {
    "allowance": "allow-\nance",
    "worst-case": "worst\ncase",
    "data-dependent": "data-\ndep.",
    "published": "publ.",
    "by-voter": "by\nvoter",
}
_TRIED = {
    "sigma": [Column(key="sigma", digits=2)],
    "tau": [
        Column(key="norm"),
        Column(key="tau", digits=2),
        Column(key="kept"),
        Column(key="clipped", heading="clip-\nped"),
        Column(key="cost", digits=1),
    ],
    "gate": [
        Column(key="gate_threshold", heading="T", digits=1),
        Column(key="gate_sigma", heading="sigma_T", digits=1),
        Column(key="answered"),
    ],
    "threshold": [
        Column(key="tried", heading="thres-\nhold"),
        Column(key="yes_per_ballot", heading="yes a\nballot", digits=2),
        Column(key="without_noise", heading="noise-\nfree"),
    ],
    "mechanism": [Column(key="mechanism")],
}
_AXES = {
    "sigma": "sigma (standard deviation of the noise on each count)",
    "tau": "tau (bound on a ballot's norm)",
    "gate_threshold": "T (how many voters must agree)",
    "threshold": "threshold (probability from which on a vote is a yes)",
}
_WORDS = {
    "sigma": "More noise buys more answers and costs quality. The paper takes as much noise as the "
    "labels stand.",
    "tau": "Clipping ballots makes a query cheaper in the worst case and moves the tally. Kept is "
    "the share of the yes-votes' weight that is left, clipped the share of ballots that lose some, "
    "cost what one query costs at most, in single votes (a public number). The paper takes the "
    "smallest tau that the labels stand.",
    "gate": "A label is answered only where about T voters agree, up to a noise of sigma_T. What "
    "is wrong is of answered labels only, so read it together with the share answered. The first "
    "row has no gate.",
    "threshold": "A probability at or above the threshold is a yes. Per label takes each label's "
    "best threshold, judged by the same queries that chose it, so it looks too good.",
    "mechanism": "Mechanisms side by side, on the same votes and under the same budget.",
}
_MEASURE = (
    "Wrong is the share of answered cells (query, label) that is released otherwise than wanted, "
    "missed of those that should be 1, false alarm of those that should be 0: expectations, exact, "
    "over all queries."
)
READING = (
    "Queries answered: allowance until the first voter runs out, worst-case whatever the votes, "
    "ptr so many that these votes pass the test 99 times in 100, data-dependent by the exact cost "
    "of these votes, published by the bound of PATE 2018, by voter by each voter's exact bill. "
    "A dash: not to be had."
)
_QUANTITIES = {"wrong": "wrong", "missed": "missed", "false_alarm": "false alarm"}
_DETAILS = {
    "answered": "share of labels answered",
    "kept": "share of the yes-votes' weight that clipping keeps",
    "cost": "what one query costs at most, in single votes",
}


def rows_of(tuning: Tuning) -> list[dict[str, Any]]:
    """Return one flat row for each trial: what was tried, queries that fit, how good labels are."""
    return [
        {
            **trial.values,
            **trial.details,
            "tried": name_of(trial).removeprefix("threshold "),
            "without_noise": trial.noise_free.wrong,
            **trial.fits,
            **trial.quality.facts(),
            "beyond": None if trial.beyond is None else trial.beyond.wrong,
            "chosen": "*" if trial == tuning.chosen else "",
        }
        for trial in tuning.trials
    ]


def columns_of(tuning: Tuning) -> list[Column]:
    """Return what was tried, what was counted, and how good labels are."""
    beyond = any(trial.beyond is not None for trial in tuning.trials)
    return [
        *_TRIED[tuning.over],
        *(Column(key=name, heading=_HEADINGS.get(name)) for name in tuning.counts),
        Column(key="wrong", digits=4),
        Column(key="missed"),
        Column(key="false_alarm", heading="false\nalarm"),
        *([Column(key="beyond", heading="wrong if\nall go on", digits=4)] if beyond else []),
        Column(key="chosen", heading=""),
    ]


def _unbroken(column: Column) -> str:
    """Return a heading in one line: a page breaks it by itself."""
    if column.key in _HEADINGS:
        return column.key
    return column.title.replace("-\n", "").replace("\n", " ")


def name_of(trial: Trial) -> str:
    """Return what was tried, in a few words."""
    values = trial.values
    if "mechanism" in values:
        return str(values["mechanism"])
    if "gate_threshold" in values:
        bar, noise = values["gate_threshold"], values["gate_sigma"]
        return "no gate" if bar is None else f"T {bar:g}, sigma_T {noise:g}"
    if "rule" in values:
        bar = values["threshold"]
        return str(values["rule"]) if bar is None else f"threshold {bar:g}"
    if "tau" in values:
        return f"tau {values['tau']:g} l{values['norm']}"
    return f"sigma {values['sigma']:g}"


def verdict(tuning: Tuning) -> str:
    """Return in a sentence what was chosen, and by which rule."""
    limit = f"within {tuning.drop:g} of the best noise-free outcome"
    if tuning.missed is not None:
        limit += f" and at most {tuning.missed:g} are missed"
    chosen = tuning.chosen
    if chosen is None:
        return f"Nothing whose wrong labels stay {limit} answers a query under {tuning.guarantee}."
    return (
        f"{name_of(chosen)} answers most under {tuning.guarantee} "
        f"({chosen.fits[tuning.guarantee]:,} queries) while wrong labels stay {limit}."
    )


def title_of(tuning: Tuning) -> str:
    """Return what the numbers are about."""
    return (
        f"Queries of {tuning.queries:,} that fit epsilon {rounded_up(tuning.epsilon)} at delta "
        f"{rounded_up(tuning.delta)} ({tuning.voters:,} voters, {tuning.labels:,} labels)"
    )


def write_tuning_page(path: Path, tuning: Tuning, *, command: str) -> Path:
    """Write the page: what was tried, on what, and the curves. For the owner's eyes."""
    facts = {
        "queries": tuning.queries,
        "voters": tuning.voters,
        "labels": tuning.labels,
        "compared with": tuning.against,
        "wrong without noise": min(trial.noise_free.wrong for trial in tuning.trials),
    }
    table = TableBlock(
        caption=f"{title_of(tuning)}. {READING} {OWNER_ONLY.capitalize()}.",
        rows=rows_of(tuning),
        columns=[replace(column, heading=_unbroken(column)) for column in columns_of(tuning)],
    )
    left = [f"Left out: {name}: {why}." for name, why in tuning.left_out.items()]
    return write_page(
        path,
        title=f"Tuning over {tuning.over}",
        intro=f"{_WORDS[tuning.over]} {_MEASURE}",
        notices=["Not private. " + NOT_PRIVATE],
        sealed=True,
        sections=[
            Section(
                heading="What was tried",
                blocks=[
                    Facts(values=facts, sealed=True),
                    verdict(tuning),
                    table,
                    *left,
                    Command(text=command),
                ],
            ),
            Section(heading="Queries answered", blocks=_answered(tuning)),
            Section(heading="Quality", blocks=_quality(tuning)),
            Section(heading="Quality against queries answered", blocks=[_trade(tuning)]),
        ],
    )


def _curves(tuning: Tuning) -> tuple[str, dict[str, list[Trial]]]:
    """Return the key of the axis, and the trials of each curve along it."""
    trials, split = tuning.trials, {"tau": "norm", "gate": "gate_sigma"}.get(tuning.over)
    key = {"gate": "gate_threshold"}.get(tuning.over, tuning.over)
    along = [trial for trial in trials if trial.values[key] is not None]
    if split is None:
        return key, {"": along}
    mark = {"norm": "l", "gate_sigma": "sigma_T "}[split]
    families: dict[str, list[Trial]] = {}
    for trial in along:
        families.setdefault(f"{mark}{trial.values[split]:g}", []).append(trial)
    return key, families


def _beside(tuning: Tuning, take: Callable[[Trial], float]) -> dict[str, float]:
    """Return what stands beside the curves: no gate, one threshold per label."""
    loose = [trial for trial in tuning.trials if None in trial.values.values()]
    return {name_of(trial): value for trial in loose if (value := take(trial)) == value}


def _answered(tuning: Tuning) -> list[Block]:
    def count(name: str) -> Callable[[Trial], float]:
        return lambda trial: float("nan") if trial.fits[name] is None else trial.fits[name] or 0

    said = f"How much of these votes fits the budget. {READING}"
    return [
        _drawn(f"Queries answered: {name}", "queries answered", said, tuning, count(name))
        for name in tuning.counts
    ]


def _quality(tuning: Tuning) -> list[Block]:
    def number(key: str) -> Callable[[Trial], float]:
        return lambda trial: float({**trial.details, **trial.quality.facts()}[key])

    shown = {column.key for column in _TRIED[tuning.over]}
    wanted = {**_QUANTITIES, **{key: words for key, words in _DETAILS.items() if key in shown}}
    figures = (
        _drawn(words.capitalize(), words, f"{words.capitalize()}.", tuning, number(key))
        for key, words in wanted.items()
    )
    return [_MEASURE, *figures]


def _drawn(
    title: str, quantity: str, caption: str, tuning: Tuning, take: Callable[[Trial], float]
) -> Block:
    """Return a quantity against what was tried: bars of mechanisms, or curves."""
    if all(take(trial) != take(trial) for trial in tuning.trials):
        return f"(No figure of {title[0].lower()}{title[1:]}: it is not to be had here.)"
    if tuning.over == "mechanism":
        bars = {name_of(t): value for t in tuning.trials if (value := take(t)) == value}
        return drawn(
            caption,
            lambda: answered_by_guarantee(bars, title=title, sealed=list(bars), axis=quantity),
            sealed=True,
        )
    key, families = _curves(tuning)
    series = {
        name or quantity: {trial.values[key]: take(trial) for trial in trials}
        for name, trials in families.items()
    }
    return drawn(
        caption,
        lambda: by_parameter(
            series,
            title=title,
            parameter=_AXES[key],
            quantity=quantity,
            references=_beside(tuning, take),
            sealed=True,
        ),
        sealed=True,
    )


def _trade(tuning: Tuning) -> Block:
    """Return how much is wrong against how much is answered, a line for each count."""
    series: Mapping[str, Sequence[tuple[str, float, float]]] = {
        name: [(name_of(t), t.fits[name] or 0, t.quality.wrong) for t in tuning.trials]
        for name in tuning.counts
    }
    if not any(
        queries > 0 and wrong == wrong for line in series.values() for _, queries, wrong in line
    ):
        return "(No figure: nothing was answered.)"
    return drawn(
        "Each point is one trial: how many queries it answers, and how much of the labels for all "
        "queries is wrong.",
        lambda: utility_by_answered(
            series, title="Wrong labels against queries answered", metric="wrong", sealed=True
        ),
        sealed=True,
    )
