"""The confidence gate: answer only where the voters agree enough (PATE 2018's Confident-GNMax)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from ..errors import finite, positive

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Answer with probability Phi((top - threshold) / sigma), else ABSTAIN.

    ``top`` is the larger of yes and no for a label (Binary, Tau), the count of the leading class
    for a query (Powerset, Plurality). One N(0, sigma^2) on that count; drawn independently of the
    vote, priced jointly with it.

    Parameters
    ----------
    threshold
        Answer only where about this many voters agree.
    sigma
        The standard deviation of the noise on that number, in votes.
    """

    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("gate sigma", self.sigma))
        object.__setattr__(self, "threshold", finite("gate threshold", self.threshold))

    def log_probs(self, top: npt.NDArray[Any]) -> Floats:
        """Return log Pr[abstain], log Pr[answer] on the last axis: (..., 2)."""
        z = (np.asarray(top, np.float64) - self.threshold) / self.sigma
        return np.stack([log_ndtr(-z), log_ndtr(z)], axis=-1)
