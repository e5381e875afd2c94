"""What all mechanisms share: what can be cast, what can be released, and how likely that is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import privote as pv
from privote.votes.cube import Block

GATE = pv.Gate(threshold=3, sigma=1)


@pytest.mark.parametrize("gate", [None, GATE])
@pytest.mark.parametrize(
    ("mechanism", "ballots", "outcomes"),
    [
        (pv.BinaryVoting(sigma=2.0), 8, 8),
        (pv.TauVoting(sigma=2.0, tau=1.2), 8, 8),
        (pv.PowersetVoting(sigma=2.0), 8, 8),
        (pv.PowersetVoting(sigma=2.0, max_positives=1), 4, 4),
        (pv.PluralityVoting(sigma=2.0), 4, 3),
    ],
    ids=str,
)
def test_it_lists_what_can_be_cast_and_released(
    mechanism: pv.Mechanism, ballots: int, outcomes: int, gate: pv.Gate | None
) -> None:
    gated = dataclasses.replace(mechanism, gate=gate)
    assert len(gated.every_ballot(3)) == ballots
    rows = gated.every_outcome(3)
    whole = 27 if outcomes == 8 and mechanism.name in ("binary", "tau") else outcomes + 1
    assert len(rows) == len(np.unique(rows, axis=0)) == (outcomes if gate is None else whole)
    votes = gated.every_ballot(3)[np.random.default_rng(1).integers(ballots, size=(9, 6))]
    joint = gated.joint_probabilities(votes.astype(bool))
    np.testing.assert_allclose(joint.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(gated.joint_log_probs(votes.astype(bool))), joint, rtol=1e-9)
    cells = np.concatenate([gated.cell_probabilities(gated.tally(b)) for b in blocks(votes)])
    one = joint @ (rows == 1)
    np.testing.assert_allclose(one, cells[..., 1], rtol=1e-9, atol=1e-15)


def blocks(votes: np.ndarray) -> list[Block]:
    return list(pv.Ballots.of(votes.astype(bool)).blocks())
