"""Pages about released labels and trained models, and what a training leaves in its folder.

What is said, and under which name, is a result's own list of facts: :meth:`privote.Release.rows`,
and here that of a training. Pages, statements and terminals show the same list.
"""

from __future__ import annotations

import csv
import json
import math
import shlex
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from privote._version import written
from privote.accounting.renyi import rounded_up
from privote.files import complete, sync_files, write_statement
from privote.guarantees import OWNER_ONLY, Fact, statement_of
from privote.learning import save_student
from privote.learning.direct.training import training_rows
from privote.learning.jobs import Judgement, Outcome
from privote.learning.methods import doubts_of, expected
from privote.learning.pictures import PictureEncoder
from privote.votes.tables import write_header

from .labels import labels_section, listed, notices
from .page import Block, Command, Section, TableBlock, drawn, write_page
from .plots import by_parameter
from .tables import FIGURES_MEAN, Column, plain

MODEL, OWNERS, OWNERS_PAGE = "student.student", "for-the-owner.json", "for-the-owner.html"
UNCOVERED = "computed on private rows, not covered by epsilon and delta"
_OPTIONS = {"n_teachers": "teachers", "n_jobs": "jobs"}
_TECHNICAL = "In technical words:"
_HOW = {
    "gradients": "a linear model, trained by noisy gradient descent on the records",
    "moments": "a linear model, computed from one noisy sum of features times labels",
    "dpsgd": "a network, trained by noisy gradient descent on the records",
    "teachers": "a student, trained on noisy votes of teachers that each saw a part of the records",
    "neighbours": "a student, trained on noisy votes of the records nearest to each public row",
}


