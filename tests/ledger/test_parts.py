"""What a run may cost, and what all runs of a data set may: the whole of a budget, or parts."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from scipy.special import ndtr
from tests.refusals import refused

import privote as pv
from privote.accounting.allowance import gaussian_delta
from privote.accounting.renyi import Floats
from privote.learning.moments import DPMoments
from privote.ledger import Request
from privote.votes.contributions import bound_contributions
from privote.votes.cube import DenseBlock

DELTA = 1e-5
VOTES = np.random.default_rng(0).random((40, 30, 3)) < 0.2
BINARY = pv.BinaryVoting(sigma=60.0)
BALLOTS = {"voter": [*range(30)], "beans": [1, 1, 0] * 10, "fish": [0, 1, 0] * 10}
pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")


def auto(ledger: pv.Ledger, epsilon: float) -> None:
    pv.label(VOTES, epsilon=epsilon, delta=DELTA, ledger=ledger)


def worst_case(ledger: pv.Ledger, epsilon: float) -> None:
    settings: dict[str, Any] = {"mechanism": BINARY, "guarantee": "worst-case"}
    pv.label(np.zeros((9999, 5, 1), bool), epsilon=epsilon, delta=DELTA, ledger=ledger, **settings)


def allowance(ledger: pv.Ledger, epsilon: float) -> None:
    settings: dict[str, Any] = {"mechanism": BINARY, "guarantee": "allowance"}
    pv.label(VOTES, epsilon=epsilon, delta=DELTA, ledger=ledger, **settings)


def poll(ledger: pv.Ledger, epsilon: float) -> None:
    settings: dict[str, Any] = {"dataset": "default", "ledger": ledger}
    pv.poll(BALLOTS, epsilon=epsilon, delta=DELTA, **settings)


def train(ledger: pv.Ledger, epsilon: float) -> None:
    rng = np.random.default_rng(1)
    rows, answers = rng.normal(size=(300, 4)), rng.integers(0, 2, (300, 2))
    model = DPMoments(epsilon=epsilon, delta=DELTA)
    model.fit(rows, answers, rng.normal(size=(50, 4)), ledger=ledger)


RUNS: dict[str, Callable[[pv.Ledger, float], None]] = {
    run.__name__: run for run in (auto, worst_case, allowance, poll, train)
}
# What protects a voter, a ballot or a record does not share a budget.
TOGETHER = [("auto", "worst_case", "allowance"), ("poll",), ("train",)]


@pytest.fixture
def ledger(tmp_path: Path) -> pv.Ledger:
    """Return a ledger with a budget of 8."""
    opened = pv.Ledger.open(tmp_path / "ledger.db")
    opened.set_budget(pv.Budget(epsilon=8.0, delta=DELTA), dataset="default")
    return opened


# -- parts, and what does not fit ------------------------------------------------------------------


@pytest.mark.parametrize("kind", RUNS)
def test_a_refusal_names_the_largest_part_that_fits(ledger: pv.Ledger, kind: str) -> None:
    for epsilon in (2.0, 2.01, 2.02):
        RUNS[kind](ledger, epsilon)
    before = ledger.published()
    with pytest.raises(pv.BudgetError) as caught:
        RUNS[kind](ledger, 7.0)
    found = re.search(r"one run at epsilon ([\d.]+)", str(caught.value))
    assert found is not None
    fits = float(found[1].rstrip("."))
    with pytest.raises(pv.BudgetError):
        RUNS[kind](ledger, 1.03 * fits)
    assert ledger.published() == before
    RUNS[kind](ledger, fits)
    assert 0.9 < ledger.standing()[0]["share"] <= 1.0


@pytest.mark.parametrize("kind", RUNS)
def test_whoever_takes_the_whole_is_alone(ledger: pv.Ledger, kind: str) -> None:
    RUNS[kind](ledger, 8.0)
    (charge,) = (entry for entry in ledger.published() if entry["kind"] == "charge")
    assert charge["whole"]
    assert (charge.get("cost"), ledger.standing()[0]["used"]) == (None, 8.0)
    before = ledger.published()
    for epsilon in (0.5, 7.9):
        with refused(None, pv.BudgetError):
            RUNS[kind](ledger, epsilon)
    with refused(None, pv.BudgetError):
        ledger.set_budget(pv.Budget(epsilon=9.0, delta=DELTA), dataset="default")
    assert ledger.published() == before


def test_without_a_budget_the_first_run_is_the_whole(tmp_path: Path) -> None:
    ledger = pv.Ledger.open(tmp_path / "new.db")
    with pytest.warns(pv.PrivoteWarning, match="nothing will be left"):
        auto(ledger, 2.0)
    assert ledger.standing()[0]["epsilon"] == ledger.standing()[0]["used"] == 2.0
    with refused(None, pv.BudgetError):
        auto(ledger, 0.1)


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "kinds"), enumerate(TOGETHER))
def test_no_sequence_of_parts_exceeds_the_budget(
    ledger: pv.Ledger, kinds: tuple[str, ...], seed: int
) -> None:
    rng, refusals = np.random.default_rng(seed), 0
    for kind in rng.choice(kinds, size=8):
        epsilon = float(np.exp(rng.uniform(np.log(1.0), np.log(7.9))))
        try:
            RUNS[kind](ledger, epsilon)
        except pv.BudgetError:
            refusals += 1
    curves = [entry for entry in ledger.published() if entry["kind"] == "charge"]
    spent = sum(entry["cost"] for entry in curves)
    assert len(curves) > 1
    assert refusals
    together, _ = compute_epsilon([4.0], [spent], DELTA)
    assert together <= ledger.standing()[0]["used"] <= together * (1 + 1e-8)
    assert together <= 8.0


def test_what_all_runs_cost_is_the_conversion_at_the_pinned_order(ledger: pv.Ledger) -> None:
    true = RdpAccountant([4.0])
    for run, epsilon in enumerate((1.0, 2.0, 0.5, 3.0)):
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "guarantee": "worst-case"}
        release = pv.label(VOTES, **asked, ledger=ledger)
        cells = VOTES.shape[0] * VOTES.shape[2]
        guarantee = release.guarantee
        assert guarantee.standing is not None
        true.compose(dp.GaussianDpEvent(guarantee.mechanism["sigma"] / math.sqrt(cells)))
        assert release.epsilon == epsilon
        if run == 0:
            assert guarantee.total == epsilon
        else:
            least = true.get_epsilon(DELTA)
            assert guarantee.total is not None
            assert least <= guarantee.total <= least * (1 + 1e-6)
        assert guarantee.standing.share == pytest.approx(ledger.standing()[0]["share"])


def test_only_epsilon_is_raised(ledger: pv.Ledger) -> None:
    auto(ledger, 7.0)
    with refused(None, pv.BudgetError):
        auto(ledger, 4.0)
    before = ledger.published()
    for epsilon, delta in ((7.0, DELTA), (9.0, 1e-6)):
        with refused(None, pv.BudgetError):
            ledger.set_budget(pv.Budget(epsilon=epsilon, delta=delta), dataset="default")
    assert ledger.published() == before
    raised = ledger.set_budget(pv.Budget(epsilon=20.0, delta=DELTA), dataset="default")
    assert (raised.epsilon, raised.order) == (20.0, 4.0)
    auto(ledger, 4.0)
    assert ledger.standing()[0]["order"] == 4.0
    assert "raised" in pv.label(VOTES, epsilon=1.0, delta=DELTA, ledger=ledger).statement()


def bare(slope: float, **changes: Any) -> Request:
    facts: dict[str, Any] = {"dataset": "default", "cost": pv.Budget(epsilon=2.0, delta=DELTA)}
    facts |= {"guarantee": "worst-case", "terms": {}}
    return Request(**{**facts, "price": lambda epsilon: slope * pv.DEFAULT_ORDERS, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"cost": pv.Budget(epsilon=2.0, delta=1e-6)},
        {"budget": 9.0},
        {"protects": "a person"},
        {"price": None},
    ],
)
def test_what_is_refused_changes_nothing(ledger: pv.Ledger, change: dict[str, Any]) -> None:
    ledger.reserve(bare(0.01))
    before = ledger.published()
    with refused(None, pv.BudgetError):
        ledger.reserve(bare(0.01 if change else 9.0, **change))
    assert ledger.published() == before


def test_a_quote_is_what_comes_of_it(ledger: pv.Ledger) -> None:
    for turn in range(2):
        quote = ledger.quote(bare(0.05))
        ledger.reserve(bare(0.05, terms={"turn": turn}))
        row = ledger.standing()[0]
        assert (quote.total, quote.share, quote.largest()) == (
            *(row["used"], row["share"]),
            row["fits"],
        )
        assert quote.runs_at(1.0) > 0


# -- one plan, several batches ---------------------------------------------------------------------


SIGMA = 2.6  # of the rounded Gaussian noise, in steps: half votes
REACH = np.arange(-21, 24)  # beyond lies less than 1e-14


@lru_cache
def tallies(distances: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the probabilities of all tallies of cells that differ by so many steps: in X, X'."""
    one, two = np.ones(1), np.ones(1)
    for distance in distances:
        edges = np.append(REACH, REACH[-1] + 1) - 0.5
        one = np.outer(one, np.diff(ndtr(edges / SIGMA))).ravel()
        two = np.outer(two, np.diff(ndtr((edges - distance) / SIGMA))).ravel()
    return one, two


