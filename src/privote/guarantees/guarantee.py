"""What is promised, as one value that words itself: votes, trainings, polls and coalitions.

Bill, statement, page, JSON and model file all come from :class:`Guarantee`. Its statement is worded
once, when something is released; the ledger records the digest of that text.
"""

from __future__ import annotations

import json
import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module, metadata
from typing import Any

import numpy as np

from .._version import __version__
from ..accounting.renyi import rounded_up
from ..accounting.sanitize import published_cost_2018
from ..errors import InputError, finite
from ..ledger import Standing
from ..mechanisms.base import describe

#: Whom a guarantee protects: whatever reaches one voter only.
VOTER = "a voter"
RECORD = "a record"
PERSON = "a person, with all their records"

GUARANTEES = ("allowance", "worst-case", "data-dependent")
UNCONDITIONAL = "unconditional"
SANITIZED = "sanitized, this data only"
OWNER_ONLY = "for the owner's eyes"
SIMULATED = "Simulated: the noise came from a seed, so this protects nobody."

_MEANING = {
    "allowance": (
        "unconditional differential privacy: epsilon was fixed before any vote was seen, and "
        "holds for any number of adaptive queries to these voters"
    ),
    "worst-case": (
        "unconditional differential privacy: epsilon is the worst case over all possible votes; "
        "the number of queries answered was decided from public numbers"
    ),
    "data-dependent": (
        "a statement about these votes and their neighbours only; this is not differential "
        "privacy. The exact epsilon depends on the votes, so it is sealed"
    ),
    "gradients": "unconditional differential privacy of all noisy gradients together",
    "moments": "unconditional differential privacy of one noisy sum of features times labels",
    "poll": "unconditional differential privacy: epsilon was fixed before any ballot was counted",
    "score": "unconditional differential privacy of noisy counts of a model's hits and misses",
}
_LEARNT = "unconditional differential privacy: epsilon was fixed before any vote was seen"
#: How an epsilon was worked out.
RENYI = (
    "Rényi divergence of the exact outcome distribution (the larger of both directions), converted "
    "to epsilon by dp-accounting"
)
GAUSSIAN = "the exact (epsilon, delta) of Gaussian noise"
SAMPLED = "privacy loss distributions of sampled Gaussian steps, rounded up, by dp-accounting"
_BY_MU = (
    f"{GAUSSIAN}, for the worst possible private choice of the allowance; it does not depend on "
    "the choice"
)
_NEIGHBOURS = (
    "Two sets of votes are neighbours if they differ in the ballots of one voter, on any or all "
    "queries (replace one voter)"
)
_PRIOR = 0.01  # of the belief in the example


