"""Links: from the margin of a yes/no vote to the probability of releasing a 1.

The *margin* is yes minus no. With nobody missing it is 2c - n for c yes-votes of n. Both links work
on the margin, so a missing vote counts for neither side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from .accounting.renyi import FARTHEST, Floats, coin, farthest_logit
from .errors import InputError, positive, whole

_MOST_MARGINS = 50_000
_FARTHEST = 1 << 14  # margins beyond the voters' up to which an optimal link is worked out


class Link(Protocol):
    """Maps margins to log-probabilities of 0 and of 1."""

    def log_probs(self, margin: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2)."""


@dataclass(frozen=True, kw_only=True)
class GaussianLink:
    """PATE's link: each of the two counts gets its own N(0, sigma^2), the larger wins.

    Pr[1] = Phi(sqrt(2) (c - t) / sigma) with the bar t at half the voters, at ``quota`` of them, or
    where ``false_alarm`` = Pr[1 | no yes-vote] puts it.
    """

    sigma: float
    quota: float | None = None
    false_alarm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        if self.quota is not None and self.false_alarm is not None:
            raise InputError("`quota` and `false_alarm` both set the bar: give only one")
        for name in ("quota", "false_alarm"):
            value = getattr(self, name)
            if value is None:
                continue
            object.__setattr__(self, name, positive(name, value))
            if not getattr(self, name) < 1:
                raise InputError(name, "must lie strictly between 0 and 1", value)

    @property
    def has_bar(self) -> bool:
        """True if the bar was placed by name: then a missing vote is not a yes."""
        return self.quota is not None or self.false_alarm is not None

    def bar(self, voters: int) -> float:
        """Return the number of yes-votes at which 0 and 1 are equally likely."""
        if self.false_alarm is not None:
            return float(-self.sigma / math.sqrt(2) * ndtri(self.false_alarm))
        return voters * (0.5 if self.quota is None else self.quota)

    def log_probs(self, margin: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2). Margins may be real."""
        # (c - t) from the margin: exact for integers, so equal votes give equal probabilities.
        over = np.asarray(margin, np.float64) / 2
        if self.has_bar:  # else the bar is at margin 0, and nothing is lost beside a large n
            over = (np.asarray(margin, np.float64) + voters - 2 * self.bar(voters)) / 2
        z = math.sqrt(2) * over / self.sigma
        return np.stack([log_ndtr(-z), log_ndtr(z)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class OptimalLink:
    """The most decisive symmetric link whose worst single vote costs ``cost`` at ``order``.

    From p(0) = 1/2 each further vote moves the probability as far as Rényi divergence ``cost`` at
    ``order`` allows in both directions. The step map is monotone, so no symmetric link with that
    cost is more decisive at any margin. Odd margins start from the symmetric pair at -1, +1; the
    two chains interleave, so a half step (a vote that goes missing) costs no more than a whole one.

    Parameters
    ----------
    cost
        The largest cost of a single vote, as a Rényi divergence; instead of ``sigma``.
    order
        The Rényi order at which ``cost`` is measured.

    Examples
    --------
    >>> import privote as pv
    >>> mechanism = pv.BinaryVoting(link=pv.OptimalLink(cost=0.01, order=4.0))
    >>> mechanism.link.order
    4.0
    """

    cost: float
    order: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", positive("cost", self.cost))
        object.__setattr__(self, "order", positive("order", self.order))
        if self.order <= 1:
            raise InputError("order", f"must be above 1, got {self.order}")

    def reach(self, voters: int) -> int:
        """Return up to which margin the link is tabulated; refuse what would take for ever.

        A whole vote moves the arcsine of sqrt(p) by about sqrt(cost / (2 order)) until p is near 0
        or 1, where steps grow with the logit; so the way there takes about ``most`` margins.
        """
        most = math.pi * math.sqrt(self.order / (2 * self.cost))
        if min(voters, most) > _MOST_MARGINS:
            raise InputError(
                "cost",
                f"must be larger for {voters} voters: with cost {self.cost:g} and order "
                f"{self.order:g}, an optimal link needs a margin of {most:.3g} votes, and at most "
                f"{_MOST_MARGINS} are tabulated; give sigma instead",
            )
        return min(voters, 3 * _MOST_MARGINS)

    def decided(self, voters: int) -> int:
        """Return the margin from which on another vote changes nothing, or all voters."""
        return min(voters, len(_optimal_table(self.cost, self.order, self.reach(voters))[0]) + 1)

    def log_probs(self, margin: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2). Margins must be integers.

        They may lie beyond what the voters can reach: the chain goes on there, level from the
        2^14th on.
        """
        margin = np.asarray(margin)
        if margin.dtype.kind not in "iu":
            raise InputError(
                "margins must be integers: an optimal link is defined on whole votes only"
            )
        size = np.abs(margin)
        most = voters if size.max(initial=0) <= voters else max(voters, _FARTHEST)
        lose, win = _optimal_table(self.cost, self.order, self.reach(most))
        size = np.minimum(size, len(lose) - 1)
        up = margin >= 0
        return np.stack(
            [np.where(up, lose[size], win[size]), np.where(up, win[size], lose[size])], axis=-1
        )


