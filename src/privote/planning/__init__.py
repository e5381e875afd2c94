"""Planning: every question before a release, asked of one engine.

From public numbers alone: `plan`, `queries_for`, `allowance_for`
and `sigma_for`. On votes that are public
or paid for: `tune`, which looks at the votes and is covered by no guarantee.
"""

from .budget import allowance_for, queries_for, sigma_for
from .forecast import YES, chance_of_one, forecast
from .tallies import Plan, plan
from .tuning import Trial, tune

__all__ = [
    "YES",
    "Plan",
    "Trial",
    "allowance_for",
    "chance_of_one",
    "forecast",
    "plan",
    "queries_for",
    "sigma_for",
    "tune",
]
