"""A stated epsilon is never below the true one: it is rounded up, in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.report.test_tables import text_table

import privote as pv
from privote.accounting.renyi import rounded_up
from privote.report.tables import Column, cell, is_cost

SOURCE = Path(pv.__file__).parent
COST = re.compile(r"epsilon|delta|price|budget|\beps\b")
costs = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@given(value=costs, digits=st.integers(1, 15))
def test_what_is_said_is_never_below_what_is_so(value: float, digits: int) -> None:
    said = float(rounded_up(value, digits))
    assert said >= value
    if value > 1e-300:
        assert said <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@given(value=st.floats(0, 1e12), places=st.integers(0, 12))
def test_nor_in_a_table(value: float, places: int) -> None:
    for text in (rounded_up(value, 2, places=places), cell(value, places, cost=True)):
        assert float(text.replace(",", "")) >= value


def test_round_numbers_stay_as_they_are() -> None:
    for value, text in ((8.0, "8"), (1e-5, "1e-05"), (0.1, "0.1"), (0.0, "0"), (np.inf, "inf")):
        assert rounded_up(value) == text
    assert rounded_up(0.00014499, 1) == "0.0002"
    assert rounded_up(1234.5, places=2) == "1,234.50"


def rounded_to_the_nearest(source: str) -> list[str]:
    """Return what formats an epsilon, a delta or a price by a plain format, or rounds it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spec, value = ast.unparse(node.format_spec), ast.unparse(node.value)
            if re.search(r"[gfe%n]['\"]$", spec) and COST.search(value):
                found.append(f"{value}:{spec}")
        if not isinstance(node, ast.Call):
            continue
        rounds = ast.unparse(node.func) in ("round", "np.round", "format")
        if rounds and any(COST.search(ast.unparse(part)) for part in node.args):
            found.append(ast.unparse(node))
    return found


def test_the_check_finds_what_it_looks_for() -> None:
    for bad in ('f"{x.epsilon:.4f}"', "f\"{facts['delta']:g}\"", "round(price, 2)"):
        assert rounded_to_the_nearest(bad)
    for good in ('f"{rounded_up(x.epsilon)}"', 'f"{sigma:g}"', 'f"{epsilon!r:.60}"'):
        assert not rounded_to_the_nearest(good)


def test_no_cost_is_rounded_to_the_nearest() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    found = {str(path): rounded_to_the_nearest(path.read_text(encoding="utf-8")) for path in files}
    assert {path: places for path, places in found.items() if places} == {}


def test_summary_statement_and_tables_round_up() -> None:
    votes = np.random.default_rng(0).random((3, 5, 2)) < 0.3
    mechanism = pv.BinaryVoting(sigma=2e5)
    release = pv.label(votes, mechanism=mechanism, epsilon=1.0, delta=1e-5, guarantee="worst-case")
    assert release.epsilon is not None
    texts = [release.summary(), release.statement(), repr(release)]
    for text in texts:
        said = re.search(r"epsilon(?:, delta)?[ :=]+([0-9.e-]+)", text)
        assert said is not None
        assert float(said[1]) >= release.epsilon
    rows = [{"epsilon": 0.00014499, "delta": 1e-5, "used": 3.89941, "sigma": 0.12341}]
    assert text_table(rows, columns=[Column(key=key) for key in rows[0]]).split()[-4:] == [
        "0.00015", "1e-5", "3.900", "0.123",
    ]  # fmt: skip
    assert is_cost("epsilon of a site, for life")
    assert not is_cost("queries answered")
