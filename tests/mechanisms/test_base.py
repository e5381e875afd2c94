"""What all mechanisms share: public parameters, and sizes that are checked."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.mechanisms.base import check_electorate
from privote.votes.cube import Block

GATE = pv.Gate(threshold=3, sigma=1)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (pv.BinaryVoting(sigma=7), "binary (sigma=7)"),
        (pv.BinaryVoting(sigma=7, quota=0.3), "binary (sigma=7, quota=0.3)"),
        (
            pv.BinaryVoting(link=pv.OptimalLink(cost=0.01, order=4.0)),
            "binary (link cost=0.01 order=4)",
        ),
        (pv.TauVoting(sigma=9, tau=1.8), "tau (sigma=9, tau=1.8, norm=2)"),
        (pv.PowersetVoting(sigma=2, max_positives=3), "powerset (sigma=2, max_positives=3)"),
        (
            pv.PluralityVoting(sigma=40, gate=GATE),
            "plurality (sigma=40, gate threshold=3 sigma=1)",
        ),
    ],
)
def test_it_says_what_it_is(mechanism: pv.Mechanism, said: str) -> None:
    assert str(mechanism) == said
    known = mechanism.parameters()
    assert known["mechanism"] == mechanism.name
    assert json.loads(json.dumps(known)) == known  # plain enough for a ledger
    assert pv.MECHANISMS[mechanism.name] is type(mechanism)


def test_it_cannot_be_changed_and_equal_ones_are_equal() -> None:
    one, same = (pv.BinaryVoting(sigma=np.float64(7), gate=GATE) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.sigma = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        pv.BinaryVoting(7.0)  # type: ignore[misc]


@pytest.mark.parametrize("bad", [0, -1, 1.0, "3", None, True, np.nan])
def test_an_electorate_has_whole_sizes(bad: object) -> None:
    check_electorate(np.int32(1), 1)
    with refused("voters"):
        check_electorate(bad, 1)  # type: ignore[arg-type]
    with refused("labels"):
        check_electorate(1, bad)  # type: ignore[arg-type]


def test_it_says_its_settings_and_which_it_needs() -> None:
    assert set(pv.BinaryVoting.settings()) == {"gate", "sigma", "link", "quota", "false_alarm"}
    assert pv.BinaryVoting.needs() == (("sigma", "link"),)
    assert pv.TauVoting.needs() == (("sigma",), ("tau",))
    assert pv.PowersetVoting.needs() == pv.PluralityVoting.needs() == (("sigma",),)


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
