"""A release: what may be published, with its guarantee; and, apart, what stays sealed."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._version import __version__, check_written
from .accounting.renyi import rounded_up
from .accounting.sanitize import published_cost_2018
from .errors import InputError, finite
from .ledger.records import STATED, digest_of
from .mechanisms import ABSTAIN, MECHANISMS, TallyVoting, mechanism_of
from .mechanisms.base import describe
from .posterior import RULES, Floats, Posterior, posterior
from .shown import Shown
from .votes.arrays import ArrayFile

GUARANTEES = ("allowance", "worst-case", "data-dependent")

# Whom the promise is to: whatever reaches one voter only.
VOTER = "a voter"
RECORD = "a record"
PERSON = "a person, with all their records"


FORMAT = 4  # of what is saved

# What is no fact: digests say what it is, or nobody may know it.
_APART = ("labels", "tallies", "chances", "query_names", "sealed")
# Facts that follow from others.
_DERIVED = ("answered", "labels", "abstained", "sha256", "digest", "format")


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all facts but this one; labels and names are in there by their own."""
    told = {name: value for name, value in facts.items() if name != "digest"}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=str)
    return sha256(text.encode()).hexdigest()


def read_facts(text: str) -> dict[str, Any]:
    """Return the facts of a release as JSON states them, each once; :meth:`Release.facts`."""
    facts = json.loads(text, object_pairs_hook=_each_once)
    if not isinstance(facts, dict):
        raise ValueError("it contains no facts")
    own = facts.get("promise", facts)  # of a student, whose statement says more
    for name in own.keys() - {"labels", "reasons"}:
        if own[name] != facts.get(name):
            raise ValueError(f"it states {name} twice, with different values")
    return dict(own)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        raise ValueError("it states a fact twice")
    return facts


# -- in words --------------------------------------------------------------------------------------

UNCONDITIONAL = "unconditional"
SANITIZED = "sanitized, this data only"
OWNER_ONLY = "for the owner's eyes"
SIMULATED = "Simulated: the noise came from a seed, so this protects nobody."
UNCERTAIN = "uncertain"  # a winner that noise alone may have made

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
}
_LEARNT = "unconditional differential privacy: epsilon was fixed before any vote was seen"
_DECIDED: dict[str | float, str] = {
    "likely": "likely: a label is 1 where most voters want it with a probability above one half",
    "f1": "f1: the largest expected F1",
    "balanced": "balanced: the largest expected balanced accuracy of each label",
}
_ACCOUNTANTS = {
    False: "Rényi divergence of the exact outcome distribution (the larger of both directions), "
    "converted to epsilon by dp-accounting",
    True: "the exact (epsilon, delta) of Gaussian noise, for the worst possible private choice of "
    "the allowance; it does not depend on the choice",
}
_NEIGHBOURS = (
    "Two sets of votes are neighbours if they differ in the ballots of one voter, on any or all "
    "queries (replace one voter)"
)
_CRYPTOGRAPHIC = "the operating system's cryptographic generator"
HELPS = "More voters, fewer queries or a larger epsilon would help"


@dataclass(frozen=True)
class Fact:
    """One thing that is said about a result, under the same name everywhere.

    Attributes
    ----------
    key
        Under which :meth:`Release.facts` and JSON have the value.
    name, text
        What it is called, and what is said.
    brief
        Whether it is worth a line in a terminal; statements and pages have all.
    """

    key: str
    name: str
    text: str
    brief: bool = True


def statement_of(rows: Iterable[Fact]) -> str:
    """Return facts as a statement that somebody signs: a line each."""
    lines = []
    for row in rows:
        symbol = row.name in ("epsilon", "delta")
        name = row.name if symbol else f"{row.name[0].upper()}{row.name[1:]}"
        lines.append(f"{name}: {row.text.removesuffix('.')}.")
    return "\n".join(["PRIVACY STATEMENT", "", *lines])


