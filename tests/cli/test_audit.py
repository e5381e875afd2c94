from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.audit import exact as honest

SMALL = ("--elections", 7, "--voters", 3, "--labels", 2)


def test_a_mechanism_by_name_passes(run: Run) -> None:
    call = ("audit", "--mechanism", "binary", *SMALL)
    shown = run(*call)
    assert shown.exit_code == 0, shown.stderr
    assert "All audits passed." in shown.stdout
    assert "binary (sigma=2, quota=0.3)" in shown.stdout
    assert "binary (sigma=2, gate threshold=2 sigma=1.5)" in shown.stdout
    assert "tau" not in shown.stdout
    found = json.loads(run(*call, "--json").stdout)
    assert found["ok"] is True
    assert {row["audit"] for row in found["audits"]} == {"exact", "missing"}
    assert all(row["ratio"] <= 1 + 1e-7 for row in found["audits"])


def test_settings_are_audited_as_given(run: Run) -> None:
    settings = ("--sigma", 1, "--tau", 0.9, "--gate-threshold", 2, "--gate-sigma", 1)
    done = run("audit", "--mechanism", "tau", *settings, *SMALL, "--json")
    subject = pv.TauVoting(sigma=1, tau=0.9, gate=pv.Gate(threshold=2, sigma=1))
    assert {row["mechanism"] for row in json.loads(done.stdout)["audits"]} == {str(subject)}


def test_every_mechanism_is_audited_by_default(run: Run) -> None:
    call = ("audit", "--elections", 1, "--voters", 3, "--labels", 2, "--json")
    audits = json.loads(run(*call).stdout)["audits"]
    assert {row["mechanism"].split()[0] for row in audits} == set(pv.MECHANISMS)
    assert all(row["cases"] > 0 for row in audits)


def test_an_audit_of_nothing_is_refused(run: Run) -> None:
    done = run("audit", "--mechanism", "tests.contracts.outside:RandomBallot", *SMALL)
    assert done.exit_code == 2
    assert "--mechanism" in done.stderr


def test_a_violation_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        return replace(honest(*args, **kwargs), exceeded={("rdp", "here||neighbour"): 1})

    monkeypatch.setattr("privote.audit.exact", broken)
    call = ("audit", "--mechanism", "powerset", *SMALL)
    done = run(*call)
    assert done.exit_code == 1
    assert "BROKEN" in done.stdout
    assert "found a violation" in done.stdout
    machine = run(*call, "--json")
    assert machine.exit_code == 1
    assert json.loads(machine.stdout)["ok"] is False
