"""Every guarantee, bar and noise side by side, by closed forms: which promises the best labels.

For each guarantee and bar the noise is the least with which all queries fit. If that is more than
the floor of quality allows, it is as much as that allows, and fewer queries fit. Where it is less,
more noise is tried, too: it makes an allowance last longer, which is a reserve in case voters say
yes more often than stated.

What is compared is the share of queries answered, times how much more often a wanted label is
released than one that is not. That is balanced accuracy, with a query that is not answered counted
as a no throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from ..accounting.allowance import FACTOR
from ..accounting.filters import pinned_order
from ..accounting.renyi import Floats, largest_curve
from ..ledger import Budget
from ..mechanisms import BinaryVoting, Mechanism, TauVoting
from .outlook import Outlook

HALF = 0.5
#: For each wanted label so many times ``quality`` that nobody wants may be released. At the usual
#: quality of 0.1 that is one for two: of three released labels about two are wanted.
STRAYS = 5
#: A floor that only coin flips fall below.
ANY = 0.49

_BARS = tuple(round(0.02 + 0.03 * step, 2) for step in range(33))
_NOISES, _RESERVE = 8, 2.5  # tried for a bar: up to so many times the least sigma
# A guess of the share of yes may be wrong: how likely each multiple of it is held to be.
_WRONG = {1.0: 0.5, 4.0: 0.3, 0.3: 0.2}
_CAUTION = 0.03  # what may be lost at the stated share of yes, to be safe at another
_WORTH = 0.02  # what another bar must promise more, to be worth a word that readers do not expect


@dataclass(frozen=True, kw_only=True)
class Floor:
    """How often labels on which all voters agree may come out wrong.

    Where few labels are wanted, false alarms at the rate of misses would outnumber them: so they
    are also bounded by how many are wanted.
    """

    missed: float
    false_alarm: float

    @classmethod
    def of(cls, outlook: Outlook, quality: float | None, false_alarm: float | None = None) -> Floor:
        """Return an electorate's floor; without ``quality`` anything but coin flips passes."""
        if quality is None:
            return cls(missed=ANY, false_alarm=false_alarm or ANY)
        strays = STRAYS * quality * outlook.yes / (1 - outlook.yes)
        return cls(missed=quality, false_alarm=false_alarm or min(quality, strays))

    def most_noise(self, voters: int, bar: float) -> float:
        """Return the largest sigma that keeps it."""
        misses, alarms = -ndtri(self.missed), -ndtri(self.false_alarm)
        return float(math.sqrt(2) * voters * min((1 - bar) / misses, bar / alarms))


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One kind of promise: what so many queries cost, in single votes, and the way back."""

    guarantee: str
    make: Callable[[float, float], Mechanism]  # from sigma and bar
    votes: Callable[[int], int]
    fits: Callable[[int], int]
    answers: Callable[[Outlook, Floats], Floats]  # about as many queries as so many votes pay for
    bars: tuple[float, ...] = _BARS


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One setting, and what it promises."""

    offer: Offer
    bar: float
    worth: float  # the share of yes may be another
    stated: float  # the share of yes is as stated
    noise: float


def best_choice(
    outlook: Outlook, budget: Budget, queries: int, floor: Floor, guarantee: str | None = None
) -> Choice:
    """Return what promises the best labels for an electorate, a budget and so many queries.

    Of one guarantee only, if that is settled already.
    """
    choices = [
        choice
        for offer in offers_for(outlook)
        if guarantee in (None, offer.guarantee)
        for choice in _choices(offer, outlook, budget, queries, floor)
    ]
    # What is safe against a wrong guess must not cost much if the guess is right.
    highest = max(choice.stated for choice in choices)
    safe = [choice for choice in choices if choice.stated >= highest - _CAUTION]
    chosen = max(safe, key=_rank)
    plain = [choice for choice in safe if choice.bar == HALF]
    if plain:
        other = max(plain, key=_rank)
        chosen = other if other.worth >= chosen.worth - _WORTH else chosen
    return chosen


def _rank(choice: Choice) -> tuple[float, float]:
    return round(choice.worth, 3), -choice.noise