def mark(guarantee: str, *, sanitized: bool = False) -> str:
    """Return what may be done with numbers under this guarantee.

    Parameters
    ----------
    guarantee
        One of :data:`GUARANTEES`.
    sanitized
        True if a data-dependent epsilon was sanitized; it may leave, but is about this data only.
    """
    if guarantee not in GUARANTEES:
        raise InputError("guarantee", f"must be one of {', '.join(GUARANTEES)}", guarantee)
    if guarantee != "data-dependent":
        return UNCONDITIONAL
    return SANITIZED if sanitized else OWNER_ONLY


def rows_of(facts: Mapping[str, Any]) -> list[Fact]:
    """Return all that is said about a release: from :meth:`Release.facts`, and nothing else.

    So whoever has these can tell whether a statement in words is about them.
    """
    terms, ledger, epsilon = facts["terms"], facts["ledger"], facts["epsilon"]
    learnt = terms.get("learnt")
    shown = "sealed: it depends on the votes"
    if epsilon is not None:
        allowed = mark(facts["guarantee"], sanitized=True)
        alone = "" if ledger is None else "this release alone; "
        shown = f"{rounded_up(epsilon)} ({alone}{allowed}; may be published)"
    digests, drawn = facts["sha256"]["labels"], facts["drawn"]
    if drawn and drawn != [digests]:
        digests += f"; of the numbers drawn: {', '.join(drawn)}"
    software = {"privote": facts["version"], "dp-accounting": metadata.version("dp-accounting")}
    software |= {"numpy": np.__version__, "Python": platform.python_version()}
    simulated = "a seed was given: these labels protect nobody" if facts["simulated"] else None
    kind = _LEARNT if learnt else _MEANING[facts["guarantee"]]
    protects = ("protects", "who is protected", _protected(facts["protects"]))
    place = "none: the budget covers this run only"
    if ledger is not None:
        place = f"entry {ledger['entry']}, digest {ledger['digest']}"
    brief: list[tuple[str, str, str | None]] = [
        ("answered", "queries answered", of_asked(facts)),
        ("labels", "labels per query", f"{facts['labels']:,}"),
        ("abstained", "withheld", _held_back(facts["abstained"])),
        ("voters", "voters", f"{facts['voters']:,}"),
        ("mechanism", "mechanism", describe(facts["mechanism"])),
        ("sigma", "noise", noise(facts["mechanism"], facts["voters"])),
        ("guarantee", "guarantee", f"{facts['guarantee']}: {kind}"),
        ("epsilon", "epsilon", shown),
        ("delta", "delta", rounded_up(facts["delta"])),
        ("total", "so far", so_far(facts)),
        ("budget", "budget", budget_used(facts)),
        ("terms", "terms", _terms(terms)),
        ("allowance", "allowance", _allowance(facts)),
        ("new", "NEW", new_to(facts["dataset"]) if facts["new"] else None),
        ("decided", "decided by", _decided(facts["decided"])),
        *_expected(facts),
        ("reasons", "why", " ".join(facts["reasons"])),
        ("processed", "post-processing", _processed(facts["processed"])),
        *([] if facts["protects"] == VOTER else [protects]),
        ("simulated", "SIMULATED", simulated),
    ]
    further = [
        *([protects] if facts["protects"] == VOTER else []),
        ("meaning", "meaning", _meaning(facts)),
        ("price_2018", "for comparison only", _compared(terms)),
        ("accountant", "accountant", _ACCOUNTANTS[bool(learnt)]),
        ("rule", "what may depend on released labels", _adaptively(facts)),
        ("random", "random source", "a seed" if simulated else _CRYPTOGRAPHIC),
        ("dataset", "data set", repr(facts["dataset"])),
        ("ledger", "ledger", place),
        ("made", "made", facts["made"]),
        ("sha256", "labels' SHA-256 digest", digests),
        ("version", "software", ", ".join(f"{name} {of}" for name, of in software.items())),
    ]
    return [
        Fact(key, name, text, rows is brief)
        for rows in (brief, further)
        for key, name, text in rows
        if text
    ]


def of_asked(facts: Mapping[str, Any]) -> str:
    """Say how many queries were answered, and of how many if not all were."""
    more = facts["asked"] is not None and facts["asked"] > facts["answered"]
    return f"{facts['answered']} of {facts['asked']}" if more else f"{facts['answered']}"


