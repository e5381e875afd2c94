"""A forecast: how good labels will be, from public numbers and released labels alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: What no forecast can tell, because it is sealed.
UNSEEN = (
    "It cannot see voters who used up their allowance with yeses that nobody shared: their silence "
    "would make more labels be missed."
)
#: How the sentences begin that warn of voters who run out: on the way, or before this run.
LASTS, SPENT = "The allowance should last for", "Earlier runs have used up this allowance"


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What to expect of a release that is about to be made, or was made. May be published.

    Where voters are records and only those near a query speak on it, "every voter" is every one of
    those.

    Attributes
    ----------
    missed
        The chance that a label every voter wants is not released.
    false_alarm
        The chance that a label nobody wants is released.
    share_needed
        The share of the voters whose yes gives a 1 with 95 percent; None if not even all of them.
    near
        About how many voters speak on a query; None where all of them do.
    yes
        The share of yes among all votes that ``lasts`` is for; None where it is not known.
    yes_from
        Where that comes from: "stated" or "released"; None where it is not known.
    allowance
        Surprises a voter may cast in its life; None where there is no such thing.
    answered
        Queries answered from the allowance by now.
    lasts
        Queries in all for which the allowance should last, for the busiest voter too; None where
        nobody can run out, or ``yes`` is not known.
    warnings
        What to worry about, in short sentences.
    """

    missed: float
    false_alarm: float
    share_needed: float | None
    near: int | None = None
    yes: float | None = None
    yes_from: str | None = None
    allowance: int | None = None
    answered: int = 0
    lasts: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def whoever(self) -> str:
        """Whom a label that must not be missed is wanted by, in words."""
        return "every voter" if self.near is None else "every voter near a query"

    @property
    def yeses(self) -> str:
        """How often voters are taken to say yes, in words; for where ``yes`` is known."""
        share = self.yes or 0.0
        percent = f"{100 * share:.2g}" if share < 0.995 else "100"
        return f"{percent}% of all votes a yes"

    @property
    def lasting(self) -> str:
        """For how many queries the allowance should last, in words; for where that is known."""
        if not self.lasts:
            return "less than one query"
        return "1 query" if self.lasts == 1 else f"{self.lasts:,} queries"

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        return {**asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def of_facts(cls, facts: dict[str, Any]) -> Forecast:
        """Return the forecast that :meth:`facts` is about."""
        return cls(**{**facts, "warnings": tuple(facts["warnings"])})

    def lines(self) -> tuple[str, ...]:
        """Return it in words, a sentence each, the warnings last."""
        said = [
            f"A label that {self.whoever} wants is missed with probability {self.missed:.2g}, one "
            f"that nobody wants is released with probability {self.false_alarm:.2g}."
        ]
        if self.share_needed is not None:
            of = "the voters" if self.near is None else f"the about {self.near:,} voters near it"
            said.append(
                f"A label is released with 95 percent if {self.share_needed:.0%} of {of} want it."
            )
        if self.lasts is not None:
            said.append(
                f"At {self.yeses} ({self.yes_from}) the allowance should last for {self.lasting}. "
                f"{UNSEEN}"
            )
        return (*said, *self.warnings)
