"""Files of a rehearsal are what an administrator writes: they read back as what they were."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography")

from privote import BinaryVoting, Gate, TauVoting
from privote.capc.models import SiteModel
from privote.capc.rehearsal import lay_out, to_toml
from privote.capc.site import Site, read_terms
from privote.capc.terms import Terms
from privote.mechanisms import Mechanism


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