def so_far(facts: Mapping[str, Any]) -> str | None:
    """Say what all releases of a data set cost together by now; None without a ledger."""
    if facts["total"] is None:
        return None
    total = f"epsilon {rounded_up(facts['total'], 4)} at delta {rounded_up(facts['delta'])}"
    if facts["runs"] == 1:
        return f"{total}: this is the only release charged to data set {facts['dataset']!r}"
    return (
        f"{total} for all {facts['runs']} releases charged to data set {facts['dataset']!r}. They "
        "are added up at one Rényi order, fixed with the budget, so after few or small releases "
        "this can be more than the sum of their epsilons"
    )


def budget_used(facts: Mapping[str, Any]) -> str | None:
    """Say what a data set may cost in all, and how much of that is used; None without a ledger."""
    if facts["share"] is None:
        return None
    return f"epsilon {rounded_up(facts['budget'])} in all, {100 * facts['share']:.0f} % used"


def new_to(dataset: str) -> str:
    """Say that a ledger had no charge to a data set."""
    return f"this is the first charge to data set {dataset!r} in this ledger"


def noise(mechanism: Mapping[str, Any], voters: int) -> str | None:
    """Say what sigma is; None for what has none, or is a mechanism of one's own."""
    sigma = mechanism.get("sigma")
    if sigma is None or mechanism["mechanism"] not in MECHANISMS:
        return None
    return f"standard deviation about {sigma:.3g} votes, on counts of up to {voters:,}"


def _held_back(abstained: int) -> str | None:
    return f"{abstained:,} labels, by the confidence gate (ABSTAIN)" if abstained else None


def _decided(rule: str | float | None) -> str | None:
    return (
        None
        if rule is None
        else _DECIDED.get(rule, f"a label is 1 at a probability of {rule} or more")
    )


def _processed(texts: Sequence[str]) -> str | None:
    return f"{'; '.join(texts)}. This costs no privacy budget" if texts else None


