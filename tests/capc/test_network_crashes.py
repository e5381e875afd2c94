"""Programs that are killed in the middle, with the secure engine at work: who is left goes on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.sites import until

from privote import BinaryVoting
from privote.capc.coalition import COMMAND, Rehearsal, lay_out
from privote.capc.models import SiteModel
from privote.capc.site import LISTENING
from privote.capc.terms import Terms

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("spu") is None, reason="the secure engine is absent"),
]
ROWS = 60


@pytest.fixture
def coalition(tmp_path: Path) -> Any:
    """Return sites, terms and the rows' file of a coalition of three answering parties."""
    rng = np.random.default_rng(0)
    terms = Terms(
        name="crashes",
        labels=("a", "b", "c", "d"),
        features=64,
        bound=1.0,
        bits=16,
        mechanism=BinaryVoting(sigma=2.0),
        epsilon=20.0,
        delta=1e-5,
        guardian="guardian",
        parties={"north": None, "south": None, "west": None},
        queriers=("east",),
        timeout=60.0,
    )
    models = {
        party: SiteModel(
            layers=((rng.normal(size=(64, 4)), np.zeros(4)),),
            labels=terms.labels,
            thresholds=np.full(4, 0.5),
        )
        for party in terms.parties
    }
    np.savez(tmp_path / "rows.npz", X=rng.uniform(-1, 1, (ROWS, 64)))
    return lay_out(tmp_path, terms, models), terms, tmp_path / "rows.npz"


class Asking:
    """A querying party that runs while the test does something to the others."""

    def __init__(self, site: Path, rows: Path, output: Path) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [*COMMAND, "query", str(site), str(rows), "--output", str(output), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, Any, str]:
        out, log = self.process.communicate(timeout=240)
        return self.process.returncode, json.loads(out) if out.strip() else None, log


def logged(programs: Rehearsal, site: str, text: str) -> Callable[[], bool]:
    return lambda: text in programs.log(site)


def workers(programs: Rehearsal, site: str) -> int:
    """Return how many processes a site's program has started."""
    import psutil

    return len(psutil.Process(programs.processes[site].pid).children(recursive=True))


def test_an_answering_party_killed_in_its_session_is_left_out(coalition: Any) -> None:
    sites, terms, rows = coalition
    with Rehearsal(sites, terms) as programs:
        asking = Asking(sites["east"], rows, rows.parent / "out")
        until(logged(programs, "south", "to east: willing"), 60)
        until(lambda: workers(programs, "south") > 0, 60)
        programs.processes["south"].kill()
        programs.processes["south"].wait()
        code, said, log = asking.end()
    assert code == 0, log
    assert said["parties"] == ["north", "west"]
    assert said["voters"] == 3
    assert list(said["left_out"]) == ["south"]
    assert "south is left out" in log


def test_an_answering_party_stopped_in_its_session_leaves_nothing_behind(coalition: Any) -> None:
    import psutil

    sites, terms, rows = coalition
    with Rehearsal(sites, terms) as programs:
        asking = Asking(sites["east"], rows, rows.parent / "out")
        until(logged(programs, "south", "to east: willing"), 60)
        until(lambda: workers(programs, "south") > 0, 60)
        south = programs.processes["south"]
        started = psutil.Process(south.pid).children(recursive=True)
        south.terminate()
        assert south.wait(60) == 0
        assert "south has stopped" in programs.log("south")
        until(lambda: not any(process.is_running() for process in started), 60)
        code, said, log = asking.end()
    assert code == 0, log
    assert said["parties"] == ["north", "west"]


def test_a_querying_party_killed_in_a_session_can_ask_again(coalition: Any) -> None:
    sites, terms, rows = coalition
    with Rehearsal(sites, terms) as programs:
        asking = Asking(sites["east"], rows, rows.parent / "out")
        until(logged(programs, "north", "to east: willing"), 60)
        until(lambda: workers(programs, "north") > 0, 60)
        asking.process.kill()
        asking.end()
        until(logged(programs, "north", "broke"), 60)
        until(lambda: workers(programs, "north") <= 1, 60)  # at most what multiprocessing keeps
        code, said, log = Asking(sites["east"], rows, rows.parent / "again").end()
    assert code == 0, log
    assert said["resumed"]
    assert said["parties"] == ["north", "south", "west"]


def test_a_guardian_killed_in_the_decision_never_decides_it_again(coalition: Any) -> None:
    sites, terms, rows = coalition
    with Rehearsal(sites, terms) as programs:
        asking = Asking(sites["east"], rows, rows.parent / "out")
        until(logged(programs, "guardian", "to east: ready"), 120)
        programs.processes["guardian"].kill()
        programs.processes["guardian"].wait()
        code, _, log = asking.end()
        assert code == 5
        assert "never decided again" in log or "guardian cannot be reached" in log
        first = re.search(r"grant ([0-9a-f]{32})", log)
        assert not (rows.parent / "out" / "labels.npz").exists()
        programs.start("guardian")
        until(lambda: programs.log("guardian").count(LISTENING) == 2, 60)
        code, said, log = Asking(sites["east"], rows, rows.parent / "again").end()
    assert code == 0, log
    assert not said["resumed"]
    assert first is not None
    assert said["batch"] != first[1]
