"""Pages about a trained model: what is released, and figures for the owner's eyes apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privote.accounting.renyi import rounded_up
from privote.guarantees import OWNER_ONLY, PERSON, Fact
from privote.learning.jobs import Judgement, Outcome
from privote.learning.methods import LITTLE, VOTERS, doubts_of, evidence, expected, kept_in_words
from privote.learning.pictures import PictureEncoder
from privote.learning.scoring import Score
from privote.release import expected as expected_of

from .forms import model_card
from .labels import labels_section, notices
from .page import Block, Command, Section, TableBlock, listed, write_page
from .tables import FIGURES_MEAN, bill, cost_in_words, spent

MODEL, OWNERS, OWNERS_PAGE = "student.student", "for-the-owner.json", "for-the-owner.html"
_REPEAT = "It draws fresh noise: another release of the same data, which costs as much again."
UNCOVERED = "computed on private rows, not covered by epsilon and delta"
_HOW = {
    "gradients": "a linear model, trained by noisy gradient descent on the records",
    "moments": "a linear model, computed from one noisy sum of features times labels",
    "dpsgd": "a network, trained by noisy gradient descent on the records",
    "teachers": "a student, trained on noisy votes of teachers that each saw a part of the records",
    "neighbours": "a student, trained on noisy votes of the records nearest to each public row",
}
_VOID = (
    "settings chosen by looking at the private records or at figures on them. Public rows that are "
    "in fact private. Features that were scaled or encoded from other private records beforehand. "
    "Releases of the same data that were not charged to the same ledger. Figures on private test "
    "rows, which are not covered by epsilon and delta and must not be published"
)


def training_bill(outcome: Outcome, output: Path) -> dict[str, str]:
    """Return the bill of a training."""
    fitted = outcome.fitted
    many = fitted.numbers_.predicted
    figures = "; ".join(f"AUC {row['AUC']:.3f} on the public test rows" for row in outcome.figures)
    known = " ".join(doubts_of(fitted.numbers_) or expected(fitted.numbers_, fitted.method_))
    if outcome.fitted.release_ is not None:
        known = f"of the labels that it learnt from: {expected_of(outcome.fitted.release_)}"
    looks = f"; rows go through {', then '.join(fitted.embeddings_)}" if fitted.embeddings_ else ""
    made = bill(
        outcome.fitted.guarantee_,
        result=f"{_HOW[fitted.method_]}: {many}, {fitted.numbers_.protected}{looks}",
        quality=figures or known or "nothing public tells: give --test rows",
        following=f"privote predict {output / MODEL} ROWS --output FILE.csv",
        target=fitted.epsilon,
    )
    if outcome.score is not None:
        costs = (outcome.fitted.guarantee_.epsilon, outcome.score.guarantee.epsilon)
        model, score = (rounded_up(cost or 0.0, 4) for cost in costs)
        this = f"{model} for the model and {score} for its score"
        made["epsilon"] = spent(outcome.score.guarantee, this)
    return made


def measured(score: Score) -> str:
    """Return what a table of a score's noisy counts shows."""
    return (
        "On private records that the model did not learn from. Each count has noise with standard "
        f"deviation {score.deviation:.3g}, so it may be negative; shares follow from the noisy "
        "counts, and are empty where the noise is too large."
    )


def facts_of(outcome: Outcome, digest: str) -> dict[str, Any]:
    """Return what may be published about a training as plain values."""
    return {
        **outcome.facts(),
        "records": outcome.fitted.numbers_.records,
        "persons": outcome.persons,
        "model": {"file": MODEL, "sha256": digest},
        "columns": list(outcome.feature_names or ()),
    }


def about(outcome: Outcome, digest: str) -> list[Fact]:
    """Return in plain words what was trained, how it was set, and what would void the promise."""
    fitted = outcome.fitted
    columns = ", ".join(outcome.feature_names or ("all columns",))
    how = "was requested" if outcome.job.method != "auto" else "was chosen automatically"
    encoded = ""
    if isinstance(fitted.encoder_, PictureEncoder):
        network = fitted.encoder_.to_plain()
        encoded = (
            f" Pictures were embedded by the public network {network['network']} (weights with "
            f"SHA-256 {network['sha256']}), each separately, at {network['size']} x "
            f"{network['size']} pixels."
        )
    elif fitted.encoder_ is not None:
        encoded = " The encoding of columns was learnt from public rows only."
    copies = "" if outcome.persons else ". Records that are copies of each other"
    several = "; a person with several records is protected less" if not outcome.persons else ""
    facts = {
        "model": f"{_HOW[fitted.method_]}; it predicts {', '.join(outcome.label_names)} from "
        f"{columns}. SHA-256 digest of its file, {MODEL}: {digest}",
        "one record": f"a record is protected{several}",
        "settings": f"the method, {fitted.method_}, {how}. {' '.join(fitted.reasons_)}{encoded} As "
        "far as this program can tell, no setting depends on private records",
        "what would void the guarantee": f"{_VOID}{copies}",
    }
    if outcome.fitted.guarantee_.protects == PERSON:
        del facts["one record"]
    return [Fact(name, name, text) for name, text in facts.items()]


