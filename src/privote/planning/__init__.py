"""Planning: every question before a release, asked of one engine.

From public numbers alone: `plan`, `queries_for`, `allowance_for`, `queries_until_out`,
`unanimous_miss` and `sigma_for`; for polls, :mod:`privote.planning.polls`. On votes that are public
or paid for: `tune` and `queries_that_fit`. These look at the votes and are covered by no guarantee.
"""

from ..forecast import YES
from .budget import (
    FewOrders,
    allowance_for,
    queries_for,
    queries_until_out,
    sigma_for,
    unanimous_miss,
)
from .tallies import Plan, plan
from .tuning import (
    NOT_PRIVATE,
    Quality,
    Trial,
    Tuning,
    candidates,
    noise_free,
    quality,
    quality_of,
    queries_that_fit,
    tune,
    variants,
)

__all__ = [
    "NOT_PRIVATE",
    "YES",
    "FewOrders",
    "Plan",
    "Quality",
    "Trial",
    "Tuning",
    "allowance_for",
    "candidates",
    "noise_free",
    "plan",
    "quality",
    "quality_of",
    "queries_for",
    "queries_that_fit",
    "queries_until_out",
    "sigma_for",
    "tune",
    "unanimous_miss",
    "variants",
]
