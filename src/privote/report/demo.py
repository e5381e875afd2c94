"""The demo's report: labels of real votes, a model of a table, and what only the owner may see."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from privote._version import written
from privote.accounting.renyi import rounded_up
from privote.datasets.tables import write_table
from privote.learning.demo import Outcome
from privote.learning.jobs import FIGURES
from privote.votes.arrays import write_packed

from .blocks import Command, Facts, Section, TableBlock, drawn
from .page import write_page
from .plots import answered_by_guarantee, in_parts
from .tables import FIGURES_MEAN, OWNER_ONLY, Column, mark, plain, write_label_csv

RELEASED = [
    Column(key="how"),
    Column(key="answered", heading="ans-\nwered"),
    Column(key="recall", digits=2),
    Column(key="precision", heading="preci-\nsion", digits=2),
    Column(key="BAC", digits=2),
    Column(key="epsilon", digits=2),
    Column(key="mechanism"),
    Column(key="sigma", digits=1),
]
TERMINAL = [column for column in RELEASED if column.key != "mechanism"]
MODELS = [
    Column(key="model"),
    Column(key="epsilon", digits=2),
    *(Column(key=name) for name in FIGURES),
]
READING = (
    "Each row is one release of the same votes: fifty real teachers on aviation reports with 22 "
    "labels. Answered is how many reports got labels. Recall is the share of the true labels that "
    "were released, precision the share of released ones that are true; BAC is balanced accuracy, "
    "where a coin has 0.5. Epsilon is what it costs in privacy, less is better; sigma is the "
    "noise on a count, in votes.\n\n"
    "By default every report is answered. Few labels are true here, about one in fourteen, and the "
    "teachers themselves are not always right. Data-dependent is not differential privacy: its "
    "exact epsilon is sealed, and a noisy one is published, which may exceed the budget."
)
COMPARED = (
    "Made-up patients with words, dates, notes and gaps; the promise is to persons. By default, "
    "public numbers choose the method: gradients and moments fit one model with noise, neighbours "
    f"and teachers vote on public rows. {FIGURES_MEAN} Every private model predicts with "
    "thresholds that follow from what was released. A model without epsilon protects nobody."
)
_SUMMARY = "summary.json"


def is_demo(folder: Path) -> bool:
    """Return True if a demo made what is there."""
    try:
        summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
        return str(summary["command"]).startswith("privote demo ")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_demo(folder: Path, outcome: Outcome) -> dict[str, Any]:
    """Write votes, labels, tables, page and summary; return the summary."""
    request = outcome.request
    write_packed(folder / "votes.npz", outcome.votes)
    for (how, guarantee), labels in outcome.labels.items():
        write_label_csv(labels, folder / f"labels-{how.replace(' ', '-')}-{guarantee}.csv")
    assert outcome.table is not None
    for name, side in zip(("records", "public", "test"), outcome.table, strict=True):
        write_table(folder / f"{name}.csv", side)
    seed = "" if request.seed is None else f" --seed {request.seed}"
    command = (
        f"privote demo --output {shlex.quote(str(folder))} --records {request.records} \\\n"
        f"  --queries {request.queries} --epsilon {request.epsilon!r} --delta {request.delta!r}"
        f"{seed}"
    )
    write_page(
        folder / "report.html",
        title="privote: a demonstration",
        intro="Labels of real votes and a model of a table, both under differential privacy.",
        sections=[_released(outcome, command), _learnt(outcome), _for_owner(outcome)],
        notices=["Simulated: a seed was given, so this protects nobody."] if seed else (),
        sealed=True,
    )
    summary = plain(
        {
            **written(1),
            "command": command,
            "simulated": request.seed is not None,
            "plan": outcome.plan.facts(),
            "releases": outcome.rows,
            "models": outcome.models,
            "reasons": list(outcome.chosen.reasons_) if outcome.chosen is not None else [],
            "sealed": {"note": OWNER_ONLY, **outcome.sealed},
            "report": str(folder / "report.html"),
            "next": _next(folder, outcome),
        }
    )
    (folder / _SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return dict(summary)


def _next(folder: Path, outcome: Outcome) -> list[str]:
    """Return commands to go on with, which work as they stand."""
    assert outcome.table is not None
    request, labels = outcome.request, ",".join(outcome.table[0].label_names)
    place = {
        name: shlex.quote(str(folder / name))
        for name in (
            *("records.csv", "public.csv", "test.csv", "votes.npz", "run"),
            *("my-labels.csv", "my-labels.html"),
        )
    }
    budget = f"--epsilon {request.epsilon!r} --delta {request.delta!r}"
    return [
        f"privote train {place['records.csv']} --labels {labels} --id-column id \\\n"
        f"  --group-column person --public {place['public.csv']} --test {place['test.csv']} \\\n"
        f"  {budget} --output {place['run']}",
        f"privote predict {place['run']}/student.student {place['test.csv']} \\\n"
        f"  --output {place['run']}/predictions.csv",
        f"privote label {place['votes.npz']} {budget} \\\n"
        f"  --output {place['my-labels.csv']} --report {place['my-labels.html']}",
    ]


def named(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row a release, each with a name of its own: how, and under which guarantee."""
    return [{**row, "how": f"{row['how']}, {row['guarantee']}"} for row in outcome.rows]


