"""What all mechanisms share: each row of outcomes is as likely as its cells say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import privote as pv
from privote.audit.exact import row_probabilities
from privote.audit.reference import Textbook
from privote.planning.chances import cell_probabilities
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
def test_cells_are_as_likely_as_the_rows_they_are_in(
    mechanism: pv.Mechanism, ballots: int, outcomes: int, gate: pv.Gate | None
) -> None:
    gated = dataclasses.replace(mechanism, gate=gate)
    book = Textbook(gated, 6, 3)
    rows = book.outcomes
    assert len(book.ballots) == ballots
    whole = 27 if outcomes == 8 and mechanism.name in ("binary", "tau") else outcomes + 1
    assert len(rows) == len(np.unique(rows, axis=0)) == (outcomes if gate is None else whole)
    votes = book.ballots[np.random.default_rng(1).integers(ballots, size=(9, 6))]
    joint = row_probabilities(gated.outcome_probabilities(votes.astype(bool)), rows)
    np.testing.assert_allclose(joint.sum(axis=1), 1, rtol=1e-12)
    cells = np.concatenate([cell_probabilities(gated, gated.tally(b)) for b in blocks(votes)])
    one = joint @ (rows == 1)
    np.testing.assert_allclose(one, cells[..., 1], rtol=1e-9, atol=1e-15)


def blocks(votes: np.ndarray) -> list[Block]:
    return list(pv.Ballots.of(votes.astype(bool)).blocks())
