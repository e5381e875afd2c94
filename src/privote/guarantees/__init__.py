"""What is promised, as one value that words itself: votes, trainings, polls and coalitions.

Bill, statement, page, JSON and model file all come from :class:`Guarantee`. Its statement is worded
once, when something is released; the ledger records the digest of that text.
"""

from __future__ import annotations

import json
import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from html import escape
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import __version__
from ..accounting.allowance import line, mu_of_budget
from ..accounting.renyi import rounded_up
from ..accounting.sanitize import published_cost_2018
from ..errors import InputError, finite, plural
from ..ledger import Standing
from ..mechanisms import MECHANISMS, Mechanism
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
_UPWARDS = 1 + 1e-9  # of a mu that a search finds from below
_installed = cache(metadata.version)  # which reads and parses files
_Row = tuple[str, str, str | None, bool]  # name, key, text, and whether it is brief


class Shown(ABC):
    """A result that shows itself in a notebook: what it says in brief."""

    @abstractmethod
    def brief(self) -> dict[str, str]:
        """Return what is said about it in a few words each, by name: nothing sealed."""

    def _repr_html_(self) -> str:
        left = '<{0} style="text-align:left">{1}</{0}>'
        rows = (
            f"<tr>{left.format('th', escape(name))}{left.format('td', escape(text))}</tr>"
            for name, text in self.brief().items()
        )
        return f"<table>{''.join(rows)}</table>"

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
        queries = f"for {plural(self.planned, 'query')} in total"
        if not self.learns:
            return f"the noise was set from public numbers only, {queries}"
        return (
            "the allowance was chosen from all votes, by an exponential mechanism whose epsilon of "
            f"{rounded_up(self.epsilon0, 4)} is included; the noise was set from it, {queries}"
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

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((100, 50, 4)) < 0.1
    >>> guarantee = pv.label(votes, epsilon=8.0, delta=1e-5).guarantee
    >>> str(guarantee), guarantee.epsilon, guarantee.protects
    ('allowance', 8.0, 'a voter')
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

    def event(self) -> Any:
        """Return the charge as an event of dp_accounting, for accountants with their defaults.

        Releases that go on with one allowance share its charge: compose it once. What protects
        nobody, or holds for these votes only, is a ``NonPrivateDpEvent``. Where no event bounds the
        cost, as for sampled steps, which the default relation of neighbours would underprice, it is
        an ``UnsupportedDpEvent``, which every accountant refuses.
        """
        from dp_accounting import dp_event

        if self.simulated or self.epsilon is None or self.kind == "data-dependent":
            return dp_event.NonPrivateDpEvent()
        if isinstance(self.terms, Learnt):
            mu = self.terms.mu
            if self.terms.learns:
                return dp_event.ZCDpEvent(line(self.terms.epsilon0, mu))
        elif self.accountant == GAUSSIAN:
            mu = mu_of_budget(self.epsilon, self.delta, 0.0) * _UPWARDS
        else:
            return dp_event.UnsupportedDpEvent()
        return dp_event.GaussianDpEvent(1 / mu)

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
        if self.text:
            return self.text
        packages = {"privote": self.version, "dp-accounting": _installed("dp-accounting")}
        packages |= {"numpy": np.__version__, "Python": platform.python_version()}
        lines = ["PRIVACY STATEMENT", ""]
        for row in self.rows():
            symbol = row.name in ("epsilon", "delta")
            name = row.name if symbol else f"{row.name[0].upper()}{row.name[1:]}"
            lines.append(f"{name}: {row.text.removesuffix('.')}.")
        software = ", ".join(f"{name} {number}" for name, number in packages.items())
        return "\n".join([*lines, f"Software: {software}."])

    def rows(self) -> list[Fact]:
        """Return all that is said about it, as every rendering has it."""
        rows = [*self._costs, *self._promise, *self._release, *self._record]
        return [Fact(key, name, text, brief) for name, key, text, brief in rows if text]

    @property
    def _costs(self) -> list[_Row]:
        """Say what this release costs alone, what all cost so far, and of which budget."""
        standing, total, budget, new = self.standing, None, None, None
        epsilon = "sealed: it depends on the votes"
        if self.epsilon is not None:
            alone = "" if standing is None else "this release alone; "
            if standing is not None and standing.continues is not None:
                alone = f"of run {standing.continues} and all that continue it, together; "
            epsilon = f"{rounded_up(self.epsilon)} ({alone}{self.mark}; may be published)"
        if standing is not None and standing.total is not None:
            charged = f"charged to data set {standing.dataset!r}"
            total = f"epsilon {rounded_up(standing.total, 4)} at delta {rounded_up(self.delta)}"
            if standing.runs > 1:
                total += (
                    f" for all {standing.runs} runs {charged}. They are added up at one Rényi "
                    "order, fixed with the budget, so after few or small runs this can be more "
                    "than the sum of their epsilons"
                )
            elif standing.continues is None:
                total += f": this is the only run {charged}"
            else:
                total += f": run {standing.continues} is the only run {charged}, and paid for this"
        if standing is not None and standing.share is not None:
            raised = ", raised after its first charge" if standing.raised else ""
            used = f"{100 * standing.share:.0f} % used"
            budget = f"epsilon {rounded_up(standing.budget)} in all{raised}, {used}"
        if standing is not None and standing.new:
            new = f"this is the first charge to data set {standing.dataset!r} in this ledger"
        return [
            ("SIMULATED", "simulated", SIMULATED[11:] if self.simulated else None, True),
            ("epsilon", "epsilon", epsilon, True),
            ("delta", "delta", rounded_up(self.delta), True),
            ("so far", "total", total, True),
            ("budget", "budget", budget, True),
            ("NEW", "new", new, True),
        ]

    @property
    def _promise(self) -> list[_Row]:
        """Say whom it protects against what: the kind, the factor, and a belief as an example."""
        unit = self.protects.partition(" (")[0].partition(",")[0]
        one, meaning, example = unit.removeprefix("a "), None, None
        voters = plural(self.voters, "voter")
        protected = f"{self.protects}, because it reaches only one of {voters}. "
        protected += "This is stated by whoever made the voters; the votes cannot show it. "
        if self.protects == VOTER:
            protected = (
                f"each of {voters}. {_NEIGHBOURS}. This also protects each person if "
                "all of a person's records reach only one voter; whether they do was not recorded"
            )
        elif self.kind in GUARANTEES:
            protected += _NEIGHBOURS
        else:
            protected = f"{self.protects}, replaced by any other; their number, {self.voters:,}, "
            protected += "is public"
        if self.epsilon is not None and self.total is not None and not self.simulated:
            factor = f"e^{rounded_up(self.epsilon, 4)}"
            if self.epsilon < 700:
                number = rounded_up(math.exp(self.epsilon), 3)
                thousands = 1e3 <= float(number) < 1e6
                factor += f" (that is {f'{float(number):,.0f}' if thousands else number})"
            whose = f"the data of one {one}"
            whose = "one voter's ballots, on any or all queries," if unit == VOTER else whose
            meaning = (
                f"if {whose} had been different, the probability of any outcome would have changed "
                f"by at most a factor of {factor}, plus {rounded_up(self.delta)}"
            )
        if self.total is not None and not self.simulated:
            odds = math.exp(min(self.total, 700.0)) * _PRIOR / (1 - _PRIOR)
            belief = rounded_up(100 * min(1.0, odds / (1 + odds) + self.delta), 3)
            seen = "this release, and nothing else about these data"
            if self.standing is not None:
                seen = "all releases charged to this data set so far"
            example = (
                f"suppose that somebody believes with probability {100 * _PRIOR:g} % that a certain"
                f" {one} has some property, and then studies {seen}. Because of that {one}'s own "
                f"data, this belief cannot rise above {belief} % (except with probability of about "
                "delta). What is learnt about people in general may still apply"
            )
        kind = _LEARNT if isinstance(self.terms, Learnt) else _MEANING[self.kind]
        return [
            ("guarantee", "kind", f"{self.kind}: {kind}", True),
            ("who is protected", "protects", protected, False),
            ("meaning", "meaning", meaning, False),
            ("example", "example", example, False),
        ]

    @property
    def _release(self) -> list[_Row]:
        """Say what was released, by which noise, and what is left for later queries."""
        sigma, noise, allowance, later, terms = self.mechanism.get("sigma"), None, None, None, None
        compared = None
        ours = self.mechanism.get("mechanism", self.mechanism.get("name")) in MECHANISMS
        # What a mechanism from outside calls sigma need not be a standard deviation.
        if sigma is not None and ours and self.kind in GUARANTEES:
            noise = f"standard deviation about {sigma:.3g} votes, on counts of up to "
            noise += f"{self.voters:,}"
        if self.allowance is not None:
            limits = self.allowance if isinstance(self.allowance, tuple) else (self.allowance,)
            fewest, most = min(limits), max(limits)
            allowance = "" if fewest == most else f"{fewest:,} to "
            allowance += f"{plural(most, 'contribution')} per voter in total"
            queries, which = self.answered_total or 0, "answered so far, all under this one epsilon"
            if isinstance(self.terms, Learnt):
                queries, which = self.terms.planned, "planned"
            if queries:
                many = "one query" if queries == 1 else f"each of the {queries:,} queries"
                allowance += f", that is {fewest / queries:.2g} for {many} {which}"
            allowance += ". A voter who casts more counts as the baseline from then on; which "
            allowance += "voters did is sealed"
        if self.terms is not None:
            terms = str(self.terms)
        if isinstance(self.terms, Sanitized):
            compared = self.terms.compared
        if isinstance(self.terms, Learnt) and self.standing is not None:
            more = self.terms.planned - (self.answered_total or 0)
            later = f"none: {plural(self.terms.planned, 'query')} planned, and all answered"
            if more:
                later = f"{plural(more, 'more query')} paid for, with the same ledger and data set"
        return [
            ("released", "released", self.released, False),
            ("mechanism", "mechanism", describe(dict(self.mechanism)), True),
            ("noise", "sigma", noise, True),
            ("terms", "terms", terms, True),
            ("allowance", "allowance", allowance, True),
            ("later queries", "remaining", later, True),
            ("for comparison only", "price_2018", compared, False),
        ]

    @property
    def _record(self) -> list[_Row]:
        """Say what may follow from released labels, and how all this can be checked."""
        standing, adaptive = self.standing, "later queries, baselines and the time to stop"
        if self.kind == "data-dependent":
            adaptive = "nothing: queries and settings were fixed before any label was seen"
        elif standing is None:
            adaptive += "; the budget covers this run only"
        elif standing.whole:
            adaptive += "; it took the whole budget, so nothing else is charged to the data set"
        else:
            adaptive += "; also the mechanism, settings and number of later runs: charges add up "
            adaptive += f"at order {standing.order:g}, fixed with the budget"
        ledger = "none: the budget covers this run only; other releases of the data add to it"
        if standing is not None:
            place = f"entry {standing.entry}, digest {standing.digest}"
            ledger = f"data set {standing.dataset!r}, {place}"
        source = "a seed" if self.simulated else "the operating system's cryptographic generator"
        votes, learnt = self.kind in GUARANTEES, isinstance(self.terms, Learnt)
        return [
            ("what may depend on released labels", "adaptive", adaptive if votes else None, False),
            *(("note", f"note_{place}", note, False) for place, note in enumerate(self.notes)),
            ("accountant", "accountant", _BY_MU if learnt else self.accountant, False),
            ("random source", "random", source, False),
            ("ledger", "ledger", ledger, False),
            ("made", "made_at", self.made_at, False),
            ("SHA-256 digest of the numbers drawn", "drawn", self.drawn, False),
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn:
    """What was drawn under a guarantee, before it is committed.

    Attributes
    ----------
    outcome, mechanism
        Labels or tallies (queries, labels), and what drew them.
    epsilon, terms, allowance, answered_total
        As :class:`Guarantee` has them; the epsilon only where it follows from the votes.
    learnt
        Parameters of the mechanism and contributions for life, where these were learnt just now.
    spending
        What each voter took from its allowance, by seat: spent, clipped. Sealed.
    curve
        Rényi costs that depend on the votes: (orders,). Sealed.
    """

    outcome: npt.NDArray[Any]
    mechanism: Mechanism
    epsilon: float | None = None
    terms: Learnt | Sanitized | None = None
    allowance: int | tuple[int, ...] | None = None
    answered_total: int | None = None
    learnt: tuple[Mapping[str, Any], int] | None = None
    spending: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
    curve: npt.NDArray[np.float64] | None = None


def worded(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee with the text of its statement, which no later version rewords."""
    return replace(guarantee, text=guarantee.statement())


def to_json(facts: Mapping[str, Any]) -> str:
    """Return facts as a file holds them."""
    return json.dumps(facts, indent=2, default=str, ensure_ascii=False) + "\n"
