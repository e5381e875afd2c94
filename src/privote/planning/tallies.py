"""What a budget is good for if tallies are released and decided afterwards: before any vote.

Only public numbers go in, so a plan may be looked at, and published, before votes exist. It says
how much noise to expect and how good the labels, and what would make them better.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, gammaln, ndtr

from ..accounting.allowance import Learning, learning_epsilon, mu_at_order, mu_of_budget, settled
from ..accounting.renyi import Floats, rounded_up
from ..deciding import FEWEST, Posterior
from ..errors import InputError, finite, whole
from ..forecast import YES
from ..ledger import Budget
from ..release import Shown

TARGET = 0.8  # the F1 that is called good

# The electorate: fitted to votes of teachers on reports (tmc2007) and pictures (VOC 2012).
_FALL = 1.3  # the j-th commonest label is wanted in proportion to j^-1.3
_DIVIDED = 0.6  # both parameters of the Beta distribution together: less is more agreement
_COMMONEST, _RAREST = 0.95, 1e-100

_SEATS = 300  # more voters are taken as so many, with as much noise for each
_SHARPEST = 50  # voters over noise: less noise changes next to no label
_KINDS = 16  # more labels are taken in so many groups
_WIDE = 5.0  # deviations of the noise that are looked at
_MOST, _MOST_VOTERS, _MOST_EPSILON = 10**7, 10**6, 100.0
_SOME = 0.5  # of a wanted label: less is none
_FINE = 1.01  # ratio of the steps in which a larger epsilon is looked for


@dataclass(frozen=True, kw_only=True)
class Plan(Shown):
    """What to expect of labels, from public numbers: all of it may be published.

    Attributes
    ----------
    voters, labels, queries, yes
        The electorate.
    epsilon, delta, shared
        The budget, and whether others may charge it, too.
    allowance, learns
        How many surprises a voter should be allowed, and whether there are voters enough to learn
        that from them.
    sigma
        The noise on a tally, as a standard deviation in votes.
    wanted
        How many labels most voters should want, over all queries.
    quality
        Expected ``"precision"``, ``"recall"`` and ``"f1"`` against the noise-free majority, of
        labels as they are decided by default: where one is likelier right than wrong.
    quality_by_f1
        The same where labels are decided for the largest F1.
    told
        Whether the release should be able to tell its own quality.
    needed
        What would reach an F1 of ``target``, each alone: the fewest "voters", the most "queries",
        the smallest "epsilon"; None where no such number does. Empty where it is reached, or where
        next to nothing is wanted.
    """

    voters: int
    labels: int
    queries: int
    epsilon: float
    delta: float
    yes: float
    shared: bool
    allowance: int
    learns: bool
    sigma: float
    wanted: float
    quality: dict[str, float]
    quality_by_f1: dict[str, float]
    told: bool
    needed: dict[str, float | int | None]
    target: float = TARGET

    @property
    def noise_per_voter(self) -> float:
        """The noise on a tally, over the number of voters."""
        return self.sigma / self.voters

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**asdict(self), "noise_per_voter": self.noise_per_voter, "changes": self.changes}

    def brief(self) -> dict[str, str]:
        """Return what to expect in a few words each."""

        def figures(quality: dict[str, float]) -> str:
            shares = (f"{name} {value:.0%}" for name, value in quality.items() if name != "f1")
            return f"F1 {quality['f1']:.2f} ({', '.join(shares)})"

        return {
            "expected": figures(self.quality),
            "decided by F1": figures(self.quality_by_f1),
            "noise": f"{self.sigma:.3g} votes on a tally of {self.voters:,}: "
            f"{self.noise_per_voter:.2g} per voter",
            "allowance": f"about {self.allowance:,} surprises per voter, "
            + ("learnt from the votes" if self.learns else "fixed"),
            "electorate": f"{self.voters:,} voters, {self.labels:,} labels, {self.queries:,} "
            f"queries, {100 * self.yes:.3g} % of the votes are yes",
            "budget": f"epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}",
        }

    @property
    def changes(self) -> list[str]:
        """What to know before the votes, and what would help, in sentences."""
        if self.wanted < _SOME:
            return ["At this share of yes, most voters are expected to want no label at all."]
        said = []
        if not self.learns:
            said.append(
                f"{self.voters:,} voter{' is' if self.voters == 1 else 's are'} too few to learn "
                "an allowance: it is fixed, and the release cannot estimate its quality."
            )
        elif not self.told:
            said.append("There is too much noise for the release to estimate its quality.")
        if not self.needed:
            return said
        words = {
            "voters": "{:,} voters",
            "queries": "at most {:,} of the queries",
            "epsilon": "an epsilon of {}",
        }
        enough = [
            words[name].format(rounded_up(many, 3) if name == "epsilon" else many)
            for name, many in self.needed.items()
            if many is not None
        ]
        if enough:
            goal = f"For an expected F1 of {self.target:g} this should be enough"
            return [*said, f"{goal}: {', or '.join(enough)}."]
        return [*said, f"No single change is enough for an expected F1 of {self.target:g}."]


def plan(
    *,
    voters: int,
    labels: int,
    queries: int,
    epsilon: float,
    delta: float,
    yes: float = YES,
    shared: bool = False,
) -> Plan:
    """Forecast the quality of labels from public numbers, and what would improve it.

    The model: a share ``yes`` of all votes is yes, distributed over labels in proportion to j^-1.3
    for the j-th most common one. In each cell (query, label), voters say yes with a common
    probability from a Beta distribution whose mean is the label's share and whose parameters add up
    to 0.6: most cells are clear, some divide the voters. All voters are alike. A wrong guess makes
    the forecast wrong; it does not weaken the privacy guarantee.

    Parameters
    ----------
    voters, labels, queries
        Public numbers of voters, of labels per ballot and of queries.
    epsilon, delta
        The budget, as in :class:`privote.Budget`.
    shared
        Others may charge the budget, too, as in a ledger that lasts.
    yes
        A guess of the share of yes among all votes. Do not compute it from the private votes.

    Examples
    --------
    >>> import privote as pv
    >>> plan = pv.plan(voters=250, labels=20, queries=1000, epsilon=8.0, delta=1e-5, yes=0.1)
    >>> sorted(plan.quality)
    ['f1', 'precision', 'recall']
    """
    size = Size(voters=voters, labels=labels, queries=queries, yes=yes)
    budget = Budget(epsilon=epsilon, delta=delta)
    learning, mu = _learning(size, budget)
    if not shared:
        mu = mu_of_budget(budget.epsilon, budget.delta, learning.epsilon0)
    allowance = size.allowance(learning)
    sigma = learning.sigma(allowance, mu)
    expected = size.expected(learning, sigma)
    posterior = expected.posterior(queries)
    wanted = queries * float(expected.wanted.sum())
    quality = expected.figures(posterior.decided("likely"))
    enough = quality["f1"] >= TARGET or wanted < _SOME
    return Plan(
        **asdict(size),
        epsilon=budget.epsilon,
        delta=budget.delta,
        shared=shared,
        allowance=allowance,
        learns=learning.learns,
        sigma=sigma,
        wanted=wanted,
        quality=quality,
        quality_by_f1=expected.figures(posterior.decided("f1")),
        told=posterior.quality(learnt=learning.learns) is not None,
        needed={} if enough else _needed(size, budget, sigma),
    )


def _learning(size: Size, budget: Budget) -> tuple[Learning, float]:
    """Return how the allowance is learnt, and the mu that is left for tallies at a pinned order."""
    order, rho = settled(budget.epsilon, budget.delta)
    epsilon0 = learning_epsilon(rho, size.voters)
    learning = Learning(
        voters=size.voters, queries=size.queries, labels=size.labels, epsilon0=epsilon0
    )
    return learning, mu_at_order(order * (rho - epsilon0**2 / 8), order)


def _needed(size: Size, budget: Budget, sigma: float) -> dict[str, float | int | None]:
    """Return what would reach the target: voters, queries and epsilon, each alone.

    Decided by chances that are known, and not fitted: where labels are good, that is the same.
    """

    def noise(size: Size, budget: Budget) -> tuple[Learning, float]:
        learning, mu = _learning(size, budget)
        return learning, learning.sigma(size.allowance(learning), mu)

    better = sigma / noise(size, budget)[1]  # what the whole budget buys beyond a pinned order

    def first(count: int, change: Callable[[int], tuple[Size, Budget]]) -> int | None:
        def good(step: int) -> bool:
            there = change(step)
            learning, sigma = noise(*there)
            return there[0].expected(learning, better * sigma).f1 >= TARGET

        step = bisect_left(range(count), True, key=good)
        return step if 0 < step < count else None

    more = first(
        _MOST_VOTERS - size.voters,
        lambda step: (replace(size, voters=size.voters + step), budget),
    )
    fewest = min(size.queries, -(-FEWEST // size.labels))
    fewer = first(
        size.queries - fewest + 1,
        lambda step: (replace(size, queries=size.queries - step), budget),
    )
    larger = first(
        max(1, math.ceil(math.log(_MOST_EPSILON / budget.epsilon) / math.log(_FINE))),
        lambda step: (size, replace(budget, epsilon=budget.epsilon * _FINE**step)),
    )
    return {
        "voters": None if more is None else size.voters + more,
        "queries": None if fewer is None else size.queries - fewer,
        "epsilon": None if larger is None else budget.epsilon * _FINE**larger,
    }


@dataclass(frozen=True, kw_only=True)
class Size:
    """An electorate, as public numbers describe it."""

    voters: int
    labels: int
    queries: int
    yes: float

    def __post_init__(self) -> None:
        for name in ("voters", "labels", "queries"):
            whole(name, getattr(self, name), most=_MOST)
        if not 0 < finite("yes", self.yes) < 1:
            raise InputError("yes", "must lie strictly between 0 and 1", self.yes)
        object.__setattr__(self, "yes", float(self.yes))

    @property
    def surprises(self) -> float:
        """How many a voter casts."""
        return self.yes * self.queries * self.labels

    def allowance(self, learning: Learning) -> int:
        """Return what learning finds: it takes all from the need to the window's ratio times it."""
        need = self.surprises * math.sqrt(learning.window[0])
        return next((point for point in learning.grid if point >= need), learning.grid[-1])

    def shares(self) -> tuple[Floats, Floats]:
        """Return the share of yes by kind of label, falling, and how many labels are of a kind."""
        fall = np.arange(1, self.labels + 1, dtype=np.float64) ** -_FALL
        ends = np.unique(np.rint(np.geomspace(1, self.labels + 1, _KINDS + 1)).astype(np.int64) - 1)
        if self.labels <= _KINDS:
            ends = np.arange(self.labels + 1)
        many = np.diff(ends)
        fall = np.add.reduceat(fall, ends[:-1]) / many
        share = fall * self.yes * self.labels / (many @ fall)
        top = max(_COMMONEST, (1 + self.yes) / 2)
        if share[0] > top:

            def beyond(times: float) -> float:
                return float(many @ np.minimum(times * share, top)) / self.labels - self.yes

            share = np.minimum(brentq(beyond, 1.0, top / share[-1]) * share, top)
        return np.maximum(share, _RAREST), many.astype(np.float64)

    def expected(self, learning: Learning, sigma: float) -> Expected:
        """Return which tallies to expect, with this noise."""
        seats = min(self.voters, _SEATS)
        sigma = max(sigma * seats / self.voters, seats / _SHARPEST)
        share, many = self.shares()
        tally, a = np.arange(seats + 1), _DIVIDED * share[:, None]
        b = _DIVIDED - a
        ways = gammaln(seats + 1) - gammaln(tally + 1) - gammaln(seats - tally + 1)
        true = many[:, None] * np.exp(ways + betaln(tally + a, seats - tally + b) - betaln(a, b))
        reach, width = math.ceil(_WIDE * sigma), max(1, math.floor(sigma / 10))
        ends = np.arange(-reach, seats + reach + width + 1, width)
        noise = np.diff(ndtr((ends[:, None] - 0.5 - tally) / sigma), axis=0)  # (bins, tallies)
        wanted = tally > seats / 2
        # From where a voter has run out on, tallies are noise, whatever is wanted.
        limit = learning.limit(self.allowance(learning))
        heard = min(1.0, limit / self.surprises)
        silent = (1 - heard) * noise[:, 0]
        tallies = heard * true @ noise.T + silent * true.sum(axis=1, keepdims=True)
        above = true[:, wanted]
        right = heard * above @ noise[:, wanted].T + silent * above.sum(axis=1, keepdims=True)
        return Expected(seats, sigma, -reach, width, tallies, right)


@dataclass(frozen=True)
class Expected:
    """Expected tallies of one query, and those of them that most voters want: (kinds, bins)."""

    voters: int
    sigma: float
    first: int
    width: int
    tallies: Floats
    wanted: Floats

    def posterior(self, queries: int) -> Posterior:
        """Return what so many queries' tallies say, if they are as expected."""
        counts: npt.NDArray[Any] = queries * self.tallies
        return Posterior(self.voters, self.sigma, 1, self.first, self.width, counts)

    def figures(self, ones: npt.NDArray[np.bool_]) -> dict[str, float]:
        """Return precision, recall and F1 where these bins are a 1."""
        hits, said = float(self.wanted[ones].sum()), float(self.tallies[ones].sum())
        total = float(self.wanted.sum())
        return {
            "precision": hits / said if said else 0.0,
            "recall": hits / total,
            "f1": 2 * hits / (said + total),
        }

    @property
    def f1(self) -> float:
        """The F1 of what is likelier right than wrong, where chances are known."""
        return self.figures(self.wanted > self.tallies / 2)["f1"]
