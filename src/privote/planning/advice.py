"""Which mechanism, guarantee and settings to take, and for how many queries: public numbers only.

The rule: answer all queries with the least noise that this needs. Where that would be so much that
a label every voter wants is missed, or one that nobody wants is released, more than one time in ten
(``quality``), or that for two wanted labels more than one comes out that nobody wants, answer only
as many queries as keep all of these below. Among the guarantees and bars that follow this rule,
take what promises the best labels (:mod:`privote.planning.settings`), with more noise only where
that is a reserve of allowance and hardly costs a label.

How good the chosen setting is comes from the mechanism's own probabilities, and what it costs from
the count that the guardian asks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..accounting.allowance import FACTOR
from ..accounting.renyi import epsilon as to_epsilon
from ..accounting.renyi import rounded_up
from ..errors import InputError, finite, whole
from ..ledger import Budget
from ..mechanisms import BinaryVoting, Mechanism
from .budget import unanimous_miss
from .outlook import BUSIEST, Chances, Outlook
from .settings import HALF, Choice, Floor, Offer, best_choice, offers_for
from .solve import count_for, sigma_for

_FEW_VOTERS = 64  # a vote costs most at the bar: the price with more voters is the same
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MOST_CELLS = 10**11
_LEAST = 0.1  # less noise than a tenth of a vote changes no label
_RESERVED = 1.2  # from so many times the queries on, the advice speaks of a reserve
_FINE = 0.01  # where all queries are answered, this is what could be better
_ROUND = 1.002  # so that what is needed is enough in four digits, too
_MORE = (1.0, 1.002, 1.01, 1.05, 1.3)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to choose, and why. All of it follows from public numbers and may be published.

    Attributes
    ----------
    mechanism
        Ready to use; its sigma is PATE's sigma_GNMax, its bar ``quota`` where another than one half
        helps.
    guarantee
        "allowance" or "worst-case".
    queries, asked
        How many queries to answer, of how many.
    good
        Whether a label that every voter wants is missed, and one that nobody wants released, at
        most as often as was asked (``quality``).
    missed, false_alarm
        Those two chances.
    expected
        Both chances for wanted and unwanted labels at several levels of agreement, the stated one
        among them.
    precision
        The share of the released ones that are wanted, at the stated agreement.
    allowance
        Surprises a voter may cast in its life; None under "worst-case".
    lasts
        Queries that the busiest voter's allowance lasts for, or that fit in the worst case.
    lasts_typical
        The same for a voter with the mean share of yes.
    reasons
        Why, in short sentences.
    needed, target
        What would answer all queries so that a label every voter wants is missed at most so often
        (``target``: the asked ``quality``, or 0.01 where that is reached), each alone: the smallest
        "epsilon", the fewest "voters", the most "labels" (None: no number of them would). Empty if
        what is advised does.
    outlook
        The electorate that this is for.
    epsilon, delta, quality
        The budget, and the bar of quality.
    """

    mechanism: Mechanism
    guarantee: str
    queries: int
    asked: int
    good: bool
    missed: float
    false_alarm: float
    expected: tuple[Chances, ...]
    precision: float
    allowance: int | None
    lasts: int
    lasts_typical: int
    reasons: tuple[str, ...]
    needed: dict[str, float | int | None] = field(default_factory=dict)
    target: float
    outlook: Outlook
    epsilon: float
    delta: float
    quality: float | None

    @property
    def changes(self) -> tuple[str, ...]:
        """What would answer all queries better, in words."""
        goal = f"all {self.asked:,} queries with at most {self.target:.0%} missed"
        said = []
        for name, value in self.needed.items():
            if value is None:
                said.append(f"No number of {name} would be small enough for {goal}.")
            elif name == "epsilon":
                said.append(f"An epsilon of {rounded_up(float(value), 3)} is enough for {goal}.")
            elif name == "labels":
                many = "one label" if value == 1 else f"at most {value:,} labels"
                said.append(f"With {many} this epsilon is enough for {goal}.")
            else:
                said.append(f"With {value:,} {name} this epsilon is enough for {goal}.")
        return tuple(said)

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shown |= {
            "mechanism": self.mechanism.parameters(),
            "expected": [asdict(each) for each in self.expected],
            "reasons": list(self.reasons),
            "needed": dict(self.needed),
            "changes": list(self.changes),
        }
        return {**shown.pop("outlook").__dict__, **shown}


