"""Binary voting: each label is its own yes/no election (the paper's Definition 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.gaussian import GaussianLink
from ..accounting.renyi import Floats
from ..errors import UnavailableError
from .cells import SEARCHED_VOTERS, MarginGrid, VoteMechanism, costliest_move, worst_of_all

_SCAN_VOTERS = 2000  # up to here a worst case scans every margin; beyond, it searches real tallies


@dataclass(frozen=True, kw_only=True)
class BinaryVoting(VoteMechanism):
    """Release each label by its own noisy majority.

    Parameters
    ----------
    sigma
        PATE's sigma_GNMax: both counts of a label (yes, no) get their own N(0, sigma^2), so
        Pr[1] = Phi((yes - no) / (sqrt(2) sigma)), one noise of std sigma/sqrt(2) on the yes-votes.
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
    _bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")
    _worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact", "gaussian")

    sigma: float
    quota: float | None = None
    false_alarm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        link = self.link
        for name in ("sigma", "quota", "false_alarm"):
            object.__setattr__(self, name, getattr(link, name))
        if self.gate is not None and link.has_bar and self.quota != 0.5:
            raise UnavailableError(
                "a gate counts agreement with the majority, so it needs the bar at one half; "
                f"got `quota={self.quota}`, `false_alarm={self.false_alarm}`"
            )

    @property
    def link(self) -> GaussianLink:
        """From a margin to the probability of a 1."""
        return GaussianLink(sigma=self.sigma, quota=self.quota, false_alarm=self.false_alarm)

    def vote_log_probs(self, margins: npt.NDArray[Any], voters: int) -> Floats:
        """Return log Pr[0], log Pr[1]: (..., 2)."""
        return self.link.log_probs(margins, voters)

    @property
    def rises(self) -> bool:
        """Without a gate a label is one bit, and the link rises."""
        return self.gate is None

    def counts_missing(self, missing: bool) -> bool:
        """Return whether a missing vote counts for neither side here; with a bar it is a no."""
        return missing and self.quota is None and self.false_alarm is None

    def cell_costs(
        self, grid: MarginGrid, margins: npt.NDArray[Any], orders: Floats, bound: str = "exact"
    ) -> Floats:
        """Return the worst cost of a cell at each margin, or Theorem 6: (margins, orders)."""
        if bound != "pate2018":
            return super().cell_costs(grid, margins, orders, bound)
        return self._theorem6(margins, grid.voters, self.sigma, orders)

    def _worst_vote(self, voters: int, orders: Floats, bound: str) -> Floats:
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
    link = mech.link
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
