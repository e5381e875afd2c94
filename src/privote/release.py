"""A release: what may be published, with its guarantee; and, apart, what stays sealed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._version import __version__, check_written
from .accounting.renyi import rounded_up
from .deciding import RULES, Floats, Posterior, posterior
from .errors import InputError, finite
from .forecast import LASTS, Forecast
from .ledger.records import digest_of
from .mechanisms import ABSTAIN, TallyVoting, mechanism_of
from .votes.arrays import ArrayFile

GUARANTEES = ("allowance", "worst-case", "ptr", "data-dependent")

# Whom the promise is to: whatever reaches one voter only.
VOTER = "a voter"
RECORD = "a record"
PERSON = "a person, with all their records"


FORMAT = 3  # of what is saved

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
        raise ValueError("it holds no facts")
    own = facts.get("promise", facts)  # of a student, whose statement says more
    for name in own.keys() - {"labels", "reasons"}:
        if own[name] != facts.get(name):
            raise ValueError(f"it states {name} twice, and not the same")
    return dict(own)


def drawn_of(parts: Iterable[Release]) -> tuple[str, ...]:
    """Return the digests of all that was drawn for several releases, in order."""
    return tuple(digest for part in parts for digest in part.drawn)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        raise ValueError("it states something twice")
    return facts


def check_protects(value: Any) -> str:
    """Return whom the promise is to, if that is one line of text."""
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) > 1:
        raise InputError("protects", f"must be one line of text, e.g. {PERSON!r}", value)
    return value


def decide(release: Release, by: str | float = "likely") -> Release:
    """Return a release with labels decided otherwise from its tallies. Free: post-processing.

    Parameters
    ----------
    release
        One with tallies, such as :func:`privote.label` returns by default.
    by
        ``"likely"``: a label is 1 where the chance that most voters want it is above one half, so
        that a one is likelier right than wrong. ``"f1"``: the largest expected F1 over all labels.
        ``"balanced"``: the largest expected balanced accuracy of each label. A number: where the
        chance is at least that.
    """
    if not isinstance(release, Release) or release.tallies is None:
        raise InputError("release", "must have tallies: labels that were drawn are decided")
    if release.processed:
        raise InputError("release", f"must be as drawn, and then: {release.processed[0]}")
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
        raise AttributeError(f"nothing sealed under {name!r}; there is: {', '.join(vars(self))}")

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
class Release:
    """Private labels and what may be said about them.

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
        Probabilities that were made of those of the tallies, such as by implications; None if
        there are none.
    epsilon, delta
        What may be published; ``epsilon`` is None where only a sealed number exists.
    guarantee
        "allowance", "worst-case" or "data-dependent".
    budget
        The epsilon that was asked for.
    mechanism
        The public parameters.
    voters
        Registered voters.
    terms
        Public terms of the guarantee: for a learnt allowance, as "learnt", for how many queries it
        is ("planned"), whether it was learnt or is a fixed one ("learns"), what that cost
        ("epsilon0") and whether all of the budget was priced at once ("exact"); for "ptr" what
        was proposed and whether the test passed; for a sanitized "data-dependent" epsilon the
        order, the noise, the confidence, its price, and to compare what PATE 2018 would price it at
        (``price_2018``: not a valid bound).
    allowance
        Surprises a voter may cast in its life: one number, one per voter, or None.
    simulated
        True if a seed was given: the draws are reproducible and protect nobody.
    ledger
        Number and digest of the ledger entry after which this was drawn; None without a file.
    dataset, consumer
        Whose votes, and for whom: names in the ledger.
    new
        Whether this is the first charge to the data set in a ledger that lasts.
    rule
        How charges to the data set's budget add up: "shared at order 4", "exclusive"; None where
        nothing adds up.
    so_far
        Under an allowance: queries answered from it by now, this release included.
    left
        What the charges so far have left of the data set's epsilon; None without a ledger.
    asked
        How many queries there were to answer; None where nobody said.
    forecast
        How good such labels are expected to be, from public numbers and from what was released.
    reasons
        Why these settings, why it stopped where it did and what would answer more, in sentences.
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
        What was done to the labels after they were drawn, in words. It follows from released labels
        and public rules alone, and costs nothing.
    made
        When, in UTC.
    sealed
        For the owner's eyes; never saved, never printed.
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
    consumer: str | None = None
    new: bool = False
    rule: str | None = None
    so_far: int | None = None
    left: float | None = None
    asked: int | None = None
    forecast: Forecast | None = None
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

    @cached_property
    def posterior(self) -> Posterior | None:
        """What all released tallies say together; None for mechanisms that release labels."""
        known = self.mechanism["mechanism"] == TallyVoting.name  # else one of somebody's own
        if self.tallies is None or not self.answered or not known:
            return None
        mechanism: Any = mechanism_of(self.mechanism)
        return posterior(
            self.tallies, sigma=mechanism.sigma, voters=self.voters, steps=mechanism.steps
        )

    @property
    def probabilities(self) -> Floats | None:
        """(answered, labels): the chance that most voters want a label, given all released tallies.

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

        From released tallies alone; None where it cannot be told (:mod:`privote.deciding`).
        """
        if self.posterior is None:
            return None
        learnt = self.terms.get("learnt", {}).get("learns", False)
        return self.posterior.quality(self.decided, learnt=learnt)

    @property
    def of_asked(self) -> str:
        """How many queries were answered, and of how many if not all were."""
        from .statements import of_asked

        return of_asked({"asked": self.asked, "answered": self.answered})

    @property
    def budget_left(self) -> str | None:
        """What is left of the data set's epsilon, in words; never more than there is."""
        if self.left is None:
            return None
        down = rounded_up(-self.left, 4).removeprefix("-")
        return f"epsilon {down} of {rounded_up(self.budget)}"

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

    @property
    def poor_from(self) -> int | None:
        """The first row whose labels are expected to be poor, as voters run out; None if none is.

        By the forecast: from public numbers and released labels, never from who ran out.
        """
        found = self.forecast
        warned = () if found is None else found.warnings
        if found is None or not any(text.startswith(LASTS) for text in warned):
            return None
        before = 0 if self.so_far is None else self.so_far - self.answered
        first = 0 if found.lasts is None else max(0, found.lasts - before)
        return first if first < self.answered else None

    def facts(self) -> dict[str, Any]:
        """Return everything publishable as plain values, for JSON; labels and names by digests."""
        names = None if self.query_names is None else json.dumps(self.query_names).encode()
        facts: dict[str, Any] = {
            "answered": self.answered,
            "labels": int(self.labels.shape[1]),
            "abstained": self.abstained,
            "decided": None if self.tallies is None else self.decided,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "guarantee": self.guarantee,
            "budget": self.budget,
            "mechanism": self.mechanism,
            "voters": self.voters,
            "allowance": [*self.allowance] if isinstance(self.allowance, tuple) else self.allowance,
            "terms": self.terms,
            "simulated": self.simulated,
            "ledger": self.ledger,
            "dataset": self.dataset,
            "consumer": self.consumer,
            "new": self.new,
            "rule": self.rule,
            "so_far": self.so_far,
            "left": self.left,
            "asked": self.asked,
            "forecast": None if self.forecast is None else self.forecast.facts(),
            "reasons": list(self.reasons),
            "protects": self.protects,
            "label_names": None if self.label_names is None else list(self.label_names),
            "drawn": list(self.drawn),
            "sha256": {
                "labels": digest_of(self.labels),
                "tallies": None if self.tallies is None else digest_of(self.tallies),
                "query_names": None if names is None else sha256(names).hexdigest(),
            },
            "processed": list(self.processed),
            "made": self.made,
            "version": self.version,
            "format": FORMAT,
        }
        return {**facts, "digest": digest_of_facts(facts)}

    def summary(self) -> str:
        """Return a few lines for a terminal: published numbers only."""
        from .statements import summary

        return summary(self)

    def statement(self) -> str:
        """Return one page in plain words, for the person who signs it: published numbers only.

        :meth:`facts` holds the same for machines.
        """
        from .statements import statement

        return statement(self.facts())

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
                raise ValueError(f"its {name} is {facts[name]!r:.40}")
        own = {name: value for name, value in facts.items() if name not in _DERIVED}
        own["reasons"] = tuple(map(str, own["reasons"]))
        own["decided"] = "likely" if own["decided"] is None else _check_rule(own["decided"])
        for name, array in (("tallies", tallies), ("chances", chances)):
            if array is not None and array.shape != labels.shape:
                raise ValueError(f"its {name} have the shape {array.shape}, labels {labels.shape}")
        if own["forecast"] is not None:
            own["forecast"] = Forecast.of_facts(own["forecast"])
        if isinstance(own["allowance"], list):
            own["allowance"] = tuple(own["allowance"])
        if own.get("label_names") is not None:
            own["label_names"] = tuple(map(str, own["label_names"]))
        for name in ("drawn", "processed"):
            own[name] = tuple(map(str, own[name]))
        named = None if query_names is None else tuple(map(str, query_names))
        if named is not None and len(named) != len(labels):
            raise ValueError(f"it has {len(named)} query names and {len(labels)} queries")
        arrays: dict[str, Any] = {"tallies": tallies, "chances": chances}
        release = cls(labels=labels, **arrays, query_names=named, **own)
        made = release.facts()
        edited = [name for name in made.keys() | facts.keys() if made.get(name) != facts.get(name)]
        if edited:
            raise ValueError(f"it was edited: {', '.join(sorted(edited))} does not fit the rest")
        same = release.drawn == (digest_of(release.outcome),)
        changed = tallies is None and release.processed
        if len(release.drawn) == 1 and not changed and not same:
            raise ValueError("its labels are not those that were drawn, and it does not say why")
        return release
