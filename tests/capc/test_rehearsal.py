"""A rehearsal: what it says of how far it has come."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from privote import BinaryVoting, Gate, TauVoting
from privote.capc import coalition
from privote.capc.coalition import lay_out, to_toml
from privote.capc.models import SiteModel
from privote.capc.site import Site, read_terms
from privote.capc.terms import Terms
from privote.mechanisms import Mechanism

PROGRAM = "import sys, time; print('said'); print('logged', file=sys.stderr); time.sleep(2.5)"


def agreed(mechanism: Mechanism) -> Terms:
    return Terms(
        name='a "quoted" name\\n',
        labels=("x", "y z", "é"),
        features=2,
        mechanism=mechanism,
        epsilon=3.5,
        delta=1e-7,
        guardian="guardian",
        parties={"north": None, "south": ("y z",), "west": None},
        queriers=("north", "east"),
    )


def test_whoever_waits_is_told_how_many_sites_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = coalition.terms_of(
        BinaryVoting(sigma=2.0), 3, 5, guarantee="allowance", epsilon=20.0, delta=1e-5
    )
    sites = {name: tmp_path / name / "site.toml" for name in (*terms.parties, coalition.ASKS)}
    for place in sites.values():
        place.parent.mkdir()
    made = coalition.Rehearsal(sites, terms)
    assert made.done() == 0
    for name in ("site-1", "site-3"):
        log = f"09:00 opened 5ca1e\n09:01 session 5ca1e:{name} with querier: 6.4 s, 20 bytes\n"
        (tmp_path / name / "log.txt").write_text(log)
    assert made.done() == 2

    monkeypatch.setattr(coalition, "COMMAND", (sys.executable, "-c", PROGRAM))
    told: list[int] = []
    done = made.query(coalition.ASKS, tmp_path, tmp_path, tick=told.append)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\n", "logged\n")
    assert told
    assert set(told) == {2}


@pytest.mark.parametrize(
    "mechanism",
    [
        BinaryVoting(sigma=2.0),
        BinaryVoting(sigma=2.0, gate=Gate(threshold=2.0, sigma=1.5)),
        TauVoting(sigma=2.0, tau=1.5, grid=1024),
    ],
)
def test_terms_survive_their_file(tmp_path: Path, mechanism: Mechanism) -> None:
    terms = agreed(mechanism)
    (tmp_path / "coalition.toml").write_text(to_toml(terms.to_dict()), encoding="utf-8")
    back = read_terms(tmp_path / "coalition.toml")
    assert back.mechanism == terms.mechanism
    assert back.digest() == terms.digest()


def test_every_site_can_be_what_it_is(tmp_path: Path) -> None:
    terms = agreed(BinaryVoting(sigma=2.0))
    rng = np.random.default_rng(0)
    models = {
        party: SiteModel(
            layers=((rng.normal(size=(2, len(terms.labels_of(party)))), 0.0),),  # type: ignore[arg-type]
            labels=terms.labels_of(party),
            thresholds=0.5,  # type: ignore[arg-type]
        )
        for party in terms.parties
    }
    files = lay_out(tmp_path, terms, models)
    assert set(files) == {"guardian", "north", "south", "west", "east"}
    sites = {name: Site.read(file) for name, file in files.items()}
    sites["guardian"].check_for("guardian")
    for party in terms.parties:
        sites[party].check_for("answering")
    for querier in terms.queriers:
        sites[querier].check_for("querying")
    addresses = [site.listen for site in sites.values() if site.listen]
    assert len(set(addresses)) == 4
    assert all(not site.stamp for site in sites.values())


def test_toml_of_plain_values() -> None:
    plain = {
        "a": 1,
        "b": [1.5, True],
        "c": {"d e": "f", "g": {"h": "i"}},
        "j": 'k"l\\\u0001\U0001f600',
    }
    assert tomllib.loads(to_toml(plain)) == plain