def _expected(facts: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return what is to be expected of labels that were drawn; of tallies see the headline."""
    if facts["forecast"] is None:
        return []
    return [
        ("forecast", "expected", forecast_in_words(facts["forecast"])),
        ("warnings", "WARNING", " ".join(facts["forecast"]["warnings"])),
    ]


def forecast_in_words(told: Mapping[str, Any]) -> str:
    """Return a forecast in words, without its warnings."""
    near = told["near"]
    whoever = "every voter" if near is None else "every voter near a query"
    text = (
        f"A label that {whoever} wants is missed with probability {told['missed']:.2g}. A label "
        f"that nobody wants is released with probability {told['false_alarm']:.2g}."
    )
    if told["share_needed"] is None:
        return text
    of = "the voters" if near is None else f"the voters near it (about {near:,})"
    share = f"{100 * told['share_needed']:.0f} % of {of}"
    return f"{text} A label that {share} want is released with 95 % probability."


def _meaning(facts: Mapping[str, Any]) -> str | None:
    """Say what a number bounds, where it bounds what one voter's ballots change."""
    epsilon = facts["epsilon"]
    if epsilon is None or facts["simulated"] or facts["guarantee"] == "data-dependent":
        return None
    if facts["protects"] != VOTER:
        return None
    factor = f" (that is {rounded_up(math.exp(epsilon), 3)})" if epsilon < 700 else ""
    return (
        "if one voter had voted differently, on any or all queries, the probability of any "
        f"outcome would have changed by at most a factor of e^{rounded_up(epsilon, 4)}{factor}, "
        f"plus {rounded_up(facts['delta'])}"
    )


def _protected(protects: str) -> str:
    if protects == VOTER:
        return (
            f"each voter. {_NEIGHBOURS}. This also protects each person if all of a person's "
            "records reach only one voter; that was not recorded"
        )
    return (
        f"{protects}, because it reaches only one voter. This is stated by whoever made the "
        f"voters; the votes cannot show it. {_NEIGHBOURS}"
    )


def _adaptively(facts: Mapping[str, Any]) -> str:
    """Say what may have been chosen from released labels without breaking the promise."""
    if facts["guarantee"] == "data-dependent":
        return "nothing: queries and settings were fixed before any label was seen"
    text = "later queries, baselines and the time to stop"
    if facts["ledger"] is None:
        return f"{text}; the budget covers this run only"
    if facts["share"] == 1 and facts["runs"] == 1:
        return f"{text}; it took the whole budget, so nothing else is charged to the data set"
    return (
        f"{text}; also the mechanism, settings and number of later charges: the data set's budget "
        f"of epsilon {rounded_up(facts['budget'])} is {facts['rule']}, fixed in advance, and holds "
        "for all charges together"
    )


def _allowance(facts: Mapping[str, Any]) -> str | None:
    if facts["allowance"] is None:
        return None
    each = facts["allowance"] if isinstance(facts["allowance"], list) else [facts["allowance"]]
    span = " to ".join(f"{value:,}" for value in sorted({min(each), max(each)}))
    queries, which = facts["so_far"] or facts["answered"], "answered so far"
    more = ""
    if queries > facts["answered"]:
        more = ", all under this one epsilon: do not add up statements about the same allowance"
    if "learnt" in facts["terms"]:
        queries, which, more = facts["terms"]["learnt"]["planned"], "planned", ""
    many = "one query" if queries == 1 else f"each of the {queries:,} queries"
    share = f", that is {min(each) / queries:.2g} for {many} {which}{more}" if queries else ""
    return (
        f"{span} contributions per voter in total{share}. A voter who casts more counts as the "
        "baseline from then on; which voters did is sealed"
    )


def _terms(terms: Mapping[str, Any]) -> str | None:
    if not terms:
        return None
    if "learnt" in terms:
        return learnt_from(terms["learnt"])
    numbers = ", ".join(
        f"{name} {rounded_up(value, 4) if name == 'price' else f'{value:.4g}'}"
        for name, value in terms.items()
    )
    return (
        f"sanitized: with confidence {1 - terms['gamma']:g} (1 - gamma) these labels and this "
        "number are (epsilon, delta)-close to those of every neighbour of these votes. Its "
        "noise is sigma_s times the smooth sensitivity: how far the cost can move if one "
        "voter's ballots change, here or, discounted by exp(-beta) per ballot, nearby; "
        f"{numbers}"
    )


def _compared(terms: Mapping[str, Any]) -> str | None:
    if "price" not in terms or 2 * terms["order"] * terms["beta"] >= 1:  # Theorem 23 needs less
        return None
    price = published_cost_2018(terms["order"], terms["beta"], terms["sigma_s"])
    return (
        f"PATE 2018 (Theorem 23) would price the sanitized number at {rounded_up(price, 4)}, "
        "which is not a valid bound"
    )


def learnt_from(terms: Mapping[str, Any]) -> str:
    """Say what the noise follows from."""
    of = f"for {terms['planned']:,} queries in total"
    if not terms["learns"]:
        return f"the noise was set from public numbers only, {of}"
    return (
        "the allowance was chosen privately from all votes, paid for from this epsilon (range "
        f"{rounded_up(terms['epsilon0'], 4)}); the noise was set from it, {of}"
    )


def of_owner(release: Release, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what is for the owner's eyes, as plain numbers; voters by name, or by place."""
    sealed: Any = release.sealed
    if release.guarantee == "allowance":
        spent, refused = sealed.spent, sealed.refused
        who = np.flatnonzero(refused)
        return {
            "voters_who_ran_out": int(sealed.exhausted.sum()),
            "ballots_refused": {
                str(voter) if names is None else names[voter]: int(refused[voter])
                for voter in who[np.argsort(-refused[who], kind="stable")]
            },
            "contributions_cast_fewest": int(spent.min()),
            "contributions_cast_median": float(np.median(spent)),
            "contributions_cast_most": int(spent.max()),
        }
    if release.guarantee != "data-dependent":
        return {}
    bills = sealed.bills()
    exact = ("epsilon_by_voter", "accountant", "epsilon_rdp", "epsilon_pld")
    return {
        "epsilon": float(sealed.epsilon),
        "epsilon_of_costliest_voter": float(bills.max()),
        "epsilon_of_median_voter": float(np.median(bills)),
        **{name: getattr(sealed, name) for name in exact},
    }


# -- what leaves, and what does not ----------------------------------------------------------------


def decide(release: Release, by: str | float = "likely") -> Release:
    """Decide the labels of a release again, by another rule. Costs no privacy: post-processing.

    Parameters
    ----------
    release
        A release with tallies, as :func:`privote.label` returns by default.
    by
        ``"likely"``: a label is 1 where the probability that most voters want it is above one half.
        ``"f1"``: maximise the expected F1 over all labels. ``"balanced"``: maximise the expected
        balanced accuracy of each label. A number: a label is 1 where that probability is at least
        this number.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((100, 50, 4)) < 0.1
    >>> release = pv.label(votes, epsilon=8.0, delta=1e-5)
    >>> pv.decide(release, by="f1").decided
    'f1'
    """
    if not isinstance(release, Release) or release.tallies is None:
        raise InputError("release", "must have tallies: drawn labels cannot be decided again")
    if release.processed:
        raise InputError("release", f"must not be post-processed: {release.processed[0]}")
    found, rule = release.posterior, _check_rule(by)
    if found is None:
        return replace(release, decided=rule)
    labels = found.labels(release.tallies, rule).astype(np.int8)
    decided = replace(release, labels=labels, decided=rule)
    vars(decided)["posterior"] = found  # it took a while, and follows from the same tallies
    return decided


def _check_rule(by: Any) -> str | float:
    if isinstance(by, str) and by in RULES:
        return by
    if isinstance(by, str) or not 0 <= (bar := finite("by", by)) <= 1:
        raise InputError("by", f"must be one of {', '.join(RULES)}, or a number from 0 to 1", by)
    return bar


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
    ``allowance``, how many of its ballots were ``refused`` (they counted as the baseline), and who
    is ``exhausted``: spent all of it, or was refused once, and so for good.
    """

    def __init__(self, **numbers: Any) -> None:
        self.__dict__.update(numbers)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found.value if isinstance(found, Later) else found

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no sealed number {name!r}; available: {', '.join(vars(self))}")

    @property
    def exhausted(self) -> npt.NDArray[np.bool_]:
        """Which voters have nothing left of their allowance, or no say any more."""
        return np.asarray((self.spent >= self.allowance) | (self.refused > 0))

    def __repr__(self) -> str:
        return "<sealed>"

    def __reduce__(self) -> tuple[type[Sealed], tuple[()]]:
        """Leave everything behind when pickled or copied: what is sealed stays in this process."""
        return Sealed, ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Release(Shown):
    """Private labels with their guarantee, bill and expected quality.

    Attributes
    ----------
    labels
        (answered, labels) int8: 1, 0 or ABSTAIN (-1).
    tallies
        (answered, labels) int64: released noisy tallies, from which the labels were decided; None
        for mechanisms that release labels.
    decided
        How labels were decided from tallies: "likely", "f1", "balanced" or a threshold.
    chances
        Probabilities changed by post-processing, such as implied labels; None if unchanged.
    epsilon, delta
        What may be published; ``epsilon`` is None where only a sealed number exists.
    guarantee
        "allowance", "worst-case" or "data-dependent".
    budget, total, share, runs
        What the data set may cost in all; what all releases charged to it cost so far, which share
        of the budget that is, and how many they are. Without a ledger ``budget`` is what was asked
        of this release, and the others are None.
    mechanism
        The public parameters.
    voters
        Registered voters.
    terms
        Public terms of the guarantee: for a learnt allowance, as "learnt", for how many queries it
        is ("planned"), whether it was learnt or is a fixed one ("learns") and what that cost
        ("epsilon0"); as "near", the
        share of the voters to be expected near a query, where only those speak; for a sanitized
        "data-dependent" epsilon the order, the noise, the confidence and its price.
    allowance
        Contributions a voter may cast in total: one number, one per voter, or None.
    simulated
        True if a seed was given: the draws are reproducible and protect nobody.
    ledger
        Number and digest of the ledger entry after which this was drawn; None without a file.
    dataset
        Whose votes: a name in the ledger.
    new
        Whether this is the first charge to the data set in a ledger that lasts.
    rule
        How charges to the data set's budget add up: "shared at order 4", "exclusive"; None where
        nothing adds up.
    so_far
        Under an allowance: queries answered from it by now, this release included.
    asked
        How many queries there were to answer; None where nobody said.
    forecast
        How good labels of a named mechanism are expected to be, from public numbers
        (:func:`privote.planning.forecast`).
    reasons
        Why these settings were chosen and why the run stopped, in sentences.
    label_names, query_names
        What the labels, and the queries that were answered, are called; None if they have no names.
        These names are public; those of the voters are never here.
    protects
        Whom the promise is to: "a voter", or what reaches one voter only, such as "a record" or
        "a person, with all their records". Whoever made the voters says so; the votes cannot.
    drawn
        The digest of what was drawn (:func:`digest_of`), one for each call that drew, in order:
        what a ledger records. Nothing that is decided from drawn numbers afterwards changes it.
    processed
        How the labels were post-processed, in words. This uses released labels and public rules
        only, and costs nothing.
    made
        Time of the release, in UTC.
    sealed
        For the owner's eyes; never saved, never printed.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((100, 50, 4)) < 0.1
    >>> release = pv.label(votes, epsilon=8.0, delta=1e-5)
    >>> release
    Release(100 queries x 4 labels, allowance, epsilon=8, delta=1e-05)
    """

    labels: npt.NDArray[np.int8]
    tallies: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    decided: str | float = "likely"
    chances: Floats | None = field(default=None, repr=False)
    epsilon: float | None
    delta: float
    guarantee: str
    budget: float
    mechanism: dict[str, Any]
    voters: int
    allowance: int | tuple[int, ...] | None = None
    terms: dict[str, Any] = field(default_factory=dict)
    simulated: bool = False
    ledger: dict[str, Any] | None = None
    dataset: str = "default"
    new: bool = False
    rule: str | None = None
    so_far: int | None = None
    total: float | None = None
    share: float | None = None
    runs: int = 1
    asked: int | None = None
    forecast: dict[str, Any] | None = None
    reasons: tuple[str, ...] = ()
    protects: str = VOTER
    label_names: tuple[str, ...] | None = None
    query_names: tuple[str, ...] | None = field(default=None, repr=False)
    drawn: tuple[str, ...] = ()
    processed: tuple[str, ...] = ()
    made: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    version: str = __version__
    sealed: Sealed = field(default_factory=Sealed, repr=False, compare=False)

    @property
    def answered(self) -> int:
        """How many queries were answered, held-back labels included."""
        return len(self.labels)

    @property
    def outcome(self) -> npt.NDArray[Any]:
        """What was drawn, or made of it afterwards: tallies where there are any, else labels."""
        return self.labels if self.tallies is None else self.tallies

    @property
    def stated(self) -> dict[str, Any]:
        """What a ledger records of it, sealed, besides the digest of what was drawn."""
        return {name: getattr(self, name) for name in STATED}

    @cached_property
    def posterior(self) -> Posterior | None:
        """What all released tallies say together; None for mechanisms that release labels."""
        known = self.mechanism["mechanism"] == TallyVoting.name  # else one of somebody's own
        if self.tallies is None or not self.answered or not known:
            return None
        mechanism: Any = mechanism_of(self.mechanism)
        # Where records speak on queries near them only, "most voters" are most of those near.
        voters = max(1, min(self.voters, round(self.terms.get("near", 1) * self.voters)))
        return posterior(self.tallies, sigma=mechanism.sigma, voters=voters, steps=mechanism.steps)

    @property
    def probabilities(self) -> Floats | None:
        """(answered, labels): probability that most voters want a label, given all tallies.

        None for mechanisms that release labels.
        """
        if self.chances is not None or self.posterior is None:
            return self.chances
        assert self.tallies is not None
        return self.posterior.probabilities(self.tallies)

    @property
    def shares(self) -> Floats | None:
        """(answered, labels): the expected share of voters who want a label, given all tallies.

        What a student learns from; None for mechanisms that release labels.
        """
        if self.posterior is None:
            return None
        assert self.tallies is not None
        return self.posterior.expected_shares(self.tallies)

    @cached_property
    def quality(self) -> dict[str, Any] | None:
        """Expected precision, recall and F1 against the noise-free majority, also "by_label".

        From released tallies alone; None where it cannot be told (:mod:`privote.posterior`).
        """
        if self.posterior is None:
            return None
        learnt = self.terms.get("learnt", {}).get("learns", False)
        return self.posterior.quality(self.decided, learnt=learnt)

    @property
    def headline(self) -> str:
        """The first line of every report: queries answered, expected quality, epsilon and delta."""
        answered = of_asked({"asked": self.asked, "answered": self.answered})
        many = "1 query" if answered == "1" else f"{answered} queries"
        cost = "sealed" if self.epsilon is None else rounded_up(self.epsilon, 4)
        told = f"; {self.expected}" if "learnt" in self.terms else ""
        return f"{many}{told}; epsilon {cost}, delta {rounded_up(self.delta)}"

    @property
    def expected(self) -> str:
        """The expected quality of labels decided from tallies, or why it cannot be estimated."""
        quality, unknown = self.quality, "the quality of the labels cannot be estimated"
        if self.answered and not self.labels.any():
            unknown = f"no label is a 1, and {unknown}"
        if quality is not None:
            after = " near each query" if "near" in self.terms else ""
            after += ", before post-processing" if self.processed else ""
            figures = ", ".join(f"{name} {quality[name]:.0%}" for name in ("precision", "recall"))
            return (
                f"expected {figures.replace('%', ' %')} against the majority of the voters{after}"
            )
        if not self.terms["learnt"]["learns"] and self.guarantee == "allowance":
            return f"{unknown}: there are too few voters. {HELPS}"
        if not self.terms["learnt"]["learns"]:
            return f"{unknown}: with worst-case, nothing is learnt from the votes"
        if self.posterior is None or not self.posterior.fitted:
            return f"{unknown}: there are too few labels. More queries in one call would help"
        if not self.labels.any():
            return f"{unknown}: no majority stands out from the noise. {HELPS}"
        return f"{unknown}: majorities hardly stand out from the noise. {HELPS}"

    @property
    def abstained(self) -> int:
        """How many labels the gate held back; part of what was released."""
        return int((self.labels == ABSTAIN).sum())

    @property
    def digest(self) -> str:
        """SHA-256 of all facts, labels and names. Whoever changes one of them can make another.

        So it shows damage, and an edit of a part. That a ledger charged and released this, only
        that ledger shows (``privote ledger check``), which has recorded :attr:`drawn`.
        """
        return str(self.facts()["digest"])

    def __repr__(self) -> str:
        shown = "sealed" if self.epsilon is None else f"{rounded_up(self.epsilon, 4)}"
        mark = ", SIMULATED" if self.simulated else ""
        return (
            f"Release({self.answered} queries x {self.labels.shape[1]} labels, {self.guarantee}, "
            f"epsilon={shown}, delta={rounded_up(self.delta)}{mark})"
        )

    def facts(self) -> dict[str, Any]:
        """Return everything publishable as plain values, for JSON; labels and names by digests."""
        names = None if self.query_names is None else json.dumps(self.query_names).encode()
        own = {of.name: getattr(self, of.name) for of in fields(self) if of.name not in _APART}
        facts: dict[str, Any] = {
            "answered": self.answered,
            "labels": int(self.labels.shape[1]),
            "abstained": self.abstained,
            **{
                name: [*value] if isinstance(value, tuple) else value for name, value in own.items()
            },
            "decided": None if self.tallies is None else self.decided,
            "sha256": {
                "labels": digest_of(self.labels),
                "tallies": None if self.tallies is None else digest_of(self.tallies),
                "query_names": None if names is None else sha256(names).hexdigest(),
            },
            "format": FORMAT,
        }
        return {**facts, "digest": digest_of_facts(facts)}

    def rows(self) -> list[Fact]:
        """Return all that is said about it, a line each, as every rendering has it."""
        return rows_of(self.facts())

    def brief(self) -> dict[str, str]:
        """Return the facts that are worth a line in a terminal."""
        return {row.name: row.text for row in self.rows() if row.brief}

    def summary(self) -> str:
        """Return a short text for a terminal. It contains published numbers only."""
        lines = [f"{name:<20}{text}" for name, text in self.brief().items()]
        return "\n".join([self.headline, *lines])

    def statement(self) -> str:
        """Return the privacy statement for the person who signs off: published numbers only.

        :meth:`facts` holds the same for machines.
        """
        return statement_of(self.rows())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write labels and public facts to an ``.npz`` file; nothing sealed goes along."""
        if not isinstance(path, str | os.PathLike) or Path(path).suffix != ".npz":
            raise InputError("path", "must end in .npz", str(path))
        try:
            np.savez_compressed(Path(path), **self.arrays())
        except OSError as error:
            raise InputError(f"path {str(path)!r} cannot be written: {error}") from None

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return labels and public facts as arrays by name: what a file of it holds."""
        held = {"labels": self.labels, "facts": np.array(json.dumps(self.facts()))}
        named = None if self.query_names is None else np.array(self.query_names)
        more = {"tallies": self.tallies, "chances": self.chances, "query_names": named}
        return held | {name: array for name, array in more.items() if array is not None}

    @classmethod
    def of_arrays(cls, data: Any) -> Release:
        """Return the release that :meth:`arrays` is about."""
        names = data["query_names"].tolist() if "query_names" in data else None
        more = {name: data[name] for name in ("tallies", "chances") if name in data}
        return cls.of_facts(data["labels"], read_facts(str(data["facts"])), names, **more)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read what :meth:`save` wrote, if it fits its digest. Runs no code from the file."""
        try:
            return cls.of_arrays(ArrayFile(path))
        except (OSError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{str(path)!r} is not a saved release: {error}") from None

    @classmethod
    def of_facts(
        cls,
        labels: npt.NDArray[np.int8],
        facts: dict[str, Any],
        query_names: Sequence[str] | None = None,
        *,
        tallies: npt.NDArray[np.int64] | None = None,
        chances: Floats | None = None,
    ) -> Release:
        """Return the release that :meth:`facts` is about; refuse labels or facts of another."""
        check_written("it", facts, FORMAT)
        for name in ("epsilon", "delta", "budget"):
            if facts[name] is None and name == "epsilon":
                continue
            if isinstance(facts[name], bool) or not facts[name] >= 0:
                raise ValueError(f"its {name} must not be negative, got {facts[name]!r:.40}")
        own = {name: value for name, value in facts.items() if name not in _DERIVED}
        for name in ("reasons", "drawn", "processed", "label_names"):
            own[name] = None if own[name] is None else tuple(map(str, own[name]))
        own["decided"] = "likely" if own["decided"] is None else _check_rule(own["decided"])
        for name, array in (("tallies", tallies), ("chances", chances)):
            if array is not None and array.shape != labels.shape:
                raise ValueError(f"its {name} are {array.shape}, its labels {labels.shape}")
        if isinstance(own["allowance"], list):
            own["allowance"] = tuple(own["allowance"])
        named = None if query_names is None else tuple(map(str, query_names))
        if named is not None and len(named) != len(labels):
            raise ValueError(f"it has {len(named)} query names and {len(labels)} queries")
        arrays: dict[str, Any] = {"tallies": tallies, "chances": chances}
        release = cls(labels=labels, **arrays, query_names=named, **own)
        made = release.facts()
        edited = [name for name in made.keys() | facts.keys() if made.get(name) != facts.get(name)]
        if edited:
            raise ValueError(f"it was edited: {', '.join(sorted(edited))} does not match the rest")
        same = release.drawn == (digest_of(release.outcome),)
        changed = tallies is None and release.processed
        if len(release.drawn) == 1 and not changed and not same:
            raise ValueError("its labels differ from what was drawn, without a reason")
        return release
