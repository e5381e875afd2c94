"""The exact audit catches what is broken, and says what, where and in which direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import privote as pv
from privote import audit
from privote.audit.exact import (
    BACKWARD,
    FORWARD,
    Findings,
    enumerate_neighbours,
    random_elections,
)
from privote.audit.reference import Textbook

ORDERS = [1.5, 4.0, 32.0]


@dataclass(frozen=True, kw_only=True)
class Cheap(pv.BinaryVoting):
    """Understates each of its costs by a millionth, one at a time."""

    what: ClassVar[str] = ""

    def rdp(self, *args: Any, **kwargs: Any) -> Any:
        return super().rdp(*args, **kwargs) * (1 - 1e-6 * (self.what == "rdp"))

    def rdp_by_voter(self, *args: Any, **kwargs: Any) -> Any:
        return super().rdp_by_voter(*args, **kwargs) * (1 - 1e-6 * (self.what == "rdp_by_voter"))

    def worst_case_rdp(self, *args: Any, **kwargs: Any) -> Any:
        return super().worst_case_rdp(*args, **kwargs) * (
            1 - 1e-6 * (self.what == "worst_case_rdp")
        )

    def contribution_rdp(self, *args: Any, **kwargs: Any) -> Any:
        factor = 1 - 1e-6 * (self.what == "contribution_rdp")
        return pv.BinaryVoting(sigma=self.sigma).contribution_rdp(*args, **kwargs) * factor

    def outcome_probabilities(self, votes: Any) -> Any:
        return super().outcome_probabilities(votes) + 1e-9 * (self.what == "outcome_probabilities")


QUANTITIES = ["rdp", "rdp_by_voter", "worst_case_rdp", "contribution_rdp", "outcome_probabilities"]


@pytest.mark.parametrize("what", QUANTITIES)
def test_a_cost_understated_by_a_millionth_is_caught(what: str) -> None:
    broken = type("Broken", (Cheap,), {"what": what})
    report = audit.exact(broken(sigma=1.5), 5, 2, ORDERS, elections=35)
    assert not report.ok
    caught = {name for name, _ in report.exceeded}
    assert caught == {name for name in report.ratios if name == what or name.startswith(f"{what} ")}
    assert "BROKEN" in report.summary()
    assert what in report.summary()
    assert audit.exact(Cheap(sigma=1.5), 5, 2, ORDERS, elections=35).ok


@dataclass(frozen=True, kw_only=True)
class OneSided(pv.BinaryVoting):
    """Bills the direction here || neighbour twice, and the other never."""

    def rdp_by_voter(self, *args: Any, **kwargs: Any) -> Any:
        return super().rdp_by_voter(*args, **kwargs)[:, [0, 0]]


def test_a_forgotten_direction_is_caught_and_named() -> None:
    report = audit.exact(OneSided(sigma=1.5), 5, 2, ORDERS, elections=35)
    assert {d for name, d in report.exceeded if name == "rdp_by_voter"} == {BACKWARD}


def test_the_published_price_of_tau_is_caught() -> None:
    # order * tau^2 / sigma^2 holds for one noise, not for two.
    mech = pv.TauVoting(sigma=2.0, tau=1.0)
    report = audit.exact(mech, 6, 2, ORDERS, elections=70, stated=lambda o: o * 1.0 / 2.0**2)
    assert {name for name, _ in report.exceeded} == {"stated"}
    assert report.ratios["stated"] > 1.2


def test_theorem_6_breaks_in_one_direction_only() -> None:
    report = audit.exact(pv.BinaryVoting(sigma=2.0), 12, 2, ORDERS, elections=70, bound="pate2018")
    assert {key for key in report.exceeded} == {("rdp (bound=pate2018)", BACKWARD)}
    assert f"direction {BACKWARD}" in report.summary()
    assert f"direction {FORWARD}" not in report.summary()


def test_a_violation_can_be_seen_again() -> None:
    mech = pv.BinaryVoting(sigma=1.5)
    report = audit.exact(mech, 4, 2, ORDERS, elections=35, stated=lambda o: 0.5 * o)
    found = report.violations[0]
    pair = np.array([found.votes, found.neighbour])
    assert (pair[0] != pair[1]).any(axis=1).sum() == 1, "neighbours differ in one voter"
    p, q = mech.outcome_probabilities(pair.astype(bool))
    if found.direction == BACKWARD:
        p, q = q, p
    cost = np.log((p**found.order * q ** (1 - found.order)).sum(axis=1)).sum() / (found.order - 1)
    assert cost == pytest.approx(found.enumerated, rel=1e-9)
    assert found.enumerated > found.stated == pytest.approx(0.5 * found.order)
    assert str(found.votes) in str(found)


def test_every_neighbour_is_listed() -> None:
    mech = pv.BinaryVoting(sigma=1.0)
    book = Textbook(mech, 3, 2, missing=True)
    cast = np.array([[0, 4, 8], [5, 5, 5]])  # three kinds of ballots, one kind
    found = enumerate_neighbours(book, cast, np.array([2.0]))
    assert len(found.own) == 3 * 8 + 1 * 8
    assert set(zip(found.election, found.own, found.other, strict=True)) == {
        (e, own, other)
        for e, kinds in ((0, (0, 4, 8)), (1, (5,)))
        for own in kinds
        for other in range(9)
        if other != own
    }


# -- what counts as a violation, and what is kept of it --------------------------------------------

TWO_ORDERS = np.array([2.0, 8.0])


def show(case: int) -> tuple[list[Any], None]:
    return [case], None


def compared(enumerated: Any, stated: Any) -> Findings:
    findings = Findings("a mechanism", TWO_ORDERS)
    findings.compare("cost", FORWARD, np.array(enumerated, float), np.array(stated, float), show)
    return findings


@pytest.mark.parametrize(
    ("enumerated", "stated", "order"),
    [
        ([[1.0, 2.001]], [1.0, 2.0], 8.0),
        ([[1e-9, 1.0]], [0.0, 2.0], 2.0),  # what is stated to be free is not
        ([[np.nan, 1.0]], [1.0, 2.0], 2.0),
        ([[1.0, 1.0]], [1.0, np.nan], 8.0),
        ([[np.inf, 1.0]], [1.0, 2.0], 2.0),
    ],
)
def test_any_excess_is_one_and_so_is_what_cannot_be_compared(
    enumerated: Any, stated: Any, order: float
) -> None:
    found = compared(enumerated, stated)
    assert found.exceeded == {("cost", FORWARD): 1}
    assert found.violations[0].order == order
    assert found.violations[0].votes == [0]


# -- elections of every kind, allowed by the mechanism --------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "mechanism",
    [
        pv.BinaryVoting(sigma=2.0),
        pv.PluralityVoting(sigma=2.0),
        pv.PowersetVoting(sigma=2.0, max_positives=1),
    ],
    ids=str,
)
def test_every_ballot_is_one_the_mechanism_takes(mechanism: pv.Mechanism, missing: bool) -> None:
    book = Textbook(mechanism, 6, 3, missing=missing)
    cast = random_elections(book, 80, np.random.default_rng(0))
    votes = book.ballots[cast]
    assert votes.shape == (80, 6, 3)
    mechanism.check(pv.Ballots.from_array(votes))
    assert (votes == -1).any() == missing
    kinds = [len(set(row)) for row in cast.tolist()]
    assert {1, 2, 3} <= set(kinds)
    assert kinds[::4].count(1) > 5  # unanimous
    assert max(kinds) > 3 or len(book.ballots) < 5
    if mechanism.name == "binary" and not missing:  # a ballot and its opposite, evenly
        assert ((2 * votes[1::4].sum(axis=1) == 6).all(axis=1)).sum() > 5
