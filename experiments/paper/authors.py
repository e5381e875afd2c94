"""The authors' own accounting beside ours, on the embedded votes of Pascal VOC.

``--authors DIR`` names a checkout of github.com/anonymous-user-commits/private-multi-winner-voting.
Two of its modules are loaded from there, ``analysis/pate.py`` and ``analysis/rdp_cumulative.py``;
what they import beside is replaced by an empty module, since counting needs none of it.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np

import privote as pv

from .bench import Bench, Measured
from .counts import answered, independent
from .electorates import electorate

QUERIES = 1_000  # enough: their count ends below


def _accounting(folder: Any) -> ModuleType:
    """Return the authors' module of accounting, loaded from their checkout."""
    absent = {name: MagicMock() for name in ("utils", "autodp", "autodp.rdp_acct")}
    with patch.dict(sys.modules, absent), patch.object(sys, "path", [str(folder), *sys.path]):
        from analysis import rdp_cumulative  # type: ignore[import-not-found]
    for name in [name for name in sys.modules if name.partition(".")[0] == "analysis"]:
        del sys.modules[name]
    return rdp_cumulative  # type: ignore[no-any-return]


def compare(bench: Bench) -> Measured | None:
    """Count queries at epsilon 20 by their code and by ours, of Binary and of the l2 bound."""
    if bench.authors is None:
        return None
    theirs = _accounting(bench.authors)
    rows = []
    for sigma in (7.0, 9.0):
        mechanism, counts = pv.BinaryVoting(sigma=sigma), []
        for seed in range(bench.seeds):
            votes = electorate("voc", seed, bench.data).votes
            yes = votes[:QUERIES].sum(axis=1)
            tallies = np.stack([votes.shape[1] - yes, yes], axis=-1).astype(float)
            number, *_ = theirs.analyze_multilabel(
                votes=tallies, threshold=0, sigma_threshold=0, sigma_gnmax=sigma, budget=20.0,
                delta=1e-5, file=None,
            )  # fmt: skip
            ours = answered(mechanism, votes, paper=True)
            counts.append((number, ours, answered(mechanism, votes)))
        columns = ("theirs", "ours", "exact")
        means = dict(zip(columns, np.mean(counts, axis=0).tolist(), strict=True))
        rows.append({"what": f"Binary, σ = {sigma:g}", **means})
    settings = SimpleNamespace(private_tau=1.8, private_tau_norm="2", debug=False)
    bound = theirs.analyze_multilabel_tau_data_independent(
        votes=tallies, threshold=0, sigma_threshold=0, sigma_gnmax=9.0, budget=20.0, delta=1e-5,
        file=None, args=settings,
    )[0]  # fmt: skip
    stated = independent(lambda orders: orders * 1.8**2 / 81, 20.0, 1e-5, 10**6)
    rows.append({"what": "l2 bound, σ = 9, τ = 1.8", "theirs": int(bound), "ours": stated})
    largest = max(abs(row["ours"] / row["theirs"] - 1) for row in rows)
    facts = {name: rows[0][name] for name in ("theirs", "ours", "exact")}
    return Measured(rows=rows, facts={**facts, "largest": largest, "bound": int(bound)})
