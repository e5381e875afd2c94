"""Names from strangers: no formula in a spreadsheet, nothing that steers a terminal."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks.conftest import Outcome, accepted, scaled
from tests.cli.conftest import invoke
from tests.refusals import refused

import privote as pv
from privote.cli.files import write_csv
from privote.cli.output import print_facts, print_table, say
from privote.datasets.tables import table
from privote.errors import printable
from privote.learning.gradients import DPLinear
from privote.learning.moments import DPMoments
from privote.ledger.events import BudgetSet
from privote.votes.cells import cell_of, name_in
from privote.votes.names import folded

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
    *("Lungenödem", "肺水肿", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    *("12\u202f345", "ορθός", "🫁"),
)


def test_no_name_becomes_a_formula(tmp_path: Path, outcome: Outcome) -> None:
    write_csv(tmp_path / "p.csv", ["row", *FORMULAS], [[0, *[-1] * 11]])
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as stream:
        header, row = list(csv.reader(stream))
    assert row[1:12] == ["-1"] * 11  # a number stays a number
    assert tuple(table(tmp_path / "p.csv").feature_names or ())[1:12] == FORMULAS
    starts = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
    outcome.of("a label's name that is a formula", [cell[:1] in starts for cell in header])


@given(st.text())
def test_a_cell_gives_its_name_back(name: str) -> None:
    assert name_in(cell_of(name)) == name


@pytest.mark.parametrize("name", ["-1", "+5", "-0.5e3", "plain", "", "a=b", "d'or"])
def test_numbers_and_plain_names_are_written_as_they_are(name: str) -> None:
    assert cell_of(name) == name


def test_nothing_steers_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    found = []
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
        shown.append(invoke(*words).stderr)
        steering = [c for text in shown for c in text if not c.isprintable() and c != "\n"]
        found.append(steering or "\nerror: none" in "".join(shown))
    outcome.of("a name that steers the terminal", found)


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
        first = pv.label(VOTES, ledger=ledger, dataset=names[0], **BUDGET).guarantee.standing
        assert first is not None
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
    found = [folded(name) not in ("ward 3", "") and ascii(name) for name in [*names, *unseen]]
    outcome.of("characters that nobody sees", found)


@pytest.mark.parametrize("name", ["x" * 10_000, "", "\u200b", "\u2800", "a\udcff", 7])
def test_a_name_that_no_entry_can_carry(tmp_path: Path, name: Any, outcome: Outcome) -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    given = (X, X[:, :2] > 0, X + 1)
    calls: list[Callable[..., Any]] = [
        lambda **whose: pv.label(VOTES, **whose, **BUDGET),
        lambda **whose: DPMoments(epsilon=2, embedding=None).fit(*given, **whose),
        lambda **whose: DPLinear(epsilon=2, steps=2).fit(*given, **whose),
    ]
    found = [
        accepted(pv.InputError, call, ledger=tmp_path / "a.db", dataset=name) for call in calls
    ]
    assert not (tmp_path / "a.db").exists()
    outcome.of("names that no entry can carry", found)


def test_known_names_that_fold_together_stay_apart(tmp_path: Path) -> None:
    names = ("ward 3", "Ward 3")  # as an earlier version entered them
    with closing(pv.Ledger.open(tmp_path / "old.db")) as ledger:
        with ledger.transaction():
            for name in names:
                ledger.append(BudgetSet(dataset=name, epsilon=8.0, delta=1e-5, order=4.0))
        with refused("dataset"):
            pv.label(VOTES, ledger=ledger, dataset="WARD 3", **BUDGET)
        for name in names:
            standing = pv.label(VOTES, ledger=ledger, dataset=name, **BUDGET).guarantee.standing
            assert standing is not None
            assert (standing.new, standing.dataset) == (True, name)
