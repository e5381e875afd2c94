"""Calibration: how much noise, and what it buys.

From public numbers alone: `queries_for`, `allowance_for`, `queries_until_out`, `sigma_for` and
`tau_for`. On votes that are public or paid for: `best`.
"""

from .agreement import MEASURES
from .answers import GUARANTEES
from .budget import (
    allowance_for,
    check_surprises,
    queries_for,
    queries_until_out,
    unanimous_miss,
)
from .choosing import best
from .result import LOOKED, Calibration, Candidate
from .solve import sigma_for, tau_for

__all__ = [
    "GUARANTEES",
    "LOOKED",
    "MEASURES",
    "Calibration",
    "Candidate",
    "allowance_for",
    "best",
    "check_surprises",
    "queries_for",
    "queries_until_out",
    "sigma_for",
    "tau_for",
    "unanimous_miss",
]