def advise(
    *,
    voters: int,
    labels: int,
    epsilon: float,
    delta: float,
    queries: int,
    yes: float = 0.1,
    most_ones: int | None = None,
    agreement: float | None = None,
    busiest: float = BUSIEST,
    quality: float | None = 0.1,
    false_alarm: float | None = None,
    guarantee: str | None = None,
    rule: str | None = None,
) -> Advice:
    """Say which mechanism, guarantee and settings promise the best labels, and why.

    Only public numbers go in, so the advice may be followed, and published, before a vote is cast.
    Where a guess is wrong, labels suffer and the promise does not.

    Parameters
    ----------
    voters, labels, queries
        How many there are.
    epsilon, delta, rule
        The budget, as in `queries_for`.
    yes, agreement, most_ones, busiest
        What the votes will be like, as a guess: see :class:`privote.planning.Outlook`. The share of
        yes among all votes; the share of the voters that says yes to a wanted label (0.8); the most
        labels that a ballot may name, if the rules limit it; and how often the busiest voter says
        yes, over the mean.
    quality
        How often a label that every voter wants may be missed. Where all queries would need more
        noise, fewer are answered. None: all of them, whatever becomes of the labels.
    false_alarm
        How often one that nobody wants may be released: by default as ``quality``, and not more
        than five times ``quality`` for each label that is wanted, by the stated share of yes.
    guarantee
        "allowance" or "worst-case", where it is settled already.
    """
    outlook = Outlook(
        voters=voters,
        labels=labels,
        yes=yes,
        agreement=agreement,
        most_ones=most_ones,
        busiest=busiest,
    )
    if whole("queries", queries) * labels > _MOST_CELLS:
        raise InputError("queries", f"times `labels` must be at most {_MOST_CELLS:,}", queries)
    quality, false_alarm = _chance("quality", quality), _chance("false_alarm", false_alarm)
    budget = Budget(epsilon=epsilon, delta=delta, rule=rule)
    if guarantee not in (None, "allowance", "worst-case"):
        raise InputError("guarantee", "must be allowance, worst-case or None", guarantee)
    floor = Floor.of(outlook, quality, false_alarm)
    chosen = best_choice(outlook, budget, queries, floor, guarantee)
    return _settled(chosen, outlook, budget, queries, floor, quality)


def _chance(name: str, value: float | None) -> float | None:
    if value is not None and not 0 < finite(name, value) < HALF:
        raise InputError(name, "must lie strictly between 0 and 1/2", value)
    return None if value is None else float(value)


def _settled(
    choice: Choice,
    outlook: Outlook,
    budget: Budget,
    queries: int,
    floor: Floor,
    quality: float | None,
) -> Advice:
    offer, bar = choice.offer, choice.bar
    most = _neat(floor.most_noise(outlook.voters, bar), up=False)
    mechanism = offer.make(most, bar)
    allowance, lasts = _count(mechanism, offer, outlook, budget)
    good, enough = lasts >= 1, lasts >= queries
    fit = min(lasts, queries) if good else 1
    if enough or not good:
        sigma = max(_least_noise(offer.votes(fit), budget), choice.noise if good else 0.0)
        for more in _MORE:  # solved for few voters and the bar at one half: others may cost more
            noise = _neat(more * sigma, up=True)
            mechanism = offer.make(min(noise, most) if good else noise, bar)
            allowance, lasts = _count(mechanism, offer, outlook, budget)
            if lasts >= fit:
                break
    missed = unanimous_miss(mechanism, outlook.voters, outlook.labels)
    target = _FINE if enough or quality is None else quality
    needed = {}
    if not enough or missed > target:
        needed = _needed(choice, outlook, budget, queries, target)
    levels = sorted({outlook.level, *(each for each in _LEVELS if each > outlook.yes)})
    here = outlook.chances(mechanism)
    true = outlook.yes * (1 - here.missed)
    ones = true + (1 - outlook.yes) * here.false_alarm
    found = Advice(
        mechanism=mechanism,
        guarantee=offer.guarantee,
        queries=max(1, min(fit, lasts)),
        asked=queries,
        good=good,
        missed=missed,
        false_alarm=outlook.released(mechanism, 0.0),
        expected=tuple(outlook.chances(mechanism, each) for each in levels),
        precision=true / ones if ones else 0.0,
        allowance=allowance,
        lasts=lasts,
        lasts_typical=lasts if allowance is None else int(allowance / outlook.per_query),
        reasons=(),
        needed=needed,
        target=target,
        outlook=outlook,
        epsilon=budget.epsilon,
        delta=budget.delta,
        quality=quality,
    )
    return replace(found, reasons=tuple(_reasons(found, floor)))


def _count(
    mechanism: Mechanism, offer: Offer, outlook: Outlook, budget: Budget
) -> tuple[int | None, int]:
    """Return the allowance, if that is the promise, and how many queries are answered with it."""
    if offer.guarantee == "worst-case":
        labels = outlook.labels if mechanism.surprise_unit == "ballot" else 1
        return None, _bought(mechanism, outlook.voters, labels, budget) * labels // outlook.labels
    allowance = _bought(mechanism, outlook.voters, 1, budget) // FACTOR
    return allowance, offer.fits(FACTOR * allowance)


