"""Planning: every question before a release, asked of one engine.

From public numbers alone: `plan`, `queries_for`, `allowance_for`
and `sigma_for`; for polls, :mod:`privote.planning.polls`. On votes that are public
or paid for: `tune`, which looks at the votes and is covered by no guarantee.
"""

from ..forecast import YES
from .budget import allowance_for, queries_for, sigma_for
from .tallies import Plan, plan
from .tuning import Trial, tune

__all__ = [
    "YES",
    "Plan",
    "Trial",
    "allowance_for",
    "plan",
    "queries_for",
    "sigma_for",
    "tune",
]
