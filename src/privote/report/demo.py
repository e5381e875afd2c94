"""The demo's report: what was released, what the budget buys, and what only the owner may see."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from privote.accounting.renyi import rounded_up
from privote.learning.comparison import FIGURES
from privote.learning.demo import SURPRISES, Outcome, answers_by_sigma
from privote.votefiles import write_packed

from .blocks import Command, Facts, Section, TableBlock, drawn
from .page import write_page
from .plots import answered_by_guarantee, answered_by_sigma, utility_by_mechanism
from .tables import OWNER_ONLY, Column, mark, plain, write_label_csv

RELEASED = [
    Column(key="mechanism"),
    Column(key="sigma", digits=1),
    Column(key="guarantee"),
    Column(key="epsilon", digits=2),
    Column(key="answered"),
    *(Column(key=name) for name in FIGURES),
]
# Eighty columns: AUC is left out where it is BAC by another name.
TERMINAL = [
    *RELEASED[:4],
    Column(key="answered", heading="ans-\nwered"),
    Column(key="ACC"),
    Column(key="BAC", heading="BAC,\nAUC"),
    Column(key="MAP"),
]
SEALED = [
    Column(key="mechanism"),
    Column(key="exact_per_query", heading="exact\nper query", digits=2),
    Column(key="exact_by_voter", heading="exact\nby voter", digits=2),
    Column(key="pate2018", heading="by\npate2018", digits=2),
    Column(key="voters_out", heading="voters\nout"),
]
MODELS = [
    Column(key="model"),
    Column(key="epsilon", digits=2),
    Column(key="answered", heading="public scenes\nlabelled"),
    *(Column(key=name) for name in FIGURES),
]
COMPARED = (
    "All are linear on the same features. A PATE student never sees a private scene, only released "
    "labels: of binary as many as its allowance lasts for, of the others as many as composition "
    "allows. DPSGD descends on private scenes with noisy gradients, and is ahead on features this "
    "good. A model without epsilon protects nobody: one teacher shows how much its true labels are "
    "worth."
)
READING = (
    "Each row is one release of the same votes. Allowance answers every query; a voter that has "
    "run out counts as all zeros from then on, which costs quality and no privacy. Worst-case "
    "stops when the next query would not fit. Data-dependent answers as many as were asked for, "
    "and is not differential privacy: its exact epsilon is sealed. For Binary a noisy one is "
    "published, which may exceed the budget; for Tau and Powerset there is none, so their labels "
    "may leave, but with no epsilon. The figures compare the released labels with the truth; a "
    "released label is its own score, so AUC equals BAC. Few queries make unsteady figures."
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
    """Write votes, labels, page and summary; return the summary."""
    request = outcome.request
    write_packed(folder / "votes.npz", outcome.votes)
    for (name, guarantee), labels in outcome.labels.items():
        write_label_csv(labels, folder / f"labels-{name}-{guarantee}.csv")
    seed = "" if request.seed is None else f" --seed {request.seed}"
    command = (
        f"privote demo --output {shlex.quote(str(folder))} --teachers {request.teachers} \\\n"
        f"  {_budget(outcome)} --queries {request.queries} --private {request.private}{seed}"
    )
    commands = _commands(folder, outcome)
    report = write_report(folder / "report.html", outcome, command, commands)
    summary = {
        "teachers": request.teachers,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "queries": request.queries,
        "simulated": request.seed is not None,
        "releases": outcome.rows,
        "models": outcome.models,
        "sealed": {"note": OWNER_ONLY, "prices": outcome.sealed, "binary fits": outcome.fits},
        "command": command,
        "report": str(report),
        "next": commands,
    }
    text = json.dumps(plain(summary), indent=2, allow_nan=False)
    (folder / _SUMMARY).write_text(text + "\n", encoding="utf-8")
    return summary


def _budget(outcome: Outcome) -> str:
    request = outcome.request
    return f"--epsilon {rounded_up(request.epsilon)} --delta {rounded_up(request.delta)}"


def _commands(folder: Path, outcome: Outcome) -> list[str]:
    """Return three things to try, ready to be pasted."""
    request, budget = outcome.request, _budget(outcome)
    votes, mine = (shlex.quote(str(folder / name)) for name in ("votes.npz", "my-labels.csv"))
    sigma = outcome.mechanisms["binary"].parameters()["sigma"]
    return [
        f"privote label {votes} --mechanism binary --sigma {sigma:g} \\\n"
        f"  {budget} --queries {request.queries} --output {mine}",
        f"privote tune {votes} --over mechanism --sigma {sigma:g} \\\n  {budget}",
        f"privote plan --mechanism binary --voters {request.teachers} --labels 10 \\\n"
        f"  {budget} --wanted {10 * request.queries} --surprises-per-query {SURPRISES:g}",
    ]


def write_report(path: Path, outcome: Outcome, command: str, commands: list[str]) -> Path:
    """Write the page and return where it is."""
    request = outcome.request
    notices = []
    if request.seed is not None:
        notices.append("Simulated: the noise was drawn with a seed, so the labels protect nobody.")
    return write_page(
        path,
        title="Private labels for scenes of digits",
        intro=(
            f"{request.teachers} teachers, each trained on its own part of {request.private:,} "
            f"private scenes, voted on public ones: which of ten digits are there? Here is what "
            f"three mechanisms release of their votes on {request.queries:,} scenes, under one "
            "budget and three guarantees."
        ),
        sections=[
            _released(outcome, command),
            _learnt(outcome),
            _bought(outcome),
            _for_owner(outcome),
            Section(heading="Try next", blocks=[Command(text="\n\n".join(commands))]),
        ],
        notices=notices,
        sealed=True,
    )


def _may_leave(row: dict[str, Any]) -> str:
    """Return what of a release may be published."""
    if not row["answered"]:
        return "nothing was released"
    if row["guarantee"] != "data-dependent":
        return f"labels and epsilon: {mark(row['guarantee'])}"
    if row["epsilon"] is not None:
        return "labels and this noisy epsilon: about these votes only, not differential privacy"
    return "labels, with no epsilon: the exact one is sealed, and there is no noisy one"


def _released(outcome: Outcome, command: str) -> Section:
    request = outcome.request
    rows = [{**row, "may it leave?": _may_leave(row)} for row in outcome.rows]
    budget = f"epsilon {rounded_up(request.epsilon)}, delta {rounded_up(request.delta)}"
    # BAC needs both classes of a label, which very few queries may not have.
    balanced = any(row["BAC"] is not None and row["BAC"] == row["BAC"] for row in outcome.rows)
    metric = "BAC" if balanced else "ACC"
    return Section(
        heading="What was released",
        blocks=[
            Facts(
                values={
                    "teachers": request.teachers,
                    "queries asked": request.queries,
                    "epsilon": f"{rounded_up(request.epsilon)}",
                    "delta": f"{rounded_up(request.delta)}",
                }
            ),
            READING,
            TableBlock(
                caption=f"Labels released under {budget}, compared with the truth.",
                rows=rows,
                columns=[*RELEASED, Column(key="may it leave?")],
            ),
            drawn(
                f"{metric} of the released labels. Each marker counts only the queries that were "
                "answered.",
                lambda: utility_by_mechanism(
                    outcome.rows, title="How good the released labels are", metric=metric
                ),
            ),
            "Binary counts single votes against a voter's allowance, and a scene has few digits, "
            "so its allowance lasts longer than worst-case composition. Tau and Powerset count "
            "whole ballots; here nearly every ballot says yes to something, so for them "
            "composition is the better guarantee.",
            "The record that is protected is a scene: one scene reaches one teacher. The same "
            "handwritten digit appears in several scenes, so this is no promise to its writer.",
            Command(text=command),
        ],
    )


def _learnt(outcome: Outcome) -> Section:
    request = outcome.request
    return Section(
        heading="What a student learns",
        blocks=[
            COMPARED,
            TableBlock(
                caption=f"On test scenes. Private models: epsilon {rounded_up(request.epsilon)} "
                "at delta "
                f"{rounded_up(request.delta)}, for changing one private scene.",
                rows=outcome.models,
                columns=MODELS,
            ),
            drawn(
                "AUC on test scenes. A model without privacy is a bound, not a rival.",
                lambda: answered_by_guarantee(
                    {row["model"]: row["AUC"] for row in _judged(outcome)},
                    title="How well each model ranks test scenes",
                    axis="area under the ROC curve (AUC)",
                ),
            ),
            "On features as good as these, descending on private records with noisy gradients is a "
            "strong rival, and is ahead where the table says so. What PATE gives besides: any kind "
            "of teacher and student, labels that may be published, and teachers that may belong to "
            "different owners.",
        ],
    )


def _judged(outcome: Outcome) -> list[dict[str, Any]]:
    return [row for row in outcome.models if row.get("AUC") is not None]


def _bought(outcome: Outcome) -> Section:
    request = outcome.request
    return Section(
        heading="What the budget buys",
        blocks=[
            "Each sigma was chosen before a vote was seen, from public numbers: the least noise, "
            f"to a tenth, with which a mechanism can promise {request.queries:,} answers under its "
            "better unconditional guarantee. Choosing it by looking at the votes would void the "
            "guarantee.",
            drawn(
                f"Binary, epsilon {rounded_up(request.epsilon)} at delta "
                f"{rounded_up(request.delta)}. The forecast is "
                f"for a voter with {SURPRISES:g} yes-votes a scene; the budget holds whether it is "
                "right or not. No votes went into this figure.",
                lambda: answered_by_sigma(
                    answers_by_sigma(request), title="More noise buys more answers"
                ),
            ),
        ],
    )


def _for_owner(outcome: Outcome) -> Section:
    without = outcome.score(
        (outcome.votes[: outcome.request.queries].mean(axis=1) > 0.5).astype("int8")
    )
    rows = [{**row, "may it leave?": OWNER_ONLY} for row in outcome.sealed]
    hidden = [name for name in outcome.fits if name != "worst-case"]
    return Section(
        heading="For the owner's eyes",
        blocks=[
            "These numbers depend on the private votes. They are here because the scenes are toy "
            "data; of real votes they must not leave.",
            TableBlock(
                caption=f"What the {outcome.request.queries:,} data-dependent answers cost on "
                "these votes: epsilon by three bounds. And how many voters ran out of allowance.",
                rows=rows,
                columns=[*SEALED, Column(key="may it leave?")],
            ),
            drawn(
                "How many queries of Binary fit the budget: whatever the votes, before the first "
                "voter runs out, and by two data-dependent bounds. Stopping at a data-dependent "
                "number would leak.",
                lambda: answered_by_guarantee(
                    outcome.fits, title="Binary: queries that fit", sealed=hidden
                ),
            ),
            Facts(
                values={f"{name} without noise": value for name, value in without.items()},
                sealed=True,
            ),
        ],
    )
