"""Terms are checked, and agreed on by digest; written and read again: test_site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.capc.coalitions import terms_of
from tests.refusals import refused

import privote as pv
from privote.capc.terms import PROMISE, Terms

CHANGES: dict[str, Any] = {
    "name": "another",
    "labels": ("x", "y"),
    "features": ("x0", "x1", "x3", "x2"),
    "mechanism": pv.BinaryVoting(sigma=2.1),
    "guarantee": "allowance",
    "epsilon": 1.0,
    "delta": 1e-6,
    "guardian": "guard",
    "parties": ("p0", "p2", "p1"),
    "queriers": ("q0", "q1"),
    "minimum": 3,
    "most_queries": 10,
    "timeout": 11.0,
    "bound": 2.0,
    "bits": 11,
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_is_another_digest(name: str) -> None:
    one, two = terms_of(), replace(terms_of(), **{name: CHANGES[name]})
    assert one.digest() != two.digest()
    kept = {"name", "guardian", "features", "minimum", "most_queries", "timeout"}
    assert (one.digest(PROMISE) == two.digest(PROMISE)) == (name in kept | {"bound", "bits"})


BAD: dict[str, tuple[dict[str, Any], str | None]] = {
    "no name": ({"name": " "}, "name"),
    "label twice": ({"labels": ("a", "a")}, "labels"),
    "labels a text": ({"labels": "abc"}, "labels"),
    "features": ({"features": 4}, "features"),
    "feature twice": ({"features": ("a", "a")}, "features"),
    "embedding": ({"embedding": "resnet18"}, "features"),
    "mechanism": ({"mechanism": pv.PluralityVoting(sigma=1.0)}, "mechanism"),
    "no grid": ({"mechanism": pv.TauVoting(sigma=1.0, tau=1.0)}, "grid"),
    "coarse": ({"mechanism": pv.TauVoting(sigma=1.0, tau=1.0, grid=1)}, "grid"),
    "guarantee": ({"guarantee": "data-dependent"}, "guarantee"),
    "epsilon": ({"epsilon": 0}, "epsilon"),
    "delta": ({"delta": 1.0}, "delta"),
    "guardian asks": ({"guardian": "q0"}, "guardian"),
    "guardian answers": ({"guardian": "p1"}, "guardian"),
    "a session's name": ({"parties": ("decision", "p1")}, "parties"),
    "a path": ({"guardian": "../pg"}, "guardian"),
    "one party": ({"parties": ("p0",)}, "minimum"),
    "asks itself": ({"parties": ("q0", "p0")}, "minimum"),
    "one ballot alone": ({"minimum": 1}, "minimum"),
    "minimum": ({"minimum": 4}, "minimum"),
    "labels by party": ({"parties": {"p0": "all", "p1": "all"}}, "parties"),
    "nobody asks": ({"queriers": ()}, "queriers"),
    "timeout": ({"timeout": float("inf")}, "timeout"),
    "noise": ({"noise": "both"}, "noise"),
    "no shares": (
        {"noise": "sites", "mechanism": pv.TauVoting(sigma=2, tau=1, grid=9)},
        "mechanism",
    ),
    "noise too large": ({"noise": "sites", "mechanism": pv.BinaryVoting(sigma=1e5)}, "mechanism"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_terms_are_refused(name: str) -> None:
    change, argument = BAD[name]
    with refused(argument):
        replace(terms_of(), **change)


def test_bad_plain_data_is_refused() -> None:
    plain = terms_of().to_dict()
    assert Terms.from_dict(plain) == terms_of()
    for bad in ("dice", {"mechanism": "dice"}, {"mechanism": "binary", "sgima": 3.0}, {}):
        with refused():
            Terms.from_dict({**plain, "mechanism": bad})
    for wrong in ({**plain, "extra": 1}, {key: plain[key] for key in plain if key != "epsilon"}):
        with refused(None):
            Terms.from_dict(wrong)


@pytest.mark.parametrize("twin", [{"queriers": ("q0", "Q0")}, {"queriers": ("P0",)}])
def test_sites_differ_in_more_than_case(twin: dict[str, Any]) -> None:
    """A ledger folds names: two such sites would share a budget, and one allowance."""
    with refused("parties"):
        terms_of(pv.BinaryVoting(sigma=7.0), **twin)
