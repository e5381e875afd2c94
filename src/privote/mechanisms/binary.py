"""Binary voting: each label is its own yes/no election (the paper's Definition 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats
from ..errors import InputError, UnavailableError
from ..links import GaussianLink, Link, OptimalLink
from .base import Counted, Mechanism
from .cells import SEARCHED_VOTERS, CellTally, VoteMechanism, costliest_move, worst_of_all

_SCAN_VOTERS = 2000  # up to here a worst case scans every margin; beyond, it searches real tallies


@dataclass(frozen=True, kw_only=True)
class BinaryVoting(VoteMechanism):
    """Release each label by its own noisy majority.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: both counts of a label (yes, no) get their own N(0, sigma^2), so
        Pr[1] = Phi((yes - no) / (sqrt(2) sigma)), one noise of std sigma/sqrt(2) on the yes-votes.
    link
        Instead of sigma: :class:`privote.OptimalLink`.
    quota
        A label is 1 if more than this share of the registered voters want it; default: one half.
        With a quota, a missing vote counts as no; without one, it counts for neither side.
    false_alarm
        Instead of ``quota``: set the bar so that a label without a single yes is released as 1 with
        this probability.
    gate
        A :class:`privote.Gate` on each label; only without ``quota`` and ``false_alarm``.

    Examples
    --------
    >>> import privote as pv
    >>> mechanism = pv.BinaryVoting(sigma=7.0)
    >>> curve = mechanism.worst_case_rdp(50, 20, pv.DEFAULT_ORDERS)  # of one query
    >>> round(float(pv.epsilon(curve, pv.DEFAULT_ORDERS, 1e-5)), 1)
    3.3
    """

    name: ClassVar[str] = "binary"
    bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")
    worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact", "gaussian")

    sigma: float | None = None
    link: OptimalLink | None = None
    quota: float | None = None
    false_alarm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.sigma is None) == (self.link is None):
            raise InputError("give exactly one of sigma and link")
        if self.link is not None and not isinstance(self.link, OptimalLink):
            raise InputError("link", "must be a privote.OptimalLink", self.link)
        if self.sigma is not None:
            link = GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)
            for name in ("sigma", "quota", "false_alarm"):
                object.__setattr__(self, name, getattr(link, name))
            if self.gate is not None and link.has_bar and self.quota != 0.5:
                raise UnavailableError(
                    "a gate counts agreement with the majority, so it needs the bar at one half; "
                    f"got `quota={self.quota}`, `false_alarm={self.false_alarm}`"
                )
        elif self.quota is not None or self.false_alarm is not None:
            raise UnavailableError(
                "an optimal link is symmetric about one half: it cannot be combined with a quota "
                "or `false_alarm`"
            )

    @classmethod
    def needs(cls) -> tuple[tuple[str, ...], ...]:
        """Return that the noise must be given, in one of two ways."""
        return (("sigma", "link"),)

    @property
    def _link(self) -> Link:
        if self.link is not None:
            return self.link
        assert self.sigma is not None
        return GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)

    def vote_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1] by the link: (..., 2)."""
        return self._link.log_probs(margins, voters)

    @property
    def rises(self) -> bool:
        """Without a gate a label is one bit, and every link rises."""
        return self.gate is None

    @property
    def own_order(self) -> float | None:
        """An optimal link's order."""
        return None if self.link is None else self.link.order

    @classmethod
    def variants(cls, sigma: float, order: float) -> tuple[Mechanism, ...]:
        """Return Gaussian noise, and the optimal link that a vote at the bar costs as much with."""
        linked = cls(link=OptimalLink(cost=1.0, order=order))
        return cls(sigma=sigma), linked.with_noise(sigma)

    @classmethod
    def audited(cls) -> tuple[Mechanism, ...]:
        """Return both kinds of noise, and both bars."""
        bars = cls(sigma=2.0, quota=0.3), cls(sigma=2.0, false_alarm=0.05)
        return cls(sigma=2.0), *bars, cls(link=OptimalLink(cost=0.3, order=4.0))

    def with_noise(self, sigma: float) -> Mechanism:
        """Return the same mechanism with another amount of noise.

        A link has no sigma: it gets what a vote at the bar costs with Gaussian noise of this sigma,
        where it moves Pr[1] by 1 / (sqrt(pi) sigma), which costs (2 / pi) order / sigma^2.
        """
        if self.link is None:
            return super().with_noise(sigma)
        cost = float(f"{2 / math.pi * self.link.order / sigma**2:.4g}")
        return replace(self, link=replace(self.link, cost=cost))

    def counts_missing(self, missing: bool) -> bool:
        """Return whether a missing vote counts for neither side here; with a bar it is a no."""
        return missing and self.quota is None and self.false_alarm is None

    def counted(self, labels: int) -> Counted:
        """Return how a coalition counts: each yes is one; Gaussian noise also comes in shares."""
        del labels
        link = self._link
        shares = link if isinstance(link, GaussianLink) else None
        return Counted(vote=link, neutral=self.counts_missing(True), shares=shares)

    def _cell_cost(
        self, margins: npt.NDArray[Any], tally: CellTally, orders: Floats, bound: str
    ) -> Floats:
        if bound != "pate2018":
            return super()._cell_cost(margins, tally, orders, bound)
        if self.sigma is None:
            raise UnavailableError("bound 'pate2018' is proved for Gaussian noise, not for a link")
        return self._theorem6(margins, tally.voters, self.sigma, orders)

    def _worst_vote(self, voters: int, orders: Floats, bound: str) -> Floats:
        if self.link is not None:
            if bound == "gaussian":
                raise UnavailableError("bound 'gaussian' is for Gaussian noise, not for a link")
            # Where a link has nowhere left to go, a vote changes nothing and costs nothing.
            return worst_of_all(self, voters, True, tuple(orders), self.link.decided(voters))
        assert self.sigma is not None
        gate = 0.0 if self.gate is None else 0.5 / self.gate.sigma**2
        gaussian = orders * (1 / self.sigma**2 + gate)
        if bound == "gaussian" or (self.gate is not None and voters > SEARCHED_VOTERS):
            return gaussian
        if voters <= _SCAN_VOTERS:
            return np.minimum(worst_of_all(self, voters, True, tuple(orders)), gaussian)
        return np.minimum(_searched(self, voters, tuple(orders)), gaussian)


@lru_cache(maxsize=64)
def _searched(mech: BinaryVoting, voters: int, orders: tuple[float, ...]) -> Floats:
    """Return the costliest change of one vote at any real margin: (orders,)."""
    link = mech._link
    assert isinstance(link, GaussianLink)
    bar = 2 * link.bar(voters) - voters
    if mech.gate is None and abs(bar) < voters:
        # Margins from the bar, where the cost is: exact beside any number of voters.
        mech, bar = BinaryVoting(sigma=link.sigma), 0.0
    by_shift = [
        costliest_move(mech, link.sigma, voters, shift, np.array(orders), bar)
        for shift in (1.0, 2.0)
    ]
    worst: Floats = np.max(by_shift, axis=0)
    worst.setflags(write=False)
    return worst