@lru_cache
def ballots(left: tuple[int, int]) -> set[tuple[tuple[int, ...], tuple[int, int]]]:
    """Return how far a batch's cells can differ between X and X', and what is left in each."""
    found = set()
    for pair in itertools.product(itertools.product(range(3), repeat=2), repeat=2):
        votes, rest = [], []
        for ballot, own in zip(pair, left, strict=True):
            block = DenseBlock(np.array(ballot, np.int8).reshape(2, 1, 1), missing=False)
            asked: dict[str, Any] = {"unit": "vote", "missing_counts_as_no": True, "resolution": 2}
            counted, *taken = bound_contributions(
                block, np.zeros((2, 1), bool), np.array([own]), **asked
            )
            assert isinstance(counted, DenseBlock)
            votes.append(counted.votes[:, 0, 0].astype(int))
            spent, clipped = (int(each[0]) for each in taken)
            rest.append(0 if clipped else own - spent)
        distances = sorted(np.abs(votes[0] - votes[1]).tolist())
        found.add((tuple(d for d in distances if d), (rest[0], rest[1])))
    return found


def best(epsilon: Floats, left: tuple[int, int], batches: int) -> Floats:
    """Return the largest divergence at each epsilon: every batch follows from released tallies."""
    found = np.maximum(0.0, -np.expm1(epsilon))
    for distances, rest in ballots(left) if batches else ():
        one, two = tallies(distances)
        kept = one > 1e-13
        losses = np.log(one[kept] / two[kept])
        after = best((epsilon[:, None] - losses).ravel(), rest, batches - 1)
        found = np.maximum(found, after.reshape(len(epsilon), -1) @ one[kept])
    return np.asarray(found)


def test_adaptive_batches_of_one_plan_cost_no_more_than_one_gaussian() -> None:
    """Every adversary of two batches who has one contribution for life, by enumeration."""
    epsilon = np.array([0.1, 1.0, 3.0])
    mu = math.sqrt(2) / (SIGMA / 2)
    found, stated = best(epsilon, (4, 4), 2), gaussian_delta(mu, epsilon)
    assert (found <= stated).all()
    assert (found > 0.9 * stated).all()
    assert len(ballots((4, 4))) > 5