@dataclass(frozen=True, kw_only=True)
class SkellamLink:
    """Noise that the n voters draw themselves, in equal shares that add up.

    Pr[1] = Pr[S >= steps (2 t - n - margin)] with the bar t as for :class:`GaussianLink`. S is the
    sum of the shares, each the difference of two Poisson numbers of mean (sigma steps)^2 / (n - 1):
    any n - 1 of the n shares add up to a Skellam number of variance 2 (sigma steps)^2, which on the
    margin, in votes, is the 2 sigma^2 of PATE's two counts with N(0, sigma^2) each. Its integers
    cover the whole line. A tie is a yes: that is in the probabilities, and so in the price.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax, as in :class:`GaussianLink`.
    steps
        Units of noise to one of the margin: the finer, the rarer a tie.
    known
        How many shares drop out, because whoever looks at the release knows them.
    """

    sigma: float
    steps: int = 1
    quota: float | None = None
    false_alarm: float | None = None
    known: int = 0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("known", self.known, 0)
        object.__setattr__(self, "sigma", self._gaussian.sigma)

    @property
    def _gaussian(self) -> GaussianLink:
        return GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)

    def bar(self, voters: int) -> int:
        """Return where the noisy margin turns, in steps: 0 with the bar at half the voters."""
        return round(self.steps * (2 * self._gaussian.bar(voters) - voters))

    def share(self, voters: int) -> float:
        """Return the mean of the two Poisson numbers whose difference is one voter's share."""
        return (self.sigma * self.steps) ** 2 / max(voters - 1, 1)

    def unknown(self, voters: int) -> float:
        """Return the mean of the two that all shares which did not drop out add up to."""
        if self.known >= voters:
            raise InputError(
                "known", f"must leave one of the {voters} shares of noise, got {self.known}"
            )
        return (voters - self.known) * self.share(voters)

    def log_probs(self, margin: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2). Margins must be integers."""
        margin = np.asarray(margin)
        if margin.dtype.kind not in "iu":
            raise InputError("margins must be integers: shares of noise are drawn as integers")
        return skellam(self.unknown(voters), self.steps * margin - self.bar(voters))


def skellam(mean: float, at: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return log Pr[S < -at], log Pr[S >= -at] of a difference of two Poissons: (..., 2)."""
    reach = int(40 * math.sqrt(2 * mean)) + 400  # there both are beyond e^-760
    return np.asarray(_short_table(mean, reach)[np.clip(at, -reach, reach) + reach])


def skellam_table(mean: float, reach: int) -> Floats:
    """Return :func:`skellam` at -reach..reach: (2 reach + 1, 2).

    Pr[S = k] is proportional to the modified Bessel function I_k(2 mean). Its ratios I_(k+1) / I_k
    follow, stably, from the last one backwards: 1 / (2 k / x + r_k) is r_(k-1). The last one is
    within a small fraction of x / (k + 1 + sqrt((k + 1)^2 + x^2)), and what is wrong about it is
    gone a few hundred places before.
    """
    x, last = 2 * mean, reach + 400
    ratio = end = x / (last + 1 + math.hypot(last + 1, x))
    ratios = np.empty(last)
    for k in range(last, 0, -1):
        ratio = 1 / (2 * k / x + ratio)
        ratios[k - 1] = ratio
    log_pmf = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    log_pmf[-1] -= math.log1p(-end)  # all that lies beyond
    above = np.logaddexp.accumulate(log_pmf[::-1])[::-1]  # log Pr[S >= k], up to a factor
    above = (above - np.logaddexp(above[0], above[1]))[: reach + 2]
    # Pr[S >= -at] is a tail for at < 0, and from 0 on, by symmetry, 1 - Pr[S >= at + 1].
    far, near = above[reach:0:-1], above[1:]
    one = np.concatenate([far, np.log1p(-np.exp(near))])
    zero = np.concatenate([np.log1p(-np.exp(far)), near])
    table: Floats = np.stack([zero, one], axis=1)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=32)
def _short_table(mean: float, reach: int) -> Floats:
    # What draws look up again and again; tables for prices are long, and read once.
    return skellam_table(mean, reach)


@lru_cache(maxsize=64)
def _optimal_table(cost: float, order: float, voters: int) -> tuple[Floats, Floats]:
    """Return log Pr[minority], log Pr[majority] by absolute margin 0..voters.

    It ends where both chains have reached the last logit; beyond, its last entry holds.
    """
    logits = [0.0, farthest_logit(0.0, order, cost, mirrored=True)]
    while len(logits) <= voters and min(logits[-2:]) < FARTHEST:
        logits.append(farthest_logit(logits[-2], order, cost))
    pairs = np.array([coin(logit) for logit in logits[: voters + 1]])
    return pairs[:, 0], pairs[:, 1]