@lru_cache(maxsize=1024)
def _bought(mechanism: Mechanism, voters: int, labels: int, budget: Budget) -> int:
    """Return how many queries with so many labels a budget buys, whatever the votes."""
    return count_for(partial(mechanism.worst_case_rdp, voters, labels), budget)


@lru_cache(maxsize=1024)
def _least_noise(votes: int, budget: Budget) -> float:
    """Return the least sigma with which the budget buys so many single votes."""

    def make(sigma: float) -> Mechanism:
        return BinaryVoting(sigma=sigma)

    if _bought(make(_LEAST), _FEW_VOTERS, 1, budget) >= votes:
        return _LEAST
    return sigma_for(make, _FEW_VOTERS, 1, budget.epsilon, budget.delta, votes)


def _needed(
    choice: Choice,
    outlook: Outlook,
    budget: Budget,
    queries: int,
    target: float,
) -> dict[str, float | int | None]:
    """Return which epsilon, voters or labels, each alone, would answer all queries well."""
    offer, wanted = choice.offer, choice.offer.votes(queries)
    floor = Floor.of(outlook, target)
    top = BinaryVoting(sigma=floor.most_noise(outlook.voters, choice.bar))
    vote = top.worst_case_rdp(_FEW_VOTERS, 1)
    epsilon = float(np.max(to_epsilon(wanted * vote, None, budget.delta)))
    voters = _ROUND * _least_noise(wanted, budget) / floor.most_noise(1, choice.bar)
    found: dict[str, float | int | None] = {
        "epsilon": _neat(_ROUND * epsilon, up=True),
        "voters": math.ceil(voters),
    }
    affordable = _bought(top, _FEW_VOTERS, 1, budget)

    def votes(labels: int) -> int:
        fewer = replace(outlook, labels=labels, most_ones=None)
        kind = next(each for each in offers_for(fewer) if each.guarantee == offer.guarantee)
        return kind.votes(queries)

    if outlook.most_ones is None and outlook.labels > 1:
        found["labels"] = bisect_right(range(1, outlook.labels), affordable, key=votes) or None
    return found


def _reasons(advice: Advice, floor: Floor) -> Iterator[str]:
    """Yield why, in short sentences."""
    outlook, dense = advice.outlook, advice.allowance is None
    ones = outlook.per_query
    if not advice.good:
        yield (
            "No number of queries can be answered well: even one needs so much noise that a label "
            f"every voter wants is missed {advice.missed:.0%} of the time."
        )
    if not dense:
        yield (
            f"Ballots are short ({ones:.3g} of {outlook.labels:,} labels on average), and an "
            "allowance charges for yes-votes only."
        )
    elif advice.mechanism.surprise_unit == "ballot":
        yield f"Ballots name at most {outlook.longest} labels, and clipping makes use of that."
    elif FACTOR * outlook.surprises(advice.queries) < outlook.labels * advice.queries:
        yield (
            "The worst case needs little noise for so many voters, and then nobody can run out, "
            "whatever the votes."
        )
    else:
        yield (
            f"Busy voters may say yes to so many of {outlook.labels:,} labels that an allowance, "
            "which pays for each yes twice, would cost more than the worst case."
        )
    quota = advice.mechanism.parameters().get("quota")
    if quota is not None:
        yield (
            f"About {outlook.level:.0%} of the voters say yes to a wanted label and "
            f"{outlook.strays():.0%} to others, so the bar stands between them, at {quota:.0%}."
        )
    if not advice.good:
        pass  # which was said first
    elif advice.queries < advice.asked:
        few = "one does not" if advice.queries == 1 else f"{advice.queries:,} do not"
        yield (
            f"All {advice.asked:,} queries would need so much noise that a label every voter wants "
            f"is missed more than {floor.missed:.0%} of the time, or one that nobody wants comes "
            f"out more than {floor.false_alarm:.1%} of the time; {few}."
        )
    elif advice.lasts > _RESERVED * advice.asked:
        yield (
            f"With this noise the budget is enough for {advice.lasts:,} queries: a reserve, which "
            "costs hardly a label, in case voters say yes more often than stated."
        )
    else:
        many = "the query" if advice.asked == 1 else f"all {advice.asked:,} queries"
        fit = "fit" if advice.asked > 1 else "fits"
        fit = "should fit" if advice.guarantee == "allowance" else fit
        yield f"This is about the least noise with which {many} {fit}."
    if advice.precision < HALF:
        yield (
            f"Of the released ones only about {advice.precision:.0%} will be wanted: few labels "
            "are, and noise raises the others."
        )


def _neat(value: float, *, up: bool) -> float:
    """Return four digits of a number, on the side that still fits."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return (math.ceil(value * scale) if up else math.floor(value * scale)) / scale
