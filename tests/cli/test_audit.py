from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.conftest import Run

import privote.audit

SMALL = ("--elections", 7, "--voters", 3, "--labels", 2)


def test_binary_passes(run: Run) -> None:
    done = run("audit", "--mechanism", "binary", *SMALL)
    assert done.exit_code == 0, done.stderr
    assert "All audits passed." in done.stdout
    assert "binary (sigma=2, quota=0.3)" in done.stdout
    assert "tau" not in done.stdout


def test_json_and_sampled(run: Run) -> None:
    call = ("audit", "--mechanism", "plurality", "--mechanism", "tau", *SMALL)
    found = json.loads(run(*call, "--sampled", "--draws", 2000, "--json").stdout)
    assert found["ok"] is True
    kinds = {row["audit"] for row in found["audits"]}
    assert kinds == {"exact", "missing", "sampled"}
    assert all(row["ratio"] <= 1 + 1e-7 for row in found["audits"])


def test_a_violation_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = privote.audit.exact

    def broken(*args: Any, **kwargs: Any) -> Any:
        return replace(honest(*args, **kwargs), exceeded={("rdp", "here||neighbour"): 1})

    monkeypatch.setattr(privote.audit, "exact", broken)
    call = ("audit", "--mechanism", "powerset", *SMALL)
    done = run(*call)
    assert done.exit_code == 1
    assert "BROKEN" in done.stdout
    assert "found a violation" in done.stdout
    machine = run(*call, "--json")
    assert machine.exit_code == 1
    assert json.loads(machine.stdout)["ok"] is False
