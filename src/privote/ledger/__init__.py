"""The ledger: an append-only, crash-safe, tamper-evident record of charges."""

from .book import Ledger
from .location import Location
from .totals import Budget
from .verification import Verification

__all__ = ["Budget", "Ledger", "Location", "Verification"]
