"""What a querying party takes home: labels, and in plain words what was promised to whom."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import written
from ..errors import PrivoteWarning
from ..files import complete, write_statement
from ..guarantees.guarantee import Fact, Guarantee, statement_of
from ..ledger import Budget
from ..planning import forecast
from ..release import forecast_in_words
from .charges import Prices
from .engine import ClearEngine
from .terms import Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledBatch:
    """Released labels, and all that may be said about them.

    Attributes
    ----------
    terms, querier
        What all sites agreed on; who asked.
    batch
        The keyed digest of the rows.
    labels
        (queries, labels) int8: 1, 0 or ABSTAIN (-1).
    parties, left_out
        Who took part; why, of everybody who did not.
    resumed
        Whether an earlier run's charge paid for it.
    simulated, engine
        Whether masks and noise had a seed; which engine ("clear" hides nothing).
    """

    terms: Terms
    querier: str
    batch: str
    labels: npt.NDArray[np.int8]
    parties: tuple[str, ...]
    left_out: Mapping[str, str]
    resumed: bool
    simulated: bool
    engine: str

    @property
    def voters(self) -> int:
        """How many answering parties are registered."""
        return len(self.terms.voters(self.querier))

    @property
    def guarantee(self) -> Guarantee:
        """The whole budget of each answering party's data, for all batches of all who ask.

        No smaller number is true of one querying party alone, because answering models may have
        learnt from labels that others received (ACCOUNTING, section 11).
        """
        terms, (queries, labels) = self.terms, self.labels.shape
        return Guarantee(
            kind=terms.guarantee,
            epsilon=terms.epsilon,
            delta=terms.delta,
            mechanism=terms.mechanism.parameters(),
            voters=self.voters,
            released=f"{labels} labels for each of {queries} rows of {self.querier}",
            allowance=tuple(Prices(terms).allowances(self.querier).values()) or None,
            simulated=self.simulated,
            notes=tuple(self._notes()),
        )

    @property
    def stamp(self) -> str:
        """What must stand on everything that is made of it; empty if it is secure."""
        clear = self.engine == ClearEngine.name
        why = ["INSECURE: the engine computes in clear and hides nothing"] if clear else []
        if self.simulated:
            why.append("SIMULATED: masks and noise come from a seed and protect nobody")
        return "; ".join(why)

    def facts(self) -> dict[str, Any]:
        """Return all but the labels, as JSON."""
        terms = self.terms
        of_terms = ("epsilon", "delta", "guarantee", "noise")
        own = ("batch", "querier", "voters", "left_out", "resumed", "simulated", "engine", "stamp")
        return {
            **{name: getattr(self, name) for name in own},
            **{name: getattr(terms, name) for name in of_terms},
            "parties": list(self.parties),
            "coalition": terms.name,
            "terms": terms.digest(),
            "queries": len(self.labels),
            "labels": len(terms.labels),
            "mechanism": str(terms.mechanism),
            "allowance_by_party": Prices(terms).allowances(self.querier),
            "contribution_unit": terms.mechanism.contribution_unit,
            "forecast": expected_of(terms, self.querier, len(self.labels)),
            "secure": not self.stamp,
        }

    def statement(self) -> str:
        """Return the guarantee in plain words."""
        terms = self.terms
        words = {
            "protects": "each answering site, with all its training data, against anyone who sees "
            "the labels. Neighbours differ in the data of one site (replace one site)",
            "adaptive": "rows, later batches, and models that are trained again: the budget "
            "covers all batches of all querying sites, past and future",
            "ledger": f"kept by {terms.guardian}. Epsilon is each site's whole budget; no smaller "
            "one is stated for this querying site alone, since answering sites may have learnt "
            "from labels that others received",
        }
        rows = [replace(row, text=words.get(row.key, row.text)) for row in self.guarantee.rows()]
        if self.stamp:
            rows.insert(0, Fact("stamp", "NOT A GUARANTEE", self.stamp))
        return statement_of(rows)

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write ``labels.npz``, ``statement.txt`` and facts as ``statement.json``."""
        terms = self.terms
        with complete(folder / "labels.npz", force=True) as part, part.open("wb") as stream:
            np.savez_compressed(
                stream,
                labels=self.labels,
                label_names=np.array(terms.labels),
                feature_names=np.array([] if isinstance(terms.features, int) else terms.features),
                written=json.dumps(written(1)),
            )
        write_statement(self.statement(), facts, folder / "statement.txt")

    def _notes(self) -> list[str]:
        terms, paid = self.terms, ", already paid for" if self.resumed else ""
        there = f"{len(self.parties)} of {self.voters} sites took part: {', '.join(self.parties)}"
        secure = "Rows, models and votes were seen only by their owners, tallies by nobody"
        if self.stamp:
            secure = "It hides nothing"
        told = expected_of(terms, self.querier, len(self.labels))
        return [
            f"batch {self.batch} of the coalition {terms.name!r}{paid}",
            "; ".join([there, *(f"{site}: {why}" for site, why in self.left_out.items())]),
            *self._noise(),
            " ".join(["expected:", forecast_in_words(told), *told["warnings"]]),
            f"engine {self.engine}. {secure}. This rests on sites that follow the protocol and on "
            "a guardian that colludes with nobody",
        ]

    def _noise(self) -> list[str]:
        """Return what is said of who drew the noise, and towards whom it protects."""
        voters, missing = self.voters, self.voters - len(self.parties)
        shared = self.terms.counted.shared
        if shared is None:
            return [
                "the guardian drew the noise and knows it. There is no guarantee against the "
                "guardian: whoever sees both these labels and its noise knows the tallies"
            ]
        known = sorted({2, missing, voters // 2})
        left = [
            f"{shared.without(told).sigma(voters):.4g} to {told}"
            for told in known
            if 2 <= told < voters
        ]
        remains = f". To whoever knows more shares a smaller sigma remains: {', '.join(left)}"
        return [
            f"each of the {voters} answering sites drew a share of the noise; nobody knows the "
            f"sum. Any {voters - 1} shares have the stated sigma, so epsilon also holds against "
            "each site and, if it knows at most one share, the guardian, which drew "
            f"{missing} for missing sites{remains if left else ''}"
        ]


def expected_of(terms: Terms, querier: str, queries: int) -> dict[str, Any]:
    """Return how good labels for so many rows will be, by the terms alone."""
    return forecast(
        terms.mechanism,
        len(terms.voters(querier)),
        len(terms.labels),
        allowance=min(Prices(terms).allowances(querier).values(), default=None),
        asked=queries,
    )


def warn_of_quality(terms: Terms, querier: str, queries: int) -> None:
    """Warn before anything is asked if labels will not be good, and say what would help.

    Also of a budget that promises little.
    """
    Budget(epsilon=terms.epsilon, delta=terms.delta).warn(len(terms.parties))
    told = expected_of(terms, querier, queries)["warnings"]
    if told:
        text = (
            f"{len(terms.voters(querier))} sites answer {queries:,} rows. {' '.join(told)} More "
            "sites, fewer rows or a larger epsilon would help."
        )
        warnings.warn(text, PrivoteWarning, stacklevel=3)
