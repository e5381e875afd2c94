"""Names from strangers: no formula in a spreadsheet, nothing that steers a terminal."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks.conftest import Outcome, scaled
from tests.refusals import refused
from typer.testing import CliRunner

import privote as pv
from privote.cli import app
from privote.cli.output import print_facts, print_table, say
from privote.cli.train import _write_csv
from privote.datasets.tables import table
from privote.errors import printable
from privote.learning.direct.linear import DPLinear, DPMoments
from privote.votes.names import folded
from privote.votes.tables import cell_of, name_in

FORMULAS = (
    *("=1+1", "=cmd|'/C calc'!A0", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"),
    *("\n=1", "'=1", "''@x", "\uff1d1+1"),
)
STEERING = (
    *("\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://example.org\x1b\\click\x1b]8;;\x1b\\"),
    *("a\rerror: none", "a\nerror: none", "a\x08\x08b", "\x9b31m", "\u202egnp.exe", "a\u2028b"),
    *("\x00", "\x7f", "\ud800"),
)
WORDS = (
    "Lungenödem",
    "肺水肿",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "12\u202f345",
    "ορθός",
    "🫁",
)


def test_no_name_becomes_a_formula(tmp_path: Path, outcome: Outcome) -> None:
    chance, said = np.zeros((1, len(FORMULAS))), -np.ones((1, 11), int)
    _write_csv(tmp_path / "p.csv", FORMULAS, chance, said, {})
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as stream:
        header, row = list(csv.reader(stream))
    wrong = [cell for cell in header if cell[:1] in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"]
    print(*map(repr, wrong), sep="\n")
    assert row[1:12] == ["-1"] * 11  # a number stays a number
    assert tuple(table(tmp_path / "p.csv").feature_names or ())[1:12] == FORMULAS
    outcome("a label's name that is a formula", len(FORMULAS), len(wrong))


@given(st.text())
def test_a_cell_gives_its_name_back(name: str) -> None:
    assert name_in(cell_of(name)) == name


@pytest.mark.parametrize("name", ["-1", "+5", "-0.5e3", "plain", "", "a=b", "d'or"])
def test_numbers_and_plain_names_are_written_as_they_are(name: str) -> None:
    assert cell_of(name) == name


def _steers(text: str) -> bool:
    return any(not c.isprintable() for c in text if c not in "\n ")


def test_nothing_steers_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    wrong = []
    for name in STEERING:
        line = name.replace("\n", "")  # of privote's own words the lines stay
        print_table([{name: name, "n": 1}], title=line, caption=line)
        print_facts({name: name}, title=line, caption=line)
        say(f"label {line}")
        shown = [capsys.readouterr().out]
        file = tmp_path / "rows.csv"
        header = name.encode("utf-8", "replace").decode()
        with file.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([[header, "b"], ["1", "2"]])
        words = ["train", str(file), "--labels", "absent", "--public", str(file)]
        words += ["--epsilon", "1", "--delta", "1e-5", "--output", str(tmp_path / "out")]
        done = CliRunner().invoke(app, words)
        shown.append(done.stderr)
        wrong += [f"{name!r}: {text!r:.200}" for text in shown if _steers(text)]
        wrong += [f"{name!r}: a forged line" for text in shown if "\nerror: none" in text]
    print(*wrong, sep="\n")
    outcome("a name that steers the terminal", len(STEERING), len(wrong))


@pytest.mark.parametrize("name", WORDS)
def test_words_of_every_script_stay_words(name: str) -> None:
    assert printable(name) == name


# -- one data set under many names -----------------------------------------------------------------

TYPED = ("ward 3", "Ward 3", "ward 3 ", "ward  3", "ward\u00a03", "wa\u200brd 3", "ward\t3")
TYPED = (*TYPED, "ward 3\ufe0f")
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": pv.BinaryVoting(sigma=7.0)}
BUDGET |= {"guarantee": "worst-case"}
VOTES = np.zeros((40, 20, 3), np.int8)


def test_a_name_typed_otherwise_is_no_fresh_budget(tmp_path: Path, outcome: Outcome) -> None:
    tried, through = [*permutations(TYPED, 2)][:: scaled(7, 1)], 0
    for number, names in enumerate(tried):
        ledger = pv.Ledger.open(tmp_path / f"{number}.db")
        first = pv.label(VOTES, ledger=ledger, dataset=names[0], **BUDGET)
        assert (first.new, first.dataset) == (True, names[0])
        with pytest.raises(pv.BudgetError):
            pv.label(VOTES, ledger=ledger, dataset=names[1], **BUDGET)
        through += len(ledger.standing()) - 1
        assert ledger.secret("partition", names[0]) == ledger.secret("partition", names[1])
        ledger.close()
    outcome("a data set's name typed otherwise", len(tried), through)


# Unicode's Default_Ignorable_Code_Point, version 16, and a symbol that is blank.
INVISIBLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF), (0x2800, 0x2800),
)  # fmt: skip


def test_no_character_that_nobody_sees_makes_another_name(outcome: Outcome) -> None:
    unseen = [chr(code) for first, last in INVISIBLE for code in range(first, last + 1)]
    names = [f"ward 3{each}" for each in unseen] + [f"ward {each}3" for each in unseen]
    through = [name for name in [*names, *unseen] if folded(name) not in ("ward 3", "")]
    print(*map(ascii, through[:20]))
    outcome("characters that nobody sees", len(names) + len(unseen), len(through))


@pytest.mark.parametrize("name", ["x" * 10_000, "", "\u200b", "\u2800", "a\udcff", 7])
def test_a_name_that_no_entry_can_carry(tmp_path: Path, name: Any, outcome: Outcome) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    given = (X, X[:, :2] > 0, X + 1)
    calls: list[Callable[..., Any]] = [
        lambda **whose: pv.label(VOTES, **whose, **BUDGET),
        lambda **whose: DPMoments(epsilon=2, embedding=None).fit(*given, **whose),
        lambda **whose: DPLinear(epsilon=2, steps=2).fit(*given, **whose),
    ]
    through = 0
    for call in calls:
        for whose in ({"dataset": name}, {"dataset": "ward 3", "consumer": name}):
            with suppress(pv.InputError):
                call(ledger=tmp_path / "a.db", **whose)
                through += 1
    assert not (tmp_path / "a.db").exists()
    outcome("names that no entry can carry", 2 * len(calls), through)


def test_a_consumer_typed_otherwise_keeps_its_limit(outcome: Outcome) -> None:
    ledger, through = pv.Ledger.in_memory(), 0
    ledger.set_budget(pv.Budget(epsilon=8.0, delta=1e-5, rule="shared"), dataset="ward 3")
    little = pv.Budget(epsilon=0.5, delta=1e-5, rule="shared")
    ledger.set_budget(little, dataset="Ward 3", consumer="the lab")
    for name in ("The Lab", "the lab ", "the\u200b lab", "the\u00a0lab"):
        try:
            pv.label(VOTES, ledger=ledger, dataset="WARD 3", consumer=name, **BUDGET)
            through += 1
        except pv.BudgetError:
            pass
    outcome("a consumer's name typed otherwise", 4, through)


def test_known_names_that_fold_together_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(pv.Ledger.open(path)) as ledger, ledger.writing():
        for name in ("ward 3", "Ward 3"):  # as an earlier version entered them
            body = {"kind": "budget", "dataset": name, "consumer": None, "epsilon": 8.0}
            ledger.append({**body, "delta": 1e-5, "rule": "shared", "orders": [4.0]})
    with closing(pv.Ledger.open(path)) as ledger:
        assert pv.label(VOTES, ledger=ledger, dataset="Ward 3", **BUDGET).dataset == "Ward 3"
        entries = len(ledger.published())
        with refused("dataset"):
            pv.label(VOTES, ledger=ledger, dataset="WARD 3", **BUDGET)
        assert pv.label(VOTES, ledger=ledger, dataset="ward 3", **BUDGET).new
        assert len(ledger.published()) > entries
    shown = CliRunner().invoke(app, ["ledger", "show", str(path)]).stdout
    assert "'Ward 3', 'ward 3'" in " ".join(shown.split())


def test_a_name_that_was_made_meanwhile_is_refused() -> None:
    ledger = pv.Ledger.in_memory()
    first, second = (
        pv.Guardian(BUDGET["mechanism"], pv.Budget(epsilon=8.0, delta=1e-5), ledger, dataset=name)
        for name in ("ward 3", "Ward 3")
    )
    first.register(20, 3)
    with pytest.raises(pv.BudgetError):
        second.register(20, 3)
    assert len(ledger.standing()) == 1
