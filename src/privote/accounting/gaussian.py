"""The Gaussian link: from the margin of a yes/no vote to the probability of releasing a 1.

The *margin* is yes minus no. With nobody missing it is 2c - n for c yes-votes of n. The link works
on the margin, so a missing vote counts for neither side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from ..errors import InputError, positive
from .renyi import Floats


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
