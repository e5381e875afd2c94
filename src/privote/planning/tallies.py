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
from scipy.optimize import brentq
from scipy.special import betaln, gammaln, ndtr

from ..accounting.allowance import Learning
from ..accounting.renyi import Floats, rounded_up
from ..errors import InputError, finite, plural, whole
from ..guarantees import Shown
from ..guarantees.allowance import learning_of
from ..ledger import Budget
from ..posterior import Histogram
from ..votes.cube import MOST
from .chances import YES

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
        learnt = "learnt from the votes" if self.learns else "fixed: too few voters to learn it"
        return {
            **{f"{kind} voters": _in_words(**quality) for kind, quality in self.quality.items()},
            "noise": f"{self.sigma:.3g} votes on a tally of {self.voters:,}: "
            f"{self.noise_per_voter:.2g} per voter",
            "allowance": f"about {plural(self.allowance, 'contribution')} per voter, {learnt}",
            "electorate": f"{plural(self.voters, 'voter')}, {plural(self.labels, 'label')}, "
            f"{plural(self.queries, 'query')}, {100 * self.yes:.3g} % of the votes are yes",
            "epsilon, delta": f"{rounded_up(self.epsilon)}, {rounded_up(self.delta)}",
        }


def _in_words(precision: float, recall: float, f1: float) -> str:
    return f"F1 {f1:.2f} (precision {100 * precision:.0f} %, recall {100 * recall:.0f} %)"


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
    ['clear 0.99', 'middling 0.88', 'unclear 0.70']
    """
    learning, mu = _learning(voters, queries, labels, epsilon, delta)
    if not 0 < finite("yes", yes) < 1:
        raise InputError("yes", "must lie strictly between 0 and 1", yes)
    contributions = yes * queries * labels
    # Learning finds an allowance from what is needed to the window's ratio times it.
    allowance = learning.covering(contributions * math.sqrt(learning.window[0]))
    sigma, heard = learning.sigma(allowance, mu), learning.limit(allowance) / contributions
    quality = {
        kind: _quality(learning, float(yes), sigma, min(1.0, heard), fall, divided)
        for kind, (fall, divided) in VOTERS.items()
    }
    return Plan(
        voters=voters,
        labels=labels,
        queries=queries,
        epsilon=epsilon,
        delta=delta,
        yes=float(yes),
        allowance=allowance,
        learns=learning.learns,
        sigma=sigma,
        quality=quality,
    )


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """How much noise to expect, before anything is paid for; as text, a line that says so.

    Attributes
    ----------
    voters
        How many: the largest tally.
    sigma_low, sigma_high
        The standard deviation of the noise on a tally, in votes, if voters say yes to 2 % and to
        20 % of the cells.
    """

    voters: int
    sigma_low: float
    sigma_high: float

    @property
    def drowned(self) -> bool:
        """Whether the noise is at least the number of voters even at 2 %."""
        return self.sigma_low >= self.voters

    def __str__(self) -> str:
        ends = dict.fromkeys(f"{sigma:.3g}" for sigma in (self.sigma_low, self.sigma_high))
        voters = plural(self.voters, "voter")
        drowned = "That is at least the number of voters. " if self.drowned else ""
        return (
            f"The standard deviation of the noise on a tally of {voters} will be "
            f"about {' to '.join(ends)} votes, if they say yes to {100 * QUIET:g} to "
            f"{100 * BUSY:g} % of the cells. "
            f"{drowned}More voters, fewer queries or a larger epsilon help. A pilot of few queries "
            "at a small epsilon tells how good the labels will be."
        )


def outlook(*, voters: int, labels: int, queries: int, epsilon: float, delta: float) -> Outlook:
    """Return the range of the noise of a run that learns its allowance and releases tallies.

    The allowance is one of learning's grid, and the noise is what the budget then leaves.
    Where there are hardly voters enough to learn from, more may be learnt than they need: of 120
    runs on made votes three had more noise than this, at most 1.23 times as much.

    Parameters
    ----------
    voters, labels, queries
        Public numbers of voters, of labels per ballot and of the queries that are planned.
    epsilon, delta
        What the run may cost.

    Examples
    --------
    >>> import privote as pv
    >>> str(pv.planning.outlook(voters=50, labels=20, queries=300, epsilon=8, delta=1e-5))[:96]
    'The standard deviation of the noise on a tally of 50 voters will be about 9.69 to 34.3 votes, '
    """
    learning, mu = _learning(voters, queries, labels, epsilon, delta)
    # The least and the most that learning may find, where voters are alike.
    needs = QUIET * learning.cells, BUSY * learning.cells * float(learning.window[0])
    low, high = (learning.sigma(learning.covering(need), mu) for need in needs)
    return Outlook(voters=voters, sigma_low=low, sigma_high=high)


def _learning(
    voters: int, queries: int, labels: int, epsilon: float, delta: float
) -> tuple[Learning, float]:
    """Return how the allowance is learnt, and what mu the budget leaves to the tallies."""
    for name, value in (("voters", voters), ("queries", queries), ("labels", labels)):
        whole(name, value, most=MOST)
    return learning_of(Budget(epsilon=epsilon, delta=delta), voters, queries, labels)


def label_shares(labels: int, yes: float, fall: float) -> tuple[Floats, Floats]:
    """Return the share of yes by kind of label, falling, and how many labels are of a kind."""
    falling = np.arange(1, labels + 1, dtype=np.float64) ** -fall
    ends = np.unique(np.rint(np.geomspace(1, labels + 1, _KINDS + 1)).astype(np.int64) - 1)
    if labels <= _KINDS:
        ends = np.arange(labels + 1)
    many = np.diff(ends)
    falling = np.add.reduceat(falling, ends[:-1]) / many
    share = falling * yes * labels / (many @ falling)
    top = max(_COMMONEST, (1 + yes) / 2)
    if share[0] > top:

        def beyond(times: float) -> float:
            return float(many @ np.minimum(times * share, top)) / labels - yes

        share = np.minimum(brentq(beyond, 1.0, top / share[-1]) * share, top)
    return np.maximum(share, _RAREST), many.astype(np.float64)


def _quality(
    learning: Learning, yes: float, sigma: float, heard: float, fall: float, divided: float
) -> dict[str, float]:
    """Return precision, recall and F1 of voters of a kind, of whose votes a share is heard.

    From the expected tallies of one query, and those of them that most voters want: (kinds, bins).
    """
    seats = min(learning.voters, _SEATS)
    sigma = max(sigma * seats / learning.voters, seats / _SHARPEST)
    share, many = label_shares(learning.labels, yes, fall)
    tally, a = np.arange(seats + 1), divided * share[:, None]
    b = divided - a
    ways = gammaln(seats + 1) - gammaln(tally + 1) - gammaln(seats - tally + 1)
    true = many[:, None] * np.exp(ways + betaln(tally + a, seats - tally + b) - betaln(a, b))
    reach, width = math.ceil(_WIDE * sigma), max(1, math.floor(sigma / 10))
    ends = np.arange(-reach, seats + reach + width + 1, width)
    noise = np.diff(ndtr((ends[:, None] - 0.5 - tally) / sigma), axis=0)  # (bins, tallies)
    # From where a voter has run out on, tallies are noise, whatever is wanted.
    silent, above = (1 - heard) * noise[:, 0], tally > seats / 2
    tallies = heard * true @ noise.T + silent * true.sum(axis=1, keepdims=True)
    majority = true[:, above]
    wanted = heard * majority @ noise[:, above].T + silent * majority.sum(axis=1, keepdims=True)
    counts: Any = learning.queries * tallies
    ones = Histogram(seats, sigma, 1, -reach, width, counts).chances > 0.5
    hits, released, total = wanted[ones].sum(), tallies[ones].sum(), wanted.sum()
    return {
        "precision": float(hits / released) if released else 0.0,
        "recall": float(hits / total) if total else 0.0,
        "f1": float(2 * hits / (released + total)) if total else 0.0,
    }
