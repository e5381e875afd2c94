"""A rehearsal: what it says of how far it has come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from privote.capc import rehearsal, simulation
from privote.mechanisms import BinaryVoting

PROGRAM = "import sys, time; print('said'); print('logged', file=sys.stderr); time.sleep(2.5)"


def test_whoever_waits_is_told_how_many_sites_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = simulation.terms_of(
        BinaryVoting(sigma=2.0), 3, 5, guarantee="allowance", epsilon=20.0, delta=1e-5
    )
    sites = {name: tmp_path / name / "site.toml" for name in (*terms.parties, simulation.QUERIER)}
    for place in sites.values():
        place.parent.mkdir()
    made = rehearsal.Rehearsal(sites, terms)
    assert made.done() == 0
    for name in ("site-1", "site-3"):
        log = f"09:00 opened 5ca1e\n09:01 session 5ca1e:{name} with querier: 6.4 s, 20 bytes\n"
        (tmp_path / name / "log.txt").write_text(log)
    assert made.done() == 2

    monkeypatch.setattr(rehearsal, "command", lambda: [sys.executable, "-c", PROGRAM])
    told: list[int] = []
    done = made.query(simulation.QUERIER, tmp_path, tmp_path, tick=told.append)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\n", "logged\n")
    assert told
    assert set(told) == {2}