def _may_leave(row: dict[str, Any]) -> str:
    """Say what of a release may leave, and what that promises."""
    if not row["answered"]:
        return "nothing was released"
    if row["guarantee"] == "data-dependent":
        if row["epsilon"] is None:
            return "labels, with no epsilon: the exact one is sealed"
        return "labels and this noisy epsilon: about these votes only, not differential privacy"
    return f"labels and epsilon: {mark(row['guarantee'])}"


def _released(outcome: Outcome, command: str) -> Section:
    request = outcome.request
    first = outcome.rows[0]
    true = int(outcome.truth.sum())
    return Section(
        heading="Labels of real votes",
        blocks=[
            Facts(
                values={
                    "reports labelled, by default": f"{first['answered']} of {request.queries}",
                    "of their true labels, released": _share(first["recall"]),
                    "of released labels, true": _share(first["precision"]),
                    f"epsilon, at delta {rounded_up(request.delta)}": rounded_up(request.epsilon),
                }
            ),
            TableBlock(
                caption="Released labels, compared with the truth.",
                rows=[{**row, "may it leave?": _may_leave(row)} for row in named(outcome)],
                columns=[
                    *(replace(column, heading=None) for column in RELEASED),
                    Column(key="may it leave?"),
                ],
            ),
            drawn(
                f"What was released; {request.queries:,} reports have {true:,} true labels.",
                lambda: in_parts(
                    {
                        row["how"]: {name: row[name] for name in ("true", "not true")}
                        for row in named(outcome)
                    },
                    title="Released labels, true and not",
                    axis="labels released as 1",
                ),
            ),
            READING,
            *outcome.plan.changes,
            Command(text=command),
        ],
    )


def _share(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"


def _learnt(outcome: Outcome) -> Section:
    request, chosen = outcome.request, outcome.chosen
    judged = {row["model"]: row["AUC"] for row in outcome.models if row["model"] != "always no"}
    return Section(
        heading="A model of a table",
        blocks=[
            TableBlock(
                caption="On test rows. Private models: epsilon "
                f"{rounded_up(request.epsilon)} at delta {rounded_up(request.delta)}, for changing "
                "all records of one person.",
                rows=outcome.models,
                columns=MODELS,
            ),
            drawn(
                "AUC on test rows. A model without privacy is a bound, not a rival.",
                lambda: answered_by_guarantee(
                    judged,
                    title="How well each model ranks test rows",
                    axis="area under the ROC curve (AUC)",
                ),
            ),
            COMPARED,
            *(chosen.reasons_ if chosen is not None else ()),
        ],
    )


def _for_owner(outcome: Outcome) -> Section:
    return Section(
        heading="For the owner's eyes",
        blocks=[
            "These numbers depend on the private votes. They are here because the votes are public "
            "ones; of real votes they must not leave.",
            "What the data-dependent answers cost on these votes, and how good labels would be "
            "without noise: the teachers are not always right.",
            Facts(values=outcome.sealed, sealed=True),
        ],
    )
