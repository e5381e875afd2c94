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

from .errors import InputError, positive, shown

Floats = npt.NDArray[np.float64]

_MOST_MARGINS = 50_000
_FLOOR = -700.0  # the optimal link stops at probability e^-700: nothing is gained beyond


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
            raise InputError("quota and false_alarm both place the bar: give one of them")
        for name in ("quota", "false_alarm"):
            value = getattr(self, name)
            if value is None:
                continue
            object.__setattr__(self, name, positive(name, value))
            if not getattr(self, name) < 1:
                raise InputError(f"{name} must lie strictly between 0 and 1, got {shown(value)}")

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
    """

    cost: float
    order: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", positive("cost", self.cost))
        object.__setattr__(self, "order", positive("order", self.order))
        if self.order <= 1:
            raise InputError(f"order must be above 1, got {self.order}")

    def reach(self, voters: int) -> int:
        """Return up to which margin the link is tabulated; refuse what would take for ever.

        A whole vote moves the arcsine of sqrt(p) by about sqrt(cost / (2 order)) until p is near 0
        or 1, where steps grow with the logit; so the way there takes about ``most`` margins.
        """
        most = math.pi * math.sqrt(self.order / (2 * self.cost))
        if min(voters, most) > _MOST_MARGINS:
            raise InputError(
                f"cost must be larger for {voters} voters: at cost {self.cost:g} and order "
                f"{self.order:g} an optimal link takes {most:.3g} votes to decide, and at most "
                f"{_MOST_MARGINS} are tabulated; give sigma instead"
            )
        return min(voters, 3 * _MOST_MARGINS)

    def decided(self, voters: int) -> int:
        """Return the margin from which on another vote changes nothing, or all voters."""
        return min(voters, len(_optimal_table(self.cost, self.order, self.reach(voters))[0]) + 1)

    def log_probs(self, margin: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] on the last axis: (..., 2). Margins must be integers."""
        margin = np.asarray(margin)
        if margin.dtype.kind not in "iu":
            raise InputError(
                "an optimal link is defined on whole votes only: margins must be integers"
            )
        lose, win = _optimal_table(self.cost, self.order, self.reach(voters))
        size = np.minimum(np.abs(margin), len(lose) - 1)
        up = margin >= 0
        return np.stack(
            [np.where(up, lose[size], win[size]), np.where(up, win[size], lose[size])], axis=-1
        )


def _one_sided(log_p: tuple[float, float], log_q: tuple[float, float], order: float) -> float:
    terms = [order * p - (order - 1) * q for p, q in zip(log_p, log_q, strict=True)]
    top = max(terms)
    return (top + math.log(sum(math.exp(t - top) for t in terms))) / (order - 1)


def _pair(logit: float) -> tuple[float, float]:
    """Return log Pr[0], log Pr[1] for a logit of Pr[1]."""
    soft = math.log1p(math.exp(-abs(logit)))
    return (-soft - max(logit, 0.0), -soft - max(-logit, 0.0))


def _widest(low: float, order: float, cost: float, *, mirrored: bool) -> float:
    """Return the largest logit within ``cost`` of ``low`` (or, mirrored, of its own negative)."""
    start = low  # of the step; the bisection moves ``low``

    def fits(logit: float) -> bool:
        here, there = _pair(-logit if mirrored else start), _pair(logit)
        return max(_one_sided(here, there, order), _one_sided(there, here, order)) <= cost

    high = -_FLOOR
    if fits(high):
        return high
    for _ in range(80):
        middle = (low + high) / 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low  # the side that was seen to fit, so rounding never spends more than ``cost``


@lru_cache(maxsize=64)
def _optimal_table(cost: float, order: float, voters: int) -> tuple[Floats, Floats]:
    """Return log Pr[minority], log Pr[majority] by absolute margin 0..voters.

    It ends where both chains have reached the floor; beyond, its last entry holds.
    """
    logits = [0.0, _widest(0.0, order, cost, mirrored=True)]
    while len(logits) <= voters and min(logits[-2:]) < -_FLOOR:
        logits.append(_widest(logits[-2], order, cost, mirrored=False))
    pairs = np.array([_pair(logit) for logit in logits[: voters + 1]])
    return pairs[:, 0], pairs[:, 1]
