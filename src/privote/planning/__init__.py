"""Planning: every question before a release, asked of one engine.

From public numbers alone: `plan`, `queries_for`, `allowance_for`, `queries_until_out`,
`unanimous_miss`, `sigma_for` and `tau_for`.
On votes that are public or paid for: `queries_that_fit`, `quality`, `tune_sigma`, `tune_tau`,
`tune_gate`, `tune_threshold` and `tune_mechanism`. These look at the votes and are covered by no
guarantee.
"""

from .budget import allowance_for, queries_for, queries_until_out, unanimous_miss
from .counting import queries_that_fit
from .quality import Quality, noise_free, quality, quality_of
from .solve import sigma_for, tau_for
from .tallies import YES, Plan, plan
from .trials import NOT_PRIVATE, Trial, Tuning
from .tuning import tune_gate, tune_mechanism, tune_sigma, tune_tau, tune_threshold

__all__ = [
    "NOT_PRIVATE",
    "YES",
    "Plan",
    "Quality",
    "Trial",
    "Tuning",
    "allowance_for",
    "noise_free",
    "plan",
    "quality",
    "quality_of",
    "queries_for",
    "queries_that_fit",
    "queries_until_out",
    "sigma_for",
    "tau_for",
    "tune_gate",
    "tune_mechanism",
    "tune_sigma",
    "tune_tau",
    "tune_threshold",
    "unanimous_miss",
]
