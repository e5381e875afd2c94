"""Small coalitions whose parties cast ballots that a test chose, and the votes they amount to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.capc.coalition import Simulation, Terms

IntArray = npt.NDArray[np.int64]


def terms_of(
    mechanism: pv.Mechanism | None = None,
    *,
    parties: int = 3,
    labels: int = 2,
    features: int = 4,
    own: dict[int, tuple[int, ...]] | None = None,
    **more: Any,
) -> Terms:
    """Return terms of ``parties`` parties p0, p1, ...; ``own`` gives some of them fewer labels."""
    names = tuple(f"label{i}" for i in range(labels))
    known = {f"p{i}": None for i in range(parties)} | {
        f"p{i}": tuple(names[j] for j in few) for i, few in (own or {}).items()
    }
    chosen: dict[str, Any] = {
        "name": "test",
        "labels": names,
        "features": features,
        "mechanism": mechanism or pv.BinaryVoting(sigma=2.0),
        "guarantee": "worst-case",
        "epsilon": 1000.0,
        "delta": 1e-5,
        "guardian": "pg",
        "parties": known,
        "queriers": ("q0",),
        "minimum": 2,
        "timeout": 10.0,
    }
    return Terms(**(chosen | more))


def models_for(terms: Terms, ballots: npt.NDArray[Any]) -> dict[str, dict[str, IntArray]]:
    """Return models that vote ``ballots`` (queries, parties, labels) on the rows of an identity.

    A label that a party does not have is answered with no, as a site's model does.
    """
    queries, _, labels = ballots.shape
    has = terms.has(tuple(terms.parties))
    models = {}
    for place, party in enumerate(terms.parties):
        weights = np.full((terms.features, labels), -1, np.int64)
        weights[:queries] = np.where(ballots[:, place].astype(bool) & (has[place] == 1), 1, -1)
        models[party] = {"weights": weights, "bias": np.zeros(labels, np.int64)}
    return models


def identity(queries: int, features: int) -> IntArray:
    """Return the rows on which :func:`models_for` votes."""
    return np.eye(queries, features, dtype=np.int64)


def simulation(terms: Terms, ballots: npt.NDArray[Any], **more: Any) -> Simulation:
    """Return a simulation of these ballots."""
    return Simulation(terms, models_for(terms, ballots), **({"seed": 1} | more))


def votes_of(
    terms: Terms, ballots: npt.NDArray[Any], present: tuple[str, ...] | None = None
) -> npt.NDArray[np.int8]:
    """Return the cube the mechanism would be given: -1 for who is missing or lacks a label."""
    names = tuple(terms.parties)
    there = np.array([present is None or name in present for name in names])
    known = terms.has(names).astype(bool) & there[:, None]
    return np.where(known, ballots, -1).astype(np.int8)
