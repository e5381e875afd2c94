"""What a budget is good for if tallies are released and decided afterwards: before any vote.

Only public numbers go in, so a plan may be looked at, and published, before votes exist. It says
how much noise to expect beside the number of voters, and a range of how good the labels may be.
The range is wide where public numbers cannot tell: voters who agree, on labels of which some are
common, are heard through noise that drowns voters who are divided, on labels that are all rare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, gammaln, ndtr

from ..accounting.allowance import Learning, learning_epsilon, mu_of_budget, settled
from ..accounting.renyi import Floats, rounded_up
from ..errors import InputError, finite, whole
from ..guarantees import Shown
from ..ledger import Budget
from ..posterior import Histogram
from .forecast import YES

#: Kinds of voters. The j-th commonest label is wanted in proportion to j^-fall. In each cell voters
#: say yes with a probability from a Beta distribution whose parameters add up to ``divided``: less
#: is more agreement. Labels of real votes of teachers, on reports and pictures, were in this range.
VOTERS: Mapping[str, tuple[float, float]] = {
    "clear": (1.6, 0.1),
    "middling": (0.6, 0.6),
    "unclear": (0.0, 2.0),
}
QUIET, BUSY = 0.02, 0.2  # shares of yes between which the noise is stated
_COMMONEST, _RAREST = 0.95, 1e-100

_SEATS = 300  # more voters are taken as so many, with as much noise for each
_SHARPEST = 50  # voters over noise: less noise changes next to no label
_KINDS = 16  # more labels are taken in so many groups
_WIDE = 5.0  # deviations of the noise that are looked at
_MOST = 10**7


@dataclass(frozen=True, kw_only=True)
class Plan(Shown):
    """What to expect of labels, from public numbers: all of it may be published.

    Attributes
    ----------
    voters, labels, queries, yes
        The electorate.
    epsilon, delta
        What the run may cost.
    allowance, learns
        How many contributions a voter should be allowed, and whether there are voters enough to
        learn that from them.
    sigma
        The noise on a tally, as a standard deviation in votes.
    noise
        The noise over the number of voters, if voters say yes to 2 % and to 20 % of the cells.
    quality
        Expected ``"precision"``, ``"recall"`` and ``"f1"`` against the noise-free majority, by kind
        of voters: "clear", "middling" and "unclear" (:data:`VOTERS`).
    """

    voters: int
    labels: int
    queries: int
    epsilon: float
    delta: float
    yes: float
    allowance: int
    learns: bool
    sigma: float
    noise: tuple[float, float]
    quality: Mapping[str, Mapping[str, float]]

    @property
    def noise_per_voter(self) -> float:
        """The noise on a tally, over the number of voters."""
        return self.sigma / self.voters

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**asdict(self), "noise_per_voter": self.noise_per_voter}

    def brief(self) -> dict[str, str]:
        """Return what to expect in a few words each."""
        figures = {
            f"{kind} voters": f"F1 {quality['f1']:.2f} (precision {quality['precision']:.0%}, "
            f"recall {quality['recall']:.0%})"
            for kind, quality in self.quality.items()
        }
        learnt = "learnt from the votes" if self.learns else "fixed: too few voters to learn it"
        return {
            **figures,
            "noise": f"{self.sigma:.3g} votes on a tally of {self.voters:,}: "
            f"{self.noise_per_voter:.2g} per voter",
            "allowance": f"about {self.allowance:,} contributions per voter, {learnt}",
            "electorate": f"{self.voters:,} voters, {self.labels:,} labels, {self.queries:,} "
            f"queries, {100 * self.yes:.3g} % of the votes are yes",
            "epsilon, delta": f"{rounded_up(self.epsilon)}, {rounded_up(self.delta)}",
        }


def plan(
    *, voters: int, labels: int, queries: int, epsilon: float, delta: float, yes: float = YES
) -> Plan:
    """Return how much noise to expect, and a range of how good the labels will be.

    The range goes from voters who agree, on labels of which few are common and most are rare, to
    voters who are divided, on labels that are all as rare. A pilot of few queries at a small
    epsilon tells more. A wrong guess of ``yes`` makes the plan wrong; it does not weaken the
    privacy guarantee.

    Parameters
    ----------
    voters, labels, queries
        Public numbers of voters, of labels per ballot and of queries.
    epsilon, delta
        What the run may cost.
    yes
        A guess of the share of yes among all votes. Do not compute it from the private votes.

    Examples
    --------
    >>> import privote as pv
    >>> plan = pv.plan(voters=250, labels=20, queries=1000, epsilon=8.0, delta=1e-5, yes=0.1)
    >>> [f"{kind} {quality['f1']:.2f}" for kind, quality in plan.quality.items()]
    ['clear 0.98', 'middling 0.88', 'unclear 0.70']
    """
    size = Size(voters=voters, labels=labels, queries=queries, yes=yes)
    learning, sigma = size.noise(epsilon, delta)
    quality = {}
    for kind, voters_of in VOTERS.items():
        expected = size.expected(learning, sigma, *voters_of)
        quality[kind] = expected.figures(expected.histogram(queries).chances > 0.5)
    return Plan(
        **asdict(size),
        epsilon=epsilon,
        delta=delta,
        allowance=size.allowance(learning),
        learns=learning.learns,
        sigma=sigma,
        noise=noise_per_voter(voters, labels, queries, epsilon, delta),
        quality=quality,
    )


def noise_per_voter(
    voters: int, labels: int, queries: int, epsilon: float, delta: float
) -> tuple[float, float]:
    """Return the noise on a tally over the number of voters, by public numbers.

    If voters say yes to 2 % of the cells, and to 20 %.
    """
    sizes = (Size(voters=voters, labels=labels, queries=queries, yes=y) for y in (QUIET, BUSY))
    low, high = (size.noise(epsilon, delta)[1] / voters for size in sizes)
    return low, high


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
    def contributions(self) -> float:
        """How many a voter casts."""
        return self.yes * self.queries * self.labels

    def noise(self, epsilon: float, delta: float) -> tuple[Learning, float]:
        """Return how the allowance is learnt, and the noise on a tally, in votes."""
        budget = Budget(epsilon=epsilon, delta=delta)
        epsilon0 = learning_epsilon(settled(budget.epsilon, budget.delta)[1], self.voters)
        sizes = {"voters": self.voters, "queries": self.queries, "labels": self.labels}
        learning = Learning(**sizes, epsilon0=epsilon0)
        mu = mu_of_budget(budget.epsilon, budget.delta, epsilon0)
        return learning, learning.sigma(self.allowance(learning), mu)

    def allowance(self, learning: Learning) -> int:
        """Return what learning finds: it takes all from the need to the window's ratio times it."""
        need = self.contributions * math.sqrt(learning.window[0])
        return next((point for point in learning.grid if point >= need), learning.grid[-1])

    def shares(self, falls: float) -> tuple[Floats, Floats]:
        """Return the share of yes by kind of label, falling, and how many labels are of a kind."""
        fall = np.arange(1, self.labels + 1, dtype=np.float64) ** -falls
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

    def expected(self, learning: Learning, sigma: float, falls: float, divided: float) -> Expected:
        """Return which tallies to expect, with this noise, of voters of a kind."""
        seats = min(self.voters, _SEATS)
        sigma = max(sigma * seats / self.voters, seats / _SHARPEST)
        share, many = self.shares(falls)
        tally, a = np.arange(seats + 1), divided * share[:, None]
        b = divided - a
        ways = gammaln(seats + 1) - gammaln(tally + 1) - gammaln(seats - tally + 1)
        true = many[:, None] * np.exp(ways + betaln(tally + a, seats - tally + b) - betaln(a, b))
        reach, width = math.ceil(_WIDE * sigma), max(1, math.floor(sigma / 10))
        ends = np.arange(-reach, seats + reach + width + 1, width)
        noise = np.diff(ndtr((ends[:, None] - 0.5 - tally) / sigma), axis=0)  # (bins, tallies)
        wanted = tally > seats / 2
        # From where a voter has run out on, tallies are noise, whatever is wanted.
        limit = learning.limit(self.allowance(learning))
        heard = min(1.0, limit / self.contributions)
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

    def histogram(self, queries: int) -> Histogram:
        """Return what so many queries' tallies say, if they are as expected."""
        counts: npt.NDArray[Any] = queries * self.tallies
        return Histogram(self.voters, self.sigma, 1, self.first, self.width, counts)

    def figures(self, ones: npt.NDArray[np.bool_]) -> dict[str, float]:
        """Return precision, recall and F1 where these bins are a 1."""
        hits, ones_said = float(self.wanted[ones].sum()), float(self.tallies[ones].sum())
        total = float(self.wanted.sum())
        return {
            "precision": hits / ones_said if ones_said else 0.0,
            "recall": hits / total if total else 0.0,
            "f1": 2 * hits / (ones_said + total) if total else 0.0,
        }