@dataclass(frozen=True, kw_only=True)
class TrainingStatement:
    """What is said about one training; everything in it may be published.

    Attributes
    ----------
    outcome
        What came of the training.
    digest
        SHA-256 of the model's file.
    """

    outcome: Outcome
    digest: str = ""

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        outcome = self.outcome
        return {
            **outcome.promise.facts(),
            "promise": outcome.promise.facts(),
            "method": outcome.fitted.method_,
            "reasons": list(outcome.fitted.reasons_),
            "records": outcome.fitted.numbers_.records,
            "persons": outcome.persons,
            "model": {"file": MODEL, "sha256": self.digest},
            "columns": list(outcome.feature_names or ()),
            "labels": list(outcome.label_names),
        }

    def statement(self) -> str:
        """Return it in plain words, the technical statement after them."""
        technical = self.outcome.promise.statement().removeprefix("PRIVACY STATEMENT").strip()
        return "\n".join([statement_of(self.rows()), "", _TECHNICAL, technical])

    def technical(self) -> list[Fact]:
        """Return what was done and what it costs, for whoever checks; brief: for a terminal."""
        outcome, release = self.outcome, self.outcome.release
        facts = outcome.promise.facts()
        rows: list[tuple[str, str, Any]] = [("method", "method", outcome.fitted.method_)]
        if release is not None:
            many = None if release.answered == outcome.rows else f"{release.answered:,}"
            rows += [
                ("rows", "public rows labelled", f"{outcome.rows:,}"),
                ("answers", "answers in total", many),
            ]
        else:
            rows += [(row.key, row.name, row.text) for row in training_rows(facts)]
        if not outcome.persons:
            assumed = "assumes one record per person (else use --group-column)"
            rows.append(("assumed", "assumed", assumed))
        return [
            *(Fact(key, name, str(text)) for key, name, text in rows if text),
            *([] if release is None else release.rows()),
        ]

    def rows(self) -> list[Fact]:
        """Return what is said in plain words, for whoever signs."""
        said = (
            ("protects", "who is protected", self._whom()),
            ("epsilon", "guarantee", self._promise()),
            ("meaning", "meaning", self._example()),
            ("model", "what was trained", self._what()),
            ("reasons", "how settings were chosen", self._settings()),
            ("void", "what is not covered, and what would void the guarantee", self._void()),
        )
        return [Fact(key, name, text, brief=False) for key, name, text in said]

    @property
    def _one(self) -> str:
        return "person" if self.outcome.persons else "record"

    def _whom(self) -> str:
        many = f"each of {self.outcome.fitted.numbers_.records:,} {self._one}s; "
        many += "their number is public"
        if self.outcome.persons:
            return f"{many}. All records of a person are protected together."
        return (
            f"{many}. A person with several records is protected less; name the column of persons "
            "to protect persons."
        )

    def _promised(self) -> float | None:
        """Return an epsilon, where one is promised to whoever it is."""
        facts = self.outcome.promise.facts()
        about_votes = facts["guarantee"] == "data-dependent"
        return None if facts["simulated"] or about_votes else facts["epsilon"]

    def _promise(self) -> str:
        facts, epsilon = self.outcome.promise.facts(), self._promised()
        if facts["simulated"]:
            return "none. SIMULATED: the noise came from a seed, so it protects nobody."
        if epsilon is None:
            return "not differential privacy: this guarantee holds for these votes only."
        stated, delta = rounded_up(epsilon, 4), rounded_up(facts["delta"])
        known = epsilon < 700  # beyond that no number is large enough
        factor = f" (that is {rounded_up(math.exp(epsilon), 3)})" if known else ""
        return (
            f"epsilon {stated} and delta {delta}. If the data of one {self._one} had been "
            "different, the probability of any outcome would have changed by at most a factor of "
            f"e^{stated}{factor}, plus {delta}."
        )

    def _example(self) -> str:
        epsilon, whole = self._promised(), self.outcome.promise.facts().get("total")
        if epsilon is None:
            return "no example, because there is no guarantee."
        seen = "studies the model and everything else released"
        if whole is not None:
            epsilon, seen = max(epsilon, whole), f"{seen} of this data set so far"
        factor = math.exp(min(epsilon, 700.0))
        odds = min(1.0, factor / (factor + 99) + self.outcome.promise.facts()["delta"])
        return (
            f"suppose that somebody believes with probability 1 % that a certain {self._one} has "
            f"a label, and then {seen}. Because of that "
            f"{self._one}'s own data, this belief cannot rise above {rounded_up(100 * odds, 3)} % "
            "(except with probability of about delta). What the model says about people in "
            "general may still apply to this one; that is its purpose."
        )

    def _what(self) -> str:
        outcome = self.outcome
        columns = "all columns" if outcome.feature_names is None else "the columns "
        columns += ", ".join(outcome.feature_names or ())
        return (
            f"{_HOW[outcome.fitted.method_]}; it predicts {', '.join(outcome.label_names)} from "
            f"{columns.strip()}. SHA-256 digest of its file, {MODEL}: {self.digest}."
        )

    def _settings(self) -> str:
        fitted = self.outcome.fitted
        how = "was requested" if self.outcome.job.method != "auto" else "was chosen"
        encoded = ""
        if isinstance(fitted.encoder_, PictureEncoder):
            made = fitted.encoder_.to_plain()
            encoded = (
                f" Pictures were embedded by the public network {made['network']} (weights with "
                f"SHA-256 {made['sha256']}), each separately, at {made['size']} x {made['size']} "
                "pixels."
            )
        elif fitted.encoder_ is not None:
            encoded = " The encoding of columns was learnt from public rows only."
        return (
            f"the method, {fitted.method_}, {how}. {' '.join(fitted.reasons_)}{encoded} As far as "
            "this program can tell, no setting depends on private records."
        )

    def _void(self) -> str:
        persons = "" if self.outcome.persons else " Records that are copies of each other."
        return (
            "settings chosen by looking at the private records or at figures on them. Public "
            "rows that are in fact private. Features that were scaled or encoded from other "
            "private records beforehand. Releases of the same data that were not charged to the "
            f"same ledger.{persons} Figures on private test rows, which are not covered by "
            "epsilon and delta and must not be published."
        )


def write_run(folder: Path, outcome: Outcome) -> list[str]:
    """Write everything, durably; returns the names of the files."""
    save_student(
        folder / MODEL,
        outcome.model,
        label_names=outcome.label_names,
        feature_names=outcome.feature_names,
        privacy={**outcome.promise.facts(), "method": outcome.fitted.method_},
        thresholds=outcome.fitted.thresholds_,
        encoder=outcome.fitted.encoder_,
        doubtful=outcome.fitted.doubtful_,
    )
    files = [MODEL, "statement.txt", "statement.json", "report.html"]
    if outcome.release is not None and outcome.public_rows is not None:
        with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
            write_header(stream, ["row", *outcome.label_names])
            rows = np.column_stack([outcome.public_rows, outcome.release.labels]).tolist()
            csv.writer(stream, lineterminator="\n").writerows(rows)
        files.insert(1, "labels.csv")
    digest = sha256((folder / MODEL).read_bytes()).hexdigest()
    said = TrainingStatement(outcome=outcome, digest=digest)
    write_statement(said, folder / "statement.txt")
    write_training_page(folder / "report.html", said)
    if outcome.judgement is not None and not outcome.judgement.public:
        files += _write_sealed(folder, outcome.judgement)
    sync_files(folder / name for name in files)
    return files


