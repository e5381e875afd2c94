"""A release: what may be published, with its guarantee; and, apart, what stays sealed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .accounting.renyi import rounded_up
from .errors import InputError, plural
from .files import check_written, written
from .guarantees import Fact, Guarantee, Learnt, Sealed, Shown
from .ledger import digest_of
from .mechanisms import ABSTAIN, TallyVoting
from .posterior import Floats, Posterior, check_rule, posterior
from .votes.arrays import ArrayFile

FORMAT = 5  # of what is saved
HELPS = "More voters, fewer queries or a larger epsilon would help"

# What is no fact: digests say what it is, or nobody may know it.
_APART = (
    *("labels", "quality", "tallies", "query_names", "sealed", "guarantee"),
    *("_evidence", "_chances"),
)
# Facts that follow from others.
_DERIVED = ("answered", "labels", "abstained", "sha256", "digest", "format", "version", "guarantee")
_HELPED = "Labels were decided with the help of the queries' public rows"
_DECIDED: dict[str | float, str] = {
    "likely": "likely: a label is 1 where most voters want it with a probability above one half",
    "f1": "f1: the largest expected F1",
    "balanced": "balanced: the largest expected balanced accuracy of each label",
}


def decide(release: Release, by: str | float = "likely", rows: Any = None) -> Release:
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
    rows
        (queries, features): public rows of the queries, dense or sparse. What they say of a label
        is learnt from the released tallies, and helps most where noise is strong.

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
    rule, alone, terms = check_rule(by), release._evidence, release.guarantee.terms
    learnt = isinstance(terms, Learnt) and terms.learns
    if alone is None or release._chances is not None:
        alone = evidence_of(release, None)
    evidence = alone if rows is None else evidence_of(release, rows)
    if alone is None or evidence is None:
        return replace(release, decided=rule)
    plain = replace(
        release,
        labels=alone.labels(rule).astype(np.int8),
        decided=rule,
        reasons=tuple(text for text in release.reasons if not text.startswith(_HELPED)),
        _evidence=alone,
        _chances=None,
        quality=alone.quality(rule, learnt=learnt),
    )
    if rows is None:
        return plain
    return replace(
        plain,
        labels=evidence.labels(rule).astype(np.int8),
        reasons=(*plain.reasons, f"{_HELPED}. Without them: {expected(plain)}."),
        _evidence=evidence,
        _chances=evidence.probabilities,
        quality=evidence.quality(rule, learnt=learnt),
    )


def follows(release: Release) -> bool:
    """Return whether labels are as the rule has them, where released tallies alone decide."""
    if release.tallies is None or release.processed or release._chances is not None:
        return True  # drawn themselves; or made of more than tallies, as the release says
    return np.array_equal(decide(release, release.decided).labels, release.labels)


def evidence_of(release: Release, rows: Any) -> Posterior | None:
    """Return what all released tallies say together; None for mechanisms that release labels."""
    guarantee, tallies = release.guarantee, release.tallies
    settings = dict(guarantee.mechanism)
    if tallies is None or not len(tallies) or settings.pop("mechanism") != TallyVoting.name:
        return None  # or a mechanism of somebody's own
    mechanism = TallyVoting(**settings)
    # Where records speak on queries near them only, "most voters" are most of those near.
    near = 1 if release.active_share is None else release.active_share
    return posterior(
        tallies,
        sigma=mechanism.sigma,
        voters=max(1, min(guarantee.voters, round(near * guarantee.voters))),
        resolution=mechanism.steps,
        rows=rows,
    )


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
    guarantee
        What is promised; ``str(guarantee)`` is its kind.
    decided
        How labels were decided from tallies: "likely", "f1", "balanced" or a threshold.
    quality
        Expected precision, recall and F1 against the noise-free majority, also "by_label". From
        released tallies and public rows alone; None where it cannot be told
        (:mod:`privote.posterior`).
    active_share
        The share of the voters to be expected near a query, where only those speak; None where all
        do.
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
    processed
        How the labels were post-processed, in words. This uses released labels and public rules
        only, and costs nothing.
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
    guarantee: Guarantee
    decided: str | float = "likely"
    quality: dict[str, Any] | None = field(default=None, repr=False)
    active_share: float | None = None
    asked: int | None = None
    forecast: dict[str, Any] | None = None
    reasons: tuple[str, ...] = ()
    label_names: tuple[str, ...] | None = None
    query_names: tuple[str, ...] | None = field(default=None, repr=False)
    processed: tuple[str, ...] = ()
    sealed: Sealed = field(default_factory=Sealed, repr=False, compare=False)
    _evidence: Posterior | None = field(default=None, repr=False)
    _chances: Floats | None = field(default=None, repr=False)  # where tallies alone do not tell

    @property
    def answered(self) -> int:
        """How many queries were answered, withheld labels included."""
        return len(self.labels)

    @property
    def epsilon(self) -> float | None:
        """What this release costs, alone; None where only a sealed number exists."""
        return self.guarantee.epsilon

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self.guarantee.delta

    @property
    def probabilities(self) -> Floats | None:
        """(answered, labels): probability that most voters want a label, given all tallies.

        None for mechanisms that release labels.
        """
        if self._chances is not None or self._evidence is None:
            return self._chances
        return self._evidence.probabilities

    @property
    def shares(self) -> Floats | None:
        """(answered, labels): the expected share of voters who want a label, given all tallies.

        What a student learns from; None for mechanisms that release labels.
        """
        return None if self._evidence is None else self._evidence.shares

    def __repr__(self) -> str:
        shown = "sealed" if self.epsilon is None else f"{rounded_up(self.epsilon, 4)}"
        mark = ", SIMULATED" if self.guarantee.simulated else ""
        return (
            f"Release({self.answered} queries x {self.labels.shape[1]} labels, {self.guarantee}, "
            f"epsilon={shown}, delta={rounded_up(self.delta)}{mark})"
        )

    def facts(self) -> dict[str, Any]:
        """Return everything publishable as plain values, for JSON; labels and names by digests."""
        names = None if self.query_names is None else json.dumps(self.query_names).encode()
        quality = self.quality
        if quality is not None:
            by_label = {name: values.tolist() for name, values in quality["by_label"].items()}
            quality = {**quality, "by_label": by_label}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        facts: dict[str, Any] = {
            **written(FORMAT),
            "answered": self.answered,
            "labels": int(self.labels.shape[1]),
            "abstained": int((self.labels == ABSTAIN).sum()),
            **{
                name: [*value] if isinstance(value, tuple) else value
                for name, value in values.items()
                if name not in _APART
            },
            "quality": quality,
            "decided": None if self.tallies is None else self.decided,
            "guarantee": self.guarantee.facts(),
            "sha256": {
                "labels": digest_of(self.labels),
                "tallies": None if self.tallies is None else digest_of(self.tallies),
                "query_names": None if names is None else sha256(names).hexdigest(),
            },
        }
        return {**facts, "digest": digest_of_facts(facts)}

    def brief(self) -> dict[str, str]:
        """Return the facts that are worth a line in a terminal."""
        return {row.name: row.text for row in rows_of(self) if row.brief}

    def summary(self) -> str:
        """Return a short text for a terminal. It contains published numbers only."""
        lines = [f"{name:<20}{text}" for name, text in self.brief().items()]
        return "\n".join([headline(self), *lines])

    def statement(self) -> str:
        """Return the privacy statement for the person who signs off: published numbers only."""
        return self.guarantee.statement()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write labels and public facts to an ``.npz`` file; nothing sealed goes along."""
        if not isinstance(path, str | os.PathLike) or Path(path).suffix != ".npz":
            raise InputError("path", "must end in .npz", str(path))
        names = None if self.query_names is None else np.array(self.query_names)
        arrays = {
            "labels": self.labels,
            "facts": np.array(json.dumps(self.facts())),
            "tallies": self.tallies,
            "chances": self._chances,
            "query_names": names,
        }
        try:
            np.savez_compressed(
                Path(path), **{name: array for name, array in arrays.items() if array is not None}
            )
        except OSError as error:
            raise InputError(f"path {str(path)!r} cannot be written: {error}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read what :meth:`save` wrote, if it fits its digest. Runs no code from the file."""
        try:
            data = ArrayFile(path)
            names = data["query_names"].tolist() if "query_names" in data else None
            arrays = {name: data[name] for name in ("tallies", "chances") if name in data}
            return _of_facts(data["labels"], read_facts(str(data["facts"])), names, **arrays)
        except (OSError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{str(path)!r} is not a saved release: {error}") from None


def release_of(outcome: npt.NDArray[Any], guarantee: Guarantee, **facts: Any) -> Release:
    """Return the release of what was drawn: labels, or tallies that are decided here."""
    rows, resolution = facts.pop("rows", None), guarantee.mechanism.get("grid") or 1
    if outcome.dtype != np.int64:
        return Release(labels=outcome, guarantee=guarantee, **facts)
    labels = (2 * outcome > resolution * guarantee.voters).astype(np.int8)
    return decide(Release(labels=labels, tallies=outcome, guarantee=guarantee, **facts), rows=rows)


def digest_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all facts but this one; labels and names are in there by their own."""
    rest = {name: value for name, value in facts.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), default=str)
    return sha256(text.encode()).hexdigest()


def read_facts(text: str) -> dict[str, Any]:
    """Return facts as JSON states them, each once."""
    facts = json.loads(text, object_pairs_hook=_each_once)
    if not isinstance(facts, dict):
        raise ValueError("it contains no facts")
    return facts


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        raise ValueError("it states a fact twice")
    return facts


def _of_facts(
    labels: npt.NDArray[np.int8],
    facts: dict[str, Any],
    query_names: Sequence[str] | None,
    **arrays: npt.NDArray[Any],
) -> Release:
    """Return the release that :meth:`Release.facts` is about; refuse an edit of a part."""
    check_written("it", facts, FORMAT)
    if facts.get("digest") != digest_of_facts(facts):
        raise ValueError("it was edited: its digest does not match")
    for name, array in arrays.items():
        if array.shape != labels.shape:
            raise ValueError(f"its {name} are {array.shape}, its labels {labels.shape}")
    values = {name: value for name, value in facts.items() if name not in _DERIVED}
    for name in ("reasons", "processed", "label_names"):
        values[name] = None if values[name] is None else tuple(map(str, values[name]))
    values["decided"] = "likely" if values["decided"] is None else check_rule(values["decided"])
    names = None if query_names is None else tuple(map(str, query_names))
    values["_chances"] = arrays.pop("chances", None)
    if values["quality"] is not None:
        by_label = {name: np.array(each) for name, each in values["quality"]["by_label"].items()}
        values["quality"] = {**values["quality"], "by_label": by_label}
    values |= {**arrays, "query_names": names, "guarantee": Guarantee.of_facts(facts["guarantee"])}
    release = Release(labels=labels, **values)
    vars(release)["_evidence"] = evidence_of(release, None)
    guarantee = release.guarantee
    if release.facts()["sha256"] != facts["sha256"]:
        raise ValueError("it was edited: its labels, tallies or names do not match")
    outcome = labels if release.tallies is None else release.tallies
    changed = release.processed and release.tallies is None
    if not changed and digest_of(outcome) != guarantee.drawn:
        raise ValueError("its labels differ from what was drawn, without a reason")
    return release


# -- in words --------------------------------------------------------------------------------------


def headline(release: Release) -> str:
    """Return the first line of every report: queries answered, expected quality, epsilon, delta."""
    cost = "sealed" if release.epsilon is None else rounded_up(release.epsilon, 4)
    quality = f"; {expected(release)}" if isinstance(release.guarantee.terms, Learnt) else ""
    return f"{queries_of(release)}{quality}; epsilon {cost}, delta {rounded_up(release.delta)}"


def queries_of(release: Release) -> str:
    """Say how many queries were answered, and of how many if not all were."""
    if release.asked is not None and release.asked > release.answered:
        return f"{release.answered:,} of {plural(release.asked, 'query')}"
    return plural(release.answered, "query")


def expected(release: Release) -> str:
    """Return the expected quality of labels decided from tallies, or why it cannot be told."""
    quality, unknown = release.quality, "the quality of the labels cannot be estimated"
    if quality is not None:
        after = "" if release.active_share is None else " near each query"
        after += ", before post-processing" if release.processed else ""
        precision, recall = (f"{100 * quality[name]:.0f} %" for name in ("precision", "recall"))
        figures = f"precision {precision}, recall {recall}"
        return f"expected {figures} against the majority of the voters{after}"
    if release.answered and not release.labels.any():
        unknown = f"no label is a 1, and {unknown}"
    terms = release.guarantee.terms
    if not (isinstance(terms, Learnt) and terms.learns):
        if release.guarantee.kind == "worst-case":
            return f"{unknown}: with worst-case, nothing is learnt from the votes"
        return f"{unknown}: there are too few voters. {HELPS}"
    if release._evidence is None or not release._evidence.fitted:
        return f"{unknown}: there are too few labels. More queries in one call would help"
    if not release.labels.any():
        return f"{unknown}: no majority stands out from the noise. {HELPS}"
    return f"{unknown}: majorities hardly stand out from the noise. {HELPS}"


def rows_of(release: Release) -> list[Fact]:
    """Return all that is said about a release, a line each, as every rendering has it."""
    withheld = int((release.labels == ABSTAIN).sum())
    told = release.forecast
    digests = digest_of(release.labels)
    rows: list[tuple[str, str, str | None, bool]] = [
        ("answered", "answered", queries_of(release), True),
        ("labels", "labels per query", f"{release.labels.shape[1]:,}", True),
        ("voters", "voters", f"{release.guarantee.voters:,}", True),
        (
            "abstained",
            "withheld",
            f"{withheld:,} labels, by the confidence gate (ABSTAIN)" if withheld else None,
            True,
        ),
        ("decided", "decided by", _decided(release), True),
        ("forecast", "expected", None if told is None else forecast_in_words(told), True),
        ("warnings", "WARNING", None if told is None else " ".join(told["warnings"]), True),
        ("reasons", "why", " ".join(release.reasons), True),
        ("processed", "post-processing", _processed(release.processed), True),
        ("sha256", "labels' SHA-256 digest", digests, False),
    ]
    facts = [Fact(key, name, text, brief) for key, name, text, brief in rows if text]
    return [*facts, *release.guarantee.rows()]


def _decided(release: Release) -> str | None:
    if release.tallies is None:
        return None
    rule = release.decided
    return _DECIDED.get(rule, f"a label is 1 at a probability of {rule} or more")


def _processed(texts: Sequence[str]) -> str | None:
    return f"{'; '.join(texts)}. This costs no privacy budget" if texts else None


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
    voters = "the voters" if near is None else f"the voters near it (about {near:,})"
    share = f"{100 * told['share_needed']:.0f} % of {voters}"
    return f"{text} A label that {share} want is released with 95 % probability."


def of_owner(release: Release, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what is for the owner's eyes, as plain numbers; voters by name, or by place."""
    sealed: Any = release.sealed
    if release.guarantee.kind == "allowance":
        spent, clipped = sealed.spent, sealed.clipped
        who = np.flatnonzero(clipped)
        return {
            "voters_who_ran_out": int(sealed.exhausted.sum()),
            "ballots_clipped": {
                str(voter) if names is None else names[voter]: int(clipped[voter])
                for voter in who[np.argsort(-clipped[who], kind="stable")]
            },
            "contributions_cast_fewest": int(spent.min()),
            "contributions_cast_median": float(np.median(spent)),
            "contributions_cast_most": int(spent.max()),
        }
    if release.guarantee.kind != "data-dependent":
        return {}
    bills = sealed.bills()
    exact = ("epsilon_by_voter", "accountant", "epsilon_rdp", "epsilon_pld")
    return {
        "epsilon": float(sealed.epsilon),
        "epsilon_of_costliest_voter": float(bills.max()),
        "epsilon_of_median_voter": float(np.median(bills)),
        **{name: getattr(sealed, name) for name in exact},
    }
