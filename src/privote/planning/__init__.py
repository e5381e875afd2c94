"""Planning: before a vote is cast, what a budget buys, from public numbers.

`plan` and `outlook`, `queries_for`, `allowance_for` and `sigma_for`, and `forecast` for a named
mechanism. On votes that are public or paid for: `tune`, which looks at the votes and is covered by
no guarantee.
"""

from .budget import allowance_for, queries_for, sigma_for
from .chances import YES, forecast
from .tallies import Outlook, Plan, outlook, plan
from .tuning import Trial, tune

__all__ = [
    "YES",
    "Outlook",
    "Plan",
    "Trial",
    "allowance_for",
    "forecast",
    "outlook",
    "plan",
    "queries_for",
    "sigma_for",
    "tune",
]