def offers_for(outlook: Outlook) -> list[Offer]:
    """Return the guarantees that there are for such ballots."""
    labels, longest = outlook.labels, outlook.longest

    def binary(sigma: float, bar: float) -> Mechanism:
        return BinaryVoting(sigma=sigma, quota=None if bar == HALF else bar)

    def tau(sigma: float, bar: float) -> Mechanism:
        del bar  # Tau has one half only
        return TauVoting(sigma=sigma, tau=math.ceil(1e4 * math.sqrt(longest)) / 1e4)

    offers = [
        Offer(
            guarantee="allowance",
            make=binary,
            votes=lambda queries: FACTOR * outlook.surprises(queries),
            fits=lambda votes: outlook.lasts(votes // FACTOR),
            answers=lambda seen, votes: seen.lasting(np.floor(votes / FACTOR)),
        ),
        Offer(
            guarantee="worst-case",
            make=binary,
            votes=lambda queries: labels * queries,
            fits=lambda votes: votes // labels,
            answers=lambda _, votes: votes / labels,
        ),
    ]
    if 2 * longest < labels:  # two short ballots differ in no more places
        offers.append(
            Offer(
                guarantee="worst-case",
                make=tau,
                votes=lambda queries: 2 * longest * queries,
                fits=lambda votes: votes // (2 * longest),
                answers=lambda _, votes: votes / (2 * longest),
                bars=(HALF,),
            )
        )
    return offers


def _choices(
    offer: Offer, outlook: Outlook, budget: Budget, queries: int, floor: Floor
) -> list[Choice]:
    """Return what each bar and noise promises: from the least that is needed, up to a reserve."""
    per_square, bars = _votes_per_square(budget), np.array(offer.bars)
    most = np.array([floor.most_noise(outlook.voters, bar) for bar in offer.bars])
    fit = np.minimum(np.floor(offer.answers(outlook, per_square * most**2)), queries)
    all_of_them, one = (math.sqrt(offer.votes(n) / per_square) for n in (queries, 1))
    least = np.where(fit >= queries, all_of_them, np.where(fit >= 1, most, one))
    reserve = np.clip(most / least, 1.0, _RESERVE)
    noises = least[:, None] * reserve[:, None] ** np.linspace(0, 1, _NOISES)
    fails = np.where(fit >= 1, 0.0, -1.0)[:, None] + np.zeros_like(noises)
    worth, stated = fails.copy(), fails
    for weight, guess in _guesses(outlook):
        answered = np.minimum(offer.answers(guess, per_square * noises**2) / queries, 1.0)
        value = _gain(guess, noises, bars[:, None]) * answered
        worth += weight * value
        if guess.yes == outlook.yes:
            stated = fails + value
    columns = (np.broadcast_to(bars[:, None], noises.shape), worth, stated, noises)
    rows = zip(*(column.reshape(-1).tolist() for column in columns), strict=True)
    return [
        Choice(offer=offer, bar=bar, worth=value, stated=right, noise=noise)
        for bar, value, right, noise in rows
    ]


def _guesses(outlook: Outlook) -> list[tuple[float, Outlook]]:
    """Return the electorate as stated, and with more and with fewer yeses, with weights."""
    highest = min((outlook.yes + outlook.level) / 2, outlook.longest / outlook.labels)
    return [
        (weight, replace(outlook, yes=min(multiple * outlook.yes, max(highest, outlook.yes))))
        for multiple, weight in _WRONG.items()
    ]


def _votes_per_square(budget: Budget) -> float:
    """Return how many single votes a budget buys, over sigma^2.

    At the bar a vote moves Pr[1] = 1/2 by 1 / (sqrt(pi) sigma), which costs (2 / pi) order /
    sigma^2; what is to be spent at the order where the budget settles is in `pinned_order`.
    """
    order = pinned_order(budget.epsilon, budget.delta)
    total = float(largest_curve(budget.epsilon, np.array([order]), budget.delta)[0])
    return total * math.pi / (2 * order)


def _gain(outlook: Outlook, noise: Floats, bar: Floats) -> Floats:
    """Return how much more often a wanted label is released than one that is not."""

    def released(share: float) -> Floats:
        spread = np.sqrt(noise**2 + 2 * outlook.voters * share * (1 - share))
        return np.asarray(ndtr(math.sqrt(2) * outlook.voters * (share - bar) / spread))

    return released(outlook.level) - released(outlook.strays())
