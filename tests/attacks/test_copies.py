"""Copies of outboxes and of ledgers: a run is delivered with what was committed, or not at all."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from itertools import permutations
from pathlib import Path

import pytest
from tests.attacks.conftest import CHARGES, Charge, Killed, Outcome, accepted, dying_at

import privote as pv
from privote.errors import ChargedError, CompleteError

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")


@pytest.fixture(params=CHARGES)
def charge(request: pytest.FixtureRequest) -> Charge:
    if request.param == "dpsgd":
        pytest.importorskip("opacus")
    return CHARGES[request.param]


def killed(charge: Charge, ledger: Path, kind: str, **how: bool) -> Path:
    """Charge, and die before an entry of this kind; return the outbox."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pv.Ledger, "append", dying_at(kind))
        with pytest.raises(Killed):
            charge(ledger, **how)
    (outbox,) = ledger.parent.glob("*.outbox")
    return outbox


def committed(ledger: Path) -> list[str | None]:
    with closing(pv.Ledger.open(ledger)) as book:
        return [run.commit and run.commit.drawn for run in book.state.runs.values()]


def test_condition_5_copies_of_outboxes(tmp_path: Path, outcome: Outcome, charge: Charge) -> None:
    """Of a draw that was never committed, and of the one that was, in whatever order."""
    first = tmp_path / "first"
    first.mkdir()
    early = killed(charge, first / "a.ledger", "commit")
    copies = {early.name: early.read_bytes()}
    late = killed(charge, first / "a.ledger", "deliver", resume=True)
    assert late.name not in copies  # another holder, and other noise
    assert late.read_bytes() not in copies.values()
    copies[late.name] = late.read_bytes()
    through = tried = 0
    for place, order in enumerate(permutations([*copies.values(), b""])):
        folder = tmp_path / f"{place}"
        shutil.copytree(first, folder)
        ledger, released = folder / "a.ledger", list[str]()
        (drawn,) = committed(ledger)
        for content in order:
            for name in copies:
                (folder / name).write_bytes(content)
            with suppress(ChargedError, CompleteError):
                released.append(charge(ledger, resume=True))
        assert len(released) == 1  # with the right copy, whenever that came
        assert committed(ledger) == [drawn]
        through += released != [drawn]
        tried += len(order)
    outcome("copies of an outbox, delivered in turn", tried, through)


def test_copies_of_a_ledger(tmp_path: Path, outcome: Outcome, charge: Charge) -> None:
    """A restored copy neither draws what is reserved nor charges anew, nor delivers."""
    ledger, copies, found = tmp_path / "a.ledger", list[Path](), list[bool]()
    for kind in ("commit", "deliver"):
        killed(charge, ledger, kind, resume=True)
        copies.append(tmp_path / kind / "a.ledger")
        copies[-1].parent.mkdir()
        with closing(pv.Ledger.open(ledger)) as book:
            book.backup(tmp_path / f"{kind}.backup")
        assert pv.Ledger.restore(tmp_path / f"{kind}.backup", copies[-1]).ok
    for copy in copies:
        for how in ({"resume": True}, {}, {"dataset": "another"}):
            found.append(accepted(pv.PrivoteError, charge, copy, **how))
    assert charge(ledger, resume=True) == committed(ledger)[0]
    found.append(accepted(pv.InputError, charge, None, resume=True))  # and without a ledger
    outcome.of("restored copies of a ledger, resumed and charged", found)
