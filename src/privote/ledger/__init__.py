"""The ledger: an append-only, crash-safe, tamper-evident record of charges."""

from .book import Ledger, Location
from .chain import Verification
from .totals import Budget

__all__ = ["Budget", "Ledger", "Location", "Verification"]
