"""A mechanism from outside goes everywhere that privote's own go, or is told plainly why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.contracts.outside import EXAMPLES, LaplaceQuota, RandomBallot
from tests.refusals import refused
from typer.testing import CliRunner

import privote as pv
from privote import audit, planning
from privote.cli import app

VOTES = np.random.default_rng(0).random((12, 40, 3)) < [0.9, 0.5, 0.02]
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
LAPLACE = LaplaceQuota(sigma=9.0, quota=0.3)
LOT = RandomBallot(share=0.05)


# -- guarantees ------------------------------------------------------------------------------------


def test_single_votes_have_consensus_prices() -> None:
    release = pv.label(VOTES, mechanism=LAPLACE, guarantee="data-dependent", queries=12, **BUDGET)
    assert release.epsilon is not None
    assert release.sealed.epsilon == pv.epsilon(LAPLACE.total_rdp(VOTES), None, 1e-5)
    assert release.sealed.epsilon_by_voter <= release.sealed.epsilon_rdp
    assert release.sealed.epsilon_pld is not None


def test_whole_ballots_have_none() -> None:
    release = pv.label(VOTES, mechanism=LOT, guarantee="data-dependent", queries=12, **BUDGET)
    assert release.epsilon is None
    assert release.sealed.epsilon > 0
    with refused(None, pv.UnavailableError):
        pv.bills(LOT, VOTES, 1e-5, accountant="pld")


# -- rooms -----------------------------------------------------------------------------------------


def test_plans_and_tunings() -> None:
    assert planning.queries_for(LAPLACE, 40, 3, 8.0, 1e-5) >= 1
    sigma = planning.sigma_for(lambda s: LaplaceQuota(sigma=s), 40, 3, 8.0, 1e-5, 30)
    assert planning.queries_for(LaplaceQuota(sigma=sigma), 40, 3, 8.0, 1e-5) >= 30
    settings = {"sigma": [5.0, 9.0], "gate_sigma": [2.0, 5.0]}
    gated = replace(LAPLACE, gate=pv.Gate(threshold=20, sigma=5))
    _, trials = planning.tune(VOTES, gated, **BUDGET, settings=settings)
    assert [trial.mechanism.sigma for trial in trials] == [5.0, 5.0, 9.0, 9.0]
    with refused("settings"):
        planning.tune(VOTES, LOT, **BUDGET, settings={"sigma": [5.0]})


# -- the audit -------------------------------------------------------------------------------------


def test_the_audit_says_whose_word_it_takes() -> None:
    report = audit.exact(LAPLACE, 5, 2)
    assert report.ok
    assert not report.independent
    assert "the mechanism's own" in report.summary()
    assert audit.exact(pv.BinaryVoting(sigma=2.0), 3, 2, elections=7).independent


@dataclass(frozen=True, kw_only=True)
class Lopsided(LaplaceQuota):  # type: ignore[misc, valid-type]
    """Its two probabilities add up to less than 1."""

    def vote_log_probs(self, margins: Any, voters: int) -> Any:
        return super().vote_log_probs(margins, voters) - 1e-3


def test_what_is_no_distribution_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    ledger = pv.Ledger.open(tmp_path / "ledger.db")
    for guarantee in ("allowance", "worst-case"):
        with pytest.raises(pv.InputError, match="must add up to 1"):
            pv.label(
                VOTES,
                mechanism=Lopsided(sigma=2.0),
                guarantee=guarantee,
                ledger=ledger,
                **BUDGET,
            )
    assert not [entry for entry in ledger.published() if entry["kind"] == "charge"]
    with pytest.raises(pv.InputError, match="must add up to 1"):
        audit.exact(Lopsided(sigma=2.0), 3, 2)
    ledger.close()


def test_nothing_is_said_of_noise_that_only_the_author_knows() -> None:
    made = [
        pv.label(VOTES, mechanism=mechanism, **BUDGET).guarantee.rows()
        for mechanism in (LAPLACE, pv.BinaryVoting(sigma=9.0))
    ]
    assert ["sigma" in {row.key for row in rows} for rows in made] == [False, True]


# -- names -----------------------------------------------------------------------------------------


def test_names_do_not_collide_with_ours() -> None:
    with pytest.raises(TypeError, match="already the name of a privote mechanism"):

        class Binary(pv.VoteMechanism):
            name: ClassVar[str] = "binary"

    class Heir(pv.BinaryVoting):
        """Says nothing of its name."""

    assert Heir.name.endswith("Heir")
    assert Heir(sigma=2.0).parameters()["mechanism"] == Heir.name


@pytest.mark.parametrize("parent", [pv.BinaryVoting, pv.TauVoting])
def test_other_probabilities_need_another_worst_case(parent: Any) -> None:
    with pytest.raises(TypeError, match=r"extend privote\.VoteMechanism"):

        class Other(parent):
            def vote_log_probs(self, margins: Any, voters: int) -> Any:
                return super().vote_log_probs(2 * margins, voters)

    with pytest.raises(TypeError, match="vote_log_probs"):

        class Priced(parent):
            def log_probs(self, margins: Any, voters: int) -> Any:
                return super().log_probs(2 * margins, voters)


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    np.save("votes.npy", VOTES)

    def called(verb: str, *words: Any) -> Any:
        return CliRunner().invoke(app, [verb, *map(str, words)])

    return called


def test_the_command_line_imports_it(run: Any) -> None:
    own = ("--mechanism", "own_mechanism:LaplaceQuota")
    budget = ("--epsilon", 8, "--delta", 1e-5)
    flags = ("--sigma", 9, "--quota", 0.3)
    done = run("label", "votes.npy", *own, *flags, *budget, "--output", "labels.npz")
    assert done.exit_code == 0, done.output
    assert pv.Release.load("labels.npz").guarantee.mechanism == LAPLACE.parameters()
    planned = run("plan", *own, *flags, "--voters", 40, "--labels", 3, *budget)
    assert planned.exit_code == 0, planned.output
    audited = run("audit", *own, "--elections", 14)
    assert audited.exit_code == 0, audited.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--mechanism", "own_mechanism:Nothing"), "cannot be imported"),
        (("--mechanism", "no_such_module:Kind"), "cannot be imported"),
        (("--mechanism", "own_mechanism:main"), "must be a class that extends privote.Mechanism"),
        (("--mechanism", "own_mechanism"), "or package.module:Class"),
        (("--mechanism", "own_mechanism:LaplaceQuota", "--tau", 2), "applies to mechanism 'tau'"),
        (("--mechanism", "own_mechanism:LaplaceQuota"), "--sigma is required for mechanism"),
    ],
)
def test_the_command_line_refuses(run: Any, flags: tuple[Any, ...], said: str) -> None:
    output = ("--epsilon", 8, "--delta", 1e-5, "--output", "labels.npz")
    done = run("label", "votes.npy", *flags, *output)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split()), done.output