def card_of(outcome: Outcome, digest: str) -> str:
    """Return the card of the model, for those who publish it."""
    pictures = isinstance(outcome.fitted.encoder_, PictureEncoder)
    task = f"{'image' if pictures else 'tabular'}-classification"
    return model_card(outcome.fitted.guarantee_, about(outcome, digest), outcome.label_names, task)


def write_training_page(path: Path, outcome: Outcome, *, digest: str, command: str) -> Path:
    """Write one self-contained page; everything on it may be published."""
    fitted, judgement = outcome.fitted, outcome.judgement
    guarantee, release = fitted.guarantee_, fitted.release_
    sections, auc = [_expected(outcome)], ""
    if outcome.score is not None:
        sections.insert(0, _measured(outcome.score))
    if judgement is not None and judgement.public:
        sections.insert(0, judged(judgement))
        auc = f" Its AUC on the public test rows is {judgement.figures['AUC']:.3f}."
    if release is not None:
        sections.append(labels_section(release, outcome.label_names))
    sections += [
        Section(
            heading="Guarantee",
            blocks=[
                listed(guarantee.rows(), "What is promised."),
                listed(about(outcome, digest), "What it rests on."),
            ],
        ),
        Section(heading="How to repeat this run", blocks=[_REPEAT, Command(text=command)]),
    ]
    return write_page(
        path,
        title="A model of private records",
        intro=f"A model of {fitted.numbers_.protected}, by {fitted.method_}, "
        f"{cost_in_words(guarantee)}.{auc}",
        sections=sections,
        notices=[*notices(guarantee, release), *doubts_of(outcome.fitted.numbers_)],
    )


def write_owners_page(path: Path, judgement: Judgement) -> Path:
    """Write figures on private test rows, for the owner alone."""
    return write_page(
        path,
        title="How good the student is",
        intro=f"{OWNER_ONLY.capitalize()}: {UNCOVERED}.",
        sections=[judged(judgement)],
        sealed=True,
    )


def _measured(score: Score) -> Section:
    """Return what was released about records that the model did not learn from."""
    rows = listed(score.guarantee.rows(), "What this release promises; the model's is below.")
    table = TableBlock(caption=measured(score), rows=score.rows())
    return Section(heading="Measured quality of the model", blocks=[table, rows])


def _expected(outcome: Outcome) -> Section:
    """Return what public numbers and released ones say about the model, label by label."""
    fitted, labels = outcome.fitted, len(outcome.label_names)
    shares = [None] * labels if fitted.shares_ is None else map(float, fitted.shares_)
    bars = np.broadcast_to(np.asarray(fitted.thresholds_, float), (labels,)).tolist()
    rows = [
        {"label": name, **_of_label(outcome, share), "threshold": bar}
        for name, share, bar in zip(outcome.label_names, shares, bars, strict=True)
    ]
    table = TableBlock(
        caption="How many records are expected to carry each label, estimated from the release "
        "(noise included); what share of its AUC above 0.5 a label that common kept on public data "
        "sets (the middle set, and worst to best); and the threshold at which the student says yes "
        "to that share of the public rows.",
        rows=rows,
    )
    doubts = doubts_of(fitted.numbers_)  # which stand on top of the page
    told = [text for text in expected(fitted.numbers_, fitted.method_) if text not in doubts]
    blocks: list[Block] = [table, *told, *fitted.reasons_]
    return Section(heading="Expected quality of the model", blocks=blocks)


def _of_label(outcome: Outcome, share: float | None) -> Mapping[str, Any]:
    if share is None:
        return {"records": None}
    numbers = outcome.fitted.numbers_
    row: dict[str, Any] = {"records": round(share * numbers.records)}
    if outcome.fitted.method_ not in VOTERS:
        row["AUC kept"] = kept_in_words(numbers, max(share, 0.0))
    row["may be lost"] = evidence(numbers, max(share, 0.0)) < LITTLE
    return row


def judged(judgement: Judgement) -> Section:
    """Return how good a model is on test rows."""
    private = not judgement.public
    mark = {"may be published?": OWNER_ONLY} if private else {}
    where = f"On test rows: {UNCOVERED}" if private else "On the test rows, which are public"
    return Section(
        heading="How good the student is",
        blocks=[
            TableBlock(caption="Figures of merit.", rows=[{**judgement.figures, **mark}]),
            f"{where}; the student never saw their labels. {FIGURES_MEAN}",
            TableBlock(
                caption="The same for each label, and how many test rows have it.",
                rows=[{**row, **mark} for row in judgement.by_label],
            ),
            TableBlock(
                caption="How often a label was true, by the probability that the student gave it, "
                "in tenths. Equal numbers are calibrated; the thresholds need only the order.",
                rows=[
                    {"predicted": chance, "true": share, **mark}
                    for chance, share in judgement.reliability.items()
                ],
            ),
        ],
    )
