"""What a querying party takes home: labels, and in plain words what was promised to whom."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PrivoteWarning
from ..files import complete, write_statement, written
from ..guarantees import Fact, Guarantee
from ..ledger import Budget
from ..planning import forecast
from ..release import forecast_in_words
from .charges import Prices
from .engine import ClearEngine
from .terms import Terms

_WORDS = {
    "protects": "each answering site, with all its training data, against anyone who sees the "
    "labels (replace one site)",
    "adaptive": "all later batches, and models that are trained again: one budget covers all "
    "batches of all querying sites, past and future",
    "ledger": "kept by the guardian; no smaller epsilon is stated for one querying site, since "
    "models may have learnt from labels that others received",
}


@dataclass(frozen=True, kw_only=True)
class SiteGuarantee(Guarantee):
    """What a coalition promises each site: its whole budget; ``stamp`` says why it is void."""

    stamp: str = ""

    def rows(self) -> list[Fact]:
        """Return all that is said about it."""
        rows = [replace(row, text=_WORDS.get(row.key, row.text)) for row in super().rows()]
        return [*([Fact("stamp", "NOT A GUARANTEE", self.stamp)] if self.stamp else []), *rows]


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
        terms = self.terms
        return SiteGuarantee(
            stamp=self.stamp,
            kind=terms.guarantee,
            epsilon=terms.epsilon,
            delta=terms.delta,
            mechanism=terms.mechanism.parameters(),
            voters=self.voters,
            released=f"labels of {len(self.labels)} rows of {self.querier}",
            allowance=tuple(Prices(terms).allowances(self.querier).values()) or None,
            simulated=self.simulated,
            notes=tuple(self._notes()),
        )

    @property
    def stamp(self) -> str:
        """What must stand on everything that is made of it; empty if it is secure."""
        clear = "INSECURE: the engine computes in clear and hides nothing"
        seeded = "SIMULATED: masks and noise come from a seed and protect nobody"
        why = {clear: self.engine == ClearEngine.name, seeded: self.simulated}
        return "; ".join(text for text, holds in why.items() if holds)

    def facts(self) -> dict[str, Any]:
        """Return all but the labels, as JSON."""
        terms = self.terms
        own = ("batch", "querier", "parties", "voters", "left_out", "resumed", "engine", "stamp")
        return {
            **{name: getattr(self, name) for name in own},
            **{name: getattr(terms, name) for name in ("guarantee", "epsilon", "delta", "noise")},
            "coalition": terms.name,
            "queries": len(self.labels),
            "mechanism": str(terms.mechanism),
            "contribution_unit": terms.mechanism.contribution_unit,
            "allowance_by_party": Prices(terms).allowances(self.querier),
            "secure": not self.stamp,
        }

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write ``labels.npz``, ``statement.txt`` and facts as ``statement.json``."""
        names = {"label_names": self.terms.labels, "written": json.dumps(written(1))}
        if not isinstance(self.terms.features, int):
            names["feature_names"] = self.terms.features
        stream = io.BytesIO()  # a full disk is then met by us, not by numpy
        np.savez_compressed(stream, labels=self.labels, **names)
        with complete(folder / "labels.npz", force=True) as part:
            part.write_bytes(stream.getvalue())
        write_statement(self.guarantee.statement(), facts, folder / "statement.txt")

    def _notes(self) -> Iterator[str]:
        voters, parties = self.voters, self.parties
        paid = ", paid for by an earlier charge" if self.resumed else ""
        yield f"batch {self.batch} of the coalition {self.terms.name!r}{paid}"
        yield f"{len(parties)} of {voters} sites took part: {', '.join(parties)}"
        for site, why in self.left_out.items():
            yield f"{site} did not: {why}"
        missing, shared = voters - len(parties), self.terms.counted.shared
        if shared is None:
            yield (
                "the guardian drew the noise. There is no guarantee against the guardian: whoever "
                "sees both these labels and its noise knows the tallies"
            )
        else:
            yield (
                f"each of the {voters} answering sites draws a share of the noise, and nobody "
                f"knows the sum. Any {voters - 1} shares have the stated sigma, so epsilon also "
                "holds against each site and, if it knows at most one share, the guardian; it "
                f"drew {missing} for missing sites"
            )
            for known in sorted({2, missing, voters // 2} & {*range(2, voters)}):
                left = shared.without(known).sigma(voters)
                yield f"against whoever knows {known} shares, a sigma of {left:.4g} remains"
        told = expected_of(self.terms, self.querier, len(self.labels))
        yield " ".join(["expected:", forecast_in_words(told), *told["warnings"]])
        secure = "" if self.stamp else ": rows, models and votes were seen only by their owners"
        yield (
            f"engine {self.engine}{secure}. All of it rests on sites that follow the protocol and "
            "on a guardian that colludes with nobody"
        )


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
