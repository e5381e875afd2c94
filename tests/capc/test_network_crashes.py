"""Programs that are killed in the middle, with the secure engine at work: who is left goes on."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.coalitions import random_models, terms_of
from tests.capc.sites import query, said_by, until

from privote.capc.coalition import lay_out, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("spu") is None, reason="the secure engine is absent"),
]
ROWS = 60


class Coalition:
    """Three answering parties and a guardian that run, and one that asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terms = terms_of(features=64, labels=4, guarantee="allowance", timeout=60.0)
        self.sites = lay_out(folder, self.terms, random_models(self.terms))
        self.rows = folder / "rows.npz"
        np.savez(self.rows, X=np.random.default_rng(0).uniform(-1, 1, (ROWS, 64)))

    def asking(self, output: str = "out") -> Any:
        return query(self.sites["q0"], self.rows, self.folder / output)

    def until_said(self, site: str, text: str) -> None:
        until(lambda: text in said_by(self.sites[site]), 120)


def ended(asking: Any) -> tuple[int, Any, str]:
    out, log = asking.communicate(timeout=240)
    return asking.returncode, json.loads(out) if out.strip() else None, log


def workers(program: Any) -> list[Any]:
    """Return the processes that a program has started."""
    return psutil.Process(program.pid).children(recursive=True)


@pytest.fixture
def there(tmp_path: Path) -> Coalition:
    return Coalition(tmp_path)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_an_answering_party_that_ends_in_its_session_is_left_out(
    there: Coalition, how: str
) -> None:
    with running(there.sites, there.terms) as programs:
        asking = there.asking()
        there.until_said("p1", "to q0: willing")
        until(lambda: workers(programs["p1"]), 60)
        started = workers(programs["p1"])
        getattr(programs["p1"], how)()
        assert (programs["p1"].wait(60) == 0) == (how == "terminate")
        until(lambda: not any(process.is_running() for process in started), 60)
        code, said, log = ended(asking)
    assert code == 0, log
    assert (said["parties"], said["voters"]) == (["p0", "p2"], 3)
    assert list(said["left_out"]) == ["p1"]
    assert "p1 is left out" in log


def test_a_querying_party_killed_in_a_session_can_ask_again(there: Coalition) -> None:
    with running(there.sites, there.terms) as programs:
        asking = there.asking()
        there.until_said("p0", "to q0: willing")
        until(lambda: workers(programs["p0"]), 60)
        asking.kill()
        ended(asking)
        there.until_said("p0", "broke")
        until(lambda: len(workers(programs["p0"])) <= 1, 60)  # what multiprocessing keeps
        code, said, log = ended(there.asking("again"))
    assert code == 0, log
    assert said["resumed"]
    assert said["parties"] == ["p0", "p1", "p2"]


def test_a_guardian_killed_in_the_decision_never_decides_it_again(there: Coalition) -> None:
    with running(there.sites, there.terms) as programs:
        asking = there.asking()
        there.until_said("pg", "to q0: ready")
        programs["pg"].kill()
        code, _, log = ended(asking)
        assert code == 5
        assert "cannot be decided again" in log or "pg cannot be reached" in log
        first = re.search(r"grant ([0-9a-f]{32})", log)
        assert not (there.folder / "out" / "labels.npz").exists()
    with running(there.sites, there.terms):
        code, said, log = ended(there.asking("again"))
    assert code == 0, log
    assert not said["resumed"]
    assert first is not None
    assert said["batch"] != first[1]
