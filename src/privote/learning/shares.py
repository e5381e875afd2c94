"""Shares that follow what was released: a rare label is asked of many records, a common one of few.

With one share for all labels, the votes for a common label lie far above the bar and those for a
rare one far below it; both are released the same way almost everywhere and teach little, and the
common ones use up the allowance. How often a label was released as 1 says how many votes it gets,
because the link is known. Released labels are public, so this costs nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ..errors import InputError, UnavailableError, positive
from ..links import GaussianLink
from ..mechanisms import ABSTAIN, BinaryVoting
from .nearness import Floats
from .radius import check_share

_STEP = 8.0  # a share changes by this factor at the most


def balanced_shares(
    labels: npt.NDArray[np.int8],
    share: float | npt.ArrayLike,
    mechanism: BinaryVoting,
    voters: int,
    *,
    aim: float = 0.5,
    most: float = 0.25,
) -> Floats:
    """Return a share for every label with which its votes would average ``aim`` times the bar.

    Parameters
    ----------
    labels
        (queries, labels) released so far.
    share
        With which they were released: one, or one per label.
    mechanism
        Binary voting with sigma and a bar (``false_alarm`` or ``quota``).
    voters
        Registered voters.
    aim
        Votes on an average query as a part of the bar. Below 1, or a label that is true of few
        queries would be released on half of them.
    most
        No share is larger than this.

    Returns
    -------
    (labels,), each at most 8 times above or below ``share``.
    """
    if not isinstance(mechanism, BinaryVoting) or mechanism.sigma is None:
        raise UnavailableError("balanced_shares needs BinaryVoting with a sigma")
    released = np.asarray(labels)
    if released.ndim != 2 or 0 in released.shape:
        raise InputError(f"labels must be (queries, labels), got shape {released.shape}")
    before = check_share(share, released.shape[1])
    link = GaussianLink(
        sigma=mechanism.sigma, quota=mechanism.quota, false_alarm=mechanism.false_alarm
    )
    bar = link.bar(voters)
    known = (released != ABSTAIN).sum(axis=0) + 1.0
    often = ((released == 1).sum(axis=0) + 0.5) / known
    votes = bar + mechanism.sigma / np.sqrt(2) * ndtri(often)
    wanted = positive("aim", aim) * bar
    change = np.where(votes > 0, wanted / np.maximum(votes, wanted / _STEP), _STEP)
    limit = float(check_share(most, 1)[0])
    return np.asarray(np.minimum(before * np.clip(change, 1 / _STEP, _STEP), limit))
