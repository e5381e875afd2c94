"""Findings: what counts as a violation, and what is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privote.audit.exact import ABSOLUTE, BACKWARD, FORWARD, AuditReport, Findings

ORDERS = np.array([2.0, 8.0])


def show(case: int) -> tuple[list[Any], None]:
    return [case], None


def compared(enumerated: Any, stated: Any) -> Findings:
    findings = Findings("a mechanism", ORDERS)
    findings.compare("cost", FORWARD, np.array(enumerated, float), np.array(stated, float), show)
    return findings


def report(findings: Findings, tightness: float = 1.0) -> AuditReport:
    return AuditReport(
        "a mechanism", 3, 2, (2.0, 8.0), 5, 40, findings.ratios, tightness, findings.exceeded,
        tuple(findings.violations),
    )  # fmt: skip


def test_equal_costs_and_rounding_are_no_violation() -> None:
    for factor in (0.5, 1.0, 1 + 1e-8):
        found = compared([[factor, 2 * factor]], [1.0, 2.0])
        assert not found.exceeded
        assert found.ratios["cost"] == pytest.approx(factor, rel=1e-9)
    assert not compared([[ABSOLUTE / 2, 0.0]], [0.0, 0.0]).exceeded


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
    assert not report(found).ok


def test_the_worst_order_of_each_case_is_kept_and_not_too_many_cases() -> None:
    found = compared(np.full((50, 2), [1.1, 3.0]), [1.0, 2.0])
    assert found.exceeded == {("cost", FORWARD): 50}
    assert len(found.violations) == 20
    assert {violation.order for violation in found.violations} == {8.0}
    found.compare("cost", BACKWARD, np.array([[4.0, 1.0]]), np.array([1.0, 2.0]), show)
    assert found.exceeded[("cost", BACKWARD)] == 1
    assert found.ratios["cost"] == pytest.approx(4.0)


def test_the_report_says_what_broke_and_where() -> None:
    good, bad = report(compared([[1.0, 2.0]], [1.0, 2.0])), report(compared([[2, 2]], [1, 2]))
    assert good.ok
    assert good.summary().startswith("ok: a mechanism, 3 voters, 2 labels: 5 elections")
    assert bad.summary().startswith("BROKEN")
    assert f"cost is too small in 1 elections, direction {FORWARD}" in bad.summary()
    assert "stated 1, enumerated 2 at order 2" in bad.summary()
    assert report(compared([[1, 2]], [1, 2]), tightness=0.999).tight is False
