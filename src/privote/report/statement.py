"""What a privacy officer signs about a trained model: whom it protects, what it promises, and how.

Two things follow each other: plain words, for whoever signs, and the technical statement of the
release or the training, for whoever checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from privote.accounting.renyi import rounded_up
from privote.learning.jobs import Outcome

_HOW = {
    "gradients": "a linear model, by noisy gradient descent on the records",
    "moments": "a linear model, from one noisy sum of features times labels",
    "dpsgd": "a network, by noisy gradient descent on the records",
    "teachers": "a student, from noisy votes of models that each saw a part of the records",
    "neighbours": "a student, from noisy votes of the records that are near each public row",
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
    digest: str

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
            "model": {"file": "student.student", "sha256": self.digest},
            "columns": list(outcome.feature_names or ()),
            "labels": list(outcome.label_names),
        }

    def statement(self) -> str:
        """Return it in plain words, the technical statement after them."""
        said = self.outcome.promise.statement().strip().removeprefix("PRIVACY STATEMENT").strip()
        parts = [f"{name}: {text}" for name, text in self.parts()]
        return "\n".join(["PRIVACY STATEMENT", "", *parts, "", "In technical words:", said])

    def parts(self) -> list[tuple[str, str]]:
        """Return what is said, under which heading."""
        return [
            ("Who is protected", self._whom()),
            ("What is promised", self._promise()),
            ("What that means", self._example()),
            ("What was trained", self._what()),
            ("Where settings came from", self._settings()),
            ("What is not covered, and what would void this", self._void()),
        ]

    @property
    def _one(self) -> str:
        return "person" if self.outcome.persons else "record"

    def _whom(self) -> str:
        count = self.outcome.fitted.numbers_.records
        many = f"each of {count:,} {self._one}s; their number is public"
        if self.outcome.persons:
            return f"{many}. All records of a person are protected together."
        return (
            f"{many}. A person with several records is protected less: name the column of persons "
            "for a promise to persons."
        )

    def _promise(self) -> str:
        facts = self.outcome.promise.facts()
        if facts["simulated"]:
            return "nothing. SIMULATED: the noise came from a seed, so this protects nobody."
        if facts["epsilon"] is None or _is_about_votes(facts):
            return (
                "nothing that differential privacy would: this guarantee is about these votes only."
            )
        epsilon, delta = rounded_up(facts["epsilon"], 4), rounded_up(facts["delta"])
        known = facts["epsilon"] < 700  # beyond that no number is large enough
        factor = f", which is {rounded_up(math.exp(facts['epsilon']), 3)}" if known else ""
        return (
            f"epsilon {epsilon} and delta {delta}. If the data of one {self._one} had been "
            "different, the probability of any outcome would have changed by at most a factor "
            f"e^{epsilon}{factor}, plus {delta}."
        )

    def _example(self) -> str:
        facts = self.outcome.promise.facts()
        if facts["simulated"] or facts["epsilon"] is None or _is_about_votes(facts):
            return "there is no example where nothing is promised."
        factor = math.exp(min(facts["epsilon"], 700.0))
        odds = min(1.0, factor / (factor + 99) + facts["delta"])
        return (
            f"suppose that somebody holds it for one per cent likely that a certain {self._one} "
            "has a label, and then studies the model and all else that was released. Whatever is "
            f"found, this belief cannot rise above {rounded_up(100 * odds, 3)} per cent because of "
            f"that {self._one}'s own data (but for a chance of about delta). What the model says "
            "about people in general may still be true of this one: that is what it is for."
        )

    def _what(self) -> str:
        outcome = self.outcome
        columns = "all columns" if outcome.feature_names is None else "the columns "
        columns += ", ".join(outcome.feature_names or ())
        return (
            f"{_HOW[outcome.fitted.method_]}; it predicts {', '.join(outcome.label_names)} from "
            f"{columns.strip()}. Its file, student.student, has the SHA-256 digest {self.digest}."
        )

    def _settings(self) -> str:
        how = "was asked for" if self.outcome.job.method != "auto" else "was chosen"
        encoded = (
            " How columns become numbers was learnt from public rows alone."
            if self.outcome.fitted.encoder_ is not None
            else ""
        )
        reasons = " ".join(self.outcome.fitted.reasons_)
        return (
            f"the method, {self.outcome.fitted.method_}, {how}. {reasons}{encoded} No setting "
            "follows from private records, as far as this program knows."
        )

    def _void(self) -> str:
        persons = "" if self.outcome.persons else " Records that are copies of each other."
        return (
            "settings that somebody chose by looking at the private records or at figures on them. "
            "Public rows that are private after all. Features that were scaled or encoded by "
            "looking at other private records, before they came here. Releases of the same data "
            f"that were not charged to the same ledger.{persons} Figures on private test rows, "
            "which no epsilon covers and which must not leave."
        )


def _is_about_votes(facts: dict[str, Any]) -> bool:
    """Return whether a guarantee speaks of the votes there were, and is no differential privacy."""
    return bool(facts["guarantee"] == "data-dependent")