class Shown(ABC):
    """A result that shows itself in a notebook: what it says in brief, and one drawing of it."""

    @abstractmethod
    def brief(self) -> dict[str, str]:
        """Return what is said about it in a few words each, by name: nothing sealed."""

    def _repr_html_(self) -> str:
        # By name: how it looks is the business of a room above, which is loaded if a notebook asks.
        return str(import_module("privote.report.notebook").html(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


@dataclass(frozen=True)
class Fact:
    """One thing that is said about a result, under the same name everywhere.

    Attributes
    ----------
    key
        Under which JSON has the value.
    name, text
        What it is called, and what is said.
    brief
        Whether it is worth a line in a terminal; statements and pages have all.
    """

    key: str
    name: str
    text: str
    brief: bool = True


class Later:
    """A number that is worked out when somebody asks for it, and then kept."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    @cached_property
    def value(self) -> Any:
        """The number."""
        return self._work()

    def __repr__(self) -> str:
        return "<sealed>"


class Sealed:
    """Numbers for the owner's eyes: they depend on the votes. Shown only when asked for by name.

    Under "data-dependent", ready at once: ``epsilon``, the Rényi costs of all queries added up,
    ``rdp`` by ``orders``, and the ``bound`` they rest on. Worked out when asked for: the exact cost
    of the batch, voter by voter, as ``epsilon_by_voter``, the smaller of ``epsilon_rdp`` and
    ``epsilon_pld`` (None where there is none), and whose it is, the ``accountant``; and each
    voter's own epsilon, ``bills()``. Under "allowance": what each voter has ``spent`` of its
    ``allowance``, how many of its ballots were ``clipped`` (they counted as the baseline), and who
    is ``exhausted``: spent all of it, or was clipped once, and so for good.
    """

    def __init__(self, **numbers: Any) -> None:
        self.__dict__.update(numbers)

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value.value if isinstance(value, Later) else value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no sealed number {name!r}; available: {', '.join(vars(self))}")

    @property
    def exhausted(self) -> Any:
        """Which voters have nothing left of their allowance, or no say any more."""
        return np.asarray((self.spent >= self.allowance) | (self.clipped > 0))

    def __repr__(self) -> str:
        return "<sealed>"

    def __reduce__(self) -> tuple[type[Sealed], tuple[()]]:
        """Leave everything behind when pickled or copied: what is sealed stays in this process."""
        return Sealed, ()


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """Public terms of noise that is set from an allowance: learnt privately, or fixed.

    Attributes
    ----------
    planned, resolution
        For how many queries in total, and steps of a vote that is a probability.
    epsilon0, mu
        What the learning costs (0 where nothing is learnt), and the Gaussian privacy of all
        planned tallies together.
    """

    planned: int
    resolution: int
    epsilon0: float
    mu: float

    @property
    def learns(self) -> bool:
        """Whether the allowance was learnt from the votes."""
        return self.epsilon0 > 0

    def __str__(self) -> str:
        queries = f"for {self.planned:,} queries in total"
        if not self.learns:
            return f"the noise was set from public numbers only, {queries}"
        return (
            "the allowance was chosen privately from all votes, and its choice is part of this "
            f"epsilon (range {rounded_up(self.epsilon0, 4)}); the noise was set from it, {queries}"
        )


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """Public terms of a data-dependent epsilon that may be published."""

    order: float
    beta: float
    sigma_s: float
    gamma: float
    price: float

    def __str__(self) -> str:
        numbers = ", ".join(
            f"{name} {rounded_up(value, 4) if name == 'price' else f'{value:.4g}'}"
            for name, value in asdict(self).items()
        )
        return (
            f"sanitized: with confidence {1 - self.gamma:g} (1 - gamma) these labels and this "
            "number are (epsilon, delta)-close to those of every neighbour of these votes. Its "
            "noise is sigma_s times the smooth sensitivity: how far the cost can move if one "
            "voter's ballots change, here or, discounted by exp(-beta) per ballot, nearby; "
            f"{numbers}"
        )

    @property
    def compared(self) -> str | None:
        """What PATE 2018 would price the number at; None where its formula has no value."""
        if 2 * self.order * self.beta >= 1:
            return None
        price = published_cost_2018(self.order, self.beta, self.sigma_s)
        return (
            f"PATE 2018 (Theorem 23) would price the sanitized number at {rounded_up(price, 4)}, "
            "which is not a valid bound"
        )


_TERMS = {"learnt": Learnt, "sanitized": Sanitized}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is promised about one release, and what its data set has cost so far.

    Attributes
    ----------
    kind
        "allowance", "worst-case" or "data-dependent" of votes; "gradients" or "moments" of a
        training; "poll".
    epsilon, delta
        Of this release alone; epsilon is None where only a sealed number exists.
    protects
        Whom: "a voter", or what reaches one voter only, and against which change.
    released
        What leaves, in a few words.
    mechanism
        Its public parameters.
    voters
        How many are protected: voters, records or persons.
    terms
        What else is public about how noise or epsilon came about.
    allowance, answered_total
        Contributions that a voter may cast in total (one number, or one per voter); and how many
        queries were answered from it by now.
    simulated
        True if a seed was given: the draws are reproducible and protect nobody.
    standing
        What all releases of the data set cost by now; None without a ledger.
    accountant
        How epsilon was worked out, in words.
    notes
        Further sentences of the statement.
    drawn
        The digest of what was drawn.
    """

    kind: str
    epsilon: float | None
    delta: float
    mechanism: Mapping[str, Any]
    voters: int
    released: str
    protects: str = VOTER
    terms: Learnt | Sanitized | None = None
    allowance: int | tuple[int, ...] | None = None
    answered_total: int | None = None
    simulated: bool = False
    standing: Standing | None = None
    accountant: str = RENYI
    notes: tuple[str, ...] = ()
    drawn: str = ""
    made_at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    version: str = __version__
    text: str | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.kind

    @property
    def mark(self) -> str:
        """What may be done with the epsilon: publish it, or publish it as of this data only."""
        if self.kind != "data-dependent":
            return UNCONDITIONAL
        return OWNER_ONLY if self.epsilon is None else SANITIZED

    @property
    def total(self) -> float | None:
        """Epsilon of all releases of the data set so far; None where it is not unconditional."""
        if self.kind == "data-dependent":
            return None
        standing = self.standing
        return self.epsilon if standing is None or standing.total is None else standing.total

    # -- as values ---------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON and for files; the statement's text, too."""
        facts = asdict(self) | {"mechanism": dict(self.mechanism), "notes": list(self.notes)}
        name = next((name for name, kind in _TERMS.items() if isinstance(self.terms, kind)), None)
        facts["terms"] = {} if name is None else {name: facts["terms"]}
        if isinstance(self.allowance, tuple):
            facts["allowance"] = list(self.allowance)
        return {**facts, "text": self.statement()}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`facts` is about."""
        for name in ("epsilon", "delta"):
            if facts[name] is not None and finite(name, facts[name]) < 0:
                raise InputError(name, "must not be negative", facts[name])
        values = dict(facts)
        values["terms"] = next((_TERMS[name](**of) for name, of in facts["terms"].items()), None)
        standing, allowance = facts["standing"], facts["allowance"]
        values["standing"] = None if standing is None else Standing(**standing)
        values["allowance"] = tuple(allowance) if isinstance(allowance, list) else allowance
        values["notes"] = tuple(facts["notes"])
        return cls(**values)

    # -- in words ----------------------------------------------------------------------------------

    def statement(self) -> str:
        """Return the privacy statement for the person who signs off: published numbers only."""
        return self.text or statement_of([*self.rows(), *_software(self.version)])

    def rows(self) -> list[Fact]:
        """Return all that is said about it, as every rendering has it."""
        simulated = SIMULATED[11:] if self.simulated else None
        source = "a seed" if simulated else "the operating system's cryptographic generator"
        learnt = isinstance(self.terms, Learnt)
        rows = [
            ("SIMULATED", "simulated", simulated, True),
            ("epsilon", "epsilon", self._epsilon(), True),
            ("delta", "delta", rounded_up(self.delta), True),
            ("so far", "total", self._so_far(), True),
            ("budget", "budget", self._budget(), True),
            ("NEW", "new", self._new(), True),
            ("guarantee", "kind", f"{self.kind}: {self._kind()}", True),
            ("who is protected", "protects", self._protected(), False),
            ("meaning", "meaning", self._factor(), False),
            ("example", "example", self.example(), False),
            ("released", "released", self.released, False),
            ("mechanism", "mechanism", describe(dict(self.mechanism)), True),
            ("noise", "sigma", self._noise(), True),
            ("terms", "terms", None if self.terms is None else str(self.terms), True),
            ("allowance", "allowance", self._allowance(), True),
            ("later queries", "remaining", self._remaining(), True),
            ("for comparison only", "price_2018", self._compared(), False),
            ("what may depend on released labels", "adaptive", self._adaptive(), False),
            *(("note", f"note_{place}", note, False) for place, note in enumerate(self.notes)),
            ("accountant", "accountant", _BY_MU if learnt else self.accountant, False),
            ("random source", "random", source, False),
            ("ledger", "ledger", self._place(), False),
            ("made", "made_at", self.made_at, False),
            ("SHA-256 digest of the numbers drawn", "drawn", self.drawn, False),
        ]
        return [Fact(key, name, text, brief) for name, key, text, brief in rows if text]

    def _epsilon(self) -> str:
        if self.epsilon is None:
            return "sealed: it depends on the votes"
        alone = "" if self.standing is None else "this release alone; "
        return f"{rounded_up(self.epsilon)} ({alone}{self.mark}; may be published)"

    def _so_far(self) -> str | None:
        """Say what all releases of the data set cost together by now."""
        standing = self.standing
        if standing is None or standing.total is None:
            return None
        total = f"epsilon {rounded_up(standing.total, 4)} at delta {rounded_up(self.delta)}"
        if standing.runs == 1:
            return f"{total}: this is the only release charged to data set {standing.dataset!r}"
        return (
            f"{total} for all {standing.runs} releases charged to data set {standing.dataset!r}. "
            "They are added up at one Rényi order, fixed with the budget, so after few or small "
            "releases this can be more than the sum of their epsilons"
        )

    def _budget(self) -> str | None:
        """Say what the data set may cost in all, and how much of that is used."""
        standing = self.standing
        if standing is None or standing.share is None:
            return None
        raised = ", raised after its first charge" if standing.raised else ""
        used = f"{100 * standing.share:.0f} % used"
        return f"epsilon {rounded_up(standing.budget)} in all{raised}, {used}"

    def _new(self) -> str | None:
        standing = self.standing
        if standing is None or not standing.new:
            return None
        return f"this is the first charge to data set {standing.dataset!r} in this ledger"

    def _kind(self) -> str:
        return _LEARNT if isinstance(self.terms, Learnt) else _MEANING[self.kind]

    def _protected(self) -> str:
        if self.protects == VOTER:
            return (
                f"each of {self.voters:,} voters. {_NEIGHBOURS}. This also protects each person if "
                "all of a person's records reach only one voter; that was not recorded"
            )
        if self.kind in GUARANTEES:
            return (
                f"{self.protects}, because it reaches only one of {self.voters:,} voters. This is "
                f"stated by whoever made the voters; the votes cannot show it. {_NEIGHBOURS}"
            )
        return f"{self.protects}, replaced by any other; their number, {self.voters:,}, is public"

    def _factor(self) -> str | None:
        """Say what epsilon bounds."""
        if self.epsilon is None or self.simulated or self.kind == "data-dependent":
            return None
        factor = f" (that is {rounded_up(math.exp(self.epsilon), 3)})" if self.epsilon < 700 else ""
        return (
            f"if {self._one} had been different, the probability of any outcome would have changed "
            f"by at most a factor of e^{rounded_up(self.epsilon, 4)}{factor}, plus "
            f"{rounded_up(self.delta)}"
        )

    @property
    def _one(self) -> str:
        unit = self.protects.partition(" (")[0].partition(",")[0]
        if unit == VOTER:
            return "one voter's ballots, on any or all queries,"
        return f"the data of {unit.replace('a ', 'one ', 1)}"

    def example(self) -> str | None:
        """Say how far a belief can rise by all releases so far: the odds, by their epsilon."""
        if self.simulated or self.total is None:
            return None
        factor = math.exp(min(self.total, 700.0))
        belief = min(1.0, factor * _PRIOR / (1 - _PRIOR + factor * _PRIOR) + self.delta)
        seen = "this release, and nothing else about these data"
        if self.standing is not None:
            seen = "all releases charged to this data set so far"
        one = self.protects.partition(" (")[0].partition(",")[0].removeprefix("a ")
        return (
            f"suppose that somebody believes with probability {100 * _PRIOR:g} % that a certain "
            f"{one} has some property, and then studies {seen}. Because of that {one}'s own data, "
            f"this belief cannot rise above {rounded_up(100 * belief, 3)} % (except with "
            "probability of about delta). What is learnt about people in general may still apply"
        )

    def _noise(self) -> str | None:
        sigma = self.mechanism.get("sigma")
        if sigma is None or self.kind not in GUARANTEES:
            return None
        return f"standard deviation about {sigma:.3g} votes, on counts of up to {self.voters:,}"

    def _allowance(self) -> str | None:
        if self.allowance is None:
            return None
        limits = self.allowance if isinstance(self.allowance, tuple) else (self.allowance,)
        span = " to ".join(f"{value:,}" for value in sorted({min(limits), max(limits)}))
        queries, which = self.answered_total or 0, "answered so far, all under this one epsilon"
        if isinstance(self.terms, Learnt):
            queries, which = self.terms.planned, "planned"
        many = "one query" if queries == 1 else f"each of the {queries:,} queries"
        share = f", that is {min(limits) / queries:.2g} for {many} {which}" if queries else ""
        return (
            f"{span} contributions per voter in total{share}. A voter who casts more counts as the "
            "baseline from then on; which voters did is sealed"
        )

    def _remaining(self) -> str | None:
        """Say for how many more queries the allowance is."""
        if self.standing is None or not isinstance(self.terms, Learnt):
            return None
        more = self.terms.planned - (self.answered_total or 0)
        if not more:
            return "none: name the queries of all runs in the first one (plan_for) to pay once"
        return f"{more:,} more are paid for: they are answered at no further charge (plan_for)"

    def _compared(self) -> str | None:
        return self.terms.compared if isinstance(self.terms, Sanitized) else None

    def _adaptive(self) -> str | None:
        """Say what may be chosen from released labels without breaking the guarantee."""
        if self.kind not in GUARANTEES:
            return None
        if self.kind == "data-dependent":
            return "nothing: queries and settings were fixed before any label was seen"
        text, standing = "later queries, baselines and the time to stop", self.standing
        if standing is None:
            return f"{text}; the budget covers this run only"
        if standing.whole:
            return f"{text}; it took the whole budget, so nothing else is charged to the data set"
        return (
            f"{text}; also the mechanism, settings and number of later runs: charges add up at "
            f"order {standing.order:g}, fixed with the budget"
        )

    def _place(self) -> str:
        if self.standing is None:
            return "none: the budget covers this run only; other releases of the data add to it"
        place = f"entry {self.standing.entry}, digest {self.standing.digest}"
        return f"data set {self.standing.dataset!r}, {place}"


def _software(version: str) -> list[Fact]:
    packages = {"privote": version, "dp-accounting": metadata.version("dp-accounting")}
    packages |= {"numpy": np.__version__, "Python": platform.python_version()}
    text = ", ".join(f"{name} {number}" for name, number in packages.items())
    return [Fact("version", "software", text, False)]


def statement_of(rows: Iterable[Fact]) -> str:
    """Return facts as a statement that somebody signs: a line each."""
    lines = []
    for row in rows:
        symbol = row.name in ("epsilon", "delta")
        name = row.name if symbol else f"{row.name[0].upper()}{row.name[1:]}"
        lines.append(f"{name}: {row.text.removesuffix('.')}.")
    return "\n".join(["PRIVACY STATEMENT", "", *lines])


def worded(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee with the text of its statement, which no later version rewords."""
    return replace(guarantee, text=guarantee.statement())


def to_json(facts: Mapping[str, Any]) -> str:
    """Return facts as a file holds them."""
    return json.dumps(facts, indent=2, default=str, ensure_ascii=False) + "\n"
