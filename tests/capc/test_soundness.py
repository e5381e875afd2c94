"""Enumerated elections: what a coalition releases never costs a party more than was charged.

All transcripts of small adaptive runs, in two worlds that differ in one party's ballots. Which
ballots count is asked of the programs the engines run; how likely a label is at a margin, of the
mechanism (whose own distribution the noise is, see test_noise).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.capc.coalitions import terms_of

import privote as pv
from privote.audit.reference import renyi
from privote.capc.parties import decision_programs, offset
from privote.capc.programs import AllowanceProgram, DecisionProgram
from privote.capc.terms import Terms

ORDERS = np.array([1.1, 2.0, 5.0, 30.0])
MECHANISMS: dict[str, pv.Mechanism] = {
    "binary": pv.BinaryVoting(sigma=1.5),
    "gate": pv.BinaryVoting(sigma=2.0, gate=pv.Gate(threshold=2, sigma=1.0)),
    "false alarm": pv.BinaryVoting(sigma=1.5, false_alarm=0.1),
    "tau": pv.TauVoting(sigma=1.5, tau=1.0, grid=3),
}


def margins_of(program: Any, values: dict[str, Any], most: int) -> npt.NDArray[np.int64]:
    """Return the margins a program compares with, found by comparing with every number."""
    found = np.full((program.rows, program.labels), -most - 1)
    for bar in range(-most, most + 1):
        asked = {**values, "vote": np.full(found.shape, -bar), "pad": 0}
        if program.gated:
            asked["gate"] = np.full(found.shape, 99)
        found[program.compute(np, asked)["share"] == 1] = bar
    return found


class Run:
    """One adaptive run: after each batch everything may depend on the labels so far."""

    def __init__(self, terms: Terms, allowance: int, rows: int, rng: np.random.Generator) -> None:
        self.terms, self.allowance, self.rows, self.rng = terms, allowance, rows, rng
        self.voters = terms.voters("q0")
        self.labels = len(terms.labels)
        self.quiet = rng.random() < 0.5  # the two worlds speak in different batches
        each = (0, 1) if terms.mechanism.gate is None else (0, 1, -1)
        cells = list(product(each, repeat=rows * self.labels))
        self.outcomes = np.array(cells).reshape(-1, rows, self.labels)

    def grow(self, batches: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the log-probabilities of all transcripts in both worlds."""
        nodes = [(0.0, 0.0, np.full((2, len(self.voters)), self.allowance))]
        for batch in range(batches):
            grown = []
            for one, two, left in nodes:
                public = self._public()
                steps, after = [], []
                for world in range(2):
                    ballots = self._ballots(public, world, batch)
                    logs, rest = self._decide(ballots, public, left[world])
                    steps.append(logs)
                    after.append(rest)
                for first, second in zip(*steps, strict=True):
                    grown.append((one + first, two + second, np.stack(after)))
            nodes = grown
        return np.array([n[0] for n in nodes]), np.array([n[1] for n in nodes])

    def _public(self) -> dict[str, Any]:
        """Return what both worlds share: others' ballots, who is there, what is lost."""
        shape = (self.rows, len(self.voters), self.labels)
        there = self.rng.random(len(self.voters)) < 0.8
        if there.sum() < 2:
            there[:] = True
        return {
            "ballots": self.rng.integers(0, 2, shape),
            "there": there,
            "lost": self.rng.random() < 0.15,
        }

    def _ballots(self, public: dict[str, Any], world: int, batch: int) -> npt.NDArray[Any]:
        ballots = public["ballots"].copy()
        if self.quiet and batch % 2 == world:
            ballots[:, 0] = 0
        else:
            ballots[:, 0] = self.rng.random((self.rows, self.labels)) < self.rng.choice([0.3, 1.0])
        weights = self.terms.counted.weights
        if weights is not None:
            ballots = ballots * np.array(weights)[ballots.sum(axis=2)][:, :, None]
        return np.asarray(ballots)

    def _decide(
        self, ballots: npt.NDArray[Any], public: dict[str, Any], left: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
        parties = tuple(np.array(self.voters)[public["there"]].tolist())
        most = len(self.voters) * self.terms.counted.unit
        rest = left.copy()
        there = public["there"]
        if self.terms.guarantee == "allowance":
            (made,) = decision_programs(self.terms, "q0", self.rows, parties)
            assert isinstance(made, AllowanceProgram)
            program = replace(made, charged=(self.allowance,) * len(parties))
            values = {"shares": ballots[:, there], "masks": 0, "left": left[there], "fresh": 0}
            margins = margins_of(program, values, most)
            cells = (self.rows, self.labels)
            noise = dict.fromkeys(("vote", "gate", "pad"), np.zeros(cells, np.int64))
            out = program.compute(np, {**values, **noise})
            # What was lost after it got out: the public bound is taken instead of the count.
            bound = self.rows * (1 if self.terms.counted.by_ballot else self.labels)
            rest[there] = left[there] - bound if public["lost"] else out["left"]
        else:
            (decision,) = decision_programs(self.terms, "q0", self.rows, parties)
            assert isinstance(decision, DecisionProgram)
            shares = 2 * ballots[:, there].sum(axis=1)
            bar = offset(self.terms, "q0", parties)
            margins = margins_of(decision, {"shares": shares, "masks": -bar}, most)
        grid = self.terms.counted.unit
        logs = self.terms.mechanism.log_probs(
            margins if grid == 1 else margins / grid, len(self.voters)
        )
        places = np.where(self.outcomes == -1, 2, self.outcomes)
        rows, labels = np.indices((self.rows, self.labels))
        return logs[rows, labels, places].sum(axis=(1, 2)), rest


def ratio_of(terms: Terms, stated: npt.NDArray[Any], runs: int, **sizes: int) -> float:
    worst = 0.0
    for seed in range(runs):
        run = Run(terms, sizes["allowance"], sizes["rows"], np.random.default_rng(seed))
        one, two = run.grow(sizes["batches"])
        assert np.exp(one).sum() == pytest.approx(1.0)
        for pair in ((one, two), (two, one)):
            worst = max(worst, float((renyi(*pair, ORDERS) / stated).max()))
    return worst


@pytest.mark.parametrize(("rows", "batches", "labels"), [(2, 2, 1), (1, 3, 1), (1, 2, 2)])
@pytest.mark.parametrize("name", MECHANISMS)
def test_an_allowance_never_costs_more_than_was_charged(
    name: str, rows: int, batches: int, labels: int
) -> None:
    allowance = 1 + (rows == 2)
    terms = terms_of(MECHANISMS[name], labels=labels, guarantee="allowance")
    stated = terms.mechanism.contribution_rdp(3, labels, ORDERS) * 2 * allowance
    worst = ratio_of(terms, stated, 12, allowance=allowance, rows=rows, batches=batches)
    assert 0.1 < worst <= 1 + 1e-9


@pytest.mark.parametrize(("parties", "rows", "labels"), [(2, 2, 1), (3, 1, 2), (3, 2, 1)])
@pytest.mark.parametrize("name", MECHANISMS)
def test_composition_never_costs_more_than_was_charged(
    name: str, parties: int, rows: int, labels: int
) -> None:
    terms = terms_of(MECHANISMS[name], parties=parties, labels=labels)
    each = terms.mechanism.worst_case_rdp(parties, labels, ORDERS)
    worst = ratio_of(terms, 2 * rows * each, 12, allowance=0, rows=rows, batches=2)
    assert 0.1 < worst <= 1 + 1e-9


def test_the_enumeration_would_notice_half_the_price() -> None:
    terms = terms_of(MECHANISMS["binary"], labels=1, guarantee="allowance")
    stated = terms.mechanism.contribution_rdp(3, 1, ORDERS)  # V once, not twice
    assert ratio_of(terms, stated, 40, allowance=1, rows=1, batches=3) > 1.2