def _write_sealed(folder: Path, judgement: Judgement) -> list[str]:
    """Write figures on private test rows: values, and a page; for the owner alone."""
    sealed = {
        **written(1),
        "note": f"{OWNER_ONLY}: {UNCOVERED}",
        "test": [judgement.figures],
        "labels": judgement.by_label,
        "reliability": [list(point) for point in judgement.reliability.items()],
    }
    with complete(folder / OWNERS, force=True, owner_only=True) as part:
        part.write_text(json.dumps(plain(sealed), indent=2) + "\n", encoding="utf-8")
    with complete(folder / OWNERS_PAGE, force=True, owner_only=True) as part:
        write_page(
            part,
            title="How good the student is",
            intro=f"{OWNER_ONLY.capitalize()}: {UNCOVERED}.",
            sections=[_judged(judgement)],
            sealed=True,
        )
    return [OWNERS, OWNERS_PAGE]


def write_training_page(path: Path, said: TrainingStatement) -> Path:
    """Write one self-contained page; everything on it may be published."""
    outcome, release = said.outcome, said.outcome.release
    sections = [_expected(outcome)]
    if outcome.judgement is not None and outcome.judgement.public:
        sections.insert(0, _judged(outcome.judgement))
    facts = outcome.promise.facts()
    intro = f"A model of {outcome.fitted.numbers_.protected}, by {facts['guarantee']}."
    if release is not None:
        sections.append(labels_section(release, outcome.label_names))
        intro = (
            f"{outcome.rows:,} public rows were labelled by private votes, under the guarantee "
            f"{release.guarantee!r}, and a student was trained on them."
        )
    promise = listed(said.rows(), "In plain words.")
    technical = listed(said.technical(), _TECHNICAL.replace(":", "."))
    sections += [
        Section(heading="Guarantee", blocks=[promise, technical]),
        Section(heading="How to repeat this run", blocks=[Command(text=command(outcome))]),
    ]
    return write_page(
        path,
        title="A model of private records" if release is None else "A student of private votes",
        intro=intro,
        sections=sections,
        notices=[*notices(facts, release), *doubts_of(outcome.fitted.numbers_)],
    )


def command(outcome: Outcome) -> str:
    """Return the command that trains like this; without the ledger, whose place is private."""
    job = outcome.job
    options: dict[str, Any] = {
        "labels": ",".join(job.labels) or None,
        "columns": None if job.columns is None else ",".join(job.columns),
        "id-column": job.id_column,
        "group-column": job.group_column,
        "public": None if job.public is None else job.public.name,
        "epsilon": job.epsilon,
        "delta": job.delta,
        "method": job.method,
        "seed": job.seed,
    }
    options |= {
        _OPTIONS.get(name, name.replace("_", "-")): value
        for name, value in job.settings.items()
        if isinstance(value, (str, int, float))
    }
    words = [f"--{name} {shlex.quote(str(it))}" for name, it in options.items() if it is not None]
    data = shlex.quote(Path(job.data).name)
    return " ".join(["privote train", data, *words, "--output", "NEW_FOLDER"])


def _expected(outcome: Outcome) -> Section:
    """Return what public numbers and released ones say about the model."""
    fitted, labels = outcome.fitted, len(outcome.label_names)
    shares = [None] * labels if fitted.shares_ is None else map(float, fitted.shares_)
    bars = np.broadcast_to(np.asarray(fitted.thresholds_, float), (labels,)).tolist()
    rows = [
        {"label": name, "share": share, "threshold": bar}
        for name, share, bar in zip(outcome.label_names, shares, bars, strict=True)
    ]
    table = TableBlock(
        caption="How common each label is, estimated from the release (noise included), and the "
        "threshold at which the student says yes to that share of the public rows.",
        rows=rows,
        columns=[Column(key=key) for key in ("label", "share", "threshold")],
    )
    blocks: list[Block] = [table, *expected(fitted.numbers_, fitted.method_), *fitted.reasons_]
    return Section(heading="Expected quality of the model", blocks=blocks)


def _judged(judgement: Judgement) -> Section:
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
            drawn(
                "How often a label was true, against the probability that the student gave it. "
                "On the straight line the probabilities are calibrated. The thresholds need only "
                "the order of the probabilities.",
                lambda: by_parameter(
                    {"student": judgement.reliability, "calibrated": {0.0: 0.0, 1.0: 1.0}},
                    title="Reliability",
                    parameter="predicted probability",
                    quantity="share of true labels",
                    sealed=private,
                ),
            ),
        ],
    )
