"""Every mechanism with every gate and bar, and all that the registry has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tests.contracts.outside import LaplaceQuota, RandomBallot

import privote as pv
from privote.audit import subjects

GATE = pv.Gate(threshold=3.5, sigma=1.2)

MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=2.0),
    "binary quota": pv.BinaryVoting(sigma=2.0, quota=0.3),
    "binary false_alarm": pv.BinaryVoting(sigma=2.0, false_alarm=0.05),
    "binary gate": pv.BinaryVoting(sigma=2.0, gate=GATE),
    "binary quota half, gate": pv.BinaryVoting(sigma=2.0, quota=0.5, gate=GATE),
    "binary gate far below": pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=-3, sigma=2.0)),
    "binary gate far above": pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=9, sigma=2.0)),
    "binary sharp gate": pv.BinaryVoting(sigma=20.0, gate=pv.Gate(threshold=5, sigma=0.3)),
    "binary tiny sigma": pv.BinaryVoting(sigma=0.1),
    "tau l2": pv.TauVoting(sigma=2.0, tau=1.2),
    "tau l1": pv.TauVoting(sigma=2.0, tau=1.5, norm=1),
    "tau l2 tiny tau": pv.TauVoting(sigma=1.0, tau=0.1),
    "tau l1 tiny tau": pv.TauVoting(sigma=1.0, tau=0.1, norm=1),
    "tau l2 large tau": pv.TauVoting(sigma=2.0, tau=9.0),
    "tau l2 one": pv.TauVoting(sigma=1.0, tau=1.0),
    "tau l2 gate": pv.TauVoting(sigma=2.0, tau=1.2, gate=GATE),
    "tau l2 sharp gate": pv.TauVoting(sigma=20.0, tau=1.2, gate=pv.Gate(threshold=1.5, sigma=0.3)),
    "tau l1 gate": pv.TauVoting(sigma=2.0, tau=0.8, norm=1, gate=GATE),
    "tau l2 grid": pv.TauVoting(sigma=2.0, tau=1.2, grid=5),
    "tau l1 grid, gate": pv.TauVoting(sigma=2.0, tau=1.7, norm=1, grid=64, gate=GATE),
    "plurality": pv.PluralityVoting(sigma=2.0),
    "plurality tiny sigma": pv.PluralityVoting(sigma=0.1),
    "plurality gate": pv.PluralityVoting(sigma=2.0, gate=GATE),
    "powerset": pv.PowersetVoting(sigma=1.5),
    "powerset tiny sigma": pv.PowersetVoting(sigma=0.1),
    "powerset gate": pv.PowersetVoting(sigma=2.0, gate=GATE),
    "powerset max_positives": pv.PowersetVoting(sigma=1.0, max_positives=1),
    "powerset max_positives, gate": pv.PowersetVoting(sigma=1.0, max_positives=2, gate=GATE),
    "tally": pv.TallyVoting(sigma=2.0),
    "tally tiny sigma": pv.TallyVoting(sigma=0.1),
    "tally wide": pv.TallyVoting(sigma=9.0),
    "tally tau": pv.TallyVoting(sigma=1.0, tau=1.2, grid=5),
    "tally tiny tau": pv.TallyVoting(sigma=0.2, tau=0.4, grid=32),
    "outside votes": LaplaceQuota(sigma=2.0, quota=0.3),
    "outside votes, gate": LaplaceQuota(sigma=2.0, quota=0.3, gate=GATE),
    "outside ballots": RandomBallot(share=0.4),
}
AUDITED = [each for kind in pv.MECHANISMS.values() for each in subjects(kind)]
MECHANISMS |= {str(each): each for each in AUDITED if each not in MECHANISMS.values()}

ORDERS = np.array([1.01, 1.5, 2.0, 5.0, 32.0, 1000.0])


def random_votes(
    mechanism: pv.Mechanism,
    shape: tuple[int, int, int],
    rng: np.random.Generator,
    *,
    missing: bool = False,
    share: float = 0.4,
) -> npt.NDArray[Any]:
    """Return votes that ``mechanism`` accepts: bool, or int8 with some missing."""
    votes = rng.random(shape) < share
    if mechanism.max_positives is not None:
        votes &= np.cumsum(votes, axis=2) <= mechanism.max_positives
    if not missing:
        return votes
    gaps = (rng.random(shape) < 0.15) | (rng.random((*shape[:2], 1)) < 0.15)
    return np.where(gaps, -1, votes).astype(np.int8)
