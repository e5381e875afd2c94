"""Planning: every question before a release, asked of one engine.

From public numbers alone: `plan`, `queries_for`, `allowance_for`
and `sigma_for`; for polls, :mod:`privote.planning.polls`. On votes that are public
or paid for: `tune` and `queries_that_fit`. These look at the votes and are covered by no guarantee.
"""

from ..forecast import YES
from .budget import allowance_for, queries_for, sigma_for
from .tallies import Plan, plan
from .tuning import NOT_PRIVATE, Tuning, candidates, queries_that_fit, tune, variants

__all__ = [
    "NOT_PRIVATE",
    "YES",
    "Plan",
    "Tuning",
    "allowance_for",
    "candidates",
    "plan",
    "queries_for",
    "queries_that_fit",
    "sigma_for",
    "tune",
    "variants",
]
