"""Tuning: what sigma, tau, a gate or a threshold would answer, and how good the answers would be.

Everything here looks at the votes and is covered by no guarantee: tune on votes that are public, or
that were paid for.
"""

from .figures import FIGURES, expected_figures, label_chances
from .fits import GUARANTEES, queries_that_fit
from .sweeps import tune_gate, tune_sigma, tune_tau
from .thresholds import tune_threshold
from .trials import NOT_PRIVATE, Trial, Tuning

__all__ = [
    "FIGURES",
    "GUARANTEES",
    "NOT_PRIVATE",
    "Trial",
    "Tuning",
    "expected_figures",
    "label_chances",
    "queries_that_fit",
    "tune_gate",
    "tune_sigma",
    "tune_tau",
    "tune_threshold",
]
