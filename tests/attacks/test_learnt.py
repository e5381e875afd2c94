"""Learnt allowances: a run that is resumed, or asked oddly, draws nothing that is not paid for."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.attacks.conftest import Killed, dying_at
from tests.refusals import refused

import privote as pv
from privote.accounting.allowance import learning_epsilon, mu_of_budget, settled
from privote.entropy import Entropy
from privote.ledger import Ledger
from privote.mechanisms import TallyVoting
from privote.release import headline

VOTES = np.random.default_rng(0).random((40, 60, 3)) < 0.1
NAMES = [f"v{place}" for place in range(60)]
# Of entries; holders, digests, and names under the key of each ledger.
_TIMES = re.compile(r"[0-9a-f]{32,}|(?<=\")[0-9a-f]{16}(?=\")|\d{4}-\d\d-\d\d[ T]\d\d:\d\d[:.+\d]*")

pytestmark = pytest.mark.filterwarnings("ignore::privote.errors.PrivoteWarning")


def _label(ledger: Path, votes: Any = VOTES, **more: Any) -> pv.Release:
    return pv.label(votes, epsilon=8.0, delta=1e-5, ledger=ledger, anyway=True, **more)


OTHER: dict[str, dict[str, Any]] = {
    "floats": {"votes": VOTES.astype(np.float64)},  # a vote counts 100 steps, the noise is for one
    "more": {"votes": np.concatenate([VOTES, VOTES[:, :5]], axis=1)},
    "fewer": {"votes": VOTES[:, :50]},
    "labels": {"votes": VOTES[:, :, :2]},
    "shorter": {"votes": VOTES[:30]},
    "longer": {"votes": np.concatenate([VOTES, VOTES])},
    "names": {"voter_ids": NAMES},
    "planned": {"plan_for": 80},
}
RENAMED = {
    "reversed": {"voter_ids": NAMES[::-1]},
    "nameless": {},
    "moved": {"voter_ids": NAMES[1:] + NAMES[:1]},
}


@pytest.mark.parametrize("kind", [*OTHER, *RENAMED])
def test_noise_that_was_paid_for_is_for_no_other_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor for voters in another order, of whom one would get another's allowance."""
    ledger, given = tmp_path / "a.ledger", {"voter_ids": NAMES} if kind in RENAMED else {}
    with monkeypatch.context() as patch:
        patch.setattr(pv.Ledger, "append", dying_at("commit"))
        with pytest.raises(Killed):
            _label(ledger, **given)
    with refused(None, pv.BudgetError):
        _label(ledger, resume=True, **{**OTHER, **RENAMED}[kind])
    assert _label(ledger, resume=True, **given).answered == 40
    with closing(pv.Ledger.open(ledger)) as book:
        assert [entry["kind"] for entry in book.published()].count("charge") == 1


def test_one_vote_does_not_tell_that_a_list_holds_probabilities() -> None:
    votes = VOTES.astype(int).tolist()
    assert pv.label(votes, epsilon=8.0, delta=1e-5).guarantee.mechanism.get("grid") is None
    votes[0][0][0] = 0.5
    with refused():
        pv.label(votes, epsilon=8.0, delta=1e-5)
    assert pv.label(np.array(votes), epsilon=8.0, delta=1e-5).guarantee.mechanism["grid"] == 100


@pytest.mark.parametrize("more", [{}, {"plan_for": 160}, {"guarantee": "worst-case"}])
@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.float64])
def test_all_that_leaves_follows_from_what_was_drawn(
    kind: Any, more: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the votes were: with the same draws, everything published is the same."""
    drawn = np.random.default_rng(1).normal(20, 15, (80, 4)).round().astype(np.int64)
    monkeypatch.setattr(TallyVoting, "draw", lambda self, *_: drawn * self.steps)
    monkeypatch.setattr(
        Entropy, "exponential_mechanism", lambda self, scores, scale: len(scores) // 2
    )
    random = np.random.default_rng(2).random((80, 60, 4))
    electorates = [random < 0.1, random < 2, random < -1, random * 0.3]
    missing = [] if kind is np.bool_ else [np.full((80, 60, 4), -1)]
    seen = set()
    for place, votes in enumerate([*electorates[: 4 if kind is np.float64 else 3], *missing]):
        with Ledger.at(tmp_path / f"{place}.ledger") as book:
            made = pv.label(votes.astype(kind), epsilon=8.0, delta=1e-5, ledger=book, **more)
            said = [made.facts(), made.summary(), made.statement(), repr(made), book.published()]
            said += [book.standing(), headline(made), made.quality]
        assert made.shares is not None
        assert made.probabilities is not None
        said += [made.shares.tolist(), made.probabilities.tolist()]
        seen.add(_TIMES.sub("", json.dumps(said, default=str)))
    assert len(seen) == 1


@pytest.mark.parametrize("epsilon", [1e-7, 1e-6, 1e-5, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-3])
@pytest.mark.parametrize("voters", [10, 6000])
def test_a_whole_budget_is_never_exceeded_by_rounding(
    epsilon: float, delta: float, voters: int
) -> None:
    epsilon0 = learning_epsilon(settled(epsilon, delta)[1], voters)
    with mpmath.workdps(60):
        mu = mpmath.mpf(mu_of_budget(epsilon, delta, epsilon0))

        def gaussian(at: Any) -> Any:
            low = mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)
            return mpmath.ncdf(mu / 2 - at / mu) - low

        worst = gaussian(mpmath.mpf(epsilon))
        for step in range(51) if epsilon0 else ():
            top = mpmath.mpf(epsilon0) * step / 50
            rest = mpmath.exp(epsilon0 - top)
            chance = (rest - 1) / (rest - mpmath.exp(-top))
            both = chance * gaussian(epsilon - top)
            worst = max(worst, both + (1 - chance) * gaussian(epsilon - top + epsilon0))
        assert worst <= delta
