"""A site: files read strictly, with errors that name file and key; the example's files."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import processes, random_models, terms_of
from tests.refusals import refused

from privote import BinaryVoting, Gate, TauVoting
from privote.capc.logs import Lines
from privote.capc.messages import ANSWERING, GUARDIAN, QUERYING
from privote.capc.site import Site, read_rows, read_terms
from privote.capc.terms import PROMISE
from privote.mechanisms import Mechanism

TERMS = """
name = "three hospitals"
labels = ["a", "b"]
features = ["x0", "x1", "x2", "x3"]
epsilon = 8.0
delta = 1e-5
guardian = "guardian"
parties = ["north", "south", "west"]
queriers = ["north"]
minimum = 2
[mechanism]
mechanism = "binary"
sigma = 4.0
"""
SITE: dict[str, Any] = {
    "name": '"north"',
    "coalition": '"coalition.toml"',
    "certificate": '"north.pem"',
    "key": '"north.key"',
    "trust": '"trust"',
    "state": '"state"',
    "addresses": '{guardian = "pg.example:7443", south = "10.0.0.2:7443", west = "[::1]:7443"}',
}


def written(folder: Path, terms: str = TERMS, **changes: str | None) -> Path:
    (folder / "coalition.toml").write_text(terms)
    values = {key: value for key, value in {**SITE, **changes}.items() if value is not None}
    file = folder / "site.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    return file


WRONG: list[tuple[str, str, dict[str, str | None]]] = [
    ("nmae", QUERYING, {"nmae": '"x"'}),
    ("key", QUERYING, {"key": None}),
    ("$.key", QUERYING, {"key": '""'}),
    ("name", QUERYING, {"name": '"east"'}),
    ("name", QUERYING, {"name": '"south"', "addresses": "{}"}),
    ("name", GUARDIAN, {}),
    ("$.listen", QUERYING, {"listen": '"7443"'}),
    ("listen", ANSWERING, {}),
    ("model", ANSWERING, {"listen": '"h:1"'}),
    ("state", QUERYING, {"state": None}),
    ("$.addresses[...]", QUERYING, {"addresses": '{south = "x"}'}),
    ("addresses", QUERYING, {"addresses": '{east = "h:1"}'}),
    ("addresses", QUERYING, {"addresses": '{north = "h:1"}'}),
    ("addresses.guardian", QUERYING, {"addresses": '{south = "h:1"}'}),
    ("engine", QUERYING, {"engine": '"clear"'}),
    ("$.max_concurrent", QUERYING, {"max_concurrent": "65"}),
]


@pytest.mark.parametrize(("key", "role", "changes"), WRONG)
def test_what_is_wrong_is_named(
    tmp_path: Path, key: str, role: str, changes: dict[str, str | None]
) -> None:
    Site.read(written(tmp_path), QUERYING)
    with refused() as caught:
        Site.read(written(tmp_path, **changes), role)
    assert {"site.toml", key} <= set(re.split(r"[\s/:`']+", str(caught.value)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delta = 1e-5", "delta = 2.0"),
        ("minimum = 2", "minimun = 2"),
        ("epsilon = 8.0\n", ""),
        (TERMS, "a = "),
        (TERMS, "a = " + "[" * 5000),
        (TERMS, "#" * (1 << 20) + "\n"),
    ],
)
def test_terms_are_checked_with_the_files_name(tmp_path: Path, old: str, new: str) -> None:
    assert old in TERMS
    with refused() as caught:
        Site.read(written(tmp_path, TERMS.replace(old, new)), QUERYING)
    assert "coalition.toml" in str(caught.value)


@pytest.mark.parametrize(
    "mechanism",
    [
        BinaryVoting(sigma=7.0, quota=0.3),
        BinaryVoting(sigma=7.0, gate=Gate(threshold=5, sigma=3)),
        TauVoting(sigma=7.0, tau=1.8, norm=1, grid=99, gate=Gate(threshold=5, sigma=3)),
    ],
    ids=str,
)
def test_what_is_written_can_be_read(tmp_path: Path, mechanism: Mechanism) -> None:
    terms = terms_of(mechanism, queriers=("p0", "q0"), name='a "quoted" é name\\n')
    files = processes.write_config(tmp_path, terms, random_models(terms))
    back = read_terms(tmp_path / "coalition.toml")
    assert back == terms
    assert (back.digest(PROMISE), back.digest()) == (terms.digest(PROMISE), terms.digest())
    roles = {"pg": GUARDIAN, "q0": QUERYING, "p0": ANSWERING, "p1": ANSWERING, "p2": ANSWERING}
    sites = [Site.read(files[name], role) for name, role in roles.items()]
    Site.read(files["p0"], QUERYING)
    assert len({site.listen for site in sites if site.listen}) == 4


def test_a_log_has_one_line_an_event() -> None:
    record = logging.makeLogRecord({"msg": "an event", "levelno": 30, "levelname": "WARNING"})
    record.fields = {"site": "north", "why": "two\nlines"}
    line = json.loads(Lines(as_json=True).format(record))
    assert (line["level"], line["event"], line["site"]) == ("WARNING", "an event", "north")
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert "an event site=north" in Lines(as_json=False).format(record)


def test_rows_are_matched_by_name(tmp_path: Path) -> None:
    terms, X = terms_of(features=3), np.arange(6.0).reshape(2, 3)
    table = tmp_path / "rows.csv"
    table.write_text("x2,other,x0,x1\n2,9,0,1\n5,9,3,4\n")
    np.testing.assert_array_equal(read_rows(table, terms), X)
    table.write_text("x2,x0\n2,0\n")
    with refused():
        read_rows(table, terms)
    file = tmp_path / "rows.npz"
    np.savez(file, X=X)
    np.testing.assert_array_equal(read_rows(file, terms), X)
    np.savez(file, X=X[:, ::-1], feature_names=["x2", "x1", "x0"])
    np.testing.assert_array_equal(read_rows(file, terms), X)
    for names in (["x2", "x1", "y"], ["x0", "x0", "x1"]):
        np.savez(file, X=X, feature_names=names)
        with refused("rows"):
            read_rows(file, terms)
    with refused("rows"):
        read_rows(table, replace(terms, features=3, embedding="resnet18"))
