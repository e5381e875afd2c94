"""Seeded runs over mechanism, guarantee, kind of votes and ledger; and a digest of what each gives.

``python -m tests.pins.cases`` rewrites ``digests.json``: only where a change of results is meant.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.errors import PrivoteError

FILE = Path(__file__).with_name("digests.json")
QUERIES, VOTERS, LABELS = 24, 40, 5
ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 32.0])

MECHANISMS: dict[str, Any] = {
    "auto": "auto",
    "tally": pv.TallyVoting(sigma=6.0),
    "tally-tau": pv.TallyVoting(sigma=6.0, tau=1.5),
    "binary": pv.BinaryVoting(sigma=7.0),
    "binary-gate": pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=30, sigma=9)),
    "binary-quota": pv.BinaryVoting(sigma=7.0, quota=0.3),
    "binary-alarm": pv.BinaryVoting(sigma=7.0, false_alarm=0.05),
    "tau": pv.TauVoting(sigma=6.0, tau=1.5),
    "tau-l1": pv.TauVoting(sigma=6.0, tau=2.0, norm=1),
    "powerset": pv.PowersetVoting(sigma=3.0),
    "powerset-short": pv.PowersetVoting(sigma=3.0, max_positives=2),
    "plurality": pv.PluralityVoting(sigma=5.0),
}
GUARANTEES = ("auto", "allowance", "worst-case", "data-dependent")


def votes() -> dict[str, Any]:
    """Return the same wishes as dense, missing, sparse and soft votes; and with one label each."""
    rng = np.random.default_rng(7)
    soft = rng.beta(0.4, 1.6, (QUERIES, VOTERS, LABELS))
    dense = soft > 0.6
    missing = dense.astype(np.int8)
    missing[rng.random((QUERIES, VOTERS)) < 0.2] = -1
    one = np.eye(LABELS, dtype=bool)[soft.argmax(axis=2)]
    short = dense & (np.cumsum(dense, axis=2) <= 2)
    query, voter = np.nonzero(dense.any(axis=2))
    size = {"queries": QUERIES, "voters": VOTERS}
    return {
        "dense": dense,
        "missing": missing,
        "sparse": pv.SparseBallots(query, voter, dense[query, voter], **size),
        "soft": soft.round(3),
        "one": one,
        "short": short,
    }


def runs() -> list[tuple[str, str, str, bool]]:
    """Return every case by name: mechanism, guarantee, votes, whether with a ledger."""
    kinds = {"plurality": ("one",), "powerset-short": ("short", "one")}
    usual = ("dense", "missing", "sparse", "soft")
    return [
        (name, guarantee, kind, ledger)
        for name, guarantee in itertools.product(MECHANISMS, GUARANTEES)
        for kind, ledger in itertools.product(kinds.get(name, usual), (False, True))
    ]


def digest(*values: Any) -> str:
    """Return a short digest; numbers to nine digits, so that processors may differ."""
    texts = [
        f"{value.shape}" + np.array2string(value, precision=9, threshold=10**9)
        if isinstance(value, np.ndarray)
        else f"{value:.9g}"
        if isinstance(value, float)
        else str(value)
        for value in values
    ]
    return hashlib.sha256("|".join(texts).encode()).hexdigest()[:16]


def run(name: str, guarantee: str, kind: str, ledger: bool) -> str:
    """Return the digest of one run, or of the error's kind."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how: dict[str, Any] = {"ledger": Path(folder) / "ledger.db"} if ledger else {}
        if guarantee == "data-dependent":
            how["queries"] = 12
        try:
            release = pv.label(
                votes()[kind],
                epsilon=8.0,
                delta=1e-5,
                mechanism=MECHANISMS[name],
                guarantee=guarantee,
                threshold=0.6 if kind == "soft" and name != "auto" else None,
                seed=11,
                **how,
            )
        except PrivoteError as error:
            return f"{type(error).__name__} {error.argument}"
        tallies = np.zeros(0) if release.tallies is None else release.tallies
        chances = np.zeros(0) if release.probabilities is None else release.probabilities
        return digest(
            release.labels, tallies, chances.round(6), release.answered, release.epsilon or 0.0
        )


def prices(name: str) -> str:
    """Return the digest of a mechanism's curves on dense votes."""
    mechanism = MECHANISMS[name]
    cube = votes()[{"plurality": "one", "powerset-short": "short"}.get(name, "dense")][:6]
    curves = [
        mechanism.total_rdp(cube, ORDERS),
        mechanism.worst_case_rdp(VOTERS, LABELS, ORDERS),
        mechanism.contribution_rdp(VOTERS, LABELS, ORDERS),
        mechanism.rdp_by_voter(cube, ORDERS),
    ]
    return digest(*curves)


def measure(mechanism: str) -> dict[str, str]:
    """Return a mechanism's digests by the name of their case."""
    names = {" ".join((*case[:3], "ledger" if case[3] else "alone")): case for case in runs()}
    digests = {name: run(*case) for name, case in names.items() if case[0] == mechanism}
    if mechanism != "auto":
        digests[f"{mechanism} prices"] = prices(mechanism)
    return digests


if __name__ == "__main__":
    everything = {name: text for each in MECHANISMS for name, text in measure(each).items()}
    FILE.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
